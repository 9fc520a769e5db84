//! Typing at a prompt, during a turn and into a question.

use std::time::Duration;

use tempfile::TempDir;

use super::emulator::Terminal;
use super::start;

/// An agent that writes each prompt to the file `prompts` and answers with its length in bytes.
fn listening(folder: &TempDir) -> String {
    format!(
        r#"cd '{}'; read -r a; echo '{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":1}}}}'
        read -r a; echo '{{"jsonrpc":"2.0","id":2,"result":{{"sessionId":"s"}}}}'
        echo '{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"available_commands_update","availableCommands":[{{"name":"review","description":"d"}},{{"name":"revert","description":"d"}},{{"name":"two words","description":"d"}}]}}}}}}'
        id=3; while IFS= read -r a; do printf '%s\n' "$a" >>prompts
            echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"stopReason":"end_turn"}}}}'; id=$((id+1)); done"#,
        folder.path().display()
    )
}

/// Types keys into a prompt, and returns the prompts that the agent received.
fn prompts(rows: u16, type_all: impl FnOnce(&mut Terminal)) -> Vec<String> {
    let folder = TempDir::new().unwrap();
    let mut terminal = Terminal::start(rows, 60, &["run", "--", "sh", "-c", &listening(&folder)], &[]);
    terminal.wait_for("/two words\n> ");
    type_all(&mut terminal);
    terminal.wait_for("> ");
    terminal.type_keys("/exit\r");
    assert_eq!(terminal.end(), 0, "{}", terminal.screen());
    let prompts = std::fs::read_to_string(folder.path().join("prompts")).unwrap_or_default();
    let text = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["params"]["prompt"][0]["text"].as_str().unwrap_or_default().to_owned()
    };
    prompts.lines().map(text).collect()
}

#[test]
fn a_long_line_is_not_cut() {
    let long = "0123456789".repeat(1000);
    let sent = prompts(20, |terminal| {
        terminal.type_keys(&long);
        terminal.type_keys("!");
        terminal.wait_for("789!");
        terminal.type_keys("\r");
    });
    assert_eq!(sent, [format!("{long}!")]);
}

#[test]
fn a_paste_keeps_its_lines_and_waits_for_enter() {
    let sent = prompts(20, |terminal| {
        terminal.type_keys("\u{1b}[200~one\r\ntwo\rthree\r\u{1b}[201~");
        terminal.wait_for("> one\ntwo\nthree\n");
        std::thread::sleep(Duration::from_millis(200));
        terminal.type_keys("four\r");
    });
    assert_eq!(sent, ["one\ntwo\nthree\nfour"]);
}

#[test]
fn a_line_is_added_with_alt_enter_or_a_backslash() {
    let sent = prompts(20, |terminal| {
        terminal.type_keys("one\u{1b}\r");
        terminal.wait_for("> one\n");
        terminal.type_keys("two\\\r");
        terminal.wait_for("> one\ntwo\n");
        terminal.type_keys("three\r");
    });
    assert_eq!(sent, ["one\ntwo\nthree"]);
}

/// Keys that are no text move the cursor or do nothing.
#[test]
fn arrows_and_alt_do_not_reach_the_agent() {
    let sent = prompts(20, |terminal| {
        terminal.type_keys("helo\u{1b}[D");
        terminal.wait_for("> hel");
        terminal.type_keys("l\u{1b}x\u{1b}[15~\u{1b}[1;3C\u{1b}\u{1b}[C\u{5}!");
        terminal.wait_for("> hello!");
        terminal.type_keys("\u{1b}");
        std::thread::sleep(Duration::from_millis(200));
        terminal.type_keys("\r");
    });
    assert_eq!(sent, ["hello!"]);
}

#[test]
fn earlier_prompts_come_back() {
    let sent = prompts(20, |terminal| {
        terminal.type_keys("first\r");
        terminal.wait_for("> first\n> ");
        terminal.type_keys("second\r");
        terminal.wait_for("> second\n> ");
        terminal.type_keys("\u{1b}[A\u{1b}[A");
        terminal.wait_for("second\n> first");
        terminal.type_keys("!\r");
    });
    assert_eq!(sent, ["first", "second", "first!"]);
}

