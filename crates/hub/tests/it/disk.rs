//! The limits on the disk.

use std::time::Duration;

use duologue_test_support::in_time;

use crate::hub::{connect, hub_in, load, open_when_free, prompt, settings};

#[tokio::test]
async fn a_full_folder_refuses_new_sessions_and_loads_old_ones() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = hub_in(data.path());
        let client = connect(&hub).await;
        let session = client.new_session("/tmp").await.unwrap();
        prompt(&session, "hello").await;
        client.close().await;
        hub.shut_down().await;
        drop(hub);
        let hub = open_when_free(|| {
            let mut settings = settings(data.path(), 0);
            settings.disk_bytes = 1;
            settings
        })
        .await;
        let client = connect(&hub).await;
        let refused = client.new_session("/tmp").await.unwrap_err().to_string();
        assert!(
            refused.contains("disk limit reached: the logs of the sessions have 1 bytes or more"),
            "{refused}"
        );
        let (_, texts) = load(&client, session.id()).await;
        assert_eq!(texts.first().map(String::as_str), Some("hello"));
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
