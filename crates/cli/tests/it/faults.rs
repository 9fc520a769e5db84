//! `duologue mock --faults`: each fault does what its line in the list says, and our own client comes through it or
//! says what happened.
#![cfg(target_os = "linux")]

use std::os::unix::process::ExitStatusExt as _;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use duologue_client::rpc::{Closed, Direction, Error as RpcError, Tap, TappedFrame};
use duologue_client::schema::{
    ContentBlock, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    SessionUpdate, StopReason,
};
use duologue_client::{AgentExited, Client, Command, Connection, Error, Limits, Result, Session, Turn};
use tokio::sync::Barrier;

/// The text that the mock sends for the prompt `refusal`: four updates, then the answer. Earlier frames are
/// the answers to `initialize` and `session/new` and an update with the commands, so the answer is frame 8.
const SAID: &str = "I would rather not.";
const LAST: usize = 8;
/// More than anything here takes, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn agent(faults: &str) -> Command {
    let faults = ["mock", "--pace", "0", "--seed", "1", "--faults", faults];
    Command::new(env!("CARGO_BIN_EXE_duologue")).args(faults)
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("this hangs")
}

async fn start(faults: &str) -> Result<Connection> {
    in_time(Client::new(()).keep_conversations().spawn(agent(faults))).await
}

async fn session(faults: &str) -> (Connection, Session) {
    let agent = start(faults).await.unwrap_or_else(|error| panic!("{faults}: {error}"));
    let session = in_time(agent.new_session("/")).await.unwrap_or_else(|error| panic!("{faults}: {error}"));
    (agent, session)
}

async fn turn(faults: &str) -> (Connection, Session, Turn) {
    let (agent, session) = session(faults).await;
    let turn = session.prompt("refusal").await.unwrap_or_else(|error| panic!("{faults}: {error}"));
    (agent, session, turn)
}

/// Takes a turn to its end.
async fn texts(turn: &mut Turn) -> (Vec<String>, Result<StopReason>) {
    let mut texts = Vec::new();
    while let Some(Ok(update)) = in_time(turn.next()).await {
        texts.extend(text(&update));
    }
    (texts, in_time(turn.outcome()).await.map(|answer| answer.stop_reason))
}

