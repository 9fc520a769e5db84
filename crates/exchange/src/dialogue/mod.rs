//! Dialogue messages: signed, in order, with moves that are checked.
//!
//! An agent has one [`Dialogues`]: its name, its keys and who speaks for it. It opens dialogues with
//! [`PeerAgent::dialogue`](crate::PeerAgent::dialogue), and an [`Interlocutor`] speaks in those that others open. RFD 0005
//! has the rules.
//!
//! # Buying a car
//!
//! The buyer asks, looks at the offer, makes a counter-offer and takes what comes of it:
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
//! The seller answers, after asking another agent in a dialogue of its own, over another connection:
//!
//! ```
//! use duologue_exchange::PeerAgent;
//! use duologue_exchange::dialogue::{Dialogue, Error, Heard, Interlocutor, has_counter_offer};
//! use duologue_schema::dialogue::{DialogueContent, MessageType};
//! use serde_json::json;
//!
//! struct Seller {
//!     details: PeerAgent,
//! }
//!
//! impl Interlocutor for Seller {
//!     async fn message(&self, dialogue: &Dialogue, message: &Heard) -> Result<(), Error> {
//!         let price = |price: u32| [("price", json!(price))];
//!         match message.message_type {
//!             MessageType::Request if message.task() == "getCarDetails" => {
//!                 let nested = dialogue.nested(&self.details, "agent://cars.example/details")?;
//!                 let asked = DialogueContent::new().domain("automotive.data").task("getDetailedCarInfo");
//!                 let known = nested.request(asked.parameters(message.content.parameters.clone())).await?;
//!                 nested.terminate("That is all.").await?;
//!
//!                 dialogue.respond(DialogueContent::new().parameters(known.content.parameters.clone())).await?;
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
#[allow(clippy::module_inception, reason = "the handle on one dialogue is called that")]
mod dialogue;
mod dialogues;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod handler;
mod heard;
mod keys;
mod limits;
mod lineage;
mod live;
mod moves;
mod parameters;
mod refusal;
mod retry;
mod rooms;
#[cfg(test)]
mod schedules;
mod seen;
mod send;
pub(crate) mod service;
mod signature;
mod state;
#[cfg(test)]
mod tampering;
mod verify;
#[cfg(test)]
mod verifying;
mod waiting;

pub use allow::{Allow, AllowList};
pub use beliefs::{BadConfidence, Beliefs, Held};
pub use canonical::{CanonicalFault, MAX_DEPTH, MAX_INTEGER};
pub use dialogue::{Dialogue, Say};
pub use dialogues::Dialogues;
pub(crate) use dialogues::Line;
pub use error::Error;
pub use handler::{Interlocutor, Undelivered};
pub use heard::Heard;
pub use keys::{Algorithm, Key, KeyFault, KeyStore, Keys, SECRET_BYTES};
pub use limits::DialogueLimits;
pub use moves::{COUNTER_OFFER, IllegalMove, has_counter_offer};
pub use parameters::{BadParameters, Parameters};
pub use retry::Backoff;
pub use send::Sent;
pub use signature::{SignFault, sign};
