//! The words for updates, tool calls and content.

use duologue_schema::{ContentBlock, Conversation, SessionUpdate, ToolCall, UsageUpdate};
use duologue_transcript::describe::{self, DescribedPart, Description};

fn read<T: serde::de::DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

/// Returns a description in one line: label, text, status and parts.
fn show(description: &Description<'_>) -> String {
    let status = description.status.map(|status| format!("{}={:?}", status.word, status.stage));
    let part = |part: &DescribedPart<'_>| match part {
        DescribedPart::Text(text) => format!("text {text}"),
        DescribedPart::Location(location) => format!("at {}", describe::location(location)),
        DescribedPart::Diff(diff) => format!("diff {}", diff.path.display()),
        DescribedPart::Field { name, text, is_raw } => {
            format!("{}{name}: {text}", if *is_raw { "raw " } else { "" })
        }
        DescribedPart::Step { text, status, is_urgent } => {
            format!("{}{text} {}={:?}", if *is_urgent { "! " } else { "" }, status.word, status.stage)
        }
        other => format!("{other:?}"),
    };
    let parts: Vec<_> = description.parts.iter().map(part).collect();
    format!(
        "{} / {} / {} / {}",
        description.label,
        description.text,
        status.unwrap_or_default(),
        parts.join("; ")
    )
}

#[test]
fn updates_have_their_words() {
    for (update, expected) in [
        (r#""notice","severity":"info","title":"t""#, "notice / t / info=Info / "),
        (
            r#""notice","severity":"warning","title":"t","description":"d""#,
            "notice / t / warning=Warning / text d",
        ),
        (r#""notice","severity":"error","title":"t""#, "notice / t / error=Failed / "),
        (r#""notice","severity":"later","title":"t""#, "notice / t / later=Info / "),
        (r#""current_mode_update","currentModeId":"code""#, "mode / code /  / "),
        (
            r#""available_commands_update","availableCommands":[{"name":"a","description":""},{"name":"b","description":""}]"#,
            "commands / /a /b /  / ",
        ),
        (
            r#""config_option_update","configOptions":[{"id":"f","name":"Fast","type":"boolean","currentValue":true},{"id":"s","name":"Slow","type":"boolean","currentValue":false},{"id":"m","name":"Model","type":"select","currentValue":"x","options":[]}]"#,
            "options /  /  / Fast: on; Slow: off; Model: x",
        ),
        (r#""session_info_update","title":"t""#, "title / t /  / "),
        (r#""session_info_update","title":null"#, "title /  /  / "),
        (r#""usage_update","used":1,"size":2"#, "usage / 1 of 2 tokens /  / "),
        (
            r#""plan","entries":[{"content":"a","priority":"high","status":"pending"},{"content":"b","priority":"medium","status":"in_progress"},{"content":"c","priority":"low","status":"completed"},{"content":"d","priority":"low","status":"later"}]"#,
            "plan /  /  / ! a pending=Pending; b in_progress=Running; c completed=Completed; d later=Other",
        ),
        (r#""later_update","x":1"#, "later_update /  /  / "),
    ] {
        let update: SessionUpdate = read(&format!(r#"{{"sessionUpdate":{update}}}"#));
        let description = describe::update(&update).unwrap_or_else(|| panic!("{update:?}"));
        assert_eq!(show(&description), expected);
    }
    assert_eq!(describe::update(&SessionUpdate::agent_message("text")), None, "it is part of a message");
}

#[test]
fn amounts_have_no_needless_digits() {
    for (amount, expected) in [
        ("0", "0"),
        ("-0.0", "-0"),
        ("12", "12"),
        ("100", "100"),
        ("0.10", "0.1"),
        ("1.2345678", "1.234568"),
        ("0.000001", "0.000001"),
        ("0.0000001", "1.0e-7"),
        ("-0.0000001", "-1.0e-7"),
    ] {
        let usage: UsageUpdate =
            read(&format!(r#"{{"used":1,"size":2,"cost":{{"amount":{amount},"currency":"USD"}}}}"#));
        assert_eq!(describe::usage(&usage), format!("1 of 2 tokens, {expected} USD"));
    }
}

#[test]
fn a_tool_call_has_its_parts_in_order() {
    for (status, stage) in [
        ("pending", "Pending"),
        ("in_progress", "Running"),
        ("completed", "Completed"),
        ("failed", "Failed"),
        ("later", "Other"),
    ] {
        let call: ToolCall =
            read(&format!(r#"{{"toolCallId":"c","title":"t","kind":"read","status":"{status}"}}"#));
        assert_eq!(show(&describe::tool_call(&call)), format!("read / t / {status}={stage} / "));
    }
    let call: ToolCall = read(
        r#"{"toolCallId":"c","title":"t","kind":"edit","locations":[{"path":"/a","line":3},{"path":"/b"}],"rawInput":{"in":1},"rawOutput":[2],"content":[{"type":"content","content":{"type":"text","text":"x"}},{"type":"diff","path":"/c","newText":"n"},{"type":"terminal","terminalId":"7"},{"type":"later"}]}"#,
    );
    let description = describe::tool_call(&call);
    assert_eq!(
        show(&description),
        "edit / t / pending=Pending / at /a:3; at /b; raw input: {\"in\":1}; text x; diff /c; terminal: 7; \
         content of the unknown kind: later; raw output: [2]"
    );
    let changed: Vec<_> = describe::changed_paths(&description).collect();
    assert_eq!(changed, [std::path::Path::new("/c")]);
}

#[test]
fn a_compaction_has_its_stage() {
    for (status, stage) in [
        ("in_progress", "Running"),
        ("completed", "Completed"),
        ("failed", "Failed"),
        ("cancelled", "Cancelled"),
        ("later", "Other"),
    ] {
        let mut conversation = Conversation::default();
        conversation.apply(&read(&format!(
            r#"{{"sessionUpdate":"compaction_update","compactionId":"z","status":"{status}","error":"full","summary":[{{"type":"text","text":"s"}}]}}"#
        )));
        let compaction = conversation.entries()[0].as_compaction().expect("a compaction");
        assert_eq!(
            show(&describe::compaction(compaction)),
            format!("compaction / full / {status}={stage} / text s")
        );
    }
}

#[test]
fn content_without_text_is_named() {
    for (block, expected) in [
        (r#""text","text":"x""#, "x"),
        (r#""image","data":"AAAAAAAA","mimeType":"image/png""#, "[image/png, 6 bytes]"),
        (r#""audio","data":"AAAA","mimeType":"audio/wav""#, "[audio/wav, 3 bytes]"),
        (r#""resource_link","name":"n","uri":"file:///a""#, "[n: file:///a]"),
        (r#""resource","resource":{"uri":"file:///a","text":"x\n\n"}"#, "[file:///a]\nx"),
        (r#""resource","resource":{"uri":"file:///a","blob":"AAAA"}"#, "[file:///a, 3 bytes]"),
        (r#""later""#, "[content of the unknown kind later]"),
    ] {
        let block: ContentBlock = read(&format!(r#"{{"type":{block}}}"#));
        assert_eq!(describe::content(&block), expected);
    }
}

#[test]
fn only_short_texts_are_compared() {
    let (half, more) = ("x".repeat(64 * 1024), "x".repeat(64 * 1024 + 1));
    assert_eq!((describe::diff_is_cheap(&half, &half), describe::diff_is_cheap(&half, &more)), (true, false));
}
