//! Messages of a hostile peer, line by line. None of them reaches a handler, in either direction. Each gets an error that
//! nobody can forward as a message of the seller.

use std::sync::Arc;

use duologue_agent::exchange::dialogue::{
    AllowList, AllowRule, Dialogue, DialogueHandler, Dialogues, Error, Key, Keys, VerifiedMessage, sign,
};
use duologue_agent::{Agent, Exchange, Prompt, Server, StopReason, Turn};
use duologue_client::Client;
use duologue_schema::Json;
use duologue_schema::dialogue::{DialogueContent, DialogueMessage, DialogueMetadata, MessageType};
use duologue_test_support::{ScriptedPeer, Wire, over_every_wire};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::mpsc;

const BUYER: &str = "agent://buyer.example";
const SELLER: &str = "agent://seller.example";

over_every_wire!(an_agent_handles_only_verified_messages, a_client_handles_only_verified_messages);

async fn an_agent_handles_only_verified_messages(wire: Wire) {
    let (seller, heard) = seller();
    let (transport, mut buyer) = wire.scripted();
    tokio::spawn(Server::new(Idle).exchange(Exchange::new().dialogue(seller)).serve(transport));
    let answer = buyer.initialize(json!({})).await;
    assert_eq!(answer["result"]["agentCapabilities"]["_meta"]["duologue"]["dialogue"], json!({}));
    let session = buyer.new_session().await;
    try_everything(&mut buyer, &session, heard).await;
}

async fn a_client_handles_only_verified_messages(wire: Wire) {
    let (seller, heard) = seller();
    let client = Client::new(()).exchange(Exchange::new().dialogue(seller));
    let (connection, mut buyer) = duologue_test_support::client_of(wire, client, json!({})).await;
    let (session, ()) = tokio::join!(connection.new_session("/tmp"), buyer.accept_session("s"));
    let _session = session.expect("a session");
    try_everything(&mut buyer, "s", heard).await;
}

