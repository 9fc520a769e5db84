//! Tests of the entries of a hub.

use duologue_client::Command;
use duologue_test_support::in_time;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, Lines};
use tokio::sync::oneshot;

use super::*;

/// Answers `initialize` and `session/new`. A prompt runs until it is cancelled.
const AGENT: &str = r#"
    while read -r line; do case $line in
        *hub:initialize*) echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}';;
        *hub:session/new*) echo '{"jsonrpc":"2.0","id":"hub:session/new","result":{"sessionId":"s"}}';;
        *session/prompt*) echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{}}}';;
        *session/cancel*) echo '{"jsonrpc":"2.0","id":1,"result":{"stopReason":"cancelled"}}';;
    esac; done
"#;

impl Hub {
    /// Returns the number of entries that the hub has for sessions and clients, and of open files.
    fn entries(&self) -> usize {
        let sessions = self.shared.sessions.lock_unpoisoned();
        let clients = self.shared.clients.lock_unpoisoned().len();
        let Sessions { live, opening, gates, logs, is_closed: _, is_ended: _ } = &*sessions;
        live.len() + opening.len() + gates.len() + logs.len() + clients + self.shared.logs.open_files()
    }
}

/// A client that writes lines and reads them.
struct LineClient {
    lines: Lines<BufReader<Box<dyn AsyncRead + Send + Unpin>>>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    id: u64,
}

impl LineClient {
    fn new(transport: Transport) -> Self {
        let (reader, writer) = transport.into_split();
        LineClient { lines: BufReader::new(reader).lines(), writer, id: 0 }
    }

    /// Connects a client to a hub.
    fn of(hub: &Hub) -> Self {
        let (ours, theirs) = Transport::memory();
        let hub = hub.clone();
        tokio::spawn(async move { hub.serve(theirs).await });
        LineClient::new(ours)
    }

    async fn send(&mut self, mut message: Value) {
        message["jsonrpc"] = json!("2.0");
        self.writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        let line = self.lines.next_line().await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Returns the result of a request, in front of which nothing is received.
    async fn request(&mut self, method: &str, params: Value) -> Value {
        self.id += 1;
        self.send(json!({"id": self.id, "method": method, "params": params})).await;
        let response = self.next().await;
        assert_eq!(response["id"], self.id, "{response}");
        response["result"].clone()
    }
}

fn hub_in(data: &std::path::Path) -> Hub {
    Hub::open(HubSettings::new(|| Command::new("sh").args(["-c", AGENT]), data)).unwrap()
}

#[tokio::test]
async fn a_closed_session_leaves_no_entry() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = hub_in(data.path());
        for _ in 0..3 {
            let (ours, theirs) = Transport::memory();
            let serving = hub.serve(theirs);
            let playing = async {
                let mut client = LineClient::new(ours);
                client.request("initialize", json!({"protocolVersion": 1})).await;
                for _ in 0..10 {
                    let new = client.request("session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
                    let id = json!({"sessionId": new["sessionId"], "cwd": "/tmp", "mcpServers": []});
                    client.request("session/load", id.clone()).await;
                    client.request("session/close", id).await;
                }
            };
            tokio::join!(serving, playing);
            // The last session is forgotten when the next one begins.
            while hub.entries() > 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn clients_that_load_a_session_and_leave_cost_no_process_and_no_entry() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let mut settings = HubSettings::new(|| Command::new("sh").args(["-c", AGENT]), data.path());
        let starts = Arc::new(AtomicU64::new(0));
        let started = starts.clone();
        settings.processes = Some(ProcessObserver::new(move |event| {
            started.fetch_add(u64::from(matches!(event, ProcessEvent::Started(_))), Ordering::Relaxed);
        }));
        let hub = Hub::open(settings).unwrap();
        let mut client = LineClient::of(&hub);
        client.request("initialize", json!({"protocolVersion": 1})).await;
        let new = client.request("session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
        let session = json!({"sessionId": new["sessionId"], "cwd": "/tmp", "mcpServers": []});
        // A session that was loaded has an entry more.
        let most = hub.entries() + 1;
        for _ in 0..200 {
            let mut viewer = LineClient::of(&hub);
            viewer.request("initialize", json!({"protocolVersion": 1})).await;
            assert!(viewer.request("session/load", session.clone()).await.is_object());
        }
        while hub.entries() > most {
            tokio::task::yield_now().await;
        }
        assert_eq!(starts.load(Ordering::Relaxed), 1);
        hub.shut_down().await;
    })
    .await;
}

/// A client closes its session on a connection that another one has continued.
#[tokio::test]
async fn a_former_attachment_does_not_refuse_the_requests_of_a_newer_one() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = hub_in(data.path());
        let (mut client, mut other) = (LineClient::of(&hub), LineClient::of(&hub));
        let introduction = client.request("initialize", json!({"protocolVersion": 1})).await;
        let key = introduction["_meta"]["duologue"]["client"].as_str().unwrap();
        let new = client.request("session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
        let session = json!({"sessionId": new["sessionId"], "cwd": "/tmp", "mcpServers": []});
        other.request("initialize", json!({"protocolVersion": 1})).await;
        other.request("session/resume", session.clone()).await;
        client.request("session/resume", session.clone()).await;
        let prompt = json!({"sessionId": new["sessionId"], "prompt": [{"type": "text", "text": "hello"}]});
        client.send(json!({"id": "p", "method": "session/prompt", "params": prompt})).await;
        assert_eq!(client.next().await["method"], "session/update");

        let id = SessionId::from(new["sessionId"].as_str().unwrap());
        let live = hub.shared.live(&LOCAL.into(), &id).unwrap();
        let (done, released) = oneshot::channel();
        // The first attachment of all is that of `session/new`.
        let release = SessionCommand::Release { client: ClientKey::new(key), attachment: 0, done };
        live.commands.send(release).await.unwrap();
        released.await.unwrap();
        client.send(json!({"method": "session/cancel", "params": session})).await;
        let ended = client.next().await;
        assert_eq!(
            (&ended["id"], &ended["result"]["stopReason"]),
            (&json!("p"), &json!("cancelled")),
            "{ended}"
        );
        hub.shut_down().await;
    })
    .await;
}

