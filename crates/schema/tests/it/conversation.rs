//! The fold: which chunk belongs to which message, and what a clear empties.

use std::fmt::Write;

use duologue_schema::*;
use insta::assert_snapshot;
use serde_json::{Value, json};

/// One update, written short: its name, an id, and after a colon its text.
///
/// `agent_message_chunk m1: Hello` is
/// `{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"Hello"}}`.
/// An object after the name is what it is on the wire.
fn update(line: &str) -> SessionUpdate {
    let (name, mut object) = match line.split_once(" {") {
        Some((name, rest)) => (name, serde_json::from_str(&format!("{{{rest}")).unwrap()),
        None => short(line),
    };
    object["sessionUpdate"] = name.into();
    serde_json::from_value(object).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn short(line: &str) -> (&str, Value) {
    let (head, text) = line.split_once(':').unwrap_or((line, ""));
    let text = text.strip_prefix(' ').unwrap_or(text);
    let (name, id) = head.split_once(' ').map_or((head, None), |(name, id)| (name, Some(id)));
    let object = match name {
        "tool_call" => json!({ "toolCallId": id, "title": text }),
        "tool_call_update" => json!({ "toolCallId": id, "status": text }),
        "compaction_update" => json!({ "compactionId": id, "status": text }),
        "compaction_summary_chunk" => {
            json!({ "compactionId": id, "content": { "type": "text", "text": text } })
        }
        _ => json!({ "messageId": id, "content": { "type": "text", "text": text } }),
    };
    (name, object)
}

/// Folds lines: `> text` is a prompt, `.` the end of a turn, everything else an update.
fn fold(lines: &str) -> Conversation {
    let mut conversation = Conversation::default();
    for line in lines.lines().map(str::trim_start).filter(|line| !line.is_empty()) {
        match line.split_at(1) {
            (">", text) => conversation.prompt(&[text.trim_start().into()]),
            (".", "") => conversation.end_turn(),
            _ => {
                conversation.apply(&update(line));
            }
        }
    }
    conversation
}

/// One line for each entry, and one for what was ignored.
fn show(conversation: &Conversation) -> String {
    let mut out = String::new();
    for entry in conversation.entries() {
        match entry {
            ConversationEntry::Message(message) => {
                let id = message.id.as_ref().map(|id| format!(" {id}")).unwrap_or_default();
                write!(out, "{:?}{id}: {}", message.kind, blocks(&message.content)).unwrap();
                if let Some(meta) = &message.meta {
                    write!(out, " {meta}").unwrap();
                }
                if let Some(meta) = &message.chunk_meta {
                    write!(out, " last chunk {meta}").unwrap();
                }
                out.push('\n');
            }
            ConversationEntry::ToolCall(call) => {
                let ToolCall { tool_call_id, title, status, content, .. } = &**call;
                writeln!(out, "ToolCall {tool_call_id}: {title}, {status:?}, {} blocks", content.len())
                    .unwrap();
            }
            ConversationEntry::Compaction(compaction) => {
                let Compaction { id, status, summary, error, .. } = compaction;
                writeln!(out, "Compaction {id}: {status:?}, {}, {error:?}", blocks(summary)).unwrap();
            }
            _ => unreachable!("no other entries"),
        }
    }
    let stats = conversation.stats();
    if stats != ConversationStats::default() {
        writeln!(out, "{stats:?}").unwrap();
    }
    out
}

fn blocks(content: &[ContentBlock]) -> String {
    let blocks = content.iter().map(|block| match block {
        ContentBlock::Text(text) => format!("{:?}", text.text),
        ContentBlock::ResourceLink(link) => format!("<{}>", link.uri),
        other => format!("{other:?}"),
    });
    let shown: Vec<_> = blocks.collect();
    if shown.is_empty() { "(empty)".to_owned() } else { shown.join(" + ") }
}

/// Folds lines and shows what they make.
macro_rules! check {
    ($lines:literal, @$expect:literal) => {
        assert_snapshot!(show(&fold($lines)), @$expect)
    };
}

#[test]
fn chunks_of_one_kind_are_one_message() {
    check!("
        > Hi
        agent_thought_chunk: Hm
        agent_thought_chunk: m.
        agent_message_chunk: Hel
        agent_message_chunk: lo
        agent_thought_chunk: And?
        agent_message_chunk: !
    ", @r#"
    User: "Hi"
    Thought: "Hmm."
    Agent: "Hello"
    Thought: "And?"
    Agent: "!"
    "#);
}

#[test]
fn a_new_entry_ends_a_message_and_an_update_does_not() {
    check!("
        agent_message_chunk: before
        tool_call c1: Read
        agent_message_chunk: be
        tool_call_update c1: completed
        agent_message_chunk: tween
        tool_call_update c2: in_progress
        agent_message_chunk: af
        compaction_summary_chunk z: Once upon
        agent_message_chunk: ter
        compaction_update z: completed
        compaction_summary_chunk z:  a time
        agent_message_chunk: wards
    ", @r#"
    Agent: "before"
    ToolCall c1: Read, Completed, 0 blocks
    Agent: "between"
    ToolCall c2: c2, InProgress, 0 blocks
    Agent: "af"
    Compaction z: Completed, "Once upon a time", None
    Agent: "terwards"
    "#);
}

#[test]
fn metadata_ends_nothing() {
    check!(r#"
        agent_message_chunk: o
        usage_update {"used":1,"size":2}
        agent_message_chunk: n
        available_commands_update {"availableCommands":[]}
        agent_message_chunk: e
        current_mode_update {"currentModeId":"code"}
        agent_message_chunk:  m
        config_option_update {"configOptions":[]}
        agent_message_chunk: e
        session_info_update {"title":"t"}
        agent_message_chunk: s
        plan {"entries":[]}
        agent_message_chunk: s
        notice {"severity":"info","title":"t"}
        agent_message_chunk: a
        later_update {"state":"running"}
        agent_message_chunk: ge
    "#, @r#"
    Agent: "one message"
    ConversationStats { unknown_clears: 0, unknown_updates: 1 }
    "#);
}

#[test]
fn ids_tell_messages_apart_wherever_their_chunks_come() {
    check!("
        agent_message_chunk a: 1
        agent_message_chunk b: 2
        agent_thought_chunk a: 3
        agent_message_chunk a: 4
        tool_call c: Read
        agent_message_chunk b: 5
    ", @r#"
    Agent a: "14"
    Agent b: "25"
    Thought a: "3"
    ToolCall c: Read, Pending, 0 blocks
    "#);
}

#[test]
fn a_chunk_without_id_goes_on_with_the_chunk_before() {
    check!("
        agent_message_chunk a: 1
        agent_message_chunk: 2
        agent_message_chunk b: 3
        agent_message_chunk: 4
        agent_message_chunk a: 5
        agent_message_chunk: 6
    ", @r#"
    Agent a: "1256"
    Agent b: "34"
    "#);
}

#[test]
fn other_content_stands_between_text() {
    check!(r#"
        agent_message_chunk: see
        agent_message_chunk:
        agent_message_chunk {"content":{"type":"resource_link","name":"a","uri":"file:///a"}}
        agent_message_chunk:
        agent_message_chunk {"content":{"type":"resource_link","name":"b","uri":"file:///b"}}
        agent_message_chunk: for
        agent_message_chunk:  more
        agent_message_chunk {"content":{"type":"text","text":"!","annotations":{"priority":1}}}
        agent_message_chunk {"content":{"type":"text","text":"?","annotations":{"priority":1},"_meta":{"k":1}}}
        agent_message_chunk {"content":{"type":"text","text":"?","annotations":{"priority":1},"_meta":{"k":1}}}
    "#, @r#"
    Agent: "see" + <file:///a> + <file:///b> + "for more" + "!" + "??"
    "#);
}

#[test]
fn a_clear_with_an_id_empties_that_message_in_its_place() {
    check!(r#"
        agent_message_chunk {"messageId":"a","content":{"type":"text","text":"draft"},"_meta":{"k":1}}
        tool_call c: Read
        agent_message_chunk b: other
        agent_message_clear a
        agent_message_chunk a: final
    "#, @r#"
    Agent a: "final" last chunk {"k":1}
    ToolCall c: Read, Pending, 0 blocks
    Agent b: "other"
    "#);
}

#[test]
fn a_clear_of_what_is_not_there_changes_nothing() {
    check!("
        agent_message_chunk a: said
        agent_thought_chunk t: thought
        agent_message_clear b
        agent_message_clear t
        agent_thought_clear a
    ", @r#"
    Agent a: "said"
    Thought t: "thought"
    ConversationStats { unknown_clears: 3, unknown_updates: 0 }
    "#);
}

#[test]
fn a_clear_without_id_empties_the_message_that_last_received() {
    check!("
        agent_message_chunk a: 1
        agent_message_chunk b: 2
        agent_message_chunk a: 3
        agent_thought_chunk: t
        agent_message_clear
        agent_message_chunk: 4
        agent_message_clear
    ", @r#"
    Agent a: (empty)
    Agent b: "2"
    Thought: "t"
    "#);
}

#[test]
fn after_a_clear_the_next_chunk_fills_the_same_message() {
    check!("
        agent_message_chunk: draft
        tool_call c: Read
        agent_message_clear
        agent_thought_chunk: Again.
        tool_call d: Read
        agent_message_chunk: fi
        agent_message_chunk: nal
        tool_call e: Read
        agent_message_chunk: next
    ", @r#"
    Agent: "final"
    ToolCall c: Read, Pending, 0 blocks
    Thought: "Again."
    ToolCall d: Read, Pending, 0 blocks
    ToolCall e: Read, Pending, 0 blocks
    Agent: "next"
    "#);
}

#[test]
fn a_chunk_for_another_message_ends_the_wait_for_a_new_text() {
    check!("
        agent_message_chunk a: draft
        agent_message_clear
        agent_message_chunk b: 1
        agent_message_chunk: 2
        tool_call c: Read
        agent_message_clear a
        agent_message_chunk: 3
    ", @r#"
    Agent a: (empty)
    Agent b: "12"
    ToolCall c: Read, Pending, 0 blocks
    Agent: "3"
    "#);
}

#[test]
fn a_clear_without_a_current_message_does_nothing() {
    check!("
        agent_message_clear
        agent_thought_chunk: t
        agent_message_clear
        agent_message_chunk: said
    ", @r#"
    Thought: "t"
    Agent: "said"
    "#);
}

#[test]
fn a_finished_turn_is_reached_by_id_only() {
    check!("
        > one
        agent_message_chunk a: first
        .
        agent_message_clear
        agent_message_chunk: after
        > two
        agent_message_clear
        agent_message_chunk b: second
        agent_message_chunk a: , more
        agent_message_clear
        agent_message_chunk b: again
        .
        agent_message_clear a
    ", @r#"
    User: "one"
    Agent a: (empty)
    Agent: "after"
    User: "two"
    Agent b: "again"
    "#);
}

#[test]
fn late_chunks_do_not_reopen_a_finished_message() {
    check!("
        agent_message_chunk a: first
        .
        agent_message_chunk a: , late
        agent_message_clear
        agent_message_chunk: new
    ", @r#"
    Agent a: "first, late"
    Agent: "new"
    "#);
}

#[test]
fn in_a_replay_the_person_ends_turns() {
    check!("
        user_message_chunk: o
        user_message_chunk: ne
        agent_message_chunk: draft
        agent_message_clear
        agent_message_chunk: final
        user_message_chunk: two
        agent_message_clear
        agent_message_chunk: second
    ", @r#"
    User: "one"
    Agent: "final"
    User: "two"
    Agent: "second"
    "#);
}

#[test]
fn thoughts_are_cleared_like_messages() {
    check!("
        agent_thought_chunk: draft
        agent_message_chunk: said
        agent_thought_clear
        agent_message_chunk:  more
        tool_call c: Read
        agent_thought_chunk: final
        agent_thought_chunk t: one
        agent_thought_clear t
    ", @r#"
    Thought: "final"
    Agent: "said more"
    ToolCall c: Read, Pending, 0 blocks
    Thought t: (empty)
    "#);
}

#[test]
fn whole_messages_of_draft_v2() {
    check!(r#"
        user_message {"messageId":"u","content":[{"type":"text","text":"o"},{"type":"text","text":"ne"}]}
        agent_message_chunk a: draft
        agent_message {"messageId":"a","content":[{"type":"text","text":"final"}],"_meta":{"k":1}}
        agent_message_chunk a: .
        agent_message {"messageId":"a"}
        agent_thought_chunk t: secret
        agent_thought {"messageId":"t","content":null}
        agent_message_chunk b: secret
        agent_message {"messageId":"b","content":[],"_meta":{"k":2}}
        agent_message_chunk c: kept
        agent_message {"messageId":"c","content":[{"type":"text"}],"_meta":null}
        agent_message {"messageId":"d","_meta":{"k":3}}
        agent_message {"messageId":"e","content":null}
        agent_message {"messageId":"f","content":[]}
    "#, @r#"
    User u: "one"
    Agent a: "final." {"k":1}
    Thought t: (empty)
    Agent b: (empty) {"k":2}
    Agent c: "kept"
    Agent d: (empty) {"k":3}
    ConversationStats { unknown_clears: 2, unknown_updates: 0 }
    "#);
}

/// A whole message without text does not become the message that the next chunk continues.
#[test]
fn only_a_whole_message_with_content_is_continued() {
    check!(r#"
        agent_message_chunk a: 1
        agent_message_chunk b: 2
        agent_message {"messageId":"a","_meta":{"k":1}}
        agent_message_chunk: 3
        agent_message {"messageId":"a","content":[]}
        agent_message_chunk: 4
        agent_message {"messageId":"a","content":[{"type":"text","text":"5"}]}
        agent_message_chunk: 6
        agent_message {"messageId":"c","_meta":{"k":2}}
        agent_message_chunk: 7
        agent_message_chunk c: 8
        agent_message_chunk: 9
    "#, @r#"
    Agent a: "56" {"k":1}
    Agent b: "234"
    Agent c: "89" {"k":2}
    Agent: "7"
    "#);
}

/// The metadata of a chunk describes the chunk alone.
#[test]
fn a_chunk_does_not_change_the_metadata_of_its_message() {
    check!(r#"
        agent_message_chunk {"messageId":"a","content":{"type":"text","text":"1"},"_meta":{"chunk":1}}
        agent_message {"messageId":"a","_meta":{"k":1}}
        agent_message_chunk {"messageId":"a","content":{"type":"text","text":"2"},"_meta":{"chunk":2}}
        agent_message {"messageId":"a","_meta":{"l":2}}
        agent_message_chunk a: 3
    "#, @r#"
    Agent a: "123" {"k":1,"l":2} last chunk {"chunk":2}
    "#);
}

/// The rule of draft version 2, which version 1 leaves open.
#[test]
fn metadata_is_patched_by_key() {
    let patched = |name: &str, id: &str| {
        let line = |meta: &str| format!(r#"{name} {{{id}"_meta":{meta}}}"#);
        let metas = [r#"{"a":1,"b":{"c":1},"d":null}"#, r#"{"a":null,"b":{"e":1}}"#, r#"{"f":1}"#];
        fold(&metas.map(line).join("\n"))
    };
    let expected = r#"{"b":{"e":1},"f":1}"#;
    let call = patched("tool_call_update", r#""toolCallId":"c","#);
    assert_eq!(call.tool_call("c").unwrap().meta.as_ref().unwrap().to_string(), expected);
    let message = patched("agent_message", r#""messageId":"m","#);
    assert_eq!(message.last_agent_message().unwrap().meta.as_ref().unwrap().to_string(), expected);
    let session = patched("session_info_update", "");
    assert_eq!(session.meta().unwrap().to_string(), expected);
    let compaction = patched("compaction_update", r#""compactionId":"z","status":"completed","#);
    let compaction = compaction.entries()[0].as_compaction().unwrap();
    assert_eq!(compaction.meta.as_ref().unwrap().to_string(), expected);
}

/// A peer that sends other keys each time cannot fill the memory.
#[test]
fn patched_metadata_is_bounded() {
    let mut conversation = Conversation::default();
    let mut longest = 0;
    for key in 0..200 {
        let meta = json!({ key.to_string(): "x".repeat(1024) });
        let update = json!({ "sessionUpdate": "session_info_update", "_meta": meta });
        conversation.apply(&serde_json::from_value(update).unwrap());
        let meta = conversation.meta().unwrap();
        assert!(meta.get::<String>(&key.to_string()).is_some() && meta.to_string().len() <= META_BYTES);
        longest = longest.max(meta.to_string().len());
    }
    assert!(longest > META_BYTES - 2048, "{longest}");
}

/// Only the length of the result counts. A member may be replaced by one that is as long.
#[test]
fn metadata_that_fits_keeps_its_other_members() {
    let fold = |metas: &[&str]| {
        let line = |meta: &&str| format!(r#"session_info_update {{"_meta":{meta}}}"#);
        fold(&metas.iter().map(line).collect::<Vec<_>>().join("\n")).meta().unwrap().to_string()
    };
    let log = |bytes: usize| format!(r#"{{"log":"{}"}}"#, "x".repeat(bytes));
    let long = log(META_BYTES - 100);
    assert_eq!(fold(&[r#"{"k":1}"#, &long, &long]), long.replace('{', r#"{"k":1,"#));
    // A change that takes the place of a longer result removes members too.
    let change = |bytes: usize| log(bytes).replace('{', r#"{"a":null,"b":1,"b":2,"#);
    let too_long = log(META_BYTES);
    assert_eq!(fold(&[&long, &change(META_BYTES)]), too_long.replace('{', r#"{"b":2,"#));
    assert_eq!(fold(&[r#"{"a":1}"#, r#"{"a":2,"a":null}"#]), "{}");
    // A result that was too long does not stay for ever.
    assert_eq!(fold(&[&too_long, r#"{"log":null,"k":1}"#]), r#"{"k":1}"#);
    assert_eq!(fold(&[&too_long, r#"{"k":1}"#]), r#"{"k":1}"#);
}

#[test]
fn tool_calls_are_kept_by_id() {
    check!(r#"
        tool_call_update c1: in_progress
        tool_call {"toolCallId":"c2","title":"Read","content":[{"type":"content","content":{"type":"text","text":"x"}}]}
        tool_call_update {"toolCallId":"c2","title":null,"status":null,"content":null}
        tool_call_update {"toolCallId":"c1","title":"Write","content":[{"type":"terminal","terminalId":"t"}]}
        tool_call_update {"toolCallId":"c1","status":"failed","content":[]}
        tool_call_update c2: completed
        tool_call_update c3: failed
        tool_call c3: Again
    "#, @r#"
    ToolCall c1: Write, Failed, 0 blocks
    ToolCall c2: Read, Completed, 1 blocks
    ToolCall c3: Again, Pending, 0 blocks
    "#);
    let conversation = fold("tool_call c1: Read");
    assert_eq!(conversation.tool_call("c1").unwrap().title, "Read");
    assert!(conversation.tool_call("c2").is_none());
}

#[test]
fn compactions_are_patched() {
    check!(r#"
        compaction_update z: in_progress
        compaction_summary_chunk z: a
        compaction_summary_chunk z: b
        compaction_update {"compactionId":"z","status":"failed","error":"full"}
        compaction_update {"compactionId":"y","status":"completed","summary":[{"type":"text","text":"s"}]}
        compaction_update {"compactionId":"y","status":"completed","summary":null}
    "#, @r#"
    Compaction z: Failed, "ab", Some("full")
    Compaction y: Completed, (empty), None
    "#);
    let meta = |more: &str| {
        let lines = format!(
            r#"compaction_update {{"compactionId":"z","status":"completed","error":"full","_meta":{{"k":1}}}}
            compaction_update {{"compactionId":"z","status":"completed"{more}}}"#
        );
        let compaction = fold(&lines).entries()[0].as_compaction().unwrap().clone();
        (compaction.error, compaction.meta.map(|meta| meta.to_string()))
    };
    assert_eq!(meta(""), (Some("full".into()), Some(r#"{"k":1}"#.into())));
    assert_eq!(meta(r#","error":null,"_meta":null"#), (None, None));
}

#[test]
fn the_state_of_a_session() {
    let conversation = fold(
        r#"
        usage_update {"used":1,"size":2}
        usage_update {"used":2,"size":2}
        available_commands_update {"availableCommands":[{"name":"a","description":"A"}]}
        current_mode_update {"currentModeId":"code"}
        config_option_update {"configOptions":[{"id":"fast","name":"Fast","type":"boolean","currentValue":true}]}
        session_info_update {"title":"t","updatedAt":"2026-01-01T00:00:00Z","_meta":{"k":1}}
        session_info_update {"_meta":{"k":2}}
        session_info_update {"title":"u"}
        plan {"entries":[{"content":"a","priority":"high","status":"pending"}]}
        "#,
    );
    assert_eq!(conversation.usage().unwrap().used, 2);
    assert_eq!(conversation.commands()[0].name, "a");
    assert_eq!(conversation.current_mode().unwrap(), "code");
    assert_eq!(conversation.config_options()[0].name, "Fast");
    assert_eq!(conversation.title(), Some("u"));
    assert_eq!(conversation.updated_at(), Some("2026-01-01T00:00:00Z"));
    assert_eq!(conversation.meta().unwrap().to_string(), r#"{"k":2}"#);
    let mut cleared = conversation.clone();
    cleared.apply(&update(r#"session_info_update {"title":null,"updatedAt":null,"_meta":null}"#));
    assert_eq!((cleared.title(), cleared.updated_at(), cleared.meta()), (None, None, None));
    // An absent cost is no change of it.
    let mut cost = |cost: &str| {
        cleared.apply(&update(&format!(r#"usage_update {{"used":3,"size":4{cost}}}"#)));
        let usage = cleared.usage().unwrap();
        assert_eq!((usage.used, usage.size), (3, 4));
        usage.cost.value().map(|cost| cost.amount)
    };
    assert_eq!(cost(r#","cost":{"amount":1,"currency":"EUR"}"#), Some(1.0));
    assert_eq!((cost(""), cost(r#","cost":{"amount":"2"}"#)), (Some(1.0), Some(1.0)));
    assert_eq!((cost(r#","cost":null"#), cost("")), (None, None));
    // The response that opens the session lists the options anew.
    cleared.begin(None, Vec::new());
    assert_eq!(cleared.config_options(), []);
    assert_eq!(conversation.plan().unwrap().entries.len(), 1);
    assert!(conversation.entries().is_empty());
}

/// The response of `session/load` follows the replay, which may contain an old mode.
#[test]
fn the_response_that_opens_a_session_names_its_mode() {
    let modes = |current: &str| SessionModeState::new(current, [SessionMode::new("ask", "Ask")]);
    let mode = |conversation: &Conversation| conversation.current_mode().map(ToString::to_string);
    let mut loaded = fold("current_mode_update {\"currentModeId\":\"old\"}");
    loaded.begin(Some(modes("new")), Vec::new());
    assert_eq!(mode(&loaded).as_deref(), Some("new"));

    let mut resumed = Conversation::default();
    assert_eq!(mode(&resumed), None);
    resumed.begin(Some(modes("first")), Vec::new());
    assert_eq!(mode(&resumed).as_deref(), Some("first"));
    resumed.apply(&update("current_mode_update {\"currentModeId\":\"second\"}"));
    assert_eq!(mode(&resumed).as_deref(), Some("second"));
    assert_eq!(resumed.state().modes, Some(modes("second")));
    resumed.begin(Some(modes("third")), Vec::new());
    assert_eq!(mode(&resumed).as_deref(), Some("third"));
    resumed.begin(None, Vec::new());
    assert_eq!(mode(&resumed), None);

    // An agent without modes may name one all the same. A list of modes replaces it for good.
    let mut named = fold("current_mode_update {\"currentModeId\":\"old\"}");
    named.begin(None, Vec::new());
    assert_eq!(mode(&named).as_deref(), Some("old"));
    loaded.begin(None, Vec::new());
    assert_eq!(mode(&loaded), None);
}

#[test]
fn the_text_of_the_agent_is_that_of_the_last_turn() {
    let conversation = fold(
        "
        > one
        agent_message_chunk: first
        .
        > two
        agent_message_chunk: Let me see.
        tool_call c: Read
        agent_message_chunk: draft
        agent_message_clear
        agent_thought_chunk: Hm
        agent_message_chunk: It is 42.
        agent_message_chunk z: draft
        agent_message_clear z
        .
        ",
    );
    assert_eq!(conversation.agent_text(), "Let me see.\n\nIt is 42.");
    assert_eq!(conversation.last_agent_thought().unwrap().text(), "Hm");
    assert!(conversation.last_agent_message().unwrap().is_empty());
    let thinking = fold("agent_message_chunk: said\n agent_thought_chunk: Hm\n tool_call c: Read");
    assert_eq!(thinking.last_agent_message().unwrap().text(), "said");
    assert!(conversation.message(MessageKind::Agent, "z").unwrap().is_empty());
    assert!(conversation.message(MessageKind::Thought, "z").is_none());
    assert_eq!(fold("> one").agent_text(), "");
    assert_eq!(conversation.all_agent_text(), "first\n\nLet me see.\n\nIt is 42.");
}

/// A chunk costs its text: no search through the conversation, and no copy of the message.
#[test]
fn a_long_conversation_is_as_cheap_as_a_short_one() {
    let mut conversation = Conversation::default();
    for place in 0..10_000 {
        conversation.apply(&update(&format!("agent_message_chunk m{place}: text")));
    }
    let chunk = update("agent_message_chunk m17: text");
    let info = allocation_counter::measure(|| {
        (0..10_000).for_each(|_| assert_eq!(conversation.apply(&chunk), Some(17)))
    });
    assert!(info.count_total < 32 && info.bytes_total < 200_000, "{info:?}");
    assert_eq!(conversation.message(MessageKind::Agent, "m17").unwrap().content.len(), 1);
}

/// The fold reports the entry that an update changed, so that a display redraws only this one.
#[test]
fn an_update_says_which_entry_it_changed() {
    let mut conversation = fold("> go\n agent_message_chunk: one");
    for (line, changed) in [
        ("agent_message_chunk: two", Some(1)),
        ("tool_call t1: read", Some(2)),
        ("agent_message_clear:", Some(1)),
        ("agent_message_chunk: three", Some(1)),
        ("tool_call_update t1: completed", Some(2)),
        ("agent_message_clear nobody:", None),
        ("agent_thought_chunk: hm", Some(3)),
        ("compaction_update c: in_progress", Some(4)),
    ] {
        assert_eq!(conversation.apply(&update(line)), changed, "{line}");
    }
}
