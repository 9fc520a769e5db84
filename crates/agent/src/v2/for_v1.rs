//! The form in version 1 of updates that only version 2 has.

use duologue_schema::{
    ContentBlock, ContentChunk, MessageClear, MessageUpdate, Patch, SessionUpdate, ToolCallContent,
    ToolCallStatus,
};

/// Returns the updates of version 1 that stand for an update. `None` if version 1 has the update itself.
///
/// `can_clear` is true if the client can clear messages. A client that cannot appends a whole message to what it has.
pub(crate) fn for_v1(update: &SessionUpdate, can_clear: bool) -> Option<Vec<SessionUpdate>> {
    match update {
        SessionUpdate::ToolCall(call) => {
            let differs = status(&call.status).is_some() || call.content.iter().any(is_of_v2);
            differs.then(|| {
                let mut call = call.clone();
                call.status = status(&call.status).unwrap_or(call.status);
                call.content = call.content.into_iter().filter_map(content).collect();
                vec![SessionUpdate::ToolCall(call)]
            })
        }
        SessionUpdate::ToolCallUpdate(update) => {
            let new = update.status.as_ref().and_then(status);
            let has_content = update.content.iter().flatten().any(is_of_v2);
            (new.is_some() || has_content).then(|| {
                let mut update = update.clone();
                update.status = new.or(update.status);
                update.content = update.content.map(|items| items.into_iter().filter_map(content).collect());
                vec![SessionUpdate::ToolCallUpdate(update)]
            })
        }
        SessionUpdate::UserMessage(message) => Some(whole(message, SessionUpdate::UserMessageChunk, None)),
        SessionUpdate::AgentMessage(message) => {
            let clear = can_clear.then_some(SessionUpdate::AgentMessageClear as fn(_) -> _);
            Some(whole(message, SessionUpdate::AgentMessageChunk, clear))
        }
        SessionUpdate::AgentThought(message) => {
            let clear = can_clear.then_some(SessionUpdate::AgentThoughtClear as fn(_) -> _);
            Some(whole(message, SessionUpdate::AgentThoughtChunk, clear))
        }
        SessionUpdate::StateUpdate(_)
        | SessionUpdate::ToolCallContentChunk(_)
        | SessionUpdate::TerminalUpdate(_)
        | SessionUpdate::TerminalOutputChunk(_) => Some(Vec::new()),
        _ => None,
    }
}

/// Returns the status that stands for one of version 2.
fn status(status: &ToolCallStatus) -> Option<ToolCallStatus> {
    match status {
        ToolCallStatus::Cancelled => Some(ToolCallStatus::Failed),
        ToolCallStatus::Paused => Some(ToolCallStatus::InProgress),
        _ => None,
    }
}

fn is_of_v2(content: &ToolCallContent) -> bool {
    matches!(content, ToolCallContent::Changes(_) | ToolCallContent::DisplayTerminal(_))
}

/// Returns the content that stands for one of version 2: the text of a patch, or the names of the changed files.
fn content(content: ToolCallContent) -> Option<ToolCallContent> {
    match content {
        ToolCallContent::Changes(diff) => {
            let text = match &diff.patch {
                Some(patch) => patch.text.clone(),
                None => diff.paths().map(|path| path.display().to_string()).collect::<Vec<_>>().join("\n"),
            };
            Some(ToolCallContent::from(ContentBlock::from(text)))
        }
        ToolCallContent::DisplayTerminal(_) => None,
        content => Some(content),
    }
}

/// Returns a whole message as a clear and its pieces.
fn whole(
    message: &MessageUpdate,
    chunk: impl Fn(ContentChunk) -> SessionUpdate,
    clear: Option<fn(MessageClear) -> SessionUpdate>,
) -> Vec<SessionUpdate> {
    let id = &message.message_id;
    let clear = clear.map(|clear| clear(MessageClear::new().message_id(id.clone())));
    match &message.content {
        Patch::Keep => Vec::new(),
        Patch::Clear => clear.into_iter().collect(),
        Patch::Set(blocks) => {
            let pieces =
                blocks.iter().map(|block| chunk(ContentChunk::new(block.clone()).message_id(id.clone())));
            clear.into_iter().chain(pieces).collect()
        }
    }
}
