//! Clients that leave while the server answers their requests.

use duologue_hub::Hub;
use duologue_test_support::in_time;
use serde_json::json;

use crate::hub::{RawClient, agent_text, opened, settings};

#[tokio::test]
async fn a_session_is_deleted_without_its_client() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(settings(data.path(), 0)).unwrap();
        let mut other = RawClient::initialized(&hub).await;
        for id in 1..4 {
            let new = other.request(id, "session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
            let mut client = RawClient::initialized(&hub).await;
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

#[tokio::test]
async fn a_turn_goes_on_without_a_client_that_leaves_while_it_loads() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let (hub, mut first, new) = opened(settings(data.path(), 0)).await;
        let session = json!({"sessionId": new["result"]["sessionId"], "cwd": "/tmp", "mcpServers": []});
        let mut prompt = session.clone();
        prompt["prompt"] = json!([{"type": "text", "text": "cancel"}]);
        first.send(2, "session/prompt", prompt).await;
        // The turn has begun.
        while first.next().await["params"]["update"]["sessionUpdate"] != "agent_message_chunk" {}
        drop(first);
        for _ in 0..20 {
            let mut client = RawClient::initialized(&hub).await;
            client.send(1, "session/load", session.clone()).await;
            drop(client);
            let mut client = RawClient::initialized(&hub).await;
            let loaded = client.request(1, "session/load", session.clone()).await;
            assert_eq!(loaded["result"]["_meta"]["duologue"]["turn"], true, "{loaded}");
        }
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn an_answer_reaches_a_session_that_is_opened_again() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let (hub, mut client, new) = opened(settings(data.path(), 0)).await;
        let session = &new["result"]["sessionId"];
        let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "permission"}]});
        client.send(2, "session/prompt", prompt).await;
        let mut question = client.next().await;
        while question["method"] != "session/request_permission" {
            question = client.next().await;
        }
        // A cursor that the log does not have is refused, after the answer has arrived.
        let after = json!({"position": "9-999", "frames": 0});
        let resume = json!({"sessionId": session, "cwd": "/tmp", "_meta": {"duologue": {"after": after}}});
        let resume = json!({"jsonrpc": "2.0", "id": 3, "method": "session/resume", "params": resume});
        let option = &question["params"]["options"][0]["optionId"];
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": option}});
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": outcome});
        client.send_line(&format!("{resume}\n{answer}")).await;
        let (ended, refused) = (client.response(2).await, client.response(3).await);
        assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
        assert_eq!(refused["error"]["data"]["code"], "cursor_gone", "{refused}");
        hub.shut_down().await;
    })
    .await;
}

/// The frames before the replay of a load are in the replay, and those before a resume are not sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_opens_its_session_again_in_a_turn_has_each_frame_once() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let (hub, mut client, new) = opened(settings(data.path(), 0)).await;
        let session = json!({"sessionId": new["result"]["sessionId"], "cwd": "/tmp", "mcpServers": []});
        let mut prompt = session.clone();
        let words: String = (0..4_000).map(|word| format!("{word} ")).collect();
        prompt["prompt"] = json!([{"type": "text", "text": words}]);
        client.send(2, "session/prompt", prompt).await;
        let (mut text, mut before) = (String::new(), None::<String>);
        let (mut requests, mut is_answered, mut has_ended) = (2, true, false);
        while !(has_ended && is_answered) {
            if is_answered {
                requests += 1;
                let method = if requests % 2 == 0 { "session/load" } else { "session/resume" };
                client.send(requests, method, session.clone()).await;
                is_answered = false;
            }
            let message = client.next().await;
            if message["id"] == 2 {
                assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
                has_ended = true;
            } else if message["id"] == requests {
                is_answered = true;
                if let Some(before) = before.take() {
                    assert!(text.starts_with(&before), "{} and {} bytes", before.len(), text.len());
                }
            } else if message["params"]["update"]["sessionUpdate"] == "user_message_chunk" {
                before = Some(std::mem::take(&mut text));
            } else {
                text += agent_text(&message);
            }
        }
        let mut other = RawClient::initialized(&hub).await;
        other.send(1, "session/load", session).await;
        let mut expected = String::new();
        let mut message = json!(null);
        while message["id"] != 1 {
            message = other.next().await;
            expected += agent_text(&message);
        }
        let same = text.bytes().zip(expected.bytes()).take_while(|(a, b)| a == b).count();
        assert!(text == expected && text.contains("3999"), "{} bytes of {} are alike", same, expected.len());
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
