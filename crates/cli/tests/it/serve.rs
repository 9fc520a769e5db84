//! `duologue serve` and `duologue connect` as processes.
#![cfg(all(unix, feature = "serve"))]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::process::{DUOLOGUE, run, shown};

/// A server with a data folder.
pub(crate) struct Server {
    process: Child,
    pub(crate) url: String,
    /// The path of its token.
    pub(crate) token: String,
}

impl Server {
    fn start(data: &Path, pace: &str) -> Self {
        let mut command = Command::new(DUOLOGUE);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data);
        Server::of(command.args(["--", DUOLOGUE, "mock", "--pace", pace]))
    }

    /// Starts `duologue serve` with any agent.
    pub(crate) fn of(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let mut line = || lines.next().expect("a line").expect("UTF-8");
        let url = line().rsplit_once(' ').expect("an address").1.to_owned();
        let token = line().rsplit_once(' ').expect("a path").1.to_owned();
        Server { process, url, token }
    }

    fn connect(&self) -> Command {
        let mut command = Command::new(DUOLOGUE);
        command.args(["connect", "--token-file", &self.token, &self.url]);
        command
    }

    fn prompt(&self, text: &str) -> String {
        let mut command = Command::new(DUOLOGUE);
        command.args([
            "run",
            "--yes",
            text,
            "--",
            DUOLOGUE,
            "connect",
            "--token-file",
            &self.token,
            &self.url,
        ]);
        shown(&run(&mut command, ""))
    }

    /// Ends the server at once, without a chance to write.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ended");
    }

    /// Asks the server to end, and waits for it.
    pub(crate) fn stop(&mut self) {
        run(Command::new("kill").arg(self.process.id().to_string()), "");
        assert!(self.process.wait().expect("it ended").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A client that speaks raw messages through `duologue connect`.
struct RawClient {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    requests: u64,
}

impl RawClient {
    fn new(server: &Server) -> Self {
        let mut command = server.connect();
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (input, output) = (process.stdin.take().expect("a pipe"), process.stdout.take().expect("a pipe"));
        let mut client = RawClient { process, input, output: BufReader::new(output), requests: 0 };
        client.request("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}));
        client
    }

    fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.requests += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.requests, "method": method, "params": params});
        writeln!(self.input, "{request}").expect("it reads");
        self.requests
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it writes");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Sends a request and returns its response and the messages before it.
    fn request_with(&mut self, method: &str, params: &Value) -> (Value, Vec<Value>) {
        let id = self.send(method, params);
        let mut before = Vec::new();
        loop {
            let message = self.next();
            if message["id"] == id && message["method"].is_null() {
                return (message, before);
            }
            before.push(message);
        }
    }

    fn request(&mut self, method: &str, params: &Value) -> Value {
        self.request_with(method, params).0
    }

    fn session(&mut self) -> String {
        let session = self.request("session/new", &json!({"cwd": "/tmp", "mcpServers": []}));
        session["result"]["sessionId"].as_str().expect("an id").to_owned()
    }
}

impl Drop for RawClient {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn prompt(session: &str, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}

/// Returns the texts of the updates, joined.
fn text(messages: &[Value]) -> String {
    let texts = messages.iter().filter_map(|message| message["params"]["update"]["content"]["text"].as_str());
    texts.collect()
}

#[test]
fn a_prompt_runs_on_a_server() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), "0");
    let hello = server.prompt("hello");
    assert!(hello.contains("Hello!") && hello.ends_with("exit 0"), "{hello}");
    let allowed = server.prompt("permission");
    assert!(allowed.contains("You allowed it."), "{allowed}");
}

/// The agent of the checks is the mock behind a server.
#[test]
fn a_server_passes_the_checks_of_an_agent() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), "0");
    for transport in ["ws", "sse"] {
        let mut command = Command::new(DUOLOGUE);
        command.args(["check", "--", DUOLOGUE, "connect", "--transport", transport]);
        command.args(["--token-file", &server.token, &server.url]);
        let checked = shown(&run(&mut command, ""));
        assert!(
            checked.contains(" passed, 0 failed") && checked.ends_with("exit 0"),
            "{transport}: {checked}"
        );
    }
}

