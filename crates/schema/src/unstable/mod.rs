//! The part of protocol version 1 that is not stable: it may change or vanish in any release.
//! Every public item of its modules is public in the crate.

mod auth_status;
mod cursor;
mod mcp_message;
mod methods;
mod prompt_suggestion;
mod provider;
mod proxy;
mod session_admin;
mod session_options;
mod versioned;

pub use auth_status::*;
pub use cursor::*;
pub use mcp_message::*;
pub use methods::*;
pub use prompt_suggestion::*;
pub use provider::*;
pub use proxy::*;
pub use session_admin::*;
pub use session_options::*;
