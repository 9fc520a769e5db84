//! The client is killed at every frame of a turn: our agent ends by itself, whatever its
//! handler is stuck in, and so does what runs it.

use std::process::Stdio;
use std::time::{Duration, Instant};

use futures::StreamExt;
use rustix::process::{Pid, Signal, kill_process};

use super::trees::{Alive, CLIENT, DIRECT, GUARDED, PATIENCE, Tree};
use duologue_test_support::{ScriptedPeer, measured, runs};

/// Two answers, 57 updates, the answer to the prompt.
const FRAMES: usize = 60;
/// The target of our agent; the scenario of R11 measures it. Here, on a busy machine, it may take longer.
const LIMIT: Duration = Duration::from_secs(2);
const IN_TIME: Duration = Duration::from_secs(6);
/// The launcher stays above the agent, without a helper that would outlive any of our agents.
const BELOW: &str = r#""$@"; exit $?"#;

#[derive(Clone, Copy)]
struct Case {
    script: &'static str,
    flavor: &'static str,
    prompt: &'static str,
    /// True if the client stops reading at that frame, and is killed when the agent's output is full.
    stops: bool,
}

/// Returns the time by which the agent outlived its client.
async fn client_dies(case: Case, frame: usize) -> Duration {
    let tree = Tree::new().await;
    let how = if case.stops { "stop" } else { "kill" };
    let mut client = tokio::process::Command::new(CLIENT)
        .args(["turn", &frame.to_string(), how, case.prompt])
        .args(tree.words(case.script, &[GUARDED, case.flavor]))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("the client starts");
    let alive: Alive = tree.alive().await;
    if case.stops {
        let id = client.id().expect("it lives");
        let stopped = async {
            while !std::fs::read_to_string(format!("/proc/{id}/stat")).expect("it lives").contains(") T ") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, stopped).await.expect("the client never came to this frame");
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(alive.is_alive(), "the agent left before its client");
        kill_process(Pid::from_raw(id.cast_signed()).expect("a number"), Signal::KILL).expect("it lives");
    }
    let status = tokio::time::timeout(PATIENCE, client.wait()).await.expect("the client never died");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status.expect("a status")), Some(9));
    let died = Instant::now();
    alive.gone(IN_TIME).await;
    died.elapsed()
}

/// A number of turns, whose client dies at all these frames in turn, or at some all along the way if they
/// are few.
async fn at_frames(case: Case, frames: std::ops::RangeInclusive<usize>) {
    let turns = usize::try_from(runs(12)).expect("fits").max(2);
    let (first, count) = (*frames.start(), frames.count());
    let frame_of =
        |turn| first + if turns >= count { turn % count } else { turn * (count - 1) / (turns - 1) };
    let died = futures::stream::iter(0..turns).map(|turn| client_dies(case, frame_of(turn)));
    let slowest = died.buffer_unordered(6).fold(Duration::ZERO, async |a, b| a.max(b)).await.as_millis();
    measured(format_args!(
        "{turns} turns of {FRAMES} frames, the slowest agent gone after {slowest} ms, 0 left"
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_turn() {
    let case = Case { script: DIRECT, flavor: "many", prompt: "say:57", stops: false };
    at_frames(case, 0..=FRAMES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_wrapper_between() {
    let case = Case { script: BELOW, flavor: "one", prompt: "say:57", stops: false };
    at_frames(case, 0..=FRAMES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_handler_that_blocks_a_thread() {
    let case = Case { script: DIRECT, flavor: "many", prompt: "say:57 sleep", stops: false };
    at_frames(case, 1..=FRAMES - 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_handler_that_blocks_the_only_thread() {
    let case = Case { script: BELOW, flavor: "one", prompt: "say:57 sleep", stops: false };
    at_frames(case, 1..=FRAMES - 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_its_output_full() {
    let case = Case { script: DIRECT, flavor: "many", prompt: "flood", stops: true };
    at_frames(case, 3..=FRAMES).await;
    client_dies(Case { flavor: "one", ..case }, 5).await;
}

/// A client that starts the agent on two pipes, says hello, and dies, while another child of it holds
/// its ends of both pipes: the end of the input does not come for as long as that one lives.
const LEAKS_ITS_PIPES: &str = r#"
cd "$(mktemp -d)" && mkfifo in out
"$@" <in >out & exec 7>in 8<out; rm -r "$PWD"
sleep 20 9>&- &
echo '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}' >&7
read -r _ <&8
echo '{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/PROMPT","mcpServers":[]}}' >&7
sleep 0.2; kill -9 $$
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_its_pipes_open_in_another_process() {
    for (flavor, stuck_in) in [("many", "nothing"), ("many", "await"), ("many", "sleep"), ("one", "sleep")] {
        let tree = Tree::new().await;
        let words = tree.words(&LEAKS_ITS_PIPES.replace("PROMPT", stuck_in), &[GUARDED, flavor]);
        let mut client = tokio::process::Command::new(&words[0]);
        let mut client = client.args(&words[1..]).stdin(Stdio::null()).spawn().expect("the client starts");
        let alive = tree.alive().await;
        let status = tokio::time::timeout(PATIENCE, client.wait()).await.expect("the client never died");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status.expect("a status")), Some(9));
        let died = Instant::now();
        alive.gone(IN_TIME).await;
        measured(format_args!("stuck in {stuck_in}, gone after {} ms", died.elapsed().as_millis()));
    }
}

/// A launcher may exit before the conversation begins; the agent does not count as an orphan then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_launcher_that_leaves_at_once_is_not_missed() {
    let tree = Tree::new().await;
    // The agent is started by a grandchild of the launcher, whose parent is gone by then.
    let script = r#"( ( sleep 0.2; exec "$@" ) <&0 & ); exit 0"#;
    let words = tree.words(script, &[GUARDED, "many"]);
    let mut launcher = tokio::process::Command::new(&words[0]);
    let mut launcher = launcher
        .args(&words[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the launcher starts");
    let (stdout, stdin) = (launcher.stdout.take().expect("stdout"), launcher.stdin.take().expect("stdin"));
    let alive = tree.alive().await;
    assert!(launcher.wait().await.expect("a status").success());
    let mut agent = ScriptedPeer::new(stdout, stdin);
    agent.initialize(serde_json::json!({})).await;
    tokio::time::sleep(LIMIT + Duration::from_millis(500)).await;
    agent.probe().await;
    agent.close().await;
    alive.gone(IN_TIME).await;
}
