//! Dialogues: signed and ordered messages whose moves are checked.
//!
//! An agent has one [`Dialogues`] with its name, its keys and its handler. It opens dialogues with
//! [`PeerAgent::dialogue`](crate::PeerAgent::dialogue). A [`DialogueHandler`] handles the dialogues
//! that other agents open. RFD 0005 has the rules.
//!
//! # Buying a car
//!
//! The buyer sends a request, receives an offer, makes a counter-offer and accepts the result:
//!
//! ```
//! use duologue_exchange::PeerAgent;
//! use duologue_exchange::dialogue::{COUNTER_OFFER, Error};
//! use duologue_schema::dialogue::DialogueContent;
//! use serde_json::json;
//!
//! async fn buy(peer: &PeerAgent) -> Result<(), Error> {
//!     let dialogue = peer.dialogue("agent://cars.example/seller")?;
//!
//!     let wanted = DialogueContent::new()
//!         .domain("automotive.sales")
//!         .task("getCarDetails")
//!         .parameter("make", json!("Toyota"))
//!         .parameter("model", json!("Camry"));
//!     let car = dialogue.request(wanted).await?;
//!     println!("{}", car.content.natural_language.as_deref().unwrap_or("a car"));
//!
//!     let mut offer = dialogue.next().await?;
//!     while offer.parameter::<u32>("price")? > 17_000 {
//!         let less = DialogueContent::from("I can pay 16,000.").parameter(COUNTER_OFFER, json!({ "price": 16_000 }));
//!         offer = dialogue.reject(less).answer().await?;
//!     }
//!     dialogue.accept("Agreed.").await?;
//!     dialogue.terminate("Thank you.").await?;
//!     Ok(())
//! }
//! # let _ = buy;
//! ```
//!
//! The seller answers after a query to another agent, in a nested dialogue over another connection:
//!
//! ```
//! use duologue_exchange::PeerAgent;
//! use duologue_exchange::dialogue::{Dialogue, Error, VerifiedMessage, DialogueHandler, has_counter_offer};
//! use duologue_schema::dialogue::{DialogueContent, MessageType};
//! use serde_json::json;
//!
//! struct Seller {
//!     details: PeerAgent,
//! }
//!
//! impl DialogueHandler for Seller {
//!     async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
//!         let price = |price: u32| [("price", json!(price))];
//!         match message.message_type {
//!             MessageType::Request if message.task() == "getCarDetails" => {
//!                 let nested = dialogue.nested(&self.details, "agent://cars.example/details")?;
//!                 let query = DialogueContent::new().domain("automotive.data").task("getDetailedCarInfo");
//!                 let details = nested.request(query.parameters(message.content.parameters.clone())).await?;
//!                 nested.terminate("That is all.").await?;
//!
//!                 dialogue.respond(DialogueContent::new().parameters(details.content.parameters.clone())).await?;
//!                 let offer = DialogueContent::new().domain("automotive.sales").task("negotiatePrice");
//!                 dialogue.propose(offer.parameter("price", json!(18_000))).await?;
//!             }
//!             MessageType::Reject if has_counter_offer(message) => {
//!                 dialogue.propose(DialogueContent::from("We meet halfway.").parameter("price", json!(17_000))).await?;
//!             }
//!             MessageType::Request => return Err(Error::invalid("ask for getCarDetails")),
//!             _ => {}
//!         }
//!         Ok(())
//!     }
//! }
//! # let _ = |details| Seller { details };
//! ```

mod allow;
mod beliefs;
mod callbacks;
mod canonical;
#[allow(clippy::module_inception, reason = "the module contains the handle on one dialogue")]
mod dialogue;
mod dialogue_registry;
mod dialogues;
mod ed25519;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod handler;
mod inner;
mod keys;
mod limits;
mod message;
mod message_log;
mod moves;
mod parameters;
mod published_keys;
mod replay_cache;
mod replies;
mod retry;
mod send;
pub(crate) mod service;
mod signature;
mod state;
#[cfg(test)]
mod tests;
mod verify;
mod verify_error;

pub use allow::{AllowList, AllowRule};
pub use beliefs::{BeliefEntry, Beliefs, InvalidConfidence};
pub use canonical::{CanonicalError, MAX_DEPTH, MAX_INTEGER};
pub use dialogue::{Dialogue, DialogueOptions, SendMessage};
pub(crate) use dialogues::DialogueConnection;
pub use dialogues::Dialogues;
pub use ed25519::ED25519_BYTES;
pub use error::Error;
pub use handler::{DialogueHandler, UndeliveredMessage};
pub use keys::{Algorithm, Key, KeyError, KeyStore, Keys, SECRET_BYTES};
pub use limits::DialogueLimits;
pub use message::VerifiedMessage;
pub use moves::{COUNTER_OFFER, IllegalMove, has_counter_offer};
pub use parameters::{InvalidParameters, Parameters};
pub use published_keys::{PublishedKey, PublishedKeys};
pub use retry::Backoff;
pub use send::SentMessage;
pub use signature::{SignError, sign};
