//! Random time limits against random delays: a caller that stops waiting loses no response.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_agent::exchange::dialogue::{Dialogue, DialogueHandler, Error, VerifiedMessage};
use duologue_schema::dialogue::{DialogueContent, MessageType};
use proptest::prelude::*;
use serde_json::json;

use super::speakers::{BUYER, SELLER, connected, signing};

/// Responds after the given delay.
struct Slow(Arc<Mutex<Vec<u64>>>);

impl DialogueHandler for Slow {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        let (Ok(number), Ok(pause)) = (message.parameter("number"), message.parameter("pause")) else {
            return Ok(());
        };
        assert!(!message.gap);
        self.0.lock().unwrap().push(number);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if number % 3 == 0 {
            dialogue.confirm("One moment.").await?;
        }
        dialogue.respond(DialogueContent::new().parameter("number", json!(number))).await?;
        Ok(())
    }
}

fn asked(number: usize, pause: u64) -> DialogueContent {
    DialogueContent::new().task("wait").parameter("number", json!(number)).parameter("pause", json!(pause))
}

/// Asks one thing after the other, each with a limit to its patience.
async fn ask(plan: Vec<(u64, u64)>) {
    let handled = Arc::<Mutex<Vec<u64>>>::default();
    let (_connection, session) =
        connected(signing(BUYER), signing(SELLER).handler(Slow(handled.clone()))).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    let mut answers: Vec<u64> = Vec::new();
    let number = |answer: &VerifiedMessage| answer.parameter::<u64>("number").unwrap();
    for (at, (patience, pause)) in plan.iter().enumerate() {
        let patience = Duration::from_millis(*patience);
        let answer = dialogue.request(asked(at, *pause)).unprompted().into_future();
        if let Ok(answer) = tokio::time::timeout(patience, answer).await {
            answers.push(number(&answer.unwrap()));
        }
    }
    // Handled last, so all the others have been answered by then.
    let last = dialogue.request(asked(plan.len(), 0)).unprompted().await.unwrap();
    answers.push(number(&last));
    dialogue.terminate("That was all.").await.unwrap();
    let (mut later, mut step) = (Vec::new(), 0);
    while let Ok(message) = dialogue.next().await {
        assert!(message.interaction_step > step && !message.gap);
        step = message.interaction_step;
        if message.message_type == MessageType::Response {
            later.push(number(&message));
        }
    }
    assert!(later.is_sorted(), "{later:?}");
    answers.extend(later);
    answers.sort_unstable();
    assert_eq!(answers, *handled.lock().unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_answer_is_lost_or_doubled(plan in proptest::collection::vec((0_u64..20, 0_u64..20), 1..30)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(ask(plan));
    }
}
