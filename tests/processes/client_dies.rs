//! The client is killed at every frame of a turn: our agent ends within two seconds, whatever its
//! handler is stuck in, and so does what runs it.

use std::process::Stdio;
use std::time::Duration;

use futures::StreamExt;
use rustix::process::{Pid, Signal, kill_process};

use crate::trees::{Alive, CLIENT, DIRECT, GUARDED, PATIENCE, Tree};

const IN_TIME: Duration = Duration::from_secs(2);
/// The launcher stays above the agent, without a helper that would outlive any of our agents.
const BELOW: &str = r#""$@"; exit $?"#;

#[derive(Clone, Copy)]
struct Case {
    script: &'static str,
    flavor: &'static str,
    prompt: &'static str,
    /// Whether the client stops reading at that frame, and is killed when the agent's output is full.
    stops: bool,
}

async fn client_dies(case: Case, frame: usize) {
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
    alive.gone(IN_TIME).await;
}

async fn at_frames(case: Case, frames: std::ops::RangeInclusive<usize>) {
    futures::stream::iter(frames).for_each_concurrent(6, |frame| client_dies(case, frame)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_turn() {
    let case = Case { script: DIRECT, flavor: "many", prompt: "say:17", stops: false };
    at_frames(case, 0..=20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_wrapper_between() {
    let case = Case { script: BELOW, flavor: "one", prompt: "say:17", stops: false };
    at_frames(case, 0..=20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_handler_that_blocks_a_thread() {
    let case = Case { script: DIRECT, flavor: "many", prompt: "say:17 sleep", stops: false };
    at_frames(case, 1..=19).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_handler_that_blocks_the_only_thread() {
    let case = Case { script: BELOW, flavor: "one", prompt: "say:17 sleep", stops: false };
    at_frames(case, 1..=19).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_its_output_full() {
    let case = Case { script: DIRECT, flavor: "many", prompt: "flood", stops: true };
    at_frames(case, 3..=20).await;
    client_dies(Case { flavor: "one", ..case }, 5).await;
}
