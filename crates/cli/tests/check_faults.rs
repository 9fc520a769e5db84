//! Every check of `duologue check` can fail: for each there is an agent with one fault that it finds,
//! and that no other check takes for its own. And an agent without a fault passes all of them, however
//! unusual it is.
//!
//! This program is also that agent, as `--agent FAULT`, which is why it does without the usual
//! harness. Other arguments choose faults by a part of their name.

#[path = "check_faults/agent.rs"]
mod agent;
#[path = "check_faults/envelopes.rs"]
mod envelopes;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::thread::available_parallelism;

use serde_json::Value;

/// How many agents are checked at a time for each processor; they mostly wait.
const AT_ONCE: usize = 4;
/// The agent without a fault.
const NONE: &str = "none";
/// Agents that do what not all do, and may.
const UNUSUAL: &[&str] =
    &["few-sessions", "few-sessions-for-good", "no-resume-of-the-living", "lends-a-pipe", "no-envelopes"];
/// More faults, which have no check of their own.
const MORE: &[&str] = &["answers-notifications", "odd-reason-at-once"];
/// Faults that show when nothing comes, however long one waits.
const SILENT: &[&str] = &[
    "crlf",
    "split-writes",
    "coalesced-writes",
    "requests-in-flight",
    "cancel-at-once",
    "id-string",
    "id-zero",
    "id-negative",
    "id-large",
    "id-null",
];

/// What the agent must fail.
fn expected(fault: &str) -> BTreeSet<String> {
    let names: &[&str] = match fault {
        NONE => &[],
        unusual if UNUSUAL.contains(&unusual) => &[],
        // An answer without a stop reason is not of the schema.
        "prompt-answered" => &["prompt-answered", "frames-valid"],
        // Nor is one whose envelope is not.
        "discover-fits" => &["discover-fits", "frames-valid"],
        "answers-notifications" => {
            &["unknown-notification", "cancel-without-turn", "cancel-request", "one-answer"]
        }
        "odd-reason-at-once" => &["cancel-at-once"],
        other => &[other],
    };
    names.iter().map(|&name| name.to_owned()).collect()
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [agent, fault] if agent == "--agent" => {
            agent::run(fault);
            return ExitCode::SUCCESS;
        }
        // What asks for the names of tests finds none.
        [list, ..] if list == "--list" => return ExitCode::SUCCESS,
        _ => {}
    }
    let wanted: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let mut faults: Vec<String> = names(&duologue(&["check", "--list", "--json"]));
    assert!(faults.len() > 40, "the list of checks is short: {faults:?}");
    faults.extend([&[NONE], UNUSUAL, MORE].concat().into_iter().map(str::to_owned));
    faults.retain(|fault| wanted.is_empty() || wanted.iter().any(|part| fault.contains(part.as_str())));
    // Those that take longest come first.
    faults.sort_by_key(|fault| SILENT.contains(&fault.as_str()));

    let (count, queue, wrong) = (faults.len(), Mutex::new(faults), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE * available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some(fault) = queue.lock().unwrap().pop() else { return };
                    if let Err(why) = try_fault(&fault) {
                        wrong.lock().unwrap().push(format!("{fault}: {why}"));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    let _ = writeln!(std::io::stdout(), "{} of {count} faults are found as they should", count - wrong.len());
    for why in &wrong {
        let _ = writeln!(std::io::stdout(), "{why}");
    }
    ExitCode::from(u8::from(!wrong.is_empty()))
}

/// Checks an agent with this fault: whether it is found, and nothing else.
fn try_fault(fault: &str) -> Result<(), String> {
    let this = std::env::current_exe().unwrap();
    let this = this.to_str().unwrap();
    // Where an answer comes, it may take as long as a busy machine needs.
    let timeout = if SILENT.contains(&fault) { "5" } else { "60" };
    let mut args = vec!["check", "--json", "--timeout", timeout, "--"];
    if fault == "exits-on-sigterm" {
        // What a shell ignores, the program it becomes ignores as well.
        args.extend(["sh", "-c", "trap '' TERM; exec \"$0\" \"$@\""]);
    }
    args.extend([this, "--agent", fault]);
    let output = duologue(&args);
    let of = |verdicts: &[&str]| -> BTreeSet<String> {
        let rows = output.iter().filter(|row| verdicts.iter().any(|verdict| row["verdict"] == *verdict));
        rows.map(|row| row["check"].as_str().unwrap().to_owned()).collect()
    };
    let found = of(&["fail", "warn"]);
    let skipped = of(&["skipped"]);
    if fault == NONE && !skipped.is_empty() {
        return Err(format!("skipped: {skipped:?}"));
    }
    let expected = expected(fault);
    if found == expected {
        return Ok(());
    }
    let why = output.iter().filter(|row| found.contains(row["check"].as_str().unwrap_or_default()));
    let why: Vec<String> = why.map(|row| format!("{} ({})", row["check"], row["saw"])).collect();
    Err(format!("found {}; expected {expected:?}", why.join(", ")))
}

/// What `duologue` prints, line by line.
fn duologue(args: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_duologue")).args(args).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(rows: &[Value]) -> Vec<String> {
    rows.iter().filter_map(|row| row["check"].as_str()).map(str::to_owned).collect()
}
