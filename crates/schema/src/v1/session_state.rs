//! The state of the foreground work of a session, and the tokens that it used.

use duologue_schema_derive::wire;
use serde::de::MapAccess;

use crate::wire::{Entries, ReadFields, unflatten};
use crate::{Error, Json, StopReason, Unknown};

/// The state of the foreground work of a session: a response of the agent, with its tool calls and questions.
///
/// Work in the background does not change it.
#[wire(tag = "state", open)]
pub enum StateUpdate {
    /// The agent works.
    Running(RunningStateUpdate),
    /// The agent waits for a prompt.
    Idle(Box<IdleStateUpdate>),
    /// The agent waits for the user, for example for a permission.
    RequiresAction(RequiresActionStateUpdate),
    /// The agent cannot tell.
    #[wire(rename = "unknown")]
    Undetermined(UnknownStateUpdate),
}

impl StateUpdate {
    /// Creates the state of a session that works.
    #[must_use]
    pub fn running() -> Self {
        RunningStateUpdate::new().into()
    }

    /// Creates the state of a session that waits for the user.
    #[must_use]
    pub fn requires_action() -> Self {
        RequiresActionStateUpdate::new().into()
    }

    /// Creates the state of a session whose work has ended.
    ///
    /// ```
    /// use duologue_schema::{StateUpdate, StopReason};
    ///
    /// let state = StateUpdate::idle(StopReason::EndTurn);
    /// assert_eq!(serde_json::to_string(&state)?, r#"{"state":"idle","stopReason":"end_turn"}"#);
    /// assert_eq!(state.stop_reason(), Some(StopReason::EndTurn));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn idle(stop: impl Into<IdleStop>) -> Self {
        IdleStateUpdate::new().stop(stop).into()
    }

    /// Returns the reason why the work ended, if the session is idle and the agent gave one.
    #[must_use]
    pub fn stop_reason(&self) -> Option<StopReason> {
        match self {
            StateUpdate::Idle(idle) => idle.stop.reason(),
            _ => None,
        }
    }

    /// Returns the work in the background, if the agent reports it. Every report is complete.
    #[cfg(feature = "protocol-v2")]
    #[must_use]
    pub fn background(&self) -> Option<&[crate::v2::BackgroundWork]> {
        match self {
            StateUpdate::Running(state) => state.background.as_deref(),
            StateUpdate::Idle(state) => state.background.as_deref(),
            StateUpdate::RequiresAction(state) => state.background.as_deref(),
            StateUpdate::Undetermined(state) => state.background.as_deref(),
            StateUpdate::Unknown(_) => None,
        }
    }
}

/// The state is a union within the union of updates, so its fields are collected before its tag is read.
impl ReadFields for StateUpdate {
    type Slots = Entries;

    fn read<'de, A: MapAccess<'de>>(slots: &mut Entries, key: &str, map: &mut A) -> Result<bool, A::Error> {
        slots.push((key.into(), map.next_value()?));
        Ok(true)
    }

    fn finish<E: serde::de::Error>(slots: Entries) -> Result<Self, E> {
        unflatten(slots)
    }
}

/// The state of a session that works.
#[wire]
pub struct RunningStateUpdate {
    /// All work in the background. Absent if the agent does not report it.
    #[cfg(feature = "protocol-v2")]
    #[wire(lenient)]
    pub background: Option<Vec<crate::v2::BackgroundWork>>,
}

/// The state of a session that waits for a prompt.
#[wire]
pub struct IdleStateUpdate {
    /// The tokens used by the work that ended.
    #[cfg(feature = "unstable")]
    #[wire(lenient)]
    pub usage: Option<Usage>,
    /// All work in the background. Absent if the agent does not report it.
    #[cfg(feature = "protocol-v2")]
    #[wire(lenient)]
    pub background: Option<Vec<crate::v2::BackgroundWork>>,
    /// The reason why the work ended.
    #[wire(flatten, default, lenient)]
    pub stop: IdleStop,
}