/// Sends messages that must be rejected, and valid ones in between.
async fn try_everything(buyer: &mut ScriptedPeer, session: &str, mut heard: mpsc::UnboundedReceiver<String>) {
    let key = Key::new("buyer-1", BUYER, [1; 32]).unwrap();
    let signed = |message: &DialogueMessage| sign(message, &key).unwrap().get().to_owned();
    let good = message("good", "getCarDetails");

    let thief = Key::new("buyer-1", BUYER, [9; 32]).unwrap();
    let unknown = Key::new("buyer-2", BUYER, [1; 32]).unwrap();
    let seller = Key::new("seller-1", BUYER, [2; 32]).unwrap();
    let late = at(message("late", "getCarDetails"), -3600).metadata(DialogueMetadata::new().ttl(60));
    let early = at(message("early", "getCarDetails"), 3600);
    let mut elsewhere = message("elsewhere", "getCarDetails");
    elsewhere.recipient_id = "agent://else.example".into();
    let mut nameless = message("nameless", "getCarDetails");
    nameless.message_id = "".into();
    let with =
        |member: &str| signed(&message("odd", "getCarDetails")).replacen('{', &format!("{{{member},"), 1);

    let bad = [
        ("unsigned", Json::new(&good).unwrap().get().to_owned(), "UNAUTHORIZED"),
        ("signed with another secret", sign(&good, &thief).unwrap().get().to_owned(), "UNAUTHORIZED"),
        ("signed with an unknown key", sign(&good, &unknown).unwrap().get().to_owned(), "UNAUTHORIZED"),
        ("signed with another's key", sign(&good, &seller).unwrap().get().to_owned(), "UNAUTHORIZED"),
        ("altered", signed(&good).replace("getCarDetails", "negotiatePrice"), "UNAUTHORIZED"),
        ("given a field", with(r#""mood":"good""#), "UNAUTHORIZED"),
        ("not allowed", signed(&message("m", "deleteEverything")), "UNAUTHORIZED"),
        ("expired", signed(&late), "EXPIRED"),
        ("from the future", signed(&early), "INVALID_PARAMETER"),
        ("for somebody else", signed(&elsewhere), "NOT_FOUND"),
        ("without an id", signed(&nameless), "INVALID_PARAMETER"),
        ("two values for a key", with(r#""message_type":"accept""#), "INVALID_PARAMETER"),
        ("a big integer", with(r#""n":9007199254740993"#), "INVALID_PARAMETER"),
        ("no message", "[]".to_owned(), "INVALID_PARAMETER"),
        ("nothing", "null".to_owned(), "INVALID_PARAMETER"),
    ];
    for (what, text, code) in bad {
        let answer = dialogue(buyer, session, &text).await;
        let error = refusal(&answer["result"]["error"]);
        assert_eq!(error["error_code"], code, "{what}: {answer}");
        assert!(answer["result"]["receipt"].is_null(), "{what}: {answer}");
    }

    let receipt = dialogue(buyer, session, &signed(&good)).await;
    assert_eq!(receipt["result"]["receipt"]["message_id"], "good", "{receipt}");
    assert_eq!(receipt["result"]["receipt"]["duplicate"], false);
    assert_eq!(heard.recv().await.as_deref(), Some("good"));

    // Once more, in another spelling even, it is acknowledged and no more.
    let respelled =
        format!("{:#}", serde_json::from_str::<Value>(&signed(&good)).unwrap()).replace('\n', " ");
    for again in [signed(&good), respelled] {
        let receipt = dialogue(buyer, session, &again).await;
        assert_eq!(receipt["result"]["receipt"]["duplicate"], true, "{receipt}");
    }
    let other = signed(&message("good", "negotiatePrice"));
    let answer = dialogue(buyer, session, &other).await;
    assert_eq!(refusal(&answer["result"]["error"])["error_code"], "CONFLICT", "{answer}");

    let receipt = dialogue(buyer, session, &signed(&message("last", "negotiatePrice"))).await;
    assert_eq!(receipt["result"]["receipt"]["duplicate"], false, "{receipt}");
    assert_eq!(heard.recv().await.as_deref(), Some("last"));
    assert!(heard.try_recv().is_err());
}

/// Returns the content of a rejection. It is not signed: otherwise a peer could obtain a signature by sending nonsense, and
/// replay it elsewhere.
fn refusal(message: &Value) -> Value {
    let refusal: DialogueMessage = Json::from(message.clone()).parse().expect("a message");
    assert_eq!(refusal.message_type, MessageType::Error);
    assert_eq!(refusal.sender_id, SELLER);
    assert_eq!(refusal.signature, None);
    serde_json::to_value(&refusal.content).unwrap()
}

/// Sends a message as it stands.
async fn dialogue(buyer: &mut ScriptedPeer, session: &str, message: &str) -> Value {
    buyer
        .send(format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"_session/dialogue","params":{{"sessionId":{},"message":{message}}}}}"#,
            Value::from(session),
        ))
        .await;
    buyer.next_message().await
}

/// A request in a dialogue of its own.
fn message(id: &str, task: &str) -> DialogueMessage {
    let message = DialogueMessage::new(id, id, BUYER, SELLER, "", 1, MessageType::Request);
    at(message, 0).content(DialogueContent::new().domain("automotive.sales").task(task))
}

/// The message as if it was sent so many seconds after now.
fn at(mut message: DialogueMessage, seconds: i64) -> DialogueMessage {
    message.timestamp = (Timestamp::now() + SignedDuration::from_secs(seconds)).to_string();
    message
}

fn keys() -> Arc<Keys> {
    let keys = Keys::new();
    keys.insert(Key::new("buyer-1", BUYER, [1; 32]).unwrap()).unwrap();
    keys.insert(Key::new("seller-1", SELLER, [2; 32]).unwrap()).unwrap();
    Arc::new(keys)
}

/// The seller, and the ids of what it hears.
fn seller() -> (Arc<Dialogues>, mpsc::UnboundedReceiver<String>) {
    let (sender, heard) = mpsc::unbounded_channel();
    let list = AllowList::new().rule(AllowRule::sender(BUYER).task("getCarDetails").task("negotiatePrice"));
    let seller = Dialogues::new(SELLER).unwrap().keys(keys()).allow(list).handler(Listener(sender));
    (Arc::new(seller), heard)
}

struct Listener(mpsc::UnboundedSender<String>);

impl DialogueHandler for Listener {
    async fn message(&self, _: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        self.0.send(message.message_id.to_string()).map_err(Error::other)
    }
}

struct Idle;

impl Agent for Idle {
    async fn prompt(&self, _: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        Ok(StopReason::EndTurn)
    }
}