#[test]
fn a_client_without_the_token_is_refused() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), "0");
    let wrong = data.path().join("wrong");
    std::fs::write(&wrong, "0".repeat(64)).expect("a file");
    let mut command = Command::new(DUOLOGUE);
    command.args(["connect", "--token-file"]).arg(wrong).arg(&server.url);
    let refused = shown(&run(&mut command, ""));
    assert!(refused.contains("status 401") && refused.ends_with("exit 3"), "{refused}");
}

#[test]
fn a_token_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;

    let data = tempfile::tempdir().expect("a folder");
    let token = data.path().join("token");
    std::fs::write(&token, "0".repeat(64)).expect("a file");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o640)).expect("the rights");
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
    command.args(["--", DUOLOGUE, "mock"]);
    let refused = shown(&run(&mut command, ""));
    assert!(refused.contains("(mode 640)") && refused.ends_with("exit 2"), "{refused}");
}

/// A file system may leave a file without content after a power cut.
#[test]
fn an_empty_token_is_replaced() {
    let data = tempfile::tempdir().expect("a folder");
    std::fs::write(data.path().join("token"), "").expect("a file");
    let server = Server::start(data.path(), "0");
    let hello = server.prompt("hello");
    assert!(hello.ends_with("exit 0"), "{hello}");
}

#[test]
fn a_stopped_server_lets_its_turns_end() {
    let data = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(data.path(), "20");
    let mut client = RawClient::new(&server);
    let session = client.session();
    let id = client.send("session/prompt", &prompt(&session, "hello"));
    while text(&[client.next()]).is_empty() {}
    let stopping = std::thread::spawn(move || server.stop());
    let answer = loop {
        let message = client.next();
        if message["id"] == id {
            break message;
        }
    };
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    stopping.join().expect("it has ended");
}

/// An agent that ignores the end of its input and SIGTERM.
#[test]
fn a_stopped_server_leaves_no_process_behind() {
    let data = tempfile::tempdir().expect("a folder");
    let pid = data.path().join("pid");
    let script =
        format!("trap '' TERM; echo $$ > {}; {DUOLOGUE} mock; while :; do sleep 1; done", pid.display());
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
    let mut server = Server::of(command.args(["--", "sh", "-c", &script]));
    let mut client = RawClient::new(&server);
    client.session();
    server.stop();
    let pid = std::fs::read_to_string(pid).expect("it ran");
    let left =
        Command::new("kill").args(["-0", pid.trim()]).stderr(Stdio::null()).status().expect("it starts");
    assert!(!left.success(), "process {pid} is left");
}

#[test]
#[cfg(feature = "tls")]
fn an_encrypted_server_can_be_reached_by_others() {
    let data = tempfile::tempdir().expect("a folder");
    let (cert, key) = (data.path().join("cert.pem"), data.path().join("key.pem"));
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
    std::fs::write(&cert, made.cert.pem()).expect("a file");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", "0.0.0.0:0", "--cert"]).arg(&cert).arg("--key").arg(&key);
    let server = Server::of(command.arg("--data").arg(data.path()).args(["--", DUOLOGUE, "mock"]));
    let url = server.url.replace("0.0.0.0", "localhost");
    assert!(url.starts_with("https://localhost:"), "{url}");
    let connect = |ca: &[&str]| {
        let mut command = Command::new(DUOLOGUE);
        command.args(["run", "hello", "--", DUOLOGUE, "connect", "--token-file", &server.token]);
        shown(&run(command.args(ca).arg(&url), ""))
    };
    let hello = connect(&["--ca-file", cert.to_str().expect("UTF-8")]);
    assert!(hello.contains("Hello!") && hello.ends_with("exit 0"), "{hello}");
    let refused = connect(&[]);
    assert!(refused.contains("TLS failed"), "{refused}");
}

