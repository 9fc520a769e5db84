//! The agent dies at every frame of a turn. Sent updates arrive, waiting calls fail soon with the
//! reason, and nothing of the agent's process group is left.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use duologue_client::{AgentExited, Client, Connection, Error, SessionUpdate};
use futures::StreamExt;
use tokio::sync::Mutex;

use super::trees::{DIRECT, PATIENCE, SCRIPTED, Tree, WRAPPED};
use duologue_test_support::{measured, runs};

/// Two answers, 57 updates, the answer to the prompt.
const FRAMES: usize = 60;
/// The scenario of R10 asks for one second; here four fall at once, and much else is going on.
const IN_TIME: Duration = Duration::from_secs(3);

/// The course of a conversation in which the agent dies.
struct Fall {
    exited: AgentExited,
    updates: usize,
    connection: Option<Connection>,
}

async fn conversation(tree: &Tree, script: &str, program: &[&str]) -> Fall {
    let kept = Arc::new(Mutex::new((None, 0)));
    let talk = async {
        let agent = Client::new(()).spawn(tree.command(script, program)).await?;
        kept.lock().await.0 = Some(agent.clone());
        let session = agent.new_session("/").await?;
        let mut turn = session.prompt("go").await?;
        while let Some(update) = turn.next().await {
            assert!(matches!(update?, SessionUpdate::AgentMessageChunk(_)));
            kept.lock().await.1 += 1;
        }
        turn.outcome().await?;
        // The turn was over before the agent fell: the connection has to notice by itself.
        Err::<(), _>(agent.closed().await)
    };
    let error = tokio::time::timeout(PATIENCE, talk).await.expect("this hangs").expect_err("it died");
    let Error::AgentExited(exited) = error else { panic!("{error:?}") };
    let (connection, updates) = std::mem::take(&mut *kept.lock().await);
    Fall { exited, updates, connection }
}

/// Returns the time since the agent announced its death.
fn since_the_fall(stderr: &str) -> Duration {
    let words: Vec<&str> = stderr.split_whitespace().collect();
    let at = words.windows(3).find(|window| window[0] == "at" && window[2] == "ns");
    let at: u64 = at.unwrap_or_else(|| panic!("no last words: {stderr}"))[1].parse().expect("a time");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    now.saturating_sub(Duration::from_nanos(at))
}

