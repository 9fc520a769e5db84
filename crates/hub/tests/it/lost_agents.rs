//! Agents, sessions and logs that are not there any more.
#![cfg(unix)]

use duologue_hub::Hub;
use duologue_test_support::in_time;
use serde_json::json;

use crate::faults::{new_session, script, text_prompt};
use crate::hub::{RawClient, open_when_free, settings};

#[tokio::test]
async fn two_sessions_of_a_shared_process_have_two_ids() {
    const AGENT: &str = r#"
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}'
        while read -r line; do
            case "$line" in *session/new*)
                n=${line#*\"id\":\"}; n=${n%%:*}
                printf '{"jsonrpc":"2.0","id":"%s:\\"hub:session/new\\"","result":{"sessionId":"same"}}\n' $n;;
            esac
        done
    "#;
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let mut settings = script(data.path(), AGENT);
        settings.shared_process = true;
        let hub = Hub::open(settings).unwrap();
        let mut client = RawClient::new(&hub);
        client.initialize().await;
        assert!(client.request(1, "session/new", new_session()).await["result"].is_object());
        let refused = client.request(2, "session/new", new_session()).await;
        assert!(refused["error"]["message"].to_string().contains("the id of another one"), "{refused}");
        hub.shut_down().await;
    })
    .await;
}

/// A descendant of the agent keeps its output open.
#[tokio::test]
async fn an_agent_that_has_exited_has_ended_whoever_has_its_output() {
    const AGENT: &str = r#"
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1,"agentCapabilities":{}}}'
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:session/new","result":{"sessionId":"a"}}'
        read -r line; setsid sleep 60 & exit 3
    "#;
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(script(data.path(), AGENT)).unwrap();
        let mut client = RawClient::new(&hub);
        client.initialize().await;
        let new = client.request(1, "session/new", new_session()).await;
        let ended = client.request(2, "session/prompt", text_prompt(&new["result"]["sessionId"], "go")).await;
        assert!(ended["error"]["message"].to_string().contains("exit status: 3"), "{ended}");
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_session_whose_log_is_gone_is_no_empty_conversation() {
    in_time(async {
        for removes in [false, true] {
            let data = tempfile::tempdir().unwrap();
            let hub = Hub::open(settings(data.path(), 0)).unwrap();
            let mut client = RawClient::new(&hub);
            client.initialize().await;
            let new = client.request(1, "session/new", new_session()).await;
            let id = new["result"]["sessionId"].as_str().unwrap();
            hub.shut_down().await;
            drop((client, hub));
            let folder = data.path().join("sessions").join(id);
            for file in std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
                match file.extension().is_some_and(|it| it == "jsonl") {
                    true if removes => std::fs::remove_file(file).unwrap(),
                    true => std::fs::write(file, "").unwrap(),
                    false => {}
                }
            }
            let hub = open_when_free(|| settings(data.path(), 0)).await;
            let mut client = RawClient::new(&hub);
            client.initialize().await;
            let mut load = new_session();
            load["sessionId"] = json!(id);
            for number in 1..3 {
                let refused = client.request(number, "session/load", load.clone()).await;
                let data = json!({"code": "log_failed", "retryable": false});
                assert_eq!(refused["error"]["data"], data, "{refused}");
            }
            hub.shut_down().await;
        }
    })
    .await;
}
