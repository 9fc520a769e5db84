//! The replay of a session that a client loads: the conversation of its log, one chunk for each block.

use std::collections::HashMap;

use duologue_rpc::RpcMessage;
use duologue_rpc::raw_message::call_line;
use duologue_schema::{
    AvailableCommandsUpdate, ContentBlock, ContentChunk, Conversation, ConversationEntry,
    LoadSessionResponse, MessageId, MessageKind, Notification as _, PlanUpdate, PromptRequest, Request as _,
    Retention, SessionId, SessionInfoUpdate, SessionNotification, SessionUpdate, TextContent,
};
use duologue_transcript::Side;
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
    /// Empty for a resume.
    pub(crate) updates: Vec<SessionUpdate>,
    /// With the modes and options.
    pub(crate) response: LoadSessionResponse,
}

/// The conversation in a log.
#[derive(Default)]
struct LoadedConversation {
    conversation: Conversation,
    picture: Picture,
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
        updates.extend((damaged > 0).then(|| damage_notice(damaged)));
        append_updates(&loaded, abilities, &mut updates);
    }
    let mut response = LoadSessionResponse::new();
    // Without a list there is nothing to choose from.
    response.modes = loaded.picture.modes.filter(|modes| !modes.available_modes.is_empty());
    response.config_options = Some(loaded.picture.options).filter(|options| !options.is_empty());
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
    let mut line = call_line(None, SessionNotification::METHOD, &params).map_err(Error::Encode)?;
    line.pop();
    Ok(line)
}

fn apply(loaded: &mut LoadedConversation, session: &SessionId, entry: &LogEntry<'_>) {
    loaded.picture.apply(session, entry);
    let Some((side, frame)) = entry.frame else { return };
    let LoadedConversation { conversation, renamed, .. } = loaded;
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
            if let Some(update) = update.filter(|update| update.session_id == *session) {
                conversation.apply(&update.update);
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
        let end = (0..=CHUNK_BYTES).rev().find(|end| rest.is_char_boundary(*end)).unwrap_or_default();
        let (text, after) = rest.split_at(end);
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

/// Appends the updates from which a client rebuilds a conversation.
fn append_updates(loaded: &LoadedConversation, abilities: Abilities, updates: &mut Vec<SessionUpdate>) {
    let LoadedConversation { conversation, renamed, .. } = loaded;
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
            ConversationEntry::ToolCall(call) => updates.push(SessionUpdate::ToolCall(call.clone())),
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
        info.title = duologue_schema::Patch::Set(title.to_owned());
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
