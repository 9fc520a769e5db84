//! The replay of a session that a client loads: the conversation of its log, one chunk for each block.

use std::collections::HashMap;

use duologue_rpc::RpcMessage;
use duologue_rpc::raw_message::{beginning, call_frame};
use duologue_schema::{
    AvailableCommandsUpdate, ChildSession, CompactionSummaryChunk, CompactionUpdate, ContentBlock,
    ContentChunk, Conversation, ConversationEntry, InterSessionMessage, MessageId, MessageKind,
    Notification as _, Patch, PlanUpdate, PromptRequest, Request as _, Retention, SessionId,
    SessionInfoUpdate, SessionMessage, SessionMessageChunk, SessionNotification, SessionUpdate,
    SubagentUpdate, TextContent, ToolCallContent,
};
use duologue_transcript::Side;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::abilities::Abilities;
use crate::cleared_messages::{StreamKind, StreamUpdate, agents_id};
use crate::error::Error;
use crate::hub::for_each_record;
use crate::legacy_plan::legacy_plan;
use crate::open_log::OpenLog;
use crate::picture::Picture;
use crate::record::{HubEvent, LogEntry};
use crate::state::parse;

/// The part of a session that a client receives when it opens the session.
pub(crate) struct LoadedSession {
    /// The updates of the session and of its children. Empty for a resume.
    pub(crate) updates: Vec<SessionNotification>,
    /// The response, with the modes, models and options.
    pub(crate) response: Value,
}

/// The conversation in a log.
#[derive(Default)]
struct LoadedConversation {
    conversation: Conversation,
    picture: Picture,
    /// The conversations of its children, which are in its tree.
    children: HashMap<SessionId, Conversation>,
    /// The messages that clients that cannot clear see under other ids.
    renamed: HashMap<(StreamKind, String), String>,
}

/// Reads a session from its log up to a position, for a client with these abilities that loads it. For a client that resumes
/// it, the conversation is left out.
pub(crate) fn load(
    log: &OpenLog,
    session: &SessionId,
    end: u64,
    abilities: Option<Abilities>,
) -> Result<LoadedSession, Error> {
    let mut loaded = LoadedConversation::default();
    if abilities.is_none() {
        loaded.conversation = Conversation::retaining(Retention::OpenCalls);
    }
    let damaged = for_each_record(log, session, end, |_, entry| apply(&mut loaded, session, entry))?;
    let mut updates = Vec::new();
    if let Some(abilities) = abilities {
        let mut add = |id: &SessionId, update| updates.push(SessionNotification::new(id.clone(), update));
        if damaged > 0 {
            add(session, damage_notice(damaged));
        }
        let LoadedConversation { conversation, children, renamed, .. } = &loaded;
        let children: Vec<_> = match abilities.subagents {
            true => {
                descendants(conversation).into_iter().map(|child| (child, children.get(&child.id))).collect()
            }
            false => Vec::new(),
        };
        // A client knows a child before anything refers to it.
        for (child, _) in &children {
            add(child.parent.as_ref().unwrap_or(session), announcement(child));
        }
        let mut own = Vec::new();
        append_updates(conversation, renamed, abilities, &mut own);
        own.into_iter().for_each(|update| add(session, update));
        for (child, conversation) in children {
            let mut of_child = Vec::new();
            if let Some(conversation) = conversation {
                append_updates(conversation, &HashMap::new(), abilities, &mut of_child);
            }
            of_child.into_iter().for_each(|update| add(&child.id, update));
        }
    }
    let response = loaded.picture.members().map_err(Error::Encode)?;
    Ok(LoadedSession { updates, response })
}

/// Returns the message for a client in the place of records that were left out.
pub(crate) fn damage_notice(damaged: u64) -> SessionUpdate {
    let text = match damaged {
        1 => "[1 record of this session is damaged and was left out.]\n\n".to_owned(),
        _ => format!("[{damaged} records of this session are damaged and were left out.]\n\n"),
    };
    SessionUpdate::agent_message(text)
}

/// Returns the frame of an update without its line end.
pub(crate) fn update_line(session: &SessionId, update: SessionUpdate) -> Result<Vec<u8>, Error> {
    let params = SessionNotification::new(session.clone(), update);
    call_frame(None, SessionNotification::METHOD, &params).map_err(Error::Encode)
}

