//! Permission rules about files. The paths are absolute on Unix alone.

use duologue_client::schema::ToolKind;
use duologue_client::{Client, LocalHost, Permissions};
use duologue_test_support::in_time;
use serde_json::json;

use super::connect;

/// The rules see all files of a change.
#[tokio::test(start_paused = true)]
async fn permission_rules_see_the_files_of_changes() {
    in_time(async {
        let modify = |path: &str| json!({"operation": "modify", "path": path});
        let moved = json!({"operation": "move", "oldPath": "/etc/passwd", "path": "/project/b"});
        let unknown = json!({"operation": "chmod", "target": "/etc/passwd"});
        let allowing = Permissions::new().allow_in(ToolKind::Edit, "/project");
        let denying = Permissions::new().allow(ToolKind::Edit).deny_in("/etc");
        for permissions in [allowing, denying] {
            let client = Client::new(LocalHost::new("/project").permissions(permissions));
            let (_connection, _session, mut agent) = connect(client).await;
            for (changes, answer) in [
                (json!([modify("/project/a")]), "yes"),
                (json!([modify("/project/a"), modify("/etc/passwd")]), "no"),
                (json!([moved]), "no"),
                (json!([modify("/project/a"), unknown]), "no"),
                (json!([]), "no"),
            ] {
                let call = json!({"toolCallId": "c", "kind": "edit", "locations": [{"path": "/project/a"}],
                    "content": [{"type": "diff", "changes": changes}]});
                let answered = agent.ask(json!({"type": "tool_call", "toolCall": call})).await;
                assert_eq!(answered, answer, "{changes}");
            }
        }
    })
    .await;
}

/// The user decides about the command, so fields of the tool call that it belongs to are not those of the command.
#[tokio::test(start_paused = true)]
async fn a_command_is_not_filled_in_from_its_tool_call() {
    in_time(async {
        let permissions = Permissions::new().allow_in(ToolKind::Execute, "/project");
        let client = Client::new(LocalHost::new("/project").permissions(permissions));
        let (_connection, _session, mut agent) = connect(client).await;
        let call = json!({"toolCallId": "c", "kind": "execute", "locations": [{"path": "/project/a"}]});
        assert_eq!(agent.ask(json!({"type": "tool_call", "toolCall": call})).await, "yes");
        let command = json!({"type": "command", "command": "rm -rf /", "cwd": "/", "toolCallId": "c"});
        assert_eq!(agent.ask(command).await, "no");
    })
    .await;
}
