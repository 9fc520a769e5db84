//! The trait for handlers of dialogues, and the fallback for undelivered messages.

use std::sync::Arc;

use duologue_schema::Json;
use duologue_schema::dialogue::{AgentUri, DialogueContent, DialogueMessage, MessageType};
use futures::future::BoxFuture;

use super::dialogue::Dialogue;
use super::error::Error;
use super::message::VerifiedMessage;

/// Handles the messages of dialogues that other agents open.
///
/// ```
/// use duologue_exchange::dialogue::{Dialogue, Error, VerifiedMessage, DialogueHandler};
/// use duologue_schema::dialogue::{DialogueContent, MessageType};
///
/// struct Clock;
///
/// impl DialogueHandler for Clock {
///     async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
///         if message.message_type == MessageType::Query {
///             dialogue.respond(DialogueContent::from("It is noon.")).await?;
///         }
///         Ok(())
///     }
/// }
/// ```
pub trait DialogueHandler: Send + Sync + 'static {
    /// Handles a message. The message has been verified, is a legal move, and has its receipt. An offer is accepted or
    /// rejected once: a second `accept` or `reject` of it is no legal move.
    ///
    /// The messages of one dialogue arrive one at a time and in order: the next one waits until
    /// this call returns. Several dialogues are handled concurrently. Messages sent through
    /// `dialogue` answer `message` by default; see [`Dialogue`]. The handler may await anything,
    /// including an answer in the same dialogue: answers that a call waits for are not passed to
    /// the handler.
    ///
    /// Messages of the types `error` and `termination` are passed to the handler too.
    ///
    /// # Errors
    ///
    /// The other side receives an `error` message that names this message, and acknowledges it
    /// before the next message is handled. A panic counts as an error. An error about an `error`
    /// message is only logged.
    ///
    /// # Cancel safety
    ///
    /// The handler has a grace period after the end of the connection. Then it is dropped at its await
    /// point.
    fn message(
        &self,
        dialogue: &Dialogue,
        message: &VerifiedMessage,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

impl<I: DialogueHandler> DialogueHandler for Arc<I> {
    fn message(
        &self,
        dialogue: &Dialogue,
        message: &VerifiedMessage,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        (**self).message(dialogue, message)
    }
}

/// An object-safe [`DialogueHandler`].
pub(crate) trait ErasedDialogueHandler: Send + Sync {
    fn message<'a>(
        &'a self,
        dialogue: &'a Dialogue,
        message: &'a VerifiedMessage,
    ) -> BoxFuture<'a, Result<(), Error>>;
}

impl<I: DialogueHandler> ErasedDialogueHandler for I {
    fn message<'a>(
        &'a self,
        dialogue: &'a Dialogue,
        message: &'a VerifiedMessage,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(DialogueHandler::message(self, dialogue, message))
    }
}

/// An undelivered message, for the fallback; see
/// [`Dialogues::fallback`](super::Dialogues::fallback).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UndeliveredMessage {
    /// The message.
    pub message: DialogueMessage,
    /// The error of the last attempt.
    pub error: Error,
}

impl UndeliveredMessage {
    /// Creates a local answer. Its sender is the sender of the undelivered message, because no
    /// other agent has answered.
    #[must_use]
    pub fn answer(&self, content: impl Into<DialogueContent>) -> DialogueMessage {
        let message = &self.message;
        let own: AgentUri = message.sender_id.clone();
        DialogueMessage::new(
            super::inner::new_id(),
            message.session_id.clone(),
            own.clone(),
            own,
            super::inner::timestamp(),
            message.interaction_step,
            MessageType::Response,
        )
        .parent_message_id(message.message_id.clone())
        .content(content)
    }
}

pub(crate) type Fallback =
    Arc<dyn Fn(UndeliveredMessage) -> BoxFuture<'static, Option<DialogueMessage>> + Send + Sync>;

/// Converts a local answer into the form of a received one.
pub(crate) fn local_reply(message: DialogueMessage) -> VerifiedMessage {
    let raw = Json::new(&message).unwrap_or_else(|_| Json::from(serde_json::Value::Null));
    VerifiedMessage::new(message, raw)
}
