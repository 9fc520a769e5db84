//! Closing a connection, politely first: the end of input, then TERM, then KILL, for the whole
//! group, within five seconds. And not closing it: the last handle dropped, the runtime gone.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use duologue_client::rpc::{Direction, Tap, TappedFrame};
use duologue_client::{Client, Connection, Error};

use futures::StreamExt;
use rustix::process::{Pid, Signal, kill_process};

use super::trees::{DIRECT, GUARDED, PATIENCE, SCRIPTED, Tree, WRAPPED};
use duologue_test_support::{at_most, measured, runs};

/// Ignored signals stay ignored in what the launcher starts.
const DEAF: &str = r#"trap "" TERM; exec "$@""#;
const DEAF_BELOW: &str = r#"trap "" TERM; sleep 600 & "$@"; exit $?"#;
const LADDER: Duration = Duration::from_secs(5);

async fn start(tree: &Tree, script: &str, program: &[&str]) -> Connection {
    Client::new(()).spawn(tree.command(script, program)).await.expect("starts")
}

async fn close(agent: &Connection) -> (ExitStatus, Duration) {
    let begun = Instant::now();
    let status = tokio::time::timeout(PATIENCE, agent.close()).await.expect("this hangs");
    let took = begun.elapsed();
    assert!(took <= at_most(LADDER), "closing took {took:?}");
    (status.expect("a status"), took)
}

/// A signal would show in the status.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_well_behaved_agent_is_never_signalled() {
    for program in [&[SCRIPTED][..], &[GUARDED, "one"], &[GUARDED, "many"]] {
        for script in [DIRECT, r#"trap "exit 77" TERM; "$@"; exit $?"#] {
            let tree = Tree::new().await;
            let agent = start(&tree, script, program).await;
            let session = agent.new_session("/").await.expect("a session");
            session.prompt("say:3").await.expect("idle").finish().await.expect("an answer");
            let (status, took) = close(&agent).await;
            assert_eq!(status.code(), Some(0), "{program:?}: {status}");
            assert!(took < at_most(Duration::from_secs(1)), "{program:?}: {took:?}");
            tree.gone(Duration::from_secs(1)).await;
        }
    }
}

#[derive(Default)]
struct Bytes(AtomicUsize);

