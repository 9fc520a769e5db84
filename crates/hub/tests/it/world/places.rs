//! The folders and MCP servers with which the clients of the simulated world open the session.

use std::collections::HashMap;

use duologue_hub::ClientKey;
use serde_json::{Value, json};

/// The places of the clients, and the one in which the next process opens the session.
pub(super) struct Places {
    /// The params that a hub passes to the next process. They follow the actions of the owner alone.
    params: Value,
    /// The params that are right. They follow the messages of the clients alone.
    expected: Value,
    /// The places with which clients have loaded the session.
    given: HashMap<ClientKey, Value>,
    /// The client whose message the owner handles, and true if it is a prompt.
    sender: Option<(ClientKey, bool)>,
    /// True once a process has opened the session in a place of another client than the creator.
    pub(super) has_moved: bool,
}

impl Places {
    pub(super) fn new() -> Self {
        let params = place(0);
        Places { expected: params.clone(), params, given: HashMap::new(), sender: None, has_moved: false }
    }

    /// A hub that begins again has the creator's folder, and no servers, because they hold secrets.
    pub(super) fn forget(&mut self) {
        let mut params = place(0);
        params["mcpServers"] = json!([]);
        *self = Places { expected: params.clone(), params, ..Places::new() };
    }

    /// A client loads the session with a place of its own.
    pub(super) fn load(&mut self, client: ClientKey, number: usize) {
        self.given.insert(client, place(number));
    }

    pub(super) fn leave(&mut self, client: &ClientKey) {
        self.given.remove(client);
    }

    /// The owner is about to handle a message of a client.
    pub(super) fn sends(&mut self, client: &ClientKey, message: &Value) {
        self.sender = Some((client.clone(), message["method"] == "session/prompt"));
    }

    /// The owner wants a process for a client.
    pub(super) fn starts(&mut self, client: Option<&ClientKey>) {
        if let Some(given) = client.and_then(|client| self.given.get(client)) {
            self.params.clone_from(given);
        }
        let sender = self.sender.as_ref().filter(|(_, is_prompt)| *is_prompt);
        if let Some(given) = sender.and_then(|(sender, _)| self.given.get(sender)) {
            self.expected.clone_from(given);
        }
    }

    /// Returns the params for the process that is ready.
    pub(super) fn params(&self) -> Value {
        self.params.clone()
    }

    /// The agent reads a message. If it opens the session, it is in the place of the one whose prompt needed the process.
    pub(super) fn check(&mut self, message: &Value) {
        if !matches!(message["method"].as_str(), Some("session/new" | "session/load" | "session/resume")) {
            return;
        }
        for member in ["cwd", "mcpServers"] {
            assert_eq!(message["params"][member], self.expected[member], "{member} of {message}");
        }
        self.has_moved |= self.expected["cwd"] != place(0)["cwd"];
    }
}

fn place(number: usize) -> Value {
    let server =
        json!({"type": "http", "name": "tools", "url": format!("https://{number}.example"), "headers": []});
    json!({"cwd": format!("/p{number}"), "mcpServers": [server]})
}