fn text(update: &SessionUpdate) -> Option<String> {
    match update {
        SessionUpdate::AgentMessageChunk(chunk) => match &chunk.content {
            ContentBlock::Text(text) => Some(text.text.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// Runs the mock agent with these arguments and an empty input.
fn alone(faults: &[&str]) -> Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_duologue"));
    command.arg("mock").args(faults).stdin(std::process::Stdio::null()).output().expect("it starts")
}

fn listed() -> Vec<String> {
    let list = alone(&["--faults", "list"]);
    assert!(list.status.success());
    let list = String::from_utf8(list.stdout).expect("text");
    let (table, _) = list.split_once("\n\n").expect("the table and a note");
    let name = |line: &str| line.split(['[', '=', ' ']).next().unwrap_or_default().to_owned();
    table.lines().map(name).collect()
}

#[test]
fn every_fault_of_the_list_is_in_a_test() {
    let ours = include_str!("faults.rs");
    for fault in listed() {
        let is_used = |before: &str, after: &str| ours.contains(&format!("{before}{fault}{after}"));
        let used =
            ["\"", ","].iter().any(|before| ["\"", ",", "="].iter().any(|after| is_used(before, after)));
        assert!(used, "{fault} has no test");
    }
}

#[test]
fn unknown_faults_are_usage_errors() {
    for faults in ["quick", "hang=1,crash=2", "exit=x@1", "slow,slow"] {
        let output = alone(&["--faults", faults]);
        assert_eq!(output.status.code(), Some(2), "{faults}");
        assert!(output.stdout.is_empty(), "{faults}");
    }
}

/// A test may give a seed always.
#[test]
fn a_seed_without_faults_changes_nothing() {
    let output = alone(&["--seed", "1"]);
    assert_eq!((output.status.code(), output.stdout), (Some(0), Vec::new()));
}

#[test]
fn buffered_records_are_written_at_the_end() {
    let noise = alone(&["--faults", "noise"]).stdout;
    assert!(!noise.is_empty());
    assert_eq!(alone(&["--faults", "noise,coalesce"]).stdout, noise);
}

#[test]
fn equal_seeds_make_equal_noise() {
    let run = |seed: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_duologue"));
        command.args(["mock", "--faults", "noise,stray", "--seed", seed]).stdin(std::process::Stdio::piped());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
        let mut child = command.spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        for id in 0..20 {
            let line = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"initialize\",\"params\":{{\"protocolVersion\":1}}}}\n"
            );
            std::io::Write::write_all(&mut stdin, line.as_bytes()).expect("it reads");
        }
        drop(stdin);
        child.wait_with_output().expect("it ends").stdout
    };
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}

/// Deviations that a client has to tolerate: the turn has the same text and the same end with each of them.
#[tokio::test]
async fn bytes_in_any_shape_make_the_same_turn() {
    for faults in [
        "slow=5ms",
        "fragment",
        "fragment=1",
        "coalesce",
        "noise",
        "bom",
        "crlf",
        "bom,crlf,noise,fragment=2,slow=1ms",
        "unknown",
        "stray",
        "twice",
        "early",
        "strangers",
        "stderr=1MiB",
        "stderr=1MiB@4",
        "straggler",
        "wrapper",
        "wrapper=setsid",
        "noise,unknown,stray,twice,early,strangers=10,deep,wrapper,crlf,coalesce",
    ] {
        let (agent, _session, mut turn) = turn(faults).await;
        let (said, reason) = texts(&mut turn).await;
        assert_eq!(said.concat(), SAID, "{faults}");
        assert_eq!(reason.expect(faults), StopReason::Refusal, "{faults}");
        assert_eq!(in_time(agent.close()).await.and_then(|status| status.code()), Some(0), "{faults}");
        let stats = agent.peer().stats();
        assert_eq!(
            stats.noise > 0,
            faults.contains("noise") || faults.contains("deep"),
            "{faults}: {stats:?}"
        );
        let strays = ["stray", "twice"].iter().any(|fault| faults.split(',').any(|given| given == *fault));
        assert_eq!(stats.stray_responses > 0, strays, "{faults}: {stats:?}");
    }
}

#[tokio::test]
async fn slow_is_slow() {
    let begun = Instant::now();
    let (agent, _session, mut turn) = turn("slow").await;
    assert_eq!(texts(&mut turn).await.0.concat(), SAID);
    // Eight frames.
    assert!(begun.elapsed() >= Duration::from_millis(400), "{:?}", begun.elapsed());
    agent.close().await;
}

#[tokio::test]
async fn half_a_pair_becomes_a_replacement_character() {
    let (agent, _session, mut turn) = turn("surrogates").await;
    let (said, reason) = texts(&mut turn).await;
    assert_eq!(said.concat(), "I \u{fffd}would \u{fffd}rather \u{fffd}not.\u{fffd}");
    assert_eq!(reason.unwrap(), StopReason::Refusal);
    assert_eq!(agent.peer().stats().repaired, 4);
    agent.close().await;
}

#[tokio::test]
async fn a_flood_arrives_whole() {
    let (agent, _session, mut turn) = turn("flood=20000x100").await;
    let (said, reason) = texts(&mut turn).await;
    assert_eq!(said.len(), 20_000 + 4);
    assert!(said.iter().skip(4).all(|text| text.len() == 100));
    assert_eq!(reason.unwrap(), StopReason::Refusal);
    agent.close().await;
}

/// Nobody takes it: the turn ends so, and the connection goes on.
#[tokio::test]
async fn a_flood_that_nobody_takes_is_stalled() {
    let mut limits = Limits::default();
    (limits.queue_bytes, limits.queue_bytes_hard) = (1 << 20, 2 << 20);
    limits.stall_timeout = Duration::from_millis(300);
    let client = Client::new(()).limits(limits);
    let agent = in_time(client.spawn(agent("flood=8000x1KiB"))).await.unwrap();
    let (first, second) = (agent.new_session("/").await.unwrap(), agent.new_session("/").await.unwrap());
    let mut turn = first.prompt("refusal").await.unwrap();
    // The reader pauses until the turn has stalled.
    in_time(async {
        for is_paused in [true, false] {
            while agent.peer().is_paused() != is_paused {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    })
    .await;
    let (_, reason) = texts(&mut turn).await;
    let error = reason.unwrap_err();
    assert!(matches!(error, Error::Connection(RpcError::Stalled { .. })), "{error}");
    assert!(error.to_string().contains("Limits::queue_bytes"), "{error}");
    let mut turn = in_time(second.prompt("refusal")).await.unwrap();
    assert_eq!(texts(&mut turn).await.0.len(), 8_000 + 4);
    agent.close().await;
}

#[tokio::test]
async fn a_line_may_have_as_many_bytes_as_the_limit() {
    let (agent, session, mut first) = turn("big").await;
    let (said, reason) = texts(&mut first).await;
    assert_eq!(reason.unwrap(), StopReason::Refusal);
    assert!(said.last().is_some_and(|text| text.len() > (16 << 20) - 200));
    let mut second = session.prompt("refusal").await.unwrap();
    assert_eq!(texts(&mut second).await.0.len(), 5);
    agent.close().await;

    for faults in ["big=16_777_217", "endless=20MiB"] {
        let (agent, _session, mut turn) = turn(faults).await;
        let (said, reason) = texts(&mut turn).await;
        assert_eq!(said.concat(), SAID, "{faults}: what came before it");
        let error = reason.unwrap_err();
        let too_large = RpcError::Closed(Closed::FrameTooLarge { limit: 16 << 20 }).to_string();
        assert_eq!(error.to_string(), too_large, "{faults}");
        assert!(too_large.contains("Limits::frame_bytes"), "{too_large}");
        in_time(agent.close()).await;
    }
}

#[tokio::test]
async fn a_line_that_is_too_deep_costs_that_line() {
    for (faults, deep) in [("deep=100", 1), ("deep=128", 0), ("deep=1000000", 0)] {
        let (agent, _session, mut turn) = turn(faults).await;
        let (said, reason) = texts(&mut turn).await;
        assert_eq!((said.len(), reason.unwrap()), (4 + deep, StopReason::Refusal), "{faults}");
        assert_eq!(agent.peer().stats().noise, 1 - deep as u64, "{faults}");
        agent.close().await;
    }
}

#[tokio::test]
async fn updates_before_the_session_and_after_the_turn_are_kept_in_order() {
    let (agent, session) = session("early=3,late=3").await;
    let mut updates = session.updates();
    let mut turn = session.prompt("refusal").await.unwrap();
    assert_eq!(texts(&mut turn).await.0.concat(), SAID);
    let mut between = Vec::new();
    while between.len() < 6 {
        between.extend(text(&in_time(updates.next()).await.expect("more").expect("an update")));
    }
    assert_eq!(between, ["early 1 ", "early 2 ", "early 3 ", "late 1 ", "late 2 ", "late 3 "]);
    agent.close().await;
}

#[tokio::test]
async fn updates_for_sessions_nobody_opened_are_dropped_and_counted() {
    let (agent, _session, mut turn) = turn("strangers=5000").await;
    assert_eq!(texts(&mut turn).await.0.concat(), SAID);
    assert_eq!(agent.dropped_updates(), 5_000);
    agent.close().await;
}

/// Counts each error that the client sends as a task that waits at a barrier.
struct SentErrors(Arc<Barrier>);

impl Tap for SentErrors {
    fn frame(&self, frame: TappedFrame<'_>) {
        let is_error = || frame.bytes.windows(7).any(|bytes| bytes == b"\"error\"");
        if frame.direction == Direction::Outgoing && is_error() {
            let barrier = self.0.clone();
            tokio::spawn(async move { barrier.wait().await });
        }
    }
}

/// A host that answers when this many questions are open, or questions and errors that it has sent. Returns the number
/// of questions.
async fn asked(faults: &str, together: usize) -> (usize, StopReason) {
    let (count, barrier) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(together)));
    let (counter, errors) = (count.clone(), SentErrors(barrier.clone()));
    let client = Client::new(()).tap(Arc::new(errors)).on(move |_, _: RequestPermissionRequest| {
        let (count, barrier) = (count.clone(), barrier.clone());
        async move {
            count.fetch_add(1, SeqCst);
            barrier.wait().await;
            Ok(RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled))
        }
    });
    let agent = in_time(client.spawn(agent(faults))).await.unwrap();
    let session = agent.new_session("/").await.unwrap();
    let mut turn = session.prompt("refusal").await.unwrap();
    let (said, reason) = texts(&mut turn).await;
    assert_eq!(said.concat(), SAID);
    agent.close().await;
    (counter.load(SeqCst), reason.unwrap())
}

