//! Messages that do not get through at once, or at all. Time is paused: nobody sleeps.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_agent::exchange::dialogue::{Backoff, Dialogues, Error, UndeliveredMessage, VerifiedMessage};
use duologue_client::{Client, Connection, Exchange, Session};
use duologue_schema::dialogue::{DialogueErrorCode as Code, MessageType};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::speakers::{BUYER, SELLER, began};
use duologue_test_support::{ScriptedPeer, Wire, client_of};

/// A buyer whose seller the test plays.
pub(super) async fn buyer(dialogues: Dialogues) -> (Connection, ScriptedPeer, Session) {
    let client = Client::new(()).exchange(Exchange::new().dialogue(dialogues));
    let can = json!({ "_meta": { "duologue": { "dialogue": {} } } });
    let (connection, mut seller) = client_of(Wire::Memory, client, can).await;
    let (session, ()) = tokio::join!(connection.new_session("/tmp"), seller.accept_session("s"));
    (connection, seller, session.expect("a session"))
}

fn unsigned() -> Dialogues {
    Dialogues::new(BUYER).unwrap()
}

/// Refuses a message.
pub(super) async fn refuse(seller: &mut ScriptedPeer, code: &str) -> Value {
    let request = seller.expect("_session/dialogue").await;
    let failed = &request["params"]["message"];
    let error = json!({
        "message_id": "e", "session_id": failed["session_id"], "sender_id": SELLER, "recipient_id": BUYER,
        "timestamp": began(), "interaction_step": 1, "message_type": "error",
        "content": { "error_code": code, "error_message": "no", "details": {} },
    });
    seller.respond(&request, json!({ "error": error })).await;
    request["params"].clone()
}

/// Takes a message.
pub(super) async fn take(seller: &mut ScriptedPeer) -> Value {
    let request = seller.expect("_session/dialogue").await;
    let message = &request["params"]["message"];
    let receipt = json!({ "message_id": message["message_id"], "session_id": message["session_id"] });
    seller.respond(&request, json!({ "receipt": receipt })).await;
    request["params"].clone()
}

