//! Every check of `duologue check` can fail: for each there is an agent with one fault that it finds,
//! and that no other check takes for its own. The verdict has to be the one of the check's severity. And an
//! agent without a fault passes all of them, however unusual it is.
//!
//! This program is also that agent, as `--agent FAULT`, which is why it does without the usual
//! harness. Other arguments choose faults by a part of their name.

#[path = "check_faults/agent.rs"]
mod agent;
#[path = "check_faults/dialogues.rs"]
mod dialogues;
#[path = "check_faults/envelopes.rs"]
mod envelopes;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::thread::available_parallelism;

use serde_json::Value;

/// The number of agents checked at a time for each processor. It is more than one because they mostly wait.
const AT_ONCE: usize = 4;
/// The agent without a fault.
const NONE: &str = "none";
/// Agents that do what not all do, and may.
const UNUSUAL: &[&str] = &[
    "few-sessions",
    "few-sessions-for-good",
    "no-resume-of-the-living",
    "lends-a-pipe",
    "no-envelopes",
    "long-turn",
];
/// More faults, which have no check of their own name.
const MORE: &[&str] = &[
    "answers-notifications",
    "odd-reason-at-once",
    "silent-initialize",
    "retyped-initialize-id",
    "silent-prompt",
    "deaf-prompt",
    "retyped-prompt-id",
    "silent-extensions",
    "errors-without-id",
    "errors-with-null-id",
    "refuses-option",
    "no-option-method",
    "end-turn-on-cancel",
    "modes-without-option",
    "unadvertised-update",
];
/// Faults that show when nothing comes, however long one waits.
const SILENT: &[&str] = &[
    "long-turn",
    "silent-initialize",
    "silent-prompt",
    "deaf-prompt",
    "silent-extensions",
    "crlf",
    "split-writes",
    "coalesced-writes",
    "requests-in-flight",
    "cancel-at-once",
    "id-string",
    "id-zero",
    "id-negative",
    "id-null",
];
/// Checks whose fault here breaks only a recommendation, although the check has another fault that breaks a rule.
const WARNED: &[&str] = &["refuses-option"];

/// The one check that finds a fault. Everything else that it breaks is skipped because of that check.
fn found_by(fault: &str) -> Option<&str> {
    Some(match fault {
        NONE => return None,
        unusual if UNUSUAL.contains(&unusual) => return None,
        "answers-notifications" => "unknown-notification",
        "odd-reason-at-once" => "cancel-at-once",
        "silent-initialize" | "retyped-initialize-id" => "initialize-answers",
        "silent-prompt" | "deaf-prompt" | "retyped-prompt-id" => "prompt-answered",
        "silent-extensions" => "unknown-extension",
        "errors-without-id" | "errors-with-null-id" => "answer-id",
        "refuses-option" | "no-option-method" => "set-config-option",
        "end-turn-on-cancel" => "cancel-ends-turn",
        "modes-without-option" => "mode-option",
        "unadvertised-update" => "only-advertised",
        other => other,
    })
}

/// The checks that are skipped because of the fault, at least.
fn skipped_by(fault: &str) -> &[&str] {
    match fault {
        "prompt-answered" | "discover-fits" | "work-answered" => &["frames-valid"],
        "dialogue-receipt" => {
            &["dialogue-repetition", "dialogue-conflict", "dialogue-expired", "dialogue-moves"]
        }
        "answers-notifications" => &["cancel-without-turn", "cancel-request", "one-answer"],
        "silent-initialize" | "retyped-initialize-id" => &["answer-id", "prompt-answered", "exits-on-eof"],
        "silent-prompt" => &[
            "updates-before-answer",
            "next-turn",
            "sessions-at-once",
            "delete-removes",
            "leaves-no-children",
            "only-advertised",
        ],
        "deaf-prompt" => &[
            "updates-before-answer",
            "cancel-ends-turn",
            "cancel-at-once",
            "permission-cancelled",
            "close-ends",
            "leaves-no-children",
            "only-advertised",
        ],
        "retyped-prompt-id" => &["updates-before-answer", "cancel-without-turn", "only-advertised"],
        "silent-extensions" => {
            &["unparsable-line", "crlf", "split-writes", "big-line", "id-large", "cancel-request"]
        }
        "errors-without-id" => {
            &["unknown-method", "unknown-extension", "crlf", "id-string", "stdout-only-messages"]
        }
        "errors-with-null-id" => &["unknown-method", "unknown-extension", "crlf", "id-string"],
        "end-turn-on-cancel" => &["permission-cancelled"],
        _ => &[],
    }
}

