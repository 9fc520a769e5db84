//! Messages of version 2 pass all built-in stages as they are.

use duologue_proxy::{
    PathMap, PermissionPolicy, PermissionRule, Proxy, RecordStage, Recorder, RedactStage, SystemPromptStage,
};
use duologue_test_support::in_time;

use crate::setup::Place;

const OF_CLIENT: [&str; 6] = [
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":2,"info":{"name":"c","version":"1"},"capabilities":{}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"auth/login","params":{"methodId":"m"}}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/other","additionalDirectories":[],"mcpServers":[]}}"#,
    r#"{"jsonrpc":"2.0","id":3,"method":"session/resume","params":{"sessionId":"s","cwd":"/other","replayFrom":{"type":"start"}}}"#,
    r#"{"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"/x"}],"messageId":"m1"}}"#,
    r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#,
];

const OF_AGENT: [&str; 9] = [
    r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":2,"info":{"name":"a","version":"1"},"capabilities":{"session":{}}}}"#,
    r#"{"jsonrpc":"2.0","id":4,"result":{"messageId":"m1"}}"#,
    r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"user_message","messageId":"m1","content":[{"type":"text","text":"x"}]}}}"#,
    r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":{"type":"running"}}}}"#,
    r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"t","kind":"edit","content":[{"type":"diff","changes":[{"type":"move","oldPath":"/x","path":"/y"}]}]}}}"#,
    r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"terminal_update","terminalId":"t","cwd":"/x","output":null}}}"#,
    r#"{"jsonrpc":"2.0","id":"p","method":"session/request_permission","params":{"sessionId":"s","title":"Edit?","subject":{"type":"tool_call","toolCall":{"toolCallId":"t"}},"options":[{"optionId":"y","name":"Yes","kind":"allow_once"}]}}"#,
    r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"_own","x":1}}}"#,
    r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":{"type":"idle","stopReason":"end_turn"}}}}"#,
];

#[tokio::test]
async fn messages_of_version_two_pass_all_stages_unchanged() {
    for place in Place::ALL {
        let recorder = Recorder::in_memory().unwrap();
        let proxy = Proxy::new()
            .stage(RecordStage::new(recorder.clone()))
            .stage(RedactStage::new())
            .stage(PermissionPolicy::new().rule("execute", PermissionRule::Deny))
            .stage(PathMap::new().map("/c", "/a"))
            .stage(SystemPromptStage::new("Be brief."));
        let (mut client, mut agent) = place.peers(proxy);
        in_time(async {
            for line in OF_CLIENT {
                client.send(line).await;
                assert_eq!(agent.next_line().await.as_deref(), Some(line));
            }
            for line in OF_AGENT {
                agent.send(line).await;
                assert_eq!(client.next_line().await.as_deref(), Some(line));
            }
        })
        .await;
        let transcript = recorder.transcript().await.unwrap();
        let lines = transcript.records().iter().filter(|record| record.line().is_some());
        assert_eq!(lines.count(), OF_CLIENT.len() + OF_AGENT.len());
    }
}