fn apply(loaded: &mut LoadedConversation, session: &SessionId, entry: &LogEntry<'_>) {
    loaded.picture.apply(session, entry);
    if let Some(HubEvent::Opened { .. } | HubEvent::Interrupted { .. }) = &entry.event {
        forget_states(&mut loaded.conversation);
    }
    let Some((side, frame)) = entry.frame else { return };
    let LoadedConversation { conversation, children, renamed, .. } = loaded;
    if let Some(HubEvent::Renamed { message }) = &entry.event
        && let Some(update) = StreamUpdate::read(frame.get().as_bytes())
        && let (Some((kind, _)), Some(id)) = (update.chunk(), agents_id(message))
    {
        renamed.insert((kind, id.to_owned()), message.clone());
    }
    match (&entry.event, side) {
        (Some(HubEvent::Prompt { .. }), _) => {
            if let Some(request) = params::<PromptRequest>(frame, PromptRequest::METHOD) {
                conversation.prompt(&request.prompt);
            }
        }
        // The end of other requests does not end a message that goes on.
        (Some(HubEvent::Answer { .. }), _) if is_end_of_turn(frame) => conversation.end_turn(),
        (
            None | Some(HubEvent::Cleared { .. } | HubEvent::ClearedNothing | HubEvent::Renamed { .. }),
            Side::Agent,
        ) => {
            let update = params::<SessionNotification>(frame, SessionNotification::METHOD);
            if let Some(SessionNotification { session_id, update, .. }) = update {
                if session_id == *session {
                    conversation.apply(&update);
                } else if conversation.children().get(&session_id).is_some() {
                    conversation.apply_of_child(&session_id, &update);
                    let keeps_entries = conversation.retention() != Retention::OpenCalls;
                    if keeps_entries {
                        children.entry(session_id).or_default().apply(&update);
                    }
                }
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

/// The longest text of a chunk, in bytes. A message that the agent wrote in many chunks can be longer than a line may be.
const CHUNK_BYTES: usize = 1 << 20;

/// Returns the parts of a block whose texts are not longer than [`CHUNK_BYTES`].
fn parts(block: &ContentBlock) -> Vec<ContentBlock> {
    let ContentBlock::Text(whole) = block else { return vec![block.clone()] };
    let (mut parts, mut rest) = (Vec::new(), whole.text.as_str());
    while rest.len() > CHUNK_BYTES {
        let (text, after) = rest.split_at(beginning(rest, CHUNK_BYTES).len());
        parts.push(text);
        rest = after;
    }
    parts.push(rest);
    let part = |text: &str| {
        let mut part = TextContent::new(text);
        part.annotations.clone_from(&whole.annotations);
        part.meta.clone_from(&whole.meta);
        ContentBlock::Text(part)
    };
    parts.into_iter().map(part).collect()
}

/// Removes the states of the children, because their process has ended. An absent state is an unknown one.
fn forget_states(conversation: &mut Conversation) {
    let known: Vec<_> =
        conversation.children().iter().filter(|child| child.state.is_some()).cloned().collect();
    for child in known {
        let mut update = SubagentUpdate::new(child.id);
        update.state = Patch::Clear;
        match child.parent {
            Some(parent) => conversation.apply_of_child(&parent, &update.into()),
            None => _ = conversation.apply(&update.into()),
        }
    }
}

/// Returns the children of a session and their children, each behind its parent.
fn descendants(conversation: &Conversation) -> Vec<&ChildSession> {
    let tree = conversation.children();
    let mut found: Vec<&ChildSession> = tree.children_of(None).collect();
    let mut next = 0;
    while let Some(child) = found.get(next).copied() {
        found.extend(tree.children_of(Some(&child.id)));
        next += 1;
    }
    found
}

/// Returns the update that announces a child with all that is known of it.
fn announcement(child: &ChildSession) -> SessionUpdate {
    let mut update = SubagentUpdate::new(child.id.clone());
    update.title = known(&child.title);
    update.description = known(&child.description);
    update.capabilities = known(&child.capabilities);
    update.state = known(&child.state);
    update.cwd = known(&child.cwd);
    update.additional_directories = known(&child.additional_directories);
    update.meta = known(&child.meta);
    update.into()
}

/// Appends the updates of a message between sessions: one without content, and the pieces of the content.
fn append_session_message(message: &InterSessionMessage, updates: &mut Vec<SessionUpdate>) {
    let mut update = SessionMessage::new(message.id.clone());
    update.sender_session_id = known(&message.sender);
    update.recipient_session_id = known(&message.recipient);
    update.sender_message_id = known(&message.sender_message);
    update.recipient_message_id = known(&message.recipient_message);
    update.meta = known(&message.meta);
    updates.push(update.into());
    for block in message.content.iter().flat_map(parts) {
        updates.push(SessionMessageChunk::new(message.id.clone(), block).into());
    }
}

fn known<T: Clone>(value: &Option<T>) -> Patch<T> {
    value.clone().map_or(Patch::Keep, Patch::Set)
}

/// Appends the updates from which a client rebuilds a conversation.
fn append_updates(
    conversation: &Conversation,
    renamed: &HashMap<(StreamKind, String), String>,
    abilities: Abilities,
    updates: &mut Vec<SessionUpdate>,
) {
    // Later chunks of a message have the same id.
    let shown = |kind, id: &Option<MessageId>| {
        let renamed = renamed.get(&(kind, id.as_ref()?.as_str().to_owned())).filter(|_| !abilities.clears);
        renamed.map(|id| MessageId::from(id.clone())).or_else(|| id.clone())
    };
    for entry in conversation.entries() {
        match entry {
            ConversationEntry::Message(message) => {
                for block in message.content.iter().flat_map(parts) {
                    let mut chunk = ContentChunk::new(block);
                    match message.kind {
                        MessageKind::User => {
                            chunk.message_id.clone_from(&message.id);
                            updates.push(SessionUpdate::UserMessageChunk(chunk));
                        }
                        MessageKind::Agent => {
                            chunk.message_id = shown(StreamKind::Message, &message.id);
                            updates.push(SessionUpdate::AgentMessageChunk(chunk));
                        }
                        MessageKind::Thought => {
                            chunk.message_id = shown(StreamKind::Thought, &message.id);
                            updates.push(SessionUpdate::AgentThoughtChunk(chunk));
                        }
                        _ => {}
                    }
                }
            }
            ConversationEntry::ToolCall(call) => {
                let mut call = call.clone();
                if !abilities.subagents {
                    call.content.retain(|content| !matches!(content, ToolCallContent::Session(_)));
                }
                updates.push(SessionUpdate::ToolCall(call));
            }
            ConversationEntry::SessionMessage(message) if abilities.subagents => {
                append_session_message(message, updates);
            }
            ConversationEntry::Compaction(compaction) if abilities.compactions => {
                let mut update = CompactionUpdate::new(compaction.id.clone(), compaction.status.clone());
                update.error = known(&compaction.error);
                update.meta = known(&compaction.meta);
                updates.push(SessionUpdate::CompactionUpdate(Box::new(update)));
                for block in compaction.summary.iter().flat_map(parts) {
                    let chunk = CompactionSummaryChunk::new(compaction.id.clone(), block);
                    updates.push(SessionUpdate::CompactionSummaryChunk(chunk));
                }
            }
            _ => {}
        }
    }
    let state = conversation.state();
    let plans = state.plans.iter().map(|plan| SessionUpdate::from(PlanUpdate::new(plan.clone())));
    if abilities.plans {
        updates.extend(plans);
    } else {
        // The plan without an id was updated with the others, or by an agent that has no others.
        updates.extend(plans.filter_map(legacy_plan).next_back().filter(|_| state.plan.is_none()));
    }
    updates.extend(state.plan.clone().map(SessionUpdate::Plan));
    if !conversation.commands().is_empty() {
        let commands = AvailableCommandsUpdate::new(conversation.commands().to_vec());
        updates.push(SessionUpdate::AvailableCommandsUpdate(commands));
    }
    updates.extend(conversation.usage().cloned().map(SessionUpdate::UsageUpdate));
    if let Some(title) = conversation.title() {
        let mut info = SessionInfoUpdate::new();
        info.title = Patch::Set(title.to_owned());
        updates.push(SessionUpdate::SessionInfoUpdate(info));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_split_between_characters() {
        for text in ["".to_owned(), "short".to_owned(), format!("a{}", "\u{e4}".repeat(CHUNK_BYTES))] {
            let parts = parts(&ContentBlock::Text(TextContent::new(&*text)));
            let texts: Vec<&str> = parts
                .iter()
                .map(|part| match part {
                    ContentBlock::Text(part) => part.text.as_str(),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(texts.concat(), text);
            assert!(texts.iter().all(|text| text.len() <= CHUNK_BYTES));
            assert_eq!(texts.len(), text.len() / CHUNK_BYTES + 1);
        }
    }
}
