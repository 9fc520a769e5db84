//! The fold of the updates that the stable version 1 does not have.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duologue_schema::v2::BackgroundWork;
use duologue_schema::*;
use serde_json::{Value, json};

/// Folds updates as version 2 writes them.
fn fold(updates: &[Value]) -> Conversation {
    let mut conversation = Conversation::retaining(Retention::All);
    for update in updates {
        apply(&mut conversation, update);
    }
    conversation
}

fn apply(conversation: &mut Conversation, update: &Value) {
    let update: v2::SessionUpdate =
        serde_json::from_str(&update.to_string()).unwrap_or_else(|error| panic!("{update}: {error}"));
    conversation.apply(&update.into());
}

fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn output(id: &str, bytes: &[u8]) -> Value {
    json!({ "sessionUpdate": "terminal_output_chunk", "terminalId": id, "data": base64(bytes) })
}

fn state(state: Value) -> Value {
    let mut update = json!({ "sessionUpdate": "state_update" });
    update.as_object_mut().unwrap().extend(state.as_object().unwrap().clone());
    update
}

#[test]
fn the_foreground_is_unknown_until_it_is_reported() {
    let mut conversation = Conversation::default();
    assert_eq!(conversation.state().foreground, None);
    let mut after = |update: Value| {
        apply(&mut conversation, &state(update));
        conversation.state().foreground.clone().unwrap()
    };
    assert_eq!(after(json!({ "state": "running" })), StateUpdate::running());
    assert_eq!(after(json!({ "state": "requires_action" })), StateUpdate::requires_action());
    let idle = after(
        json!({ "state": "idle", "stopReason": "refusal", "background": [{ "type": "terminal", "terminalId": "t" }] }),
    );
    assert_eq!(idle.stop_reason(), Some(StopReason::Refusal));
    let [BackgroundWork::Terminal(terminal)] = idle.background().unwrap() else { panic!("{idle:?}") };
    assert_eq!(terminal.terminal_id, "t");
    // An absent or malformed list is no report.
    assert_eq!(
        after(json!({ "state": "running", "background": [{ "type": "terminal" }] })).background(),
        None
    );
    assert_eq!(after(json!({ "state": "paused", "since": 1 })).tag(), "paused");
    assert_eq!(conversation.entries(), []);
}

#[test]
fn content_is_appended_to_a_tool_call() {
    let chunk = |id: &str, text: &str| {
        json!({ "sessionUpdate": "tool_call_content_chunk", "toolCallId": id,
            "content": { "type": "content", "content": { "type": "text", "text": text } } })
    };
    let update = |more: Value| {
        let mut update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c" });
        update.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        update
    };
    let mut updates = vec![chunk("c", "one"), chunk("c", "two")];
    let texts = |conversation: &Conversation| {
        serde_json::to_string(&conversation.tool_call("c").unwrap().content).unwrap()
    };
    assert_eq!(texts(&fold(&updates)).matches("text\":\"").count(), 2);
    updates.push(update(
        json!({ "content": [{ "type": "terminal", "terminalId": "t" }], "name": "sh", "rawInput": 1 }),
    ));
    updates.push(chunk("c", "three"));
    let conversation = fold(&updates);
    assert_eq!(
        texts(&conversation),
        r#"[{"type":"terminal","terminalId":"t"},{"type":"content","content":{"type":"text","text":"three"}}]"#
    );
    // A permission request may leave the content out.
    assert_eq!(conversation.open_call(&"c".into()).unwrap().content.as_ref().unwrap().len(), 2);
    assert_eq!(
        conversation.open_call_bytes(),
        serde_json::to_string(conversation.open_call(&"c".into()).unwrap()).unwrap().len()
    );

    updates.push(update(
        json!({ "name": null, "rawInput": null, "content": null, "capabilities": { "cancel": {} } }),
    ));
    let conversation = fold(&updates);
    let call = conversation.tool_call("c").unwrap();
    assert_eq!((&call.name, &call.raw_input, call.content.len()), (&None, &None, 0));
    assert!(call.capabilities.as_ref().unwrap().cancel.is_some());
    updates.push(update(json!({ "status": "cancelled", "capabilities": null })));
    let conversation = fold(&updates);
    assert!(conversation.open_call(&"c".into()).is_none());
    assert_eq!(conversation.tool_call("c").unwrap().capabilities, None);
}

