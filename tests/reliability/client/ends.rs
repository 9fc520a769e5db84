//! R10 and R12 on the client: agents that die, that do not start, and that do not want to go.

use std::fs;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use duologue_test_support::at_most;
use duologue_tests::Result;
use duologue_tests::process::side_by_side;

use super::{ClientRun, log_of, raw_agent, wrapped};
use crate::harness::{self, Measured, play};

const LIMIT: Duration = Duration::from_secs(20);
/// The answers to `initialize` and `session/new`, the updates, the answer to the prompt.
const FRAMES: usize = 60;
const UPDATES: usize = FRAMES - 3;
/// Conversations at once.
const AT_ONCE: usize = 4;
/// The ways in which an agent dies, and the words that the error must contain.
const DEATHS: [(&str, [&str; 2]); 3] = [
    ("kill", ["signal: 9", "SIGKILL"]),
    ("segv", ["signal: 11", "SIGSEGV"]),
    ("exit:3", ["exit status: 3", "code 3"]),
];

/// An agent that follows a script.
fn scripted(args: &[&str]) -> Command {
    let mut agent = harness::scripted();
    agent.args(args);
    agent
}

/// Counts of faults at the end of a conversation.
#[derive(Default)]
struct Faults {
    hung: AtomicUsize,
    late: AtomicUsize,
    no_status: AtomicUsize,
    no_tail: AtomicUsize,
    lost: AtomicUsize,
    slowest: Mutex<Duration>,
    first: Mutex<Option<String>>,
}

#[test]
fn r10_client() {
    play(killed);
}

/// Kills the agent at every frame, in three ways. Waiting calls must fail within a second, with the status and the last
/// stderr lines. Updates sent before must arrive.
fn killed() -> Result<Measured> {
    let (rounds, step) = harness::size((1, 7), (20, 1));
    let frames = (0..rounds).flat_map(|_| (0..=FRAMES).step_by(step));
    let deaths: Vec<_> = frames.flat_map(|at| DEATHS.map(|how| (at, how))).collect();
    let (runs, faults) = (deaths.len(), Faults::default());
    let results = side_by_side(&deaths, AT_ONCE, |&(at, how)| one_death(at, how, &faults));
    results.into_iter().collect::<std::result::Result<(), _>>()?;
    let count = |fault: &AtomicUsize| fault.load(Relaxed);
    let faults_list = [
        (count(&faults.hung), "without an error"),
        (count(&faults.late), "with an error after more than 1 s"),
        (count(&faults.no_status), "without code or signal"),
        (count(&faults.no_tail), "without the tail of stderr"),
        (count(&faults.lost), "in which updates that had been sent did not arrive"),
    ];
    let slowest = faults.slowest.lock().map(|slowest| slowest.as_millis()).unwrap_or_default();
    let mut text = format!("{runs} deaths, slowest error after {slowest} ms");
    for (count, what) in faults_list.iter().filter(|(count, _)| *count > 0) {
        text = format!("{text}, {count} {what}");
    }
    if let Some(first) = faults.first.into_inner().unwrap_or_default() {
        text = format!("{text}; such as {first}");
    }
    Ok(Measured::new(faults_list.iter().all(|(count, _)| *count == 0), text))
}

fn one_death(at: usize, (how, signs): (&str, [&str; 2]), faults: &Faults) -> Result<()> {
    let (frame, updates) = (at.to_string(), UPDATES.to_string());
    let agent = scripted(&["--updates", &updates, "--at", &frame, "--do", how]);
    let run = ClientRun::of(&["turn", "go"], &agent, LIMIT)?;
    let note = |fault: &AtomicUsize| {
        fault.fetch_add(1, Relaxed);
        if let Ok(mut first) = faults.first.lock() {
            first.get_or_insert_with(|| format!("{how} at frame {at}: {}", run.end()));
        }
    };
    let seen = run.lines.iter().filter_map(|line| line["updates"].as_u64()).max().unwrap_or_default();
    if seen != at.saturating_sub(2).min(UPDATES) as u64 {
        note(&faults.lost);
    }
    if at == FRAMES {
        // The turn had ended: nobody waited.
        return Ok(());
    }
    let Some(error) = run.printed("error").and_then(|error| error.as_str()) else {
        note(&faults.hung);
        return Ok(());
    };
    if !signs.iter().any(|sign| error.contains(sign)) {
        note(&faults.no_status);
    }
    let words = error.split_once("after frame ").and_then(|(_, rest)| rest.split_once(" at "));
    let died = words.and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
    match died {
        None => note(&faults.no_tail),
        Some(died) => {
            let noticed = run.number("at_ns").unwrap_or(u64::MAX);
            let after = Duration::from_nanos(noticed.saturating_sub(died));
            if let Ok(mut slowest) = faults.slowest.lock() {
                *slowest = after.max(*slowest);
            }
            if after > at_most(Duration::from_secs(1)) {
                note(&faults.late);
            }
        }
    }
    Ok(())
}

