//! Sessions that share a process.

use std::path::Path;
use std::time::Duration;

use duologue_hub::{Hub, HubSettings};
use duologue_test_support::in_time;
use serde_json::{Value, json};

#[cfg(unix)]
use crate::faults::script;
use crate::faults::{new_session, text_prompt};
use crate::hub::{RawClient, agent_text, connect, load, opened, prompt, traced};

fn shared(data: &Path) -> HubSettings {
    let mut settings = traced(data);
    settings.shared_process = true;
    settings
}

fn processes(data: &Path) -> usize {
    std::fs::read_to_string(data.join("processes")).unwrap().lines().count()
}

/// Opens a hub, and a client with two sessions. Returns their ids too.
async fn two_sessions(settings: HubSettings) -> (Hub, RawClient, [Value; 2]) {
    let (hub, mut client, first) = opened(settings).await;
    let second = client.request(2, "session/new", new_session()).await;
    (hub, client, [first, second].map(|new| new["result"]["sessionId"].clone()))
}

/// Returns settings for sessions that share the process of a script.
#[cfg(unix)]
pub(crate) fn shared_script(data: &Path, agent: &str) -> HubSettings {
    let mut settings = script(data, agent);
    settings.shared_process = true;
    settings
}

#[tokio::test]
async fn sessions_share_a_process_and_keep_their_own_messages() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(shared(data.path())).unwrap();
        let (first, second) = (connect(&hub).await, connect(&hub).await);
        let (one, two) =
            (first.new_session("/tmp").await.unwrap(), second.new_session("/tmp").await.unwrap());
        let expected = prompt(&one, "tools please").await;
        let (a, b, c) = tokio::join!(prompt(&one, "tools please"), prompt(&two, "permission"), async {
            let three = first.new_session("/tmp").await.unwrap();
            prompt(&three, "tools please").await
        });
        assert_eq!((a, c), (expected.clone(), expected));
        assert!(b.contains("You allowed it."), "{b}");
        assert_eq!(processes(data.path()), 1);
        let texts = load(&second, one.id()).await.1;
        assert_eq!(texts.iter().filter(|text| *text == "tools please").count(), 2, "{texts:?}");
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn the_end_of_a_shared_process_interrupts_all_turns() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let (hub, mut client, sessions) = two_sessions(shared(data.path())).await;
        client.send(3, "session/prompt", text_prompt(&sessions[0], "permission")).await;
        while client.next().await["method"] != "session/request_permission" {}
        client.send(4, "session/prompt", text_prompt(&sessions[1], "crash")).await;
        let mut interrupted = Vec::new();
        while interrupted.len() < 2 {
            let message = client.next().await;
            if message["error"].is_object() {
                assert_eq!(message["error"]["data"]["code"], "interrupted", "{message}");
                interrupted.push(message["id"].as_u64().unwrap());
            }
        }
        interrupted.sort_unstable();
        assert_eq!(interrupted, [3, 4]);
        // The next prompts share the next process. The mock forgets its sessions with its process, and uses their ids again.
        for (id, session) in (5..).zip(&sessions) {
            let mut prompt = text_prompt(session, "hello");
            prompt["_meta"] = json!({"duologue": {"fresh": true}});
            client.send(id, "session/prompt", prompt).await;
            let ended = client.response(id).await;
            assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
        }
        assert_eq!(processes(data.path()), 2);
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_closed_session_ends_its_turn_and_not_the_process() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let (hub, mut client, [one, two]) = two_sessions(shared(data.path())).await;
        client.send(3, "session/prompt", text_prompt(&one, "permission")).await;
        while client.next().await["method"] != "session/request_permission" {}
        client.send(4, "session/close", json!({"sessionId": one})).await;
        assert_eq!(client.response(3).await["result"]["stopReason"], "cancelled");
        assert!(client.response(4).await["result"].is_object());
        client.send(5, "session/prompt", text_prompt(&two, "hello")).await;
        while agent_text(&client.next().await).is_empty() {}
        assert_eq!(client.response(5).await["result"]["stopReason"], "end_turn");
        let cancelled = || {
            let input = std::fs::read_to_string(data.path().join("input")).unwrap();
            input.contains("session/cancel")
        };
        while !cancelled() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(processes(data.path()), 1);
        hub.shut_down().await;
    })
    .await;
}

/// Messages of a new session that precede the response with its id.
#[cfg(unix)]
#[tokio::test]
async fn early_messages_and_ids_of_a_shared_process_reach_their_session() {
    const AGENT: &str = r#"
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}'
        read -r line
        echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"a","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"early"}}}}'
        echo '{"jsonrpc":"2.0","id":"0:\"hub:session/new\"","result":{"sessionId":"a"}}'
        read -r line; echo '{"jsonrpc":"2.0","id":"0:1","result":{"stopReason":"end_turn"}}'
        read -r line
    "#;
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let (hub, mut client, new) = opened(shared_script(data.path(), AGENT)).await;
        assert_eq!(agent_text(&client.next().await), "early");
        let prompt = text_prompt(&new["result"]["sessionId"], "hello");
        let ended = client.request(2, "session/prompt", prompt).await;
        assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
        hub.shut_down().await;
    })
    .await;
}

/// A withdrawal names the request as the shared process knows it.
#[cfg(unix)]
#[tokio::test]
async fn a_cancelled_request_has_its_id_at_the_shared_process() {
    const AGENT: &str = r#"
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}'
        read -r line; echo '{"jsonrpc":"2.0","id":"0:\"hub:session/new\"","result":{"sessionId":"a"}}'
        read -r line; echo '{"jsonrpc":"2.0","id":"1:\"hub:session/new\"","result":{"sessionId":"b"}}'
        for message in prompt prompt cancellation; do
            read -r line
            case $line in *'"requestId":"1:1"'*)
                stop=cancelled ;;
            esac
        done
        echo '{"jsonrpc":"2.0","id":"0:1","result":{"stopReason":"end_turn"}}'
        echo '{"jsonrpc":"2.0","id":"1:1","result":{"stopReason":"'${stop:-refusal}'"}}'
        read -r line
    "#;
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let (hub, mut client, sessions) = two_sessions(shared_script(data.path(), AGENT)).await;
        for (id, session) in (3..).zip(&sessions) {
            client.send(id, "session/prompt", text_prompt(session, "hello")).await;
        }
        let cancel = json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 4}});
        client.send_line(&cancel.to_string()).await;
        let mut ends = Vec::new();
        while ends.len() < 2 {
            let message = client.next().await;
            if message["result"]["stopReason"].is_string() {
                ends.push((message["id"].as_u64(), message["result"]["stopReason"].clone()));
            }
        }
        ends.sort_by_key(|(id, _)| *id);
        assert_eq!(ends, [(Some(3), json!("end_turn")), (Some(4), json!("cancelled"))]);
        hub.shut_down().await;
    })
    .await;
}
