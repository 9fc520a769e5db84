//! Handlers: they get one message at a time, in order, and their errors are sent back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use duologue_agent::exchange::dialogue::{
    Backoff, Dialogue, DialogueHandler, DialogueLimits, Dialogues, Error, Key, Parameters, VerifiedMessage,
    sign,
};
use duologue_agent::{Exchange, Server};
use duologue_client::Client;
use duologue_schema::dialogue::{DialogueContent, DialogueErrorCode as Code, DialogueMessage, MessageType};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::speakers::{BUYER, DETAILS, Idle, Listener, SELLER, began, connected, keys, members, signing};
use duologue_test_support::{ScriptedPeer, Wire, in_time};

/// Fails in the wanted way.
struct Fails;

impl DialogueHandler for Fails {
    async fn message(&self, _: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        match message.task() {
            "panic" => panic!("as told"),
            "refuse" => Err(Error::invalid("not that")),
            "fail" => Err(Error::other("no database")),
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn a_handler_that_fails_is_answered_for() {
    in_time(async {
        let (_connection, session) = connected(signing(BUYER), signing(SELLER).handler(Fails)).await;
        for (task, code, text) in [
            ("refuse", Code::InvalidParameter, "not that"),
            ("fail", Code::ServerError, "no database"),
            ("panic", Code::ServerError, "the handler panicked"),
        ] {
            let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
            let error = dialogue.request(DialogueContent::new().task(task)).await.unwrap_err();
            let Error::Failed(error) = error else { panic!("{error}") };
            let asked = &dialogue.messages()[0];
            assert_eq!((&error.error_code, error.error_message.as_str()), (&code, text));
            assert_eq!(error.failed_message_id.as_ref(), Some(&asked.message_id));
            assert_eq!(error.failed_session_id.as_ref(), Some(dialogue.id()));
            assert_eq!(error.failed_sender_id.as_ref(), Some(dialogue.own()));
            assert!(!error.is_retryable(), "the same message would be a duplicate");
            // The dialogue goes on.
            dialogue.inform("Never mind.").await.unwrap();
        }
    })
    .await;
}

/// Counts concurrent calls, and finishes them on demand.
struct Slow {
    inside: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    out: Arc<Semaphore>,
    listener: Listener,
}

impl DialogueHandler for Slow {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        let inside = self.inside.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(inside, SeqCst);
        self.listener.message(dialogue, message).await?;
        let _ = self.out.acquire().await;
        self.inside.fetch_sub(1, SeqCst);
        Ok(())
    }
}

#[tokio::test]
async fn one_at_a_time_in_a_dialogue_and_several_dialogues_at_once() {
    in_time(async {
        let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (out, listener) = (Arc::new(Semaphore::new(0)), Listener::default());
        let slow =
            Slow { inside: inside.clone(), most: most.clone(), out: out.clone(), listener: listener.clone() };
        let (_connection, session) = connected(signing(BUYER), signing(SELLER).handler(slow)).await;
        let (first, second) =
            (session.peer_agent().dialogue(SELLER).unwrap(), session.peer_agent().dialogue(SELLER).unwrap());
        // Nobody is let out, and yet every message has its receipt: the reader waits for no handler.
        for number in 0..20 {
            first.inform(format!("{number}").as_str()).await.unwrap();
        }
        second.inform("other").await.unwrap();
        while inside.load(SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(listener.heard().len(), 2);
        out.add_permits(1000);
        while listener.heard().len() < 21 {
            tokio::task::yield_now().await;
        }
        assert_eq!(most.load(SeqCst), 2);
        let in_order: Vec<String> = (0..20).map(|number| format!("inform {number}")).collect();
        let mut heard = listener.heard();
        heard.retain(|heard| heard != "inform other");
        assert_eq!(heard, in_order);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_behind_makes_its_sender_wait() {
    let (out, listener) = (Arc::new(Semaphore::new(0)), Listener::default());
    let slow =
        Slow { inside: Arc::default(), most: Arc::default(), out: out.clone(), listener: listener.clone() };
    let mut limits = DialogueLimits::new();
    limits.inbox = 2;
    // As random as the pauses are, so many of them are long enough.
    let patient = signing(BUYER).backoff(Backoff::new().attempts(50));
    let (_connection, session) = connected(patient, signing(SELLER).handler(slow).limits(limits)).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        out.add_permits(100);
    });
    let start = tokio::time::Instant::now();
    for number in 0..5 {
        dialogue.inform(format!("{number}").as_str()).await.unwrap();
        // One is being handled, and two wait: the next has its receipt when the handler goes on.
        assert_eq!(start.elapsed() >= Duration::from_millis(300), number > 2, "{number}");
    }
    while listener.heard().len() < 5 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(listener.heard().last().map(String::as_str), Some("inform 4"));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_expires_in_the_queue_is_not_handled() {
    let (out, listener) = (Arc::new(Semaphore::new(0)), Listener::default());
    let slow =
        Slow { inside: Arc::default(), most: Arc::default(), out: out.clone(), listener: listener.clone() };
    let (_connection, session) = connected(signing(BUYER), signing(SELLER).handler(slow)).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    dialogue.inform("first").await.unwrap();
    dialogue.inform("for a minute").ttl(60).await.unwrap();
    let waits = dialogue.request("for an hour").ttl(3600).receipt().await.unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    out.add_permits(100);
    let VerifiedMessage { message, .. } = dialogue.next().await.unwrap();
    assert_eq!(message.content.error().unwrap().error_code, Code::Expired);
    dialogue.terminate("Goodbye.").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(listener.heard(), ["inform first", "request for an hour", "termination Goodbye."]);
    assert_ne!(message.parent_message_id, Some(waits.message.message_id.clone()));
}

#[tokio::test]
async fn the_rules_hold_on_the_side_that_speaks_too() {
    in_time(async {
        let listener = Listener::default();
        let (_connection, session) =
            connected(signing(BUYER), signing(SELLER).handler(listener.clone())).await;
        let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
        let error = dialogue.accept("I take it.").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "accept opens no dialogue; allowed here: request, inform, propose, query; nothing was sent"
        );
        dialogue.inform("Hello.").await.unwrap();
        dialogue.terminate("Goodbye.").await.unwrap();
        let error = dialogue.inform("One more thing.").await.unwrap_err();
        let Error::Illegal(illegal) = error else { panic!("{error}") };
        assert_eq!(illegal.allowed, [MessageType::Error]);
        assert!(dialogue.has_ended());
        while listener.heard().len() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(listener.heard(), ["inform Hello.", "termination Goodbye."]);
    })
    .await;
}

#[tokio::test]
async fn a_missing_setup_is_a_typed_error() {
    in_time(async {
        let (connection, session) = connected(signing(BUYER), signing(SELLER)).await;
        assert!(matches!(connection.peer_agent().dialogue(SELLER), Err(Error::NoSession)));
        assert!(matches!(session.peer_agent().dialogue("seller"), Err(Error::Uri(_))));
        let error = session.peer_agent().dialogue(SELLER).unwrap().inform("Hello.").await.unwrap_err();
        let Error::Response(error) = error else { panic!("{error}") };
        assert_eq!(error.error_code, Code::NotFound);
        let error = session.peer_agent().dialogue(DETAILS).unwrap().inform("Hello.").await.unwrap_err();
        let Error::Response(error) = error else { panic!("{error}") };
        assert_eq!(error.error_message, "the message is for another agent");

        let (ours, theirs) = duologue_client::Transport::memory();
        tokio::spawn(Server::new(Idle).serve(theirs));
        let client = Client::new(()).exchange(Exchange::new().dialogue(signing(BUYER)));
        let connection = client.connect(ours).await.unwrap();
        let session = connection.new_session("/tmp").await.unwrap();
        assert!(matches!(session.peer_agent().dialogue(SELLER), Err(Error::NotSupported)));

        let (ours, theirs) = duologue_client::Transport::memory();
        tokio::spawn(Server::new(Idle).exchange(Exchange::new().dialogue(signing(SELLER))).serve(theirs));
        let connection = Client::new(()).connect(ours).await.unwrap();
        let session = connection.new_session("/tmp").await.unwrap();
        assert!(matches!(session.peer_agent().dialogue(SELLER), Err(Error::NotSetUp)));
    })
    .await;
}

type Wanted = std::collections::HashMap<String, String>;

#[tokio::test]
async fn parameters_have_the_form_of_their_task() {
    in_time(async {
        let forms = || Parameters::new().of::<Wanted>("cars", "getCarDetails", &[MessageType::Request]);
        let seller = signing(SELLER).handler(Fails).parameters(forms());
        let (_connection, session) = connected(signing(BUYER), seller).await;
        let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
        let asked = |model: Value| {
            DialogueContent::new()
                .domain("cars")
                .task("getCarDetails")
                .parameters(members([("model", model)]))
        };
        let error = dialogue.request(asked(json!(7))).receipt().await.unwrap_err();
        let Error::Response(error) = error else { panic!("{error}") };
        assert_eq!(error.error_code, Code::InvalidParameter);
        assert!(
            error.error_message.contains("invalid type: integer `7`, expected a string"),
            "{}",
            error.error_message
        );
        // The step is free again.
        let sent = dialogue.request(asked(json!("Camry"))).receipt().await.unwrap();
        assert_eq!(sent.message.interaction_step, 1);

        let (_connection, session) =
            connected(signing(BUYER).parameters(forms()), signing(SELLER).handler(Fails)).await;
        let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
        assert!(matches!(dialogue.request(asked(json!(7))).await, Err(Error::Parameters(_))));
    })
    .await;
}

#[tokio::test]
async fn a_dialogue_ends_with_its_connection() {
    in_time(async {
        let (connection, session) = connected(signing(BUYER), signing(SELLER).handler(Fails)).await;
        let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
        let waiting = dialogue.clone();
        let waiting = tokio::spawn(async move { waiting.request("Are you there?").await });
        dialogue.inform("Listen.").await.unwrap();
        connection.close().await;
        assert!(matches!(waiting.await.unwrap(), Err(Error::Connection(_))));
        assert!(matches!(dialogue.next().await, Err(Error::Connection(_))));
        assert!(matches!(dialogue.inform("Hello?").await, Err(Error::Connection(_))));
    })
    .await;
}

#[tokio::test]
async fn a_handle_that_is_dropped_says_goodbye() {
    in_time(async {
        let listener = Listener::default();
        let (_connection, session) =
            connected(signing(BUYER), signing(SELLER).handler(listener.clone())).await;
        let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
        dialogue.inform("Hello.").await.unwrap();
        drop(dialogue.clone());
        drop(dialogue);
        while listener.heard().len() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(listener.heard()[1], "termination Nobody listens any more.");
    })
    .await;
}

#[tokio::test]
async fn with_a_handler_a_dropped_handle_hands_over() {
    in_time(async {
        let listener = Listener::default();
        let (_connection, session) =
            connected(signing(BUYER).handler(listener.clone()), signing(SELLER).handler(Echo)).await;
        let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
        dialogue.request("Say something.").receipt().await.unwrap();
        drop(dialogue);
        while listener.heard().len() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(listener.heard(), ["confirm One moment.", "response Say something."]);
    })
    .await;
}

/// Asks back before it answers.
struct Careful;

impl DialogueHandler for Careful {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        if message.message_type == MessageType::Request {
            let clear = dialogue.clarify("Which colour?").answer().await?;
            let colour = clear.content.natural_language.as_deref().unwrap_or_default().to_owned();
            let sent = dialogue.respond(colour.as_str()).await?;
            assert_eq!(sent.message.parent_message_id.as_ref(), Some(&message.message_id));
            assert_eq!(sent.message.content.task.as_deref(), Some("paint"));
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_message_replies_to_the_last_one_it_can() {
    in_time(async {
        let (_connection, session) = connected(signing(BUYER), signing(SELLER).handler(Careful)).await;
        let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
        let back = dialogue.request(DialogueContent::new().task("paint")).await.unwrap();
        assert_eq!(back.message_type, MessageType::Clarify);
        let told = dialogue.inform("Red.").await.unwrap();
        assert_eq!(told.message.parent_message_id.as_ref(), Some(&back.message_id));
        let answer = dialogue.next().await.unwrap();
        assert_eq!(answer.content.natural_language.as_deref(), Some("Red."));
    })
    .await;
}

/// Answers requests with what they say.
struct Echo;

impl DialogueHandler for Echo {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        if message.message_type == MessageType::Request {
            dialogue.confirm("One moment.").await?;
            let words = message.content.natural_language.as_deref().unwrap_or_default();
            dialogue.respond(words).await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn an_answer_that_nobody_waits_for_any_more_is_not_lost() {
    in_time(async {
        let (_connection, session) = connected(signing(BUYER), signing(SELLER).handler(Echo)).await;
        for patience in [0, 1, 2, 5] {
            let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
            let asked = dialogue.request("Quick!").within(Duration::from_millis(patience)).await;
            let answer = match asked {
                Ok(answer) => answer,
                Err(Error::NoAnswer { .. }) => loop {
                    let next = dialogue.next().await.unwrap();
                    if next.message_type == MessageType::Response {
                        break next;
                    }
                },
                Err(error) => panic!("{error}"),
            };
            assert_eq!(answer.content.natural_language.as_deref(), Some("Quick!"));
        }
    })
    .await;
}

/// A seller whose buyer the test plays.
pub(super) async fn played(seller: Dialogues) -> (ScriptedPeer, String) {
    another(&Arc::new(seller)).await
}

pub(super) async fn say(
    buyer: &mut ScriptedPeer,
    session: &str,
    step: u64,
    kind: &str,
    parent: Option<&str>,
) -> Value {
    let message = json!({
        "message_id": format!("m{step}"), "session_id": "d", "parent_message_id": parent,
        "sender_id": BUYER, "recipient_id": SELLER, "timestamp": began(),
        "interaction_step": step, "message_type": kind,
        "content": { "natural_language": step.to_string() },
    });
    buyer.request("_session/dialogue", json!({ "sessionId": session, "message": message })).await["result"]
        .clone()
}

#[tokio::test(start_paused = true)]
async fn early_messages_are_buffered_and_a_gap_is_reported() {
    struct Gaps(Listener);
    impl DialogueHandler for Gaps {
        async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
            self.0.message(dialogue, message).await?;
            if message.gap {
                self.0.0.lock().unwrap().push("a gap before it".to_owned());
            }
            Ok(())
        }
    }
    let listener = Listener::default();
    let seller = Dialogues::new(SELLER).unwrap().handler(Gaps(listener.clone()));
    let (mut buyer, session) = played(seller).await;
    for (step, status) in [(1, "delivered"), (3, "held"), (4, "held"), (2, "delivered"), (7, "held")] {
        let answer = say(&mut buyer, &session, step, "inform", None).await;
        assert_eq!(answer["receipt"]["status"], status, "{step}: {answer}");
    }
    tokio::time::sleep(Duration::from_millis(4900)).await;
    assert_eq!(listener.heard(), ["inform 1", "inform 2", "inform 3", "inform 4"]);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(listener.heard()[4..], ["inform 7", "a gap before it"]);
    let answer = say(&mut buyer, &session, 6, "inform", None).await;
    assert_eq!(answer["error"]["content"]["error_code"], "CONFLICT");
}

#[tokio::test(start_paused = true)]
async fn a_repetition_has_the_status_of_the_message() {
    let listener = Listener::default();
    let (mut buyer, session) = played(Dialogues::new(SELLER).unwrap().handler(listener.clone())).await;
    say(&mut buyer, &session, 1, "inform", None).await;
    // Step 2 is missing. Step 3 will turn out to be illegal, and step 4 not.
    for (step, kind) in [(3, "accept"), (4, "inform")] {
        for duplicate in [false, true] {
            let receipt = &say(&mut buyer, &session, step, kind, None).await["receipt"];
            assert_eq!(
                (&receipt["status"], &receipt["duplicate"]),
                (&json!("held"), &json!(duplicate)),
                "{step}"
            );
        }
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    let error = buyer.expect("_session/dialogue").await;
    assert_eq!(error["params"]["message"]["content"]["failed_message_id"], "m3", "{error}");
    // Its sender learns it again when it repeats the message.
    for _ in 0..2 {
        let error = &say(&mut buyer, &session, 3, "accept", None).await["error"]["content"];
        assert_eq!(error["error_code"], "INVALID_PARAMETER", "{error}");
        assert_eq!(error["failed_message_id"], "m3");
        assert_eq!(error["details"]["allowed"][0], "request");
        let receipt = &say(&mut buyer, &session, 4, "inform", None).await["receipt"];
        assert_eq!((&receipt["status"], &receipt["duplicate"]), (&json!("delivered"), &json!(true)));
    }
    assert_eq!(listener.heard(), ["inform 1", "inform 4"]);
}

#[tokio::test(start_paused = true)]
async fn early_messages_behind_a_full_inbox_are_kept() {
    struct Slow(Listener);
    impl DialogueHandler for Slow {
        async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
            self.0.message(dialogue, message).await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(())
        }
    }
    let listener = Listener::default();
    let mut limits = DialogueLimits::new();
    limits.inbox = 1;
    let seller = Dialogues::new(SELLER).unwrap().limits(limits).handler(Slow(listener.clone()));
    let (mut buyer, session) = played(seller).await;
    for (step, status) in [(1, "delivered"), (2, "delivered"), (4, "held")] {
        let answer = say(&mut buyer, &session, step, "inform", None).await;
        assert_eq!(answer["receipt"]["status"], status, "{step}: {answer}");
    }
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(listener.heard(), ["inform 1", "inform 2", "inform 4"]);
}

#[tokio::test]
async fn an_illegal_move_is_answered_with_the_legal_ones() {
    in_time(async {
        let listener = Listener::default();
        let (mut buyer, session) = played(Dialogues::new(SELLER).unwrap().handler(listener.clone())).await;
        let mut illegal = async |step, kind, parent, allowed: Value| {
            let answer = say(&mut buyer, &session, step, kind, parent).await;
            let error = &answer["error"];
            assert_eq!(error["message_type"], "error", "{answer}");
            assert_eq!(error["content"]["error_code"], "INVALID_PARAMETER");
            assert_eq!(error["content"]["details"]["allowed"], allowed);
            assert_eq!(error["content"]["failed_message_id"], format!("m{step}"));
            assert_eq!(error["content"]["failed_session_id"], "d");
            // The error stands in the place of the message, and names it.
            assert_eq!((&error["interaction_step"], &error["session_id"]), (&json!(step), &json!("d")));
            assert_eq!(error["parent_message_id"], format!("m{step}"));
        };
        illegal(1, "accept", None, json!(["request", "inform", "propose", "query"])).await;
        illegal(1, "shout", None, json!(["request", "inform", "propose", "query"])).await;
        illegal(1, "inform", Some("nowhere"), json!([])).await;
        assert_eq!(say(&mut buyer, &session, 1, "propose", None).await["receipt"]["status"], "delivered");
        // Nobody takes their own offer.
        let answer = say(&mut buyer, &session, 2, "accept", Some("m1")).await;
        assert_eq!(answer["error"]["interaction_step"], 2);
        assert_eq!(
            answer["error"]["content"]["error_message"],
            "accept answers a message of its own sender; allowed here: request, inform, confirm, propose, \
             clarify, query, update, error, termination"
        );
        assert_eq!(say(&mut buyer, &session, 2, "termination", None).await["receipt"]["status"], "delivered");
        let answer = say(&mut buyer, &session, 3, "inform", None).await;
        assert_eq!(answer["error"]["content"]["details"]["allowed"], json!(["error"]));
        assert_eq!(say(&mut buyer, &session, 3, "error", None).await["receipt"]["status"], "delivered");
        // The first message once more has its receipt, and reaches nobody.
        assert_eq!(say(&mut buyer, &session, 1, "propose", None).await["receipt"]["duplicate"], true);
        while listener.heard().len() < 3 {
            tokio::task::yield_now().await;
        }
        assert_eq!(listener.heard(), ["propose 1", "termination 2", "error 3"]);
    })
    .await;
}

#[tokio::test]
async fn messages_of_one_connection_are_rejected_on_another() {
    in_time(async {
        let listener = Listener::default();
        let shared = Arc::new(Dialogues::new(SELLER).unwrap().keys(keys()).handler(listener.clone()));
        let (_first, session) = connected(signing(BUYER), shared.clone()).await;
        let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
        let said = dialogue.inform("Once.").await.unwrap().message;

        // An eavesdropper replays it word for word on another connection.
        let replay = sign(&said, &Key::new("key-1", BUYER, [1; 32]).unwrap()).unwrap();
        let (mut thief, session) = another(&shared).await;
        let replay: Value = serde_json::from_str(replay.get()).unwrap();
        let params = json!({ "sessionId": session, "message": replay });
        let answer = thief.request("_session/dialogue", params).await;
        assert_eq!(answer["result"]["error"]["content"]["error_code"], "CONFLICT", "{answer}");
        dialogue.terminate("Enough.").await.unwrap();
        while listener.heard().len() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(listener.heard(), ["inform Once.", "termination Enough."]);
    })
    .await;
}

/// Somebody who plays a buyer towards `seller`, who has several connections.
async fn another(seller: &Arc<Dialogues>) -> (ScriptedPeer, String) {
    let (transport, mut buyer) = Wire::Memory.scripted();
    tokio::spawn(Server::new(Idle).exchange(Exchange::new().dialogue(seller.clone())).serve(transport));
    buyer.initialize(json!({ "_meta": { "duologue": { "dialogue": {} } } })).await;
    let session = buyer.new_session().await;
    (buyer, session)
}

#[tokio::test]
async fn a_stolen_message_is_delivered_to_its_own_dialogue() {
    in_time(async {
        let listener = Listener::default();
        let seller = Arc::new(signing(SELLER).handler(listener.clone()));
        let ((mut buyer, hers), (mut thief, his)) = (another(&seller).await, another(&seller).await);
        let key = Key::new("key-1", BUYER, [1; 32]).unwrap();
        let signed = |id: &str, step| -> Value {
            let now = jiff::Timestamp::now().to_string();
            let message = DialogueMessage::new(id, "d", BUYER, SELLER, now, step, MessageType::Inform);
            serde_json::from_str(sign(&message.content(DialogueContent::from(id)), &key).unwrap().get())
                .unwrap()
        };
        let send = async |who: &mut ScriptedPeer, session: &str, message: &Value| {
            let params = json!({ "sessionId": session, "message": message });
            who.request("_session/dialogue", params).await["result"].clone()
        };
        assert_eq!(send(&mut buyer, &hers, &signed("first", 1)).await["receipt"]["duplicate"], false);
        let stolen = signed("second", 2);
        let answer = send(&mut thief, &his, &stolen).await;
        assert_eq!(answer["error"]["content"]["error_code"], "CONFLICT", "{answer}");
        assert_eq!(send(&mut buyer, &hers, &stolen).await["receipt"]["duplicate"], false);
        while listener.heard().len() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(listener.heard(), ["inform first", "inform second"]);
    })
    .await;
}

#[tokio::test]
async fn a_retry_is_known_after_its_dialogue_was_forgotten() {
    in_time(async {
        let mut limits = DialogueLimits::new();
        limits.dialogues = 1;
        let (mut buyer, session) =
            played(Dialogues::new(SELLER).unwrap().handler(Listener::default()).limits(limits)).await;
        let mut send = async |id: &str, dialogue: &str, step: u64, kind: &str| {
            let message = json!({
                "message_id": id, "session_id": dialogue, "sender_id": BUYER, "recipient_id": SELLER,
                "timestamp": began(), "interaction_step": step, "message_type": kind, "content": {},
            });
            let params = json!({ "sessionId": session, "message": message });
            buyer.request("_session/dialogue", params).await["result"]["receipt"]["duplicate"].clone()
        };
        assert_eq!(send("m1", "old", 1, "inform").await, false);
        assert_eq!(send("m2", "old", 2, "termination").await, false);
        assert_eq!(send("m3", "new", 1, "inform").await, false);
        assert_eq!(send("m2", "old", 2, "termination").await, true);
    })
    .await;
}

/// Asks somebody else who always fails.
struct Asks(duologue_agent::PeerAgent);

impl DialogueHandler for Asks {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        if message.message_type == MessageType::Request {
            dialogue.nested(&self.0, DETAILS)?.request(DialogueContent::new().task("fail")).await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn errors_of_a_third_agent_are_not_forwarded() {
    in_time(async {
        let (_details, details) = connected(signing(SELLER), signing(DETAILS).handler(Fails)).await;
        let seller = signing(SELLER).handler(Asks(details.peer_agent()));
        let (_connection, session) = connected(signing(BUYER), seller).await;
        let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
        let error = dialogue.request("Car?").await.unwrap_err();
        assert_eq!(error.to_string(), "another agent failed (SERVER_ERROR)");
    })
    .await;
}

#[tokio::test]
async fn the_stored_part_of_a_message_is_bounded() {
    in_time(async {
        let (mut buyer, session) = played(Dialogues::new(SELLER).unwrap().handler(Listener::default())).await;
        let long = "c".repeat(129);
        for (field, metadata, content) in [
            ("correlation_id", json!({ "correlation_id": long }), json!({})),
            ("routing_key", json!({ "routing_key": long }), json!({})),
            ("belief_updates", json!({}), json!({ "belief_updates": vec![1; 257] })),
            ("previous_context", json!({}), json!({ "previous_context": vec!["m"; 257] })),
        ] {
            let message = json!({
                "message_id": "m", "session_id": "d", "sender_id": BUYER, "recipient_id": SELLER,
                "timestamp": began(), "interaction_step": 1, "message_type": "inform",
                "content": content, "metadata": metadata,
            });
            let params = json!({ "sessionId": session, "message": message });
            let answer = buyer.request("_session/dialogue", params).await;
            let error = &answer["result"]["error"]["content"];
            assert_eq!(error["details"]["field"], field, "{answer}");
            assert_eq!(error["error_code"], "INVALID_PARAMETER");
        }
    })
    .await;
}

#[tokio::test]
async fn an_error_repeats_nothing_of_a_message_that_cannot_be_read() {
    in_time(async {
        let (mut buyer, session) = played(Dialogues::new(SELLER).unwrap()).await;
        let message = json!({ "message_id": "m", "interaction_step": "hunter2" });
        let params = json!({ "sessionId": session, "message": message });
        let answer = buyer.request("_session/dialogue", params).await;
        assert_eq!(
            answer["result"]["error"]["content"]["error_message"],
            "not a dialogue message: message: field `interaction_step` must be an integer"
        );
        let answer = buyer.request("_session/dialogue", json!({ "sessionId": ["hunter2"] })).await;
        assert!(answer["error"]["code"] == -32602 && !answer.to_string().contains("hunter2"), "{answer}");
    })
    .await;
}
