//! A hub with agents that are processes: the mock, which this test program runs.

mod introductions;

use std::path::Path;
use std::time::Duration;

use duologue_client::schema::{RequestPermissionRequest, RequestPermissionResponse};
use duologue_client::{Client, Command, Connection, Host, HostContext, HostResult, Session};
use duologue_hub::{Hub, HubSettings};
use duologue_rpc::{Direction, Tap, TappedFrame, Transport};
use duologue_schema::SessionId;
use duologue_test_support::in_time;
use duologue_testkit::MockAgent;
use serde_json::{Value, json};

/// The variable that makes this program the agent of a hub.
pub(crate) const AGENT: &str = "DUOLOGUE_HUB_TEST_AGENT";

/// The agent of the other tests, with the milliseconds between two words.
#[test]
fn agent_process() {
    let Ok(pace) = std::env::var(AGENT) else { return };
    let pace = Duration::from_millis(pace.parse().unwrap());
    if let Some(mark) = std::env::var_os(MARK) {
        while !Path::new(&mark).exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut server = MockAgent::new().pace(pace).server().unwrap();
    if let Some(folder) = std::env::var_os(TRACES) {
        let traces = Traces(folder.into());
        traces.append("processes", std::process::id().to_string().as_bytes());
        server = server.tap(std::sync::Arc::new(traces));
    }
    runtime.block_on(async { server.serve_stdio().await }).unwrap();
}

/// The variable with the file without which an agent does not read its first message.
pub(crate) const MARK: &str = "DUOLOGUE_HUB_TEST_MARK";

/// The variable with the folder of an agent's [`Traces`].
pub(crate) const TRACES: &str = "DUOLOGUE_HUB_TEST_TRACES";

/// The files `processes`, with the numbers of the processes, and `input`, with what the clients sent.
struct Traces(std::path::PathBuf);

impl Traces {
    fn append(&self, name: &str, line: &[u8]) {
        use std::io::Write as _;

        let file = std::fs::OpenOptions::new().create(true).append(true).open(self.0.join(name));
        file.unwrap().write_all(&[line, b"\n"].concat()).unwrap();
    }
}

impl Tap for Traces {
    fn frame(&self, frame: TappedFrame<'_>) {
        if frame.direction == Direction::Incoming {
            self.append("input", frame.bytes);
        }
    }
}

pub(crate) fn settings(data: &Path, pace: u64) -> HubSettings {
    HubSettings::new(move || agent(pace), data)
}

pub(crate) fn hub_in(data: &Path) -> Hub {
    Hub::open(settings(data, 0)).unwrap()
}

/// Opens a folder whose last hub was shut down. It is free when the last connection has ended.
pub(crate) async fn open_when_free(settings: impl Fn() -> HubSettings) -> Hub {
    loop {
        match Hub::open(settings()) {
            Ok(hub) => return hub,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

pub(crate) fn agent(pace: u64) -> Command {
    let program = std::env::current_exe().unwrap();
    let args = ["--exact", "hub::agent_process", "--nocapture"];
    Command::new(program).args(args).env(AGENT, pace.to_string())
}

/// Allows everything, or never answers.
struct Allow {
    answers: bool,
}

impl Host for Allow {
    async fn request_permission(
        &self,
        _: &HostContext,
        request: RequestPermissionRequest,
    ) -> HostResult<RequestPermissionResponse> {
        if !self.answers {
            std::future::pending().await
        }
        Ok(request.outcome(true).into())
    }
}

async fn connect_with(hub: &Hub, host: Allow) -> Connection {
    let (ours, theirs) = Transport::memory();
    let hub = hub.clone();
    tokio::spawn(async move { hub.serve(theirs).await });
    Client::new(host).connect(ours).await.expect("a connection")
}

/// Connects a client that never answers a question, so a turn that asks goes on.
async fn connect_silent(hub: &Hub) -> Connection {
    connect_with(hub, Allow { answers: false }).await
}

/// Connects a client whose connection is lost when the handle is aborted.
async fn connect_over_a_cable(hub: &Hub) -> (Connection, tokio::task::AbortHandle) {
    let (ours, cable) = tokio::io::duplex(4096);
    let (theirs, end) = tokio::io::duplex(4096);
    let copy = tokio::spawn(async move {
        let (mut cable, mut end) = (cable, end);
        tokio::io::copy_bidirectional(&mut cable, &mut end).await
    });
    let transport = |stream| {
        let (reader, writer) = tokio::io::split(stream);
        Transport::new(reader, writer)
    };
    let (hub, theirs) = (hub.clone(), transport(theirs));
    tokio::spawn(async move { hub.serve(theirs).await });
    let client = Client::new(Allow { answers: true }).connect(transport(ours)).await.expect("a connection");
    (client, copy.abort_handle())
}

pub(crate) async fn connect(hub: &Hub) -> Connection {
    connect_with(hub, Allow { answers: true }).await
}

pub(crate) async fn prompt(session: &Session, text: &str) -> String {
    session.prompt(text).await.expect("a turn").finish().await.expect("its end").text
}

/// Loads a session, and returns it with the text of its messages.
pub(crate) async fn load(client: &Connection, id: &SessionId) -> (Session, Vec<String>) {
    let mut replay = client.load_session(id.clone(), "/tmp").expect("a replay");
    let mut conversation = duologue_schema::Conversation::default();
    while let Some(update) = replay.next().await {
        conversation.apply(&update.expect("an update"));
    }
    let texts = conversation.messages().map(|message| message.text()).collect();
    (replay.outcome().await.expect("the session"), texts)
}

#[tokio::test]
async fn a_session_is_loaded_by_another_client() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(settings(data.path(), 0)).unwrap();
        let first = connect(&hub).await;
        let session = first.new_session("/tmp").await.unwrap();
        let text = prompt(&session, "tools please").await;
        let second = connect(&hub).await;
        let (loaded, texts) = load(&second, session.id()).await;
        assert_eq!(texts.first().map(String::as_str), Some("tools please"));
        assert!(texts.last().is_some_and(|last| text.ends_with(last.as_str())), "{texts:?} {text:?}");
        // Both go on in the same conversation.
        assert!(!prompt(&loaded, "hello").await.is_empty());
        assert!(!prompt(&session, "hello").await.is_empty());
        hub.shut_down().await;
    })
    .await;
}

/// Agents whose turns write `one`, wait until the gate is opened, and write ` two`.
#[cfg(unix)]
struct GatedAgents(std::path::PathBuf);

#[cfg(unix)]
impl GatedAgents {
    const AGENT: &str = r#"
        say() {
            echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'"$1"'"}}}}'
        }
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}'
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:session/new","result":{"sessionId":"s"}}'
        read -r line; say one; read -r line <"$0"; say ' two'
        echo '{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}'; read -r line
    "#;

    fn new(folder: &Path) -> Self {
        let gate = folder.join("gate");
        assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
        GatedAgents(gate)
    }

    fn hub(&self, data: &Path) -> Hub {
        let gate = self.0.clone();
        let command = move || Command::new("sh").args(["-c", Self::AGENT]).arg(&gate);
        Hub::open(HubSettings::new(command, data)).unwrap()
    }

    /// Lets the turn that waits go on.
    async fn open(&self) {
        tokio::fs::write(&self.0, "\n").await.unwrap();
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_turn_goes_on_without_its_client() {
    in_time(async {
        let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let agents = GatedAgents::new(folder.path());
        let hub = agents.hub(data.path());
        let (first, cable) = connect_over_a_cable(&hub).await;
        let session = first.new_session("/tmp").await.unwrap();
        let id = session.id().clone();
        let mut turn = session.prompt("hello").await.unwrap();
        turn.next().await.unwrap().unwrap();
        cable.abort();
        assert!(turn.finish().await.is_err());
        let second = connect(&hub).await;
        agents.open().await;
        let expected = ["hello", "one two"];
        loop {
            let (_, texts) = load(&second, &id).await;
            assert!(texts.len() <= expected.len(), "{texts:?}");
            if texts == expected {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn sessions_are_listed_and_deleted() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(settings(data.path(), 0)).unwrap();
        let client = connect(&hub).await;
        let first = client.new_session("/tmp").await.unwrap();
        let second = client.new_session("/usr").await.unwrap();
        prompt(&first, "info").await;
        let list = async |client: &Connection, cwd: Option<&str>| {
            let mut listing = client.list_sessions(cwd.map(Into::into)).unwrap();
            let mut ids = Vec::new();
            while let Some(session) = listing.next().await {
                let session = session.unwrap();
                assert!(session.updated_at.is_some());
                ids.push(session.session_id);
            }
            ids
        };
        assert_eq!(list(&client, Some("/usr")).await, [second.id().clone()]);
        hub.shut_down().await;
        client.close().await;
        drop(hub);

        let hub = open_when_free(|| settings(data.path(), 0)).await;
        let client = connect(&hub).await;
        assert_eq!(list(&client, None).await.len(), 2);
        client.delete_session(first.id().clone()).await.unwrap();
        assert_eq!(list(&client, None).await, [second.id().clone()]);
        assert!(client.load_session(first.id().clone(), "/tmp").unwrap().outcome().await.is_err());
        hub.shut_down().await;
    })
    .await;
}

/// A question is answered once, by the client that is faster.
#[tokio::test]
async fn two_clients_answer_one_question() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(settings(data.path(), 0)).unwrap();
        let slow = connect_silent(&hub).await;
        let session = slow.new_session("/tmp").await.unwrap();
        let fast = connect(&hub).await;
        let (_same, _) = load(&fast, session.id()).await;
        assert!(prompt(&session, "permission").await.contains("You allowed it."));
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_closed_session_is_loaded_again_by_two_clients_at_once() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let mut settings = settings(data.path(), 0);
        // A closed session needs no place.
        settings.sessions = 2;
        let hub = Hub::open(settings).unwrap();
        let (first, second) = (connect(&hub).await, connect(&hub).await);
        for _ in 0..3 {
            let session = first.new_session("/tmp").await.unwrap();
            prompt(&session, "hello").await;
            let id = session.id().clone();
            session.close().await.unwrap();
            let (one, two) = tokio::join!(load(&first, &id), load(&second, &id));
            assert_eq!(one.1, two.1);
            assert!(one.1.len() > 1);
            one.0.close().await.unwrap();
            two.0.close().await.unwrap();
        }
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_session_that_another_client_deletes_answers_its_prompts() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(settings(data.path(), 0)).unwrap();
        let (first, second) = (connect_silent(&hub).await, connect(&hub).await);
        let session = first.new_session("/tmp").await.unwrap();
        let turn = session.prompt("permission").await.unwrap();
        second.delete_session(session.id().clone()).await.unwrap();
        let error = turn.finish().await.unwrap_err().to_string();
        assert!(error.contains("the session was closed"), "{error}");
        let after = async { session.prompt("hello").await?.finish().await };
        let error = after.await.unwrap_err().to_string();
        assert!(error.contains("the session was closed"), "{error}");
        hub.shut_down().await;
    })
    .await;
}

/// Opens a hub, and a client that creates a session with its request 1. Returns the response too.
pub(crate) async fn opened(settings: HubSettings) -> (Hub, RawClient, Value) {
    let hub = Hub::open(settings).unwrap();
    let mut client = RawClient::initialized(&hub).await;
    let new = client.request(1, "session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
    (hub, client, new)
}

/// Opens the folder of a hub that was shut down, with a client.
pub(crate) async fn reopened(settings: impl Fn() -> HubSettings) -> (Hub, RawClient) {
    let hub = open_when_free(settings).await;
    let client = RawClient::initialized(&hub).await;
    (hub, client)
}

/// A client that writes lines and reads them.
pub(crate) struct RawClient {
    reader: tokio::io::Lines<tokio::io::BufReader<Box<dyn tokio::io::AsyncRead + Send + Unpin>>>,
    pub(crate) writer: Box<dyn tokio::io::AsyncWrite + Send + Unpin>,
    /// The responses that came before the one that was waited for.
    early: Vec<Value>,
}

impl RawClient {
    /// Connects a client that has initialized its connection.
    pub(crate) async fn initialized(hub: &Hub) -> Self {
        let mut client = RawClient::new(hub);
        client.initialize().await;
        client
    }

    pub(crate) fn new(hub: &Hub) -> Self {
        RawClient::of(|theirs| {
            let hub = hub.clone();
            tokio::spawn(async move { hub.serve(theirs).await });
        })
    }

    /// Creates a client at the other end of the transport that `serve` gets.
    pub(crate) fn of(serve: impl FnOnce(Transport)) -> Self {
        let (ours, theirs) = tokio::io::duplex(4096);
        let transport = |end| {
            let (reader, writer) = tokio::io::split(end);
            Transport::new(reader, writer)
        };
        serve(transport(theirs));
        RawClient::over(transport(ours))
    }

    pub(crate) fn over(transport: Transport) -> Self {
        use tokio::io::AsyncBufReadExt as _;

        let (reader, writer) = transport.into_split();
        RawClient { reader: tokio::io::BufReader::new(reader).lines(), writer, early: Vec::new() }
    }

    pub(crate) async fn send(&mut self, id: u32, method: &str, params: Value) {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send_line(&line.to_string()).await;
    }

    pub(crate) async fn send_line(&mut self, line: &str) {
        use tokio::io::AsyncWriteExt as _;

        self.writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn next(&mut self) -> Value {
        let line = self.reader.next_line().await.unwrap().expect("a line");
        serde_json::from_str(&line).unwrap()
    }

    pub(crate) async fn wait_for_end(&mut self) {
        while let Ok(Some(_)) = self.reader.next_line().await {}
    }

    /// Waits for the response to a request. Requests can be answered in any order.
    pub(crate) async fn response(&mut self, id: u32) -> Value {
        if let Some(early) = self.early.iter().position(|response| response["id"] == id) {
            return self.early.remove(early);
        }
        loop {
            let message = self.next().await;
            match message["method"].is_null() {
                true if message["id"] == id => return message,
                true => self.early.push(message),
                false => {}
            }
        }
    }

    pub(crate) async fn request(&mut self, id: u32, method: &str, params: Value) -> Value {
        self.send(id, method, params).await;
        self.response(id).await
    }

    pub(crate) async fn initialize(&mut self) -> Value {
        self.initialize_with(json!({})).await
    }

    /// Initializes the connection with the client's capabilities in `_meta.duologue`.
    pub(crate) async fn initialize_with(&mut self, duologue: Value) -> Value {
        let capabilities = json!({"_meta": {"duologue": duologue}});
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        self.request(0, "initialize", params).await
    }
}

#[tokio::test]
async fn a_client_that_loads_a_session_twice_keeps_it_open() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(settings(data.path(), 0)).unwrap();
        let mut client = RawClient::initialized(&hub).await;
        let refused = client.request(1, "session/new", json!([])).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let new = client.request(2, "session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
        let id = new["result"]["sessionId"].clone();
        let load = json!({"sessionId": id, "cwd": "/tmp", "mcpServers": []});
        client.send(3, "session/load", load.clone()).await;
        client.send(4, "session/load", load).await;
        client.send(5, "session/close", json!({"sessionId": id})).await;
        for refused in [4, 5] {
            assert_eq!(client.response(refused).await["error"]["data"]["code"], "busy");
        }
        assert!(client.response(3).await["result"].is_object());
        let prompt = json!({"sessionId": id, "prompt": [{"type": "text", "text": "hello"}]});
        assert_eq!(client.request(6, "session/prompt", prompt).await["result"]["stopReason"], "end_turn");
        hub.shut_down().await;
    })
    .await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_shutdown_ends_an_agent_that_does_not_answer() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        // The agent reports that it has the first message, and never answers it.
        let read = data.path().join("read");
        assert!(std::process::Command::new("mkfifo").arg(&read).status().unwrap().success());
        let report = read.clone();
        let command =
            move || Command::new("sh").args(["-c", "read -r line; : >\"$0\"; exec sleep 1000"]).arg(&report);
        let hub = Hub::open(HubSettings::new(command, data.path().join("hub"))).unwrap();
        let mut client = RawClient::new(&hub);
        let answer = async {
            tokio::join!(client.initialize(), async {
                tokio::fs::read(&read).await.unwrap();
                hub.shut_down().await;
            })
        };
        let (answer, ()) = answer.await;
        assert_eq!(answer["error"]["data"]["code"], "agent_unavailable", "{answer}");
        let mut late = RawClient::new(&hub);
        assert_eq!(late.initialize().await["error"]["data"]["code"], "closed");
    })
    .await;
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn clients_of_an_agent_that_does_not_answer_fail_together_and_are_served_meanwhile() {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let starts = std::sync::Arc::<AtomicUsize>::default();
        let counted = starts.clone();
        let command = move || {
            counted.fetch_add(1, Relaxed);
            Command::new("sleep").args(["1000"])
        };
        let mut settings = HubSettings::new(command, data.path());
        settings.agent_timeout = Duration::from_secs(2);
        let hub = Hub::open(settings).unwrap();
        let mut clients = [RawClient::new(&hub), RawClient::new(&hub), RawClient::new(&hub)];
        for client in &mut clients {
            client.send(0, "initialize", json!({"protocolVersion": 1, "clientCapabilities": {}})).await;
            client.send(1, "session/list", json!({})).await;
        }
        for client in &mut clients {
            // It comes before the answer to `initialize`.
            assert_eq!(client.next().await["id"], 1);
        }
        for client in &mut clients {
            let answer = client.response(0).await;
            assert_eq!(answer["error"]["data"]["code"], "agent_unavailable", "{answer}");
            assert!(
                answer["error"]["message"].to_string().contains("`HubSettings::agent_timeout`"),
                "{answer}"
            );
        }
        assert_eq!(starts.load(Relaxed), 1, "they share a process");
        hub.shut_down().await;
    })
    .await;
}

