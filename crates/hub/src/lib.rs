#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod abilities;
mod connection;
mod error;
mod hosted_agent;
#[cfg(feature = "http")]
mod http;
mod hub;
mod input;
mod load;
mod output;
mod owner;
mod projection;
mod question;
mod record;
mod session_task;
mod state;

pub use abilities::Abilities;
pub use error::Error;
#[cfg(feature = "tls")]
pub use http::ServerTls;
#[cfg(feature = "http")]
pub use http::{AccessToken, AllowedHosts, ServerOptions};
pub use hub::{AgentCommand, Hub, HubSettings, ProcessEvent, ProcessObserver};
pub use input::{OwnerAction, OwnerInput};
pub use owner::{OwnerSettings, SessionOwner};
pub use projection::{ClientView, project};
pub use record::{Asker, ClientKey, HubEvent, InvalidRecord, LogEntry};
