//! Questions and floods of updates that meet typed or pasted text.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::emulator::Terminal;
use crate::scripted;

/// An agent that asks for permission in its first turn, once there is a file `ask`. It writes the answer to
/// the file `answer` and the prompts behind it to `prompts`.
fn asking(folder: &Path) -> String {
    let question = scripted::ask("1", json!({"toolCallId": "t", "title": "Delete it", "kind": "delete"}));
    std::fs::write(folder.join("question"), format!("{question}\n")).unwrap();
    format!(
        r#"cd '{}'; read -r a; echo '{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":1}}}}'
        read -r a; echo '{{"jsonrpc":"2.0","id":2,"result":{{"sessionId":"s"}}}}'; read -r a; : >turn
        while [ ! -e ask ]; do sleep 0.02; done
        cat question; : >asked; read -r a; printf '%s\n' "$a" >answer; id=3
        while echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"stopReason":"end_turn"}}}}'; read -r a; do
            printf '%s\n' "$a" >>prompts; id=$((id+1)); done"#,
        folder.display()
    )
}

fn start(folder: &Path, env: &[(&str, &str)]) -> Terminal {
    let mut terminal = Terminal::start(20, 60, &["run", "--", "sh", "-c", &asking(folder)], env);
    terminal.wait_for("> ");
    terminal.type_line("go");
    wait_for(&folder.join("turn"));
    terminal
}

fn ask(folder: &Path) {
    std::fs::write(folder.join("ask"), "").unwrap();
    wait_for(&folder.join("asked"));
}

fn wait_for(file: &Path) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !file.exists() {
        assert!(Instant::now() < deadline, "{} does not appear", file.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Lets the program use everything that was typed. A question that is still open then stays open.
fn pause() {
    std::thread::sleep(Duration::from_millis(300));
}

/// Rejects the open question, and waits until the agent has the answer.
fn reject(folder: &Path, terminal: &mut Terminal) {
    assert!(!folder.join("answer").exists(), "answered:\n{}", terminal.screen());
    terminal.type_keys("n\r");
    wait_for(&folder.join("answer"));
    let answer = std::fs::read_to_string(folder.join("answer")).unwrap();
    assert!(answer.contains(r#""optionId":"no""#), "{answer}");
}

/// Leaves, and returns the prompts behind the question.
fn prompts(folder: &Path, terminal: &mut Terminal) -> Vec<String> {
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.end(), 0, "{}", terminal.screen());
    let prompts = std::fs::read_to_string(folder.join("prompts")).unwrap_or_default();
    let text = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["params"]["prompt"][0]["text"].as_str().unwrap_or_default().to_owned()
    };
    prompts.lines().map(text).collect()
}

/// A question arrives in the middle of 64 KiB. All of the text is in the next prompt, and none of it answers.
#[test]
fn a_question_in_the_middle_of_a_paste_is_not_answered_by_it() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let mut terminal = start(folder, &[]);
    let half = "a line\r1\ry\ryes\r".repeat(2048);
    terminal.type_keys(&format!("\u{1b}[200~{half}"));
    ask(folder);
    terminal.wait_for("[1-3, y, n]");
    terminal.type_keys(&half);
    terminal.type_keys("\u{1b}[201~");
    pause();
    reject(folder, &mut terminal);
    terminal.wait_for("yes\n");
    terminal.type_keys("\r");
    wait_for(&folder.join("prompts"));
    terminal.wait_for("\n> ");
    assert_eq!(prompts(folder, &mut terminal), [half.repeat(2).replace('\r', "\n")]);
}

/// The end of a paste is lost. Its text is shown after a second, and a single key is a key again.
#[test]
fn a_paste_without_an_end_does_not_take_the_answer() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let mut terminal = start(folder, &[]);
    terminal.type_keys("\u{1b}[200~a line\ry\r");
    ask(folder);
    terminal.wait_for("[1-3, y, n]");
    std::thread::sleep(Duration::from_millis(1500));
    terminal.type_keys("n");
    terminal.wait_for("[1-3, y, n] n");
    terminal.type_keys("\r");
    wait_for(&folder.join("answer"));
    terminal.wait_for("> a line\ny\n");
    terminal.type_keys("behind\r");
    wait_for(&folder.join("prompts"));
    terminal.wait_for("behind\n> ");
    assert_eq!(prompts(folder, &mut terminal), ["a line\ny\nbehind"]);
}