#[tokio::test]
async fn permissions_are_all_requested_at_once_and_all_answered() {
    assert_eq!(asked("permissions=200", 200).await, (200, StopReason::Refusal));
}

/// The second request gets an error while the first is open, so the user sees only one question.
#[tokio::test]
async fn of_two_requests_with_one_id_the_first_counts() {
    assert_eq!(asked("same-id", 2).await, (1, StopReason::Refusal));
}

#[tokio::test]
async fn a_load_without_end_leaves_the_others_alone_and_can_be_dropped() {
    let (agent, session) = session("endless-load").await;
    let mut replay = agent.load_session("session-old-1", "/").unwrap();
    let mut replayed = 0;
    while replayed < 100 {
        replayed += text(&in_time(replay.next()).await.expect("more").expect("an update")).map_or(0, |_| 1);
    }
    let mut turn = session.prompt("refusal").await.unwrap();
    assert_eq!(texts(&mut turn).await.0.concat(), SAID);
    drop(replay);
    let mut turn = session.prompt("refusal").await.unwrap();
    assert_eq!(texts(&mut turn).await.0.concat(), SAID);
    in_time(agent.close()).await;
}

/// Runs a turn that the agent does not survive. Returns its exit and the texts that it sent before.
async fn end(faults: &str) -> (AgentExited, Vec<String>) {
    let (agent, _session, mut turn) = turn(faults).await;
    let (said, reason) = texts(&mut turn).await;
    let Err(Error::AgentExited(exited)) = reason else { panic!("{faults}: {reason:?}") };
    let again = in_time(agent.new_session("/")).await.expect_err("it is gone");
    assert!(matches!(again, Error::AgentExited(_)), "{faults}: {again}");
    (exited, said)
}

