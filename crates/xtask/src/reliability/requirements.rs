//! The requirements, in one list.

use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::interop::Result;

/// The measured value of a requirement.
#[derive(Debug)]
pub(super) struct RequirementFigures {
    pub(super) text: String,
    pub(super) outcome: RequirementOutcome,
}

impl fmt::Display for RequirementFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.outcome {
            RequirementOutcome::Met => "met",
            RequirementOutcome::Short => "SHORT",
            RequirementOutcome::NotPlayed => "not played",
        };
        write!(f, "{mark}, {}", self.text)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequirementOutcome {
    Met,
    /// The subject did not reach it.
    Short,
    /// The harness failed, so there is no result for the subject.
    NotPlayed,
}

/// A number that has to be reached, and how it is measured.
pub(super) struct Requirement {
    /// The requirement: `R5`.
    pub(super) id: &'static str,
    /// Which part of it, where there are several: `agent`, `client`, or what is done.
    pub(super) part: &'static str,
    /// The target value, in words.
    pub(super) asks: &'static str,
    pub(super) how: Procedure,
}

pub(super) enum Procedure {
    /// A test of the workspace.
    Test(Test),
    /// Another command of this program.
    Command(&'static [&'static str]),
    /// A test that is played with each subject.
    Scenario(ScenarioTest),
}

