//! The bars, in one list.

use std::process::Command;

use super::agent::{ends as agent_ends, flow, lines as agent_lines, memory as agent_memory, turns};
use super::client::{control, ends, leaks, lines, memory, scale};
use super::stage::{Measured, Stage, Subject};
use crate::interop::Result;

/// A number that has to be reached, and how it is measured.
pub(super) struct Bar {
    /// The bar: `R5`.
    pub(super) id: &'static str,
    /// Which part of it, where there are several: `agent`, `client`, or what is done.
    pub(super) part: &'static str,
    /// What has to be reached.
    pub(super) asks: &'static str,
    pub(super) how: How,
}

pub(super) enum How {
    /// A test of the workspace.
    Test(Test),
    /// What is done with a subject. An error means that it could not be played at all.
    Scene(fn(&Stage, Subject) -> Result<Measured>),
}

/// A test that says what it measured on a line that begins with `measured: `.
#[derive(Clone, Copy)]
pub(super) struct Test {
    pub(super) package: &'static str,
    /// The test target, or none for the library's own tests.
    pub(super) target: Option<&'static str>,
    pub(super) name: &'static str,
    /// How often the bar wants it done.
    pub(super) runs: u64,
}

impl Bar {
    const fn test(
        id: &'static str,
        part: &'static str,
        asks: &'static str,
        (package, target, name): (&'static str, Option<&'static str>, &'static str),
        runs: u64,
    ) -> Self {
        Bar { id, part, asks, how: How::Test(Test { package, target, name, runs }) }
    }

    const fn scene(
        id: &'static str,
        part: &'static str,
        asks: &'static str,
        play: fn(&Stage, Subject) -> Result<Measured>,
    ) -> Self {
        Bar { id, part, asks, how: How::Scene(play) }
    }

    pub(super) fn name(&self) -> String {
        format!("{} {}", self.id, self.part).trim_end().to_owned()
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        self.id == name || self.name() == name
    }

    pub(super) fn is_test(&self) -> bool {
        matches!(self.how, How::Test(_))
    }
}

impl Test {
    pub(super) fn command(&self) -> String {
        let target = self.target.map_or("--lib".to_owned(), |target| format!("--test {target}"));
        format!(
            "DUOLOGUE_RUNS={} cargo test --release -p {} {target} {} -- --exact --nocapture",
            self.runs, self.package, self.name
        )
    }

