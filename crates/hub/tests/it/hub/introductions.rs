//! The introduction of an agent to clients, and the process that was started for it.

use std::time::Duration;

use duologue_hub::{Hub, HubSettings, ProcessEvent, ProcessObserver};
use duologue_test_support::in_time;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::hub::{RawClient, settings};

type Events = mpsc::UnboundedReceiver<ProcessEvent>;

/// Opens a hub that keeps a process without a session for this time. Returns it with the events of its processes.
fn open(mut settings: HubSettings, spare: Duration) -> (Hub, Events) {
    let (observed, events) = mpsc::unbounded_channel();
    settings.processes = Some(ProcessObserver::new(move |event| _ = observed.send(event)));
    settings.spare_process = spare;
    (Hub::open(settings).unwrap(), events)
}

async fn new_session(client: &mut RawClient) -> Value {
    let new = client.request(1, "session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
    new["result"]["sessionId"].clone()
}

#[tokio::test]
async fn a_later_client_is_introduced_without_a_process() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let (hub, mut events) = open(settings(data.path(), 0), Duration::ZERO);
        let introduced = RawClient::new(&hub).initialize().await;
        let Some(ProcessEvent::Started(unused)) = events.recv().await else { panic!("no process") };
        assert_eq!(events.recv().await, Some(ProcessEvent::Ended(unused)));

        let mut client = RawClient::new(&hub);
        let again = client.initialize().await;
        for member in ["protocolVersion", "agentCapabilities", "agentInfo", "authMethods"] {
            assert_eq!(again["result"][member], introduced["result"][member], "{member}");
        }
        assert_eq!(events.try_recv().ok(), None);
        // The session has a process of its own, which stays.
        let session = new_session(&mut client).await;
        let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "hello"}]});
        assert_eq!(client.request(2, "session/prompt", prompt).await["result"]["stopReason"], "end_turn");
        assert!(matches!(events.try_recv(), Ok(ProcessEvent::Started(id)) if id != unused));
        assert_eq!(events.try_recv().ok(), None);
        hub.shut_down().await;
        RawClient::new(&hub).initialize().await["error"]["data"]["code"].as_str().expect("it is closed");
    })
    .await;
}

#[tokio::test]
async fn the_first_session_uses_the_process_of_the_introduction() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let (hub, mut events) = open(settings(data.path(), 0), Duration::MAX);
        let mut client = RawClient::initialized(&hub).await;
        let Some(ProcessEvent::Started(first)) = events.recv().await else { panic!("no process") };
        RawClient::new(&hub).initialize().await;
        new_session(&mut client).await;
        assert_eq!(events.try_recv().ok(), None);
        // An agent may offer more to a client with other capabilities.
        RawClient::new(&hub).initialize_with(json!({"envelope": {"v": [1]}})).await;
        let Some(ProcessEvent::Started(other)) = events.recv().await else { panic!("no process") };
        assert_ne!(other, first);
        hub.shut_down().await;
    })
    .await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_client_is_introduced_as_the_last_process_was() {
    // The version is the number of earlier processes.
    let script = r#"
        version=$(($(wc -c <"$0"))); printf . >>"$0"
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1,"agentInfo":{"name":"a","version":"'$version'"}}}'
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:session/new","result":{"sessionId":"s"}}'
        read -r line
    "#;
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let count = data.path().join("count");
        std::fs::write(&count, "").unwrap();
        let command = move || duologue_client::Command::new("sh").args(["-c", script]).arg(&count);
        let (hub, mut events) = open(HubSettings::new(command, data.path().join("hub")), Duration::ZERO);
        let mut client = RawClient::new(&hub);
        let version = |introduced: Value| introduced["result"]["agentInfo"]["version"].clone();
        assert_eq!(version(client.initialize().await), "0");
        while !matches!(events.recv().await, Some(ProcessEvent::Ended(_))) {}
        new_session(&mut client).await;
        assert_eq!(version(RawClient::new(&hub).initialize().await), "1");
        hub.shut_down().await;
    })
    .await;
}
