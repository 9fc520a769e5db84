//! Dialogue messages as text: every type of message, what answers one, what others may leave out.

use duologue_schema::dialogue::*;
use duologue_schema::export::extension_schemas;
use duologue_schema::{Json, Members, Request};
use insta::assert_snapshot;
use serde_json::{Value, json};

const BUYER: &str = "agent://home.example/buyer";
const SELLER: &str = "agent://cars.example/seller/used";

/// A message of the buyer; the types and what it says differ.
fn message(
    step: u64,
    kind: MessageType,
    act: Option<DialogueAct>,
    content: DialogueContent,
) -> DialogueMessage {
    let id = format!("m{step}");
    let message = DialogueMessage::new(id, "d1", BUYER, SELLER, "2026-03-01T12:00:00.000Z", step, kind);
    let message = message.content(content);
    match act {
        Some(act) => message.dialogue_act(act),
        None => message,
    }
}

fn says(words: &str) -> DialogueContent {
    DialogueContent::new().natural_language(words)
}

fn deal(price: u32) -> DialogueContent {
    let parameters = Members::from_iter([("price", json!(price))]);
    DialogueContent::new().domain("automotive.sales").task("negotiatePrice").parameters(parameters)
}

fn write(message: &DialogueMessage) -> String {
    let text = serde_json::to_string(message).unwrap();
    let read: DialogueMessage = serde_json::from_str(&text).unwrap();
    assert_eq!((&read, read.check()), (message, Ok(())));
    text
}

