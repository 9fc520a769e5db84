//! The seller lets another agent look up what it does not know itself, and bargains down to a limit.

use std::path::Path;

use duologue_agent::exchange::dialogue::{
    AllowList, AllowRule, Dialogue, DialogueHandler, Dialogues, Error, VerifiedMessage,
};
use duologue_agent::schema::dialogue::MessageType;
use duologue_agent::{Exchange, PeerAgent, Server};

use crate::Result;
use crate::partner::{OnlyDialogues, Partner};
use crate::tasks::{
    BUYER, CAR_DETAILS, Car, CounterOffer, DATA, GET_CAR_DETAILS, GET_DETAILED_CAR_INFO, NEGOTIATE_PRICE,
    Offer, SELLER, Wanted, says, thousands,
};
use crate::{keys, tasks};

/// The lowest acceptable price, which the buyer does not know.
const LOWEST: Offer = Offer { price: 16_500 };
/// The counter-offer to a lower offer.
const COUNTER_OFFER: Offer = Offer { price: 17_000 };

/// Sells until the buyer leaves.
pub(crate) async fn run() -> Result {
    let details = Partner::start("car-details", [SELLER, CAR_DETAILS], Path::new(".")).await?;

    let buyers = AllowList::new().rule(AllowRule::sender(BUYER).task(GET_CAR_DETAILS).task(NEGOTIATE_PRICE));
    let dialogues = Dialogues::new(SELLER)?
        .keys(keys::inherited([BUYER, SELLER])?)
        .allow(buyers)
        .parameters(tasks::parameters())
        .handler(Seller { details: details.agent() });
    Server::new(OnlyDialogues).exchange(Exchange::new().dialogue(dialogues)).serve_stdio().await?;

    details.leave().await
}

struct Seller {
    /// The agent that knows the cars.
    details: PeerAgent,
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
        let question = says(&wanted, format!("A buyer asks about {}. What is on file?", wanted.vin))?
            .domain(DATA)
            .task(GET_DETAILED_CAR_INFO)
            .previous_context(vec![message.message_id.clone()]);

        let nested = dialogue.nested(&self.details, CAR_DETAILS)?;
        let known = nested.request(question).await;
        nested.terminate("That is all, thank you.").await?;

        let car: Car = known?.parameters()?;
        let words = format!(
            "It is: a {} {} {}, {} miles. I ask ${}.",
            car.year,
            car.make,
            car.model,
            thousands(car.mileage),
            thousands(car.price),
        );
        dialogue.respond(says(&car, words)?.belief_updates(vec![car.price_belief().into()])).await?;
        Ok(())
    }
}

/// Takes what is enough, and names a price if it is not.
async fn bargain(dialogue: &Dialogue, offer: Offer) -> Result<(), Error> {
    if offer.price >= LOWEST.price {
        dialogue.accept(says(&offer, format!("Agreed: ${}.", thousands(offer.price)))?).await?;
    } else {
        let words = format!("I cannot go that low. For ${} it is yours.", thousands(COUNTER_OFFER.price));
        dialogue.reject(says(&CounterOffer { counter_offer: COUNTER_OFFER }, words)?).await?;
    }
    Ok(())
}
