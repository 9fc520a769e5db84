//! A folder with a project in it and secrets around it, and an agent that asks for them.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use duologue_client::{Client, Connection, Host, LocalHost, Session};
use serde_json::{Value, json};
use tempfile::TempDir;

use duologue_test_support::{ScriptedPeer, Wire, client_of};

/// A text that no agent may ever see.
pub(crate) const SECRET: &str = "the secret";

/// The only root is `project`; everything else of it is outside.
pub(crate) struct Desk {
    top: TempDir,
}

impl Desk {
    pub(crate) fn new() -> Self {
        let desk = Desk { top: tempfile::tempdir().expect("a folder") };
        for folder in ["project/dir", "project/empty", "outside/dir", "project-sibling", "projec"] {
            std::fs::create_dir_all(desk.path(folder)).expect("a folder");
        }
        for secret in ["outside", "outside/dir", "project-sibling", "projec", ""] {
            std::fs::write(desk.path(secret).join("secret.txt"), SECRET).expect("a file");
        }
        desk.put("file.txt", "inside");
        desk.put("dir/inner.txt", "inner");
        desk
    }

    /// A path below the folder of everything.
    pub(crate) fn path(&self, way: &str) -> PathBuf {
        self.top.path().join(way)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.path("project")
    }

    /// A path below the project.
    pub(crate) fn at(&self, way: &str) -> PathBuf {
        self.root().join(way)
    }

    pub(crate) fn put(&self, way: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.at(way), text).expect("a file");
    }

    pub(crate) fn get(&self, way: &str) -> String {
        std::fs::read_to_string(self.at(way)).expect("a file")
    }

    pub(crate) fn link(&self, way: &str, target: impl AsRef<Path>) {
        symlink(target, self.at(way)).expect("a link");
    }

    pub(crate) fn host(&self) -> LocalHost {
        LocalHost::new(self.root())
    }

    /// Everything outside of the project, with its content.
    pub(crate) fn outside(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.top.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("a folder") {
                let entry = entry.expect("an entry");
                if entry.path() == self.root() {
                    continue;
                }
                if entry.file_type().expect("a type").is_dir() {
                    folders.push(entry.path());
                    found.insert(entry.path(), Vec::new());
                } else {
                    found.insert(entry.path(), std::fs::read(entry.path()).expect("a file"));
                }
            }
        }
        found
    }
}

/// An agent the test plays, with a session.
pub(crate) struct Agent {
    pub(crate) script: ScriptedPeer,
    pub(crate) connection: Connection,
    pub(crate) sessions: Vec<Session>,
}

impl Agent {
    /// An agent of this host, with the session `s0` in `cwd`.
    pub(crate) async fn of(host: impl Host, cwd: impl Into<PathBuf>) -> Self {
        Agent::with(Client::new(host), cwd).await
    }

    pub(crate) async fn with<H: Host>(client: Client<H>, cwd: impl Into<PathBuf>) -> Self {
        let sessions = json!({"additionalDirectories": {}, "resume": {}, "close": {}});
        let capabilities = json!({"sessionCapabilities": sessions});
        let (connection, script) = client_of(Wire::Memory, client, capabilities).await;
        let mut agent = Agent { script, connection, sessions: Vec::new() };
        agent.open(cwd, &[]).await;
        agent
    }

    /// Opens one more session, named `s1` and so on.
    pub(crate) async fn open(&mut self, cwd: impl Into<PathBuf>, more: &[PathBuf]) {
        let mut session = self.connection.session_in(cwd);
        for folder in more {
            session = session.additional_directory(folder);
        }
        let id = format!("s{}", self.sessions.len());
        let (session, ()) = tokio::join!(session.create(), self.script.accept_session(&id));
        self.sessions.push(session.expect("a session"));
    }

    /// Ends the agent and closes the connection, which would otherwise wait for the agent to end.
    pub(crate) async fn leave(self) {
        drop(self.script);
        self.connection.close().await;
    }

    /// Closes the newest session.
    pub(crate) async fn close(&mut self) {
        let session = self.sessions.pop().expect("a session");
        let (closed, ()) = tokio::join!(session.close(), async {
            let request = self.script.expect("session/close").await;
            self.script.respond(&request, json!({})).await;
        });
        closed.expect("closed");
    }

    /// Asks in a session; an error is its code and message.
    pub(crate) async fn ask_in(
        &mut self,
        session: &str,
        method: &str,
        mut params: Value,
    ) -> Result<Value, Refused> {
        params["sessionId"] = session.into();
        let mut answer = self.script.request(method, params).await;
        outcome(&mut answer)
    }

    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Result<Value, Refused> {
        self.ask_in("s0", method, params).await
    }

    pub(crate) async fn read(&mut self, path: impl AsRef<Path>) -> Result<String, Refused> {
        let answer = self.ask("fs/read_text_file", json!({"path": path.as_ref()})).await?;
        Ok(answer["content"].as_str().expect("a text").to_owned())
    }

    pub(crate) async fn write(&mut self, path: impl AsRef<Path>, text: &str) -> Result<(), Refused> {
        let params = json!({"path": path.as_ref(), "content": text});
        self.ask("fs/write_text_file", params).await.map(drop)
    }

    pub(crate) async fn start(&mut self, params: Value) -> Value {
        self.ask("terminal/create", params).await.expect("a terminal")
    }

    pub(crate) async fn sh(&mut self, script: &str) -> Value {
        self.start(json!({"command": "/bin/sh", "args": ["-c", script]})).await
    }

    pub(crate) async fn output(&mut self, terminal: &Value) -> Value {
        self.ask("terminal/output", terminal.clone()).await.expect("output")
    }

    pub(crate) async fn exit(&mut self, terminal: &Value) -> Value {
        self.ask("terminal/wait_for_exit", terminal.clone()).await.expect("an end")
    }

    /// Runs a program to its end: what it printed, and how it ended.
    pub(crate) async fn run(&mut self, params: Value) -> (String, Value) {
        let terminal = self.start(params).await;
        let exit = self.exit(&terminal).await;
        let output = self.output(&terminal).await;
        assert_eq!(output["exitStatus"], exit);
        self.ask("terminal/release", terminal).await.expect("released");
        (output["output"].as_str().expect("text").to_owned(), exit)
    }
}

/// The result or the error of an answer.
pub(crate) fn outcome(answer: &mut Value) -> Result<Value, Refused> {
    match answer.get("error") {
        None => Ok(answer["result"].take()),
        Some(error) => Err(Refused {
            code: error["code"].as_i64().expect("a code"),
            message: error["message"].as_str().expect("a message").to_owned(),
        }),
    }
}

#[derive(Debug, PartialEq)]
pub(crate) struct Refused {
    pub(crate) code: i64,
    pub(crate) message: String,
}

impl Refused {
    /// Checks what a refusal says.
    pub(crate) fn says(&self, code: i64, part: &str) {
        assert!(self.code == code && self.message.contains(part), "{self:?}, not {code} {part}");
    }
}

pub(crate) const INVALID: i64 = -32602;
pub(crate) const INTERNAL: i64 = -32603;
pub(crate) const UNKNOWN: i64 = -32601;
pub(crate) const NOT_FOUND: i64 = -32002;
