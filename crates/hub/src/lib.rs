#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod abilities;
mod announced_id;
mod asking_client;
mod audit;
mod child_sessions;
mod chunk_line;
mod cleared_messages;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "gateway")]
mod clock;
mod connection;
#[cfg(feature = "gateway")]
mod credential;
#[cfg(feature = "gateway")]
mod deliveries;
mod error;
mod exchange_state;
#[cfg(feature = "gateway")]
mod fair_places;
mod finishing;
#[cfg(feature = "gateway")]
pub mod gateway;
mod hosted_agent;
#[cfg(feature = "http")]
mod http;
mod hub;
mod input;
mod legacy_plan;
mod load;
mod log_reader;
mod open_log;
#[cfg(feature = "gateway")]
mod outbound;
mod output;
mod owner;
mod picture;
#[cfg(feature = "gateway")]
mod place_counts;
mod projection;
mod question;
mod record;
#[cfg(feature = "gateway")]
mod remote_agent;
mod routing;
#[cfg(feature = "gateway")]
mod secret_source;
mod session_log;
mod session_policy;
mod session_questions;
mod session_task;
mod shared_agent;
mod state;
mod unique_id;
#[cfg(feature = "gateway")]
mod webhook;

pub use abilities::Abilities;
#[cfg(feature = "gateway")]
pub use clock::HubClock;
#[cfg(feature = "gateway")]
pub use deliveries::{Deliveries, DeliverySettings, OutboundPost, PostFuture, PostRequest};
pub use error::Error;
#[cfg(all(unix, feature = "http"))]
pub use http::LocalListener;
#[cfg(feature = "tls")]
pub use http::ServerTls;
#[cfg(feature = "http")]
pub use http::{AllowedHosts, Listeners, SecretText, ServerOptions};
pub use hub::{AgentCommand, Hub, HubSettings, ProcessEvent, ProcessObserver};
pub use input::{OwnerAction, OwnerInput, QuestionDecision};
#[cfg(feature = "gateway")]
pub use outbound::{
    OutboundClient, OutboundError, OutboundResponse, OutboundSettings, OutboundUrl, RefusedAddress,
    ResolveFuture, Resolver,
};
pub use owner::{OwnerSettings, SessionOwner};
pub use projection::{ClientView, project};
pub use record::{Asker, ClientKey, HubEvent, InvalidRecord, LogEntry};
pub use session_log::SessionLogPage;
pub use session_policy::SessionPolicy;
pub use session_questions::AnswerFault;
#[cfg(feature = "gateway")]
pub use webhook::{
    DELIVERY_ID, DELIVERY_SIGNATURE, DELIVERY_TIMESTAMP, VerifiedDelivery, WebhookError, WebhookSecret,
};