#[test]
fn an_address_that_others_can_reach_is_refused() {
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", "0.0.0.0:0", "--", DUOLOGUE, "mock"]);
    let refused = shown(&run(&mut command, ""));
    assert!(refused.contains("not a loopback address") && refused.ends_with("exit 2"), "{refused}");
}

/// An agent that ignores the end of its input and SIGTERM.
#[test]
fn a_killed_server_leaves_no_process_behind() {
    let data = tempfile::tempdir().expect("a folder");
    let pid = data.path().join("pid");
    let script =
        format!("trap '' TERM; echo $$ > {}; {DUOLOGUE} mock; while :; do sleep 1; done", pid.display());
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
    let mut server = Server::of(command.args(["--", "sh", "-c", &script]));
    let mut client = RawClient::new(&server);
    client.session();
    server.kill();
    let pid = std::fs::read_to_string(pid).expect("it ran");
    let is_there = || {
        let found = Command::new("kill").args(["-0", pid.trim()]).stderr(Stdio::null()).status();
        found.expect("it starts").success()
    };
    assert!(is_there(), "it ignores the end of its input");
    let start = std::time::Instant::now();
    while is_there() {
        assert!(start.elapsed() < std::time::Duration::from_secs(60), "process {pid} is left");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn sessions_survive_a_killed_server() {
    let data = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(data.path(), "0");
    let mut client = RawClient::new(&server);
    let session = client.session();
    let (_, updates) = client.request_with("session/prompt", &prompt(&session, "tools"));
    let said = text(&updates);
    server.kill();
    drop(client);

    let server = Server::start(data.path(), "0");
    let mut client = RawClient::new(&server);
    let load = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
    let (loaded, replay) = client.request_with("session/load", &load);
    assert!(loaded["result"].is_object(), "{loaded}");
    assert_eq!(text(&replay), format!("tools{said}"));
    // The mock forgets its sessions with its process.
    let lost = client.request("session/prompt", &prompt(&session, "hello"));
    assert_eq!(lost["error"]["data"]["code"], "context_lost", "{lost}");
    let mut fresh = prompt(&session, "hello");
    fresh["_meta"] = json!({"duologue": {"fresh": true}});
    let (ended, updates) = client.request_with("session/prompt", &fresh);
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    assert!(text(&updates).contains("Hello!"));
}

/// Whatever a client has read before the server is killed is there afterwards, and the turn has ended as interrupted.
#[test]
fn nothing_that_a_client_has_read_is_lost_when_the_server_is_killed() {
    for read in [0, 1, 5, 9] {
        let data = tempfile::tempdir().expect("a folder");
        let mut server = Server::start(data.path(), "5");
        let mut client = RawClient::new(&server);
        let session = client.session();
        client.send("session/prompt", &prompt(&session, "hello"));
        let mut seen = String::new();
        let mut updates = 0;
        while updates < read {
            let message = client.next();
            let kind = &message["params"]["update"]["sessionUpdate"];
            if kind == "agent_thought_chunk" || kind == "agent_message_chunk" {
                updates += 1;
                seen.push_str(&text(&[message]));
            }
        }
        server.kill();
        drop(client);

        let server = Server::start(data.path(), "0");
        let mut client = RawClient::new(&server);
        let load = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
        let (loaded, replay) = client.request_with("session/load", &load);
        assert!(loaded["result"].is_object(), "{loaded}");
        let kept = text(&replay);
        let kept = kept.strip_prefix("hello").unwrap_or(&kept);
        assert!(kept.starts_with(&seen), "read {seen:?}, kept {kept:?}");
        let log = data.path().join("sessions").join(&session);
        let mut files: Vec<_> =
            std::fs::read_dir(log).expect("the log").map(|file| file.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
        let records: String = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
        let prompts = records.matches(r#""event":"prompt""#).count();
        assert_eq!(records.matches(r#""event":"interrupted""#).count(), prompts, "{records}");
    }
}
