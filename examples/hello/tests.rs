//! The first command of the README prints the conversation.

use std::process::Command;

#[test]
fn the_first_command_shows_a_draft_that_is_cleared() {
    let output = Command::new(env!("CARGO_BIN_EXE_duologue-hello")).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("cleared"), "{output:?}");
}
