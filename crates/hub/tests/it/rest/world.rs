//! A gateway that serves on a port of its own, and a small client for it.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use duologue_hub::ServerOptions;
use duologue_hub::gateway::{Gateway, GatewayConfig, GatewaySettings};
use duologue_store::{JsonText, LeaseToken, StoreBatch, StoreChange};
use duologue_test_support::in_time;
use duologue_transcript::private_file::private;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::remote_agents::until;
use crate::rest::recorder::record;

/// The key of the local user, who has all permissions.
pub(crate) const ADMIN: &str = "token";
/// Users with all permissions of a user.
pub(crate) const ALICE: &str = "alice-key";
pub(crate) const BOB: &str = "bob-key";
/// A principal without rules.
pub(crate) const STRANGER: &str = "stranger-key";
/// A user whose key is not valid any more.
pub(crate) const EXPIRED: &str = "expired-key";
/// The principal of the agent `remote`.
pub(crate) const REMOTE: &str = "remote-key";

const PRINCIPALS: &str = r#"
    [[principals]]
    id = "alice"
    key_sha256 = "72ee9d4355ccb9d3a4c9dbf37382e38e75c1b1a225b5bd1f729ee91bbda30c20"
    roles = ["user"]

    [[principals]]
    id = "bob"
    key_sha256 = "9b94dc1a51a38769f135edf04033ad7f2f487b6c25929be7a861cfc1ab10cf98"
    roles = ["user"]

    [[principals]]
    id = "stranger"
    key_sha256 = "96fbe991904da033d08b8e7a208f893914d56cc10d96503b7a5d4bd0b3ea0101"

    [[principals]]
    id = "expired"
    key_sha256 = "85470b1932ebf421241eb5df4d4c8e71a40501cf7d5e198907980c6b750ef78e"
    key_expires = "2020-01-01T00:00:00Z"
    roles = ["user"]

    [[principals]]
    id = "remote-owner"
    agent = "remote"
    key_sha256 = "892546358dbe762583a796aad4b64a26e93bce2612e37e3d96cc9e58220ee8e2"

    [[principals]]
    id = "absent-owner"
    agent = "absent"
    key_sha256 = "5d3a3f1ea2bc1ba9d4ab7e1b2b7ba3cb4c3d9b1c6ad3ba34a1ffad8ef30d6d2e"

    [[rules]]
    role = "user"
    actions = ["discover", "message", "task", "session"]
    agents = ["remote", "absent"]
"#;

/// A rule for an agent that some of the tests have.
fn rule(agent: &str) -> String {
    let actions = r#"actions = ["discover", "message", "task", "session"]"#;
    format!("[[rules]]\nrole = \"user\"\n{actions}\nagents = [{agent:?}]\n")
}

/// A gateway and its address.
pub(crate) struct RestWorld {
    pub(crate) gateway: Gateway,
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
    data: TempDir,
}

impl RestWorld {
    /// Serves without an agent of the configuration. `more` is added to the configuration.
    pub(crate) async fn start(more: &str) -> Self {
        RestWorld::start_with(more, |_| {}).await
    }

    /// As [`start`](Self::start), with other settings.
    pub(crate) async fn start_with(more: &str, change: impl FnOnce(&mut GatewaySettings)) -> Self {
        RestWorld::start_serving(more, change, |_| {}).await
    }

    /// As [`start_with`](Self::start_with), with other options of the listener.
    pub(crate) async fn start_serving(
        more: &str,
        change: impl FnOnce(&mut GatewaySettings),
        serving: impl FnOnce(&mut ServerOptions),
    ) -> Self {
        let data = tempfile::tempdir().unwrap();
        let agents = ["writer", "reviewer"].into_iter();
        let agents = agents.filter(|agent| more.contains(&format!("id = {agent:?}")));
        let rules: String = agents.map(rule).collect();
        let text = format!("data = \"data\"\n{more}\n{PRINCIPALS}\n{rules}");
        std::fs::write(data.path().join("hub.toml"), text).unwrap();
        RestWorld::serve(data, change, serving).await
    }

    async fn serve(
        data: TempDir,
        change: impl FnOnce(&mut GatewaySettings),
        serving: impl FnOnce(&mut ServerOptions),
    ) -> Self {
        record();
        let config = GatewayConfig::read(&data.path().join("hub.toml")).unwrap();
        let mut settings = GatewaySettings::new(config.data.clone().unwrap());
        // Tests work on the tasks of agents that are registered over REST.
        settings.has_task_workers = true;
        change(&mut settings);
        let gateway = Gateway::open(config, settings).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut options = ServerOptions::default();
        options.token = Some(ADMIN.into());
        serving(&mut options);
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn({
            let gateway = gateway.clone();
            async move {
                let stop = async { _ = stopped.await };
                gateway.serve_http(listener, options, stop).await.unwrap();
            }
        });
        RestWorld { gateway, address, stop: Some(stop), serving, data }
    }

