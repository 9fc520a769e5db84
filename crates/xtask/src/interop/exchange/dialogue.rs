//! Dialogues with a peer that signs and verifies without our code: the responses and the requests of our side.

use super::walkthrough::{HEARD, same};
use crate::interop::Result;
use duologue_agent::PeerAgent;
use duologue_agent::exchange::dialogue::{
    Dialogue, DialogueHandler, Dialogues, Error, Key, Keys, VerifiedMessage, has_counter_offer,
};
use duologue_schema::Members;
use duologue_schema::dialogue::{DialogueContent, DialogueErrorCode, MessageType};
use serde_json::{Value, json};
use std::sync::Arc;

const OWN: &str = "agent://duologue.example/desk";
const THEIRS: &str = "agent://ts.example/desk";

/// Our side: one key for each direction, the same as in `interop/ts/dialogue.mjs`.
pub(super) fn dialogues() -> Result<Dialogues> {
    let keys = Keys::new();
    keys.insert(Key::new("ts-1", THEIRS, "what the peer on the TypeScript SDK signs with")?)?;
    keys.insert(Key::new("duologue-1", OWN, "what our side of the interop run signs with")?)?;
    Ok(Dialogues::new(OWN)?.keys(Arc::new(keys)).handler(Desk))
}

struct Desk;

impl DialogueHandler for Desk {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        if message.message_type == MessageType::Request {
            let content = DialogueContent::from(HEARD).parameters(message.content.parameters.clone());
            dialogue.respond(content).await?;
        }
        Ok(())
    }
}

/// A request with numbers and texts that can be written in several ways.
fn request(task: &str) -> DialogueContent {
    let odd = json!({"z": 1e21, "€": 0.1, "\r": -0.0, "1": 1.5e-7, "😀": "\u{2028}é", "n": 9_007_199_254_740_991_u64});
    let parameters: Members = [("odd", odd)].into_iter().collect();
    DialogueContent::new()
        .domain("interop")
        .task(task)
        .natural_language("é世界 😀 \u{1}")
        .parameters(parameters)
}

/// Sends a request, receives a signed response, and ends the dialogue.
pub(super) async fn signed(peer: &PeerAgent) -> Result<()> {
    let dialogue = peer.dialogue(THEIRS)?;
    let asked = request("greet");
    let answer = dialogue.request(asked.clone()).await?;
    same((answer.key_id.as_deref(), answer.interaction_step), (Some("ts-1"), 2))?;
    same(answer.content.natural_language.as_deref(), Some(HEARD))?;
    // The same, although the other side writes a number or two in another way.
    let odd = |content: &DialogueContent| {
        let mut odd: Value = content.parameters.get("odd")?;
        odd["\r"] = json!(odd["\r"].as_f64()? == 0.0);
        Some(odd)
    };
    same(odd(&answer.content), odd(&asked))?;
    dialogue.terminate("Goodbye.").await?;
    Ok(())
}

/// The answer is altered on its way, and refused; the next one is as it was signed.
pub(super) async fn altered(peer: &PeerAgent) -> Result<()> {
    let answer = peer.dialogue(THEIRS)?.request(request("alter")).await?;
    same(answer.content.natural_language.as_deref(), Some(HEARD))
}

/// An offer, a counter-offer, another offer, and a deal.
pub(super) async fn bargained(peer: &PeerAgent) -> Result<()> {
    let dialogue = peer.dialogue(THEIRS)?;
    let price = |price: u32| {
        DialogueContent::new().parameters([("price", json!(price))].into_iter().collect::<Members>())
    };
    let answer = dialogue.propose(price(18_000)).answer().await?;
    same((&answer.message_type, has_counter_offer(&answer)), (&MessageType::Reject, true))?;
    let answer = dialogue.propose(price(17_000)).answer().await?;
    same((&answer.message_type, answer.interaction_step), (&MessageType::Accept, 4))?;
    dialogue.terminate("Thank you.").await?;
    Ok(())
}

pub(super) async fn refused(peer: &PeerAgent) -> Result<()> {
    match peer.dialogue(THEIRS)?.request(request("refuse")).await {
        Err(Error::Response(error)) => same(
            (error.error_code, error.error_message.as_str()),
            (DialogueErrorCode::InvalidParameter, "not that"),
        ),
        other => Err(format!("{other:?} is no refusal").into()),
    }
}
