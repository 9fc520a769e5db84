//! Child sessions: their ids, the clients that do not show them, and the restart of a server.

use duologue_hub::Abilities;
use duologue_schema::ClientCapabilities;
use serde_json::{Value, json};

use super::{Fixture, able};

/// A client that shows child sessions too.
fn shows_children() -> Abilities {
    let capabilities: ClientCapabilities =
        serde_json::from_value(json!({"elicitation": {"form": {}}, "subagents": {}})).unwrap();
    Abilities::of(&capabilities)
}

fn announces(child: &str) -> Value {
    json!({"sessionUpdate": "subagent_update", "sessionId": child, "capabilities": {"cancel": {}}})
}

fn text(text: &str) -> Value {
    json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})
}

/// An agent whose child `kid` has a child of its own.
fn with_children() -> Fixture {
    let mut it = Fixture::new();
    it.attach("a", shows_children());
    it.prompt("a", 1);
    it.update("s", announces("kid"));
    it.update("s", json!({"sessionUpdate": "tool_call", "toolCallId": "t", "title": "T", "content": [
        {"type": "session", "sessionId": "kid"}, {"type": "content", "content": {"type": "text", "text": "~"}},
    ]}));
    it.update(
        "s",
        json!({"sessionUpdate": "session_message", "messageId": "m",
        "senderSessionId": "s", "recipientSessionId": "kid", "content": []}),
    );
    it.update(
        "s",
        json!({"sessionUpdate": "session_message_chunk", "messageId": "m",
        "content": {"type": "text", "text": "go"}}),
    );
    it.update("kid", announces("grandkid"));
    it.update("kid", text("of the child"));
    it.update("grandkid", text("of the grandchild"));
    it
}

#[test]
fn the_ids_of_children_are_those_of_the_hub() {
    let mut it = with_children();
    let frames = it.frames("a", shows_children());
    let kid = frames[0]["params"]["update"]["sessionId"].as_str().unwrap().to_owned();
    let number = kid.strip_prefix("s~").expect("the id of its session").parse::<u64>();
    assert!(number.is_ok(), "{kid}");
    assert_eq!(frames[1]["params"]["update"]["content"][0]["sessionId"], *kid);
    let message = &frames[2]["params"]["update"];
    assert_eq!((&message["senderSessionId"], &message["recipientSessionId"]), (&json!("s"), &json!(kid)));
    let sessions: Vec<_> =
        frames.iter().map(|frame| frame["params"]["sessionId"].as_str().unwrap()).collect();
    let grandkid = frames[4]["params"]["update"]["sessionId"].as_str().unwrap();
    assert_eq!(sessions, ["s", "s", "s", "s", &kid, &kid, grandkid]);
    assert!(grandkid.starts_with("s~") && grandkid != kid);
    // A cancel of the child has its own id for the agent, and does not cancel the turn.
    it.asks(50);
    let agent = it.agent.len();
    it.client("a", &json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": kid}}));
    it.client("a", &json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s~999"}}));
    let cancel = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "kid"}});
    assert_eq!(it.agent[agent..], [cancel]);
    // The next life of the server knows the ids, and a session without the conversation has new ones.
    for (fresh, is_known) in [(false, true), (true, false)] {
        let mut next = it.restarted();
        next.attach("a", shows_children());
        next.prompt_with("a", 2, &json!({"fresh": fresh}));
        if fresh {
            next.loses();
            next.answers_owner(&json!({"result": {"sessionId": "other"}}));
        } else {
            next.restores();
        }
        let before = next.frames("a", shows_children()).len();
        next.update("kid", text("more"));
        let frames = next.frames("a", shows_children());
        assert_eq!((frames[before]["params"]["sessionId"] == *kid, frames.len()), (is_known, before + 1));
    }
}

#[test]
fn a_client_that_does_not_show_children_has_their_questions_alone() {
    let mut it = with_children();
    it.attach("b", able());
    let permission = |session: &str| {
        let call = json!({"toolCallId": "c", "content": [{"type": "session", "sessionId": "kid"}]});
        json!({"sessionId": session, "toolCall": call, "options": [
            {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        ]})
    };
    it.requests(50, "session/request_permission", &permission("kid"));
    let frames = it.frames("b", able());
    let shown: Vec<_> = frames
        .iter()
        .filter(|frame| frame["method"] != "_session/turn")
        .filter(|frame| frame["params"]["update"]["sessionUpdate"] != "user_message_chunk")
        .collect();
    assert_eq!(shown.len(), 2, "{shown:?}");
    let call = &shown[0]["params"]["update"];
    assert_eq!(call["content"], json!([{"type": "content", "content": {"type": "text", "text": "~"}}]));
    let question = &shown[1];
    assert_eq!(question["params"]["sessionId"], "s");
    assert_eq!(question["params"]["toolCall"]["content"], json!([]));
    let of_child = it.frames("a", shows_children()).pop().unwrap();
    assert!(of_child["params"]["sessionId"].as_str().unwrap().starts_with("s~"), "{of_child}");
    // Either answer counts.
    let result = json!({"outcome": {"outcome": "selected", "optionId": "yes"}});
    it.client("b", &json!({"jsonrpc": "2.0", "id": question["id"], "result": result}));
    assert_eq!((&it.last_to_agent()["id"], &it.last_to_agent()["result"]), (&json!(50), &result));
    // A client that comes later has the open question too.
    it.requests(51, "session/request_permission", &permission("kid"));
    it.attach("c", able());
    assert_eq!(it.frames("c", able()).pop().unwrap()["params"]["sessionId"], "s");
}

#[test]
fn a_message_with_a_long_id_of_a_session_reaches_no_client() {
    let mut it = Fixture::new();
    it.attach("a", shows_children());
    it.prompt("a", 1);
    let (long, before) = ("x".repeat(257), it.log.len());
    it.update(&long, text("t"));
    assert_eq!(it.log.len(), before);
    it.requests(50, "_x/y", &json!({"sessionId": long}));
    assert_eq!(
        (&it.last_to_agent()["id"], &it.last_to_agent()["error"]["code"]),
        (&json!(50), &json!(-32602))
    );
    assert!(it.frames("a", shows_children()).is_empty());
}
