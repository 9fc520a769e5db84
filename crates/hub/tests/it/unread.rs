//! Clients that open a long session and do not read it.

use std::cell::Cell;
use std::time::Duration;

use duologue_hub::Hub;
use duologue_test_support::in_time;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::watch;

use crate::hub::{RawClient, agent_text, settings};

/// The bytes of a conversation, which are more than wait for a client.
const LONG: usize = 120 * 50_000;

fn long_prompt(session: &Value) -> Value {
    let text = format!("{}end", "x".repeat(50_000) + " ").repeat(120);
    json!({"sessionId": session["sessionId"], "prompt": [{"type": "text", "text": text}]})
}

/// Creates a session, and returns the params that open it.
async fn new_session(client: &mut RawClient) -> Value {
    client.initialize().await;
    let new = client.request(1, "session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
    json!({"sessionId": new["result"]["sessionId"], "cwd": "/tmp", "mcpServers": []})
}

/// Reads the answer of the agent to [`long_prompt`].
async fn read_long(client: &mut RawClient) {
    let mut bytes = 0;
    while bytes < LONG {
        bytes += agent_text(&client.next().await).len();
    }
}

/// Reads the updates before the response to a load.
async fn read_replay(client: &mut RawClient) -> Vec<Value> {
    let mut updates = Vec::new();
    loop {
        let message = client.next().await;
        if message["id"].is_null() {
            updates.push(message["params"]["update"].clone());
        } else {
            assert!(message["result"].is_object(), "{message}");
            return updates;
        }
    }
}

#[tokio::test]
async fn a_session_that_clients_do_not_read_is_deleted() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(settings(data.path(), 0)).unwrap();
        let (mut slow, mut other) = (RawClient::new(&hub), RawClient::new(&hub));
        let session = new_session(&mut slow).await;
        let (presence, is_present) = watch::channel(true);
        let absent_hub = hub.clone();
        let mut absent = RawClient::of(move |theirs| {
            tokio::spawn(async move { absent_hub.serve_watched("local", theirs, is_present).await });
        });
        for client in [&mut other, &mut absent] {
            client.initialize().await;
            client.request(1, "session/resume", session.clone()).await;
        }
        presence.send_replace(false);
        slow.send(2, "session/prompt", long_prompt(&session)).await;
        read_long(&mut other).await;
        let mut loading = RawClient::initialized(&hub).await;
        loading.send(1, "session/load", session.clone()).await;
        // The rest of the conversation waits for this client.
        loading.next().await;

        let deleted = other.request(2, "session/delete", session.clone()).await;
        assert!(deleted["result"].is_object(), "{deleted}");
        let folder = data.path().join("sessions").join(session["sessionId"].as_str().unwrap());
        assert!(!folder.exists(), "the log is still there");
        // A client that reads later receives the responses to its requests.
        let ended = slow.response(2).await;
        assert!(ended["result"].is_object() || ended["error"].is_object(), "{ended}");
        let refused = loading.response(1).await;
        assert_eq!(refused["error"]["code"], -32002, "{refused}");
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_is_not_read_ends_when_another_continues_it() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(settings(data.path(), 0)).unwrap();
        let (ended, end) = tokio::sync::oneshot::channel();
        let mut slow = RawClient::of(|theirs| {
            let hub = hub.clone();
            tokio::spawn(async move {
                hub.serve(theirs).await;
                let _ = ended.send(());
            });
        });
        let key = slow.initialize().await["result"]["_meta"]["duologue"]["client"].clone();
        let new = slow.request(1, "session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
        let session = &new["result"]["sessionId"];
        let id = "x".repeat(60_000);
        let request = format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": "session/none"}));
        let parts = Cell::new(0);
        let filling = async {
            loop {
                for part in request.as_bytes().chunks(4096) {
                    slow.writer.write_all(part).await.unwrap();
                    parts.set(parts.get() + 1);
                }
            }
        };
        {
            let mut filling = std::pin::pin!(filling);
            let mut before = usize::MAX;
            // The hub reads no more when as much waits for the client as may.
            while before != parts.get() {
                before = parts.get();
                for _ in 0..1000 {
                    tokio::select! {
                        biased;
                        () = &mut filling => {}
                        () = tokio::task::yield_now() => {}
                    }
                }
            }
        }
        let mut next = RawClient::new(&hub);
        let params = json!({"protocolVersion": 1, "_meta": {"duologue": {"client": key}}});
        assert!(next.request(0, "initialize", params).await["result"].is_object());
        end.await.expect("the connection ends");
        let meta = json!({"duologue": {"after": {"position": new["result"]["_meta"]["duologue"]["position"], "frames": 0}}});
        let resume = json!({"sessionId": session, "cwd": "/tmp", "_meta": meta});
        assert!(next.request(1, "session/resume", resume).await["result"].is_object());
        let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "hello"}]});
        assert!(next.request(2, "session/prompt", prompt).await["result"].is_object());
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_load_that_is_not_read_does_not_hold_up_others() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let mut settings = settings(data.path(), 0);
        (settings.loads, settings.load_turn) = (1, Duration::from_millis(1));
        let hub = Hub::open(settings).unwrap();
        let mut client = RawClient::new(&hub);
        let session = new_session(&mut client).await;
        client.send(2, "session/prompt", long_prompt(&session)).await;
        assert!(client.response(2).await["result"].is_object());
        let mut unread = RawClient::initialized(&hub).await;
        unread.send(1, "session/load", session.clone()).await;
        let first = unread.next().await["params"]["update"].clone();
        let mut loaded = RawClient::initialized(&hub).await;
        loaded.send(1, "session/load", session.clone()).await;
        let conversation = read_replay(&mut loaded).await;
        assert!(conversation.len() > LONG / (1 << 20));
        let prompt =
            json!({"sessionId": session["sessionId"], "prompt": [{"type": "text", "text": "hello"}]});
        client.send(3, "session/prompt", prompt).await;
        assert!(client.response(3).await["result"].is_object());
        // The rest of the conversation is read again.
        let rest = read_replay(&mut unread).await;
        assert!(conversation[0] == first && conversation[1..] == rest, "{} updates", rest.len());
        hub.shut_down().await;
    })
    .await;
}