impl Tap for Bytes {
    fn frame(&self, frame: TappedFrame<'_>) {
        if frame.direction == Direction::Incoming && frame.is_message {
            self.0.fetch_add(frame.bytes.len(), Ordering::SeqCst);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remaining_output_is_read() {
    let tree = Tree::new().await;
    let bytes = Arc::new(Bytes::default());
    let command = tree.command(DIRECT, &[SCRIPTED, "--on-eof", "1048576"]);
    let agent = Client::new(()).tap(bytes.clone()).spawn(command).await.expect("starts");
    agent.new_session("/").await.expect("a session");
    let (status, took) = close(&agent).await;
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(took < at_most(Duration::from_secs(2)), "{took:?}");
    assert!(bytes.0.load(Ordering::SeqCst) > 1 << 20, "{bytes:?}", bytes = bytes.0);
    tree.gone(Duration::from_secs(1)).await;
}

async fn ladder(script: &str, seconds: u64, status: (Option<i32>, Option<i32>)) {
    let tree = Tree::new().await;
    let agent = start(&tree, script, &[SCRIPTED, "--on-eof", "stay"]).await;
    let session = agent.new_session("/").await.expect("a session");
    let (end, took) = close(&agent).await;
    assert_eq!((end.code(), end.signal()), status);
    assert!(took >= Duration::from_secs(seconds), "after {took:?} only");
    tree.gone(Duration::from_secs(1)).await;
    let late = session.prompt("anybody?").await.map(drop);
    assert!(matches!(late, Err(Error::AgentExited(_))), "{late:?}");
    // Again, and again from elsewhere: nothing to do.
    assert_eq!(agent.close().await, Some(end));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_stays_gets_a_signal() {
    ladder(DIRECT, 2, (None, Some(15))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_ignores_the_signal_is_killed() {
    ladder(DEAF, 4, (None, Some(9))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_group_that_does_not_leave_is_killed() {
    ladder(DEAF_BELOW, 4, (None, Some(9))).await;
}

/// The end of the input cannot reach it: there is too much before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_does_not_read_gets_a_signal() {
    let tree = Tree::new().await;
    let agent = start(&tree, DIRECT, &[SCRIPTED, "--at", "2", "--do", "hang"]).await;
    let session = agent.new_session("/").await.expect("a session");
    let turn = session.prompt("x".repeat(1 << 20)).await.expect("idle");
    let (closed, outcome) = tokio::join!(close(&agent), turn.finish());
    assert_eq!(closed.0.signal(), Some(15));
    assert!(matches!(outcome, Err(Error::AgentExited(_))), "{outcome:?}");
    tree.gone(Duration::from_secs(1)).await;
}

/// It cannot take a signal, either, but for one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_agent_is_killed() {
    let tree = Tree::new().await;
    let agent = start(&tree, DIRECT, &[SCRIPTED]).await;
    let alive = tree.alive().await;
    let leader = alive.leader.and_then(|leader| Pid::from_raw(leader.cast_signed())).expect("a leader");
    kill_process(leader, Signal::STOP).expect("it lives");
    assert_eq!(close(&agent).await.0.signal(), Some(9));
    alive.gone(Duration::from_secs(1)).await;
}

/// Both the worst agent and a handler of ours that waits for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stuck_handler_of_ours_does_not_make_it_longer() {
    #[derive(Clone)]
    struct Never;
    impl duologue_client::Host for Never {}
    let tree = Tree::new().await;
    let asked = Arc::new(tokio::sync::Notify::new());
    let client = Client::new(Never).on({
        let asked = asked.clone();
        move |_, _: duologue_schema::ReadTextFileRequest| {
            asked.notify_one();
            std::future::pending()
        }
    });
    let program = [SCRIPTED, "--on-eof", "stay", "--reads", "1"];
    let agent = client.spawn(tree.command(DEAF, &program)).await.expect("starts");
    let _session = agent.new_session("/").await.expect("a session");
    asked.notified().await;
    let (end, _) = close(&agent).await;
    assert_eq!(end.signal(), Some(9));
    tree.gone(Duration::from_secs(1)).await;
}

/// Some of every kind at once, well-behaved ones among them: the worst is gone after five seconds, without a
/// zombie, and the best is never signalled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_the_agent_is_it_is_closed_in_five_seconds() {
    let stays = [SCRIPTED, "--on-eof", "stay"];
    // Its launcher, itself, and the signal that ends it.
    let kinds: [(&str, &[&str], Option<i32>); 6] = [
        (r#"trap "exit 77" TERM; "$@"; exit $?"#, &[SCRIPTED], None),
        (DIRECT, &[GUARDED, "one"], None),
        (DIRECT, &stays, Some(15)),
        (WRAPPED, &stays, Some(15)),
        (DEAF, &stays, Some(9)),
        (DEAF_BELOW, &stays, Some(9)),
    ];
    let rounds = usize::try_from(runs(6)).expect("fits");
    let slowest = std::sync::Mutex::new([Duration::ZERO; 2]);
    let closed = futures::stream::iter(0..rounds).map(async |round| {
        let (script, program, signal) = kinds[round % kinds.len()];
        let tree = Tree::new().await;
        let agent = start(&tree, script, program).await;
        agent.new_session("/").await.expect("a session");
        let (end, took) = close(&agent).await;
        assert_eq!((end.signal(), end.success()), (signal, signal.is_none()), "{script}");
        tree.gone(Duration::from_secs(1)).await;
        let mut slowest = slowest.lock().expect("no panic");
        let kind = usize::from(end.signal().is_none());
        slowest[kind] = slowest[kind].max(took);
    });
    assert_eq!(closed.buffer_unordered(12).count().await, rounds);
    let [worst, best] = slowest.lock().expect("no panic").map(|took| took.as_millis());
    measured(format_args!(
        "{rounds} closed, the worst after {worst} ms; the well-behaved after {best} ms and never signalled; 0 zombies"
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_takes_no_time() {
    let tree = Tree::new().await;
    let agent = start(&tree, DEAF_BELOW, &[SCRIPTED, "--on-eof", "stay"]).await;
    agent.kill();
    tree.gone(Duration::from_secs(1)).await;
    assert!(matches!(agent.closed().await, Error::AgentExited(_)));
}

/// Also while it is being closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_cuts_the_ladder_short() {
    let tree = Tree::new().await;
    let agent = start(&tree, DEAF_BELOW, &[SCRIPTED, "--on-eof", "stay"]).await;
    let begun = Instant::now();
    let closing = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        agent.kill();
    };
    let (status, ()) = tokio::join!(agent.close(), closing);
    assert_eq!(status.and_then(|status| status.signal()), Some(9));
    // The ladder would have come to KILL after four seconds.
    assert!(begun.elapsed() < at_most(Duration::from_secs(4)));
    tree.gone(Duration::from_secs(1)).await;
}

/// A waiting caller may be cancelled; the graceful shutdown goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_that_nobody_waits_for_goes_on() {
    let tree = Tree::new().await;
    let agent = start(&tree, DEAF_BELOW, &[SCRIPTED, "--on-eof", "stay"]).await;
    for _ in 0..3 {
        assert!(tokio::time::timeout(Duration::from_millis(50), agent.close()).await.is_err());
    }
    tree.gone(LADDER).await;
    assert!(matches!(agent.closed().await, Error::AgentExited(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_handle_dropped() {
    let tree = Tree::new().await;
    let agent = start(&tree, WRAPPED, &[GUARDED, "many"]).await;
    let session = agent.new_session("/").await.expect("a session");
    let turn = session.prompt("say:3 await").await.expect("idle");
    let alive = tree.alive().await;
    drop(agent);
    drop(session);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(alive.is_alive(), "a turn is a handle too");
    drop(turn);
    alive.gone(LADDER).await;
}

/// The worst agent, and nobody who waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_handle_of_a_deaf_agent_dropped() {
    let tree = Tree::new().await;
    drop(start(&tree, DEAF_BELOW, &[SCRIPTED, "--on-eof", "stay"]).await);
    tree.gone(LADDER).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_start_given_up() {
    let tree = Tree::new().await;
    let command = tree.command(WRAPPED, &[SCRIPTED, "--at", "0", "--do", "hang"]);
    let starting = Client::new(()).spawn(command);
    assert!(tokio::time::timeout(Duration::from_millis(300), starting).await.is_err());
    tree.gone(LADDER).await;
}

/// The runtime that watches over the agent goes away: with a handle left, without one, and with
/// the handle dropped by the runtime itself. Nobody then waits for the ladder.
#[test]
fn the_runtime_dropped() {
    let watcher = tokio::runtime::Runtime::new().expect("a runtime");
    for flavor in ["one", "many", "background"] {
        for handle in ["kept", "dropped before", "inside"] {
            let tree = watcher.block_on(Tree::new());
            let runtime = match flavor {
                "one" => tokio::runtime::Builder::new_current_thread().enable_all().build(),
                _ => tokio::runtime::Runtime::new(),
            };
            let runtime = runtime.expect("a runtime");
            let program = [SCRIPTED, "--on-eof", "stay"];
            let agent = runtime.block_on(start(&tree, DEAF_BELOW, &program));
            let mut kept = None;
            match handle {
                "kept" => kept = Some(agent),
                "inside" => drop(runtime.spawn(async move {
                    let _agent = agent;
                    std::future::pending::<()>().await;
                })),
                _ => drop(agent),
            }
            if flavor == "background" {
                runtime.shutdown_background()
            } else {
                drop(runtime)
            }
            watcher.block_on(tree.gone(Duration::from_secs(1)));
            drop(kept);
        }
    }
}
