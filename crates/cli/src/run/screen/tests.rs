//! The rows that a screen draws.

use duologue_schema::{SessionUpdate, StateUpdate, StopReason, ToolCall, ToolCallStatus, ToolCallUpdate, v2};

use super::{Block, Screen, TypedText, WindowSize};
use crate::run::rows::Span;

fn typed(text: &str) -> Option<TypedText> {
    Some(TypedText { text: text.into(), cursor: text.len(), ..TypedText::default() })
}

#[test]
fn a_key_does_not_draw_a_question_again_that_is_taller_than_the_window() {
    let mut screen = Screen::new(WindowSize { width: 40, height: 5 }, false);
    let head: String = (1..=20).map(|number| format!("row {number}\n")).collect();
    screen.ask(vec![Span::plain(&head), Span::plain("> ")].into(), None);
    screen.show_typed(Some(TypedText::default()));
    let first = screen.paint();
    assert!(first.contains("row 1\u{1b}") && first.contains("row 20\u{1b}"), "{first:?}");
    for text in ["a", "ab", "a"] {
        screen.show_typed(typed(text));
        let next = screen.paint();
        assert!(next.contains(&format!("> {text}")) && !next.contains("row"), "{next:?}");
    }
    // The whole question stands below a note that comes between.
    screen.note(vec![Span::plain("a note")]);
    let next = screen.paint();
    let (_, below) = next.split_once("a note").expect("the note");
    assert!(below.contains("row 1\u{1b}") && below.contains("> a"), "{next:?}");
    assert!(screen.resize(WindowSize { width: 30, height: 1 }).ends_with("\r\n"));
    assert!(screen.paint().contains("row 1\u{1b}"));
    for (text, end) in [("x".repeat(50), "xxxxx\u{1b}[K"), ("short".to_owned(), "short\u{1b}[K")] {
        screen.show_typed(typed(&text));
        assert!(screen.paint().contains(end), "{end:?}");
    }
}

#[test]
fn a_terminal_of_the_agent_is_shown_in_its_call_and_states_are_not() {
    let mut screen = Screen::new(WindowSize { width: 80, height: 20 }, false);
    let updates = [
        r#"{"sessionUpdate":"state_update","state":"running"}"#,
        r#"{"sessionUpdate":"terminal_output_chunk","terminalId":"sh","data":"Y29tcGlsaW5n"}"#,
        r#"{"sessionUpdate":"tool_call_update","toolCallId":"c","title":"Test","content":[{"type":"terminal","terminalId":"sh"}]}"#,
        r#"{"sessionUpdate":"terminal_output_chunk","terminalId":"sh","data":"CmRvbmUK"}"#,
        r#"{"sessionUpdate":"terminal_update","terminalId":"sh","exitStatus":{"exitCode":3}}"#,
    ];
    for update in updates {
        let update: v2::SessionUpdate = serde_json::from_str(update).expect("an update");
        screen.update(&update.into());
    }
    let shown = screen.paint();
    for row in ["Test", "compiling", "done", "[ended with code 3]"] {
        assert!(shown.contains(row), "{row} in {shown:?}");
    }
    assert!(!shown.contains("running"), "{shown:?}");
    screen.shows_states = true;
    screen.update(&StateUpdate::idle(StopReason::EndTurn).into());
    assert!(screen.paint().contains("state: idle: end_turn"));
}

/// The bytes that a screen keeps to draw them again.
fn kept(screen: &Screen) -> usize {
    let of_block = |block: &Block| {
        let spans: usize = block.spans.iter().map(|span| span.as_str().len()).sum();
        spans + block.text.len() + block.gone.len() + block.printed.len()
    };
    let entries = screen.conversation.entries().iter().filter_map(|entry| entry.as_message());
    entries.map(|message| message.text().len()).sum::<usize>()
        + screen.blocks.iter().map(of_block).sum::<usize>()
}

