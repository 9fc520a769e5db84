//! Every check of `duologue check` can fail: for each there is an agent with one fault that it finds,
//! and that no other check takes for its own. And an agent without a fault passes all of them.
//!
//! This program is also that agent, as `--agent FAULT`, which is why it does without the usual
//! harness. Other arguments choose faults by a part of their name.

#[path = "check_faults/agent.rs"]
mod agent;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, ExitCode};
use std::sync::Mutex;

use serde_json::Value;

/// How many agents are checked at a time; they mostly wait.
const AT_ONCE: usize = 16;
/// The agent without a fault.
const NONE: &str = "none";

/// What else a fault must show up as: these are two sides of one thing.
fn collateral(fault: &str) -> &'static [&'static str] {
    match fault {
        // An answer without a stop reason is not of the schema.
        "prompt-answered" => &["frames-valid"],
        _ => &[],
    }
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
    faults.insert(0, NONE.to_owned());
    faults.retain(|fault| wanted.is_empty() || wanted.iter().any(|part| fault.contains(part.as_str())));
    faults.reverse();

    let (count, queue, wrong) = (faults.len(), Mutex::new(faults), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
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
    let mut args = vec!["check", "--json", "--timeout", "3", "--"];
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
    let mut expected: BTreeSet<String> = collateral(fault).iter().map(|&name| name.to_owned()).collect();
    if fault == NONE {
        let skipped = of(&["skipped"]);
        if !skipped.is_empty() {
            return Err(format!("skipped: {skipped:?}"));
        }
    } else {
        expected.insert(fault.to_owned());
    }
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
