//! The agreement of the three agents: their names, the tasks, and the parameters of each task.

use duologue_client::exchange::dialogue::{Error, Parameters};
use duologue_client::schema::Members;
use duologue_client::schema::dialogue::{Belief, DialogueContent, MessageType};
use serde::{Deserialize, Serialize};

/// The names, which are also their addresses at a hub.
pub(crate) const BUYER: &str = "agent://buyer";
pub(crate) const SELLER: &str = "agent://seller";
pub(crate) const CAR_DETAILS: &str = "agent://details";

/// The domains: one for buyers and sellers, one for sellers and the agent with the details.
pub(crate) const SALES: &str = "automotive.sales";
pub(crate) const DATA: &str = "automotive.data";

pub(crate) const GET_CAR_DETAILS: &str = "getCarDetails";
pub(crate) const GET_DETAILED_CAR_INFO: &str = "getDetailedCarInfo";
pub(crate) const NEGOTIATE_PRICE: &str = "negotiatePrice";

/// The ids of the dialogues: the seller opens the second one within the first.
pub(crate) const WITH_SELLER: &str = "s1";
pub(crate) const WITH_DETAILS: &str = "s2";

/// The car that somebody asks about.
#[derive(Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) make: String,
    pub(crate) model: String,
    pub(crate) year: u16,
}

/// The details of a car.
#[derive(Serialize, Deserialize)]
pub(crate) struct Car {
    /// The vehicle identification number.
    pub(crate) vin: String,
    pub(crate) make: String,
    pub(crate) model: String,
    pub(crate) year: u16,
    /// In miles.
    pub(crate) mileage: u32,
    pub(crate) condition: String,
    pub(crate) accident_history: Vec<String>,
    pub(crate) features: Vec<String>,
    /// In dollars.
    pub(crate) asking_price: u32,
}

impl Car {
    pub(crate) fn is(&self, wanted: &Wanted) -> bool {
        (&self.make, &self.model, self.year) == (&wanted.make, &wanted.model, wanted.year)
    }

    /// The belief of its owner in the price, which nobody doubts.
    pub(crate) fn price_belief(&self) -> Belief {
        Belief::new(entity(&self.vin), ASKING_PRICE, serde_json::json!(self.asking_price), 1.0)
    }

    /// Describes the car for a user.
    pub(crate) fn described(&self) -> String {
        let accidents = match self.accident_history.as_slice() {
            [] => "no accidents".to_owned(),
            known => format!("accidents: {}", known.join(", ")),
        };
        let (miles, features) = (thousands(self.mileage), self.features.join(", "));
        format!("{miles} miles, in {} condition, {accidents}, with {features}", self.condition)
    }
}

/// The attribute of a car in beliefs.
pub(crate) const ASKING_PRICE: &str = "asking_price";

/// Returns the name of a car as the entity of beliefs.
pub(crate) fn entity(vin: &str) -> String {
    format!("vehicle:{vin}")
}

/// A price that somebody would agree to, beside the asking price, in dollars.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub(crate) asking_price: u32,
    pub(crate) offer_price: u32,
}

/// The counter-offer in a `reject`.
#[derive(Serialize, Deserialize)]
pub(crate) struct CounterOffer {
    pub(crate) counter_offer: Offer,
}

/// The form of each task's messages. What does not have it is refused before anybody reads it.
pub(crate) fn parameters() -> Parameters {
    use MessageType::{Accept, Propose, Reject, Request, Response};
    Parameters::new()
        .of::<Wanted>(SALES, GET_CAR_DETAILS, &[Request])
        .of::<Car>(SALES, GET_CAR_DETAILS, &[Response])
        .of::<Wanted>(DATA, GET_DETAILED_CAR_INFO, &[Request])
        .of::<Car>(DATA, GET_DETAILED_CAR_INFO, &[Response])
        .of::<Offer>(SALES, NEGOTIATE_PRICE, &[Propose, Accept])
        .of::<CounterOffer>(SALES, NEGOTIATE_PRICE, &[Reject])
}

/// The same twice: for programs and in words.
pub(crate) fn says(parameters: &impl Serialize, words: impl Into<String>) -> Result<DialogueContent, Error> {
    Ok(DialogueContent::new().parameters(Members::of(parameters)?).natural_language(words))
}

/// A number as people write it.
pub(crate) fn thousands(number: u32) -> String {
    if number < 1000 { number.to_string() } else { format!("{},{:03}", number / 1000, number % 1000) }
}