/// Returns settings whose agents write their process ids and their input into files of `data`.
pub(crate) fn traced(data: &Path) -> HubSettings {
    let folder = data.to_owned();
    HubSettings::new(move || agent(0).env(TRACES, &folder), data)
}

#[cfg(unix)]
#[tokio::test]
async fn a_closed_session_has_no_process_and_keeps_its_servers_for_the_next_one() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(traced(data.path())).unwrap();
        let mut client = RawClient::initialized(&hub).await;
        let servers = json!([{"name": "tools", "command": "/bin/true", "args": [], "env": []}]);
        let new = client.request(1, "session/new", json!({"cwd": "/tmp", "mcpServers": servers})).await;
        let id = new["result"]["sessionId"].clone();
        let resume = json!({"sessionId": id, "cwd": "/tmp"});
        let mut other = RawClient::initialized(&hub).await;
        assert!(other.request(1, "session/resume", resume).await["result"].is_object());
        assert!(other.request(2, "session/close", json!({"sessionId": id})).await["result"].is_object());
        // The first client has it open, so the process goes on.
        let process = std::fs::read_to_string(data.path().join("processes")).unwrap();
        let process = Path::new("/proc").join(process.lines().next().unwrap());
        assert!(!cfg!(target_os = "linux") || process.exists());
        assert!(client.request(3, "session/close", json!({"sessionId": id})).await["result"].is_object());
        assert!(!process.exists(), "a closed session has a process");
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_resume_without_servers_keeps_those_of_the_session() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(traced(data.path())).unwrap();
        let mut client = RawClient::initialized(&hub).await;
        let servers = |name: &str| json!([{"name": name, "command": "/bin/true", "args": [], "env": []}]);
        let new =
            client.request(1, "session/new", json!({"cwd": "/tmp", "mcpServers": servers("first")})).await;
        let id = new["result"]["sessionId"].clone();
        let mut input = 2..;
        for (given, expected) in [(None, "first"), (Some("second"), "second"), (None, "second")] {
            let mut resume = json!({"sessionId": id, "cwd": "/tmp"});
            if let Some(name) = given {
                resume["mcpServers"] = servers(name);
            }
            let resumed = client.request(input.next().unwrap(), "session/resume", resume).await;
            assert!(resumed["result"].is_object(), "{resumed}");
            // The agent ends, and the next prompt starts another process, which restores the session.
            for text in ["crash", "hello"] {
                let prompt = json!({"sessionId": id, "prompt": [{"type": "text", "text": text}]});
                let answer = client.request(input.next().unwrap(), "session/prompt", prompt).await;
                assert!(answer["error"].is_object(), "{answer}");
            }
            let lines = std::fs::read_to_string(data.path().join("input")).unwrap();
            let restored = lines.lines().rfind(|line| line.contains("\"hub:session/")).unwrap();
            assert!(restored.contains(expected), "{restored}");
        }
        hub.shut_down().await;
    })
    .await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_drain_waits_for_turns_and_refuses_new_ones() {
    in_time(async {
        let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let agents = GatedAgents::new(folder.path());
        let hub = agents.hub(data.path());
        let client = connect(&hub).await;
        let (running, idle) =
            (client.new_session("/tmp").await.unwrap(), client.new_session("/tmp").await.unwrap());
        let mut turn = running.prompt("hello").await.unwrap();
        turn.next().await.unwrap().unwrap();
        let (runs_on, refused) = tokio::join!(hub.drain(Duration::ZERO), async {
            tokio::task::yield_now().await;
            async { idle.prompt("hello").await?.finish().await }.await
        });
        assert_eq!(runs_on, 1);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("the server is shutting down"), "{refused}");
        let (runs_on, ()) = tokio::join!(hub.drain(Duration::from_secs(60)), agents.open());
        assert_eq!(runs_on, 0);
        turn.finish().await.unwrap();
        hub.shut_down().await;
    })
    .await;
}

