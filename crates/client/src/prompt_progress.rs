//! The progress of a prompt of protocol version 2: accepted by a response, ended by an update of the state.

use std::sync::Arc;

use duologue_rpc::Limits;
use duologue_schema::{
    ContentBlock, Error as WireError, IdleStop, MessageId, PromptRequest, PromptResponse, SessionUpdate,
    StateUpdate, StopReason,
};

use crate::error::{Error, Result};
use crate::limits::SEEN_MESSAGES;

/// A prompt that the agent has not finished.
#[derive(Debug, Default)]
pub(crate) struct PromptProgress {
    /// The prompt, until the agent reports it as a message of the user.
    prompt: Option<Arc<PromptRequest>>,
    /// The part of the prompt that pieces of a message have repeated: blocks, and bytes of the text of the next block.
    repeated: (usize, usize),
    /// The id of the user's message, after the response.
    accepted: Option<MessageId>,
    /// True if foreground work has run since the prompt was sent, or ran when it was accepted.
    has_run: bool,
    /// The ids of the user messages before the response. One of the messages is the prompt.
    seen: Vec<MessageId>,
    /// The end of work before the response, and the length of `seen` at the end, until more work begins.
    ended: Option<(Result<PromptResponse>, usize)>,
}

/// The effect of an update on the turn.
#[derive(Debug)]
pub(crate) enum Progress {
    /// The update is for the user.
    Deliver(SessionUpdate),
    /// The update is not for the user.
    Keep,
    /// The turn has ended.
    End(Result<PromptResponse>),
}

impl PromptProgress {
    /// Sets the prompt. Call it before the request is sent.
    pub(crate) fn set_prompt(&mut self, prompt: Arc<PromptRequest>) {
        self.prompt = Some(prompt);
    }

    /// Returns the prompt, if the agent has not reported it as a message of the user.
    pub(crate) fn unreported(&mut self) -> Option<Arc<PromptRequest>> {
        self.prompt.take()
    }

    /// Handles the response, which has the id of the user's message. Returns the outcome if the turn has ended.
    ///
    /// An end before the response is that of the prompt if it follows the user's message. Otherwise other work of the
    /// agent has ended, or the agent does not report the message: see [`early_end`](Self::early_end). `is_working` is true if
    /// work runs already. The prompt may become a part of it, so its end is that of the prompt.
    pub(crate) fn accept(&mut self, id: MessageId, is_working: bool) -> Option<Result<PromptResponse>> {
        let seen = std::mem::take(&mut self.seen);
        let place = seen.iter().position(|seen| *seen == id);
        self.accepted = Some(id);
        if place.is_some() {
            self.prompt = None;
        }
        self.has_run |= is_working;
        let (_, seen_at_end) = self.ended.as_ref()?;
        if place.is_some_and(|place| place < *seen_at_end) {
            return self.early_end();
        }
        self.has_run = false;
        None
    }

    /// Returns true if work has ended before the response, and none has begun since.
    pub(crate) fn has_early_end(&self) -> bool {
        self.ended.is_some()
    }

    /// Returns the outcome of the work that has ended before the response, if none has begun since.
    pub(crate) fn early_end(&mut self) -> Option<Result<PromptResponse>> {
        self.ended.take().map(|(outcome, _)| outcome)
    }

