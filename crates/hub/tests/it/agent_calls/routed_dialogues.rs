//! Dialogues of agents with each other through the hub. The agents are processes of this program and know the SDK alone.

use std::net::SocketAddr;

use duologue_agent::exchange::dialogue::{
    Backoff, Dialogue, DialogueHandler, DialogueOptions, Dialogues, Error, Key, KeyStore as _, Keys,
    PublishedKey, PublishedKeys, VerifiedMessage,
};
use duologue_agent::schema::Json;
use duologue_agent::schema::dialogue::{DialogueContent, DialogueRequest, MessageType};
use duologue_agent::{Agent, Exchange, PeerAgent, Prompt, Server, StopReason, Turn};
use duologue_test_support::in_time;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::{agent, run};
use crate::remote_agents::{ended_task, until};
use crate::rest::world::{ADMIN, ALICE, RestWorld};

/// The variable that makes this program an agent with dialogues. Its value is the id of the agent.
const AGENT: &str = "DUOLOGUE_HUB_TEST_PARTY";
/// The variable that gives the agent a private key, and lets it take the public keys of others from their cards.
const PUBLIC: &str = "DUOLOGUE_HUB_TEST_PUBLIC_KEYS";
/// The variable with the address of a socket, for whose end the agent `details` waits before it answers.
const SOCKET: &str = "DUOLOGUE_HUB_TEST_SOCKET";

#[test]
fn agent_process() {
    let Ok(id) = std::env::var(AGENT) else { return };
    let own = format!("agent://{id}");
    let keys = match std::env::var_os(PUBLIC) {
        Some(_) => PublishedKeys::with_public_keys(private_key(&id)),
        None => PublishedKeys::new(keys(&own)),
    };
    let dialogues = Dialogues::new(&own).unwrap().keys(keys).backoff(Backoff::never()).handler(Party);
    let server = Server::new(Party).exchange(Exchange::new().dialogue(dialogues));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { server.serve_stdio().await }).unwrap();
}

/// The keys between an agent and the others, one for each direction.
fn keys(own: &str) -> Keys {
    let keys = Keys::new();
    for other in ["agent://buyer", "agent://seller", "agent://details", "agent://hidden", "agent://mortal"] {
        for (owner, peer) in [(own, other), (other, own)] {
            let name = format!("{owner} to {peer}");
            let secret: Vec<u8> = name.bytes().cycle().take(64).collect();
            // The agent has none with itself.
            let _ = keys.insert(Key::new(name, owner, secret).unwrap().with(peer).unwrap());
        }
    }
    keys
}

/// The only key of an agent with a private key. All of them have the same id.
fn private_key(agent: &str) -> Keys {
    let private: Vec<u8> = agent.bytes().cycle().take(32).collect();
    let keys = Keys::new();
    keys.insert(Key::ed25519("main", format!("agent://{agent}"), private).unwrap()).unwrap();
    keys
}

/// An agent whose prompts are commands, and which answers the messages of others.
struct Party;

impl Agent for Party {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
        let text = prompt.text();
        let (command, rest) = text.split_once(' ').unwrap();
        let peer = turn.session().peer_agent();
        let answer = match command {
            "buy" => buy(&peer, rest).await.unwrap_or_else(|error| error.to_string()),
            "raw" => raw(&peer, rest).await,
            "twice" => {
                let first = buy(&peer, &format!("agent://seller {rest}")).await.unwrap();
                let second = buy(&peer, &format!("agent://seller {rest}-2")).await.unwrap_err();
                format!("{first}, {second}")
            }
            "find" => {
                let found = peer.addressed_to("agent://*?capability=cars").discover().await.unwrap();
                let agents: Vec<Value> = found.extra.get("agents").unwrap();
                let address = agents[0]["address"].as_str().unwrap();
                format!("{address} {}", buy(&peer, &format!("{address} {rest}")).await.unwrap())
            }
            "huge" => {
                let message = json!({
                    "session_id": rest, "sender_id": "agent://seller", "recipient_id": "agent://buyer",
                    "message_type": "inform", "content": "x".repeat(1 << 20),
                });
                raw(&peer, &message.to_string()).await
            }
            "flood" => flood(&peer, rest).await,
            "hold" => {
                let (other, id) = rest.split_once(' ').unwrap();
                let dialogue = peer.dialogue_with(other, DialogueOptions::new().id(id)).unwrap();
                dialogue.request("What is its price?").await.unwrap();
                std::future::pending().await
            }
            _ => panic!("unknown command {text:?}"),
        };
        turn.message().push(answer).await?;
        Ok(StopReason::EndTurn)
    }
}