/// Keys that the terminal has, and that were not read before the question, are older than it.
#[test]
fn keys_that_wait_in_the_terminal_do_not_answer() {
    for _ in 0..3 {
        let folder = TempDir::new().unwrap();
        let folder = folder.path();
        let mut terminal = start(folder, &[]);
        terminal.signal("STOP");
        terminal.type_keys("one\ry\r");
        terminal.type_keys("\u{1b}[200~1\ry\r\u{1b}[201~");
        ask(folder);
        terminal.signal("CONT");
        terminal.wait_for("[1-3, y, n]");
        pause();
        reject(folder, &mut terminal);
        terminal.wait_for("> 1\ny\n");
        terminal.type_keys("\r");
        let deadline = Instant::now() + Duration::from_secs(60);
        let sent = || std::fs::read_to_string(folder.join("prompts")).unwrap_or_default().lines().count();
        while sent() < 3 {
            assert!(Instant::now() < deadline, "{}", terminal.screen());
            std::thread::sleep(Duration::from_millis(10));
        }
        terminal.wait_for("1\ny\n> ");
        assert_eq!(prompts(folder, &mut terminal), ["one", "y", "1\ny\n"]);
    }
}

/// More lines than fit any queue are typed at once into a terminal that delivers lines.
#[test]
fn lines_of_a_dumb_terminal_do_not_answer_a_later_question() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let mut terminal = start(folder, &[("TERM", "dumb")]);
    terminal.type_keys(&"1\n".repeat(18));
    pause();
    ask(folder);
    terminal.wait_for("[1-3, y, n]");
    pause();
    assert!(!folder.join("answer").exists(), "answered:\n{}", terminal.screen());
    terminal.type_line("n");
    wait_for(&folder.join("answer"));
    let answer = std::fs::read_to_string(folder.join("answer")).unwrap();
    assert!(answer.contains(r#""optionId":"no""#), "{answer}");
    let deadline = Instant::now() + Duration::from_secs(60);
    let sent = || std::fs::read_to_string(folder.join("prompts")).unwrap_or_default().lines().count();
    while sent() < 18 {
        assert!(Instant::now() < deadline, "{}", terminal.screen());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(prompts(folder, &mut terminal), vec!["1"; 18]);
}

/// A text that does not fit is reported, and its prompt is not sent without it.
#[test]
fn a_prompt_without_a_part_of_it_is_not_sent() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let mut terminal = start(folder, &[]);
    // Typed ahead, together with the next prompt.
    terminal.type_keys("review \u{1b}[200~");
    for _ in 0..=16 {
        terminal.type_keys(&"0123456789abcdef".repeat(4096));
    }
    terminal.type_keys("\u{1b}[201~ please\rnext\r");
    ask(folder);
    terminal.wait_for("[1-3, y, n]");
    pause();
    reject(folder, &mut terminal);
    wait_for(&folder.join("prompts"));
    terminal.wait_for("> next\n> ");
    let shown = terminal.everything();
    assert!(shown.contains("a text does not fit"), "{shown}");
    assert!(shown.contains("not sent, since a text did not fit"), "{shown}");
    terminal.type_keys("\u{1b}[A\u{1b}[A");
    terminal.wait_for("> review  please");
    terminal.type_keys("\u{15}");
    terminal.wait_for("next\n> ");
    assert_eq!(prompts(folder, &mut terminal), ["next"]);
}

/// An answer may be a secret. The arrows show it in no later question.
#[test]
fn answers_are_not_in_the_history() {
    let folder = TempDir::new().unwrap();
    let form = |id: &str, field: &str| {
        let schema = json!({"type": "object", "properties": {field: {"type": "string"}}});
        let form = json!({"mode": "form", "message": "Log in.", "requestedSchema": schema});
        scripted::request(id, "elicitation/create", form)
    };
    let lines = [form("1", "key"), form("2", "name"), scripted::end_turn()];
    let agent = scripted::agent(folder.path(), &lines);
    let mut terminal = Terminal::start(20, 60, &["run", "go", "--", "sh", "-c", &agent], &[]);
    terminal.wait_for("key: text");
    terminal.type_keys("secret-key\r");
    terminal.wait_for("name: text");
    pause();
    terminal.type_keys("\u{1b}[A\u{19}me\r");
    assert_eq!(terminal.end(), 0);
    let answers = std::fs::read_to_string(folder.path().join("answers")).unwrap();
    assert!(answers.contains(r#""name":"me""#), "{answers}");
}

/// Esc is read, though the agent sends updates without a pause.
#[test]
fn escape_reaches_an_agent_that_never_pauses() {
    let update = scripted::update(
        json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "."}}),
    );
    let agent = format!(
        r#"read -r a; echo '{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":1}}}}'
        read -r a; echo '{{"jsonrpc":"2.0","id":2,"result":{{"sessionId":"s"}}}}'
        read -r a; yes '{update}' & read -r a; kill $!; wait
        echo; echo '{{"jsonrpc":"2.0","id":3,"result":{{"stopReason":"cancelled"}}}}'; read -r a"#
    );
    let mut terminal = Terminal::start(20, 60, &["run", "go", "--", "sh", "-c", &agent], &[]);
    terminal.wait_for("......");
    terminal.type_keys("\u{1b}");
    terminal.wait_for("cancelling");
    assert_eq!(terminal.end(), 130);
}