#[test]
fn a_long_conversation_is_forgotten_except_its_open_calls() {
    const LIMIT: usize = 64 * 1024;
    let mut screen = Screen::new(WindowSize { width: 80, height: 10 }, false);
    screen.kept_bytes = LIMIT;
    let mut call = ToolCall::new("build", "Build it all");
    call.status = ToolCallStatus::InProgress;
    screen.update(&SessionUpdate::from(call));
    let mut shown = screen.paint();
    let text = "word by word\n".repeat(100);
    for number in 0..400 {
        if number % 10 == 0 {
            let mut read = ToolCall::new(format!("call {number}").as_str(), "Read");
            read.status = ToolCallStatus::Completed;
            screen.update(&SessionUpdate::from(read));
        }
        screen.update(&SessionUpdate::agent_message(format!("{text}part {number}\n")));
        shown.push_str(&screen.paint());
        assert!(kept(&screen) < 6 * LIMIT, "{} bytes after part {number}", kept(&screen));
        assert!(screen.conversation.entries().len() < 200 && screen.blocks.len() < 200);
    }
    // Nothing is lost or shown twice, and the screen says that it forgot.
    for number in 0..400 {
        assert_eq!(shown.matches(&format!("part {number}\u{1b}")).count(), 1, "part {number}");
    }
    assert!(shown.contains("they stay as they are"));
    let mut done = ToolCallUpdate::new("build");
    done.status = Some(ToolCallStatus::Completed);
    screen.update(&SessionUpdate::from(done));
    let shown = screen.paint();
    assert!(shown.contains("✓ Build it all  other"), "{shown:?}");
}

/// Applies updates of version 1 and returns what is drawn.
fn shown(screen: &mut Screen, updates: &[&str]) -> String {
    for update in updates {
        screen.update(&serde_json::from_str(update).expect("an update"));
    }
    screen.paint()
}

#[test]
fn plans_are_shown_by_their_ids() {
    let mut screen = Screen::new(WindowSize { width: 80, height: 24 }, false);
    let step = r#"{"content":"Test it","priority":"high","status":"pending"}"#;
    let tests = format!(
        r#"{{"sessionUpdate":"plan_update","plan":{{"type":"items","planId":"tests","entries":[{step}]}}}}"#
    );
    let notes = r##"{"sessionUpdate":"plan_update","plan":{"type":"markdown","planId":"notes","content":"# Notes\nRead","path":"/notes.md"}}"##;
    let first = shown(&mut screen, &[&tests, notes]);
    for row in ["Plan tests", "○ Test it  high", "Plan notes", "[file /notes.md]", "# Notes", "Read"] {
        assert!(first.contains(row), "{row} in {first:?}");
    }
    // An update replaces the whole plan, also by one of another type.
    let replaced = shown(
        &mut screen,
        &[
            r##"{"sessionUpdate":"plan_update","plan":{"type":"markdown","planId":"tests","content":"Nothing to test"}}"##,
        ],
    );
    assert!(replaced.contains("Nothing to test") && !replaced.contains("Test it"), "{replaced:?}");
    let removed = |id| format!(r#"{{"sessionUpdate":"plan_removed","planId":"{id}"}}"#);
    assert!(shown(&mut screen, &[&removed("tests")]).contains("Plan tests: removed"));
    assert!(!shown(&mut screen, &[&removed("unknown")]).contains("unknown"));
}

#[test]
fn child_sessions_are_shown_by_their_titles() {
    let mut screen = Screen::new(WindowSize { width: 80, height: 24 }, false);
    let shown = shown(
        &mut screen,
        &[
            r#"{"sessionUpdate":"subagent_update","sessionId":"c1","title":"Review","state":{"state":"running"}}"#,
            r#"{"sessionUpdate":"session_message","messageId":"m","senderSessionId":"s","recipientSessionId":"c1","content":[{"type":"text","text":"Look"}]}"#,
            r#"{"sessionUpdate":"session_message_chunk","messageId":"m","content":{"type":"text","text":" closely"}}"#,
            r#"{"sessionUpdate":"tool_call","toolCallId":"t","title":"Delegate","content":[{"type":"session","sessionId":"c1"},{"type":"session","sessionId":"other"}]}"#,
            r#"{"sessionUpdate":"subagent_update","sessionId":"c1","state":{"state":"idle","stopReason":"end_turn"}}"#,
            r#"{"sessionUpdate":"subagent_update","sessionId":"c1","description":"Reads the change"}"#,
        ],
    );
    for row in [
        "· subagent: Review, running",
        "· message to Review",
        "Look closely",
        "[session Review]",
        "[session other]",
        "· subagent: Review, idle",
    ] {
        assert!(shown.contains(row), "{row} in {shown:?}");
    }
    assert_eq!(shown.matches("subagent").count(), 2, "{shown:?}");
}
