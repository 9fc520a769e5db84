#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! - `new` takes the required fields of a type. A setter exists for each optional one.
//! - Data that this crate does not know is kept in variants named `Unknown` and written back unchanged.
//! - Malformed data is an error, except where the protocol asks for leniency. There a bad value reads as absent,
//!   and a bad item of a list is skipped.
//! - The modules [`envelope`], [`dialogue`] and [`work`] have the messages between agents, which are not part of
//!   ACP.
//! - The names of methods are in one table; see [`Request`], [`ClientRequest`] and [`AgentRequest`].

mod attachment;
mod conversation;
pub mod dialogue;
pub mod envelope;
mod error;
#[cfg(feature = "schemars")]
pub mod export;
mod fault_place;
mod ids;
mod json;
mod members;
mod meta;
mod method;
mod negotiation;
mod other_turn;
mod output_tail;
mod patch;
mod path;
mod printable;
mod request_id;
mod serialized_len;
mod steering;
mod trace_context;
#[cfg(feature = "unstable")]
mod unstable;
mod v1;
#[cfg(feature = "protocol-v2")]
pub mod v2;
mod versioned;
mod wire;
pub mod work;

pub use attachment::{Attachment, AttachmentError};
#[doc(hidden)]
pub use conversation::append_content;
pub use conversation::{
    CHILD_SESSION_BYTES, CHILD_SESSIONS, ChildSession, Compaction, Conversation, ConversationEntry,
    ConversationMessage, ConversationStats, InterSessionMessage, MessageKind, OPEN_CALL_BYTES, OPEN_CALLS,
    PLAN_BYTES, PLANS, Retention, SessionState, SessionTree,
};
#[cfg(feature = "protocol-v2")]
pub use conversation::{DISPLAY_TERMINAL_BYTES, DISPLAY_TERMINALS, DisplayTerminal};
pub use error::{Error, ErrorCode};
pub use ids::{
    AuthMethodId, CompactionId, ElicitationId, MessageId, PermissionOptionId, SessionConfigGroupId,
    SessionConfigId, SessionConfigValueId, SessionId, SessionModeId, TerminalId, ToolCallId,
};
pub use json::Json;
pub use members::Members;
pub use meta::{META_BYTES, Meta};
pub use method::{Notification, Request, is_of_client_files};
pub use negotiation::DuologueCapabilities;
pub use other_turn::OtherTurnNotification;
#[doc(hidden)]
pub use output_tail::OutputTail;
pub use patch::Patch;
pub use path::{PATH_BYTES, path_fault};
#[doc(hidden)]
pub use printable::INVISIBLE;
pub use printable::printable;
pub use request_id::RequestId;
#[doc(hidden)]
pub use serialized_len::serialized_len;
pub use steering::{SteerOutcome, SteerRequest, SteerResponse};
pub use trace_context::TraceContext;
#[cfg(feature = "unstable")]
pub use unstable::*;
pub use v1::*;
#[doc(hidden)]
pub use versioned::{InVersion, Versioned, VersionedRequest};
pub use wire::Unknown;
