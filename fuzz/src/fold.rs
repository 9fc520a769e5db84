//! The fold: whatever the updates are, entries keep their places and ids, and neither where text is cut
//! nor the way over the wire is seen.

use std::collections::HashSet;

use duologue_schema::{
    CompactionStatus, CompactionSummaryChunk, CompactionUpdate, ContentBlock, Conversation,
    ConversationEntry, MessageClear, MessageId, MessageKind, Plan, SessionInfoUpdate, SessionUpdate,
    ToolCall, ToolCallStatus, ToolCallUpdate, UsageUpdate,
};
use serde_json::json;

use crate::input::Input;

/// Steps, a few bytes each.
pub fn check(input: &[u8]) {
    let mut input = Input::new(input);
    let mut whole = Conversation::default();
    let mut in_pieces = Conversation::default();
    let mut over_the_wire = Conversation::default();
    let mut names = Vec::new();
    while !input.is_empty() {
        match input.below(16) {
            0 => {
                let prompt = [ContentBlock::from(text(&mut input))];
                for conversation in [&mut whole, &mut in_pieces, &mut over_the_wire] {
                    conversation.prompt(&prompt);
                }
            }
            1 => {
                for conversation in [&mut whole, &mut in_pieces, &mut over_the_wire] {
                    conversation.end_turn();
                }
            }
            kind => {
                let update = update(kind, &mut input);
                let place = whole.apply(&update);
                let entries = whole.entries();
                assert!(place.is_none_or(|place| place < entries.len()), "a place that is not there");
                assert!(entries.len() <= names.len() + 1, "more than one new entry");

                for piece in cut(&update) {
                    in_pieces.apply(&piece);
                }
                let line = serde_json::to_string(&update).expect("an update can be written");
                over_the_wire.apply(&serde_json::from_str(&line).expect("and read"));
            }
        }
        keep(&mut names, whole.entries());
    }
    found_by_their_ids(&whole);
    assert_eq!(whole, in_pieces);
    assert_eq!(whole, over_the_wire);
    if let Some(last) = whole.messages().next_back()
        && last.kind == MessageKind::Agent
    {
        assert!(whole.agent_text().contains(&last.text()));
    }
}

/// Returns the identity of an entry, which stays the same while it exists.
fn name(entry: &ConversationEntry) -> (u8, Option<&str>) {
    match entry {
        ConversationEntry::Message(message) => {
            (message.kind as u8, message.id.as_ref().map(MessageId::as_str))
        }
        ConversationEntry::ToolCall(call) => (10, Some(call.tool_call_id.as_str())),
        ConversationEntry::Compaction(compaction) => (11, Some(compaction.id.as_str())),
        _ => (12, None),
    }
}

/// All entries are where they were; the names of new ones are added.
fn keep(names: &mut Vec<(u8, Option<String>)>, entries: &[ConversationEntry]) {
    let same =
        names.iter().map(|(kind, id)| (*kind, id.as_deref())).eq(entries.iter().take(names.len()).map(name));
    assert!(same, "entries moved");
    let new = entries.iter().skip(names.len()).map(name);
    names.extend(new.map(|(kind, id)| (kind, id.map(str::to_owned))));
}

fn found_by_their_ids(conversation: &Conversation) {
    let mut names = HashSet::new();
    for entry in conversation.entries() {
        let name = name(entry);
        assert!(name.1.is_none() || names.insert(name), "two entries of one name");
        match entry {
            ConversationEntry::Message(message) => {
                if let Some(id) = &message.id {
                    assert_eq!(conversation.message(message.kind, id.clone()), Some(message));
                }
            }
            ConversationEntry::ToolCall(call) => {
                assert_eq!(conversation.tool_call(call.tool_call_id.clone()), Some(&**call));
            }
            _ => {}
        }
    }
}

/// Few words and few ids, so that they meet.
fn text(input: &mut Input<'_>) -> String {
    ["", "one", "zwölf", "🙂🙃", "more words", "\n"][input.below(6)].to_owned()
}

fn id(input: &mut Input<'_>) -> Option<MessageId> {
    [None, Some("a"), Some("b"), Some("")][input.below(4)].map(MessageId::from)
}

fn content(input: &mut Input<'_>) -> ContentBlock {
    match input.below(8) {
        0 => ContentBlock::resource_link("file", "file:///file"),
        _ => text(input).into(),
    }
}

fn named(update: SessionUpdate, id: Option<MessageId>) -> SessionUpdate {
    match id {
        Some(id) => update.with_message_id(id),
        None => update,
    }
}

fn update(kind: usize, input: &mut Input<'_>) -> SessionUpdate {
    match kind {
        2 | 3 => named(SessionUpdate::agent_message(content(input)), id(input)),
        4 => named(SessionUpdate::agent_thought(content(input)), id(input)),
        5 => named(SessionUpdate::user_message(content(input)), id(input)),
        6 => named(SessionUpdate::agent_message_clear(None), id(input)),
        7 => named(SessionUpdate::AgentThoughtClear(MessageClear::new()), id(input)),
        8 => SessionUpdate::ToolCall(ToolCall::new(call(input), text(input)).into()),
        9 => {
            let update = ToolCallUpdate::new(call(input)).status(ToolCallStatus::Completed);
            SessionUpdate::ToolCallUpdate(update.into())
        }
        10 => SessionUpdate::CompactionSummaryChunk(CompactionSummaryChunk::new(call(input), content(input))),
        11 => SessionUpdate::CompactionUpdate(
            CompactionUpdate::new(call(input), CompactionStatus::Completed).into(),
        ),
        12 => SessionUpdate::SessionInfoUpdate(SessionInfoUpdate::new().title(text(input))),
        13 => SessionUpdate::UsageUpdate(UsageUpdate::new(u64::from(input.byte()), u64::from(input.byte()))),
        14 => SessionUpdate::Plan(Plan::new([])),
        _ => later(input),
    }
}

fn call(input: &mut Input<'_>) -> &'static str {
    ["x", "y", "a"][input.below(3)]
}

/// Returns an update of a later protocol version: a whole message, or an unknown kind.
fn later(input: &mut Input<'_>) -> SessionUpdate {
    let kind = ["agent_message", "agent_thought", "user_message", "moon_phase"][input.below(4)];
    // A whole message needs an id.
    let mut update = json!({ "sessionUpdate": kind, "messageId": id(input).unwrap_or_else(|| "m".into()) });
    match input.below(4) {
        0 => {}
        1 => update["content"] = json!(null),
        2 => update["content"] = json!([]),
        _ => update["content"] = json!([content(input), content(input)]),
    }
    serde_json::from_value(update).expect("an unknown update")
}

/// The update as a peer might as well have sent it, in two.
fn cut(update: &SessionUpdate) -> Vec<SessionUpdate> {
    let mut pieces = [update.clone(), update.clone()];
    for (index, piece) in pieces.iter_mut().enumerate() {
        let content = match piece {
            SessionUpdate::UserMessageChunk(chunk)
            | SessionUpdate::AgentMessageChunk(chunk)
            | SessionUpdate::AgentThoughtChunk(chunk) => &mut chunk.content,
            SessionUpdate::CompactionSummaryChunk(chunk) => &mut chunk.content,
            _ => return vec![update.clone()],
        };
        let ContentBlock::Text(text) = content else { return vec![update.clone()] };
        let half = text.text.chars().count() / 2;
        text.text = match index {
            0 => text.text.chars().take(half).collect(),
            _ => text.text.chars().skip(half).collect(),
        };
    }
    pieces.into()
}
