//! A client that speaks raw messages through `duologue connect`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use duologue_test_support::PATIENCE;
use serde_json::{Value, json};

use crate::process::DUOLOGUE;

pub(crate) struct Editor {
    process: Child,
    input: Option<ChildStdin>,
    messages: Receiver<Value>,
    requests: u64,
}

impl Editor {
    /// Starts a client. `transport` is that of `duologue connect`.
    pub(crate) fn new(token: &str, url: &str, transport: &str) -> Self {
        let mut command = Command::new(DUOLOGUE);
        command.args(["connect", "--transport", transport, "--token-file", token, url]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("it starts");
        let (input, output) = (process.stdin.take(), process.stdout.take().expect("a pipe"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
                let _ = sender.send(message);
            }
        });
        Editor { process, input, messages, requests: 0 }
    }

    fn write(&mut self, message: &Value) {
        writeln!(self.input.as_mut().expect("it is open"), "{message}").expect("it reads");
    }

    pub(crate) fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.requests += 1;
        let id = self.requests;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    pub(crate) fn answer(&mut self, id: &Value, result: &Value) {
        self.write(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    /// Returns the next message; `None` if there is none until `time`.
    pub(crate) fn next_until(&self, time: Instant) -> Option<Value> {
        let received = self.messages.recv_timeout(time.saturating_duration_since(Instant::now()));
        match received {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("`duologue connect` has ended"),
        }
    }

    /// Sends a request and returns its response and the messages before it.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> (Value, Vec<Value>) {
        let id = self.send(method, params);
        let mut before = Vec::new();
        loop {
            let message = self.next_until(Instant::now() + PATIENCE);
            let message = message.unwrap_or_else(|| panic!("{method} is not answered"));
            if message["id"] == id && message["method"].is_null() {
                return (message, before);
            }
            before.push(message);
        }
    }

    /// Ends the input, waits for the end of the process, and returns its last messages.
    pub(crate) fn end(&mut self) -> Vec<Value> {
        self.input = None;
        let mut rest = Vec::new();
        loop {
            match self.messages.recv_timeout(PATIENCE) {
                Ok(message) => rest.push(message),
                Err(RecvTimeoutError::Disconnected) => return rest,
                Err(RecvTimeoutError::Timeout) => panic!("`duologue connect` does not end"),
            }
        }
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