/// The reason why foreground work ended, with its details.
#[wire(tag = "stopReason", open)]
#[derive(Default)]
pub enum IdleStop {
    /// The model finished.
    EndTurn,
    /// The model reached its token limit.
    MaxTokens,
    /// The agent reached its limit of model requests in one turn.
    MaxTurnRequests,
    /// The agent refused.
    Refusal,
    /// The client cancelled the work.
    Cancelled,
    /// The work failed.
    Error(Box<ErrorStopReason>),
    /// The agent gave no reason.
    #[default]
    #[wire(untagged)]
    NotReported,
}

impl IdleStop {
    /// Returns the reason, if the agent gave one.
    #[must_use]
    pub fn reason(&self) -> Option<StopReason> {
        match self {
            IdleStop::EndTurn => Some(StopReason::EndTurn),
            IdleStop::MaxTokens => Some(StopReason::MaxTokens),
            IdleStop::MaxTurnRequests => Some(StopReason::MaxTurnRequests),
            IdleStop::Refusal => Some(StopReason::Refusal),
            IdleStop::Cancelled => Some(StopReason::Cancelled),
            // Only version 2 names it.
            IdleStop::Error(_) => Some(StopReason::from("error")),
            IdleStop::NotReported => None,
            IdleStop::Unknown(unknown) => Some(StopReason::from(unknown.tag())),
        }
    }

    /// Returns the failure that ended the work, if the agent described one.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        match self {
            IdleStop::Error(details) => details.error.as_ref(),
            _ => None,
        }
    }
}

impl From<StopReason> for IdleStop {
    fn from(reason: StopReason) -> Self {
        match reason.as_str() {
            "end_turn" => IdleStop::EndTurn,
            "max_tokens" => IdleStop::MaxTokens,
            "max_turn_requests" => IdleStop::MaxTurnRequests,
            "refusal" => IdleStop::Refusal,
            "cancelled" => IdleStop::Cancelled,
            "error" => IdleStop::Error(Box::default()),
            other => {
                let tag = Json::from(serde_json::Value::from(other)).into_raw();
                let entries = Entries::from([("stopReason".into(), tag)]);
                // Text always forms an object, so there is no error to handle.
                Unknown::new::<serde_json::Error>(other, &entries)
                    .map_or(IdleStop::NotReported, IdleStop::Unknown)
            }
        }
    }
}

/// The details of a failure that ended foreground work.
#[wire(no_meta)]
pub struct ErrorStopReason {
    /// The failure.
    #[wire(lenient)]
    pub error: Option<Error>,
}

/// The state of a session that waits for the user.
#[wire]
pub struct RequiresActionStateUpdate {
    /// All work in the background. Absent if the agent does not report it.
    #[cfg(feature = "protocol-v2")]
    #[wire(lenient)]
    pub background: Option<Vec<crate::v2::BackgroundWork>>,
}

/// The state of a session that the agent cannot tell, for example of a child that another program runs.
#[wire]
pub struct UnknownStateUpdate {
    /// All work in the background. Absent if the agent does not report it.
    #[cfg(feature = "protocol-v2")]
    #[wire(lenient)]
    pub background: Option<Vec<crate::v2::BackgroundWork>>,
}

/// The tokens that one turn used, not the whole session.
#[cfg(feature = "unstable")]
#[wire]
pub struct Usage {
    /// The sum of all tokens.
    pub total_tokens: u64,
    /// The tokens of the input.
    pub input_tokens: u64,
    /// The tokens of the output.
    pub output_tokens: u64,
    /// The tokens of thoughts.
    #[wire(lenient)]
    pub thought_tokens: Option<u64>,
    /// The tokens that were read from a cache.
    #[wire(lenient)]
    pub cached_read_tokens: Option<u64>,
    /// The tokens that were written to a cache.
    #[wire(lenient)]
    pub cached_write_tokens: Option<u64>,
}
