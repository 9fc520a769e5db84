//! The agent that knows the cars: it looks them up in an SQLite database.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use duologue_agent::exchange::dialogue::{Dialogue, DialogueHandler, Dialogues, Error, VerifiedMessage};
use duologue_agent::schema::dialogue::{DialogueErrorCode, MessageType};
use duologue_agent::{Exchange, Server};
use rusqlite::{Connection, OptionalExtension};

use crate::partner::OnlyDialogues;
use crate::tasks::{CAR_DETAILS, Car, GET_DETAILED_CAR_INFO, SELLER, Wanted, says, thousands};
use crate::{Result, keys, tasks};

/// What is on file when the file is new.
const STOCK: &str = "
    create table if not exists cars (
        vin text primary key,
        make text not null,
        model text not null,
        year integer not null,
        mileage integer not null,
        price integer not null
    ) strict;
    insert or ignore into cars values
        ('12345ABCDEFG67890', 'Toyota', 'Camry', 2023, 15000, 18000),
        ('98765GFEDCBA43210', 'Honda', 'Accord', 2021, 41000, 16900);
";

/// Answers until the seller leaves.
pub(crate) async fn run() -> Result {
    let dialogues = Dialogues::new(CAR_DETAILS)?
        .keys(keys::inherited([SELLER, CAR_DETAILS])?)
        .parameters(tasks::parameters())
        .handler(CarDetails::open("cars.db")?);
    let exchange = Exchange::new().dialogue(dialogues);
    Ok(Server::new(OnlyDialogues).exchange(exchange).serve_stdio().await?)
}

struct CarDetails {
    database: Arc<Mutex<Connection>>,
}

impl DialogueHandler for CarDetails {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        match (&message.message_type, message.task()) {
            (MessageType::Request, GET_DETAILED_CAR_INFO) => {
                let Wanted { vin } = message.parameters()?;
                let car = self.find(vin).await?;
                let words = format!(
                    "One match: {} miles, listed at ${}.",
                    thousands(car.mileage),
                    thousands(car.price)
                );
                dialogue.respond(says(&car, words)?.belief_updates(vec![car.price_belief().into()])).await?;
                Ok(())
            }
            (MessageType::Error | MessageType::Termination, _) => Ok(()),
            _ => Err(Error::invalid("ask for getDetailedCarInfo")),
        }
    }
}

impl CarDetails {
    fn open(path: impl AsRef<Path>) -> rusqlite::Result<Self> {
        let database = Connection::open(path)?;
        database.execute_batch(STOCK)?;
        Ok(CarDetails { database: Arc::new(Mutex::new(database)) })
    }

    /// Looks a car up, on a thread that may wait for the disk.
    async fn find(&self, vin: String) -> Result<Car, Error> {
        let database = self.database.clone();
        let look_up = move || {
            let database = database.lock().unwrap_or_else(PoisonError::into_inner);
            database
                .query_row(
                    "select make, model, year, mileage, price from cars where vin = ?1",
                    [&vin],
                    |row| {
                        Ok(Car {
                            make: row.get("make")?,
                            model: row.get("model")?,
                            year: row.get("year")?,
                            mileage: row.get("mileage")?,
                            price: row.get("price")?,
                            vin: vin.clone(),
                        })
                    },
                )
                .optional()
        };
        let found =
            tokio::task::spawn_blocking(look_up).await.map_err(Error::other)?.map_err(Error::other)?;
        found.ok_or_else(|| Error::failed(DialogueErrorCode::NotFound, "there is no car with that VIN"))
    }
}
