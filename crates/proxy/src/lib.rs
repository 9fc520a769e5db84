#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! A [`Proxy`] is a chain of [`ProxyStage`]s, in the order from the client to the agent. Each stage gets a
//! [`StageMessage`], returns a [`Decision`], and sends messages of its own through its [`StageLink`].
#![forbid(unsafe_code)]

mod activity;
mod chain;
mod error;
mod jobs;
mod link;
mod message;
mod proxy;
mod stage;
mod stage_ids;
mod stages;
mod transport;

#[doc(hidden)]
pub use activity::{ObservedReader, RelayActivity};
pub use duologue_rpc::{Limits, Stdio, Transport};
pub use duologue_schema as schema;
pub use duologue_transcript::{Recorder, Secrets, Side};
pub use error::{Error, Result};
pub use jobs::StageHandle;
pub use link::{StageCall, StageLink};
pub use message::StageMessage;
#[doc(hidden)]
pub use proxy::copy_to_end;
pub use proxy::{MESSAGES_PER_LINE, Proxy};
pub use stage::{Decision, ProxyStage, Replacement};
pub use stages::{PathMap, PermissionPolicy, PermissionRule, RecordStage, RedactStage, SystemPromptStage};
