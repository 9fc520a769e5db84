//! Dialogue messages and work orders as other implementations write them: another order of members,
//! unknown members, other spellings of numbers, ids of any form. They are decoded, verified, answered
//! and encoded again.

use std::sync::Mutex;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use duologue_agent::exchange::dialogue::{
    COUNTER_OFFER, Dialogue, DialogueHandler, Dialogues, Error, Key, Keys, VerifiedMessage,
};
use duologue_agent::exchange::envelope::EnvelopeError;
use duologue_agent::exchange::work::{
    Artifact, ArtifactOperation, Recommendation, WorkInput, WorkOrder, WorkOutput,
};
use duologue_agent::{Agent, Exchange, Prompt, Server, StopReason, Turn};
use duologue_client::Client;
use duologue_schema::Json;
use duologue_schema::dialogue::{DialogueContent, DialogueMessage, MessageType};
use duologue_test_support::{Wire, client_of, over_every_wire};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use tokio::sync::mpsc;

over_every_wire!(
    foreign_messages_are_verified_and_answered,
    a_foreign_order_is_performed,
    a_foreign_output_is_read
);

const BUYER: &str = "agent://home.example/buyer";
const SELLER: &str = "agent://cars.example/seller";
const SECRET: [u8; 32] = [5; 32];

/// A message of each type, its id, and the type of our answer. `$time` is the present, `$parent` the
/// id of our last message.
const MESSAGES: [(&str, &str, Option<&str>); 12] = [
    // A UUID, the step with a fraction, and unknown members everywhere.
    (
        "6f1c9b1e-7a52-4f0e-9d3f-0d5a4c1e2b3a",
        r#"{"interaction_step": 1.0, "message_type": "request", "x_trace": [1, {"deep": null}],
            "content": {"natural_language": "Is the Camry still there?", "parameters": {"year": 2.023e3, "make": "Toyota"},
                "task": "getCarDetails", "domain": "automotive.sales", "mood": {"curious": true}},
            "metadata": {"ttl": 3.6e3, "priority": 10, "lane": "fast", "correlation_id": "c-1"},
            "dialogue_act": "x-polite-request", "timestamp": "$time"}"#,
        Some("response"),
    ),
    // Hexadecimal digits, and a timestamp with another offset.
    (
        "0a1b2c3d4e5f60718293a4b5c6d7e8f9",
        r#"{"message_type": "query", "interaction_step": 3e0, "timestamp": "$time",
            "content": {"previous_context": ["6f1c9b1e-7a52-4f0e-9d3f-0d5a4c1e2b3a"], "parameters": {}}}"#,
        Some("response"),
    ),
    // A ULID. Its offer has escapes and a negative exponent.
    (
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        r#"{"message_type": "propose", "interaction_step": 5, "timestamp": "$time", "dialogue_act": "propose",
            "content": {"parameters": {"offer_price": 160000e-1, "note": "caf\u00e9 \ud83d\ude97 \/"}}}"#,
        Some("reject"),
    ),
    (
        "msg_004",
        r#"{"message_type": "accept", "parent_message_id": "$parent", "interaction_step": 7, "timestamp": "$time",
            "content": {"parameters": {"price": 17000}, "attachments": []}}"#,
        None,
    ),
    // A greeting that our side answers with an offer.
    (
        "grüße/№5",
        r#"{"timestamp": "$time", "content": {"belief_updates": [
                {"confidence": 1, "value": 15000.50, "attribute": "mileage", "entity": "vehicle:1", "source": "ad"},
                "a belief of another form"]},
            "message_type": "inform", "interaction_step": 8}"#,
        Some("propose"),
    ),
    (
        "urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        r#"{"message_type": "reject", "parent_message_id": "$parent", "interaction_step": 10, "timestamp": "$time",
            "content": {"parameters": {"counter_offer": {"price": 1.65e4}}, "natural_language": "Less."}}"#,
        None,
    ),
    // Our side answers with a question, which the next message answers.
    (
        "7",
        r#"{"message_type": "confirm", "parent_message_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "interaction_step": 11,
            "timestamp": "$time", "content": {}}"#,
        Some("query"),
    ),
    (
        "a.b-c~d!e",
        r#"{"message_type": "response", "parent_message_id": "$parent", "interaction_step": 13, "timestamp": "$time",
            "content": {"domain": "other", "attachments": [
                {"metadata": {"width": 1}, "data": "iVBORw==", "mime_type": "image/png", "alt": "a car"}]}}"#,
        None,
    ),
    (
        "clarify me",
        r#"{"message_type": "clarify", "parent_message_id": "$parent", "interaction_step": 14, "timestamp": "$time",
            "content": {"natural_language": ""}}"#,
        None,
    ),
    (
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        r#"{"message_type": "update", "parent_message_id": "$parent", "interaction_step": 15, "timestamp": "$time",
            "content": {"parameters": {"progress": 0.5e2, "done": false}}}"#,
        None,
    ),
    (
        "{\"json\":1}",
        r#"{"message_type": "error", "interaction_step": 16, "timestamp": "$time",
            "content": {"error_code": "OUT_OF_FUEL", "error_message": "Empty.", "retryable": "perhaps",
                "details": {"litres": -0.0}, "failed_message_id": "$parent"}}"#,
        None,
    ),
    (
        "the-end",
        r#"{"message_type": "termination", "interaction_step": 17.0, "timestamp": "$time", "dialogue_act": "closing",
            "content": {"natural_language": "Goodbye."}, "metadata": {}}"#,
        None,
    ),
];