#[test]
fn a_terminal_is_patched_and_its_output_appended() {
    let update = |more: Value| {
        let mut update = json!({ "sessionUpdate": "terminal_update", "terminalId": "t" });
        update.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        update
    };
    let mut conversation = fold(&[
        update(
            json!({ "command": "ls", "cwd": "/a", "size": { "cols": 80, "rows": 24 }, "_meta": { "a": 1 } }),
        ),
        // A character may be cut between two chunks, each of which is base64 of its own.
        output("t", b"caf\xc3"),
        output("t", b"\xa9\n"),
        json!({ "sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": "no base64!" }),
        update(json!({ "exitStatus": { "exitCode": -1 }, "size": null, "_meta": { "b": 2 } })),
    ]);
    let terminal = conversation.terminal("t").unwrap();
    assert_eq!(terminal.output(), ("café\n".to_owned(), false));
    assert_eq!((terminal.command.as_deref(), &terminal.size), (Some("ls"), &None));
    assert_eq!(terminal.exit_status.as_ref().unwrap().exit_code, Some(-1));
    assert_eq!(terminal.meta.as_ref().unwrap().to_string(), r#"{"a":1,"b":2}"#);
    assert_eq!(conversation.stats().unknown_updates, 1);
    assert!(conversation.entries().is_empty());

    apply(&mut conversation, &update(json!({ "output": { "data": base64(b"all") } })));
    apply(&mut conversation, &output("t", b" of it"));
    assert_eq!(conversation.terminal("t").unwrap().output().0, "all of it");
    apply(&mut conversation, &update(json!({ "output": { "data": "?" } })));
    assert_eq!(conversation.terminal("t").unwrap().output().0, "all of it");
    apply(&mut conversation, &update(json!({ "output": null })));
    assert_eq!(conversation.terminal("t").unwrap().output().0, "");
}

#[test]
fn terminals_and_their_output_are_bounded() {
    let mut conversation = Conversation::default();
    let piece = vec![b'x'; DISPLAY_TERMINAL_BYTES / 2];
    for _ in 0..2 {
        apply(&mut conversation, &output("long", &piece));
    }
    let (text, truncated) = conversation.terminal("long").unwrap().output();
    assert_eq!((text.len(), truncated), (DISPLAY_TERMINAL_BYTES, false));
    apply(&mut conversation, &output("long", b"end"));
    let (text, truncated) = conversation.terminal("long").unwrap().output();
    assert!(text.len() == DISPLAY_TERMINAL_BYTES && text.ends_with("xend") && truncated);

    // So is the description of a terminal.
    let described = json!({ "sessionUpdate": "terminal_update", "terminalId": "long", "command": "x".repeat(DISPLAY_TERMINAL_BYTES) });
    apply(&mut conversation, &described);
    assert_eq!(conversation.terminal("long").unwrap().command, None);
    assert_eq!(conversation.stats().unknown_updates, 1);

    for id in 0..DISPLAY_TERMINALS - 1 {
        apply(&mut conversation, &output(&id.to_string(), b"."));
    }
    assert!(conversation.terminal("long").is_some());
    // The one that was updated longest ago is dropped.
    apply(&mut conversation, &output("long", b"."));
    apply(&mut conversation, &output("new", b"."));
    assert_eq!(conversation.terminals().count(), DISPLAY_TERMINALS);
    assert!(conversation.terminal("long").is_some() && conversation.terminal("0").is_none());
}

#[test]
fn plans_are_kept_by_id() {
    let plan = |id: &str, text: &str| json!({ "sessionUpdate": "plan_update", "plan": { "type": "markdown", "planId": id, "content": text } });
    let removed = json!({ "sessionUpdate": "plan_removed", "planId": "a" });
    let conversation = fold(&[plan("a", "1"), plan("b", "2"), plan("a", "3")]);
    let ids = |conversation: &Conversation| {
        conversation.state().plans.iter().map(|plan| plan.plan_id().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&conversation), ["b", "a"]);
    assert_eq!(ids(&fold(&[plan("a", "1"), plan("b", "2"), removed])), ["b"]);
    let mut conversation = Conversation::default();
    for id in 0..=PLANS {
        apply(&mut conversation, &plan(&id.to_string(), "short"));
    }
    assert_eq!((ids(&conversation).len(), ids(&conversation)[0].as_str()), (PLANS, "1"));
    apply(&mut conversation, &plan("long", &"x".repeat(PLAN_BYTES - 300)));
    assert!(ids(&conversation).len() < 10 && ids(&conversation).last().unwrap() == "long");
    // A plan that is too long does not take the others with it, and is not its earlier state either.
    apply(&mut conversation, &plan("longer", "short"));
    apply(&mut conversation, &plan("longer", &"x".repeat(PLAN_BYTES)));
    assert_eq!(ids(&conversation).last().unwrap(), "long");
    // A plan that was removed or replaced no longer counts.
    let half = "x".repeat(PLAN_BYTES / 2 - 300);
    let conversation = fold(&[
        plan("a", &half),
        plan("b", &half),
        json!({ "sessionUpdate": "plan_removed", "planId": "a" }),
        plan("c", &half),
        plan("c", &half),
    ]);
    assert_eq!(ids(&conversation), ["b", "c"]);
}

/// An update of one plan does not measure the others, which may be long.
#[test]
fn an_update_of_a_plan_costs_its_own_length() {
    let plan = |id: &str, text: &str| json!({ "sessionUpdate": "plan_update", "plan": { "type": "markdown", "planId": id, "content": text } });
    let took = |length: usize| {
        let mut conversation = Conversation::default();
        (0..PLANS - 1).for_each(|id| apply(&mut conversation, &plan(&id.to_string(), &"\n".repeat(length))));
        let mut round = || {
            let started = std::time::Instant::now();
            (0..20).for_each(|_| apply(&mut conversation, &plan("short", "x")));
            started.elapsed()
        };
        // The shortest round has no interruption.
        (0..10).map(|_| round()).min().unwrap()
    };
    let (short, long) = (took(1), took(PLAN_BYTES / PLANS / 3));
    assert!(long < short * 10, "{long:?} beside long plans, {short:?} beside short ones");
}

/// The plan of version 1 is the list of steps with the id `main`, in whatever update it comes.
#[test]
fn the_main_plan_has_one_place() {
    let items = |steps: usize, meta: Value| {
        let step = json!({ "content": "a", "priority": "high", "status": "pending" });
        let plan = json!({ "type": "items", "planId": "main", "entries": vec![step; steps] });
        json!({ "sessionUpdate": "plan_update", "plan": plan, "_meta": meta })
    };
    let markdown = json!({ "sessionUpdate": "plan_update", "plan": { "type": "markdown", "planId": "main", "content": "" } });
    let removed = json!({ "sessionUpdate": "plan_removed", "planId": "main" });
    let places = |updates: &[Value]| {
        let conversation = fold(updates);
        let steps = conversation.plan().map(|plan| plan.entries.len());
        (steps, conversation.state().plans.len())
    };
    let meta = || json!({ "a": 1 });
    assert_eq!(places(&[items(1, Value::Null), items(2, meta())]), (Some(2), 0));
    assert_eq!(places(&[items(1, meta()), items(2, Value::Null)]), (Some(2), 0));
    assert_eq!(places(&[items(1, Value::Null), markdown.clone()]), (None, 1));
    assert_eq!(places(&[markdown, items(1, Value::Null)]), (Some(1), 0));
    assert_eq!(places(&[items(1, Value::Null), removed]), (None, 0));
}

fn child(id: &str, more: Value) -> Value {
    let mut update = json!({ "sessionUpdate": "subagent_update", "sessionId": id });
    update.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    update
}

#[test]
fn child_sessions_make_a_tree() {
    let mut conversation = fold(&[
        child("a", json!({ "title": "Review", "description": "Reads", "state": { "state": "running" } })),
        child("b", json!({})),
        child(
            "a",
            json!({ "title": null, "state": { "state": "idle", "stopReason": "end_turn" }, "cwd": "/a" }),
        ),
    ]);
    let update = |value: Value| -> SessionUpdate { serde_json::from_value(value).unwrap() };
    conversation.apply_of_child(&"a".into(), &update(child("c", json!({ "title": "Deep" }))));
    // Neither a message of a child nor a child that is its own ancestor changes the tree.
    conversation.apply_of_child(&"a".into(), &SessionUpdate::agent_message("text"));
    conversation.apply_of_child(&"c".into(), &update(child("c2", json!({}))));
    let mut cyclic = conversation.clone();
    cyclic.apply_of_child(&"x".into(), &update(child("x", json!({}))));
    cyclic.apply_of_child(&"y".into(), &update(child("z", json!({}))));
    cyclic.apply_of_child(&"z".into(), &update(child("y", json!({}))));
    assert_eq!(cyclic.stats().unknown_updates, 2);
    assert_eq!(cyclic.children().iter().count(), conversation.children().iter().count() + 1);

    let tree = conversation.children();
    let names = |parent: Option<&SessionId>| {
        let mut names: Vec<_> = tree.children_of(parent).map(|child| child.id.to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(names(None), ["a", "b"]);
    assert_eq!(
        (names(Some(&"a".into())), names(Some(&"c".into()))),
        (vec!["c".to_owned()], vec!["c2".to_owned()])
    );
    let a = tree.get(&"a".into()).unwrap();
    assert_eq!((&a.title, a.description.as_deref()), (&None, Some("Reads")));
    assert_eq!(a.state.as_ref().unwrap().stop_reason(), Some(StopReason::EndTurn));
    assert_eq!(a.cwd.as_deref(), Some(std::path::Path::new("/a")));
    // A known child keeps its parent.
    conversation.apply_of_child(&"b".into(), &update(child("c", json!({ "description": "d" }))));
    let c = conversation.children().get(&"c".into()).unwrap();
    assert_eq!((c.parent.as_ref().unwrap().as_str(), c.title.as_deref()), ("a", Some("Deep")));
    assert!(conversation.entries().is_empty());
}

#[test]
fn the_tree_is_bounded() {
    let mut conversation = Conversation::default();
    for id in 0..=CHILD_SESSIONS {
        apply(&mut conversation, &child(&id.to_string(), json!({})));
    }
    assert_eq!(conversation.children().iter().count(), CHILD_SESSIONS);
    assert!(conversation.children().get(&"0".into()).is_none());
    let half = "x".repeat(CHILD_SESSION_BYTES / 2);
    apply(&mut conversation, &child("long", json!({ "title": half })));
    apply(&mut conversation, &child("longer", json!({ "title": half })));
    assert!(conversation.children().get(&"long".into()).is_none());
    assert!(conversation.children().get(&"longer".into()).is_some());
    // A description that is too long changes nothing.
    apply(&mut conversation, &child("longer", json!({ "title": "x".repeat(CHILD_SESSION_BYTES) })));
    assert_eq!(
        conversation.children().get(&"longer".into()).unwrap().title.as_ref().unwrap().len(),
        half.len()
    );
    assert_eq!(conversation.stats().unknown_updates, 1);
}

#[test]
fn messages_between_sessions_are_entries() {
    let message = |more: Value| {
        let mut update = json!({ "sessionUpdate": "session_message", "messageId": "m" });
        update.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        update
    };
    let chunk = |text: &str| json!({ "sessionUpdate": "session_message_chunk", "messageId": "m", "content": { "type": "text", "text": text } });
    let agent = json!({ "sessionUpdate": "agent_message_chunk", "messageId": "m", "content": { "type": "text", "text": "x" } });
    let conversation = fold(&[
        chunk("Look "),
        agent,
        message(json!({ "senderSessionId": "a", "recipientSessionId": "b" })),
        chunk("here."),
        message(json!({ "senderSessionId": null, "recipientMessageId": "n" })),
    ]);
    assert_eq!(conversation.entries().len(), 2);
    let message_entry = conversation.entries()[0].as_session_message().unwrap();
    assert_eq!(conversation.session_message("m"), Some(message_entry));
    assert_eq!(message_entry.content, ["Look here.".into()]);
    assert_eq!((&message_entry.sender, message_entry.recipient.as_ref().unwrap().as_str()), (&None, "b"));
    assert_eq!(message_entry.recipient_message.as_ref().unwrap().as_str(), "n");
    let cleared = fold(&[chunk("a"), message(json!({ "content": null })), chunk("b")]);
    assert_eq!(cleared.session_message("m").unwrap().content, ["b".into()]);
}

#[test]
fn relative_paths_are_found() {
    let diff = |change: Value| json!({ "sessionUpdate": "tool_call_content_chunk", "toolCallId": "c", "content": { "type": "diff", "changes": [change] } });
    for (update, field) in [
        (child("a", json!({ "cwd": "a" })), "cwd"),
        (child("a", json!({ "additionalDirectories": ["/a", "b"] })), "additionalDirectories[]"),
        (json!({ "sessionUpdate": "terminal_update", "terminalId": "t", "cwd": "a" }), "cwd"),
        (diff(json!({ "operation": "add", "path": "a" })), "content[].path"),
        (diff(json!({ "operation": "move", "oldPath": "a", "path": "/a" })), "content[].path"),
    ] {
        let update: v2::SessionUpdate = serde_json::from_value(update).unwrap();
        let update = SessionUpdate::from(update);
        assert_eq!(update.relative_path().unwrap().field(), field);
    }
}

#[test]
fn updates_of_other_versions_are_recognized() {
    let tag = |update: Value| -> Option<String> {
        let update: SessionUpdate = serde_json::from_value(update).unwrap();
        update.tag_outside_v1().map(str::to_owned)
    };
    assert_eq!(tag(state(json!({ "state": "running" }))).as_deref(), Some("state_update"));
    assert_eq!(
        tag(json!({ "sessionUpdate": "agent_message", "messageId": "m" })).as_deref(),
        Some("agent_message")
    );
    assert_eq!(tag(json!({ "sessionUpdate": "later" })).as_deref(), Some("later"));
    assert_eq!(tag(json!({ "sessionUpdate": "agent_message_clear" })), None);
    assert_eq!(tag(json!({ "sessionUpdate": "plan", "entries": [] })), None);
}

#[test]
fn an_absent_status_of_a_compaction_is_no_change() {
    let compaction = |members: Value| {
        let mut update = json!({ "sessionUpdate": "compaction_update", "compactionId": "c" });
        update.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        update
    };
    let status = |updates: &[Value]| {
        let conversation = fold(updates);
        let [ConversationEntry::Compaction(compaction)] = conversation.entries() else {
            panic!("{updates:?}")
        };
        compaction.status.clone()
    };
    let failed = compaction(json!({ "status": "failed" }));
    assert_eq!(status(&[compaction(json!({}))]), CompactionStatus::InProgress);
    assert_eq!(status(&[failed.clone(), compaction(json!({ "error": "e" }))]), CompactionStatus::Failed);
    assert_eq!(
        status(&[failed.clone(), compaction(json!({ "status": null }))]),
        CompactionStatus::InProgress
    );
    for update in [failed, compaction(json!({ "error": "e" }))] {
        let read: v2::SessionUpdate = serde_json::from_value(update.clone()).unwrap();
        let back = v2::SessionUpdate::try_from(SessionUpdate::from(read)).unwrap();
        assert_eq!(serde_json::to_value(back).unwrap(), update);
    }
}

#[test]
fn a_skill_needs_a_name_and_is_no_slash_command() {
    let skill = json!({ "type": "skill", "name": "k" });
    let block: ContentBlock = serde_json::from_value(skill.clone()).unwrap();
    assert!(matches!(&block, ContentBlock::Skill(skill) if skill.name == "k"));
    assert_eq!(serde_json::to_value(block).unwrap(), skill);
    assert!(serde_json::from_value::<ContentBlock>(json!({ "type": "skill" })).is_err());
    let commands = json!([
        { "type": "skill", "name": "k", "description": "K", "path": "/k/SKILL.md" },
        { "type": "command", "name": "c", "description": "C" },
    ]);
    let update = json!({ "sessionUpdate": "available_commands_update", "availableCommands": commands });
    let read: v2::SessionUpdate = serde_json::from_value(update.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), update);
    let SessionUpdate::AvailableCommandsUpdate(commands) = SessionUpdate::from(read) else {
        panic!("commands")
    };
    let names: Vec<_> = commands.available_commands.iter().map(|command| command.name.as_str()).collect();
    assert_eq!(names, ["c"]);
}