#[test]
fn commands_of_the_agent_and_our_own_are_completed() {
    let sent = prompts(20, |terminal| {
        terminal.type_keys("/r\t");
        terminal.wait_for("> /rev");
        terminal.type_keys("\t");
        terminal.wait_for("/review  /revert");
        terminal.type_keys("i\t");
        terminal.wait_for("> /review ");
        assert!(!terminal.screen().contains("/review  /revert"), "{}", terminal.screen());
        terminal.type_keys("it\r");
        terminal.wait_for("> /review it\n> ");
        terminal.type_keys(":se\t");
        terminal.wait_for("> :settings ");
        terminal.type_keys("\r");
        terminal.wait_for("the agent offers no modes and no options");
    });
    assert_eq!(sent, ["/review it"]);
}

/// A text that is higher than the window is seen around the cursor, and stays whole.
#[test]
fn a_text_that_is_higher_than_the_window_stays_whole() {
    let lines: Vec<String> = (0..40).map(|line| format!("line {line}")).collect();
    let sent = prompts(10, |terminal| {
        terminal.type_keys(&format!("\u{1b}[200~{}\u{1b}[201~", lines.join("\r")));
        terminal.wait_for("line 39");
        terminal.type_keys(&"\u{1b}[A".repeat(39));
        terminal.wait_for(">\nline 0");
        terminal.type_keys("\u{1}X");
        terminal.wait_for("Xline 0");
        terminal.type_keys("\r");
        terminal.wait_for("line 39\n> ");
    });
    assert_eq!(sent, [format!("X{}", lines.join("\n"))]);
}

/// Ctrl-C removes a half-typed prompt, and leaves without one.
#[test]
fn ctrl_c_begins_a_new_prompt_first() {
    let mut terminal = start(40, 60, &[], "0");
    terminal.wait_for("/crash\n> ");
    terminal.type_keys("half");
    terminal.wait_for("> half");
    terminal.type_keys("\u{3}");
    terminal.wait_for("/crash\n> \n");
    terminal.type_keys("\u{3}");
    assert_eq!(terminal.end(), 130);
}

#[test]
fn escape_cancels_the_turn_and_never_leaves() {
    let mut terminal = start(30, 60, &[], "0");
    terminal.wait_for("/crash\n> ");
    terminal.type_line("cancel");
    terminal.wait_for("Cancel me.");
    terminal.type_keys("\u{1b}");
    terminal.wait_for("stopped: cancelled\n> ");
    terminal.type_keys("\u{1b}");
    // Without a pause it is Alt with the next key.
    std::thread::sleep(Duration::from_millis(200));
    terminal.type_line("refusal");
    terminal.wait_for("stopped: refusal\n> ");
    terminal.type_line("permission");
    terminal.wait_for("[1-4, y, n]");
    terminal.type_keys("\u{1b}");
    terminal.wait_for("not answered: Change notes.txt");
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.end(), 0);
}

/// A half-typed prompt is still there after a turn and after a question.
#[test]
fn a_half_typed_prompt_survives_a_turn_and_a_question() {
    let mut terminal = start(30, 60, &[], "30");
    terminal.wait_for("/crash\n> ");
    terminal.type_line("permission");
    // Typed before the question is shown.
    terminal.type_keys("ref");
    terminal.wait_for("[1-4, y, n]");
    // Without a pause it is typed ahead too.
    std::thread::sleep(Duration::from_millis(200));
    terminal.type_keys("y\r");
    terminal.wait_for("\n> ref");
    terminal.type_keys("usal\r");
    terminal.wait_for("stopped: refusal\n> ");
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.end(), 0);
}

/// The terminal reads lines and shows them again after every end, and during a stop.
#[test]
fn the_terminal_reads_lines_again_after_every_end() {
    for signal in ["TERM", "HUP", "INT"] {
        let mut terminal = start(30, 60, &[], "0");
        terminal.wait_for("/crash\n> ");
        assert!(terminal.reads_keys());
        terminal.signal(signal);
        assert_ne!(terminal.end(), 0);
        assert!(!terminal.reads_keys() && terminal.echoes(), "{signal}");
        assert!(terminal.bytes().ends_with("\u{1b}[?2004l"), "{signal}: {:?}", terminal.bytes());
    }

    let mut terminal = start(30, 60, &[], "0");
    terminal.wait_for("/crash\n> ");
    terminal.type_keys("ref");
    terminal.wait_for("> ref");
    terminal.signal("TSTP");
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while terminal.reads_keys() {
        assert!(std::time::Instant::now() < deadline, "it does not stop");
        std::thread::sleep(Duration::from_millis(10));
    }
    terminal.signal("CONT");
    while !terminal.reads_keys() {
        assert!(std::time::Instant::now() < deadline, "it does not continue");
        std::thread::sleep(Duration::from_millis(10));
    }
    terminal.type_keys("usal\r");
    terminal.wait_for("stopped: refusal\n> ");
}
