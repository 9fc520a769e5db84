//! A gateway without work.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use duologue_hub::ServerOptions;
use duologue_hub::gateway::{Gateway, GatewayConfig, GatewaySettings};
use duologue_schema::envelope::TaskState;
use duologue_store::{
    InboxKey, JsonText, MessageSender, MessageState, NewInboxMessage, NewTask, StoreBatch, StoreChange,
    StoredTaskKey, TaskUpdate,
};
use serde_json::json;
use tokio::net::TcpListener;

use crate::faulty_store::{Faults, FaultyStore};

/// The clock runs only while nothing else does, so each minute is idle.
#[tokio::test(start_paused = true)]
async fn an_idle_minute_asks_the_store_nothing() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("hub.toml");
    std::fs::write(&file, "data = \"data\"\n[[agents]]\nid = \"writer\"\ncommand = [\"false\"]\n").unwrap();
    let config = GatewayConfig::read(&file).unwrap();
    let faults = Arc::new(Faults::default());
    let mut settings = GatewaySettings::new(config.data.clone().unwrap());
    settings.backend = Some(Arc::new(FaultyStore::new(faults.clone())));
    let gateway = Gateway::open(config, settings).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut options = ServerOptions::default();
    options.token = Some("token".into());
    let calls = || faults.calls.load(Ordering::SeqCst);
    let minute = Duration::from_secs(60);
    let clients = async {
        // Records that are due much later, or never.
        let content = JsonText::of(&json!({})).unwrap();
        let mut later = NewInboxMessage::new("away", "m1", MessageSender::new("alice", "alice"), content);
        later.expires = Some(gateway.store_time().wall + 86_400_000);
        let key = StoredTaskKey::new("alice", "away", "t1");
        let new = NewTask::new(key.clone(), "alice", "write", JsonText::default());
        let update = TaskUpdate::new(key, 1).state(TaskState::Cancelled);
        let batch = StoreBatch::new(gateway.store_time());
        let batch = batch.with(StoreChange::Enqueue(later)).with(StoreChange::CreateTask(new));
        let batch = batch.with(StoreChange::UpdateTask(update));
        gateway.store().apply(batch).unwrap();
        // The first minute has the sweep after the changes.
        for minutes in 0..3 {
            let before = calls();
            assert!(tokio::time::timeout(minute, std::future::pending::<()>()).await.is_err());
            let found = calls() - before;
            assert!(if minutes == 0 { (1..20).contains(&found) } else { found == 0 }, "{minutes}: {found}");
        }
        // A change is looked at.
        let before = calls();
        let content = JsonText::of(&json!({})).unwrap();
        let mut soon = NewInboxMessage::new("away", "m2", MessageSender::new("alice", "alice"), content);
        soon.expires = Some(gateway.store_time().wall);
        gateway
            .store()
            .apply(StoreBatch::new(gateway.store_time()).with(StoreChange::Enqueue(soon)))
            .unwrap();
        assert!(tokio::time::timeout(minute, std::future::pending::<()>()).await.is_err());
        let expired = gateway.store().message(&InboxKey::new("away", "alice", "m2")).unwrap().unwrap();
        assert_eq!((expired.state, calls() > before), (MessageState::Dead, true));
    };
    gateway.serve_http(listener, options, clients).await.unwrap();
}