/// Returns the text of an agent's message in an update.
pub(crate) fn agent_text(message: &Value) -> &str {
    let update = &message["params"]["update"];
    let is_text = update["sessionUpdate"] == "agent_message_chunk";
    update["content"]["text"].as_str().filter(|_| is_text).unwrap_or_default()
}

/// Another connection continues a client's, in the middle of a turn: it receives the frames that are missing, and the
/// response to the prompt.
#[tokio::test]
async fn a_client_continues_with_its_key() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(settings(data.path(), 20)).unwrap();
        let mut client = RawClient::new(&hub);
        let introduced = client.initialize().await;
        let key = &introduced["result"]["_meta"]["duologue"]["client"];
        let new = client.request(1, "session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
        let id = new["result"]["sessionId"].as_str().unwrap().to_owned();
        let mut position = new["result"]["_meta"]["duologue"]["position"].clone();
        let prompt = json!({"sessionId": id, "prompt": [{"type": "text", "text": "hello"}]});
        let mut expected = String::new();
        client.send(2, "session/prompt", prompt.clone()).await;
        loop {
            let message = client.next().await;
            if message["id"] == 2 {
                break;
            }
            expected.push_str(agent_text(&message));
        }
        let other = client.request(3, "session/resume", json!({"sessionId": id, "cwd": "/tmp"})).await;
        position.clone_from(&other["result"]["_meta"]["duologue"]["position"]);

        let (mut text, mut frames) = (String::new(), 0);
        client.send(4, "session/prompt", prompt).await;
        let mut ended = false;
        for read in [0, 1, 4, 2] {
            for _ in 0..read {
                if ended {
                    break;
                }
                let message = client.next().await;
                ended |= message["id"] == 4;
                frames += u32::from(message["params"]["sessionId"] == *id);
                text.push_str(agent_text(&message));
            }
            let mut next = RawClient::new(&hub);
            let meta = json!({"duologue": {"client": key}});
            let params = json!({"protocolVersion": 1, "clientCapabilities": {}, "_meta": meta});
            assert_eq!(
                &next.request(0, "initialize", params).await["result"]["_meta"]["duologue"]["client"],
                key
            );
            let meta = json!({"duologue": {"after": {"position": position, "frames": frames}}});
            next.send(1, "session/resume", json!({"sessionId": id, "cwd": "/tmp", "_meta": meta})).await;
            let resumed = loop {
                let message = next.next().await;
                if message["id"] == 1 {
                    break message;
                }
                ended |= message["id"] == 4;
                text.push_str(agent_text(&message));
            };
            let mine = &resumed["result"]["_meta"]["duologue"];
            assert_eq!(mine["requests"], if ended { json!([]) } else { json!([4]) }, "{resumed}");
            position.clone_from(&mine["position"]);
            frames = 0;
            // The older connection has ended.
            client.wait_for_end().await;
            client = next;
        }
        while !ended {
            let message = client.next().await;
            ended = message["id"] == 4;
            text.push_str(agent_text(&message));
        }
        assert_eq!(text, expected);
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_closed_session_answers_its_prompt_first() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let (hub, mut client, new) = opened(settings(data.path(), 0)).await;
        let id = json!({"sessionId": new["result"]["sessionId"]});
        let mut prompt = id.clone();
        // It asks a question that nobody answers.
        prompt["prompt"] = json!([{"type": "text", "text": "permission"}]);
        const QUESTION: &str = "session/request_permission";

        // Another client has it open, so it goes on.
        let mut other = RawClient::initialized(&hub).await;
        let mut resume = id.clone();
        resume["cwd"] = json!("/tmp");
        other.request(1, "session/resume", resume).await;
        other.send(2, "session/prompt", prompt.clone()).await;
        while other.next().await["method"] != QUESTION {}
        other.send(3, "session/close", id.clone()).await;
        assert_eq!(other.response(2).await["error"]["data"]["code"], "session_closed");
        assert!(other.response(3).await["result"].is_object());

        // The last client ends it.
        client.send(2, "session/close", id).await;
        assert!(client.response(2).await["result"].is_object());
        let new = client.request(3, "session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
        let id = json!({"sessionId": new["result"]["sessionId"]});
        prompt["sessionId"] = id["sessionId"].clone();
        client.send(4, "session/prompt", prompt).await;
        while client.next().await["method"] != QUESTION {}
        client.send(5, "session/close", id).await;
        assert_eq!(client.response(4).await["result"]["stopReason"], "cancelled");
        assert!(client.response(5).await["result"].is_object());
        hub.shut_down().await;
    })
    .await;
}

