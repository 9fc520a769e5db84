//! Plans with ids, child sessions and references to sessions in the stable version 1.

use duologue_schema::{
    Conversation, PlanUpdateContent, SessionId, SessionUpdate, StopReason, ToolCallContent, ToolCallId,
};
use serde_json::{Value, json};

fn folded(updates: &[Value]) -> Conversation {
    let mut conversation = Conversation::default();
    for update in updates {
        let read: SessionUpdate = serde_json::from_value(update.clone()).unwrap();
        assert_eq!(read.tag_outside_v1(), None);
        assert_eq!(&serde_json::to_value(&read).unwrap(), update);
        conversation.apply(&read);
    }
    conversation
}

fn plan(plan: &Value) -> Value {
    json!({"sessionUpdate": "plan_update", "plan": plan})
}

#[test]
fn an_update_of_a_plan_replaces_it_whatever_its_type() {
    let step = json!({"content": "Test", "priority": "high", "status": "pending"});
    let items = plan(&json!({"type": "items", "planId": "a", "entries": [step]}));
    let markdown =
        plan(&json!({"type": "markdown", "planId": "a", "content": "# Test", "path": "/project/plan.md"}));
    let conversation = folded(&[items.clone(), markdown.clone()]);
    let [PlanUpdateContent::Markdown(shown)] = &conversation.state().plans[..] else {
        panic!("{:?}", conversation.state().plans);
    };
    assert_eq!(shown.path.as_deref(), Some("/project/plan.md".as_ref()));
    let conversation = folded(&[markdown, items]);
    assert!(matches!(&conversation.state().plans[..], [PlanUpdateContent::Items(_)]));
}

#[test]
fn the_removal_of_an_unknown_plan_is_ignored() {
    let markdown = plan(&json!({"type": "markdown", "planId": "a", "content": ""}));
    let removed = |id: &str| json!({"sessionUpdate": "plan_removed", "planId": id});
    let steps = json!({"sessionUpdate": "plan", "entries": []});
    let known = folded(&[steps.clone(), markdown.clone()]);
    assert_eq!(folded(&[steps.clone(), markdown.clone(), removed("b")]), known);
    assert_eq!(folded(&[steps.clone(), markdown, removed("a")]).state(), folded(&[steps]).state());
}

/// A malformed plan changes nothing, and a malformed path of one is absent.
#[test]
fn a_malformed_plan_is_an_error() {
    let read = |plan: Value| {
        let update = json!({"sessionUpdate": "plan_update", "plan": plan});
        serde_json::from_value::<SessionUpdate>(update).map(|update| json!(update)["plan"].clone())
    };
    for malformed in [
        json!({"type": "items", "planId": "a", "entries": 7}),
        json!({"type": "items", "planId": "a"}),
        json!({"type": "markdown", "planId": "a"}),
        json!({"type": "markdown", "content": ""}),
    ] {
        assert!(read(malformed.clone()).is_err(), "{malformed}");
    }
    let path = json!({"type": "markdown", "planId": "a", "content": "", "path": 7});
    assert_eq!(read(path).unwrap(), json!({"type": "markdown", "planId": "a", "content": ""}));
    // The form that was removed from the protocol is unknown, and kept.
    let file = json!({"type": "file", "planId": "a", "uri": "file:///plan.md"});
    assert_eq!(read(file.clone()).unwrap(), file);
}

#[test]
fn a_tool_call_refers_to_a_child_session() {
    let conversation = folded(&[
        json!({"sessionUpdate": "subagent_update", "sessionId": "child", "title": "Review", "state": {"state": "running"}}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "call", "content": [{"type": "session", "sessionId": "child"}]}),
        json!({"sessionUpdate": "subagent_update", "sessionId": "child", "state": {"state": "idle", "stopReason": "end_turn"}}),
    ]);
    let call = conversation.tool_call(ToolCallId::from("call")).unwrap();
    let [ToolCallContent::Session(session)] = &call.content[..] else { panic!("{call:?}") };
    let child = conversation.children().get(&session.session_id).unwrap();
    assert_eq!((child.id.clone(), child.title.as_deref()), (SessionId::from("child"), Some("Review")));
    assert_eq!(child.state.as_ref().and_then(|state| state.stop_reason()), Some(StopReason::EndTurn));
    // A malformed reference is left out, as any malformed content.
    let call = json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "content": [{"type": "session"}]});
    let read: SessionUpdate = serde_json::from_value(call).unwrap();
    assert!(matches!(&read, SessionUpdate::ToolCall(call) if call.content.is_empty()));
}
