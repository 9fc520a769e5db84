//! Who speaks for us in dialogues that others open, and who helps when a message does not get through.

use std::sync::Arc;

use duologue_schema::Json;
use duologue_schema::dialogue::{AgentUri, DialogueContent, DialogueMessage, MessageType};
use futures::future::BoxFuture;

use super::dialogue::Dialogue;
use super::error::Error;
use super::message::VerifiedMessage;

/// Speaks for an agent in the dialogues that others open with it.
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
    /// Handles a message. It was verified, it is legal, and it has its receipt.
    ///
    /// The messages of one dialogue come one at a time and in order: the next one waits until this returns.
    /// Those of several dialogues come at the same time. What is said through `dialogue` answers `message`,
    /// unless told otherwise, see [`Dialogue`]. Awaiting anything is fine, an answer in the same dialogue and another dialogue
    /// included: the answers somebody waits for do not come here.
    ///
    /// Messages of the types `error` and `termination` come here too.
    ///
    /// # Errors
    ///
    /// The other side is told in a message of the type `error` that names this message, and has taken that before the
    /// next message comes here. A panic counts as one. An error about an `error` message is only logged.
    ///
    /// # Cancel safety
    ///
    /// When the connection ends the handler has a moment, then it is dropped where it awaits.
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

/// An [`DialogueHandler`] behind a pointer.
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

/// A message that did not get through, for the fallback; see [`Dialogues::fallback`](super::Dialogues::fallback).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UndeliveredMessage {
    /// The message, as it was to be sent.
    pub message: DialogueMessage,
    /// What went wrong the last time.
    pub error: Error,
}

impl UndeliveredMessage {
    /// An answer made here, by a person or by doing without. Its sender is who sent the message: nobody else
    /// has said anything.
    #[must_use]
    pub fn answer(&self, content: impl Into<DialogueContent>) -> DialogueMessage {
        let asked = &self.message;
        let own: AgentUri = asked.sender_id.clone();
        DialogueMessage::new(
            super::inner::new_id(),
            asked.session_id.clone(),
            own.clone(),
            own,
            super::inner::timestamp(),
            asked.interaction_step,
            MessageType::Response,
        )
        .parent_message_id(asked.message_id.clone())
        .content(content)
    }
}

pub(crate) type Fallback =
    Arc<dyn Fn(UndeliveredMessage) -> BoxFuture<'static, Option<DialogueMessage>> + Send + Sync>;

/// An answer that did not come over the wire, in the form of one that did.
pub(crate) fn local_reply(message: DialogueMessage) -> VerifiedMessage {
    let raw = Json::new(&message).unwrap_or_else(|_| Json::from(serde_json::Value::Null));
    VerifiedMessage::new(message, raw)
}