#[test]
fn every_type_of_message() {
    use MessageType::*;
    let act = Some;
    let looked_up = DialogueContent::new()
        .domain("automotive")
        .task("getCarDetails")
        .parameters(Members::from_iter([("vin", json!("12345ABCDEFG67890"))]));
    assert_snapshot!(write(&message(1, Query, act(DialogueAct::QuestionRef), looked_up.clone())), @r#"{"message_id":"m1","session_id":"d1","sender_id":"agent://home.example/buyer","recipient_id":"agent://cars.example/seller/used","timestamp":"2026-03-01T12:00:00.000Z","interaction_step":1,"message_type":"query","dialogue_act":"question-ref","content":{"previous_context":[],"domain":"automotive","task":"getCarDetails","parameters":{"vin":"12345ABCDEFG67890"}}}"#);
    assert_snapshot!(write(&message(2, Request, act(DialogueAct::RequestAction), looked_up)), @r#"{"message_id":"m2","session_id":"d1","sender_id":"agent://home.example/buyer","recipient_id":"agent://cars.example/seller/used","timestamp":"2026-03-01T12:00:00.000Z","interaction_step":2,"message_type":"request","dialogue_act":"request-action","content":{"previous_context":[],"domain":"automotive","task":"getCarDetails","parameters":{"vin":"12345ABCDEFG67890"}}}"#);
    let belief = Belief::new("vehicle:12345ABCDEFG67890", "price", json!(18000), 1.0);
    let told =
        says("It costs 18,000.").belief_updates(vec![belief.into()]).previous_context(vec!["m1".into()]);
    assert_snapshot!(write(&message(3, Response, act(DialogueAct::InformRef), told).parent_message_id("m1")), @r#"{"message_id":"m3","session_id":"d1","parent_message_id":"m1","sender_id":"agent://home.example/buyer","recipient_id":"agent://cars.example/seller/used","timestamp":"2026-03-01T12:00:00.000Z","interaction_step":3,"message_type":"response","dialogue_act":"inform-ref","content":{"previous_context":["m1"],"parameters":{},"natural_language":"It costs 18,000.","belief_updates":[{"entity":"vehicle:12345ABCDEFG67890","attribute":"price","value":18000,"confidence":1.0}]}}"#);
    assert_snapshot!(write(&message(4, Inform, act(DialogueAct::Greeting), says("Good day."))), @r#"{"message_id":"m4","session_id":"d1","sender_id":"agent://home.example/buyer","recipient_id":"agent://cars.example/seller/used","timestamp":"2026-03-01T12:00:00.000Z","interaction_step":4,"message_type":"inform","dialogue_act":"greeting","content":{"previous_context":[],"parameters":{},"natural_language":"Good day."}}"#);
    assert_snapshot!(write(&message(5, Confirm, None, DialogueContent::new()).parent_message_id("m4")), @r#"{"message_id":"m5","session_id":"d1","parent_message_id":"m4","sender_id":"agent://home.example/buyer","recipient_id":"agent://cars.example/seller/used","timestamp":"2026-03-01T12:00:00.000Z","interaction_step":5,"message_type":"confirm","content":{"previous_context":[],"parameters":{}}}"#);
    assert_snapshot!(write(&message(6, Propose, act(DialogueAct::Propose), deal(16000))), @r#"{"message_id":"m6","session_id":"d1","sender_id":"agent://home.example/buyer","recipient_id":"agent://cars.example/seller/used","timestamp":"2026-03-01T12:00:00.000Z","interaction_step":6,"message_type":"propose","dialogue_act":"propose","content":{"previous_context":[],"domain":"automotive.sales","task":"negotiatePrice","parameters":{"price":16000}}}"#);
    assert_snapshot!(write(&message(7, Reject, act(DialogueAct::Reject), deal(17500)).parent_message_id("m6")), @r#"{"message_id":"m7","session_id":"d1","parent_message_id":"m6","sender_id":"agent://home.example/buyer","recipient_id":"agent://cars.example/seller/used","timestamp":"2026-03-01T12:00:00.000Z","interaction_step":7,"message_type":"reject","dialogue_act":"reject","content":{"previous_context":[],"domain":"automotive.sales","task":"negotiatePrice","parameters":{"price":17500}}}"#);
    assert_snapshot!(write(&message(8, Accept, act(DialogueAct::Accept), deal(17500)).parent_message_id("m7")), @r#"{"message_id":"m8","session_id":"d1","parent_message_id":"m7","sender_id":"agent://home.example/buyer","recipient_id":"agent://cars.example/seller/used","timestamp":"2026-03-01T12:00:00.000Z","interaction_step":8,"message_type":"accept","dialogue_act":"accept","content":{"previous_context":[],"domain":"automotive.sales","task":"negotiatePrice","parameters":{"price":17500}}}"#);
    assert_snapshot!(write(&message(9, Clarify, act(DialogueAct::QuestionYn), says("With tyres?"))), @r#"{"message_id":"m9","session_id":"d1","sender_id":"agent://home.example/buyer","recipient_id":"agent://cars.example/seller/used","timestamp":"2026-03-01T12:00:00.000Z","interaction_step":9,"message_type":"clarify","dialogue_act":"question-yn","content":{"previous_context":[],"parameters":{},"natural_language":"With tyres?"}}"#);
    assert_snapshot!(write(&message(10, Update, None, says("Half of it is paid."))), @r#"{"message_id":"m10","session_id":"d1","sender_id":"agent://home.example/buyer","recipient_id":"agent://cars.example/seller/used","timestamp":"2026-03-01T12:00:00.000Z","interaction_step":10,"message_type":"update","content":{"previous_context":[],"parameters":{},"natural_language":"Half of it is paid."}}"#);
    let failed = ErrorContent::of(DialogueErrorCode::Timeout, "the database did not answer")
        .about(&Json::new(&message(2, Request, None, DialogueContent::new())).unwrap());
    assert_snapshot!(write(&message(11, Error, None, failed.into()).parent_message_id("m2")), @r#"{"message_id":"m11","session_id":"d1","parent_message_id":"m2","sender_id":"agent://home.example/buyer","recipient_id":"agent://cars.example/seller/used","timestamp":"2026-03-01T12:00:00.000Z","interaction_step":11,"message_type":"error","content":{"previous_context":[],"parameters":{},"error_code":"TIMEOUT","error_message":"the database did not answer","details":{},"failed_message_id":"m2","failed_session_id":"d1","failed_sender_id":"agent://home.example/buyer","failed_recipient_id":"agent://cars.example/seller/used"}}"#);
    assert_snapshot!(write(&message(12, Termination, act(DialogueAct::Closing), DialogueContent::new())), @r#"{"message_id":"m12","session_id":"d1","sender_id":"agent://home.example/buyer","recipient_id":"agent://cars.example/seller/used","timestamp":"2026-03-01T12:00:00.000Z","interaction_step":12,"message_type":"termination","dialogue_act":"closing","content":{"previous_context":[],"parameters":{}}}"#);
}

#[test]
fn members_around_a_message() {
    let metadata = DialogueMetadata::new()
        .priority(8)
        .ttl(300)
        .correlation_id("c1")
        .routing_key("sales.used")
        .parent_session_id("d0")
        .parent_message_id("m9");
    let message =
        message(1, MessageType::Inform, None, DialogueContent::new()).metadata(metadata).signature("h..s");
    assert_snapshot!(write(&message), @r#"{"message_id":"m1","session_id":"d1","sender_id":"agent://home.example/buyer","recipient_id":"agent://cars.example/seller/used","timestamp":"2026-03-01T12:00:00.000Z","interaction_step":1,"message_type":"inform","content":{"previous_context":[],"parameters":{}},"metadata":{"priority":8,"ttl":300,"correlation_id":"c1","routing_key":"sales.used","parent_session_id":"d0","parent_message_id":"m9"},"signature":"h..s"}"#);
    let request = DialogueRequest::new("s1", Json::new(&message).unwrap());
    assert_eq!(DialogueRequest::METHOD, "_session/dialogue");
    assert_eq!(serde_json::to_value(&request).unwrap(), json!({"sessionId": "s1", "message": message}));
    let taken = DialogueResponse::accepted(Receipt::new("m1", "d1"));
    assert_snapshot!(serde_json::to_string(&taken).unwrap(), @r#"{"receipt":{"message_id":"m1","session_id":"d1","duplicate":false,"status":"delivered"}}"#);
    let twice = Receipt::new("m1", "d1").duplicate(true).status(ReceiptStatus::Held);
    assert_snapshot!(serde_json::to_string(&DialogueResponse::accepted(twice)).unwrap(), @r#"{"receipt":{"message_id":"m1","session_id":"d1","duplicate":true,"status":"held"}}"#);
    let refused = DialogueResponse::rejected(Json::new(&json!({"message_type": "error"})).unwrap());
    assert_snapshot!(serde_json::to_string(&refused).unwrap(), @r#"{"error":{"message_type":"error"}}"#);
}

/// The signature covers the text, so no byte of it may change on its way.
#[test]
fn a_message_travels_as_it_was_written() {
    let text = r#"{"sessionId":"s","message":{ "signature":"x", "message_id":"m","n":1.50,"n2":1e2 }}"#;
    let request: DialogueRequest = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&request).unwrap(), text);
}

#[test]
fn unknown_members_of_a_message_are_kept() {
    let text = r#"{"message_id":"m1","session_id":"d1","sender_id":"agent://a","recipient_id":"agent://b","timestamp":"t","interaction_step":1,"message_type":"sing","dialogue_act":"hum","content":{"previous_context":[],"parameters":{"b":1,"a":{"c":1.50}},"mood":"kind"},"metadata":{"hops":[1]},"colour":"blue"}"#;
    let message: DialogueMessage = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&message).unwrap(), text);
    assert_eq!(message.content.extra.get::<String>("mood").as_deref(), Some("kind"));
    assert_eq!(message.message_type, MessageType::Unknown("sing".into()));
}

#[test]
fn optional_members_of_a_message() {
    let full: Value =
        serde_json::to_value(message(1, MessageType::Inform, None, DialogueContent::new())).unwrap();
    let required = [
        "message_id",
        "session_id",
        "sender_id",
        "recipient_id",
        "timestamp",
        "interaction_step",
        "message_type",
    ];
    for field in required {
        let mut value = full.clone();
        value.as_object_mut().unwrap().remove(field);
        let error = serde_json::from_str::<DialogueMessage>(&value.to_string()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("missing field `{field}`")), "{error}");
    }
    let mut bare = full.clone();
    bare.as_object_mut().unwrap().retain(|key, _| required.contains(&key.as_str()));
    let read = |value: &Value| serde_json::from_str::<DialogueMessage>(&value.to_string()).unwrap();
    assert_eq!(read(&bare), read(&full));
    for absent in ["parent_message_id", "dialogue_act", "metadata", "signature"] {
        bare[absent] = Value::Null;
    }
    bare["content"] =
        json!({"previous_context": null, "parameters": null, "belief_updates": null, "task": null});
    assert_eq!(read(&bare), read(&full));
}

#[test]
fn the_schema_names_every_type_and_act() {
    let extension_schemas = extension_schemas();
    let document = extension_schemas.iter().find(|scheme| scheme.name == "dialogue").unwrap().document();
    let names = |definition: &str, key: &str| -> Vec<String> {
        let all = document["$defs"][definition][key].as_array().unwrap();
        all.iter().filter_map(|name| name["const"].as_str()).map(str::to_owned).collect()
    };
    assert_snapshot!(names("MessageType", "oneOf").join(" "), @"request response inform confirm propose accept reject clarify query update error termination");
    assert_snapshot!(names("DialogueAct", "anyOf").join(" "), @"inform-ref inform-if question-ref question-yn request-action propose accept reject greeting closing");
    assert_snapshot!(names("DialogueErrorCode", "anyOf").join(" "), @"INVALID_PARAMETER UNAUTHORIZED EXPIRED CONFLICT NOT_FOUND OVERLOADED TIMEOUT SERVER_ERROR");
}
