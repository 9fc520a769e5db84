//! Those who speak in these tests.

use std::sync::{Arc, LazyLock, Mutex};

use duologue_agent::exchange::dialogue::{
    COUNTER_OFFER, Dialogue, DialogueHandler, Dialogues, Error, Key, Keys, VerifiedMessage, has_counter_offer,
};
use duologue_agent::{Agent, Exchange, PeerAgent, Prompt, Server, StopReason, Turn};
use duologue_client::{Client, Connection, Session, Transport};
use duologue_schema::Members;
use duologue_schema::dialogue::{DialogueContent, MessageType};
use serde_json::json;

pub(super) const BUYER: &str = "agent://cars.example/buyer";
pub(super) const SELLER: &str = "agent://cars.example/seller";
pub(super) const DETAILS: &str = "agent://cars.example/details";

/// Returns the start of these tests as a timestamp, so that repeated messages are equal.
pub(super) fn began() -> &'static str {
    static BEGAN: LazyLock<String> = LazyLock::new(|| jiff::Timestamp::now().to_string());
    &BEGAN
}

/// A key for each of them.
pub(super) fn keys() -> Arc<Keys> {
    let keys = Keys::new();
    for (number, owner) in (1_u8..).zip([BUYER, SELLER, DETAILS]) {
        keys.insert(Key::new(format!("key-{number}"), owner, [number; 32]).unwrap()).unwrap();
    }
    Arc::new(keys)
}

/// Somebody who signs and takes only what is signed.
pub(super) fn signing(name: &str) -> Dialogues {
    Dialogues::new(name).unwrap().keys(keys())
}

pub(super) fn members<const N: usize>(members: [(&str, serde_json::Value); N]) -> Members {
    members.into_iter().collect()
}

/// An agent whose prompts run a function.
pub(super) struct Prompted<F>(pub(super) F);

impl<F, R> Agent for Prompted<F>
where
    F: Fn(PeerAgent) -> R + Send + Sync + 'static,
    R: Future<Output = Result<String, Error>> + Send,
{
    async fn prompt(&self, turn: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        let said = (self.0)(turn.peer_agent()).await.map_err(duologue_agent::Error::other)?;
        turn.message().push(said).await?;
        Ok(StopReason::EndTurn)
    }
}

/// An agent that is only spoken to.
pub(super) struct Idle;

impl Agent for Idle {
    async fn prompt(&self, _: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        Ok(StopReason::EndTurn)
    }
}

/// A client and an agent with their dialogues, in a session.
pub(super) async fn connected(
    client: impl Into<Arc<Dialogues>>,
    agent: impl Into<Arc<Dialogues>>,
) -> (Connection, Session) {
    joined(client, agent, Idle).await
}

pub(super) async fn joined<A: Agent>(
    client: impl Into<Arc<Dialogues>>,
    agent: impl Into<Arc<Dialogues>>,
    serves: A,
) -> (Connection, Session) {
    let (ours, theirs) = Transport::memory();
    tokio::spawn(Server::new(serves).exchange(Exchange::new().dialogue(agent)).serve(theirs));
    let connection = Client::new(()).exchange(Exchange::new().dialogue(client)).connect(ours).await.unwrap();
    let session = connection.new_session("/tmp").await.unwrap();
    (connection, session)
}

/// Buys a car, and says what it cost.
pub(super) async fn buy(peer: PeerAgent) -> Result<String, Error> {
    let dialogue = peer.dialogue(SELLER)?;
    let wanted = DialogueContent::new()
        .domain("automotive.sales")
        .task("getCarDetails")
        .parameters(members([("model", json!("Camry"))]));
    let car = dialogue.request(wanted).await?;
    assert_eq!(car.message_type, MessageType::Response);
    assert_eq!(car.parameter::<u32>("mileage")?, 15_000);

    let mut offer = dialogue.next().await?;
    while offer.parameter::<u32>("price")? > 17_000 {
        let less = DialogueContent::from("I can pay 16,000.")
            .parameters(members([(COUNTER_OFFER, json!({ "price": 16_000 }))]));
        offer = dialogue.reject(less).answer().await?;
    }
    let price = offer.parameter::<u32>("price")?;
    dialogue.accept("Agreed.").await?;
    dialogue.terminate("Thank you.").await?;
    assert!(matches!(dialogue.next().await, Err(Error::Ended)));

    let script: Vec<String> = dialogue
        .messages()
        .iter()
        .map(|said| format!("{} {}", said.interaction_step, said.message_type))
        .collect();
    let seller = dialogue.beliefs().get(dialogue.other(), "vehicle", "price").map(|held| held.confidence);
    assert_eq!(seller, Some(1.0));
    Ok(format!("{price}: {}", script.join(", ")))
}

/// Sells the car that somebody else has the details of.
pub(super) struct Seller {
    pub(super) details: PeerAgent,
    /// The dialogues that others opened, and the nested ones it opened because of them.
    pub(super) nested: Arc<Mutex<Vec<String>>>,
}

impl DialogueHandler for Seller {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        let offer = |price: u32| {
            let belief = duologue_schema::dialogue::Belief::new("vehicle", "price", json!(price), 1.0);
            DialogueContent::new()
                .task("negotiatePrice")
                .domain("automotive.sales")
                .parameters(members([("price", json!(price))]))
                .belief_updates(vec![belief.into()])
        };
        match message.message_type {
            MessageType::Request if message.task() == "getCarDetails" => {
                let nested = dialogue.nested(&self.details, DETAILS)?;
                assert_eq!(nested.correlation_id(), dialogue.correlation_id());
                assert_eq!(nested.opened_within(), Some((dialogue.id(), Some(&message.message_id))));
                let asked = DialogueContent::new()
                    .domain("automotive.data")
                    .task("getDetailedCarInfo")
                    .parameters(message.content.parameters.clone())
                    .previous_context(vec![message.message_id.clone()]);
                let known = nested.request(asked).await?;
                let asked = nested.parent_of(&known).unwrap();
                assert_eq!(nested.context_of(&asked)[0].message_id, message.message_id);
                nested.terminate("That is all.").await?;
                let steps: Vec<u64> = nested.messages().iter().map(|said| said.interaction_step).collect();
                self.nested.lock().unwrap().push(format!("{steps:?}"));

                dialogue.respond(DialogueContent::new().parameters(known.content.parameters.clone())).await?;
                dialogue.propose(offer(18_000)).await?;
            }
            MessageType::Reject if has_counter_offer(message) => drop(dialogue.propose(offer(17_000)).await?),
            MessageType::Request => return Err(Error::invalid("ask for getCarDetails")),
            _ => {}
        }
        Ok(())
    }
}

/// Knows one car.
pub(super) struct Details;

impl DialogueHandler for Details {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        if message.message_type == MessageType::Request {
            assert!(dialogue.opened_within().is_some());
            dialogue
                .respond(DialogueContent::new().parameters(members([("mileage", json!(15_000))])))
                .await?;
        }
        Ok(())
    }
}

/// Writes down what it hears.
#[derive(Clone, Default)]
pub(super) struct Listener(pub(super) Arc<Mutex<Vec<String>>>);

impl Listener {
    pub(super) fn heard(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl DialogueHandler for Listener {
    async fn message(&self, _: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        let words = message.content.natural_language.as_deref().unwrap_or_default();
        self.0.lock().unwrap().push(format!("{} {words}", message.message_type));
        Ok(())
    }
}