fn canonical(json: &Value) -> String {
    serde_json_canonicalizer::to_string(json).unwrap()
}

/// Returns the text of a message, and its signature by other code than ours.
fn written(id: &str, text: &str, parent: &str) -> (String, String) {
    let quoted = |text: &str| Value::from(text).to_string();
    let text = text.replace("$time", &jiff::Timestamp::now().to_string()).replace("$parent", parent);
    // The common members stand at the end.
    let rest = format!(
        r#", "recipient_id": "{SELLER}", "session_id": "s 1/ü", "sender_id": "{BUYER}", "message_id": {}"#,
        quoted(id)
    );
    let unsigned = format!("{}{rest}}}", text.trim_end().strip_suffix('}').unwrap());
    let header = URL_SAFE_NO_PAD.encode(r#"{"typ":"dialogue", "kid":"foreign", "alg":"HS256"}"#);
    let payload = URL_SAFE_NO_PAD.encode(canonical(&serde_json::from_str(&unsigned).unwrap()));
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&SECRET).unwrap();
    mac.update(format!("{header}.{payload}").as_bytes());
    let signature = format!("{header}..{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()));
    let signed = format!(r#"{{"signature": {}, {}"#, quoted(&signature), unsigned.strip_prefix('{').unwrap());
    (signed.replace('\n', " "), signature)
}

#[test]
fn foreign_messages_lose_nothing() {
    let mut kinds = Vec::new();
    for (id, text, _) in MESSAGES {
        let (text, signature) = written(id, text, "p");
        let message: DialogueMessage =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{id}: {error}"));
        assert_eq!((message.check(), message.message_id.as_str()), (Ok(()), id));
        assert_eq!(message.signature, Some(signature));
        let mut again = serde_json::to_value(&message).unwrap();
        let mut original: Value = serde_json::from_str(&text).unwrap();
        // Empty members are written or left out. Everything else is the same.
        for value in [&mut again, &mut original] {
            let fill = |object: &mut Value, key: &str, value: Value| {
                object.as_object_mut().unwrap().entry(key).or_insert(value);
            };
            fill(value, "metadata", json!({}));
            for (key, empty) in
                [("previous_context", json!([])), ("parameters", json!({})), ("attachments", json!([]))]
            {
                fill(&mut value["content"], key, empty);
            }
        }
        assert_eq!(canonical(&again), canonical(&original), "{id}");
        kinds.push(message.message_type.to_string());
    }
    kinds.sort();
    kinds.dedup();
    assert_eq!(kinds.len(), 12, "{kinds:?}");
}

/// Answers each type of message as the table says.
struct Answering(mpsc::UnboundedSender<String>);

impl DialogueHandler for Answering {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        assert_eq!(message.key_id.as_deref(), Some("foreign"));
        let _ = self.0.send(message.message_id.to_string());
        match message.message_type {
            MessageType::Request | MessageType::Query => _ = dialogue.respond("Yes.").await?,
            MessageType::Propose => {
                assert_eq!(message.parameter::<f64>("offer_price").unwrap(), 16_000.0);
                let more = DialogueContent::new().parameter(COUNTER_OFFER, json!({ "price": 17_000 }));
                dialogue.reject(more).await?;
            }
            MessageType::Inform => {
                let belief = message.content.beliefs().next().expect("a belief");
                assert_eq!((belief.confidence, belief.value.parse::<f64>().unwrap()), (1.0, 15_000.5));
                dialogue.propose("16,500?").await?;
            }
            MessageType::Confirm => _ = dialogue.query("Which colour?").receipt().await?,
            MessageType::Response => {
                assert_eq!(&*message.content.attachments[0].bytes().unwrap(), b"\x89PNG")
            }
            MessageType::Error => assert!(!message.content.error().unwrap().is_retryable()),
            _ => {}
        }
        Ok(())
    }
}

struct Idle;

impl Agent for Idle {
    async fn prompt(&self, _: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        Ok(StopReason::EndTurn)
    }
}

async fn foreign_messages_are_verified_and_answered(wire: Wire) {
    let keys = Keys::new();
    keys.insert(Key::new("foreign", BUYER, SECRET).unwrap()).unwrap();
    keys.insert(Key::new("ours", SELLER, [6; 32]).unwrap()).unwrap();
    let (sender, mut handled) = mpsc::unbounded_channel();
    let seller = Dialogues::new(SELLER).unwrap().keys(keys).handler(Answering(sender));
    let (transport, mut buyer) = wire.scripted();
    tokio::spawn(Server::new(Idle).exchange(Exchange::new().dialogue(seller)).serve(transport));
    buyer.initialize(json!({ "_meta": { "duologue": { "dialogue": { "later": [1] } } } })).await;
    let session = buyer.new_session().await;
    let mut parent = String::from("none");
    for (step, (id, text, answer)) in MESSAGES.into_iter().enumerate() {
        let (text, _) = written(id, text, &parent);
        let message: Json = serde_json::from_str(&text).unwrap();
        let params = json!({ "sessionId": session, "message": null }).to_string();
        let params = params.replace("null", message.get());
        let line =
            format!(r#"{{"params":{params},"method":"_session/dialogue","id":{step},"jsonrpc":"2.0"}}"#);
        buyer.send(line).await;
        let response = buyer.next_message().await;
        let receipt = &response["result"]["receipt"];
        assert_eq!(receipt["message_id"], id, "{response}");
        // Our side may have our receipt on record a moment later.
        assert!(["delivered", "held"].contains(&receipt["status"].as_str().unwrap()), "{response}");
        assert_eq!(handled.recv().await.as_deref(), Some(id));
        let Some(kind) = answer else { continue };
        let request = buyer.expect("_session/dialogue").await;
        let message = &request["params"]["message"];
        assert_eq!((&message["message_type"], &message["session_id"]), (&json!(kind), &json!("s 1/ü")));
        assert!(message["signature"].is_string(), "{message}");
        // The receipt of another implementation leaves out the members with defaults.
        let receipt = json!({ "session_id": "s 1/ü", "message_id": message["message_id"], "node": 7 });
        buyer.respond(&request, json!({ "receipt": receipt })).await;
        parent = message["message_id"].as_str().unwrap().to_owned();
    }
}

/// An order and an output of another implementation.
const ORDER: &str = r#"{"prior_context": ["text", {"any": ["json", 1.0]}, 7], "task": {"params": {"depth": 2.0},
    "deadline": "soon", "action": "specify"}, "paths": {"request": "requests/login.md", "feature_root": "features/login"},
    "context": {"iteration": 2.0, "branch": "main", "workflow": "feature", "feature_id": "login"}, "priority": 3}"#;
