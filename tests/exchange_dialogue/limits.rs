//! What is too much: messages nobody takes, errors nobody acknowledges, texts nobody needs.

use std::time::Duration;

use duologue_agent::exchange::dialogue::{Dialogue, DialogueLimits, Error, Heard, Interlocutor};
use duologue_schema::dialogue::MessageType;

use super::speakers::{BUYER, SELLER, connected, signing};

/// Says how far it is before it answers.
struct Chatty(usize);

impl Interlocutor for Chatty {
    async fn message(&self, dialogue: &Dialogue, message: &Heard) -> Result<(), Error> {
        if message.message_type == MessageType::Request {
            for number in 0..self.0 {
                dialogue.update(format!("{number} %").as_str()).await?;
            }
            dialogue.respond("Done.").await?;
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_passes_what_nobody_has_taken_yet() {
    let mut limits = DialogueLimits::new();
    limits.inbox = 4;
    for (updates, fails) in [(4, false), (5, true)] {
        let (_connection, session) =
            connected(signing(BUYER).limits(limits.clone()), signing(SELLER).handler(Chatty(updates))).await;
        let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
        let answer = dialogue.request("Work.").within(Duration::from_secs(3600)).await;
        // An update too many is refused, and the error about that is an answer too.
        assert_eq!(matches!(answer, Err(Error::Failed(_))), fails, "{answer:?}");
        assert!(answer.is_ok() || fails);
        for number in 0..4 {
            let update = dialogue.next().await.unwrap();
            assert_eq!(update.content.natural_language, Some(format!("{number} %")));
        }
    }
}
