//! The agent that knows the cars: it looks them up in a file.

use std::path::PathBuf;

use duologue_agent::exchange::dialogue::{Dialogue, DialogueHandler, Dialogues, Error, VerifiedMessage};
use duologue_agent::schema::dialogue::{DialogueErrorCode, MessageType};
use duologue_agent::{Exchange, Server};

use crate::partner::OnlyDialogues;
use crate::tasks::{CAR_DETAILS, Car, GET_DETAILED_CAR_INFO, SELLER, Wanted, says, thousands};
use crate::{Result, keys, tasks};

/// The content of a new file.
const STOCK: &str = r#"[
  {"vin": "12345ABCDEFG67890", "make": "Toyota", "model": "Camry", "year": 2023, "mileage": 15000, "condition": "excellent",
   "accident_history": [], "features": ["backup camera", "lane assist"], "asking_price": 18000},
  {"vin": "98765GFEDCBA43210", "make": "Honda", "model": "Accord", "year": 2021, "mileage": 41000, "condition": "good",
   "accident_history": ["2022: rear bumper"], "features": ["sunroof"], "asking_price": 16900}
]
"#;

/// Answers until the seller leaves.
pub(crate) async fn run() -> Result {
    let dialogues = Dialogues::new(CAR_DETAILS)?
        .keys(keys::inherited([SELLER, CAR_DETAILS])?)
        .parameters(tasks::parameters())
        .handler(CarDetails::open("cars.json")?);
    let exchange = Exchange::new().dialogue(dialogues);
    Ok(Server::new(OnlyDialogues).exchange(exchange).serve_stdio().await?)
}

pub(crate) struct CarDetails {
    cars: PathBuf,
}

impl DialogueHandler for CarDetails {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        match (&message.message_type, message.task()) {
            (MessageType::Request, GET_DETAILED_CAR_INFO) => {
                let car = self.find(message.parameters()?).await?;
                let words =
                    format!("One match: {}, listed at ${}.", car.described(), thousands(car.asking_price));
                dialogue.respond(says(&car, words)?.belief_updates(vec![car.price_belief().into()])).await?;
                Ok(())
            }
            (MessageType::Error | MessageType::Termination, _) => Ok(()),
            _ => Err(Error::invalid("ask for getDetailedCarInfo")),
        }
    }
}

impl CarDetails {
    pub(crate) fn open(cars: impl Into<PathBuf>) -> std::io::Result<Self> {
        let cars = cars.into();
        if !cars.exists() {
            std::fs::write(&cars, STOCK)?;
        }
        Ok(CarDetails { cars })
    }

    /// Looks a car up. Each look-up reads the file, so an edit counts at once.
    async fn find(&self, wanted: Wanted) -> Result<Car, Error> {
        let text = tokio::fs::read(&self.cars).await.map_err(Error::other)?;
        let cars: Vec<Car> = serde_json::from_slice(&text).map_err(Error::other)?;
        let found = cars.into_iter().find(|car| car.is(&wanted));
        found.ok_or_else(|| Error::failed(DialogueErrorCode::NotFound, "there is no such car"))
    }
}