    /// Handles an update of the session. After the response, an idle state without a reason ends only work that has run.
    pub(crate) fn update(&mut self, update: SessionUpdate, is_cancelled: bool) -> Progress {
        if let Some(id) = user_message(&update) {
            // The user has seen the prompt.
            return match self.is_prompt(id, &update) {
                true => Progress::Keep,
                false => Progress::Deliver(update),
            };
        }
        let SessionUpdate::StateUpdate(state) = update else { return Progress::Deliver(update) };
        let StateUpdate::Idle(idle) = state else {
            self.has_run = true;
            self.ended = None;
            return Progress::Deliver(SessionUpdate::StateUpdate(state));
        };
        let is_end = match self.accepted {
            Some(_) => self.has_run || is_cancelled || !matches!(idle.stop, IdleStop::NotReported),
            None => self.has_run,
        };
        if !is_end {
            // The state before the prompt, with changed work in the background for example.
            return Progress::Keep;
        }
        let outcome = match idle.stop {
            IdleStop::Error(details) => Err(Error::Response(
                details.error.unwrap_or_else(|| WireError::internal("the agent reported no details")),
            )),
            stop => {
                let mut response = PromptResponse::new(stop.reason().unwrap_or(StopReason::EndTurn));
                (response.usage, response.meta) = (idle.usage, idle.meta);
                Ok(response)
            }
        };
        if self.accepted.is_some() {
            return Progress::End(outcome);
        }
        self.ended = Some((outcome, self.seen.len()));
        Progress::Keep
    }

    /// Returns true if a user message is the prompt: by its id, or by its content before the response has named the id.
    fn is_prompt(&mut self, id: &MessageId, update: &SessionUpdate) -> bool {
        if let Some(accepted) = &self.accepted {
            let is_prompt = accepted == id;
            if is_prompt {
                self.prompt = None;
            }
            return is_prompt;
        }
        let bytes: usize = self.seen.iter().map(|seen| seen.as_str().len()).sum();
        let has_space = self.seen.len() < SEEN_MESSAGES && bytes + id.as_str().len() <= Limits::ID_BYTES;
        if has_space && !self.seen.contains(id) {
            self.seen.push(id.clone());
        }
        let Some(request) = &self.prompt else { return false };
        match update {
            SessionUpdate::UserMessage(message) => message.content.value() == Some(&request.prompt),
            SessionUpdate::UserMessageChunk(chunk) => {
                repeats(&chunk.content, &request.prompt, &mut self.repeated)
            }
            _ => false,
        }
    }
}

/// Returns true if the content is the next part of the prompt, and counts it: a block or a part of its text.
fn repeats(content: &ContentBlock, prompt: &[ContentBlock], repeated: &mut (usize, usize)) -> bool {
    let (block, bytes) = *repeated;
    match (content, prompt.get(block)) {
        (ContentBlock::Text(part), Some(ContentBlock::Text(whole))) => {
            let rest = whole.text.get(bytes..).unwrap_or_default();
            let is_next = rest.starts_with(&part.text);
            if is_next {
                let is_whole = rest.len() == part.text.len();
                *repeated = if is_whole { (block + 1, 0) } else { (block, bytes + part.text.len()) };
            }
            is_next
        }
        (content, Some(next)) if content == next => {
            *repeated = (block + 1, 0);
            true
        }
        _ => false,
    }
}

/// Returns the id of the user's message that an update changes.
fn user_message(update: &SessionUpdate) -> Option<&MessageId> {
    match update {
        SessionUpdate::UserMessage(message) => Some(&message.message_id),
        SessionUpdate::UserMessageChunk(chunk) => chunk.message_id.as_ref(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent that sends messages of the user for ever does not fill the memory.
    #[test]
    fn the_ids_before_the_response_are_limited() {
        let mut progress = PromptProgress::default();
        for number in 0..100 {
            let id = format!("{number}{}", "x".repeat(Limits::ID_BYTES / 4));
            let update = SessionUpdate::user_message("other").with_message_id(id);
            assert!(matches!(progress.update(update, false), Progress::Deliver(_)));
        }
        assert_eq!(progress.seen.len(), 3);
    }

    #[test]
    fn pieces_of_the_prompt_are_known_in_their_order() {
        let prompt = [ContentBlock::from("one"), ContentBlock::image("aGk=", "image/png"), "two".into()];
        let mut repeated = (0, 0);
        let mut is_next = |content: ContentBlock| repeats(&content, &prompt, &mut repeated);
        assert!(is_next("on".into()) && !is_next("one".into()) && is_next("e".into()));
        assert!(!is_next("two".into()) && is_next(ContentBlock::image("aGk=", "image/png")));
        assert!(is_next("two".into()) && !is_next("two".into()));
    }
}
