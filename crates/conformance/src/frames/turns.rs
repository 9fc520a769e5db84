//! Validates the order of the messages of a turn of version 2.

use std::collections::{HashMap, HashSet};

use duologue_rpc::ResponseOutcome;
use duologue_schema::{
    Notification as _, PromptRequest, Request as _, SessionId, SessionNotification, StateUpdate, v2,
};
use duologue_transcript::{ParsedLine, Side, TranscriptEntry};

use super::{FrameReport, Problem};

/// Adds the problems of turns to the reports, one for each entry. Version 1 has no rules here.
pub(super) fn check(entries: &[TranscriptEntry<'_>], reports: &mut [FrameReport]) {
    let mut sessions: HashMap<&SessionId, SessionTurns> = HashMap::new();
    for (place, entry) in entries.iter().enumerate() {
        let Some(id) = entry.session.as_ref().filter(|_| entry.is_v2()) else { continue };
        let session = sessions.entry(id).or_default();
        let problem = match &entry.parsed {
            ParsedLine::Response { outcome: ResponseOutcome::Result(result), .. }
                if entry.method() == Some(PromptRequest::METHOD) =>
            {
                if let Ok(response) = serde_json::from_str::<v2::PromptResponse>(result.get()) {
                    session.accept(place, response.message_id.as_str());
                }
                None
            }
            ParsedLine::Notification { method, params: Some(params), .. }
                if method == SessionNotification::METHOD && entry.from() == Side::Agent =>
            {
                let update: Result<v2::UpdateSessionNotification, _> = serde_json::from_str(params.get());
                update.ok().and_then(|params| session.update(&params.update))
            }
            _ => None,
        };
        if let (Some(problem), Some(report)) = (problem, reports.get_mut(place)) {
            report.problems.push(problem);
        }
    }
    let open = sessions.values().flat_map(|session| &session.accepted);
    for prompt in open {
        if let Some(report) = reports.get_mut(prompt.place) {
            report.problems.push(Problem::warning("$", "no state `idle` ends the work on the prompt"));
        }
    }
}

/// The turns of one session.
#[derive(Default)]
struct SessionTurns {
    /// The accepted prompts whose work has not ended.
    accepted: Vec<AcceptedPrompt>,
    /// True after `running` or `requires_action`.
    is_working: bool,
    /// The messages of the user that the agent has sent.
    echoed: HashSet<String>,
    /// The messages and thoughts of the work that has ended.
    ended: HashSet<String>,
    /// Those of the current work.
    current: HashSet<String>,
}

struct AcceptedPrompt {
    /// The entry of the response.
    place: usize,
    message: String,
}

impl SessionTurns {
    fn accept(&mut self, place: usize, message: &str) {
        self.accepted.push(AcceptedPrompt { place, message: message.to_owned() });
    }

    fn update(&mut self, update: &v2::SessionUpdate) -> Option<Problem> {
        use v2::SessionUpdate as Update;
        match update {
            Update::UserMessage(message) => self.echo(message.message_id.as_str()),
            Update::UserMessageChunk(chunk) => self.echo(chunk.message_id.as_str()),
            Update::AgentMessageChunk(chunk) | Update::AgentThoughtChunk(chunk) => {
                self.chunk(chunk.message_id.as_str())
            }
            Update::StateUpdate(state) => self.state(state),
            _ => None,
        }
    }

    fn echo(&mut self, message: &str) -> Option<Problem> {
        self.echoed.insert(message.to_owned());
        None
    }

    /// Checks a piece of a message or thought. Whole messages may correct those of earlier turns.
    fn chunk(&mut self, message: &str) -> Option<Problem> {
        let path = "$.params.update.messageId";
        if self.is_working {
            self.current.insert(message.to_owned());
            return None;
        }
        if self.ended.contains(message) {
            return Some(Problem::error(path, "belongs to the work that the state `idle` has ended"));
        }
        let begins = !self.accepted.is_empty();
        begins.then(|| Problem::error("$.params.update", "comes before the state `running`"))
    }

    fn state(&mut self, state: &StateUpdate) -> Option<Problem> {
        match state {
            StateUpdate::Running(_) | StateUpdate::RequiresAction(_) => {
                self.is_working = true;
                None
            }
            StateUpdate::Idle(_) => {
                let worked = std::mem::take(&mut self.is_working);
                self.ended.extend(self.current.drain());
                let missing = self.accepted.iter().find(|prompt| !self.echoed.contains(&prompt.message));
                let missing = missing.map(|prompt| prompt.message.clone());
                let accepted = self.accepted.drain(..).count();
                let path = "$.params.update";
                if let Some(message) = missing {
                    let text = format!("ends the work on the message {message:?}, which is no update yet");
                    return Some(Problem::error(path, text));
                }
                if accepted > 0 && !worked {
                    return Some(Problem::error(
                        path,
                        "ends the work on a prompt without the state `running`",
                    ));
                }
                let names_reason = state.stop_reason().is_some();
                (worked && !names_reason).then(|| {
                    Problem::warning(format!("{path}.stopReason"), "is missing: it ends foreground work")
                })
            }
            _ => None,
        }
    }
}