const OUTPUT: &str = r##"{"recommendation": "proceed", "notes": null, "cost": {"usd": 1e-2}, "artifacts": [
    {"content": "# Caf\u00e9\n", "mode": "0644", "path": "./spec.md", "operation": "create"},
    {"operation": "update", "path": "features/login/old.md", "content": ""}], "summary": "", "success": true}"##;

#[test]
fn foreign_orders_and_outputs_lose_nothing() {
    let input: WorkInput = serde_json::from_str(ORDER).unwrap();
    assert_eq!((input.context.iteration, input.prior_context.len()), (2, 3));
    assert_eq!(input.paths.feature_root(), Some("features/login"));
    let output: WorkOutput = serde_json::from_str(OUTPUT).unwrap();
    assert_eq!(output.artifacts[1].operation, ArtifactOperation::Update);
    let again = [serde_json::to_value(&input).unwrap(), serde_json::to_value(&output).unwrap()];
    for (again, text) in again.iter().zip([ORDER, OUTPUT]) {
        let mut original: Value = serde_json::from_str(text).unwrap();
        original.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        assert_eq!(canonical(again), canonical(&original));
    }
}

async fn a_foreign_order_is_performed(wire: Wire) {
    let (sender, mut orders) = mpsc::unbounded_channel();
    let worker = move |order: WorkOrder| {
        let _ = sender.send(order.input);
        let artifact = Artifact::create("spec.md", "# Login\n");
        std::future::ready(Ok::<_, EnvelopeError>(WorkOutput::new(
            true,
            "",
            [artifact],
            Recommendation::Proceed,
        )))
    };
    let (transport, mut client) = wire.scripted();
    tokio::spawn(Server::new(Idle).exchange(Exchange::new().work(worker)).serve(transport));
    client.initialize(json!({})).await;
    let line = r#"{"id":"a-1","params":{"extra":[],"input":$order,"_meta":{}},"jsonrpc":"2.0","method":"_session/work"}"#;
    client.send(line.replace("$order", &ORDER.replace('\n', " "))).await;
    let answer = client.next_message().await;
    assert_eq!(
        (&answer["id"], &answer["result"]["output"]["recommendation"]),
        (&json!("a-1"), &json!("proceed"))
    );
    let input = orders.recv().await.unwrap();
    assert_eq!(input, serde_json::from_str(ORDER).unwrap());
    assert_eq!(input.task.params.get::<f64>("depth"), Some(2.0));

    let wrong =
        line.replace("$order", &ORDER.replace("2.0, \"branch\"", "\"two\", \"branch\"").replace('\n', " "));
    client.send(wrong).await;
    let answer = client.next_message().await;
    assert_eq!(answer["error"]["message"], "_session/work: field `iteration` must be an integer");
}

async fn a_foreign_output_is_read(wire: Wire) {
    let can = json!({ "_meta": { "duologue": { "work": { "later": 1 } } } });
    let (client, mut agent) = client_of(wire, Client::new(()), can).await;
    let input: WorkInput = serde_json::from_str(ORDER).unwrap();
    let received = Mutex::new(None);
    let (output, ()) = tokio::join!(client.peer_agent().work(input).into_future(), async {
        let request = agent.expect("_session/work").await;
        let result = format!(r#"{{"later":{{}},"output":{OUTPUT}}}"#).replace('\n', " ");
        agent.send(format!(r#"{{"result":{result},"id":{},"jsonrpc":"2.0"}}"#, request["id"])).await;
        *received.lock().unwrap() = Some(request["params"]["input"].clone());
    });
    assert_eq!(output.unwrap(), serde_json::from_str(OUTPUT).unwrap());
    let received = received.into_inner().unwrap().unwrap();
    assert_eq!(canonical(&received), canonical(&serde_json::from_str(ORDER).unwrap()));
}
