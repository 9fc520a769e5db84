//! Clients that leave while the server answers their requests.

use duologue_hub::Hub;
use duologue_test_support::in_time;
use serde_json::json;

use crate::hub::{RawClient, settings};

#[tokio::test]
async fn a_session_is_deleted_without_its_client() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(settings(data.path(), 0)).unwrap();
        let mut other = RawClient::new(&hub);
        other.initialize().await;
        for id in 1..4 {
            let new = other.request(id, "session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
            let mut client = RawClient::new(&hub);
            client.initialize().await;
            client.send(1, "session/delete", json!({"sessionId": new["result"]["sessionId"]})).await;
            drop(client);
            let mut listed = vec![json!(null)];
            while !listed.is_empty() {
                let list = other.request(10, "session/list", json!({})).await;
                listed = list["result"]["sessions"].as_array().unwrap().clone();
            }
        }
        hub.shut_down().await;
    })
    .await;
}

/// The agent asks its client something, waits for the test, and writes the lines that it reads after that.
#[cfg(unix)]
#[tokio::test]
async fn a_session_for_a_client_that_has_left_is_closed() {
    const AGENT: &str = r#"
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}'
        read -r line
        echo '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"requestId":"hub:session/new","mode":"form","message":"m","requestedSchema":{"type":"object","properties":{}}}}'
        read -r line; answer=$line
        echo '{"jsonrpc":"2.0","id":"hub:session/new","result":{"sessionId":"s"}}'
        read -r line || line=closed
        echo "$answer $line" >"$0"
    "#;
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let pipe = data.path().join("ended");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let script = pipe.clone();
        let command = move || duologue_client::Command::new("sh").args(["-c", AGENT]).arg(&script);
        let hub = Hub::open(duologue_hub::HubSettings::new(command, data.path())).unwrap();
        let mut client = RawClient::new(&hub);
        let capabilities = json!({"elicitation": {"form": {}}});
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        client.request(0, "initialize", params).await;
        client.send(1, "session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
        let question = client.next().await;
        assert_eq!(question["method"], "elicitation/create", "{question}");
        drop(client);
        let ended =
            tokio::task::spawn_blocking(move || std::fs::read_to_string(pipe)).await.unwrap().unwrap();
        assert!(ended.contains("\"decline\"") && ended.ends_with(" closed\n"), "{ended}");
        let sessions = std::fs::read_dir(data.path().join("sessions")).unwrap();
        assert_eq!(sessions.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count(), 1);
        hub.shut_down().await;
    })
    .await;
}
