//! Tests of the entries of a hub.

use duologue_client::Command;
use duologue_test_support::in_time;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::*;

/// Answers `initialize` and `session/new`.
const AGENT: &str = r#"
    while read -r line; do case $line in
        *hub:initialize*) echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}';;
        *hub:session/new*) echo '{"jsonrpc":"2.0","id":"hub:session/new","result":{"sessionId":"s"}}';;
    esac; done
"#;

impl Hub {
    /// Returns the number of entries that the hub has for sessions and clients, and of open files.
    fn entries(&self) -> usize {
        let sessions = self.shared.sessions.lock_unpoisoned();
        let clients = self.shared.clients.lock_unpoisoned().len();
        let Sessions { live, opening, gates, logs, is_closed: _, is_ended: _ } = &*sessions;
        live.len() + opening + gates.len() + logs.len() + clients + self.shared.logs.open_files()
    }
}

#[tokio::test]
async fn a_closed_session_leaves_no_entry() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(HubSettings::new(|| Command::new("sh").args(["-c", AGENT]), data.path()));
        let hub = hub.unwrap();
        for _ in 0..3 {
            let (ours, theirs) = Transport::memory();
            let serving = hub.serve(theirs);
            let playing = async {
                let (reader, mut writer) = ours.into_split();
                let mut lines = BufReader::new(reader).lines();
                let mut id = 0;
                let mut request = async |method: &str, params: Value| {
                    id += 1;
                    let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
                    writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
                    let line = lines.next_line().await.unwrap().unwrap();
                    let response: Value = serde_json::from_str(&line).unwrap();
                    assert_eq!(response["id"], id, "{response}");
                    response["result"].clone()
                };
                request("initialize", json!({"protocolVersion": 1})).await;
                for _ in 0..10 {
                    let new = request("session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
                    let id = json!({"sessionId": new["sessionId"], "cwd": "/tmp", "mcpServers": []});
                    request("session/load", id.clone()).await;
                    request("session/close", id).await;
                }
            };
            tokio::join!(serving, playing);
            // The last session is forgotten when the next one begins.
            while hub.entries() > 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        hub.shut_down().await;
    })
    .await;
}