#[tokio::test]
async fn an_agent_that_dies_says_how() {
    for (name, number) in [("KILL", 9), ("SEGV", 11), ("ABRT", 6), ("TERM", 15)] {
        let (exited, said) = end(&format!("crash={name}@6")).await;
        assert_eq!(exited.status.and_then(|status| status.signal()), Some(number), "{exited}");
        assert!(
            exited.stderr.ends_with(&format!("mock: dying by {name} after frame 6, as asked\n")),
            "{exited}"
        );
        assert_eq!(said.concat(), "I would rather ", "all it said before");
    }
    let (exited, said) = end("crash=4").await;
    assert_eq!((exited.status.and_then(|status| status.signal()), said.len()), (Some(9), 1));
    let (exited, said) = end("exit=3@5").await;
    assert_eq!((exited.status.and_then(|status| status.code()), said.len()), (Some(3), 2));
    let (exited, said) = end("torn=7").await;
    assert_eq!((exited.status.and_then(|status| status.code()), said.len()), (Some(1), 3));
    // The error contains the last 64 KiB that the agent wrote to stderr.
    let (exited, _) = end("stderr=1MiB@4,exit=5").await;
    assert!((60 << 10..=64 << 10).contains(&exited.stderr.len()), "{}", exited.stderr.len());
    assert!(exited.stderr.ends_with("mock: ending with code 1 after frame 5, as asked\n"), "{exited}");
}

