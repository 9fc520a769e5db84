//! `duologue check` with our own agents: all of them pass.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Once;

use serde_json::Value;

fn duologue(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_duologue")).args(args).output().expect("it starts")
}

fn check(args: &[&str]) -> (Option<i32>, String) {
    let output = duologue(&[&["check"], args].concat());
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

/// An example of ours, built if it is not.
pub(crate) fn example(name: &str) -> String {
    static BUILT: Once = Once::new();
    let here = PathBuf::from(env!("CARGO_BIN_EXE_duologue"));
    BUILT.call_once(|| {
        // The folder of this build, also if the variable with its name is a relative path.
        let target = here.ancestors().nth(2).expect("a target folder");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "duologue-examples", "--target-dir"]).arg(target);
        assert!(cargo.status().is_ok_and(|status| status.success()), "the examples build");
    });
    here.with_file_name(name).to_str().expect("a path").to_owned()
}

/// Every check passes, or does not concern the agent; `skipped` are the latter.
fn all_pass(args: &[&str], skipped: &[&str]) {
    let output = duologue(&[&["check", "--json"], args].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |verdict: &str| -> Vec<&str> {
        let rows = rows.iter().filter(|row| row["verdict"] == verdict);
        rows.filter_map(|row| row["check"].as_str()).collect()
    };
    let found: Vec<&Value> =
        rows.iter().filter(|row| row["verdict"] == "fail" || row["verdict"] == "warn").collect();
    assert!(found.is_empty(), "{found:#?}");
    assert_eq!(of("skipped"), skipped);
    assert_eq!(output.status.code(), Some(0));
}

/// The checks that only concern agents that advertise saved sessions, modes and options, or envelopes.
const NOT_OFFERED: [&str; 31] = [
    "load-replays",
    "load-unknown",
    "resume-is-silent",
    "list-answers",
    "list-includes",
    "list-bad-cursor",
    "close-ends",
    "delete-removes",
    "set-mode",
    "mode-option",
    "set-config-option",
    "agent-id",
    "ping-answered",
    "discover-fits",
    "unknown-kind",
    "wrong-addressee",
    "kind-mismatch",
    "unsupported-version",
    "payload-checked",
    "cancel-unknown",
    "dialogue-refusal",
    "dialogue-strict-json",
    "dialogue-session",
    "dialogue-receipt",
    "dialogue-repetition",
    "dialogue-conflict",
    "dialogue-expired",
    "dialogue-moves",
    "work-answered",
    "work-missing-member",
    "work-session",
];

#[test]
fn the_drafting_agent_passes() {
    let skipped = [&["terminal-login-withheld", "permission-cancelled"], &NOT_OFFERED[..]].concat();
    all_pass(&["--", &example("drafting-agent")], &skipped);
}

#[test]
fn the_echo_agent_passes() {
    // A turn that is over at once may be cancelled in time or not.
    let output = duologue(&["check", "--", &example("echo-agent")]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(", 0 failed, 0 with a warning, "), "{text}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_tool_agent_passes_and_its_permission_is_requested() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("notes.txt"), "quiet words\n").expect("a file");
    let cwd = dir.path().to_str().expect("a path");
    let output = duologue(&["check", "--cwd", cwd, "--prompt", "notes.txt", "--", &example("tool-agent")]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("✓ permission-cancelled       cancelled\n"), "{text}");
    assert!(text.contains(", 0 failed, 0 with a warning, "), "{text}");
    let file = std::fs::read_to_string(dir.path().join("notes.txt")).expect("a file");
    assert_eq!(file, "QUIET WORDS\n");
}

#[test]
fn the_notebook_agent_passes_with_a_suitable_prompt() {
    let output = duologue(&["check", "--login", "just-ask", "--", &example("notebook-agent")]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("✓ load-replays "), "{text}");
    assert!(text.contains(", 0 failed, 0 with a warning, "), "{text}");

    // An earlier name of the option, which stays.
    let agent = example("notebook-agent");
    let (_, text) = check(&["--auth", "just-ask", "--only", "session-new", "--", &agent]);
    assert!(text.contains("✓ session-new "), "{text}");

    let (code, text) = check(&["--only", "session-new", "prompt-answered", "--", &example("notebook-agent")]);
    assert_eq!(code, Some(1), "nothing could be checked");
    insta::assert_snapshot!(text, @r"
    turns
      – session-new                it requires a login; set its method (just-ask)
      – prompt-answered            there is no session: it requires a login; set its method (just-ask)

    0 passed, 0 failed, 0 with a warning, 2 skipped
    error: the agent could not be tested: there is no session: it requires a login; set its method (just-ask) (--login METHOD, --prompt TEXT)
    ");
}

#[test]
fn the_mock_passes() {
    let mock = ["--", env!("CARGO_BIN_EXE_duologue"), "mock"];
    all_pass(&mock, &["terminal-login-withheld", "permission-cancelled"]);
    let asking = [&["--only", "cancel", "--prompt", "permission"], &mock[..]].concat();
    all_pass(&asking, &[]);
    // A turn that lasts ten seconds is cancelled, though no answer may take more than two.
    let prompts =
        ["--timeout", "2", "--permission-prompt", "permission", "--slow-prompt", "slow", "--mode", "plan"];
    all_pass(&[&prompts[..], &mock[..]].concat(), &["terminal-login-withheld"]);
}

#[test]
fn the_mock_passes_the_checks_of_version_2() {
    let mock = [env!("CARGO_BIN_EXE_duologue"), "mock"];
    let prompts = ["--permission-prompt", "permission", "--slow-prompt", "slow"];
    all_pass(&[&["--protocol", "2"], &prompts[..], &["--"], &mock[..]].concat(), &[]);
}
