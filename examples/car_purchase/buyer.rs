//! The buyer queries a car, offers less than its price, and then meets the seller halfway.

use std::path::Path;

use duologue_client::PeerAgent;
use duologue_client::exchange::dialogue::{Dialogue, DialogueOptions, Error, has_counter_offer};
use duologue_client::schema::dialogue::MessageType;

use crate::Result;
use crate::account::Account;
use crate::partner::Partner;
use crate::tasks::{
    ASKING_PRICE, BUYER, Car, CounterOffer, GET_CAR_DETAILS, NEGOTIATE_PRICE, Offer, SALES, SELLER,
    WITH_SELLER, Wanted, entity, says, thousands,
};

/// The difference between the price and our first offer, in dollars.
const LESS: u32 = 2_000;
/// The most we pay.
const MOST: u32 = 17_000;

/// Buys the car, and prints the messages and the result.
pub(crate) async fn run(folder: &Path) -> Result {
    std::fs::create_dir_all(folder)?;
    let seller = Partner::start("seller", [BUYER, SELLER], folder).await?;
    let bargain = buy(&seller.agent()).await;
    seller.leave().await?;

    print!("{}", Account::read(folder)?);
    println!("\nThe car is bought for ${}.", thousands(bargain?));
    Ok(())
}

/// Buys the car, and says what it cost.
pub(crate) async fn buy(seller: &PeerAgent) -> Result<u32, Error> {
    let dialogue = seller.dialogue_with(SELLER, DialogueOptions::new().id(WITH_SELLER))?;
    let price = bargain(&dialogue).await;
    let goodbye = match price {
        Ok(_) => "Thank you. I come by tomorrow with the money.",
        Err(_) => "Then I keep looking.",
    };
    let left = dialogue.terminate(goodbye).await;
    price.and_then(|price| left.map(|_| price))
}

async fn bargain(dialogue: &Dialogue) -> Result<u32, Error> {
    // The car in the advertisement.
    let wanted = Wanted { make: "Toyota".to_owned(), model: "Camry".to_owned(), year: 2023 };
    let question = says(&wanted, "Is the 2023 Camry from your advertisement still there? Tell me about it.")?;
    let answer = dialogue.request(question.domain(SALES).task(GET_CAR_DETAILS)).await?;
    let car: Car = answer.parameters()?;
    let beliefs = dialogue.beliefs();
    let asked = beliefs
        .get(dialogue.other(), &entity(&car.vin), ASKING_PRICE)
        .ok_or_else(|| Error::other("the seller names no price"))?;

    let asking_price = asked.value.parse::<u32>()?;
    let mut offer = Offer { asking_price, offer_price: asking_price.saturating_sub(LESS) };
    let words = format!("The {} looks good. Would you take ${}?", car.model, thousands(offer.offer_price));
    let mut proposal = says(&offer, words)?.domain(SALES).task(NEGOTIATE_PRICE);
    // The messages that a proposal builds on.
    let mut context = vec![answer.message_id.clone()];
    loop {
        let answer = dialogue.propose(proposal.previous_context(context.clone())).answer().await?;
        if answer.message_type == MessageType::Accept {
            return Ok(offer.offer_price);
        }
        if !has_counter_offer(&answer) {
            return Err(Error::other("the seller does not want to bargain"));
        }
        let CounterOffer { counter_offer } = answer.parameters()?;
        let halfway = offer.offer_price.midpoint(counter_offer.offer_price);
        if halfway <= offer.offer_price || halfway > MOST {
            return Err(Error::other("the seller wants too much"));
        }
        offer.offer_price = halfway;
        context.push(answer.message_id.clone());
        proposal = says(&offer, format!("Let us meet halfway, at ${}.", thousands(halfway)))?;
    }
}
