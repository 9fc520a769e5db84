//! Notices and compactions, for clients that show them and for others.

use duologue_hub::Abilities;
use duologue_schema::ClientCapabilities;
use serde_json::{Value, json};

use super::Fixture;

/// A client with these capabilities for sessions.
fn client(session: &Value) -> Abilities {
    let capabilities: ClientCapabilities = serde_json::from_value(json!({ "session": session })).unwrap();
    Abilities::of(&capabilities)
}

/// A shared agent sends them for a client that shows them, and a faulty one without such a client.
#[test]
fn notices_and_compactions_reach_the_clients_that_show_them() {
    let mut it = Fixture::new();
    it.attach("a", client(&json!({})));
    it.prompt("a", 1);
    for update in [
        json!({"sessionUpdate": "notice", "severity": "info", "title": "n"}),
        json!({"sessionUpdate": "compaction_update", "compactionId": "c", "status": "in_progress"}),
        json!({"sessionUpdate": "compaction_summary_chunk", "compactionId": "c", "content": {"type": "text", "text": "s"}}),
        json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "a \"notice\""}}),
    ] {
        it.update("s", update);
    }
    let seen = |session: Value| -> Vec<String> {
        let kind = |frame: &Value| frame["params"]["update"]["sessionUpdate"].as_str().map(str::to_owned);
        it.frames("a", client(&session)).iter().filter_map(kind).collect()
    };
    let (notice, message) = ("notice", "agent_message_chunk");
    let compaction = ["compaction_update", "compaction_summary_chunk"];
    assert_eq!(seen(json!({})), [message]);
    assert_eq!(seen(json!({"notices": {}})), [notice, message]);
    assert_eq!(seen(json!({"compaction": {}})), [compaction[0], compaction[1], message]);
    let all = [notice, compaction[0], compaction[1], message];
    assert_eq!(seen(json!({"notices": {}, "compaction": {}})), all);
}
