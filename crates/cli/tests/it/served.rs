//! A server and a hub as processes, and a client that speaks raw messages.
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
    pub(crate) fn start(data: &Path, pace: &str) -> Self {
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

    /// Returns the id of the process.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only the soak uses it"))]
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn connect(&self) -> Command {
        let mut command = Command::new(DUOLOGUE);
        command.args(["connect", "--token-file", &self.token, &self.url]);
        command
    }

    pub(crate) fn prompt(&self, text: &str) -> String {
        self.with_agent(&["run", "--yes", text])
    }

    /// Runs a command of `duologue` whose agent is the server, and returns its output.
    pub(crate) fn with_agent(&self, args: &[&str]) -> String {
        let mut command = Command::new(DUOLOGUE);
        command.args(args).args(["--", DUOLOGUE, "connect", "--token-file", &self.token, &self.url]);
        shown(&run(&mut command, ""))
    }

    /// Ends the server at once, without a chance to write.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ended");
    }

    /// Asks the server to end, and waits for it.
    pub(crate) fn stop(&mut self) {
        self.stop_by("TERM");
    }

    /// As [`Server::stop`], by a signal.
    pub(crate) fn stop_by(&mut self, signal: &str) {
        run(Command::new("kill").args([&format!("-{signal}"), &self.process.id().to_string()]), "");
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
pub(crate) struct RawClient {
    pub(crate) process: Child,
    /// Open until the client ends.
    pub(crate) input: Option<ChildStdin>,
    pub(crate) output: BufReader<ChildStdout>,
    pub(crate) requests: u64,
    /// The response to `initialize`.
    pub(crate) introduction: Value,
}

impl RawClient {
    pub(crate) fn new(server: &Server) -> Self {
        RawClient::with(server, &json!({}))
    }

    /// Connects a client with capabilities.
    pub(crate) fn with(server: &Server, capabilities: &Value) -> Self {
        RawClient::of(&mut server.connect(), capabilities)
    }

    /// Starts `duologue connect` with any arguments.
    pub(crate) fn of(command: &mut Command, capabilities: &Value) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (input, output) = (process.stdin.take(), process.stdout.take().expect("a pipe"));
        let output = BufReader::new(output);
        let mut client = RawClient { process, input, output, requests: 0, introduction: Value::Null };
        client.introduction =
            client.request("initialize", &json!({"protocolVersion": 1, "clientCapabilities": capabilities}));
        client
    }

    pub(crate) fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.requests += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.requests, "method": method, "params": params});
        self.write(&request);
        self.requests
    }

    pub(crate) fn write(&mut self, message: &Value) {
        writeln!(self.input.as_mut().expect("it is open"), "{message}").expect("it reads");
    }

    /// Returns the lines that the process writes to its stderr, if that is a pipe.
    pub(crate) fn log(&mut self) -> impl Iterator<Item = String> + use<> {
        let lines = BufReader::new(self.process.stderr.take().expect("a pipe")).lines();
        lines.map(|line| line.expect("UTF-8"))
    }

    pub(crate) fn next(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it writes");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Sends a request and returns its response and the messages before it.
    pub(crate) fn request_with(&mut self, method: &str, params: &Value) -> (Value, Vec<Value>) {
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

    pub(crate) fn request(&mut self, method: &str, params: &Value) -> Value {
        self.request_with(method, params).0
    }

    pub(crate) fn session(&mut self) -> String {
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

pub(crate) fn prompt(session: &str, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}

/// Returns the texts of the updates, joined.
pub(crate) fn text(messages: &[Value]) -> String {
    let texts = messages.iter().filter_map(|message| message["params"]["update"]["content"]["text"].as_str());
    texts.collect()
}

pub(crate) const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hub");

/// Starts the hub of the example with agents that are this build.
pub(crate) fn start_hub(data: &Path) -> Server {
    start_hub_with(data, &[])
}

/// As [`start_hub`], with options.
pub(crate) fn start_hub_with(data: &Path, options: &[&str]) -> Server {
    start_hub_at("127.0.0.1:0", data, options)
}

/// As [`start_hub_with`], at an address. The log is the file `log`.
pub(crate) fn start_hub_at(address: &str, data: &Path, options: &[&str]) -> Server {
    let config = std::fs::read_to_string(format!("{EXAMPLE}/hub.toml")).expect("the example");
    let program = format!("command = [{DUOLOGUE:?}");
    let folders = format!("trust = \"shared\"\nroots = [{data:?}]");
    let config = config
        .replace("roots = [\"/tmp\"]\n", "")
        .replace("command = [\"duologue\"", &program)
        .replace("trust = \"shared\"", &folders);
    let file = data.join("hub.toml");
    std::fs::write(&file, config).expect("a file");
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", address, "--config"]).arg(&file).arg("--data").arg(data);
    let log = std::fs::File::create(data.join("log")).expect("a file");
    Server::of(command.args(options).stderr(log))
}
