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
    let mut conversation = Conversation::default();
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

/// Few ids, so that they meet.
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

/// Updates that only an agent sends: everything that a turn consists of.
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

/// Updates that report a state and add nothing to a message.
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

/// The text of an update that a peer might as well have cut in two.
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

/// A clear with an id as draft version 2 of the protocol writes it.
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
    fn where_chunks_are_cut_is_not_seen(steps in vec((step(), 0_usize..6), 0..40)) {
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

    #[test]
    fn metadata_moves_no_message(steps in vec((step(), metadata()), 0..40)) {
        let said: Vec<Step> = steps.iter().map(|(step, _)| step.clone()).collect();
        let all: Vec<Step> = steps.into_iter().flat_map(|(step, metadata)| [step, Update(metadata)]).collect();
        let (all, said) = (fold(&all), fold(&said));
        prop_assert_eq!(all.entries(), said.entries());
    }

    /// Only the messages of the user separate the turns of a loaded session.
    #[test]
    fn a_replay_with_its_clears_comes_to_the_same(turns in vec(vec(of_agent(), 1..12), 0..6)) {
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
    fn both_wire_forms_of_a_clear_are_the_same(steps in vec(step(), 0..40)) {
        let whole: Vec<Step> = steps.iter().map(|step| match step {
            Update(update) => Update(as_whole_message(update).unwrap_or_else(|| update.clone())),
            other => other.clone(),
        }).collect();
        prop_assert_eq!(fold(&whole), fold(&steps));
    }

    /// A draft leaves no trace once it is cleared, whatever came between the two.
    #[test]
    fn a_cleared_draft_is_forgotten(
        before in vec(step(), 0..20),
        drafts in (content(), content()),
        id in id(),
        last in content(),
        after in vec(step(), 0..20),
    ) {
        let say = |content| Update(named(SessionUpdate::agent_message(content), id));
        let with = |draft| {
            let clear = Update(named(SessionUpdate::agent_message_clear(None), id));
            fold(&[&before[..], &[say(draft), clear, say(last.clone())], &after].concat())
        };
        prop_assert_eq!(with(drafts.0), with(drafts.1));
    }

    /// Any update of the protocol is taken, and so is any whole message.
    #[test]
    fn anything_can_be_applied(seeds in vec(any::<u64>(), 1..40)) {
        static DOCUMENT: LazyLock<Value> = LazyLock::new(document);
        let mut conversation = Conversation::default();
        for seed in seeds {
            let mut random = RandomValues::new(&DOCUMENT, seed);
            let mut value = random.definition("SessionUpdate");
            if seed % 4 == 0 {
                value["sessionUpdate"] = ["user_message", "agent_message", "agent_thought"][random.below(3)].into();
            }
            let changed = conversation.apply(&serde_json::from_value(value)?);
            prop_assert!(changed.is_none_or(|place| place < conversation.entries().len()));
        }
    }
}
