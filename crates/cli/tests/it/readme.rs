//! The README's commands, run as they stand there.

use std::path::Path;
use std::process::Command;

/// Returns the lines of the first shell block after a heading.
fn commands(heading: &str) -> Vec<String> {
    block(heading, 0)
}

/// Returns the lines of a shell block after a heading.
fn block(heading: &str, number: usize) -> Vec<String> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).expect("the README");
    let (_, section) = readme.split_once(&format!("\n## {heading}\n")).expect("the heading");
    let block = section.split("```sh\n").nth(number + 1).expect("a shell block");
    let (block, _) = block.split_once("```").expect("its end");
    block.lines().map(str::to_owned).collect()
}

/// The answer that the picture of the first command shows, on one line.
fn answer_in_the_picture() -> String {
    let picture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/run.svg");
    let picture = std::fs::read_to_string(picture).expect("the picture");
    let (_, answer) = picture.split_once(r#"<g class="answer">"#).expect("the answer");
    let lines = answer.split("<text").skip(1).filter(|line| !line.contains(r#"class="prompt""#));
    let lines = lines.filter_map(|line| Some(line.split_once('>')?.1.split_once("</text>")?.0));
    lines.collect::<Vec<_>>().join(" ")
}

/// Runs lines in one folder, with our command first in the path, and returns what each prints.
fn run(lines: &[String]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let ours = Path::new(env!("CARGO_BIN_EXE_duologue")).parent().expect("its folder");
    let path = format!("{}:{}", ours.display(), std::env::var("PATH").unwrap_or_default());
    let run = |line: &String| {
        let mut shell = Command::new("sh");
        let output =
            shell.args(["-c", line]).current_dir(folder.path()).env("PATH", &path).output().expect("sh");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {}\n{said}{complaints}", output.status);
        said
    };
    lines.iter().map(run).collect()
}

#[test]
fn the_first_command_answers_without_another_agent() {
    let lines = block("Try it", 1);
    let (install, hello) = lines[0].split_once(" && ").expect("two commands");
    assert_eq!(install, "cargo install --locked --profile dist --path crates/cli");
    let output = run(&[hello.to_owned()]);
    assert_eq!(output[0].trim_end(), answer_in_the_picture());
}

#[test]
fn record_show_and_replay_work_as_written() {
    let said = run(&commands("Record, snapshot, replay"));
    let [recorded, shown, replayed, ..] = said.as_slice() else { panic!("four commands: {said:?}") };
    assert!(shown.contains("session/prompt"), "{shown}");
    assert_eq!(recorded, replayed);
}

#[test]
fn an_editor_meets_its_faults_as_written() {
    let said = run(&commands("A test"));
    assert!(said[0].contains("Hello"), "{}", said[0]);
}