/// The next message of a conversation opens its session before the worker of the former one has left.
#[tokio::test]
async fn a_session_of_two_workers_is_open_to_nobody_else_until_both_have_left() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = hub_in(data.path());
        let worker = || {
            let (ours, theirs) = Transport::memory();
            let hub = hub.clone();
            tokio::spawn(async move { hub.serve_work(LOCAL.to_owned(), theirs, ClientRole::Worker).await });
            LineClient::new(ours)
        };
        let (mut former, mut next) = (worker(), worker());
        former.request("initialize", json!({"protocolVersion": 1})).await;
        let new = former.request("session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
        let id = new["sessionId"].as_str().unwrap().to_owned();
        let session = json!({"sessionId": id, "cwd": "/tmp", "mcpServers": []});
        next.request("initialize", json!({"protocolVersion": 1})).await;
        next.request("session/resume", session.clone()).await;
        let answer = async || {
            let client = ClientKey::new("rest:local");
            hub.answer_question(LOCAL, &id, client, None, json!(null)).await.unwrap_err()
        };
        next.request("session/close", session.clone()).await;
        assert!(matches!(answer().await, crate::AnswerFault::Work));
        // An editor keeps it open.
        let mut editor = LineClient::of(&hub);
        editor.request("initialize", json!({"protocolVersion": 1})).await;
        editor.request("session/resume", session.clone()).await;
        former.request("session/close", session).await;
        assert!(matches!(answer().await, crate::AnswerFault::NotOpen));
        hub.shut_down().await;
    })
    .await;
}

/// Writes 4,000 updates at once, with a line in between that is no message, and exits.
const BURSTING_AGENT: &str = r#"
    update='{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%.0f"}}}}'
    while read -r line; do case $line in
        *hub:initialize*) echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}';;
        *hub:session/new*) echo '{"jsonrpc":"2.0","id":"hub:session/new","result":{"sessionId":"s"}}';;
        *session/prompt*) seq -f "$update" 1 2000; echo 'no message'; seq -f "$update" 2001 4000; exit;;
    esac; done
"#;

/// They are more than a batch of lines that are ready.
#[tokio::test]
async fn lines_that_are_ready_arrive_in_order_before_the_end_of_their_agent() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let command = || Command::new("sh").args(["-c", BURSTING_AGENT]);
        let hub = Hub::open(HubSettings::new(command, data.path())).unwrap();
        let mut client = LineClient::of(&hub);
        client.request("initialize", json!({"protocolVersion": 1})).await;
        let new = client.request("session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
        let prompt = json!({"sessionId": new["sessionId"], "prompt": [{"type": "text", "text": "hello"}]});
        client.send(json!({"id": "p", "method": "session/prompt", "params": prompt})).await;
        for number in 1..=4000 {
            let update = client.next().await;
            assert_eq!(update["params"]["update"]["content"]["text"], number.to_string(), "{update}");
        }
        let ended = client.next().await;
        assert_eq!((&ended["id"], ended["error"].is_object()), (&json!("p"), true), "{ended}");
        hub.shut_down().await;
    })
    .await;
}
