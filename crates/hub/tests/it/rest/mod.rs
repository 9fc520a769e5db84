//! The REST interface of a gateway, over a loopback port.

mod agents;
mod attacks;
mod chaos;
#[cfg(feature = "client")]
mod client;
mod conversations;
mod description;
mod documented;
pub(crate) mod endpoints;
mod fields;
pub(crate) mod hosted;
mod limits;
mod malformed;
mod matrix;
mod messages;
mod moved_agents;
mod object_access;
mod operate;
#[cfg(feature = "page")]
mod page;
mod principals;
mod raw_requests;
pub(crate) mod recorder;
mod removed_principals;
mod routing;
mod served;
mod session_input;
mod sessions;
mod tasks;
#[cfg(feature = "tokens")]
mod tokens;
pub(crate) mod world;
