//! The buyer queries a car, offers less than its price, and then meets the seller halfway.

use std::path::Path;

use duologue_client::PeerAgent;
use duologue_client::exchange::dialogue::{Dialogue, Error, has_counter_offer};
use duologue_client::schema::dialogue::MessageType;

use crate::Result;
use crate::account::Account;
use crate::partner::Partner;
use crate::tasks::{
    BUYER, Car, CounterOffer, GET_CAR_DETAILS, NEGOTIATE_PRICE, Offer, SALES, SELLER, Wanted, entity, says,
    thousands,
};

/// The car in the advertisement.
const VIN: &str = "12345ABCDEFG67890";
/// The difference between the price and our first offer, in dollars.
const LESS: u32 = 2_000;
/// The most we pay.
const MOST: Offer = Offer { price: 17_000 };

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
async fn buy(seller: &PeerAgent) -> Result<u32, Error> {
    let dialogue = seller.dialogue(SELLER)?;
    let price = bargain(&dialogue).await;
    let goodbye = match price {
        Ok(_) => "Thank you. I come by tomorrow with the money.",
        Err(_) => "Then I keep looking.",
    };
    let left = dialogue.terminate(goodbye).await;
    price.and_then(|price| left.map(|_| price))
}

async fn bargain(dialogue: &Dialogue) -> Result<u32, Error> {
    let wanted = Wanted { vin: VIN.to_owned() };
    let question = says(&wanted, "Is the 2023 Camry from your advertisement still there? Tell me about it.")?;
    let answer = dialogue.request(question.domain(SALES).task(GET_CAR_DETAILS)).await?;
    let car: Car = answer.parameters()?;
    let beliefs = dialogue.beliefs();
    let asked = beliefs
        .get(dialogue.other(), &entity(&car.vin), "price")
        .ok_or_else(|| Error::other("the seller names no price"))?;

    let mut offer = Offer { price: asked.value.parse::<u32>()?.saturating_sub(LESS) };
    let words = format!("The {} looks good. Would you take ${}?", car.model, thousands(offer.price));
    let mut proposal = says(&offer, words)?.domain(SALES).task(NEGOTIATE_PRICE);
    loop {
        let answer = dialogue.propose(proposal).answer().await?;
        if answer.message_type == MessageType::Accept {
            return Ok(offer.price);
        }
        if !has_counter_offer(&answer) {
            return Err(Error::other("the seller does not want to bargain"));
        }
        let CounterOffer { counter_offer } = answer.parameters()?;
        let halfway = offer.price.midpoint(counter_offer.price);
        if halfway <= offer.price || halfway > MOST.price {
            return Err(Error::other("the seller wants too much"));
        }
        offer.price = halfway;
        proposal = says(&offer, format!("Let us meet halfway, at ${}.", thousands(offer.price)))?;
    }
}