#[tokio::test(start_paused = true)]
async fn the_same_message_is_sent_again_after_a_pause() {
    let (_connection, mut seller, session) = buyer(unsigned()).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    let start = Instant::now();
    let (sent, tries) = tokio::join!(dialogue.inform("Hello.").into_future(), async {
        let mut tries = Vec::new();
        for code in ["OVERLOADED", "TIMEOUT", "SERVER_ERROR", "OVERLOADED"] {
            tries.push(refuse(&mut seller, code).await);
        }
        tries.push(take(&mut seller).await);
        tries
    });
    assert!(sent.unwrap().receipt.is_some());
    assert!(tries.iter().all(|other| *other == tries[0]), "{tries:#?}");
    // At most 100, 200, 400 and 800 milliseconds.
    assert!(start.elapsed() <= Duration::from_millis(1500), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_message_of_unknown_fate_keeps_its_step() {
    let (_connection, mut seller, session) = buyer(unsigned().backoff(Backoff::never())).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    // It may have been accepted: only its receipt is missing.
    let (sent, first) =
        tokio::join!(dialogue.inform("Hello.").into_future(), seller.expect("_session/dialogue"));
    assert!(matches!(sent, Err(Error::Connection(duologue_rpc::Error::Timeout { .. }))), "{sent:?}");
    assert_eq!(first["params"]["message"]["interaction_step"], 1);
    seller.expect("$/cancel_request").await;
    let (sent, next) = tokio::join!(dialogue.inform("More.").into_future(), take(&mut seller));
    assert!(sent.is_ok());
    assert_eq!(next["message"]["interaction_step"], 2);
    assert_eq!(dialogue.messages().len(), 2);
    // A rejected message is no part of the dialogue, and frees its step.
    let (error, refused) =
        tokio::join!(dialogue.inform("No.").into_future(), refuse(&mut seller, "CONFLICT"));
    assert!(matches!(error, Err(Error::Response(_))));
    assert_eq!(refused["message"]["interaction_step"], 3);
    assert_eq!(dialogue.messages().len(), 2);
    let (sent, next) = tokio::join!(dialogue.inform("Yes.").into_future(), take(&mut seller));
    assert!(sent.is_ok());
    assert_eq!(next["message"]["interaction_step"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_would_never_do_is_sent_once() {
    let (_connection, mut seller, session) = buyer(unsigned()).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    for code in ["INVALID_PARAMETER", "UNAUTHORIZED", "CONFLICT", "EXPIRED", "SOMETHING_NEW"] {
        let (error, refused) =
            tokio::join!(dialogue.inform("Hello.").into_future(), refuse(&mut seller, code));
        let Err(Error::Response(error)) = error else { panic!("{error:?}") };
        assert_eq!(error.error_code.as_str(), code);
        // Nothing was taken, so it is the first step all the time.
        assert_eq!(refused["message"]["interaction_step"], 1);
    }
    seller.probe().await;
}

#[tokio::test(start_paused = true)]
async fn a_receipt_names_the_message_and_stands_alone() {
    let (_connection, mut seller, session) = buyer(unsigned()).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    let receipt =
        |message: &Value| json!({ "message_id": message["message_id"], "session_id": message["session_id"] });
    let answers: [&dyn Fn(&Value) -> Value; 4] = [
        &|_| json!({}),
        &|_| json!({ "receipt": { "message_id": "another", "session_id": "d" } }),
        &|message| json!({ "receipt": { "message_id": message["message_id"], "session_id": "another" } }),
        &|message| json!({ "receipt": receipt(message), "error": message }),
    ];
    for answer in answers {
        let (sent, ()) = tokio::join!(dialogue.inform("Hello.").into_future(), async {
            let request = seller.expect("_session/dialogue").await;
            seller.respond(&request, answer(&request["params"]["message"])).await;
        });
        let Err(Error::Response(error)) = sent else { panic!("{sent:?}") };
        assert!(error.error_message.contains("neither a receipt"), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_does_for_a_receipt() {
    let (_connection, mut seller, session) = buyer(unsigned()).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    let start = Instant::now();
    let (answer, ()) = tokio::join!(dialogue.request("May I?").into_future(), async {
        let asked = seller.expect("_session/dialogue").await["params"]["message"].clone();
        let answer = json!({
            "message_id": "a", "session_id": asked["session_id"], "parent_message_id": asked["message_id"],
            "sender_id": SELLER, "recipient_id": BUYER, "timestamp": began(),
            "interaction_step": 2, "message_type": "response", "content": {},
        });
        seller.request("_session/dialogue", json!({ "sessionId": "s", "message": answer })).await;
    });
    assert_eq!(answer.unwrap().message_id, "a");
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn without_a_receipt_it_is_sent_again() {
    let (_connection, mut seller, session) = buyer(unsigned()).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    let start = Instant::now();
    let (sent, ()) = tokio::join!(dialogue.inform("Hello.").into_future(), async {
        let silent = seller.expect("_session/dialogue").await;
        let withdrawn = seller.expect("$/cancel_request").await;
        assert_eq!(start.elapsed().as_secs(), 30);
        assert_eq!(withdrawn["params"]["requestId"], silent["id"]);
        let again = take(&mut seller).await;
        assert_eq!(again, silent["params"]);
    });
    assert!(sent.unwrap().receipt.is_some());
}

#[tokio::test(start_paused = true)]
async fn in_the_end_the_fallback_helps() {
    let asked: Arc<Mutex<Vec<UndeliveredMessage>>> = Arc::default();
    let seen = asked.clone();
    let dialogues =
        unsigned().backoff(Backoff::new().attempts(3)).fallback(move |undelivered: UndeliveredMessage| {
            seen.lock().unwrap().push(undelivered.clone());
            async move {
                let wants_answer = undelivered.message.message_type == MessageType::Request;
                wants_answer.then(|| undelivered.answer("A person says yes."))
            }
        });
    let (_connection, mut seller, session) = buyer(dialogues).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    let three_times = async {
        for _ in 0..3 {
            refuse(&mut seller, "OVERLOADED").await;
        }
    };
    let (answer, ()) = tokio::join!(dialogue.request("May I?").into_future(), three_times);
    let answer: VerifiedMessage = answer.unwrap();
    assert_eq!(answer.content.natural_language.as_deref(), Some("A person says yes."));
    assert_eq!(answer.sender_id, BUYER, "nobody else has said it");
    {
        let asked = asked.lock().unwrap();
        assert_eq!(answer.parent_message_id.as_ref(), Some(&asked[0].message.message_id));
        assert!(matches!(&asked[0].error, Error::Response(error) if error.error_code == Code::Overloaded));
    }

    // If a retry cannot help, the error stands; if it would not help, none is sent.
    let three_times = async {
        for _ in 0..3 {
            refuse(&mut seller, "OVERLOADED").await;
        }
    };
    let (error, ()) = tokio::join!(dialogue.inform("Hello.").into_future(), three_times);
    assert!(matches!(error, Err(Error::Response(_))));
    let (error, _) = tokio::join!(dialogue.inform("Hello.").into_future(), refuse(&mut seller, "CONFLICT"));
    assert!(matches!(error, Err(Error::Response(_))));
    assert_eq!(asked.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_closed_pipe_is_not_tried_again() {
    let asked: Arc<Mutex<usize>> = Arc::default();
    let seen = asked.clone();
    let dialogues = unsigned().fallback(move |_| {
        *seen.lock().unwrap() += 1;
        std::future::ready(None)
    });
    let (_connection, mut seller, session) = buyer(dialogues).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    let start = Instant::now();
    let (error, ()) = tokio::join!(dialogue.request("Hello?").into_future(), async {
        seller.expect("_session/dialogue").await;
        drop(seller);
    });
    assert!(matches!(error, Err(Error::Connection(_))), "{error:?}");
    assert_eq!(*asked.lock().unwrap(), 1);
    // Nor is it tried at all when it is known to be closed.
    assert!(matches!(dialogue.request("Hello?").await, Err(Error::Connection(_))));
    assert_eq!(*asked.lock().unwrap(), 2);
    assert!(start.elapsed() < Duration::from_millis(50), "{:?}", start.elapsed());
}

/// Each side has ended the dialogue before it knew of the other's termination.
#[tokio::test(start_paused = true)]
async fn terminations_that_cross_are_no_error() {
    for (last, is_error) in [("termination", false), ("inform", true)] {
        let (_connection, mut seller, session) = buyer(unsigned()).await;
        let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
        let (sent, _) = tokio::join!(dialogue.inform("Hello.").into_future(), take(&mut seller));
        sent.unwrap();
        let ours = if is_error { dialogue.inform("More.") } else { dialogue.terminate("Goodbye.") };
        let (sent, ()) = tokio::join!(ours.into_future(), async {
            let request = seller.expect("_session/dialogue").await;
            let message = &request["params"]["message"];
            assert_eq!(message["message_type"], last);
            let theirs = json!({
                "message_id": "end", "session_id": message["session_id"], "sender_id": SELLER,
                "recipient_id": BUYER, "timestamp": began(), "interaction_step": 2,
                "message_type": "termination", "content": {},
            });
            seller.send_request("_session/dialogue", json!({ "sessionId": "s", "message": theirs })).await;
            seller.next_message().await;
            let refusal = json!({
                "message_id": "e", "session_id": message["session_id"], "sender_id": SELLER, "recipient_id": BUYER,
                "timestamp": began(), "interaction_step": 2, "message_type": "error",
                "content": { "error_code": "INVALID_PARAMETER", "error_message": "over", "details": {} },
            });
            seller.respond(&request, json!({ "error": refusal })).await;
        });
        assert_eq!(sent.is_err(), is_error, "{sent:?}");
        assert!(sent.is_err() || sent.unwrap().receipt.is_none());
        assert!(dialogue.has_ended());
    }
}

/// Nobody waits out a pause of a dialogue whose connection is gone.
#[tokio::test(start_paused = true)]
async fn a_pause_ends_with_the_connection() {
    let hour = Duration::from_secs(3600);
    let pauses = Backoff::new().attempts(5).base(hour).cap(hour);
    let (_connection, mut seller, session) = buyer(unsigned().backoff(pauses)).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    let start = Instant::now();
    let (sent, ()) = tokio::join!(dialogue.inform("Hello.").into_future(), async {
        refuse(&mut seller, "OVERLOADED").await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        seller.close().await;
    });
    assert!(matches!(sent, Err(Error::Connection(_))), "{sent:?}");
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_half_finished_send_is_completed() {
    let (_connection, mut seller, session) = buyer(unsigned()).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    let patience = Duration::from_millis(1);
    assert!(tokio::time::timeout(patience, dialogue.request("Hello?").into_future()).await.is_err());
    refuse(&mut seller, "OVERLOADED").await;
    let asked = take(&mut seller).await;
    // The next message follows at once, without a gap.
    let told = json!({
        "message_id": "told", "session_id": asked["message"]["session_id"], "sender_id": SELLER,
        "recipient_id": BUYER, "timestamp": began(), "interaction_step": 2,
        "message_type": "inform", "content": {},
    });
    seller.send_request("_session/dialogue", json!({ "sessionId": "s", "message": told })).await;
    let start = Instant::now();
    let told = dialogue.next().await.unwrap();
    assert_eq!((told.message_id.as_str(), told.gap), ("told", false));
    assert!(start.elapsed() < Duration::from_millis(50), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_as_long_as_chance_has_it() {
    let second = Duration::from_secs(1);
    let dialogues = unsigned().backoff(Backoff::new().attempts(2).base(second));
    let (_connection, mut seller, session) = buyer(dialogues).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    let mut pauses = Vec::new();
    for _ in 0..40 {
        let (sent, pause) = tokio::join!(dialogue.inform("Hello.").into_future(), async {
            refuse(&mut seller, "OVERLOADED").await;
            let start = Instant::now();
            take(&mut seller).await;
            start.elapsed()
        });
        sent.unwrap();
        pauses.push(pause);
    }
    // Of 40, all in one half are less likely than any test that fails for no reason.
    let longest = *pauses.iter().max().unwrap();
    assert!(longest <= second + Duration::from_millis(5) && longest > second / 2, "{pauses:?}");
    assert!(*pauses.iter().min().unwrap() < second / 2, "{pauses:?}");
}

#[tokio::test]
async fn a_message_says_how_it_is_to_be_passed_on() {
    let (_connection, mut seller, session) = buyer(unsigned()).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    let hurried = dialogue.inform("Hello.").priority(7).ttl(60).routing_key("sales.used");
    let (sent, taken) = tokio::join!(hurried.into_future(), take(&mut seller));
    sent.unwrap();
    let mut metadata = taken["message"]["metadata"].clone();
    metadata.as_object_mut().unwrap().remove("correlation_id");
    assert_eq!(metadata, json!({ "priority": 7, "ttl": 60, "routing_key": "sales.used" }));
}
