//! A turn of the mock, and what all scenarios do in one.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use duologue_agent::schema::SessionUpdate;
use duologue_agent::{Error, MessageWriter, NewToolCall, Result, Turn};

/// A turn at work.
pub(super) struct Scene<'a> {
    pub(super) turn: &'a Turn,
    pub(super) pace: Duration,
}

/// How many ids of each kind the session has used.
#[derive(Default)]
struct Ids {
    messages: AtomicU32,
    tool_calls: AtomicU32,
}

impl Scene<'_> {
    /// A new message.
    pub(super) fn message(&self) -> MessageWriter {
        self.turn.message().with_id(self.message_id())
    }

    /// A new thought.
    pub(super) fn thought(&self) -> MessageWriter {
        self.turn.thought().with_id(self.message_id())
    }

    pub(super) fn message_id(&self) -> String {
        format!("message-{}", self.turn.state::<Ids>().messages.fetch_add(1, Relaxed) + 1)
    }

    /// A new tool call.
    pub(super) fn tool_call(&self, title: &str) -> NewToolCall {
        let number = self.turn.state::<Ids>().tool_calls.fetch_add(1, Relaxed) + 1;
        self.turn.tool_call(title).id(format!("call-{number}"))
    }

    /// Says `text` as one message, word by word.
    pub(super) async fn say(&self, text: &str) -> Result<()> {
        self.stream(&mut self.message(), text).await
    }

    /// Thinks `text` as one thought, word by word.
    pub(super) async fn think(&self, text: &str) -> Result<()> {
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

    /// Takes a message back. Where the client cannot do that it goes on as another one.
    pub(super) async fn clear(&self, message: &mut MessageWriter) -> Result<()> {
        let id = message.id().clone();
        self.pause().await;
        message.clear().await?;
        if *message.id() != id {
            *message = self.message();
        }
        Ok(())
    }

    /// Sends an update as it is.
    pub(super) async fn update(&self, update: impl Into<SessionUpdate>) -> Result<()> {
        self.pause().await;
        self.turn.update(update).await
    }

    /// Waits a moment, so that there is something to see.
    pub(super) async fn pause(&self) {
        self.wait(self.pace).await;
    }

    /// Waits, unless the turn is cancelled.
    pub(super) async fn wait(&self, time: Duration) {
        if !time.is_zero() {
            let _ = tokio::time::timeout(time, self.turn.cancelled()).await;
        }
    }
}

/// Whether a call to the client failed because the client cannot, or will not, do that.
pub(super) fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::NotSupported { .. } | Error::Protocol(_))
}
