//! The replay of a session that a client loads: the conversation of its log, one chunk for each block.

use duologue_rpc::RpcMessage;
use duologue_schema::{
    AvailableCommandsUpdate, ContentChunk, Conversation, ConversationEntry, MessageKind, Notification as _,
    PromptRequest, Request as _, SessionId, SessionInfoUpdate, SessionNotification, SessionUpdate,
};
use duologue_store::FileLog;
use duologue_transcript::Side;
use serde_json::value::RawValue;

use crate::error::Error;
use crate::hub::for_each_record;
use crate::record::{HubEvent, LogEntry};
use crate::state::parse;

/// Folds the records of a log up to a position.
pub(crate) fn fold(log: &FileLog, session: &SessionId, end: u64) -> Result<Conversation, Error> {
    let mut conversation = Conversation::default();
    for_each_record(log, end, |entry| apply(&mut conversation, session, entry))?;
    Ok(conversation)
}

fn apply(conversation: &mut Conversation, session: &SessionId, entry: &LogEntry<'_>) {
    let Some((side, frame)) = entry.frame else { return };
    match (&entry.event, side) {
        (Some(HubEvent::Prompt { .. }), _) => {
            if let Some(request) = params::<PromptRequest>(frame, PromptRequest::METHOD) {
                conversation.prompt(&request.prompt);
            }
        }
        // The end of other requests does not end a message that goes on.
        (Some(HubEvent::Answer { .. }), _) if is_end_of_turn(frame) => conversation.end_turn(),
        (None, Side::Agent) => {
            let update = params::<SessionNotification>(frame, SessionNotification::METHOD);
            if let Some(update) = update.filter(|update| update.session_id == *session) {
                conversation.apply(&update.update);
            } else if let Some(result) = opening(frame) {
                conversation.begin(result.modes, result.config_options.unwrap_or_default());
            }
        }
        _ => {}
    }
}

fn params<T: serde::de::DeserializeOwned>(frame: &RawValue, wanted: &str) -> Option<T> {
    match parse(frame.get().as_bytes())? {
        RpcMessage::Request { method, params: Some(params), .. }
        | RpcMessage::Notification { method, params: Some(params) }
            if method == wanted =>
        {
            serde_json::from_str(params.get()).ok()
        }
        _ => None,
    }
}

fn is_end_of_turn(frame: &RawValue) -> bool {
    use duologue_rpc::raw_message::{member, member_text};

    let frame = frame.get().as_bytes();
    let result = member(frame, "result").and_then(|result| frame.get(result));
    result.is_some_and(|result| member_text(result, "stopReason").is_some())
}

/// Returns the result of `session/new`, if the frame is it.
fn opening(frame: &RawValue) -> Option<duologue_schema::NewSessionResponse> {
    use duologue_rpc::raw_message::{member, member_text};

    let bytes = frame.get().as_bytes();
    let id = member_text(bytes, "id")?;
    let result = bytes.get(member(bytes, "result")?)?;
    (id == "hub:session/new").then(|| serde_json::from_slice(result).ok())?
}

/// Returns the updates from which a client rebuilds a conversation.
pub(crate) fn updates(conversation: &Conversation) -> Vec<SessionUpdate> {
    let mut updates = Vec::new();
    for entry in conversation.entries() {
        match entry {
            ConversationEntry::Message(message) => {
                for block in &message.content {
                    let mut chunk = ContentChunk::new(block.clone());
                    chunk.message_id.clone_from(&message.id);
                    match message.kind {
                        MessageKind::User => updates.push(SessionUpdate::UserMessageChunk(chunk)),
                        MessageKind::Agent => updates.push(SessionUpdate::AgentMessageChunk(chunk)),
                        MessageKind::Thought => updates.push(SessionUpdate::AgentThoughtChunk(chunk)),
                        _ => {}
                    }
                }
            }
            ConversationEntry::ToolCall(call) => updates.push(SessionUpdate::ToolCall(call.clone())),
            _ => {}
        }
    }
    let state = conversation.state();
    updates.extend(state.plan.clone().map(SessionUpdate::Plan));
    if !conversation.commands().is_empty() {
        let commands = AvailableCommandsUpdate::new(conversation.commands().to_vec());
        updates.push(SessionUpdate::AvailableCommandsUpdate(commands));
    }
    updates.extend(conversation.usage().cloned().map(SessionUpdate::UsageUpdate));
    if let Some(title) = conversation.title() {
        let mut info = SessionInfoUpdate::new();
        info.title = duologue_schema::Patch::Set(title.to_owned());
        updates.push(SessionUpdate::SessionInfoUpdate(info));
    }
    updates
}
