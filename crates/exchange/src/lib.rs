//! What agents say to each other, on the connection they have anyway.
#![forbid(unsafe_code)]

pub mod dialogue;
pub mod envelope;
pub mod work;