/// A part of what the report says it saw, for faults that have to be named.
fn names(fault: &str) -> &str {
    match fault {
        "silent-initialize" => "no answer to initialize within 15 s",
        "answer-id" | "retyped-initialize-id" | "retyped-prompt-id" => "is answered with the id \"",
        "id-large" => "has the id 9007199254740993, and is answered with the id 9007199254740992",
        "errors-without-id" => "is answered without an id",
        "errors-with-null-id" => "is answered with the id null",
        "refuses-option" => "the model is fixed for this account",
        "silent-prompt" | "deaf-prompt" => "no answer to session/prompt within 5 s",
        "paths-absolute" => "locations[].path \"src/main.rs\" must be absolute, in session/",
        "work-missing-member" => "without context does not name it",
        "unadvertised-update" => "`subagent_update` (`subagents`)",
        "mode-option" => "no config_option_update has it",
        "modes-without-option" => "clients that show only config options hide them",
        "dialogue-refusal" => "the error has no failed_message_id",
        "dialogue-receipt" => "the receipt is for the message another",
        _ => "",
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [agent, fault] if agent == "--agent" => {
            agent::run(fault);
            return ExitCode::SUCCESS;
        }
        // A test runner that requests the names of the tests gets an empty list.
        [list, ..] if list == "--list" => return ExitCode::SUCCESS,
        _ => {}
    }
    let wanted: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let listed = duologue(&["check", "--list", "--json"]);
    let severities: BTreeMap<String, String> =
        listed.iter().map(|row| (text(row, "check"), text(row, "severity"))).collect();
    let mut faults: Vec<String> = severities.keys().cloned().collect();
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
                    if let Err(why) = try_fault(&fault, &severities) {
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

/// Checks an agent with this fault: exactly one check must find it, with the verdict that its severity has.
fn try_fault(fault: &str, severities: &BTreeMap<String, String>) -> Result<(), String> {
    let this = std::env::current_exe().unwrap();
    let this = this.to_str().unwrap();
    // Where an answer comes, it may take as long as a busy machine needs.
    let timeout = if SILENT.contains(&fault) { "5" } else { "60" };
    let mut args = vec!["check", "--json", "--timeout", timeout, "--"];
    if fault == "exits-on-sigterm" {
        // A signal that the shell ignores stays ignored after `exec`, so the agent does not end at SIGTERM.
        args.extend(["sh", "-c", "trap '' TERM; exec \"$0\" \"$@\""]);
    }
    args.extend([this, "--agent", fault]);
    let (output, code) = duologue_with_code(&args);
    let rows = || output.iter().filter(|row| row["check"].is_string());
    let found: BTreeMap<String, String> = rows()
        .filter(|row| row["verdict"] == "fail" || row["verdict"] == "warn")
        .map(|row| (text(row, "check"), text(row, "verdict")))
        .collect();
    let expected: BTreeMap<String, String> = found_by(fault)
        .map(|check| {
            let is_warning = WARNED.contains(&fault) || severities[check] == "should";
            (check.to_owned(), if is_warning { "warn" } else { "fail" }.to_owned())
        })
        .into_iter()
        .collect();
    let skipped: BTreeMap<String, String> = rows()
        .filter(|row| row["verdict"] == "skipped")
        .map(|row| (text(row, "check"), text(row, "saw")))
        .collect();
    if found != expected {
        let why = rows().filter(|row| found.contains_key(&text(row, "check")));
        let why: Vec<String> = why.map(|row| format!("{} ({})", row["check"], row["saw"])).collect();
        return Err(format!("found {found:?}; expected {expected:?}; {}", why.join(", ")));
    }
    // A warning alone is no failure of the command, but an agent that ends no turn could not be tested.
    let count = |verdict: &str| found.values().filter(|found| *found == verdict).count();
    let summary = output.iter().find_map(|row| row.get("summary")).cloned().unwrap_or_default();
    let counted = summary["fail"] == count("fail") && summary["warn"] == count("warn");
    let fails = count("fail") > 0 || fault == "long-turn";
    if !counted || code != Some(i32::from(fails)) {
        return Err(format!("exit {code:?} and {summary} after {found:?}"));
    }
    if fault == NONE && !skipped.is_empty() {
        return Err(format!("skipped: {skipped:?}"));
    }
    if fault == "long-turn" {
        // Cancelled turns are checked although no turn ends within the timeout, and none of the checks fails.
        for checks in [None, Some("cancel")] {
            let only = checks.map_or(vec![], |checks| vec!["--only", checks]);
            let rows = match checks {
                None => output.clone(),
                Some(_) => duologue(
                    &[&["check", "--json", "--timeout", "2"], &only[..], &["--", this, "--agent", fault]]
                        .concat(),
                ),
            };
            let verdict =
                |check: &str| rows.iter().find(|row| row["check"] == check).map(|row| text(row, "verdict"));
            if verdict("cancel-ends-turn").as_deref() != Some("pass")
                || rows.iter().any(|row| row["verdict"] == "fail")
            {
                return Err(format!("with {only:?}: {rows:?}"));
            }
        }
    }
    let Some(finder) = found_by(fault) else { return Ok(()) };
    let because = format!("because {finder} ");
    for check in skipped_by(fault) {
        let why = skipped.get(*check);
        if !why.is_some_and(|why| why.starts_with(&because)) {
            return Err(format!("{check} is not skipped {because}: {why:?}"));
        }
    }
    let saw = rows().find(|row| row["check"] == finder).map(|row| text(row, "saw")).unwrap_or_default();
    if !saw.contains(names(fault)) {
        return Err(format!("{finder} does not name the fault: {saw}"));
    }
    if fault == "end-turn-on-cancel" {
        // A check that is chosen alone has nobody else to report its failure.
        let alone = ["check", "--json", "--only", "permission-cancelled", "--", this, "--agent", fault];
        let row = duologue(&alone).into_iter().find(|row| row["check"] == "permission-cancelled");
        if !row.as_ref().is_some_and(|row| row["verdict"] == "fail") {
            return Err(format!("permission-cancelled alone does not fail: {row:?}"));
        }
    }
    Ok(())
}

/// Runs `duologue` and returns the JSON value of each line that it prints.
fn duologue(args: &[&str]) -> Vec<Value> {
    duologue_with_code(args).0
}

fn duologue_with_code(args: &[&str]) -> (Vec<Value>, Option<i32>) {
    let output = Command::new(env!("CARGO_BIN_EXE_duologue")).args(args).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), output.status.code())
}

fn text(row: &Value, member: &str) -> String {
    row[member].as_str().unwrap_or_default().to_owned()
}