    /// As [`start`](Self::start), with the agent `remote`, which takes its messages over REST.
    pub(crate) async fn with_remote(more: &str) -> Self {
        let world = RestWorld::start(more).await;
        world.put(REMOTE, "/registry/agents/remote", r#"{"capabilities": ["translate"]}"#).await.expect(201);
        world
    }

    /// Returns the log of a session.
    pub(crate) fn log_of(&self, agent: &str, session: &str) -> String {
        let folder = self.data.path().join("data/agents").join(agent).join("sessions").join(session);
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        files.map(|file| std::fs::read_to_string(file).unwrap()).collect()
    }

    /// Ends the gateway as a stopped program does.
    pub(crate) async fn stop(self) {
        self.end().await;
    }

    /// Stops the gateway, and serves again with the same configuration and data, on another port.
    pub(crate) async fn restart(self) -> Self {
        RestWorld::serve(self.end().await, |_| {}, |_| {}).await
    }

    /// Stops the gateway, and serves again with another configuration.
    pub(crate) async fn restart_with(self, change: impl FnOnce(&str) -> String) -> Self {
        let data = self.end().await;
        let file = data.path().join("hub.toml");
        std::fs::write(&file, change(&std::fs::read_to_string(&file).unwrap())).unwrap();
        RestWorld::serve(data, |_| {}, |_| {}).await
    }

    /// Ends the gateway as a killed process does, and serves again with the same configuration and data.
    pub(crate) async fn kill_and_start(self) -> Self {
        self.kill_and_start_with(|_| {}).await
    }

    /// As [`kill_and_start`](Self::kill_and_start), with other settings.
    pub(crate) async fn kill_and_start_with(self, change: impl FnOnce(&mut GatewaySettings)) -> Self {
        self.serving.abort();
        _ = self.serving.await;
        drop(self.gateway);
        let config = GatewayConfig::read(&self.data.path().join("hub.toml")).unwrap();
        // Its tasks end after it.
        let open = || Gateway::open(config.clone(), GatewaySettings::new(config.data.clone().unwrap()));
        until(async || open().ok()).await;
        RestWorld::serve(self.data, change, |_| {}).await
    }

    async fn end(mut self) -> TempDir {
        _ = self.stop.take().unwrap().send(());
        in_time(self.serving).await.unwrap();
        self.data
    }

    /// Changes the store, as a worker of the agent does.
    pub(crate) async fn apply(&self, change: StoreChange) {
        let store = self.gateway.store().clone();
        let batch = StoreBatch::new(self.gateway.store_time()).with(change);
        tokio::task::spawn_blocking(move || store.apply(batch)).await.unwrap().unwrap();
    }

    pub(crate) async fn get(&self, key: &str, path: &str) -> RestResponse {
        self.send(&Call::new("GET", path).key(key)).await
    }

    pub(crate) async fn delete(&self, key: &str, path: &str) -> RestResponse {
        self.send(&Call::new("DELETE", path).key(key)).await
    }

    pub(crate) async fn post(&self, key: &str, path: &str, body: impl ToString) -> RestResponse {
        self.send(&Call::new("POST", path).key(key).json(body)).await
    }

    /// Sends a POST without a body.
    pub(crate) async fn post_empty(&self, key: &str, path: &str) -> RestResponse {
        self.send(&Call::new("POST", path).key(key)).await
    }

    pub(crate) async fn put(&self, key: &str, path: &str, body: impl ToString) -> RestResponse {
        self.send(&Call::new("PUT", path).key(key).json(body)).await
    }

    /// Sends a request on a connection of its own, and reads the whole response.
    pub(crate) async fn send(&self, call: &Call) -> RestResponse {
        let mut open = self.open(call).await;
        in_time(async { while open.read_more().await {} }).await;
        RestResponse::parse(&open.received)
    }

    /// Sends a request whose response is read in parts.
    pub(crate) async fn open(&self, call: &Call) -> OpenResponse {
        self.open_on(TcpStream::connect(self.address).await.unwrap(), call).await
    }

    /// As [`open`](Self::open), on a connection that takes little beyond what is read.
    pub(crate) async fn open_narrow(&self, call: &Call) -> OpenResponse {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        self.open_on(socket.connect(self.address).await.unwrap(), call).await
    }

    async fn open_on(&self, mut socket: TcpStream, call: &Call) -> OpenResponse {
        let mut head = format!("{} {} HTTP/1.1\r\nhost: {}\r\n", call.method, call.path, self.address);
        for (name, value) in &call.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let has_body = !call.body.is_empty() || call.method == "POST" || call.method == "PUT";
        if has_body {
            head.push_str(&format!("content-length: {}\r\n", call.body.len()));
        }
        head.push_str("connection: close\r\n\r\n");
        socket.write_all(&[head.as_bytes(), &call.body].concat()).await.unwrap();
        OpenResponse { socket, received: Vec::new() }
    }
}

/// A request.
pub(crate) struct Call {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Call {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        Call { method: method.to_owned(), path: path.to_owned(), headers: Vec::new(), body: Vec::new() }
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("x-api-key", key)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn json(self, body: impl ToString) -> Self {
        self.raw("application/json", body.to_string())
    }

