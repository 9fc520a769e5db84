//! Sessions that were closed: their logs are read without a change of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use duologue_hub::{LogEntry, SessionLogPage};
use duologue_test_support::in_time;
use serde_json::json;

use crate::hub::{opened, settings};

/// Returns the files of the logs with their content.
fn files(folder: &Path, into: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, into),
            false if path.extension().is_some_and(|end| end == "jsonl") => {
                into.insert(path.clone(), std::fs::read(&path).unwrap());
            }
            false => {}
        }
    }
}

#[tokio::test]
async fn the_log_of_a_closed_session_is_read_as_it_is() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let (hub, mut client, new) = opened(settings(data.path(), 0)).await;
        let id = new["result"]["sessionId"].as_str().unwrap();
        let prompt = json!({"sessionId": id, "prompt": [{"type": "text", "text": "hello"}]});
        client.send(2, "session/prompt", prompt).await;
        client.response(2).await;
        let read = async |after: u64| hub.read_log("local", id, after, 1000, Duration::ZERO).await.unwrap();
        assert!(read(0).await.is_live);
        client.send(3, "session/close", json!({"sessionId": id})).await;
        client.response(3).await;
        let content = || {
            let mut content = BTreeMap::new();
            files(data.path(), &mut content);
            content
        };
        let before = content();
        assert_eq!(before.len(), 1);
        let (mut after, mut events) = (0, 0);
        loop {
            let SessionLogPage { page, is_live, .. } = read(after).await;
            assert!(!is_live);
            let Some(last) = page.last() else { break };
            after = last.number();
            let parsed = page.records.iter().map(|record| LogEntry::read(&record.line).unwrap());
            events += parsed.filter(|entry| entry.event.is_some()).count();
        }
        assert!(after > 10 && events >= 3, "{after} records with {events} events");
        assert!(hub.read_log("local", id, after + 1, 1000, Duration::ZERO).await.is_err());
        assert_eq!(content(), before);
        hub.shut_down().await;
    })
    .await;
}