/// A number of turns, killed at all their frames in turn, or at some all along the way if they are few;
/// `status` is what the leader's end must look like.
async fn at_every_frame(script: &str, act: &str, status: (Option<i32>, Option<i32>)) {
    let turns = usize::try_from(runs(16)).expect("fits").max(2);
    let frame_of =
        |turn: usize| if turns > FRAMES { turn % (FRAMES + 1) } else { turn * FRAMES / (turns - 1) };
    let slowest = std::sync::Mutex::new(Duration::ZERO);
    let falls = futures::stream::iter(0..turns).map(frame_of).map(async |frame| {
        let tree = Tree::new().await;
        let (at, updates) = (frame.to_string(), (FRAMES - 3).to_string());
        let program = [SCRIPTED, "--updates", &updates, "--at", &at, "--do", act];
        let fall = conversation(&tree, script, &program).await;
        let took = since_the_fall(&fall.exited.stderr);
        assert!(took < IN_TIME, "frame {frame}: known only after {took:?}");
        let end = fall.exited.status.expect("a status");
        assert_eq!((end.code(), end.signal()), status, "frame {frame}: {}", fall.exited);
        assert!(fall.exited.stderr.contains(&format!("after frame {frame} ")), "{}", fall.exited.stderr);
        // Two answers come before the updates, one after them.
        assert_eq!(fall.updates, frame.saturating_sub(2).min(FRAMES - 3), "frame {frame}");
        tree.gone(IN_TIME).await;
        if let Some(agent) = fall.connection {
            for late in [agent.new_session("/").await.map(drop), Err(agent.closed().await)] {
                assert!(matches!(late, Err(Error::AgentExited(_))), "{late:?}");
            }
        }
        let mut slowest = slowest.lock().expect("no panic");
        *slowest = took.max(*slowest);
    });
    assert_eq!(falls.buffer_unordered(4).count().await, turns);
    let slowest = slowest.lock().expect("no panic").as_millis();
    measured(format_args!(
        "{turns} turns of {FRAMES} frames, the slowest known after {slowest} ms, 0 updates lost, 0 left"
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed() {
    at_every_frame(DIRECT, "kill", (None, Some(9))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_by_its_own_fault() {
    at_every_frame(DIRECT, "segv", (None, Some(11))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn left_by_itself() {
    at_every_frame(DIRECT, "exit:3", (Some(3), None)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_below_a_wrapper_with_a_helper() {
    at_every_frame(WRAPPED, "kill", (Some(128 + 9), None)).await;
}

/// The agent and the helper live on and hold all three pipes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_wrapper_killed_above_it() {
    at_every_frame(WRAPPED, "kill-parent", (None, Some(9))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_the_middle_of_a_frame() {
    for frame in [1_usize, 2, 3, 19, 20] {
        let tree = Tree::new().await;
        let at = frame.to_string();
        let fall = conversation(&tree, DIRECT, &[SCRIPTED, "--at", &at, "--do", "half"]).await;
        assert_eq!(fall.updates, frame.saturating_sub(3), "frame {frame}");
        assert_eq!(fall.exited.status.and_then(|status| status.signal()), Some(9));
        tree.gone(IN_TIME).await;
    }
}

/// A helper in a session of its own is out of reach, and holds the pipes: nobody may wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_helper_keeps_the_pipes_open() {
    for keep in ["sleep 5 & ", "setsid sleep 5 & "] {
        let tree = Tree::new().await;
        let script = format!("{keep} \"$@\"; exit $?");
        for at in ["0", "1", "2", "10"] {
            let fall = conversation(&tree, &script, &[SCRIPTED, "--at", at, "--do", "exit:3"]).await;
            let took = since_the_fall(&fall.exited.stderr);
            assert!(took < IN_TIME, "known only after {took:?}");
            assert_eq!(fall.exited.status.and_then(|status| status.code()), Some(3));
        }
    }
}

/// Out of reach again, and it never falls silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_helper_keeps_talking() {
    for chatter in ["yes", "sh -c 'while sleep 0.05; do echo tick; done'"] {
        let tree = Tree::new().await;
        let script = format!("setsid timeout 5 {chatter} & \"$@\"; exit $?");
        for at in ["2", "10"] {
            let fall = conversation(&tree, &script, &[SCRIPTED, "--at", at, "--do", "exit:3"]).await;
            let took = since_the_fall(&fall.exited.stderr);
            assert!(took < IN_TIME, "{chatter}: known only after {took:?}");
            assert_eq!(fall.exited.status.and_then(|status| status.code()), Some(3));
        }
    }
}

/// All waiting calls fail alike, and so do all later ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_waiting_calls_get_the_same_error() {
    let tree = Tree::new().await;
    // The helper makes the moments between the first sign of the end and the last longer.
    let script = "setsid sleep 3 & \"$@\"; exit $?";
    let program = [SCRIPTED, "--at", "12", "--do", "exit:3"];
    let agent = Client::new(()).spawn(tree.command(script, &program)).await.expect("starts");
    let session = agent.new_session("/").await.expect("a session");
    let asked: Vec<_> = (0..100).map(|_| agent.peer().call::<_, ()>("ask", &())).collect();
    let turn = session.prompt("go").await.expect("idle");
    let answers = async {
        for answer in futures::future::join_all(asked).await {
            let error = Error::from(answer.expect_err("it died"));
            assert!(matches!(error, Error::AgentExited(_)), "{error:?}");
        }
    };
    let outcome = async {
        let error = turn.finish().await.expect_err("it died");
        assert!(matches!(error, Error::AgentExited(_)), "{error:?}");
    };
    // Nobody waits for the one before: each meets another moment of the end.
    let mut later = futures::stream::FuturesUnordered::new();
    let later = async {
        for _ in 0..150 {
            later.push(agent.peer().call::<_, ()>("ask", &()));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        while let Some(answer) = later.next().await {
            let error = Error::from(answer.expect_err("it died"));
            assert!(matches!(error, Error::AgentExited(_)), "{error:?}");
        }
    };
    tokio::time::timeout(PATIENCE, futures::future::join3(answers, outcome, later))
        .await
        .expect("this hangs");
}
