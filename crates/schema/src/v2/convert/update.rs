//! Session updates.

use super::ConversionError;
use crate::{
    CompactionStatus, CompactionUpdate, ContentChunk, MessageClear, MessageUpdate, Patch, Plan, PlanId,
    PlanItems, PlanUpdate, SessionNotification, SessionState, SessionUpdate, ToolCallUpdate, v2,
};

impl From<v2::UpdateSessionNotification> for SessionNotification {
    fn from(notification: v2::UpdateSessionNotification) -> Self {
        let v2::UpdateSessionNotification { session_id, update, meta } = notification;
        SessionNotification { session_id, update: update.into(), meta }
    }
}

/// Fails for an update that version 2 cannot express.
impl TryFrom<SessionNotification> for v2::UpdateSessionNotification {
    type Error = ConversionError;

    fn try_from(notification: SessionNotification) -> Result<Self, ConversionError> {
        let SessionNotification { session_id, update, meta } = notification;
        Ok(v2::UpdateSessionNotification { session_id, update: update.try_into()?, meta })
    }
}

impl From<v2::ContentChunk> for ContentChunk {
    fn from(chunk: v2::ContentChunk) -> Self {
        let v2::ContentChunk { message_id, content, meta } = chunk;
        ContentChunk { content, message_id: Some(message_id), meta }
    }
}

/// Fails for a chunk without an id.
impl TryFrom<ContentChunk> for v2::ContentChunk {
    type Error = ConversionError;

    fn try_from(chunk: ContentChunk) -> Result<Self, ConversionError> {
        let ContentChunk { content, message_id, meta } = chunk;
        let message_id = message_id.ok_or_else(no_message_id)?;
        Ok(v2::ContentChunk { message_id, content, meta })
    }
}

impl From<v2::CompactionUpdate> for CompactionUpdate {
    fn from(update: v2::CompactionUpdate) -> Self {
        let v2::CompactionUpdate { compaction_id, status, summary, error, meta } = update;
        let (status, has_kept_status) = match status {
            Patch::Set(status) => (status, false),
            Patch::Clear => (CompactionStatus::InProgress, false),
            Patch::Keep => (CompactionStatus::InProgress, true),
        };
        CompactionUpdate { compaction_id, status, summary, error, meta, has_kept_status }
    }
}

impl From<CompactionUpdate> for v2::CompactionUpdate {
    fn from(update: CompactionUpdate) -> Self {
        let CompactionUpdate { compaction_id, status, summary, error, meta, has_kept_status } = update;
        let status = if has_kept_status { Patch::Keep } else { Patch::Set(status) };
        v2::CompactionUpdate { compaction_id, status, summary, error, meta }
    }
}

fn no_message_id() -> ConversionError {
    ConversionError::new("in version 2 every message has an id")
}

/// A plan with the id `main` is the plan of version 1.
impl From<v2::SessionUpdate> for SessionUpdate {
    fn from(update: v2::SessionUpdate) -> Self {
        use v2::SessionUpdate as Update;

        match update {
            Update::UserMessageChunk(chunk) => Self::UserMessageChunk(chunk.into()),
            Update::UserMessage(message) => Self::UserMessage(message),
            Update::AgentMessageChunk(chunk) => Self::AgentMessageChunk(chunk.into()),
            Update::AgentMessage(message) => Self::AgentMessage(message),
            Update::AgentThoughtChunk(chunk) => Self::AgentThoughtChunk(chunk.into()),
            Update::AgentThought(message) => Self::AgentThought(message),
            Update::StateUpdate(state) => Self::StateUpdate(state),
            Update::ToolCallContentChunk(chunk) => Self::ToolCallContentChunk(Box::new((*chunk).into())),
            Update::ToolCallUpdate(update) => Self::ToolCallUpdate(Box::new((*update).into())),
            Update::TerminalUpdate(update) => Self::TerminalUpdate(update),
            Update::TerminalOutputChunk(chunk) => Self::TerminalOutputChunk(chunk),
            Update::PlanUpdate(update) => match update.plan {
                v2::PlanUpdateContent::Items(plan)
                    if plan.plan_id.as_str() == SessionState::MAIN_PLAN && update.meta.is_none() =>
                {
                    Self::Plan(Plan { entries: plan.entries, meta: plan.meta })
                }
                plan => Self::PlanUpdate(PlanUpdate { plan, meta: update.meta }),
            },
            Update::PlanRemoved(removed) => Self::PlanRemoved(removed),
            Update::AvailableCommandsUpdate(update) => Self::AvailableCommandsUpdate(update.into()),
            Update::ConfigOptionUpdate(update) => Self::ConfigOptionUpdate(update.into()),
            Update::SessionInfoUpdate(update) => Self::SessionInfoUpdate(update),
            Update::UsageUpdate(update) => Self::UsageUpdate(update),
            Update::Notice(notice) => Self::Notice(notice),
            Update::CompactionUpdate(update) => Self::CompactionUpdate(Box::new((*update).into())),
            Update::CompactionSummaryChunk(chunk) => Self::CompactionSummaryChunk(chunk),
            Update::SubagentUpdate(update) => Self::SubagentUpdate(update),
            Update::SessionMessage(message) => Self::SessionMessage(message),
            Update::SessionMessageChunk(chunk) => Self::SessionMessageChunk(chunk),
            Update::ReplayComplete(end) => Self::ReplayComplete(end),
            Update::PromptSuggestionsUpdate(update) => Self::PromptSuggestionsUpdate(update),
            Update::CursorUpdate(update) => Self::CursorUpdate(update),
            Update::Unknown(unknown) => Self::Unknown(unknown),
        }
    }
}

