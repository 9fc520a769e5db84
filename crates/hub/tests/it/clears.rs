//! Clears of messages, for clients that can clear and for others.

use duologue_hub::Abilities;
use serde_json::{Value, json};

use crate::scenarios::{Fixture, able};

/// A client that clears.
fn clearing() -> Abilities {
    let mut abilities = able();
    abilities.clears = true;
    abilities
}

fn update(kind: &str, id: Option<&str>, text: Option<&str>) -> Value {
    let mut update = json!({"sessionUpdate": kind});
    if let Some(id) = id {
        update["messageId"] = json!(id);
    }
    if let Some(text) = text {
        update["content"] = json!({"type": "text", "text": text});
    }
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}})
}

fn chunk(id: Option<&str>, text: &str) -> Value {
    update("agent_message_chunk", id, Some(text))
}

fn clear(id: Option<&str>) -> Value {
    update("agent_message_clear", id, None)
}

/// Returns the messages of a client that cannot clear, as ids with texts, in the order in which it sees them.
fn seen(it: &Fixture) -> Vec<(Option<String>, String)> {
    let mut messages: Vec<(Option<String>, String)> = Vec::new();
    for frame in it.frames("a", able()) {
        let update = &frame["params"]["update"];
        assert_ne!(update["sessionUpdate"], "agent_message_clear", "a clear for a client that cannot clear");
        let Some(text) = update["content"]["text"].as_str() else { continue };
        let id = update["messageId"].as_str().map(str::to_owned);
        match messages.last_mut().filter(|(last, _)| *last == id) {
            Some((_, seen)) => seen.push_str(text),
            None => messages.push((id, text.to_owned())),
        }
    }
    messages
}

fn played(updates: &[Value]) -> Fixture {
    let mut it = Fixture::new();
    it.attach("a", able());
    it.prompt("a", 1);
    for update in updates {
        it.agent(update);
    }
    it
}

const RULE: &str = "\n\n---\n\n";

#[test]
fn a_clear_becomes_a_new_message() {
    let it = played(&[
        chunk(Some("m"), "dra"),
        chunk(Some("m"), "ft"),
        clear(Some("m")),
        chunk(Some("m"), "fi"),
        chunk(Some("m"), "nal"),
    ]);
    let seen = seen(&it);
    assert_eq!(seen[0], (Some("m".into()), format!("draft{RULE}")));
    assert_eq!(seen[1].1, "final");
    assert_ne!(seen[1].0.as_deref(), Some("m"));
    assert_eq!(seen.len(), 2);
    // A client that clears receives the frames of the agent.
    let frames = it.frames("b", clearing());
    assert_eq!(
        frames[2..],
        [
            chunk(Some("m"), "dra"),
            chunk(Some("m"), "ft"),
            clear(Some("m")),
            chunk(Some("m"), "fi"),
            chunk(Some("m"), "nal"),
        ]
    );
}

#[test]
fn a_message_can_be_cleared_again_and_by_two_kinds() {
    let thought = |text| update("agent_thought_chunk", Some("m"), Some(text));
    let it = played(&[
        chunk(Some("m"), "one"),
        thought("first"),
        clear(Some("m")),
        thought(" second"),
        chunk(Some("m"), "two"),
        clear(Some("m")),
        // Empty by now.
        clear(Some("m")),
        chunk(Some("m"), "three"),
        update("agent_thought_clear", Some("m"), None),
        thought("third"),
    ]);
    let texts: Vec<_> = it
        .frames("a", able())
        .iter()
        .map(|frame| {
            let update = &frame["params"]["update"];
            let kind = update["sessionUpdate"].as_str().unwrap().split('_').nth(1).unwrap().to_owned();
            (kind, update["messageId"].as_str() == Some("m"), update["content"]["text"].clone())
        })
        .collect();
    let expected = [
        ("message", true, "one"),
        ("thought", true, "first"),
        ("message", true, RULE),
        ("thought", true, " second"),
        ("message", false, "two"),
        ("message", false, RULE),
        ("message", false, "three"),
        ("thought", true, RULE),
        ("thought", false, "third"),
    ];
    assert_eq!(texts, expected.map(|(kind, is_same, text)| (kind.to_owned(), is_same, json!(text))));
}

#[test]
fn a_clear_without_effect_shows_nothing() {
    let it = played(&[
        clear(None),
        clear(Some("unknown")),
        chunk(Some("m"), "text"),
        // Another kind has no such message.
        update("agent_thought_clear", Some("m"), None),
    ]);
    assert_eq!(seen(&it), [(Some("m".into()), "text".into())]);
}

#[test]
fn a_clear_without_an_id_empties_the_current_message() {
    let it = played(&[chunk(None, "draft"), clear(None), clear(None), chunk(None, "final")]);
    assert_eq!(seen(&it), [(None, format!("draft{RULE}final"))]);

    // The next chunk without an id fills it, even past a tool call.
    let call = json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t"});
    let call =
        json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": call}});
    let it = played(&[chunk(Some("m"), "draft"), clear(None), call, chunk(None, "final")]);
    let messages = seen(&it);
    assert_eq!(messages[0], (Some("m".into()), format!("draft{RULE}")));
    assert!(messages[1].0.as_ref().is_some_and(|id| id != "m"), "{messages:?}");

    // The message of an ended turn is final.
    let mut it = played(&[chunk(Some("m"), "text")]);
    it.ends_turn();
    it.agent(&clear(None));
    assert_eq!(seen(&it), [(Some("m".into()), "text".into())]);
    it.agent(&clear(Some("m")));
    assert_eq!(seen(&it), [(Some("m".into()), format!("text{RULE}"))]);
}

#[test]
fn the_translation_is_the_same_after_a_restart() {
    let mut it = played(&[chunk(Some("m"), "draft"), clear(Some("m"))]);
    let mut restarted = it.restarted();
    for it in [&mut it, &mut restarted] {
        it.attach("a", able());
        it.prompt_with("a", 2, &json!({"fresh": true}));
        // One runs, and one is restored.
        it.restores_if_started();
        it.agent(&chunk(Some("m"), "final"));
    }
    let shown = |it: &Fixture| seen(it).pop().unwrap();
    assert_eq!(shown(&it), shown(&restarted));
    assert_ne!(shown(&restarted).0.as_deref(), Some("m"));
}
