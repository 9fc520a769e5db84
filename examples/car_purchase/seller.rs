//! The seller lets another agent look up what it does not know itself, and bargains down to a limit.

use std::path::Path;

use duologue_agent::exchange::dialogue::{
    AllowList, AllowRule, Dialogue, DialogueHandler, DialogueOptions, Dialogues, Error, VerifiedMessage,
};
use duologue_agent::schema::dialogue::MessageType;
use duologue_agent::{Exchange, PeerAgent, Server};

use crate::Result;
use crate::partner::{OnlyDialogues, Partner};
use crate::tasks::{
    BUYER, CAR_DETAILS, Car, CounterOffer, DATA, GET_CAR_DETAILS, GET_DETAILED_CAR_INFO, NEGOTIATE_PRICE,
    Offer, SELLER, WITH_DETAILS, Wanted, says, thousands,
};
use crate::{keys, tasks};

/// The lowest acceptable price, which the buyer does not know.
const LOWEST: u32 = 16_500;
/// The price in the counter-offer to a lower offer.
const COUNTER_OFFER: u32 = 17_000;

/// Sells until the buyer leaves.
pub(crate) async fn run() -> Result {
    let details = Partner::start("car-details", [SELLER, CAR_DETAILS], Path::new(".")).await?;

    let buyers = AllowList::new().rule(AllowRule::sender(BUYER).task(GET_CAR_DETAILS).task(NEGOTIATE_PRICE));
    let dialogues = Dialogues::new(SELLER)?
        .keys(keys::inherited([BUYER, SELLER])?)
        .allow(buyers)
        .parameters(tasks::parameters())
        .handler(Seller { details: Some(details.agent()) });
    Server::new(OnlyDialogues).exchange(Exchange::new().dialogue(dialogues)).serve_stdio().await?;

    details.leave().await
}

#[derive(Default)]
pub(crate) struct Seller {
    /// The agent that knows the cars. At a hub it is reached through the session of the dialogue.
    details: Option<PeerAgent>,
}

impl DialogueHandler for Seller {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        match (&message.message_type, message.task()) {
            (MessageType::Request, GET_CAR_DETAILS) => self.describe(dialogue, message).await,
            (MessageType::Propose, NEGOTIATE_PRICE) => bargain(dialogue, message.parameters()?).await,
            (MessageType::Error | MessageType::Termination, _) => Ok(()),
            _ => Err(Error::invalid("ask for getCarDetails, or propose a price")),
        }
    }
}

impl Seller {
    /// Asks who knows, in a dialogue within this one, and passes the answer on.
    async fn describe(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        let wanted: Wanted = message.parameters()?;
        let words = format!(
            "A buyer asks about a {} {} {}. What is on file?",
            wanted.year, wanted.make, wanted.model
        );
        let question = says(&wanted, words)?
            .domain(DATA)
            .task(GET_DETAILED_CAR_INFO)
            .previous_context(vec![message.message_id.clone()]);

        // One look-up a purchase, so the id is not used again.
        let options = DialogueOptions::new().id(WITH_DETAILS);
        let details = self.details.as_ref().unwrap_or(dialogue.peer());
        let nested = dialogue.nested_with(details, CAR_DETAILS, options)?;
        let known = nested.request(question).await;
        nested.terminate("That is all, thank you.").await?;

        let car: Car = known?.parameters()?;
        let words = format!("It is: {}. I ask ${}.", car.described(), thousands(car.asking_price));
        let answer = says(&car, words)?
            .belief_updates(vec![car.price_belief().into()])
            .previous_context(vec![message.message_id.clone()]);
        dialogue.respond(answer).await?;
        Ok(())
    }
}

/// Takes what is enough, and names a price if it is not.
async fn bargain(dialogue: &Dialogue, offer: Offer) -> Result<(), Error> {
    if offer.offer_price >= LOWEST {
        dialogue.accept(says(&offer, format!("Agreed: ${}.", thousands(offer.offer_price)))?).await?;
    } else {
        let words = format!("I cannot go that low. For ${} it is yours.", thousands(COUNTER_OFFER));
        let counter_offer = Offer { offer_price: COUNTER_OFFER, ..offer };
        dialogue.reject(says(&CounterOffer { counter_offer }, words)?).await?;
    }
    Ok(())
}