/// Asks an agent for a price, and accepts the last one. `text` is the address and the id of the dialogue.
async fn buy(peer: &PeerAgent, text: &str) -> Result<String, Error> {
    let (seller, id) = text.split_once(' ').unwrap();
    let dialogue = peer.dialogue_with(seller, DialogueOptions::new().id(id))?;
    let answer = dialogue.request(DialogueContent::new().parameter("car", json!("Camry"))).await?;
    let price: u32 = answer.parameter("price")?;
    let offer = DialogueContent::new().parameter("price", json!(price - 500));
    let end = dialogue.propose(offer).answer().await?;
    dialogue.terminate("Thank you.").await?;
    Ok(format!("{price} {}", end.message_type.as_str()))
}

/// Sends a message as it is, and returns the error of its response or the receipt.
async fn raw(peer: &PeerAgent, message: &str) -> String {
    let message: Json = serde_json::from_str(message).unwrap();
    let request = DialogueRequest::new(peer.session().unwrap().clone(), message);
    match peer.rpc().request(&request).await {
        Ok(response) => serde_json::to_string(&response).unwrap(),
        Err(error) => error.to_string(),
    }
}

/// Opens dialogues until one is refused, and returns their number and the reason.
async fn flood(peer: &PeerAgent, id: &str) -> String {
    let mut open = Vec::new();
    loop {
        let options = DialogueOptions::new().id(format!("{id}-{}", open.len()));
        let dialogue = peer.dialogue_with("agent://details", options).unwrap();
        match dialogue.request("What is its price?").await {
            Ok(_) => open.push(dialogue),
            Err(error) => return format!("{} {error}", open.len()),
        }
    }
}

impl DialogueHandler for Party {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        match (&message.message_type, dialogue.own().as_str()) {
            (MessageType::Request, "agent://seller") => {
                // A circle is refused.
                let buyer = dialogue.nested(dialogue.peer(), "agent://buyer")?;
                let circle = buyer.inform("?").await.unwrap_err().to_string();
                assert!(circle.contains("waits in this chain"), "{circle}");
                let options = DialogueOptions::new().id(format!("{}-details", dialogue.id()));
                let details = dialogue.nested_with(dialogue.peer(), "agent://details", options)?;
                let known = details.request("What is its price?").await?;
                // The nested dialogue is left open.
                std::mem::forget(details);
                let price: u32 = known.parameter("price")?;
                dialogue.respond(DialogueContent::new().parameter("price", json!(price))).await?;
            }
            // It ends with its socket, behind the receipt.
            (MessageType::Request, "agent://mortal") => {
                let mut socket = TcpStream::connect(std::env::var(SOCKET).unwrap()).await.unwrap();
                tokio::spawn(async move {
                    let _ = socket.read(&mut [0]).await;
                    std::process::exit(1);
                });
            }
            (MessageType::Request, _) => {
                if let Ok(address) = std::env::var(SOCKET) {
                    let mut socket = TcpStream::connect(address).await.unwrap();
                    let _ = socket.read(&mut [0]).await;
                }
                dialogue.respond(DialogueContent::new().parameter("price", json!(18_000))).await?;
            }
            (MessageType::Propose, _) => drop(dialogue.accept("It is yours.").await?),
            _ => {}
        }
        Ok(())
    }
}

/// The configuration of agents with these ids. `validity` is the end of the buyer's keys.
pub(super) fn agents(ids: &[&str], validity: &str) -> String {
    let configured = |id: &&str| {
        let validity = if *id == "buyer" { validity } else { "" };
        let key = |peer: &&str| {
            format!("{{ id = \"agent://{id} to agent://{peer}\", algorithm = \"HS256\"{validity} }},")
        };
        let keys: String = ids.iter().map(key).collect();
        entry(id, &keys, "")
    };
    ids.iter().map(configured).collect()
}

/// The configuration of agents with private keys, whose cards have the public ones.
fn agents_with_public_keys(ids: &[&str]) -> String {
    let configured = |id: &&str| {
        let key = private_key(id).key("main", &format!("agent://{id}").into()).unwrap();
        let PublishedKey { id: kid, algorithm, public_key, .. } = PublishedKey::from(&*key);
        let key =
            format!("{{ id = {kid:?}, algorithm = {algorithm:?}, public_key = {:?} }}", public_key.unwrap());
        entry(id, &key, &format!(", {PUBLIC} = \"\""))
    };
    ids.iter().map(configured).collect()
}

