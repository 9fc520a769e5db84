//! The turn of a scenario, with the steps that scenarios share.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use duologue_agent::schema::SessionUpdate;
use duologue_agent::{Error, MessageWriter, NewToolCall, Result, Turn};

use super::edge_cases::Crash;

/// A running turn and the settings of the agent for it.
pub(super) struct ScenarioTurn<'a> {
    pub(super) turn: &'a Turn,
    pub(super) pace: Duration,
    pub(super) crash: Crash,
}

impl Deref for ScenarioTurn<'_> {
    type Target = Turn;

    fn deref(&self) -> &Turn {
        self.turn
    }
}

/// The number of ids of each kind that the session has used.
#[derive(Default)]
struct Ids {
    messages: AtomicU32,
    tool_calls: AtomicU32,
    #[cfg(feature = "protocol-v2")]
    terminals: AtomicU32,
}

impl ScenarioTurn<'_> {
    /// Creates a message.
    pub(super) fn message(&self) -> MessageWriter {
        self.turn.message().with_id(self.message_id())
    }

    /// Creates a thought.
    pub(super) fn thought(&self) -> MessageWriter {
        self.turn.thought().with_id(self.message_id())
    }

    pub(super) fn message_id(&self) -> String {
        format!("message-{}", self.turn.state::<Ids>().messages.fetch_add(1, Relaxed) + 1)
    }

    #[cfg(feature = "protocol-v2")]
    pub(super) fn terminal_id(&self) -> String {
        format!("terminal-{}", self.turn.state::<Ids>().terminals.fetch_add(1, Relaxed) + 1)
    }

    /// Creates a tool call.
    pub(super) fn tool_call(&self, title: &str) -> NewToolCall {
        let number = self.turn.state::<Ids>().tool_calls.fetch_add(1, Relaxed) + 1;
        self.turn.tool_call(title).id(format!("call-{number}"))
    }

    /// Sends `text` as one message, word by word.
    pub(super) async fn send(&self, text: &str) -> Result<()> {
        self.stream(&mut self.message(), text).await
    }

    /// Sends `text` as one thought, word by word.
    pub(super) async fn send_thought(&self, text: &str) -> Result<()> {
        self.stream(&mut self.thought(), text).await
    }

    /// Adds `text` to a message, word by word.
    pub(super) async fn stream(&self, message: &mut MessageWriter, text: &str) -> Result<()> {
        for word in text.split_inclusive(' ') {
            self.pause().await;
            message.push(word).await?;
        }
        Ok(())
    }

    /// Clears a message or a thought. If the client does not support that, the text continues in a new one of its kind.
    pub(super) async fn clear(&self, message: &mut MessageWriter) -> Result<()> {
        let id = message.id().clone();
        self.pause().await;
        message.clear().await?;
        if *message.id() != id {
            let renewed = std::mem::replace(message, self.turn.message());
            *message = renewed.with_id(self.message_id());
        }
        Ok(())
    }

    /// Sends an update unchanged.
    pub(super) async fn update(&self, update: impl Into<SessionUpdate>) -> Result<()> {
        self.pause().await;
        self.turn.update(update).await
    }

    /// Waits for the pace, so that a user can follow.
    pub(super) async fn pause(&self) {
        self.wait(self.pace).await;
    }

    /// Waits until the time is over or the turn is cancelled.
    pub(super) async fn wait(&self, time: Duration) {
        if !time.is_zero() {
            let _ = tokio::time::timeout(time, self.turn.cancelled()).await;
        }
    }
}

/// Returns true if the client does not support a request or refused it.
pub(super) fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::NotSupported { .. } | Error::Refused { .. })
}
