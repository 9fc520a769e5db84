//! Properties of the fold that hold for any updates.

use std::sync::LazyLock;

use duologue_schema::export::document;
use duologue_schema::export::random::RandomValues;
use duologue_schema::*;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

/// One step of a conversation.
#[derive(Clone, Debug)]
enum Step {
    Prompt(&'static str),
    EndTurn,
    Update(SessionUpdate),
}

use Step::{EndTurn, Prompt, Update};

fn fold(steps: &[Step]) -> Conversation {
    fold_into(Conversation::default(), steps)
}

fn fold_into(mut conversation: Conversation, steps: &[Step]) -> Conversation {
    for step in steps {
        match step {
            Prompt(text) => conversation.prompt(&[(*text).into()]),
            EndTurn => conversation.end_turn(),
            Update(update) => {
                conversation.apply(update);
            }
        }
    }
    conversation
}

/// Returns one of few ids, so that several updates share one.
fn id() -> impl Strategy<Value = Option<&'static str>> {
    prop_oneof![3 => Just(None), 1 => Just(Some("a")), 1 => Just(Some("b"))]
}

fn text() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just(""), Just("one"), Just("zwölf"), Just("🙂🙃"), Just("more words")]
}

fn content() -> impl Strategy<Value = ContentBlock> {
    prop_oneof![
        6 => text().prop_map(ContentBlock::from),
        1 => Just(ContentBlock::resource_link("file", "file:///file")),
    ]
}

fn named(update: SessionUpdate, id: Option<&str>) -> SessionUpdate {
    match id {
        Some(id) => update.with_message_id(id),
        None => update,
    }
}

/// Returns an update that only an agent sends in a turn.
fn of_agent() -> impl Strategy<Value = SessionUpdate> {
    let message =
        (content(), id()).prop_map(|(content, id)| named(SessionUpdate::agent_message(content), id));
    let thought =
        (content(), id()).prop_map(|(content, id)| named(SessionUpdate::agent_thought(content), id));
    let clear = id().prop_map(|id| named(SessionUpdate::agent_message_clear(None), id));
    let forget = id().prop_map(|id| named(SessionUpdate::AgentThoughtClear(MessageClear::new()), id));
    let call = any::<bool>().prop_map(|new| match new {
        true => SessionUpdate::ToolCall(ToolCall::new("c", "Read").into()),
        false => {
            SessionUpdate::ToolCallUpdate(ToolCallUpdate::new("c").status(ToolCallStatus::Completed).into())
        }
    });
    let summary = content()
        .prop_map(|content| SessionUpdate::CompactionSummaryChunk(CompactionSummaryChunk::new("z", content)));
    prop_oneof![6 => message, 3 => thought, 3 => clear, 2 => forget, 2 => call, 1 => summary, 1 => metadata()]
}

/// Returns an update that reports a state and adds nothing to a message.
fn metadata() -> impl Strategy<Value = SessionUpdate> {
    prop_oneof![
        Just(SessionUpdate::UsageUpdate(UsageUpdate::new(1_u64, 2_u64))),
        Just(SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate::new([]))),
        Just(SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new("code"))),
        Just(SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new([]))),
        Just(SessionUpdate::SessionInfoUpdate(SessionInfoUpdate::new().title("t"))),
        Just(SessionUpdate::Plan(Plan::new([]))),
        Just(SessionUpdate::Notice(Notice::new(NoticeSeverity::Info, "n"))),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let user = (content(), id()).prop_map(|(content, id)| named(SessionUpdate::user_message(content), id));
    prop_oneof![
        1 => text().prop_map(Prompt),
        1 => Just(EndTurn),
        1 => user.prop_map(Update),
        8 => of_agent().prop_map(Update),
    ]
}

/// Returns the text of a chunk, which a peer can split into two chunks.
fn chunk_text(update: &mut SessionUpdate) -> Option<&mut String> {
    let content = match update {
        SessionUpdate::UserMessageChunk(chunk)
        | SessionUpdate::AgentMessageChunk(chunk)
        | SessionUpdate::AgentThoughtChunk(chunk) => &mut chunk.content,
        SessionUpdate::CompactionSummaryChunk(chunk) => &mut chunk.content,
        _ => return None,
    };
    match content {
        ContentBlock::Text(text) => Some(&mut text.text),
        _ => None,
    }
}

/// Returns a clear with an id in the form of draft version 2 of the protocol.
fn as_whole_message(update: &SessionUpdate) -> Option<SessionUpdate> {
    let (name, id) = match update {
        SessionUpdate::AgentMessageClear(clear) => ("agent_message", clear.message_id.as_ref()?),
        SessionUpdate::AgentThoughtClear(clear) => ("agent_thought", clear.message_id.as_ref()?),
        _ => return None,
    };
    let whole = json!({ "sessionUpdate": name, "messageId": id, "content": null });
    Some(serde_json::from_value(whole).unwrap())
}

