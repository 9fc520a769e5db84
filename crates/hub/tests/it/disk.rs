//! The limits on the disk.

use std::path::Path;
use std::time::Duration;

use duologue_client::Client;
use duologue_hub::{Hub, HubSettings};
use duologue_rpc::Transport;
use duologue_schema::SessionId;
use duologue_test_support::in_time;

use serde_json::json;

use crate::hub::{RawClient, connect, hub_in, load, open_when_free, opened, prompt, settings};

/// Runs a turn in a session, and opens the hub again with other settings. Returns the session.
async fn with_a_session(data: &Path, change: impl Fn(&mut HubSettings)) -> (Hub, SessionId) {
    let hub = hub_in(data);
    let client = connect(&hub).await;
    let session = client.new_session("/tmp").await.unwrap();
    prompt(&session, "hello").await;
    client.close().await;
    hub.shut_down().await;
    drop(hub);
    let hub = open_when_free(|| {
        let mut settings = settings(data, 0);
        change(&mut settings);
        settings
    });
    (hub.await, session.id().clone())
}

#[tokio::test]
async fn a_full_folder_refuses_new_sessions_and_loads_old_ones() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let (hub, session) = with_a_session(data.path(), |settings| settings.disk_bytes = 1).await;
        let client = connect(&hub).await;
        let refused = client.new_session("/tmp").await.unwrap_err().to_string();
        assert!(
            refused.contains("disk limit reached: the logs of the sessions have 1 bytes or more"),
            "{refused}"
        );
        let (_, texts) = load(&client, &session).await;
        assert_eq!(texts.first().map(String::as_str), Some("hello"));
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_principal_with_full_logs_has_no_new_sessions() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let (hub, _) = with_a_session(data.path(), |settings| settings.principal_disk_bytes = 1).await;
        let refused = connect(&hub).await.new_session("/tmp").await.unwrap_err().to_string();
        assert!(refused.contains("1 bytes or more (`limits.principal_disk_bytes`"), "{refused}");
        let (ours, theirs) = Transport::memory();
        let other = hub.clone();
        tokio::spawn(async move { other.serve_as("other", theirs).await });
        let client = Client::new(()).connect(ours).await.unwrap();
        client.new_session("/tmp").await.unwrap();
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn old_sessions_are_removed_unless_they_are_open() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = hub_in(data.path());
        let client = connect(&hub).await;
        let old = client.new_session("/tmp").await.unwrap();
        let open = client.new_session("/tmp").await.unwrap();
        for session in [&old, &open] {
            prompt(session, "hello").await;
        }
        old.close().await.unwrap();
        // The time of the last change is before that of the removal.
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(hub.remove_old(DAY).await.unwrap(), 0);
        assert_eq!(hub.remove_old(Duration::ZERO).await.unwrap(), 1);
        assert_eq!(hub.remove_old(Duration::ZERO).await.unwrap(), 0);
        let logs = std::fs::read_dir(data.path().join("sessions")).unwrap();
        let logs: Vec<_> = logs.map(|log| log.unwrap().file_name()).collect();
        let is_log = |id: &str| logs.iter().any(|log| log == id);
        assert!(!is_log(old.id().as_str()) && is_log(open.id().as_str()), "{logs:?}");
        assert!(client.load_session(old.id().clone(), "/tmp").unwrap().outcome().await.is_err());
        prompt(&open, "again").await;
        hub.shut_down().await;
    })
    .await;
}

/// The log is removed, and the list cannot be changed, as on a full disk.
#[tokio::test]
async fn a_session_is_deleted_though_the_list_cannot_be_changed() {
    const FULL: &str = "CREATE TRIGGER is_full BEFORE DELETE ON sessions
        BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END";
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = hub_in(data.path());
        let mut client = RawClient::initialized(&hub).await;
        let new = client.request(1, "session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
        let session = json!({"sessionId": new["result"]["sessionId"], "cwd": "/tmp", "mcpServers": []});
        let sessions = data.path().join("sessions");
        let list = rusqlite::Connection::open(sessions.join("index.sqlite")).unwrap();
        list.execute_batch(FULL).unwrap();
        let deleted = client.request(2, "session/delete", session.clone()).await;
        assert!(deleted["result"].is_object(), "{deleted}");
        assert!(!sessions.join(session["sessionId"].as_str().unwrap()).exists());
        let refused = client.request(3, "session/load", session.clone()).await;
        assert!(refused["error"]["message"].to_string().contains("delete the session"), "{refused}");
        list.execute_batch("DROP TRIGGER is_full").unwrap();
        client.request(4, "session/delete", session).await;
        let listed = client.request(5, "session/list", json!({})).await;
        assert_eq!(listed["result"]["sessions"], json!([]), "{listed}");
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_full_log_is_loaded_and_refuses_prompts() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let mut settings = settings(data.path(), 0);
        settings.logs.log_bytes = 16 << 10;
        let (hub, mut client, new) = opened(settings).await;
        let id = json!({"sessionId": new["result"]["sessionId"], "cwd": "/tmp", "mcpServers": []});
        let mut prompt = id.clone();
        prompt["prompt"] = json!([{"type": "text", "text": "hello ".repeat(80)}]);
        prompt["_meta"] = json!({"duologue": {"fresh": true}});
        let mut number = 2;
        for _ in 0..3 {
            let code = loop {
                number += 1;
                assert!(number < 100, "the log is never full");
                client.send(number, "session/prompt", prompt.clone()).await;
                let answer = client.response(number).await;
                if answer["error"].is_object() {
                    break answer["error"]["data"]["code"].clone();
                }
            };
            assert_eq!(code, "log_failed");
            number += 1;
            client.send(number, "session/load", id.clone()).await;
            let loaded = client.response(number).await;
            assert!(loaded["result"].is_object(), "{loaded}");
        }
        hub.shut_down().await;
    })
    .await;
}