#[test]
fn r12_client_close() {
    play(close);
}

/// Closes agents: one that exits, one with output left, one that stays, one that also ignores TERM,
/// one with a helper, and one whose helper keeps its stdout open.
fn close() -> Result<Measured> {
    let (well, log) = raw_agent("close");
    // It says how it ended: with 0 if all it had left to say was read, which is more than a pipe holds.
    let said = harness::scratch().join("close-said");
    let _ = fs::remove_file(&said);
    let keep = format!(r#""$@"; echo $? >'{}'"#, said.display());
    let talks = wrapped(&keep, &scripted(&["--on-eof", "1000000"]));
    let stays = scripted(&["--on-eof", "stay"]);
    let stubborn = wrapped("trap '' TERM; exec \"$@\"", &stays);
    let cases = [
        ("goes", well, 1000),
        ("has 1 MB left to say", talks, 1000),
        ("stays", stays, 5000),
        ("ignores TERM", stubborn, 5500),
        ("with a helper", wrapped("sleep 100 & \"$@\"; exit $?", &scripted(&[])), 5000),
        (
            "ends first",
            wrapped("sleep 100 & exec \"$@\"", &scripted(&["--at", "20", "--do", "exit:0"])),
            5000,
        ),
    ];
    let (mut text, mut met) = (Vec::new(), true);
    for (name, agent, limit) in cases {
        let run = ClientRun::of(&["turn", "go"], &agent, LIMIT)?;
        let took = run.number("close_ms").unwrap_or(u64::MAX);
        let zombies = run.number("children").unwrap_or_default();
        let fine = run.given_up.is_none()
            && took <= at_most(Duration::from_millis(limit)).as_millis() as u64
            && run.left == 0
            && zombies == 0;
        met &= fine;
        let mut line =
            if took == u64::MAX { format!("{name}: {}", run.end()) } else { format!("{name} {took} ms") };
        if run.left > 0 {
            line = format!("{line}, {} LEFT BEHIND", run.left);
        }
        if zombies > 0 {
            line = format!("{line}, {zombies} ZOMBIES");
        }
        text.push(line);
    }
    if !log_of(&log)?.iter().any(|line| line["left"] == true) {
        met = false;
        text.push("the one that goes was SIGNALLED".to_owned());
    }
    if fs::read_to_string(&said).unwrap_or_default().trim() != "0" {
        met = false;
        text.push("what was left to say was NOT READ".to_owned());
    }
    Ok(Measured::new(met, text.join("; ")))
}

#[test]
fn r12_client_start() {
    play(start);
}

/// E7 and E9: an agent that ends before it says hello, one whose helper holds the pipes, and one that never says hello.
fn start() -> Result<Measured> {
    let exits = scripted(&["--at", "0", "--do", "exit:3"]);
    let held = wrapped("sleep 30 & exit 3", &exits);
    let missing = Command::new("/nowhere/agent");
    let silent = wrapped("echo 'what a day' >&2; exec sleep 100", &exits);
    let patience = harness::size("2", "30");
    let hung = Duration::from_secs(harness::size(6, 40));
    let cases = [
        ("exits with 3", exits, Duration::from_secs(5), &["exit status: 3", "code 3"][..]),
        ("its helper holds stdout", held, Duration::from_secs(5), &["exit status: 3", "code 3"]),
        ("is not there", missing, Duration::from_secs(5), &["nowhere", "o such file"]),
        ("says nothing", silent, hung, &["what a day"]),
    ];
    let (mut text, mut met) = (Vec::new(), true);
    for (name, agent, limit, signs) in cases {
        let run = ClientRun::of(&["start", patience], &agent, limit)?;
        let error = run.printed("error").and_then(|error| error.as_str()).unwrap_or_default();
        let failed = run.given_up.is_none() && signs.iter().any(|sign| error.contains(sign));
        met &= failed && run.left == 0;
        let ms = run.number("ms").unwrap_or(run.took.as_millis() as u64);
        text.push(match (failed, run.left) {
            (true, 0) => format!("{name}: error after {ms} ms"),
            (true, left) => format!("{name}: error after {ms} ms, {left} LEFT BEHIND"),
            (false, _) => format!("{name}: NOT TOLD: {}", run.end()),
        });
    }
    Ok(Measured::new(met, text.join("; ")))
}