    pub(crate) fn raw(mut self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.header("content-type", content_type)
    }
}

/// A response that is still being received.
pub(crate) struct OpenResponse {
    socket: TcpStream,
    received: Vec<u8>,
}

impl OpenResponse {
    /// Returns false at the end.
    async fn read_more(&mut self) -> bool {
        self.socket.read_buf(&mut self.received).await.unwrap_or(0) > 0
    }

    /// Reads until the response contains a text, and returns everything that was received.
    pub(crate) async fn until(&mut self, part: &str) -> String {
        in_time(async {
            loop {
                let text = String::from_utf8_lossy(&self.received).into_owned();
                if text.contains(part) {
                    return text;
                }
                assert!(self.read_more().await, "the response has no {part:?}: {text}");
            }
        })
        .await
    }

    /// Returns true if there is nothing to read now.
    pub(crate) fn is_silent(&self) -> bool {
        self.socket.try_read(&mut [0]).is_err()
    }

    /// Reads until the end.
    pub(crate) async fn end(mut self) -> String {
        in_time(async { while self.read_more().await {} }).await;
        String::from_utf8_lossy(&self.received).into_owned()
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct RestResponse {
    pub(crate) status: u16,
    head: String,
    pub(crate) text: String,
}

impl RestResponse {
    fn parse(received: &[u8]) -> Self {
        let text = String::from_utf8_lossy(received);
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let head = head.to_ascii_lowercase();
        let text =
            if head.contains("transfer-encoding: chunked") { unchunked(body) } else { body.to_owned() };
        RestResponse { status, head, text }
    }

    /// Returns a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Returns everything that a client sees, without the time.
    pub(crate) fn without_date(&self) -> String {
        let head: Vec<&str> = self.head.lines().filter(|line| !line.starts_with("date: ")).collect();
        format!("{}\n\n{}", head.join("\n"), self.text)
    }

    /// Returns the body.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks the status and returns the body.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        if self.text.is_empty() { Value::Null } else { self.json() }
    }

    /// Checks that it is a refusal of the form that all have.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16, code: &str) -> String {
        let body = self.expect(status);
        assert_eq!(body["code"], code, "{self:?}");
        assert!(body["retryable"].is_boolean() && body.as_object().unwrap().len() == 3, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/json"));
        body["message"].as_str().expect("a message").to_owned()
    }
}

fn unchunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            break;
        }
        // The tests have ASCII alone in bodies of this kind.
        text.push_str(rest.get(..size).unwrap());
        body = rest.get(size + 2..).unwrap();
    }
    text
}

/// Returns the events of a stream: their names, ids and data.
pub(crate) fn events(stream: &str) -> Vec<(String, Option<String>, Value)> {
    let (_, body) = stream.split_once("\r\n\r\n").expect("a head");
    unchunked(body)
        .split("\n\n")
        .filter(|event| event.contains("data:"))
        .map(|event| {
            let field = |name: &str| event.lines().find_map(|line| Some(line.strip_prefix(name)?.trim()));
            let id = field("id:").map(str::to_owned);
            (field("event:").unwrap().to_owned(), id, serde_json::from_str(field("data:").unwrap()).unwrap())
        })
        .collect()
}

/// Claims the task of an agent, as its worker does.
pub(crate) async fn claim_task(world: &RestWorld, agent: &str) -> (duologue_store::StoredTask, LeaseToken) {
    let (store, agent) = (world.gateway.store().clone(), agent.to_owned());
    let claim = duologue_store::Claim::new(world.gateway.store_time(), Duration::from_secs(60), "worker");
    let claimed =
        tokio::task::spawn_blocking(move || store.claim_tasks(&agent, &claim)).await.unwrap().unwrap();
    let leased = claimed.entries.into_iter().next().expect("a task");
    (leased.entry, leased.lease)
}

/// Writes a file that its user alone can read.
pub(crate) fn write_secret(path: &Path, text: &str) {
    let mut file = private().write(true).create(true).truncate(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

pub(crate) fn json_text(value: &Value) -> JsonText {
    JsonText::of(value).unwrap()
}
