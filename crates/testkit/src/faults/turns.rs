//! What is said beside what the mock says: updates too early, too late, too many, for nobody; answers and
//! requests that make no sense.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use serde_json::{Value, json};

use super::bytes::Out;
use super::list::Faults;
use super::wire::{Asked, Heard};

/// The mock's messages on their way out, and ours between them.
pub(super) struct Turns {
    faults: Arc<Faults>,
    heard: Arc<Heard>,
    out: Out,
    turns: usize,
    /// Answers to prompts that wait for answers to us, with their sessions, by the number of the turn.
    held: BTreeMap<usize, (Value, String)>,
    /// The session that is replayed for ever.
    loading: Option<String>,
    /// What was answered last, to be answered once more.
    again: Option<Value>,
}

impl Turns {
    pub(super) fn new(faults: Arc<Faults>, heard: Arc<Heard>, out: Out) -> Self {
        Turns { faults, heard, out, turns: 0, held: BTreeMap::new(), loading: None, again: None }
    }

    /// What comes before the first message.
    pub(super) async fn begin(&mut self) -> io::Result<()> {
        self.out.begin().await
    }

    /// One message of the mock's.
    pub(super) async fn pass(&mut self, frame: Value) -> io::Result<()> {
        if frame.get("method").is_some() {
            return self.say(frame).await;
        }
        match self.heard.asked(&frame["id"]) {
            Some(Asked { method, .. }) if method == "session/new" => self.opened(frame).await,
            Some(Asked { method, session }) if method == "session/load" && self.faults.endless_load => {
                self.loading = Some(session);
                Ok(())
            }
            Some(Asked { method, session }) if method == "session/prompt" => self.turn(frame, &session).await,
            _ => self.answer(frame).await,
        }
    }

    /// Says a message, and then what was to be said again.
    async fn say(&mut self, frame: Value) -> io::Result<()> {
        self.out.frame(frame).await?;
        match self.again.take() {
            Some(again) => self.out.frame(again).await,
            None => Ok(()),
        }
    }

    async fn update(&mut self, session: &str, text: &str) -> io::Result<()> {
        self.out.frame(update(session, text)).await
    }

    async fn answer(&mut self, frame: Value) -> io::Result<()> {
        if self.faults.stray {
            for id in [json!(4_711), json!("nobody-asked"), json!(0.5), Value::Null] {
                self.out.frame(json!({ "jsonrpc": "2.0", "id": id, "result": { "stray": true } })).await?;
            }
        }
        if !self.faults.twice {
            return self.say(frame).await;
        }
        self.say(frame.clone()).await?;
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

    /// The answer to a prompt is about to go out.
    async fn turn(&mut self, frame: Value, session: &str) -> io::Result<()> {
        self.turns += 1;
        if self.faults.unknown {
            let update = json!({ "sessionUpdate": "duologue_mock_unknown", "glow": 11 });
            self.out.frame(notification(session, update)).await?;
        }
        for number in 1..=self.faults.strangers.unwrap_or(0) {
            self.update(&format!("stranger-{}-{number}", self.turns), "Hello?").await?;
        }
        if let Some((count, bytes)) = self.faults.flood {
            let line = update(session, &"x".repeat(bytes)).to_string();
            for _ in 0..count {
                self.out.line(&line, true).await?;
            }
        }
        if let Some(bytes) = self.faults.big {
            let around = update(session, "").to_string().len();
            let line = update(session, &"x".repeat(bytes.saturating_sub(around))).to_string();
            self.out.line(&line, true).await?;
        }
        if let Some(levels) = self.faults.deep {
            let line = update(session, "deep").to_string();
            let nested =
                format!("\"_meta\":{{\"deep\":{}{}}},\"jsonrpc\"", "[".repeat(levels), "]".repeat(levels));
            self.out.line(&line.replacen("\"jsonrpc\"", &nested, 1), true).await?;
        }
        if let Some(bytes) = self.faults.endless {
            self.out.endless(bytes).await?;
        }
        let questions = self.questions();
        if questions.is_empty() {
            return self.end(frame, session).await;
        }
        self.held.insert(self.turns, (frame, session.to_owned()));
        self.heard.expect(self.turns, questions.len());
        for id in questions {
            let asked = json!({ "sessionId": session, "toolCall": { "toolCallId": id, "title": id },
                "options": [{ "optionId": "yes", "name": "Yes", "kind": "allow_once" },
                            { "optionId": "no", "name": "No", "kind": "reject_once" }] });
            let method = "session/request_permission";
            self.out.frame(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": asked })).await?;
        }
        Ok(())
    }

    /// The ids of what is to be asked in this turn.
    fn questions(&self) -> Vec<String> {
        let turn = self.turns;
        let mut ids: Vec<String> =
            (1..=self.faults.permissions.unwrap_or(0)).map(|number| Heard::question(turn, number)).collect();
        if self.faults.same_id {
            ids.extend([Heard::question(turn, 0), Heard::question(turn, 0)]);
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

    /// What has been answered to us ends the turns that waited for it.
    pub(super) async fn release(&mut self) -> io::Result<()> {
        let over = |turn: &usize| self.heard.is_answered(*turn);
        let turns: Vec<usize> = self.held.keys().copied().filter(over).collect();
        for turn in turns {
            if let Some((frame, session)) = self.held.remove(&turn) {
                self.end(frame, &session).await?;
            }
        }
        Ok(())
    }

    /// The mock has nothing more to say.
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        self.out.end().await
    }

    pub(super) fn is_loading(&self) -> bool {
        self.loading.is_some()
    }

    /// One more of what has no end.
    pub(super) async fn replay(&mut self) -> io::Result<()> {
        match self.loading.clone() {
            Some(session) => self.update(&session, "And then? ").await,
            None => Ok(()),
        }
    }
}

fn notification(session: &str, update: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": session, "update": update } })
}

fn update(session: &str, text: &str) -> Value {
    let content = json!({ "type": "text", "text": text });
    notification(session, json!({ "sessionUpdate": "agent_message_chunk", "content": content }))
}
