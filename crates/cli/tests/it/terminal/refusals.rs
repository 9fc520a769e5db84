//! A question for permission that ends without an answer is not answered with yes.

use std::fs;

use tempfile::TempDir;

use super::emulator::Terminal;

/// Asks for permission, and writes down what it is answered, if it is.
const AGENT: &str = r#"read a; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}'
    read a; echo '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}'; read a
    echo '{"jsonrpc":"2.0","id":"q","method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t","title":"Do it"},"options":[{"optionId":"one","name":"Yes","kind":"allow_once"},{"optionId":"all","name":"Always","kind":"allow_always"}]}}'
    while read -r answer; do case $answer in 
        *'"id":"q"'*) echo "$answer" >>answer;;
        *session/cancel*) echo '{"jsonrpc":"2.0","id":3,"result":{"stopReason":"cancelled"}}';;
    esac; done"#;

/// Returns the answers that the agent received after this input. The program has to end with an error.
fn answered(typed: &[&str], leave: &str) -> String {
    let folder = TempDir::new().unwrap();
    let agent = format!("cd '{}'; {AGENT}", folder.path().display());
    let mut terminal = Terminal::start(30, 80, &["run", "go", "--", "sh", "-c", &agent], &[]);
    terminal.wait_for("[1-2, y, n]");
    for line in typed {
        terminal.type_line(line);
        terminal.wait_for(&format!("there is no answer {line}"));
    }
    terminal.type_keys(leave);
    assert_ne!(terminal.end(), 0, "{}", terminal.screen());
    fs::read_to_string(folder.path().join("answer")).unwrap_or_default()
}

#[test]
fn no_end_of_a_question_is_a_yes() {
    for leave in ["\u{3}\u{3}", "\u{3}", "\u{4}\u{3}"] {
        for typed in [&[][..], &["0"], &["3"], &["-1"], &["yess", "1y", "one", "allow"], &["１"]] {
            let answer = answered(typed, leave);
            assert!(!answer.contains("selected"), "{typed:?} {leave:?}: {answer}");
        }
    }
    // With no such option, no is no option either.
    assert!(answered(&[], "n\n\u{3}").contains("cancelled"));
}
