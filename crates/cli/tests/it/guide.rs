//! The commands of the guide for hubs and for remote agents, run as they stand there. A block `sh` is run, and a block `text` is not.
#![cfg(all(unix, feature = "serve"))]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use duologue_test_support::skipped;
use tempfile::TempDir;

use crate::process::{DUOLOGUE, shown};
use crate::served::{EXAMPLE, start_hub};

/// A program of the examples that one block needs.
const PURCHASE: &str = "car-purchase";

/// The time in which a command is ready.
const START: Duration = Duration::from_secs(60);

/// Returns the `sh` blocks of a chapter.
fn blocks(chapter: &str) -> Vec<String> {
    let page = format!("{}/../../docs/src/{chapter}.md", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(page).expect("the chapter");
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0.to_owned()));
    blocks.collect()
}

/// A command that runs until it is stopped.
struct RunningLine(Child);

impl Drop for RunningLine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The terminals of a reader, in a folder that the agents of the example may use.
struct GuideTerminals {
    /// They end before their folder.
    serving: Vec<RunningLine>,
    folder: TempDir,
    /// The address of the newest hub.
    hub: String,
}

impl GuideTerminals {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/tmp").expect("a folder");
        GuideTerminals { folder, serving: Vec::new(), hub: String::new() }
    }

    /// Runs a line and returns what it prints. A hub replaces the one before, and runs on, as an agent does that is attached.
    fn run(&mut self, line: &str) -> String {
        if line.starts_with("duologue serve ") {
            self.serving.clear();
            let line = self.start(line, "serving ");
            self.hub = line.rsplit_once(' ').expect("an address").1.trim_end_matches("/acp").to_owned();
            return line;
        }
        if line.starts_with("duologue attach ") {
            return self.start(line, "attached as ");
        }
        let output = self.shell(line).output().expect("a shell");
        assert!(output.status.success(), "{line}\n{}", shown(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs the lines of blocks, each of which has a start and prints a part.
    fn run_all(&mut self, blocks: impl IntoIterator<Item = String>, expected: &[(&str, &str)]) {
        let mut expected = expected.iter();
        for line in blocks.into_iter().flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>())
        {
            let (start, part) =
                expected.next().unwrap_or_else(|| panic!("{line} is new; add what it prints"));
            assert!(line.starts_with(start), "{line}");
            let printed = self.run(&line);
            assert!(printed.contains(part), "{line}\n{printed}");
        }
        assert_eq!(expected.next(), None);
    }

    /// Starts a command, and returns its first line, with which it is ready.
    fn start(&mut self, line: &str, ready: &str) -> String {
        let mut process =
            self.shell(&format!("exec {line}")).stdout(Stdio::piped()).spawn().expect("a shell");
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        self.serving.push(RunningLine(process));
        let (sender, first) = channel();
        // It reads on, because the command could not write to a closed pipe.
        std::thread::spawn(move || {
            let mut first = String::new();
            let _ = output.read_line(&mut first);
            let _ = sender.send(first);
            let _ = std::io::copy(&mut output, &mut std::io::sink());
        });
        let first = first.recv_timeout(START).unwrap_or_default();
        let first = first.trim_end().to_owned();
        assert!(first.starts_with(ready), "{line}\n{first}");
        first
    }

    fn shell(&self, line: &str) -> Command {
        let ours = Path::new(DUOLOGUE).parent().expect("its folder");
        let path = format!("{}:{}", ours.display(), std::env::var("PATH").unwrap_or_default());
        let (home, state) = (self.folder.path(), self.folder.path().join("state"));
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(home).env("PATH", path).env("HUB", &self.hub);
        shell.env("HOME", home).env("XDG_STATE_HOME", state).stdin(Stdio::null());
        shell
    }
}

#[test]
fn the_requests_of_the_guide_work() {
    for chapter in ["rest", "operate"] {
        let data = tempfile::tempdir().expect("a folder");
        let server = start_hub(data.path());
        let key = std::fs::read_to_string(&server.token).expect("the token");
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("set -eu\n{}", blocks(chapter).concat())]).current_dir(data.path());
        shell.env("HUB", server.url.strip_suffix("/acp").expect("the path")).env("KEY", key.trim());
        let output = shell.output().expect("a shell");
        assert!(output.status.success(), "{}", shown(&output));
    }
}

#[test]
fn the_tour_and_the_commands_of_the_guide_work() {
    let mut terminals = GuideTerminals::new();
    let example = terminals.folder.path().join("examples/hub");
    std::fs::create_dir_all(&example).expect("a folder");
    for name in ["hub.toml", "tour.sh"] {
        std::fs::copy(format!("{EXAMPLE}/{name}"), example.join(name)).expect("the example");
    }
    let config = std::fs::read_to_string(example.join("hub.toml")).expect("the example");
    let with_free_port = config.replace("127.0.0.1:8931", "127.0.0.1:0");
    std::fs::write(example.join("hub.toml"), with_free_port).expect("a file");
    let expected = [
        ("duologue serve ", "2 agents"),
        ("examples/hub/tour.sh", "The tour is complete."),
        ("duologue run ", "Hello"),
        ("duologue agents", "reviewer"),
        ("duologue tasks create ", "completed"),
        ("duologue inbox send ", "You said: What is new?"),
        ("(umask 077; head ", "\n"),
    ];
    terminals.run_all(blocks("hub").into_iter().filter(|block| !block.contains(PURCHASE)), &expected);
}

#[test]
fn the_commands_for_a_remote_agent_work() {
    let expected = [
        ("duologue serve ", "serving "),
        ("duologue run ", "I am the mock agent"),
        ("duologue check ", "passed"),
        ("duologue run --record turn.jsonl ", "I am the mock agent"),
        ("duologue peer query ", "Who is on call?"),
    ];
    GuideTerminals::new().run_all(blocks("remote"), &expected);
}

#[test]
fn the_car_purchase_of_the_guide_works() {
    if !Path::new(DUOLOGUE).with_file_name(PURCHASE).exists() {
        return skipped(
            "the car purchase of the guide",
            "run `cargo build -p duologue-examples` for its program",
        );
    }
    let mut terminals = GuideTerminals::new();
    std::fs::write(terminals.folder.path().join("hub.toml"), "").expect("a file");
    let block = blocks("hub").into_iter().find(|block| block.contains(PURCHASE)).expect("the block");
    let printed: Vec<String> = block.lines().map(|line| terminals.run(line)).collect();
    assert!(printed.last().is_some_and(|last| last.contains("The car is bought")), "{printed:?}");
}
