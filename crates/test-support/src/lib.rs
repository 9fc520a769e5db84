//! Code shared by the tests of this workspace: two kinds of wires, scripted peers, time limits, measurements and
//! reports of skipped tests.

mod skips;

use std::future::Future;
use std::time::Duration;

pub use duologue_testkit::{ScriptedPeer, Wire, message_chunk};
pub use skips::skipped;

/// The time after which a test counts as hanging, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the repetitions of a test for a requirement: `default` in `cargo test`,
/// `DUOLOGUE_RUNS` in a campaign.
pub fn runs(default: u64) -> u64 {
    number("DUOLOGUE_RUNS").unwrap_or(default)
}

/// Returns the seed of a test: `DUOLOGUE_SEED` to reproduce a failure, else `DUOLOGUE_FIRST_SEED`, which CI sets,
/// else a random one.
pub fn seed() -> u64 {
    number("DUOLOGUE_SEED").or_else(|| number("DUOLOGUE_FIRST_SEED")).unwrap_or_else(|| fastrand::u64(..))
}

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.replace('_', "").parse().unwrap_or_else(|_| panic!("{name} is no number: {value}")))
}

/// A guard of a seeded test: if the test fails, it prints the command that reproduces the failure.
pub struct Reproduction {
    test: &'static str,
    seed: u64,
    /// The number of runs from the seed on until the failure.
    pub runs: u64,
}

impl Reproduction {
    /// Creates the guard. `test` has the arguments of `cargo test` that select the test.
    pub fn of(test: &'static str, seed: u64, runs: u64) -> Self {
        Reproduction { test, seed, runs }
    }
}

impl Drop for Reproduction {
    #[allow(clippy::print_stdout, reason = "shown when the test fails")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Reproduction { test, seed, runs } = self;
            println!("play it again with\n  DUOLOGUE_SEED={seed} DUOLOGUE_RUNS={runs} cargo test {test}");
        }
    }
}

/// Returns the limit for a time whose target is this: the target with `DUOLOGUE_STRICT`, else ten times as long, because
/// the machine may be slow.
pub fn at_most(target: Duration) -> Duration {
    if std::env::var_os("DUOLOGUE_STRICT").is_some() { target } else { target * 10 }
}

/// Prints the figure that a test measured, for `cargo xtask reliability`.
#[allow(clippy::print_stdout, reason = "the campaign reads it")]
pub fn measured(text: impl std::fmt::Display) {
    println!("measured: {text}");
}

/// Connects a client to an agent that the test plays.
#[cfg(feature = "client")]
pub async fn client_of<H: duologue_client::Host>(
    wire: Wire,
    client: duologue_client::Client<H>,
    capabilities: serde_json::Value,
) -> (duologue_client::Connection, ScriptedPeer) {
    let (transport, mut agent) = wire.scripted();
    let (connection, _) = tokio::join!(client.connect(transport), agent.accept_initialize(capabilities));
    (connection.expect("a connection"), agent)
}

/// Returns the text of all updates of a turn.
#[cfg(feature = "client")]
pub async fn texts(turn: &mut duologue_client::Turn) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(update) = turn.next().await {
        texts.push(update.expect("an update").to_string());
    }
    texts
}

/// Waits for a future, but not for ever. Campaigns take longer.
pub async fn in_time<T>(future: impl Future<Output = T>) -> T {
    let patience = if std::env::var_os("DUOLOGUE_RUNS").is_some() { 30 * PATIENCE } else { PATIENCE };
    tokio::time::timeout(patience, future).await.expect("this hangs")
}

/// Returns a memory value of this process from `/proc`, in bytes.
pub fn memory(what: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("our own");
    let line = status.lines().find(|line| line.starts_with(what)).expect("a size");
    let kib = line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok());
    kib.expect("a number") * 1024
}

/// The variable that is set in a process that runs one test alone.
const ALONE: &str = "DUOLOGUE_TEST_ALONE";

/// Runs a test in a process of its own, where no other test's memory counts, and prints its figures.
/// Returns false in that process.
pub async fn sent_away(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return false;
    }
    let this = std::env::current_exe().expect("our own");
    let mut alone = tokio::process::Command::new(this);
    let output =
        alone.args(["--exact", "--nocapture", test]).env(ALONE, "yes").output().await.expect("it runs");
    passed(&output);
    true
}

/// Asserts that one test in a process of its own has passed, and prints its figures.
pub fn passed(output: &std::process::Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said.lines().filter_map(|line| Some(line.split_once("measured: ")?.1)).for_each(measured);
}

/// Makes two tests of each function that takes a [`Wire`], on a runtime of several threads.
#[macro_export]
macro_rules! over_every_wire {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            use $crate::{Wire, in_time};

            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn in_memory() {
                in_time(super::$name(Wire::Memory)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn over_pipes() {
                in_time(super::$name(Wire::Pipes)).await;
            }
        }
    )*};
}

/// Makes a test of each function, on a runtime of several threads and with a time limit.
#[macro_export]
macro_rules! in_time_tests {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn holds() {
                $crate::in_time(super::$name()).await;
            }
        }
    )*};
}
