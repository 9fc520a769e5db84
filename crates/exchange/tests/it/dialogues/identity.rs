//! Ids that the caller chose, repetitions, `_meta` beside messages, and attachments.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_agent::exchange::dialogue::{
    Dialogue, DialogueHandler, DialogueOptions, Dialogues, Error, VerifiedMessage, sign,
};
use duologue_schema::dialogue::{DialogueAct, DialogueContent, DialogueMessage, MessageType};
use duologue_schema::{Attachment, Json, Members, Meta, TraceContext};
use serde_json::{Value, json};

use super::handling::played;
use super::retries::{buyer, refuse, take};
use super::speakers::{BUYER, DETAILS, Listener, SELLER, began, connected, signing};
use duologue_agent::Exchange;
use duologue_agent::exchange::dialogue::Key;
use duologue_agent::exchange::work::{Recommendation, WorkOrder, WorkOutput};
use duologue_client::Client;
use duologue_test_support::{Wire, client_of};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";

fn unsigned(name: &str) -> Dialogues {
    Dialogues::new(name).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_message_with_the_same_id_is_the_same_message() {
    let (_connection, mut seller, session) = buyer(unsigned(BUYER)).await;
    let options = DialogueOptions::new().id("s1").correlation_id("purchase-7");
    let dialogue = session.peer_agent().dialogue_with(SELLER, options.clone()).unwrap();
    let inform = |words: &'static str| dialogue.inform(words).id("m1").priority(99).into_future();

    let (sent, first) = tokio::join!(inform("Hello."), take(&mut seller));
    assert_eq!(sent.unwrap().message.message_id, "m1");
    let message = &first["message"];
    assert_eq!((&message["message_id"], &message["session_id"]), (&json!("m1"), &json!("s1")));
    assert_eq!(message["metadata"], json!({ "priority": 9, "correlation_id": "purchase-7" }));
    // The text is the same, with its time and its step.
    for _ in 0..2 {
        let (sent, again) = tokio::join!(inform("Hello."), take(&mut seller));
        assert!(sent.is_ok());
        assert_eq!(again, first);
    }
    // Nothing is sent under an id that belongs to something else.
    for other in [
        inform("Goodbye."),
        dialogue.update("Hello.").id("m1").priority(99).into_future(),
        dialogue.inform("Hello.").id("m1").into_future(),
        dialogue.inform("Hello.").id("m1").priority(99).ttl(60).into_future(),
        dialogue.inform("Hello.").id("m1").priority(99).metadata("lane", "fast").into_future(),
        dialogue.inform("Hello.").id("m1").priority(99).act(DialogueAct::Greeting).into_future(),
        dialogue.inform("Hello.").id("m1").priority(99).routing_key("sales").into_future(),
    ] {
        let error = other.await.unwrap_err();
        assert!(matches!(&error, Error::IdTaken(id) if id == "m1"), "{error}");
    }
    for id in [String::new(), "x".repeat(129)] {
        let error = dialogue.inform("Hello.").id(id.as_str()).await.unwrap_err();
        assert_eq!(error.to_string(), "message_id must have 1 to 128 characters; nothing was sent");
        let options = DialogueOptions::new().id(id.as_str());
        let error = session.peer_agent().dialogue_with(SELLER, options).unwrap_err();
        assert_eq!(error.to_string(), "session_id must have 1 to 128 characters; nothing was sent");
    }
    let error = session.peer_agent().dialogue_with(SELLER, options).unwrap_err();
    assert!(matches!(&error, Error::IdTaken(id) if id == "s1"), "{error}");

    // The other side uses the next step, so the same one is not used for another message.
    let (sent, next) = tokio::join!(dialogue.inform("More.").into_future(), take(&mut seller));
    assert!(sent.is_ok());
    assert_eq!(next["message"]["interaction_step"], 2);
}

/// The caller of a repetition knows the present trace. And the other side's message is not repeated.
#[tokio::test(start_paused = true)]
async fn a_repetition_has_its_own_metadata_and_is_of_our_message() {
    let (_connection, mut seller, session) = buyer(unsigned(BUYER)).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    for hop in 0..2 {
        let inform = dialogue.inform("Hello.").id("m1").meta(Meta::from_iter([("hop", hop)]));
        let (sent, params) = tokio::join!(inform.into_future(), take(&mut seller));
        assert!(sent.is_ok());
        assert_eq!(params["_meta"], json!({ "hop": hop }));
    }
    let theirs = json!({
        "message_id": "m2", "session_id": dialogue.id(), "sender_id": SELLER, "recipient_id": BUYER,
        "timestamp": began(), "interaction_step": 2, "message_type": "inform",
        "dialogue_act": "inform-ref", "content": { "natural_language": "Hello." },
    });
    seller.request("_session/dialogue", json!({ "sessionId": "s", "message": theirs })).await;
    dialogue.next().await.unwrap();
    let error = dialogue.inform("Hello.").unprompted().id("m2").await.unwrap_err();
    assert!(matches!(&error, Error::IdTaken(id) if id == "m2"), "{error}");
}

/// Opens a dialogue about each message that it gets.
struct Nests;

impl DialogueHandler for Nests {
    async fn message(&self, dialogue: &Dialogue, _: &VerifiedMessage) -> Result<(), Error> {
        dialogue.nested(dialogue.peer(), DETAILS)?.inform("About this.").await?;
        Ok(())
    }
}

/// A handler's nested dialogue names the message that it is about, and has its thread.
#[tokio::test]
async fn a_nested_dialogue_names_its_parent() {
    duologue_test_support::in_time(async {
        let (mut buyer, session) = played(unsigned(SELLER).handler(Nests)).await;
        for (id, metadata, thread) in
            [("d1", json!({ "correlation_id": "thread" }), "thread"), ("d2", json!({}), "d2")]
        {
            let message = json!({
                "message_id": "m1", "session_id": id, "sender_id": format!("{BUYER}/{id}"), "recipient_id": SELLER,
                "timestamp": began(), "interaction_step": 1, "message_type": "inform", "content": {},
                "metadata": metadata,
            });
            let params = json!({ "sessionId": session, "message": message });
            buyer.request("_session/dialogue", params).await;
            let nested = buyer.expect("_session/dialogue").await;
            let message = &nested["params"]["message"];
            let expected =
                json!({ "correlation_id": thread, "parent_session_id": id, "parent_message_id": "m1" });
            assert_eq!((&message["metadata"], &message["recipient_id"]), (&expected, &json!(DETAILS)));
        }
        // A message in a session that does not exist is none of a dialogue.
        let answer = buyer.request("_session/dialogue", json!({ "sessionId": "none", "message": {} })).await;
        assert_eq!(answer["error"]["code"], -32002, "{answer}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn another_order_of_parameters_is_the_same_message() {
    let (_connection, mut seller, session) = buyer(unsigned(BUYER)).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    let propose = |parameters: &str| {
        let parameters: Members = serde_json::from_str(parameters).unwrap();
        dialogue.propose(DialogueContent::new().parameters(parameters)).id("m1").receipt()
    };
    let (sent, first) =
        tokio::join!(propose(r#"{"price":{"usd":1,"cents":[0]},"vin":"x"}"#), take(&mut seller));
    sent.unwrap();
    let (sent, again) =
        tokio::join!(propose(r#"{"vin":"x","price":{"cents":[0.0],"usd":1}}"#), take(&mut seller));
    sent.unwrap();
    assert_eq!(again, first);
    let error = propose(r#"{"vin":"x","price":{"cents":[1],"usd":1}}"#).await.unwrap_err();
    assert!(matches!(&error, Error::IdTaken(id) if id == "m1"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_request_may_be_repeated_until_it_is_answered() {
    let (_connection, mut seller, session) = buyer(unsigned(BUYER)).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    let request = || dialogue.request("The time, please.").id("m1").within(Duration::from_secs(1));
    let (late, _) = tokio::join!(request().into_future(), take(&mut seller));
    assert!(matches!(late, Err(Error::NoAnswer { .. })));
    // The answer comes when no call waits for it.
    let message = json!({
        "message_id": "m2", "session_id": dialogue.id(), "parent_message_id": "m1",
        "sender_id": SELLER, "recipient_id": BUYER, "timestamp": began(),
        "interaction_step": 2, "message_type": "response", "content": { "natural_language": "Noon." },
    });
    let receipt = seller.request("_session/dialogue", json!({ "sessionId": "s", "message": message })).await;
    assert_eq!(receipt["result"]["receipt"]["status"], "delivered", "{receipt}");
    let (answer, _) = tokio::join!(request().into_future(), take(&mut seller));
    assert_eq!(answer.unwrap().content.natural_language.as_deref(), Some("Noon."));
    // It was taken from the queue.
    let more = tokio::time::timeout(Duration::from_secs(1), dialogue.next()).await;
    assert!(more.is_err(), "{more:?}");
    // It was read before: it is the answer to every repetition.
    let (answer, _) = tokio::join!(request().into_future(), take(&mut seller));
    assert_eq!(answer.unwrap().message_id, "m2");
    let more = tokio::time::timeout(Duration::from_secs(1), dialogue.next()).await;
    assert!(more.is_err(), "{more:?}");
    // Another request waits for its own answer.
    let other = dialogue.request("And the date?").id("m3").within(Duration::from_secs(1));
    let (late, _) = tokio::join!(other.into_future(), take(&mut seller));
    assert!(matches!(late, Err(Error::NoAnswer { .. })));
}

#[tokio::test(start_paused = true)]
async fn two_calls_may_wait_for_one_answer() {
    let (_connection, mut seller, session) = buyer(unsigned(BUYER)).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    let request =
        |seconds| dialogue.request("The time, please.").id("m1").within(Duration::from_secs(seconds));
    let message = json!({
        "message_id": "m2", "session_id": dialogue.id(), "parent_message_id": "m1",
        "sender_id": SELLER, "recipient_id": BUYER, "timestamp": began(),
        "interaction_step": 2, "message_type": "response", "content": { "natural_language": "Noon." },
    });
    let (first, impatient, last, ()) =
        tokio::join!(request(60).into_future(), request(5).into_future(), request(60).into_future(), async {
            for _ in 0..3 {
                take(&mut seller).await;
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
            let params = json!({ "sessionId": "s", "message": message });
            let receipt = seller.request("_session/dialogue", params).await;
            assert_eq!(receipt["result"]["receipt"]["status"], "delivered", "{receipt}");
        });
    assert!(matches!(impatient, Err(Error::NoAnswer { .. })));
    for answer in [first, last] {
        assert_eq!(answer.unwrap().message_id, "m2");
    }
    let more = tokio::time::timeout(Duration::from_secs(1), dialogue.next()).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test]
async fn a_repeated_request_has_the_answer_that_was_read_and_its_key() {
    duologue_test_support::in_time(async {
        let (_connection, session) =
            connected(signing(BUYER), signing(SELLER).handler(Metas::default())).await;
        let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
        let first = dialogue.request("The time, please.").id("m1").await.unwrap();
        let again = dialogue.request("The time, please.").id("m1").await.unwrap();
        assert_eq!(first, again);
        assert!(again.key_id.is_some());
    })
    .await;
}

/// An expired repetition does not change the state of the message: the dialogue continues with the next step.
#[tokio::test(start_paused = true)]
async fn a_late_repetition_does_not_undo_the_message() {
    let (_connection, mut seller, session) = buyer(unsigned(BUYER)).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    let inform = || dialogue.inform("Hello.").id("m1").ttl(5).into_future();
    let (sent, _) = tokio::join!(inform(), take(&mut seller));
    sent.unwrap();
    let (again, _) = tokio::join!(inform(), refuse(&mut seller, "EXPIRED"));
    assert!(again.unwrap().receipt.unwrap().duplicate);
    // Another rejection is an error, and does not undo the message either.
    let (again, _) = tokio::join!(inform(), refuse(&mut seller, "CONFLICT"));
    assert!(matches!(again, Err(Error::Response(_))), "{again:?}");
    assert!(dialogue.message(&"m1".into()).is_some());
    let (sent, next) = tokio::join!(dialogue.inform("More.").into_future(), take(&mut seller));
    assert!(sent.is_ok());
    assert_eq!(next["message"]["interaction_step"], 2);

    // The first attempt of a message that expires is an error, and frees the step.
    let (sent, _) = tokio::join!(dialogue.inform("Late.").into_future(), refuse(&mut seller, "EXPIRED"));
    assert!(matches!(sent, Err(Error::Response(_))), "{sent:?}");
    let (_, next) = tokio::join!(dialogue.inform("Then.").into_future(), take(&mut seller));
    assert_eq!(next["message"]["interaction_step"], 3);
}

/// A message that was rejected after its receipt has no receipt again.
#[tokio::test(start_paused = true)]
async fn a_late_repetition_of_a_rejected_message_is_rejected() {
    let (_connection, mut seller, session) = buyer(unsigned(BUYER)).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    let inform = || dialogue.inform("Hello.").id("m1").ttl(5).into_future();
    let (sent, _) = tokio::join!(inform(), take(&mut seller));
    sent.unwrap();
    let message = json!({
        "message_id": "m2", "session_id": dialogue.id(), "parent_message_id": "m1",
        "sender_id": SELLER, "recipient_id": BUYER, "timestamp": began(),
        "interaction_step": 2, "message_type": "error",
        "content": { "error_code": "EXPIRED", "error_message": "too late", "details": {} },
    });
    let receipt = seller.request("_session/dialogue", json!({ "sessionId": "s", "message": message })).await;
    assert_eq!(receipt["result"]["receipt"]["status"], "delivered", "{receipt}");
    let (again, _) = tokio::join!(inform(), refuse(&mut seller, "EXPIRED"));
    assert!(matches!(again, Err(Error::Response(_))), "{again:?}");
}

/// The text of a repetition names the message that the first one answered.
#[tokio::test(start_paused = true)]
async fn a_repetition_answers_the_same_message() {
    let (_connection, mut seller, session) = buyer(unsigned(BUYER)).await;
    let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
    let (sent, _) = tokio::join!(dialogue.inform("Hello.").into_future(), take(&mut seller));
    sent.unwrap();
    let mut offers = Vec::new();
    for (id, step) in [("o1", 2), ("o2", 3)] {
        let message = json!({
            "message_id": id, "session_id": dialogue.id(), "sender_id": SELLER, "recipient_id": BUYER,
            "timestamp": began(), "interaction_step": step, "message_type": "propose",
            "content": { "domain": "cars", "task": id },
        });
        seller.request("_session/dialogue", json!({ "sessionId": "s", "message": message })).await;
        offers.push(dialogue.next().await.unwrap());
    }
    let accept = || dialogue.accept("Yes.").id("m1").correlation_id("c1");
    let first = accept().answering(&offers[0]);
    let (sent, params) = tokio::join!(first.into_future(), take(&mut seller));
    sent.unwrap();
    assert_eq!(params["message"]["parent_message_id"], "o1");
    // The answer is about the same task, and so is its repetition.
    assert_eq!(params["message"]["content"]["task"], "o1");
    for other in [
        accept().answering(&offers[1]),
        accept().unprompted(),
        accept().answering(&offers[0]).correlation_id("c2"),
    ] {
        let error = other.await.unwrap_err();
        assert!(matches!(&error, Error::IdTaken(id) if id == "m1"), "{error}");
    }
    // Members that the caller does not set may have changed since.
    for same in [accept().answering(&offers[0]), accept(), dialogue.accept("Yes.").id("m1")] {
        let (sent, params) = tokio::join!(same.into_future(), take(&mut seller));
        assert!(sent.is_ok());
        assert_eq!(params["message"]["parent_message_id"], "o1");
    }
}

/// A dialogue that a worker opens with the sender of its order belongs to the trace of the order.
#[tokio::test(start_paused = true)]
async fn a_dialogue_continues_the_trace_of_its_handle() {
    let worker = async |order: WorkOrder| {
        let peer = order.peer.as_ref().expect("a sender");
        let dialogue = peer.dialogue(SELLER).expect("a dialogue");
        dialogue.inform("Hello.").await.expect("a receipt");
        Ok(WorkOutput::new(true, "", [], Recommendation::Proceed))
    };
    let exchange = Exchange::new().dialogue(unsigned(BUYER)).work(worker);
    let can = json!({ "_meta": { "duologue": { "dialogue": {} } } });
    let (connection, mut seller) = client_of(Wire::Memory, Client::new(()).exchange(exchange), can).await;
    let (session, ()) = tokio::join!(connection.new_session("/tmp"), seller.accept_session("s"));
    let _session = session.unwrap();
    let input = json!({
        "context": { "feature_id": "login", "workflow": "feature", "iteration": 1 }, "paths": {},
        "task": { "action": "ask", "params": {} },
    });
    let params =
        json!({ "sessionId": "s", "input": input, "_meta": { "traceparent": PARENT, "token": "secret" } });
    seller.send_request("_session/work", params).await;
    assert_eq!(take(&mut seller).await["_meta"], json!({ "traceparent": PARENT }));
}

/// Keeps the `_meta` of its messages, and answers requests.
#[derive(Clone, Default)]
struct Metas(Arc<Mutex<Vec<Option<Meta>>>>);

impl DialogueHandler for Metas {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        assert!(!dialogue.cancellation().is_cancelled());
        self.0.lock().unwrap().push(message.meta.clone());
        if message.message_type == MessageType::Request {
            dialogue.respond("Noon.").await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn metadata_beside_a_message_travels_both_ways() {
    duologue_test_support::in_time(async {
        let metas = Metas::default();
        let (mut buyer, session) = played(unsigned(SELLER).handler(metas.clone())).await;
        let message = |id: &str, step: u64| {
            json!({
                "message_id": id, "session_id": "s1", "sender_id": BUYER, "recipient_id": SELLER,
                "timestamp": began(), "interaction_step": step, "message_type": "request", "content": {},
            })
        };
        let meta = json!({ "traceparent": PARENT, "hop": { "n": 1 } });
        let params = json!({ "sessionId": session, "message": message("m1", 1), "_meta": meta });
        let receipt = buyer.request("_session/dialogue", params).await;
        assert_eq!(receipt["result"]["receipt"]["status"], "delivered", "{receipt}");
        // The answer of the handler belongs to the same trace.
        let answer = buyer.expect("_session/dialogue").await;
        assert_eq!(answer["params"]["_meta"], json!({ "traceparent": PARENT }));
        let heard = metas.0.lock().unwrap()[0].clone().map(|meta| serde_json::to_value(meta).unwrap());
        assert_eq!(heard, Some(meta));

        // The largest one.
        let full = json!({ "x": "x".repeat((64 << 10) - 8) });
        let params = json!({ "sessionId": session, "message": message("m4", 3), "_meta": full });
        let receipt = buyer.request("_session/dialogue", params).await;
        assert!(receipt["result"]["receipt"].is_object(), "{receipt}");
        let large = json!({ "x": "x".repeat(64 << 10) });
        let params = json!({ "sessionId": session, "message": message("m3", 3), "_meta": large });
        let error = buyer.request("_session/dialogue", params).await["error"].take();
        assert_eq!(error["code"], -32602);
        assert_eq!(error["message"], "_session/dialogue: _meta has 65544 bytes, at most 65536 are allowed");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn metadata_is_set_by_the_sender_and_read_from_the_receipt() {
    let (_connection, mut seller, session) = buyer(unsigned(BUYER)).await;
    let context = TraceContext::new(PARENT);
    let options = DialogueOptions::new().trace_context(context.clone());
    let traced = session.peer_agent().dialogue_with(SELLER, options).unwrap();
    let plain = session.peer_agent().dialogue(SELLER).unwrap();
    let own = || Meta::from_iter([("hop", 1)]);
    let other = || Meta::from_iter([("traceparent", OTHER)]);
    for (builder, expected) in [
        (traced.inform("a"), json!({ "traceparent": PARENT })),
        (traced.inform("b").meta(own()), json!({ "hop": 1, "traceparent": PARENT })),
        (traced.inform("b").meta(other()), json!({ "traceparent": OTHER })),
        (plain.inform("b").trace_context(context.clone()).meta(other()), json!({ "traceparent": PARENT })),
        (
            plain.inform("b").trace_context(context.clone()).trace_context(None),
            json!({ "traceparent": PARENT }),
        ),
        (plain.inform("c"), Value::Null),
        (plain.inform("d").meta(own()).trace_context(context), json!({ "hop": 1, "traceparent": PARENT })),
        (plain.inform("e").trace_context(None), Value::Null),
    ] {
        let (sent, params) = tokio::join!(builder.into_future(), async {
            let request = seller.expect("_session/dialogue").await;
            let message = &request["params"]["message"];
            let receipt = json!({ "message_id": message["message_id"], "session_id": message["session_id"] });
            seller.respond(&request, json!({ "receipt": receipt, "_meta": { "queue": 3 } })).await;
            request["params"].clone()
        });
        assert_eq!(params["_meta"], expected);
        assert_eq!(sent.unwrap().receipt_meta.and_then(|meta| meta.get("queue")), Some(3));
    }
}

/// A foreign agent may have chosen the name for something else. Its signature covers that too.
#[tokio::test]
async fn attachments_of_another_form_arrive_as_unknown_members() {
    duologue_test_support::in_time(async {
        let listener = Listener::default();
        let (mut buyer, session) = played(signing(SELLER).handler(listener.clone())).await;
        let forms =
            [json!("see the mail"), json!([{ "url": "https://x" }]), json!({ "count": 2 }), json!(null)];
        for (step, form) in (1..).zip(forms) {
            let mut message = DialogueMessage::new(
                format!("m{step}"),
                "s1",
                BUYER,
                SELLER,
                began(),
                step,
                MessageType::Inform,
            );
            message.content.extra.insert("attachments", form.clone());
            let message = sign(&message, &Key::new("key-1", BUYER, [1; 32]).unwrap()).unwrap();
            let params = json!({ "sessionId": session, "message": message });
            let answer = buyer.request("_session/dialogue", params).await;
            assert_eq!(answer["result"]["receipt"]["status"], "delivered", "{answer}");
            let received: DialogueMessage = message.parse().unwrap();
            assert!(received.content.attachments.is_empty());
            let kept = received.content.extra.get::<Value>("attachments");
            assert_eq!(kept, Some(form).filter(|form| !form.is_null()));
            let again = serde_json::to_value(&received).unwrap();
            assert_eq!(again["content"].get("attachments"), kept.as_ref());
            // Attachments of our own replace it: the name is not written twice.
            let ours = received.content.attachment(Attachment::with_text("text/plain", "a"));
            assert!(ours.extra.is_empty() && ours.attachments.len() == 1);
        }
        while listener.heard().len() < 4 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn attachments_are_signed_and_arrive() {
    duologue_test_support::in_time(async {
        struct Viewer(Arc<Mutex<Vec<Attachment>>>);
        impl DialogueHandler for Viewer {
            async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
                self.0.lock().unwrap().extend(message.content.attachments.clone());
                if message.message_type == MessageType::Request {
                    dialogue.respond(DialogueContent::from("Seen.").attachment(table())).await?;
                }
                Ok(())
            }
        }
        fn table() -> Attachment {
            Attachment::with_text("text/csv", "a,b").metadata([("rows", 1)])
        }
        let seen = Arc::default();
        let seller = signing(SELLER).handler(Viewer(Arc::clone(&seen)));
        let (_connection, session) = connected(signing(BUYER), seller).await;
        let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
        let photo = Attachment::with_bytes("image/png", [0x89, 0, 0xff]).name("front.png");
        let content = DialogueContent::from("Look.").attachment(photo.clone()).attachment(table());
        let answer = dialogue.request(content).await.unwrap();
        assert_eq!(answer.content.attachments, [table()]);
        assert_eq!(*seen.lock().unwrap(), [photo, table()]);

        // An intermediary cannot exchange them.
        let listener = Listener::default();
        let (mut buyer, session) = played(signing(SELLER).handler(listener.clone())).await;
        let photo = Attachment::with_bytes("image/png", b"a Camry");
        let message = DialogueMessage::new("m1", "s1", BUYER, SELLER, began(), 1, MessageType::Inform)
            .content(DialogueContent::new().attachment(photo.clone()));
        let signed = sign(&message, &Key::new("key-1", BUYER, [1; 32]).unwrap()).unwrap();
        let other = Attachment::with_bytes("image/png", b"a Jeep?");
        let altered = signed.get().replace(photo.data.as_deref().unwrap(), other.data.as_deref().unwrap());
        for (text, is_accepted) in [(altered.as_str(), false), (signed.get(), true)] {
            let message: Json = serde_json::from_str(text).unwrap();
            let answer =
                buyer.request("_session/dialogue", json!({ "sessionId": session, "message": message })).await;
            assert_eq!(answer["result"]["receipt"].is_object(), is_accepted, "{answer}");
        }
    })
    .await;
}
