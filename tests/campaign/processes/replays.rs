//! Agents that are processes, driven by what was recorded with them.

use std::time::Duration;

use duologue_client::{AgentProcess, Client, Command};
use duologue_rpc::{Direction, Tap, TappedFrame, Transport};
use duologue_transcript::{
    Header, Record, RecordEvent, RecordedLine, Replay, ReplayReport, Side, Transcript,
};
use std::sync::{Arc, Mutex};

use duologue_test_support::measured;

#[derive(Default)]
struct Ears(Mutex<Vec<Record>>);

impl Tap for Ears {
    fn frame(&self, frame: TappedFrame<'_>) {
        let from = if frame.direction == Direction::Outgoing { Side::Client } else { Side::Agent };
        let mut records = self.0.lock().expect("nobody panics");
        let at = Duration::from_micros(records.len() as u64);
        records.push(Record::new(at, RecordEvent::Line(RecordedLine::new(from, frame.bytes))));
    }
}

fn scripted(args: &[&str]) -> Command {
    Command::new(env!("CARGO_BIN_EXE_scripted-agent")).args(args)
}

async fn recorded(args: &[&str]) -> Transcript {
    let ears = Arc::new(Ears::default());
    let agent = Client::new(()).tap(ears.clone()).spawn(scripted(args)).await.expect("an agent");
    let session = agent.new_session("/tmp").await.expect("a session");
    session.prompt("go").await.expect("a turn").finish().await.expect("an answer");
    agent.close().await;
    let records = std::mem::take(&mut *ears.0.lock().expect("nobody panics"));
    Transcript::new(Header::new("test"), records)
}

async fn driven(recording: Transcript, args: &[&str]) -> ReplayReport {
    let (process, pipes) = AgentProcess::start(scripted(args)).expect("an agent");
    let drain = tokio::spawn(async move {
        let mut stderr = pipes.stderr;
        tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await
    });
    let replay = Replay::new(recording).patience(Duration::from_secs(20));
    let report = replay.drive(Transport::new(pipes.stdout, pipes.stdin)).await.expect("a report");
    process.end().await;
    drain.await.expect("no panic").expect("the end of stderr");
    report
}

#[tokio::test]
async fn the_same_agent_does_the_same() {
    let recording = recorded(&["--noise", "3"]).await;
    let report = driven(recording, &["--noise", "3"]).await;
    assert_eq!(report.differences, []);
    // Its version is the number of its process.
    let diff = report.diff().expect("a difference");
    let changed: Vec<&str> = diff.lines().skip(2).filter(|line| line.starts_with(['+', '-'])).collect();
    assert!(changed.iter().all(|line| line.contains("scripted")), "{diff}");
}

#[tokio::test]
async fn an_agent_that_says_less_is_found_out() {
    let recording = recorded(&[]).await;
    let report = driven(recording, &["--updates", "3"]).await;
    assert_eq!(report.differences, []);
    assert!(report.diff().is_some());
}

#[tokio::test]
async fn an_agent_that_dies_is_found_out() {
    let recording = recorded(&[]).await;
    let report = driven(recording, &["--at", "5", "--do", "exit:3"]).await;
    let differences: Vec<String> = report.differences.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(differences.join("\n"), @"missing: the answer of line 24 to the session/prompt in s of line 6");
}

#[tokio::test]
async fn the_recording_of_a_process_is_played_to_a_client_of_its_own() {
    let recording = recorded(&["--noise", "3"]).await;
    let (ours, theirs) = Transport::memory();
    let replay = tokio::spawn(Replay::new(recording.clone()).serve(theirs));
    let ears = Arc::new(Ears::default());
    let agent = Client::new(()).tap(ears.clone()).connect(ours).await.expect("an agent");
    let session = agent.new_session("/tmp").await.expect("a session");
    session.prompt("go").await.expect("a turn").finish().await.expect("an answer");
    agent.close().await;
    let report = replay.await.expect("no panic").expect("a report");
    assert_eq!(report.differences, []);
    let agent_said = |records: &[Record]| -> Vec<RecordedLine> {
        records.iter().filter_map(Record::line).filter(|line| line.from == Side::Agent).cloned().collect()
    };
    // Byte for byte: the client counts its requests as the recorded one did.
    let (live, recorded) =
        (agent_said(&ears.0.lock().expect("nobody panics")), agent_said(recording.records()));
    assert_eq!(live, recorded);
    let bytes: usize = live.iter().map(|line| line.bytes().len() + 1).sum();
    measured(format_args!("{} lines replayed, {bytes} bytes equal", live.len()));
}
