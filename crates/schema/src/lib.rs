//! Wire types of the Agent Client Protocol, and the pure fold over them.

mod error;
mod json;
mod method;
mod request_id;

pub use error::{Error, ErrorCode};
pub use json::Json;
pub use method::{Notification, Request};
pub use request_id::RequestId;
