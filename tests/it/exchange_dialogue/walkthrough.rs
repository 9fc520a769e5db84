//! Somebody who listens to every type of message, and a dialogue that has them all. Both sides of the pipes have
//! the one and open the other.

use std::sync::{Arc, Mutex};

use duologue_exchange::PeerAgent;
use duologue_exchange::dialogue::{
    COUNTER_OFFER, Dialogue, DialogueHandler, Dialogues, Error, Key, Keys, VerifiedMessage,
};
use duologue_schema::dialogue::{DialogueContent, DialogueErrorCode, ErrorContent, MessageType};
use serde_json::json;

pub(crate) const AGENT: &str = "agent://walkthrough.example/agent";
pub(crate) const CLIENT: &str = "agent://walkthrough.example/client";

/// Answers what is to be answered, and keeps what it hears.
#[derive(Clone, Default)]
pub(crate) struct Listener(Arc<Mutex<Vec<String>>>);

impl Listener {
    pub(crate) fn heard(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }

    fn keep(&self, message: &VerifiedMessage) {
        self.0.lock().unwrap().push(line(message));
    }

    /// The dialogues of one side, whose messages have to be signed.
    pub(crate) fn dialogues(&self, own: &str) -> Dialogues {
        let keys = Keys::new();
        keys.insert(Key::new("agent-1", AGENT, [1; 32]).unwrap()).unwrap();
        keys.insert(Key::new("client-1", CLIENT, [2; 32]).unwrap()).unwrap();
        Dialogues::new(own).unwrap().keys(Arc::new(keys)).handler(self.clone())
    }
}

impl DialogueHandler for Listener {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        self.keep(message);
        match message.message_type {
            MessageType::Request => drop(dialogue.respond("It is painted.").await?),
            MessageType::Query => drop(dialogue.respond("Teal.").await?),
            MessageType::Clarify => drop(dialogue.inform("A blue that is green.").await?),
            MessageType::Inform => self.keep(&dialogue.query("Do you like it?").await?),
            MessageType::Propose => {
                let less =
                    DialogueContent::from("For forty.").parameter(COUNTER_OFFER, json!({ "price": 40 }));
                dialogue.reject(less).await?;
            }
            MessageType::Accept => drop(dialogue.propose("The window too?").await?),
            _ => {}
        }
        Ok(())
    }
}

/// Says a message of every type, and returns what the other side says to it.
pub(crate) async fn walkthrough(peer: &PeerAgent, other: &str) -> Result<String, Error> {
    let dialogue = peer.dialogue(other)?;
    let mut heard = Vec::new();
    heard.push(line(&dialogue.request("Paint the door.").await?));
    dialogue.confirm("I see it.").await?;
    heard.push(line(&dialogue.query("Which colour is that?").await?));
    dialogue.clarify("What is teal?").await?;
    heard.push(line(&dialogue.next().await?));
    dialogue.inform("I have looked.").await?;
    heard.push(line(&dialogue.next().await?));
    dialogue.respond("Very much.").await?;
    dialogue.update("And more by the minute.").await?;
    heard.push(line(&dialogue.propose("The gate, for fifty?").answer().await?));
    dialogue.accept("Agreed.").await?;
    heard.push(line(&dialogue.next().await?));
    dialogue.reject("Not today.").await?;
    let error = ErrorContent::of(DialogueErrorCode::ServerError, "It rains.");
    dialogue.send(MessageType::Error, error).await?;
    dialogue.terminate("Until tomorrow.").await?;
    Ok(heard.join("\n"))
}

fn line(message: &VerifiedMessage) -> String {
    let signed = if message.signature.is_some() { "signed" } else { "unsigned" };
    let text = message.content.error().map(|error| error.error_message);
    let text = text.or_else(|| message.content.natural_language.clone()).unwrap_or_default();
    format!("{} {signed}: {text}", message.message_type)
}