/// The configuration of agents with these ids, of which `details` connects to a socket and waits for its end before it answers.
pub(super) fn waiting_agents(ids: &[&str], socket: SocketAddr) -> String {
    with_socket("details", ids, socket)
}

/// The configuration of agents with these ids, of which one has the address of a socket.
fn with_socket(id: &str, ids: &[&str], socket: SocketAddr) -> String {
    let is_agent = format!("{AGENT} = {id:?}");
    agents(ids, "").replace(&is_agent, &format!("{is_agent}, {SOCKET} = \"{socket}\""))
}

fn entry(id: &str, keys: &str, env: &str) -> String {
    let more = format!("keys = [{keys}]\nenv = {{ {AGENT} = {id:?}{env} }}");
    agent(id, "routed_dialogues::agent_process", &more)
}

/// The rules of a user for agents.
pub(super) fn rule(ids: &[&str]) -> String {
    let actions = r#"actions = ["discover", "message", "task", "session"]"#;
    format!("[[rules]]\nrole = \"user\"\n{actions}\nagents = {ids:?}\n")
}

/// Gives an agent a task, and returns its path.
pub(super) async fn begin(world: &RestWorld, agent: &str, prompt: &str) -> String {
    let task = json!({"task": {"type": "test", "parameters": {"prompt": prompt}}});
    let created = world.post(ALICE, &format!("/agents/{agent}/tasks"), &task).await.expect(202);
    format!("/agents/{agent}/tasks/{}", created["taskId"].as_str().unwrap())
}

/// Waits until a dialogue has a session of its recipient.
pub(super) async fn until_open(world: &RestWorld, agent: &str, id: &str) {
    let path = format!("/agents/{agent}/tasks/{id}");
    until(async || {
        let found = world.get(ADMIN, &path).await;
        Some(()).filter(|()| found.status == 200 && found.json()["sessionId"].is_string())
    })
    .await;
}

