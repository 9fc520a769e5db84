//! The mock agent in dialogues: it repeats each message.

use duologue_agent::exchange::dialogue::{Dialogue, DialogueHandler, Error, VerifiedMessage};
use duologue_agent::schema::dialogue::MessageType;

/// Answers every message that needs a response.
pub(super) struct DialogueResponder;

impl DialogueHandler for DialogueResponder {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        let said = message.content.natural_language.as_deref().unwrap_or_default();
        match message.message_type {
            MessageType::Request | MessageType::Query => {
                let mut content = message.content.clone();
                content.natural_language = Some(format!("You said: {said}"));
                dialogue.respond(content).await?;
            }
            MessageType::Propose => drop(dialogue.accept("Agreed.").await?),
            MessageType::Inform => drop(dialogue.confirm("I see.").await?),
            _ => {}
        }
        Ok(())
    }
}
