//! The client that acts for the agent: on its machine are the files and terminals that a request means.

use duologue_rpc::raw_message::{call_frame, member_text};
use duologue_schema::{CreateTerminalRequest, Notification as _, Request as _, SessionNotification};
use duologue_transcript::Side;
use serde_json::value::RawValue;

use super::{AttachedClient, SessionOwner, raw_line};
use crate::picture::Choice;
use crate::record::{Asker, ClientKey, HubEvent};

/// The most terminals whose clients are remembered while a process runs.
const TERMINALS: usize = 1024;
/// Limit on the id of a terminal in bytes.
const ID_BYTES: usize = 256;

impl SessionOwner {
    /// Returns the client that receives what is for one client: the one whose prompt runs, else the first that opened the
    /// session, else any. A client that handles the method comes before the others.
    pub(super) fn host(&self, method: &str) -> Option<&ClientKey> {
        let turn = self.state.turn().and_then(|call| self.state.calls.get(&call));
        let asks = |key: &ClientKey| turn.is_some_and(|turn| turn.askers.iter().any(|it| it.client == *key));
        let order = |(key, client): &(&ClientKey, &AttachedClient)| {
            (!client.abilities.handle(method), !asks(key), client.number)
        };
        self.clients.iter().min_by_key(order).map(|(key, _)| key)
    }

    /// Returns the client that receives a request for files or terminals. A terminal belongs to the client that created it.
    pub(super) fn host_of(&self, method: &str, params: &str) -> Option<ClientKey> {
        let is_of_terminal = method.starts_with("terminal/") && method != CreateTerminalRequest::METHOD;
        let id = member_text(params.as_bytes(), "terminalId").filter(|_| is_of_terminal);
        match id.and_then(|id| self.terminals.get(&*id)) {
            Some(client) => self.clients.contains_key(client).then(|| client.clone()),
            None => self.host(method).cloned(),
        }
    }

    /// Notes the answer of a client to a request for a terminal.
    pub(super) fn note_terminal(&mut self, client: &ClientKey, method: &str, result: &RawValue) {
        if method == CreateTerminalRequest::METHOD && self.terminals.len() < TERMINALS {
            let id = member_text(result.get().as_bytes(), "terminalId");
            if let Some(id) = id.filter(|id| id.len() <= ID_BYTES) {
                self.terminals.insert(id.into_owned(), client.clone());
            }
        }
    }

    /// Tells the other clients what one of them has chosen. Some agents report no choice of a client.
    pub(super) fn tell_others(&mut self, choice: &Choice, askers: &[Asker]) {
        let others = self.clients.keys().filter(|key| askers.iter().all(|asker| asker.client != **key));
        let others: Vec<ClientKey> = others.cloned().collect();
        for update in self.state.picture.updates_of(choice) {
            let notification = SessionNotification::new(self.session.clone(), update);
            let line = call_frame(None, SessionNotification::METHOD, &notification);
            let Some(frame) = raw_line(line) else { continue };
            for client in &others {
                let event = HubEvent::Addressed { client: client.clone() };
                self.record(Some((Side::Agent, &frame)), Some(event));
            }
        }
    }
}