/// Waits for the end of a dialogue, and returns its task.
pub(super) async fn dialogue_task(world: &RestWorld, agent: &str, id: &str) -> Value {
    ended_task(world, ADMIN, &format!("/agents/{agent}/tasks/{id}")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_negotiate_through_the_hub_in_signed_dialogues() {
    let config =
        format!("{}{}", agents(&["buyer", "seller", "details"], ""), rule(&["buyer", "seller", "details"]));
    let world = RestWorld::start(&config).await;
    assert_eq!(run(&world, ALICE, "buyer", "buy agent://seller d1").await, "18000 accept");
    let task = dialogue_task(&world, "seller", "d1").await;
    let members = ["from", "owner", "type", "status"].map(|name| task[name].as_str().unwrap());
    assert_eq!(members, ["buyer", "alice", "dialogue", "completed"]);
    // The nested dialogue was left open, and ends with its parent.
    let nested = dialogue_task(&world, "details", "d1-details").await;
    let members = ["from", "owner", "status"].map(|name| nested[name].as_str().unwrap());
    assert_eq!(members, ["seller", "alice", "cancelled"], "{nested}");
    // Its messages name the parent.
    let log = world.log_of("details", nested["sessionId"].as_str().unwrap());
    assert!(log.contains("parent_session_id"), "{log}");

    // Another dialogue of the same name is refused, since it has ended.
    let text = run(&world, ALICE, "buyer", "buy agent://seller d1").await;
    assert!(text.contains("another dialogue or task"), "{text}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_another_sender_or_to_an_agent_out_of_sight_is_refused() {
    let ids = ["buyer", "seller", "hidden"];
    let world = RestWorld::start(&format!("{}{}", agents(&ids, ""), rule(&["buyer", "seller"]))).await;
    let message = |id: &str, from: &str, to: &str| {
        json!({
            "message_id": "m1", "session_id": id, "sender_id": from, "recipient_id": to,
            "timestamp": "2026-01-01T00:00:00Z", "interaction_step": 1, "message_type": "inform", "content": {},
        })
    };
    let send = async |message: Value| run(&world, ALICE, "buyer", &format!("raw {message}")).await;
    let text = send(message("d1", "agent://seller", "agent://seller")).await;
    assert!(text.contains("the address of this agent is \"agent://buyer\""), "{text}");
    // An agent that the owner may not use is as one that does not exist.
    let [hidden, absent] = ["agent://hidden", "agent://absent"];
    let (hidden, absent) = (
        send(message("d1", "agent://buyer", hidden)).await,
        send(message("d1", "agent://buyer", absent)).await,
    );
    assert_eq!(hidden, absent);
    assert!(hidden.contains("no such agent"), "{hidden}");
    let text = send(message("d1", "agent://buyer", "agent://*?domain=travel")).await;
    assert!(text.contains("find its address with `discover`"), "{text}");
    let text = send(message("d1", "agent://buyer", "agent://buyer")).await;
    assert!(text.contains("waits in this chain"), "{text}");

    // The text of a message is not changed. Its receiver finds that it is not signed.
    let odd = r#"{"z" : 1.50,"message_id":"é\u0041","session_id":"d2", "sender_id":"agent://buyer","recipient_id":"agent:\/\/seller","message_type":"inform"}"#;
    let text = run(&world, ALICE, "buyer", &format!("raw {odd}")).await;
    assert!(text.contains("UNAUTHORIZED"), "{text}");
    let path = "/agents/seller/tasks/d2";
    let task = until(async || {
        Some(world.get(ADMIN, path).await.expect(200)).filter(|task| task["sessionId"].is_string())
    })
    .await;
    let log = world.log_of("seller", task["sessionId"].as_str().unwrap());
    assert!(log.contains(odd), "{log}");
    // So there is no dialogue.
    assert_eq!(dialogue_task(&world, "seller", "d2").await["error"]["code"], "agent_failed");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_counts_as_its_owner_publishes_it() {
    for (validity, is_valid) in [
        (", not_after = \"2099-01-01T00:00:00Z\"", true),
        (", not_after = \"2020-01-01T00:00:00Z\"", false),
        (", not_before = \"2099-01-01T00:00:00Z\"", false),
    ] {
        let ids = ["buyer", "seller", "details"];
        let world = RestWorld::start(&format!("{}{}", agents(&ids, validity), rule(&ids))).await;
        let text = run(&world, ALICE, "buyer", "buy agent://seller d1").await;
        let expected = if is_valid {
            "18000 accept"
        } else {
            "the other side rejected the message: the signature could not be verified (UNAUTHORIZED)"
        };
        assert_eq!(text, expected, "{validity}");
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_take_the_public_keys_of_others_from_their_cards() {
    let ids = ["buyer", "seller", "details"];
    let text = format!("{}{}", agents_with_public_keys(&ids), rule(&ids));
    let world = RestWorld::start(&text).await;
    assert_eq!(run(&world, ALICE, "buyer", "buy agent://seller d1").await, "18000 accept");
    world.stop().await;
    // The card has the key of another agent.
    let key =
        |id: &str| PublishedKey::from(&*private_key(id).key("main", &"".into()).unwrap()).public_key.unwrap();
    let world = RestWorld::start(&text.replace(&key("buyer"), &key("details"))).await;
    let text = run(&world, ALICE, "buyer", "buy agent://seller d1").await;
    assert!(text.contains("the signature could not be verified"), "{text}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_finds_the_address_for_a_dialogue_by_ability() {
    let ids = ["buyer", "seller", "details"];
    let config = agents(&ids, "").replace("id = \"seller\"", "id = \"seller\"\ncapabilities = [\"cars\"]");
    let world = RestWorld::start(&format!("{config}{}", rule(&ids))).await;
    assert_eq!(run(&world, ALICE, "buyer", "find d1").await, "agent://seller 18000 accept");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_dialogue_does_not_hold_up_the_end_of_the_server() {
    let ids = ["buyer", "details"];
    let world = RestWorld::start(&format!("{}{}", agents(&ids, ""), rule(&ids))).await;
    begin(&world, "buyer", "hold agent://details d1").await;
    until_open(&world, "details", "d1").await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dialogue_fails_with_the_process_that_is_spoken_to() {
    let ids = ["buyer", "mortal"];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = with_socket("mortal", &ids, listener.local_addr().unwrap());
    let world = RestWorld::start(&format!("{config}{}", rule(&ids))).await;
    begin(&world, "buyer", "hold agent://mortal d1").await;
    let (socket, _) = in_time(listener.accept()).await.unwrap();
    until_open(&world, "mortal", "d1").await;
    let task = world.get(ADMIN, "/agents/mortal/tasks/d1").await.expect(200);
    let session = task["sessionId"].as_str().unwrap();
    until(async || world.log_of("mortal", session).contains("receipt").then_some(())).await;
    drop(socket);
    assert_eq!(dialogue_task(&world, "mortal", "d1").await["error"]["code"], "agent_failed");
    world.stop().await;
}
