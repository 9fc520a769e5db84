//! Limits: unread messages, unacknowledged errors, and oversized texts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_agent::exchange::dialogue::{
    Dialogue, DialogueHandler, DialogueLimits, Dialogues, Error, VerifiedMessage,
};
use duologue_agent::{Exchange, Server};
use duologue_schema::dialogue::{Belief, DialogueContent, MessageType};
use duologue_test_support::Wire;
use serde_json::{Value, json};

use super::handling::played;
use super::retries::{buyer, take};
use super::speakers::{BUYER, Idle, SELLER, began, connected, signing};

/// Says how far it is before it answers.
struct Chatty(usize);

impl DialogueHandler for Chatty {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
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

/// Returns a message of the seller that the test plays.
fn said(dialogue: &Dialogue, step: u64, words: &str) -> Value {
    let message = json!({
        "message_id": format!("{}-{step}", dialogue.id()), "session_id": dialogue.id(),
        "sender_id": SELLER, "recipient_id": BUYER, "timestamp": began(),
        "interaction_step": step, "message_type": "inform", "content": { "natural_language": words },
    });
    json!({ "sessionId": "s", "message": message })
}

#[tokio::test(start_paused = true)]
async fn unread_messages_are_freed_with_their_dialogue() {
    let mut limits = DialogueLimits::new();
    (limits.dialogues, limits.waiting_bytes) = (2, 100_000);
    let long = "x".repeat(60_000);
    let (_connection, mut seller, session) = buyer(Dialogues::new(BUYER).unwrap().limits(limits)).await;
    for round in 0..8 {
        let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
        let (sent, _) = tokio::join!(dialogue.inform("Hello.").into_future(), take(&mut seller));
        sent.unwrap();
        let answer = seller.request("_session/dialogue", said(&dialogue, 2, &long)).await;
        assert!(answer["result"]["receipt"].is_object(), "{round}: {answer}");
        // While it waits there is no room for more of its length, but for the share of the dialogue.
        let answer = seller.request("_session/dialogue", said(&dialogue, 3, &long)).await;
        assert_eq!(answer["result"]["error"]["content"]["error_code"], "OVERLOADED", "{round}: {answer}");
        let (sent, _) = tokio::join!(dialogue.terminate("Goodbye.").into_future(), take(&mut seller));
        sent.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn undeliverable_messages_are_freed_when_evicted() {
    let mut limits = DialogueLimits::new();
    (limits.dialogues, limits.waiting_bytes) = (4, 100_000);
    let dialogues = Dialogues::new(BUYER).unwrap().limits(limits).handler(Stuck);
    let (_connection, mut seller, session) = buyer(dialogues).await;
    for round in 0..12 {
        let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
        let (sent, _) = tokio::join!(dialogue.inform("Hello.").into_future(), take(&mut seller));
        sent.unwrap();
        // The last one takes what those before it have left.
        for step in 2..=(2 + round / 11) {
            let answer =
                seller.request("_session/dialogue", said(&dialogue, step, &"x".repeat(17_000))).await;
            assert!(answer["result"]["receipt"].is_object(), "{round}: {answer}");
        }
        let (sent, _) = tokio::join!(dialogue.terminate("Goodbye.").into_future(), take(&mut seller));
        sent.unwrap();
        // There is no runtime where it is dropped, so the handler does not start.
        std::thread::spawn(move || drop(dialogue)).join().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_dialogue_has_its_share_of_the_room() {
    let mut limits = DialogueLimits::new();
    (limits.dialogues, limits.waiting_bytes) = (4, 100_000);
    let (_connection, mut seller, session) = buyer(Dialogues::new(BUYER).unwrap().limits(limits)).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
        let (sent, _) = tokio::join!(dialogue.inform("Hello.").into_future(), take(&mut seller));
        sent.unwrap();
        open.push(dialogue);
    }
    let mut say = async |dialogue, step, bytes| {
        let params = said(dialogue, step, &"x".repeat(bytes));
        let answer = seller.request("_session/dialogue", params).await;
        answer["result"]["receipt"].is_object()
    };
    assert!(say(&open[0], 2, 90_000).await);
    assert!(!say(&open[1], 2, 90_000).await);
    assert!(say(&open[1], 2, 20_000).await);
    assert!(!say(&open[1], 3, 20_000).await);
    open[0].next().await.unwrap();
    assert!(say(&open[1], 3, 20_000).await);
}

#[tokio::test(start_paused = true)]
async fn another_dialogue_may_be_opened_when_one_has_ended() {
    let mut limits = DialogueLimits::new();
    limits.dialogues = 1;
    let (mut buyer, session) =
        played(Dialogues::new(SELLER).unwrap().handler(Looks::default()).limits(limits)).await;
    let mut opens = async |dialogue: &str, step: u64, kind: &str| {
        let message = json!({
            "message_id": format!("{dialogue}-{step}"), "session_id": dialogue, "sender_id": BUYER,
            "recipient_id": SELLER, "timestamp": began(), "interaction_step": step, "message_type": kind,
        });
        let params = json!({ "sessionId": session, "message": message });
        let answer = buyer.request("_session/dialogue", params).await;
        answer["result"]["error"]["content"]["error_code"].as_str().unwrap_or("taken").to_owned()
    };
    assert_eq!(opens("a", 1, "inform").await, "taken");
    // The same message may be sent again later.
    assert_eq!(opens("b", 1, "inform").await, "OVERLOADED");
    assert_eq!(opens("a", 2, "termination").await, "taken");
    assert_eq!(opens("b", 1, "inform").await, "taken");
}

/// Answers everything.
struct Responds;

impl DialogueHandler for Responds {
    async fn message(&self, dialogue: &Dialogue, _: &VerifiedMessage) -> Result<(), Error> {
        let error = dialogue.respond("Yes.").await.unwrap_err();
        assert!(matches!(error, Error::NotSupported), "{error}");
        Err(error)
    }
}

/// Messages of a side that offers no dialogues are taken, but it is sent none.
#[tokio::test(start_paused = true)]
async fn nothing_is_sent_to_a_side_without_dialogues() {
    let (transport, mut buyer) = Wire::Memory.scripted();
    let exchange = Exchange::new().dialogue(Dialogues::new(SELLER).unwrap().handler(Responds));
    tokio::spawn(Server::new(Idle).exchange(exchange).serve(transport));
    buyer.initialize(json!({})).await;
    let session = buyer.new_session().await;
    let message = json!({
        "message_id": "m", "session_id": "d", "sender_id": BUYER, "recipient_id": SELLER,
        "timestamp": began(), "interaction_step": 1, "message_type": "request",
    });
    let answer =
        buyer.request("_session/dialogue", json!({ "sessionId": session, "message": message })).await;
    assert_eq!(answer["result"]["receipt"]["status"], "delivered", "{answer}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    buyer.probe().await;
}

/// Confidences are from 0 to 1, on the side that speaks too.
#[tokio::test(start_paused = true)]
async fn an_invalid_belief_is_not_sent() {
    let (_connection, mut seller, session) = buyer(Dialogues::new(BUYER).unwrap()).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    let belief = |confidence| {
        let belief = Belief::new("car", "price", json!(1), confidence);
        dialogue.inform(DialogueContent::new().belief_updates(vec![belief.into()])).into_future()
    };
    for confidence in [-0.1, 1.1, f64::NAN] {
        let error = belief(confidence).await.unwrap_err();
        assert!(error.to_string().contains("nothing was sent"), "{error}");
    }
    let (sent, params) = tokio::join!(belief(1.0), take(&mut seller));
    assert_eq!((sent.is_ok(), &params["message"]["interaction_step"]), (true, &json!(1)));
}

/// Takes nothing.
struct Fails;

impl DialogueHandler for Fails {
    async fn message(&self, _: &Dialogue, _: &VerifiedMessage) -> Result<(), Error> {
        Err(Error::invalid("no"))
    }
}

#[tokio::test(start_paused = true)]
async fn errors_that_nobody_acknowledges_do_not_pile_up() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    // With every second step missing, the reorder buffer overflows too.
    for (every, kind) in [(1, "inform"), (2, "accept")] {
        let (mut buyer, session) = played(Dialogues::new(SELLER).unwrap().handler(Fails)).await;
        let before = tasks();
        for step in (every..=500).step_by(every) {
            let message = json!({
                "message_id": format!("m{step}"), "session_id": "d", "sender_id": BUYER, "recipient_id": SELLER,
                "timestamp": began(), "interaction_step": step, "message_type": kind,
            });
            let id = buyer
                .send_request("_session/dialogue", json!({ "sessionId": session, "message": message }))
                .await;
            let answer = loop {
                let line = buyer.next_message().await;
                if line["id"] == id && line["method"].is_null() {
                    break line;
                }
            };
            let taken = answer["result"]["receipt"].is_object();
            assert!(taken || step > 64 * every, "{kind} {step}: {answer}");
        }
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert!(tasks() < before + 100, "{kind}: {} after {before}", tasks());
    }
}

/// Remembers the last dialogue, and how much of it could be looked up.
#[derive(Clone, Default)]
struct Looks(Arc<Mutex<Option<(Dialogue, usize)>>>);

impl DialogueHandler for Looks {
    async fn message(&self, dialogue: &Dialogue, _: &VerifiedMessage) -> Result<(), Error> {
        *self.0.lock().unwrap() = Some((dialogue.clone(), dialogue.messages().len()));
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn messages_are_dropped_when_the_last_was_handled() {
    let looks = Looks::default();
    let (_connection, session) = connected(signing(BUYER), signing(SELLER).handler(looks.clone())).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    dialogue.inform("Hello.").await.unwrap();
    dialogue.terminate("Goodbye.").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (theirs, seen) = looks.0.lock().unwrap().take().unwrap();
    assert_eq!((seen, theirs.messages().len()), (2, 0));
    // The opener still has the dialogue.
    assert_eq!(dialogue.messages().len(), 2);
}

/// Never is done.
struct Stuck;

impl DialogueHandler for Stuck {
    async fn message(&self, _: &Dialogue, _: &VerifiedMessage) -> Result<(), Error> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn messages_in_a_handler_count_against_the_limit() {
    let mut limits = DialogueLimits::new();
    (limits.dialogues, limits.waiting_bytes) = (4, 100_000);
    let (mut buyer, session) = played(Dialogues::new(SELLER).unwrap().handler(Stuck).limits(limits)).await;
    let mut opens = async |dialogue: &str, bytes| {
        let message = json!({
            "message_id": "m", "session_id": dialogue, "sender_id": format!("agent://{dialogue}"),
            "recipient_id": SELLER, "timestamp": began(), "interaction_step": 1,
            "message_type": "inform", "content": { "natural_language": "x".repeat(bytes) },
        });
        let params = json!({ "sessionId": session, "message": message });
        let answer = buyer.request("_session/dialogue", params).await;
        // The handler has it by then.
        tokio::time::sleep(Duration::from_secs(1)).await;
        answer["result"]["receipt"].is_object()
    };
    assert!(opens("a", 90_000).await);
    assert!(!opens("b", 90_000).await);
    assert!(opens("b", 20_000).await);
}