    pub(super) fn run(&self) -> Result<Measured> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(["test", "--release", "--quiet", "-p", self.package]);
        match self.target {
            Some(target) => cargo.args(["--test", target]),
            None => cargo.arg("--lib"),
        };
        cargo.args([self.name, "--", "--exact", "--nocapture"]).env("DUOLOGUE_RUNS", self.runs.to_string());
        let output = cargo.output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let said: Vec<&str> =
            text.lines().filter_map(|line| Some(line.split_once("measured: ")?.1)).collect();
        if output.status.success() && text.contains("1 passed") && !said.is_empty() {
            return Ok(Measured::met(said.join("; ")));
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        let why: Vec<&str> = stderr.lines().rev().take(5).collect();
        Ok(Measured::short(format!(
            "{}: {}",
            output.status,
            why.into_iter().rev().collect::<Vec<_>>().join(" ")
        )))
    }
}

/// Every bar in scope, in the order of their numbers.
pub(super) const BARS: &[Bar] = &[
    Bar::scene(
        "R3",
        "agent",
        "bad lines to an agent: each answered as it should be, a question behind it within 1 s",
        agent_lines::bad_lines,
    ),
    Bar::scene(
        "R3",
        "agent floods",
        "10 million blank lines, 1 million of noise, an array of 100,001, a million levels: at most 10 answers, a question behind it within 5 s",
        agent_lines::floods,
    ),
    Bar::scene(
        "R3",
        "client",
        "bad lines from an agent: the turn goes on, each is answered as it should be, a question within 1 s",
        lines::bad_lines,
    ),
    Bar::scene(
        "R3",
        "client requests",
        "every request is answered, also without a handler",
        control::requests,
    ),
    Bar::scene(
        "R5",
        "agent",
        "lines of 16 MiB and a byte less or more: two answers, an end within 100 ms; at most 64 MiB, given back",
        agent_memory::limit,
    ),
    Bar::scene(
        "R5",
        "agent endless",
        "a line of 10 GB: the end behind 16 MiB, peak at most twice the limit and 32 MiB",
        agent_memory::endless,
    ),
    Bar::scene(
        "R5",
        "client",
        "a line of 10 GB: a typed error, peak at most twice the limit and 32 MiB",
        memory::long_line,
    ),
    Bar::scene("R6", "agent", "any valid line of 16 MiB: at most 4 times the line", agent_memory::amplifiers),
    Bar::scene("R6", "client", "any valid line of 16 MiB: at most 4 times the line", memory::amplifiers),
    Bar::scene(
        "R7",
        "agent unread",
        "300,000 updates while the client does not read: at most 16 MiB over idle, nothing lost",
        flow::unread,
    ),
    Bar::scene(
        "R7",
        "agent never read",
        "10 GB of updates that nobody reads: at most 16 MiB over idle",
        flow::never_read,
    ),
    Bar::scene(
        "R7",
        "agent asked",
        "10 GB of questions from a client that never reads: given up, at most 320 MiB over idle",
        flow::answers_unread,
    ),
    Bar::scene(
        "R7",
        "client paused",
        "10 GB of updates, consumer stopped for 5 s: nothing lost, at most 64 MiB over idle",
        memory::paused,
    ),
    Bar::scene(
        "R7",
        "client paused, small",
        "20 million of the smallest updates, likewise",
        memory::paused_small,
    ),
    Bar::scene(
        "R7",
        "client stalled",
        "10 GB of updates, consumer stopped for a minute: its stream ends with an error, at most 64 MiB over idle",
        memory::stalled,
    ),
    Bar::scene(
        "R7",
        "client unknown session",
        "a million updates of a session nobody knows: at most 8 MiB over idle",
        memory::unknown_session,
    ),
    Bar::scene(
        "R8",
        "agent",
        "1,000 handlers ask back at once and wait: every turn ends",
        turns::asking_back,
    ),
    Bar::scene(
        "R8",
        "client",
        "a session stalled: another one's turns and its own cancel p99 at most 100 ms, 10,000 tries",
        control::two_sessions,
    ),
    Bar::scene("R9", "", "10 MB each way before any read, pipes of 4 KiB: done within 5 s", flow::both_full),
    Bar::scene(
        "R10",
        "client",
        "agent killed at each of 60 frames in 3 ways, 20 times: told within 1 s with status and stderr, no update lost",
        ends::killed,
    ),
    Bar::scene(
        "R11",
        "",
        "client killed at each of 60 frames in 4 ways: no process left after 5 s",
        agent_ends::client_killed,
    ),
    Bar::scene(
        "R12",
        "agent",
        "end of input: exit with 0 within 1 s idle, 2 s busy",
        agent_ends::end_of_input,
    ),
    Bar::scene(
        "R12",
        "client close",
        "at most 5 s, no zombies, none left, a well-behaved agent never signalled",
        ends::close,
    ),
    Bar::scene(
        "R12",
        "client start",
        "an agent that does not start: told why, at once or after the time limit",
        ends::start,
    ),
    Bar::scene("R13", "agent at once", "2,000 prompts at once: each has one answer", flow::at_once),
    Bar::scene(
        "R14",
        "agent",
        "8 ways to cancel a turn, 1,000 times each, and a permission that stays open: each ends once and as it should",
        turns::cancels,
    ),
    Bar::scene("R17", "agent", "1,000 panics: each answered, other sessions go on", turns::panics),
    Bar::scene(
        "R18",
        "agent",
        "64 sessions at once, 1,000 updates each, 1 B to 256 KiB, a pipe of 4 KiB: none torn or out of order",
        turns::side_by_side,
    ),
    Bar::scene(
        "R19",
        "agent",
        "println! and a child that prints: no foreign byte on the wire",
        turns::foreign_bytes,
    ),
    Bar::scene("R20", "client", "1 GiB of stderr before initialize: a turn within 30 s", leaks::stderr),
    Bar::scene(
        "R21",
        "client inherited",
        "a clean environment has none of 50 secrets; descriptors 0 to 2 and no other",
        leaks::inherited,
    ),
    Bar::scene(
        "R21",
        "client cycles",
        "10,000 agents started and closed: descriptors, threads, children and memory flat",
        leaks::cycles,
    ),
    Bar::scene(
        "R29",
        "agent",
        "10,000 sessions on one connection: 20 KiB each, a turn p99 below 10 ms",
        flow::sessions,
    ),
    Bar::scene(
        "R29",
        "client",
        "10,000 sessions: 20 KiB each, 50,000 updates/s, turns p99 below 10 ms, at most 10 % left after closing",
        scale::sessions,
    ),
];
