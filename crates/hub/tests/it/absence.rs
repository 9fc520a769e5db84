//! Clients whose connection is lost for a while.

use std::time::Duration;

use duologue_hub::Hub;
use duologue_rpc::Transport;
use duologue_test_support::in_time;
use serde_json::json;
use tokio::sync::watch;

use crate::hub::{RawClient, settings};

/// The clock of a question runs while its client is absent, and stops when it is back.
#[tokio::test]
async fn a_question_waits_for_an_absent_client_until_its_limit() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let mut settings = settings(data.path(), 0);
        settings.owner.question = Duration::from_millis(400);
        let hub = Hub::open(settings).unwrap();
        let presence = watch::Sender::new(true);
        let mut client = RawClient::of(|theirs| {
            let (hub, presence) = (hub.clone(), presence.subscribe());
            tokio::spawn(async move { hub.serve_watched("local", theirs, presence).await });
        });
        client.initialize().await;
        let new = client.request(1, "session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
        let id = &new["result"]["sessionId"];
        let prompt = json!({"sessionId": id, "prompt": [{"type": "text", "text": "permission"}]});
        client.send(2, "session/prompt", prompt.clone()).await;
        while client.next().await["method"] != "session/request_permission" {}
        // It is present, so the question waits.
        tokio::time::sleep(Duration::from_millis(600)).await;
        for is_present in [false, true] {
            presence.send_replace(is_present);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        presence.send_replace(false);
        let lost = tokio::time::Instant::now();
        while client.next().await["method"] != "$/cancel_request" {}
        assert!(lost.elapsed() >= Duration::from_millis(350), "{:?}", lost.elapsed());
        assert!(client.response(2).await["result"].is_object());
        hub.shut_down().await;
    })
    .await;
}

/// A program that knows nothing about the presence of its clients.
#[tokio::test]
async fn a_client_without_a_known_presence_counts_as_present() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(settings(data.path(), 0)).unwrap();
        let (ours, theirs) = Transport::memory();
        let serving = tokio::spawn({
            let hub = hub.clone();
            async move { hub.serve_watched("local", theirs, watch::Sender::new(true).subscribe()).await }
        });
        let client = duologue_client::Client::new(()).connect(ours).await.unwrap();
        let session = client.new_session("/tmp").await.unwrap();
        assert!(!session.prompt("hello").await.unwrap().finish().await.unwrap().text.is_empty());
        drop((session, client));
        serving.await.unwrap();
        hub.shut_down().await;
    })
    .await;
}
