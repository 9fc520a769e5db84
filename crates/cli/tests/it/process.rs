//! Runs the command to its end.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

/// The path of the command.
pub(crate) const DUOLOGUE: &str = env!("CARGO_BIN_EXE_duologue");

/// Runs a command with `input` as its standard input.
pub(crate) fn run(command: &mut Command, input: impl AsRef<[u8]>) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.as_ref().to_vec();
    let writing = std::thread::spawn(move || {
        // This may fail: not every command reads its input to the end.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("it ends");
    writing.join().expect("no panic");
    output
}

/// Returns the outputs of commands that run at the same time, without input.
pub(crate) fn at_once<const N: usize>(commands: [Command; N]) -> [Output; N] {
    let running = commands.map(|mut command| std::thread::spawn(move || run(&mut command, "")));
    running.map(|running| running.join().expect("no panic"))
}

/// Returns the output of a command and its exit code.
pub(crate) fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    format!("{}{}exit {}", text(&output.stdout), text(&output.stderr), output.status.code().expect("a code"))
}
