//! The fold: whatever the updates are, entries keep their places and ids, and neither where text is cut
//! nor the way over the wire is seen.

use std::collections::HashSet;

use duologue_schema::{
    CompactionStatus, CompactionSummaryChunk, CompactionUpdate, ContentBlock, Conversation, Entry,
    MessageClear, MessageId, Plan, SessionInfoUpdate, SessionUpdate, ToolCall, ToolCallStatus,
    ToolCallUpdate, UsageUpdate,
};
use serde_json::json;

use crate::input::Input;

/// Steps, a few bytes each.
pub fn check(input: &[u8]) {
    let mut input = Input::new(input);
    let mut whole = Conversation::default();
    let mut in_pieces = Conversation::default();
    let mut over_the_wire = Conversation::default();
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
                let before: Vec<_> = whole.entries().iter().map(name).collect();
                let place = whole.apply(&update);
                let after: Vec<_> = whole.entries().iter().map(name).collect();
                assert!(after.starts_with(&before) && after.len() <= before.len() + 1, "entries moved");
                assert!(place.is_none_or(|place| place < after.len()), "a place that is not there");

                for piece in cut(&update) {
                    in_pieces.apply(&piece);
                }
                let line = serde_json::to_string(&update).expect("an update can be written");
                over_the_wire.apply(&serde_json::from_str(&line).expect("and read"));
            }
        }
        found_by_their_ids(&whole);
    }
    assert_eq!(whole, in_pieces);
    assert_eq!(whole, over_the_wire);
    assert!(
        whole
            .messages()
            .all(|message| whole.agent_text().contains(&message.text()) || !is_last(&whole, message))
    );
}

/// Whether it is the last message of all, and the agent's.
fn is_last(conversation: &Conversation, message: &duologue_schema::Message) -> bool {
    let last = conversation.messages().next_back();
    last.is_some_and(|last| std::ptr::eq(last, message))
        && message.kind == duologue_schema::MessageKind::Agent
}

type Name = (u8, Option<String>);

/// What an entry is called, for as long as it is there.
fn name(entry: &Entry) -> Name {
    match entry {
        Entry::Message(message) => (message.kind as u8, message.id.as_ref().map(|id| id.to_string())),
        Entry::ToolCall(call) => (10, Some(call.tool_call_id.to_string())),
        Entry::Compaction(compaction) => (11, Some(compaction.id.to_string())),
        _ => (12, None),
    }
}

fn found_by_their_ids(conversation: &Conversation) {
    let mut names = HashSet::new();
    for entry in conversation.entries() {
        let name = name(entry);
        assert!(name.1.is_none() || names.insert(name), "two entries of one name");
        match entry {
            Entry::Message(message) => {
                if let Some(id) = &message.id {
                    assert_eq!(conversation.message(message.kind, id.clone()), Some(message));
                }
            }
            Entry::ToolCall(call) => {
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

/// What a later version of the protocol sends: messages at once, and kinds nobody knows yet.
fn later(input: &mut Input<'_>) -> SessionUpdate {
    let kind = ["agent_message", "agent_thought", "user_message", "moon_phase"][input.below(4)];
    let mut update = json!({ "sessionUpdate": kind, "messageId": id(input) });
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