/// The client reads more slowly than the log is read, and nobody waits for its place.
#[cfg(feature = "gateway")]
#[tokio::test]
async fn a_conversation_is_read_once_if_no_other_load_waits() {
    use crate::faults::change_log;
    use crate::hub::open_when_free;
    use crate::rest::recorder::{LOGS, record, recorded};

    in_time(async {
        record();
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(settings(data.path(), 0)).unwrap();
        let mut client = RawClient::new(&hub);
        let session = new_session(&mut client).await;
        client.send(2, "session/prompt", long_prompt(&session)).await;
        assert!(client.response(2).await["result"].is_object());
        hub.shut_down().await;
        drop((client, hub));
        // Each reader of the log reports this record.
        change_log(data.path(), |lines| {
            let prompt = lines.iter_mut().find(|line| line.contains(r#""event":"prompt""#)).unwrap();
            *prompt = prompt.replacen('{', "x", 1);
        });
        let hub = open_when_free(|| {
            let mut settings = settings(data.path(), 0);
            (settings.loads, settings.load_turn) = (1, Duration::ZERO);
            settings
        })
        .await;
        let mut client = RawClient::initialized(&hub).await;
        client.send(1, "session/load", session.clone()).await;
        assert!(read_replay(&mut client).await.len() > LONG / (1 << 20));
        let id = session["sessionId"].as_str().unwrap();
        let reports = recorded(LOGS).into_iter().filter(|event| event.contains(id));
        let reports: Vec<_> = reports.filter(|event| event.contains("are left out")).collect();
        // One when the session was restored, and one when it was loaded.
        assert_eq!(reports.len(), 2, "{reports:?}");
        hub.shut_down().await;
    })
    .await;
}