#[cfg(unix)]
#[tokio::test]
async fn the_last_output_of_an_agent_that_reads_no_more_counts() {
    const AGENT: &str = r#"
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}'
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:session/new","result":{"sessionId":"s"}}'
        read -r line; exec 0<&-
        echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"bye"}}}}'
        sleep 0.5; echo '{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}'
    "#;
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let settings = HubSettings::new(|| Command::new("sh").args(["-c", AGENT]), data.path());
        let (hub, mut client, new) = opened(settings).await;
        let id = new["result"]["sessionId"].clone();
        let prompt = json!({"sessionId": id, "prompt": [{"type": "text", "text": "hello"}]});
        client.send(2, "session/prompt", prompt).await;
        while agent_text(&client.next().await) != "bye" {}
        client.send(3, "session/set_mode", json!({"sessionId": id, "modeId": "m"})).await;
        assert_eq!(client.response(2).await["result"]["stopReason"], "end_turn");
        assert_eq!(client.response(3).await["error"]["data"]["code"], "interrupted");
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_slow_client_that_loads_again_or_closes_receives_its_responses() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let (hub, mut slow, new) = opened(settings(data.path(), 0)).await;
        let id = json!({"sessionId": new["result"]["sessionId"], "cwd": "/tmp", "mcpServers": []});
        let mut other = RawClient::initialized(&hub).await;
        other.request(1, "session/resume", id.clone()).await;
        let mut prompt = id.clone();
        prompt["prompt"] =
            json!([{"type": "text", "text": format!("{}end", "x".repeat(50_000) + " ").repeat(180)}]);
        for (number, method) in [(2, "session/load"), (4, "session/close")] {
            slow.send(number, "session/prompt", prompt.clone()).await;
            let mut bytes = 0;
            while bytes < 180 * 50_000 {
                bytes += agent_text(&other.next().await).len();
            }
            // The end of the turn is recorded, and the client has read nothing of it.
            tokio::time::sleep(Duration::from_millis(300)).await;
            slow.send(number + 1, method, id.clone()).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(slow.response(number).await["result"]["stopReason"], "end_turn");
            assert!(slow.response(number + 1).await["result"].is_object());
        }
        hub.shut_down().await;
    })
    .await;
}