/// A test of `tests/reliability`, by its name.
#[derive(Clone, Copy)]
pub(super) struct ScenarioTest(&'static str);

/// A test that prints its figures on a line that begins with `measured: `.
#[derive(Clone, Copy)]
pub(super) struct Test {
    pub(super) package: &'static str,
    /// The test target, or none for the library's own tests.
    pub(super) target: Option<&'static str>,
    pub(super) name: &'static str,
    /// The repetitions that the requirement demands.
    pub(super) runs: u64,
}

impl Requirement {
    const fn test(
        id: &'static str,
        part: &'static str,
        asks: &'static str,
        (package, target, name): (&'static str, Option<&'static str>, &'static str),
        runs: u64,
    ) -> Self {
        Requirement { id, part, asks, how: Procedure::Test(Test { package, target, name, runs }) }
    }

    const fn command(
        id: &'static str,
        part: &'static str,
        asks: &'static str,
        command: &'static [&'static str],
    ) -> Self {
        Requirement { id, part, asks, how: Procedure::Command(command) }
    }

    const fn scenario(id: &'static str, part: &'static str, asks: &'static str, test: &'static str) -> Self {
        Requirement { id, part, asks, how: Procedure::Scenario(ScenarioTest(test)) }
    }

    pub(super) fn name(&self) -> String {
        format!("{} {}", self.id, self.part).trim_end().to_owned()
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        self.id == name || self.name() == name
    }

    pub(super) fn is_scenario(&self) -> bool {
        matches!(self.how, Procedure::Scenario(_))
    }

    /// Returns the command that measures it.
    pub(super) fn shell_command(&self) -> String {
        match self.how {
            Procedure::Test(test) => test.command(),
            Procedure::Command(args) => format!("cargo xtask {}", args.join(" ")),
            Procedure::Scenario(_) => format!("cargo xtask reliability '{}'", self.name()),
        }
    }
}

impl Test {
    fn command(&self) -> String {
        let target = self.target.map_or("--lib".to_owned(), |target| format!("--test {target}"));
        format!(
            "DUOLOGUE_RUNS={} cargo test --release -p {} {target} {} -- --exact --nocapture",
            self.runs, self.package, self.name
        )
    }

    pub(super) fn run(&self) -> Result<RequirementFigures> {
        let mut cargo = crate::target::cargo();
        cargo.args(["test", "--release", "--quiet", "-p", self.package]);
        match self.target {
            Some(target) => cargo.args(["--test", target]),
            None => cargo.arg("--lib"),
        };
        cargo.args([self.name, "--", "--exact", "--nocapture"]).env("DUOLOGUE_RUNS", self.runs.to_string());
        // Files are synced, so a disk would dominate the measure.
        if Path::new(IN_MEMORY).is_dir() {
            cargo.env("TMPDIR", IN_MEMORY);
        }
        measured(&mut cargo, has_failed)
    }
}

impl ScenarioTest {
    /// Returns the command that runs tests of `tests/reliability`.
    pub(super) fn cargo() -> Command {
        let mut cargo = crate::target::cargo();
        cargo.args([
            "test",
            "--release",
            "--quiet",
            "--locked",
            "-p",
            "duologue-tests",
            "--test",
            "reliability",
        ]);
        cargo
    }

    /// Runs it in full size or small, with our programs or those in the folder of a subject.
    pub(super) fn play(self, full: bool, subject: Option<&Path>) -> Result<RequirementFigures> {
        let mut cargo = ScenarioTest::cargo();
        cargo.args([self.0, "--", "--exact", "--nocapture"]);
        if full {
            cargo.env("DUOLOGUE_FULL", "1").env("DUOLOGUE_STRICT", "1");
        }
        if let Some(folder) = subject {
            cargo.env("DUOLOGUE_SUBJECT", std::path::absolute(folder)?);
        }
        let mut figures = measured(&mut cargo, has_failed)?;
        // The outcome has it already.
        if let Some(text) = figures.text.strip_prefix(SHORT) {
            figures.text = text.to_owned();
        }
        Ok(figures)
    }
}

/// Returns true if cargo reports that a test has failed. If no test was built, it reports something else.
fn has_failed(stderr: &str) -> bool {
    stderr.contains("test failed")
}

/// Folders of tests are here, where there is one.
const IN_MEMORY: &str = "/dev/shm";

/// The prefixes of a measure that is below the target, and of one that could not be taken.
const SHORT: &str = "short: ";
const NOT_PLAYED: &str = "not played: ";

/// The number of measures of one command that are shown.
const SHOWN: usize = 5;

/// Runs a command of this program and returns its figures.
pub(super) fn subcommand(args: &[&str]) -> Result<RequirementFigures> {
    measured(Command::new(std::env::current_exe()?).args(args), |_| true)
}

/// Runs a command and returns its measures. If it fails and no measure explains it, `was_played` decides from its stderr
/// whether the requirement was not reached or not played.
fn measured(command: &mut Command, was_played: impl Fn(&str) -> bool) -> Result<RequirementFigures> {
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let measures: Vec<&str> =
        text.lines().filter_map(|line| Some(line.split_once("measured: ")?.1)).collect();
    let stderr = String::from_utf8_lossy(&output.stderr);
    Ok(figures(&measures, output.status.success()).unwrap_or_else(|| {
        let why: Vec<&str> = stderr.lines().rev().take(5).collect();
        let why = why.into_iter().rev().collect::<Vec<_>>().join(" ");
        let why = format!("{}: {why}", output.status);
        if was_played(&stderr) {
            RequirementFigures { text: why, outcome: RequirementOutcome::Short }
        } else {
            RequirementFigures { text: format!("{NOT_PLAYED}{why}"), outcome: RequirementOutcome::NotPlayed }
        }
    }))
}

/// Returns the figures of measures. `None` if a command failed and none of its measures explains it.
fn figures(measures: &[&str], success: bool) -> Option<RequirementFigures> {
    let is = |prefix| measures.iter().any(|line| line.starts_with(prefix));
    let outcome = match (success, is(NOT_PLAYED), is(SHORT)) {
        (_, true, _) => RequirementOutcome::NotPlayed,
        (_, _, true) => RequirementOutcome::Short,
        (true, ..) if measures.is_empty() => {
            let text = format!("{NOT_PLAYED}no measure was printed");
            return Some(RequirementFigures { text, outcome: RequirementOutcome::NotPlayed });
        }
        (true, ..) => RequirementOutcome::Met,
        (false, ..) => return None,
    };
    let shown: Vec<_> = measures.iter().take(SHOWN).copied().collect();
    let more = measures.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Some(RequirementFigures { text: shown.join("; ") + &more, outcome })
}

/// Every requirement in scope, in the order of their numbers.
pub(super) const REQUIREMENTS: &[Requirement] = &[
    Requirement::test(
        "R2",
        "",
        "95 of 95 accepted, 188 of 188 refused, 35 decided once and for all",
        ("duologue-rpc", Some("it"), "json_decisions::json_is_taken_and_nothing_else"),
        1,
    ),
    Requirement::scenario(
        "R3",
        "agent",
        "bad lines to an agent: each answered as it should be, a question behind it within 1 s",
        "agent::lines::r3_agent",
    ),
    Requirement::scenario(
        "R3",
        "agent floods",
        "10 million blank lines, 1 million of noise, an array of 100,001, a million levels: at most 10 answers, a question behind it within 5 s, less than 32 MiB over idle",
        "agent::lines::r3_agent_floods",
    ),
    Requirement::scenario(
        "R3",
        "client",
        "88 known bad lines from an agent: the turn goes on, each is answered as a peer may, a question behind it within 1 s",
        "client::lines::r3_client",
    ),
    Requirement::scenario(
        "R3",
        "client requests",
        "every request is answered, also without a handler",
        "client::control::r3_client_requests",
    ),
    Requirement::test(
        "R4",
        "splits",
        "a million ways to cut the bytes: equal messages",
        ("duologue-rpc", None, "simulation::splits::any_split_gives_equal_messages"),
        1000000,
    ),
    Requirement::test(
        "R4",
        "reads",
        "the read that fills the line buffer dropped at every poll, 100 rounds of 200 lines of 64 KiB: none lost",
        ("duologue-rpc", None, "simulation::splits::a_read_that_is_dropped_at_every_poll_loses_nothing"),
        100,
    ),
    Requirement::test(
        "R4",
        "replies",
        "200 replies of 64 KiB at once over pipes of 4 KiB, 100 rounds: none lost",
        ("duologue-rpc", Some("it"), "frames::replies::no_reply_is_lost"),
        100,
    ),
    Requirement::scenario(
        "R5",
        "agent",
        "lines of 16 MiB and a byte less or more: two answers, an end within 100 ms; peak at most twice the limit and 32 MiB, at most 1 MiB over idle after 0.5 s",
        "agent::memory::r5_agent",
    ),
    Requirement::scenario(
        "R5",
        "agent endless",
        "a line of 10 GB: the end at most 1 MiB behind the limit, peak at most twice the limit and 32 MiB",
        "agent::memory::r5_agent_endless",
    ),
    Requirement::scenario(
        "R5",
        "client",
        "a line of 10 GB: a typed error, peak at most twice the limit and 32 MiB",
        "client::memory::r5_client",
    ),
    Requirement::scenario(
        "R6",
        "agent",
        "20 kinds of valid lines of 16 MiB, taken or refused within 60 s: at most 4 times the line, no connection lost",
        "agent::memory::r6_agent",
    ),
    Requirement::scenario(
        "R6",
        "client",
        "22 kinds of valid lines of 16 MiB, taken or refused within 16 s: at most 4 times the line, no turn lost",
        "client::memory::r6_client",
    ),
    Requirement::scenario(
        "R7",
        "agent unread",
        "300,000 updates while the client does not read: at most 16 MiB over idle, nothing lost",
        "agent::flow::r7_agent_unread",
    ),
    Requirement::scenario(
        "R7",
        "agent never read",
        "10 GB of updates that nobody reads: at most 16 MiB over idle",
        "agent::flow::r7_agent_never_read",
    ),
    Requirement::scenario(
        "R7",
        "agent requests",
        "10 GB of questions from a client that never reads: the agent gives up and ends, rather than to stand still for 15 s; at most 320 MiB over idle, not 16, as answers are owed: with 256 MiB of them unwritten it ends at once",
        "agent::flow::r7_agent_requests",
    ),
    Requirement::scenario(
        "R7",
        "client paused",
        "10 GB of updates, consumer stopped for 5 s: all taken within 120 s, at most 64 MiB over idle",
        "client::memory::r7_client_paused",
    ),
    Requirement::scenario(
        "R7",
        "client paused, small",
        "20 million of the smallest updates, likewise",
        "client::memory::r7_client_paused_small",
    ),
    Requirement::scenario(
        "R7",
        "client stalled",
        "10 GB of updates, consumer stopped for a minute: its stream ends with an error, all over within 120 s, at most 64 MiB over idle",
        "client::memory::r7_client_stalled",
    ),
    Requirement::scenario(
        "R7",
        "client unknown session",
        "a million updates of a session nobody knows: over within 120 s, at most 8 MiB over idle",
        "client::memory::r7_client_unknown_session",
    ),
    Requirement::scenario(
        "R8",
        "agent",
        "1,000 handlers send a request each at once and wait: every turn ends, nothing takes 10 s",
        "agent::turns::r8_agent",
    ),
    Requirement::scenario(
        "R8",
        "client",
        "nobody takes what one session says: turns of another one, and a cancel from its call to the agent hearing it, p99 at most 100 ms, 10,000 of each within 600 s",
        "client::control::r8_client",
    ),
    Requirement::scenario(
        "R9",
        "",
        "10 MB each way before any read, pipes of 4 KiB: done within 5 s",
        "agent::flow::r9_both_pipes_full",
    ),
    Requirement::scenario(
        "R10",
        "client",
        "agent killed at each of 60 frames in 3 ways, 20 times: an error within 1 s with status and stderr; every update that was sent arrives, acknowledged or not",
        "client::ends::r10_client",
    ),
    Requirement::scenario(
        "R11",
        "",
        "client killed at each of 60 frames in 4 ways, twice: no process left after 5 s",
        "agent::ends::r11_client_killed",
    ),
    Requirement::scenario(
        "R12",
        "agent",
        "end of input: exit with 0 within 1 s idle, 2 s busy",
        "agent::ends::r12_agent",
    ),
    Requirement::scenario(
        "R12",
        "client close",
        "at most 5 s, and 0.5 s for the machine where all three grace periods run out; at most 1 s for one that goes, and what it says then is read; no zombies, none left, a well-behaved agent never signalled",
        "client::ends::r12_client_close",
    ),
    Requirement::scenario(
        "R12",
        "client start",
        "an agent that does not start: an error with the reason, at once or after the time limit",
        "client::ends::r12_client_start",
    ),
    Requirement::scenario(
        "R13",
        "agent at once",
        "2,000 prompts at once: each has one answer or is refused, no two answers more than 10 s apart",
        "agent::flow::r13_agent_at_once",
    ),
    Requirement::test(
        "R13",
        "peers",
        "a million schedules of two peers: one answer each, order kept, nothing left, nothing waits for ever",
        ("duologue-rpc", None, "simulation::pair::every_request_gets_one_answer_and_order_is_kept"),
        1000000,
    ),
    Requirement::test(
        "R13",
        "rule breakers",
        "100,000 schedules of a peer that keeps no rule: it gets what it is owed",
        ("duologue-rpc", None, "simulation::script::a_peer_that_keeps_no_rule_gets_what_it_is_owed"),
        100000,
    ),
    Requirement::test(
        "R13",
        "SDKs",
        "100,000 schedules of an agent and a client: no update behind its turn's end, every turn ends",
        (
            "duologue-tests",
            Some("it"),
            "simulation::story::updates_keep_their_order_and_every_turn_has_its_outcome",
        ),
        100000,
    ),
    Requirement::scenario(
        "R14",
        "agent",
        "8 ways to cancel a turn, 1,000 times each, and a permission that stays open: each ends once and as it should",
        "agent::turns::r14_agent",
    ),
    Requirement::test(
        "R14",
        "client",
        "6 points of a turn, cancelled and dropped, 1,000 times each",
        ("duologue-tests", Some("it"), "order_rules::cancels::a_client_gets_over_every_cancel::over_pipes"),
        1000,
    ),
    Requirement::command(
        "R15",
        "loom",
        "every interleaving with up to 3 preemptions where threads meet",
        &["loom"],
    ),
    Requirement::test(
        "R16",
        "",
        "a million futures dropped: none left, one withdrawal for each that had no answer",
        ("duologue-rpc", None, "simulation::drops::a_dropped_future_leaves_nothing_and_withdraws_once"),
        1000000,
    ),
    Requirement::scenario(
        "R17",
        "agent",
        "1,000 panics each in session/prompt, in session/new, and in a task left to the connection (Peer::spawn, ConnectionTo::spawn): each request answered -32603, or the turn as it ended; other sessions go on",
        "agent::turns::r17_agent",
    ),
    Requirement::test(
        "R17",
        "peer",
        "1,000 panics in a peer's handlers: 1,000 answers, the connection open",
        ("duologue-rpc", None, "simulation::panics::a_thousand_panics_are_a_thousand_answers"),
        1000,
    ),
    Requirement::scenario(
        "R18",
        "agent",
        "64 sessions at once, 1,000 updates each, 1 B to 256 KiB, a pipe of 4 KiB: none torn or out of order",
        "agent::turns::r18_agent",
    ),
    Requirement::test(
        "R18",
        "page",
        "64 tasks, 1,000 frames each, 1 B to 256 KiB, a pipe of 4 KiB: none torn",
        ("duologue-rpc", Some("it"), "frames::torn::over_a_pipe_of_one_page"),
        1000,
    ),
    Requirement::test(
        "R18",
        "orders",
        "1,000 orders of short, late and interrupted writes: none torn",
        ("duologue-rpc", Some("it"), "frames::torn::in_every_order_of_short_writes"),
        1000,
    ),
    Requirement::scenario(
        "R19",
        "agent",
        "println! and a child that prints: no foreign byte on the wire",
        "agent::turns::r19_agent",
    ),
    Requirement::scenario(
        "R20",
        "client",
        "1 GiB of stderr before initialize: a turn within 30 s, peak below 64 MiB",
        "client::leaks::r20_client",
    ),
    Requirement::scenario(
        "R21",
        "client inherited",
        "a clean environment has none of 50 secrets; descriptors 0 to 2 and no other",
        "client::leaks::r21_client_inherited",
    ),
    Requirement::scenario(
        "R21",
        "client cycles",
        "10,000 agents started and closed within 300 s: descriptors, threads and children flat, memory less than 2 MiB more",
        "client::leaks::r21_client_cycles",
    ),
    Requirement::test(
        "R22",
        "table",
        "at least 300 ways out of a project, read, written and entered: none leads out",
        ("duologue-client", Some("it"), "local_host::paths::no_path_leads_out_of_the_project"),
        1,
    ),
    Requirement::test(
        "R22",
        "grammar",
        "200,000 paths put together at random: none leads out",
        ("duologue-client", Some("it"), "local_host::paths::no_path_of_any_parts_leads_out_of_the_project"),
        200000,
    ),
    Requirement::test(
        "R22",
        "race",
        "10 million requests while folders and links change places: none leads out",
        (
            "duologue-client",
            Some("it"),
            "local_host::race::no_exchange_of_folders_and_links_lets_anything_out",
        ),
        10000000,
    ),
    Requirement::test(
        "R23",
        "tail",
        "a million outputs: within the limit, whole characters, the end of what was printed",
        ("duologue-client", None, "local::tail::tests::is_the_longest_end_within_the_limit"),
        1000000,
    ),
    Requirement::test(
        "R23",
        "memory",
        "a command that prints 10 GiB: the limit and 1 MiB more",
        ("duologue-client", Some("campaign"), "terminals::a_command_costs_the_output_that_is_kept"),
        10240,
    ),
    Requirement::test(
        "R24",
        "terminal",
        "at least 200 payloads wherever an agent's words are shown: none obeyed",
        ("duologue-cli", Some("it"), "terminal::hostile::no_payload_is_obeyed_wherever_it_stands"),
        1,
    ),
    Requirement::test(
        "R24",
        "questions",
        "questions that go wrong in 12 ways, 100 times each: none allowed",
        (
            "duologue-client",
            Some("it"),
            "local_host::permissions::a_failed_permission_request_is_never_a_yes",
        ),
        100,
    ),
    Requirement::test(
        "R25",
        "cut",
        "cut at every byte: at most the last record lost, none fused",
        (
            "duologue-transcript",
            Some("it"),
            "recorder::a_recording_cut_at_every_byte_is_read_and_gone_on_with",
        ),
        1,
    ),
    Requirement::test(
        "R25",
        "killed",
        "killed at 200 points: nothing lost that was received, none fused",
        ("duologue-cli", Some("it"), "record::killed_at_random_points_it_loses_nothing_that_was_received"),
        200,
    ),
    Requirement::test(
        "R25",
        "secrets",
        "0 of 200 planted secrets, mode 0600",
        ("duologue-transcript", Some("it"), "recorder::two_hundred_planted_secrets_leave_none_in_the_file"),
        1,
    ),
    Requirement::test(
        "R25",
        "full disk",
        "an error of its own, and whole records",
        ("duologue-transcript", Some("it"), "taps::full_disk::a_disk_that_fills_up_is_an_error_of_its_own"),
        1,
    ),
    Requirement::test(
        "R25",
        "replay",
        "byte for byte",
        (
            "duologue-tests",
            Some("campaign"),
            "processes::replays::the_recording_of_a_process_is_played_to_a_client_of_its_own",
        ),
        1,
    ),
    Requirement::test(
        "R25",
        "cost",
        "at most 5 % of the throughput",
        ("duologue-transcript", Some("campaign"), "cost::the_cost_of_recording_is_measured"),
        200000,
    ),
    Requirement::scenario(
        "R29",
        "agent",
        "10,000 sessions on one connection: 20 KiB each, a turn p99 below 10 ms",
        "agent::flow::r29_agent",
    ),
    Requirement::scenario(
        "R29",
        "client",
        "10,000 sessions: 20 KiB each, 50,000 updates/s, turns p99 below 10 ms, at most 10 % of what they took in use after closing; all within 90 s",
        "client::scale::r29_client",
    ),
    Requirement::command(
        "R31",
        "",
        "the whole surface against the official Rust, TypeScript and Python SDKs, every message valid",
        &["interop"],
    ),
];
