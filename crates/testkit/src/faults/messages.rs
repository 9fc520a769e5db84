//! Faults that add messages: updates too early, too late, too many or for unknown sessions, and responses and
//! requests that make no sense.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use serde_json::{Value, json};

use super::list::Faults;
use super::output::FaultyOutput;
use super::relay::{RequestTracker, TrackedRequest};
use crate::scripted::{chunk, update};

/// Passes on the agent's messages and adds those of the faults.
pub(super) struct MessageFaults {
    faults: Arc<Faults>,
    requests: Arc<RequestTracker>,
    out: FaultyOutput,
    turns: usize,
    /// Responses to prompts that wait for the client's permissions, with their sessions, by the number of the turn.
    delayed: BTreeMap<usize, (Value, String)>,
    /// The session of an endless replay.
    loading: Option<String>,
    /// The last response, if it has to be sent a third time.
    again: Option<Value>,
}

impl MessageFaults {
    pub(super) fn new(faults: Arc<Faults>, requests: Arc<RequestTracker>, out: FaultyOutput) -> Self {
        MessageFaults {
            faults,
            requests,
            out,
            turns: 0,
            delayed: BTreeMap::new(),
            loading: None,
            again: None,
        }
    }

    /// Writes the noise before the first message.
    pub(super) async fn begin(&mut self) -> io::Result<()> {
        self.out.begin().await
    }

    /// Passes on a line of the agent, without its end. A line that is no message stays as it is.
    pub(super) async fn pass_line(&mut self, line: &[u8]) -> io::Result<()> {
        match serde_json::from_slice::<Value>(line) {
            Ok(frame) if frame.is_object() => self.pass(frame).await,
            _ => self.out.noise(line).await,
        }
    }

    /// Passes on one message of the agent.
    async fn pass(&mut self, frame: Value) -> io::Result<()> {
        if frame.get("method").is_some() {
            return self.send(frame).await;
        }
        match self.requests.take(&frame["id"]) {
            Some(TrackedRequest { method, .. }) if method == "session/new" => self.opened(frame).await,
            Some(TrackedRequest { method, session })
                if method == "session/load" && self.faults.endless_load =>
            {
                self.loading = Some(session);
                Ok(())
            }
            Some(TrackedRequest { method, session }) if method == "session/prompt" => {
                self.turn(frame, &session).await
            }
            _ => self.answer(frame).await,
        }
    }

    /// Sends a message, and then the response that has to be repeated.
    async fn send(&mut self, frame: Value) -> io::Result<()> {
        self.out.frame(frame).await?;
        match self.again.take() {
            Some(again) => self.out.frame(again).await,
            None => Ok(()),
        }
    }

    async fn update(&mut self, session: &str, text: &str) -> io::Result<()> {
        self.out.frame(chunk(session, text)).await
    }

    async fn answer(&mut self, frame: Value) -> io::Result<()> {
        if self.faults.stray {
            for id in [json!(4_711), json!("nobody-asked"), json!(0.5), Value::Null] {
                self.out.frame(json!({ "jsonrpc": "2.0", "id": id, "result": { "stray": true } })).await?;
            }
        }
        if !self.faults.twice {
            return self.send(frame).await;
        }
        self.send(frame.clone()).await?;
        self.out.frame(frame.clone()).await?;
        self.again = Some(frame);
        Ok(())
    }

    async fn opened(&mut self, frame: Value) -> io::Result<()> {
        if let Some(session) = frame["result"]["sessionId"].as_str() {
            for number in 1..=self.faults.early.unwrap_or(0) {
                self.update(session, &format!("early {number} ")).await?;
            }
        }
        self.answer(frame).await
    }

    /// Applies the faults of a turn before the response to its prompt.
    async fn turn(&mut self, frame: Value, session: &str) -> io::Result<()> {
        self.turns += 1;
        if self.faults.unknown {
            let unknown = json!({ "sessionUpdate": "duologue_mock_unknown", "glow": 11 });
            self.out.frame(update(session, unknown)).await?;
        }
        for number in 1..=self.faults.strangers.unwrap_or(0) {
            self.update(&format!("stranger-{}-{number}", self.turns), "Hello?").await?;
        }
        if let Some((count, bytes)) = self.faults.flood {
            let line = chunk(session, &"x".repeat(bytes)).to_string();
            for _ in 0..count {
                self.out.line(&line, true).await?;
            }
        }
        if let Some(bytes) = self.faults.big {
            let around = chunk(session, "").to_string().len();
            let line = chunk(session, &"x".repeat(bytes.saturating_sub(around))).to_string();
            self.out.line(&line, true).await?;
        }
        if let Some(levels) = self.faults.deep {
            let line = chunk(session, "deep").to_string();
            let nested =
                format!("\"_meta\":{{\"deep\":{}{}}},\"jsonrpc\"", "[".repeat(levels), "]".repeat(levels));
            self.out.line(&line.replacen("\"jsonrpc\"", &nested, 1), true).await?;
        }
        if let Some(bytes) = self.faults.endless {
            self.out.endless(bytes).await?;
        }
        let ids = self.permission_ids();
        if ids.is_empty() {
            return self.end(frame, session).await;
        }
        self.delayed.insert(self.turns, (frame, session.to_owned()));
        self.requests.expect(self.turns, ids.len());
        for id in ids {
            let params = json!({ "sessionId": session, "toolCall": { "toolCallId": id, "title": id },
                "options": [{ "optionId": "yes", "name": "Yes", "kind": "allow_once" },
                            { "optionId": "no", "name": "No", "kind": "reject_once" }] });
            let method = "session/request_permission";
            self.out.frame(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await?;
        }
        Ok(())
    }

    /// Returns the ids of the permission requests of this turn.
    fn permission_ids(&self) -> Vec<String> {
        let turn = self.turns;
        let mut ids: Vec<String> = (1..=self.faults.permissions.unwrap_or(0))
            .map(|number| RequestTracker::own_id(turn, number))
            .collect();
        if self.faults.same_id {
            ids.extend([RequestTracker::own_id(turn, 0), RequestTracker::own_id(turn, 0)]);
        }
        ids
    }

    async fn end(&mut self, frame: Value, session: &str) -> io::Result<()> {
        self.answer(frame).await?;
        for number in 1..=self.faults.late.unwrap_or(0) {
            self.update(session, &format!("late {number} ")).await?;
        }
        Ok(())
    }

    /// Ends the turns whose permission requests are all answered.
    pub(super) async fn release(&mut self) -> io::Result<()> {
        let over = |turn: &usize| self.requests.is_answered(*turn);
        let message_faults: Vec<usize> = self.delayed.keys().copied().filter(over).collect();
        for turn in message_faults {
            if let Some((frame, session)) = self.delayed.remove(&turn) {
                self.end(frame, &session).await?;
            }
        }
        Ok(())
    }

    /// Ends the output after the last message.
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        self.out.close().await
    }

    pub(super) fn is_loading(&self) -> bool {
        self.loading.is_some()
    }

    /// Sends one more update of the endless replay.
    pub(super) async fn replay(&mut self) -> io::Result<()> {
        match self.loading.clone() {
            Some(session) => self.update(&session, "And then? ").await,
            None => Ok(()),
        }
    }
}