proptest! {
    #[test]
    fn the_boundaries_of_chunks_leave_no_trace(steps in vec((step(), 0_usize..6), 0..40)) {
        let mut pieces = Vec::new();
        for (step, cut) in &steps {
            let mut first = step.clone();
            let mut second = step.clone();
            if let (Update(first), Update(second)) = (&mut first, &mut second)
                && let (Some(head), Some(tail)) = (chunk_text(first), chunk_text(second))
            {
                let cut = head.char_indices().nth(*cut).map_or(head.len(), |(cut, _)| cut);
                *tail = head.split_off(cut);
                pieces.push(Update(first.clone()));
                pieces.push(Update(second.clone()));
            } else {
                pieces.push(first);
            }
        }
        let whole: Vec<Step> = steps.into_iter().map(|(step, _)| step).collect();
        prop_assert_eq!(fold(&pieces), fold(&whole));
    }

    /// Each part is the same, regardless of the other parts that are kept.
    #[test]
    fn retention_only_selects_parts(steps in vec(step(), 0..40)) {
        let [entries, open_calls, all] = [Retention::Entries, Retention::OpenCalls, Retention::All]
            .map(|retention| fold_into(Conversation::retaining(retention), &steps));
        prop_assert_eq!(all.entries(), entries.entries());
        prop_assert_eq!(all.stats(), entries.stats());
        let id = ToolCallId::from("c");
        prop_assert_eq!(all.open_call(&id), open_calls.open_call(&id));
        prop_assert_eq!(all.open_call_bytes(), open_calls.open_call_bytes());
        prop_assert_eq!(all.state(), entries.state());
        prop_assert_eq!(all.state(), open_calls.state());
        // A part that is not kept is empty. Without entries no update is judged, so none is counted.
        prop_assert_eq!(entries.open_call_bytes(), 0);
        prop_assert!(open_calls.entries().is_empty());
        prop_assert_eq!(open_calls.stats(), ConversationStats::default());
    }

    #[test]
    fn metadata_moves_no_message(steps in vec((step(), metadata()), 0..40)) {
        let messages: Vec<Step> = steps.iter().map(|(step, _)| step.clone()).collect();
        let all: Vec<Step> = steps.into_iter().flat_map(|(step, metadata)| [step, Update(metadata)]).collect();
        let (all, messages) = (fold(&all), fold(&messages));
        prop_assert_eq!(all.entries(), messages.entries());
    }

    /// In a loaded session only the messages of the user separate the turns.
    #[test]
    fn a_replay_folds_to_the_live_conversation(turns in vec(vec(of_agent(), 1..12), 0..6)) {
        let mut live = Vec::new();
        let mut replay = Vec::new();
        for (number, turn) in turns.into_iter().enumerate() {
            // A message of the agent keeps two prompts apart, as in a real session.
            let turn = || turn.iter().cloned().chain([SessionUpdate::agent_message("end")]).map(Update);
            live.push(Prompt(["one", "two"][number % 2]));
            live.extend(turn());
            live.push(EndTurn);
            replay.push(Update(SessionUpdate::user_message(["one", "two"][number % 2])));
            replay.extend(turn());
        }
        replay.push(EndTurn);
        prop_assert_eq!(fold(&live), fold(&replay));
    }

    #[test]
    fn both_wire_forms_of_a_clear_have_one_effect(steps in vec(step(), 0..40)) {
        let whole: Vec<Step> = steps.iter().map(|step| match step {
            Update(update) => Update(as_whole_message(update).unwrap_or_else(|| update.clone())),
            other => other.clone(),
        }).collect();
        prop_assert_eq!(fold(&whole), fold(&steps));
    }

    /// The text before a clear does not affect the conversation after it.
    #[test]
    fn a_cleared_draft_leaves_no_trace(
        before in vec(step(), 0..20),
        drafts in (content(), content()),
        id in id(),
        last in content(),
        after in vec(step(), 0..20),
    ) {
        let message = |content| Update(named(SessionUpdate::agent_message(content), id));
        let with = |draft| {
            let clear = Update(named(SessionUpdate::agent_message_clear(None), id));
            fold(&[&before[..], &[message(draft), clear, message(last.clone())], &after].concat())
        };
        prop_assert_eq!(with(drafts.0), with(drafts.1));
    }

    /// Random updates of the protocol, and random whole messages.
    #[test]
    fn every_update_can_be_applied(seeds in vec(any::<u64>(), 1..40)) {
        static DOCUMENT: LazyLock<Value> = LazyLock::new(document);
        let mut conversation = Conversation::default();
        for seed in seeds {
            let mut random = RandomValues::new(&DOCUMENT, seed);
            let mut value = random.definition("SessionUpdate");
            if seed % 4 == 0 {
                value["sessionUpdate"] = ["user_message", "agent_message", "agent_thought"][random.below(3)].into();
                value["messageId"] = ["a", "b"][random.below(2)].into();
            }
            let changed = conversation.apply(&serde_json::from_value(value)?);
            prop_assert!(changed.is_none_or(|index| index < conversation.entries().len()));
        }
    }
}