/// Fails for a message without an id, and for `current_mode_update`: send all options, see
/// [`options_with_modes`](super::options_with_modes).
impl TryFrom<SessionUpdate> for v2::SessionUpdate {
    type Error = ConversionError;

    fn try_from(update: SessionUpdate) -> Result<Self, ConversionError> {
        use SessionUpdate as Update;

        let cleared = |clear: MessageClear| {
            let message_id = clear.message_id.ok_or_else(no_message_id)?;
            let meta = clear.meta.map_or(Patch::Keep, Patch::Set);
            Ok::<_, ConversionError>(MessageUpdate { message_id, content: Patch::Clear, meta })
        };
        Ok(match update {
            Update::UserMessageChunk(chunk) => Self::UserMessageChunk(chunk.try_into()?),
            Update::AgentMessageChunk(chunk) => Self::AgentMessageChunk(chunk.try_into()?),
            Update::AgentThoughtChunk(chunk) => Self::AgentThoughtChunk(chunk.try_into()?),
            Update::UserMessage(message) => Self::UserMessage(message),
            Update::AgentMessage(message) => Self::AgentMessage(message),
            Update::AgentThought(message) => Self::AgentThought(message),
            Update::AgentMessageClear(clear) => Self::AgentMessage(cleared(clear)?),
            Update::AgentThoughtClear(clear) => Self::AgentThought(cleared(clear)?),
            Update::ToolCall(call) => Self::ToolCallUpdate(Box::new(ToolCallUpdate::from(*call).into())),
            Update::ToolCallUpdate(update) => Self::ToolCallUpdate(Box::new((*update).into())),
            Update::Plan(Plan { entries, meta }) => {
                let plan = PlanItems { plan_id: PlanId::from(SessionState::MAIN_PLAN), entries, meta };
                Self::PlanUpdate(PlanUpdate::new(plan))
            }
            Update::AvailableCommandsUpdate(update) => Self::AvailableCommandsUpdate(update.into()),
            Update::CurrentModeUpdate(_) => {
                return Err(ConversionError::new("version 2 has no modes; send all config options"));
            }
            Update::ConfigOptionUpdate(update) => Self::ConfigOptionUpdate(update.into()),
            Update::SessionInfoUpdate(update) => Self::SessionInfoUpdate(update),
            Update::UsageUpdate(update) => Self::UsageUpdate(update),
            Update::Notice(notice) => Self::Notice(notice),
            Update::CompactionUpdate(update) => Self::CompactionUpdate(Box::new((*update).into())),
            Update::CompactionSummaryChunk(chunk) => Self::CompactionSummaryChunk(chunk),
            Update::StateUpdate(state) => Self::StateUpdate(state),
            Update::ToolCallContentChunk(chunk) => Self::ToolCallContentChunk(Box::new((*chunk).into())),
            Update::TerminalUpdate(update) => Self::TerminalUpdate(update),
            Update::TerminalOutputChunk(chunk) => Self::TerminalOutputChunk(chunk),
            Update::PlanUpdate(update) => Self::PlanUpdate(update),
            Update::PlanRemoved(removed) => Self::PlanRemoved(removed),
            Update::SubagentUpdate(update) => Self::SubagentUpdate(update),
            Update::SessionMessage(message) => Self::SessionMessage(message),
            Update::SessionMessageChunk(chunk) => Self::SessionMessageChunk(chunk),
            Update::ReplayComplete(end) => Self::ReplayComplete(end),
            Update::PromptSuggestionsUpdate(update) => Self::PromptSuggestionsUpdate(update),
            Update::CursorUpdate(update) => Self::CursorUpdate(update),
            Update::Unknown(unknown) => Self::Unknown(unknown),
        })
    }
}