/// A child of the agent's keeps the pipe open, and the launcher between us and it passes its code on.
#[tokio::test]
async fn a_process_left_behind_delays_nothing() {
    for faults in ["straggler,exit=5@6", "wrapper,exit=5@6", "wrapper,straggler,exit=5@6"] {
        let (exited, said) = end(faults).await;
        assert_eq!(exited.status.and_then(|status| status.code()), Some(5), "{faults}");
        assert_eq!(said.len(), 3, "{faults}");
    }
}

#[tokio::test]
async fn an_agent_that_does_not_start_says_why() {
    let error = start("noise,exit=3@0").await.expect_err("it ends");
    let Error::AgentExited(exited) = error else { panic!("{error:?}") };
    assert_eq!(exited.status.and_then(|status| status.code()), Some(3));
    assert!(
        exited.noise.iter().any(|line| line.contains("Welcome to the mock agent!")),
        "{:?}",
        exited.noise
    );
    assert!(exited.noise.iter().all(|line| !line.contains('\u{1b}')), "{:?}", exited.noise);
    assert!(exited.to_string().contains("ending with code 3 after frame 0"), "{exited}");

    let hung = async |faults: &str| {
        let client = Client::new(()).start_timeout(Duration::from_secs(3));
        let error = in_time(client.spawn(agent(&format!("noise,{faults}")))).await.expect_err("it hangs");
        let Error::StartTimeout { stderr, noise, .. } = error else { panic!("{error:?}") };
        assert!(stderr.contains(faults) && !noise.is_empty(), "{faults}: {stderr} {noise:?}");
    };
    tokio::join!(hung("hang=0"), hung("deaf=0"));
    let error = start("close-stdout=0").await.expect_err("nothing can come");
    assert!(matches!(error, Error::Connection(RpcError::Closed(_)) | Error::AgentExited(_)), "{error:?}");
}

#[tokio::test]
async fn an_agent_that_hangs_holds_its_turn_and_nothing_else() {
    let hang = async |faults: &str| {
        let (agent, _session, mut turn) = turn(faults).await;
        let nothing = Duration::from_millis(500);
        assert!(tokio::time::timeout(nothing, turn.outcome()).await.is_err(), "{faults}");
        assert!(tokio::time::timeout(nothing, agent.new_session("/")).await.is_err(), "{faults}");
        let status = in_time(agent.close()).await;
        assert_eq!(status.and_then(|status| status.signal()), Some(15), "{faults}: TERM ends it");
    };
    tokio::join!(hang("hang=5"), hang("deaf=2"));
}

#[tokio::test]
async fn an_agent_that_closes_its_stdout_is_ended() {
    let (agent, _session, mut turn) = turn("close-stdout=5").await;
    let (said, reason) = texts(&mut turn).await;
    assert_eq!(said.len(), 2);
    let error = reason.expect_err("nothing can come");
    assert!(matches!(error, Error::Connection(RpcError::Closed(_)) | Error::AgentExited(_)), "{error:?}");
    assert_eq!(in_time(agent.close()).await.and_then(|status| status.code()), Some(0));
}

#[tokio::test]
async fn an_agent_that_will_not_leave_is_made_to() {
    let end = async |faults: &str, signal: i32| {
        let (agent, _session, mut turn) = turn(faults).await;
        assert_eq!(texts(&mut turn).await.0.concat(), SAID);
        let status = in_time(agent.close()).await;
        assert_eq!(status.and_then(|status| status.signal()), Some(signal), "{faults}");
    };
    tokio::join!(
        end("ignore-eof", 15),
        end("ignore-eof,ignore-term", 9),
        end("ignore-eof,ignore-term,wrapper", 15)
    );
}

#[test]
fn the_response_to_the_prompt_is_the_listed_frame() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (agent, _session, mut turn) = turn(&format!("crash={LAST}")).await;
        let (said, reason) = texts(&mut turn).await;
        assert_eq!((said.len(), reason.unwrap()), (4, StopReason::Refusal), "the answer was out");
        assert!(matches!(in_time(agent.closed()).await, Error::AgentExited(_)));
    });
}
