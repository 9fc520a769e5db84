//! A recorder as the tap of either SDK, in whole conversations.

#[cfg(target_os = "linux")]
mod full_disk;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_agent::{Agent, Prompt, Server, StopReason, Turn};
use duologue_client::Client;
use duologue_rpc::{Direction, Tap, TappedFrame};
use duologue_transcript::{Error, RecordEvent, Recorder, Side, Transcript};

use duologue_test_support::{Wire, in_time, over_every_wire};

over_every_wire!(
    the_recordings_of_both_sides_are_equal,
    a_recording_in_memory_is_the_one_of_a_file,
    a_full_queue_holds_the_conversation_back_and_loses_nothing,
);

/// Updates of a turn.
const UPDATES: usize = 2000;

struct Talker;

impl Agent for Talker {
    async fn prompt(&self, turn: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        let mut message = turn.message();
        for number in 0..UPDATES {
            message.push(format!("{number} \"quoted\"\n\u{1f600} ")).await?;
        }
        Ok(StopReason::EndTurn)
    }
}

/// Every line of a connection, with the side that wrote it.
struct Seen {
    ours: Side,
    lines: Mutex<Vec<(Side, Vec<u8>)>>,
}

impl Seen {
    fn by(ours: Side) -> Arc<Self> {
        Arc::new(Seen { ours, lines: Mutex::default() })
    }

    fn of(&self, side: Side) -> Vec<Vec<u8>> {
        let lines = self.lines.lock().expect("no panic");
        lines.iter().filter(|(from, _)| *from == side).map(|(_, line)| line.clone()).collect()
    }
}

impl Tap for Seen {
    fn frame(&self, frame: TappedFrame<'_>) {
        let from = match frame.direction {
            Direction::Outgoing => self.ours,
            Direction::Incoming => self.ours.other(),
        };
        self.lines.lock().expect("no panic").push((from, frame.bytes.to_vec()));
    }
}

/// One turn, seen by both taps.
async fn talk(wire: Wire, client_tap: Arc<dyn Tap>, agent_tap: Arc<dyn Tap>) {
    let (ours, theirs) = wire.pair();
    let serving = tokio::spawn(Server::new(Talker).tap(agent_tap).serve(theirs));
    let agent = Client::new(()).tap(client_tap).connect(ours).await.expect("an agent");
    let session = agent.new_session("/tmp").await.expect("a session");
    let mut turn = session.prompt("go").await.expect("a turn");
    turn.outcome().await.expect("an outcome");
    agent.close().await;
    serving.await.expect("no panic").expect("served");
}

fn recorded(transcript: &Transcript, side: Side) -> Vec<Vec<u8>> {
    let lines = transcript.records().iter().filter_map(|record| record.line());
    lines.filter(|line| line.from == side).map(|line| line.bytes().to_vec()).collect()
}

async fn the_recordings_of_both_sides_are_equal(wire: Wire) {
    for ours in [Side::Client, Side::Agent] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("talk.jsonl");
        let recorder = Recorder::create(&path).expect("a file");
        let seen = Seen::by(ours.other());
        match ours {
            Side::Client => talk(wire, recorder.tap(ours), seen.clone()).await,
            Side::Agent => talk(wire, seen.clone(), recorder.tap(ours)).await,
        }
        recorder.finish().await.expect("written");
        let transcript = Transcript::load(&path).expect("a transcript");
        for side in [Side::Client, Side::Agent] {
            assert!(recorded(&transcript, side) == seen.of(side), "{side:?}, recorded by {ours:?}");
        }
        assert!(recorded(&transcript, Side::Agent).len() > UPDATES);
        assert!(transcript.records().is_sorted_by_key(|record| record.at), "time does not go back");
    }
}

async fn a_full_queue_holds_the_conversation_back_and_loses_nothing(wire: Wire) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("slow");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
    let mut disk = std::fs::OpenOptions::new().read(true).write(true).open(&path).expect("a reader");
    let recorder = Recorder::builder().queue_bytes(16 * 1024).replace(&path).expect("a file");
    let seen = Seen::by(Side::Agent);
    let mut talking = tokio::spawn(talk(wire, recorder.tap(Side::Client), seen.clone()));
    let waited = tokio::time::timeout(Duration::from_millis(500), &mut talking).await;
    assert!(waited.is_err(), "nobody reads, so the conversation waits");

    let reading = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\"stderr\":\"the end\"}\n") {
            let mut piece = [0; 4096];
            let count = std::io::Read::read(&mut disk, &mut piece).expect("bytes");
            bytes.extend_from_slice(piece.get(..count).expect("a piece"));
        }
        Transcript::read(bytes.as_slice()).expect("a transcript")
    });
    in_time(talking).await.expect("no panic");
    recorder.stderr(b"the end");
    recorder.finish().await.expect("written");
    let transcript = in_time(reading).await.expect("no panic");
    for side in [Side::Client, Side::Agent] {
        assert!(recorded(&transcript, side) == seen.of(side), "{side:?}");
    }
}

async fn a_recording_in_memory_is_the_one_of_a_file(wire: Wire) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = Recorder::create(folder.path().join("talk.jsonl")).expect("a file");
    let memory =
        Recorder::builder().program(["agent", "--token", "abc123def456"]).in_memory().expect("memory");
    assert!(memory.transcript().await.expect("a transcript").records().is_empty());
    talk(wire, memory.tap(Side::Client), file.tap(Side::Agent)).await;
    let (memory, file) =
        (memory.transcript().await.expect("in memory"), file.transcript().await.expect("a file"));
    for side in [Side::Client, Side::Agent] {
        assert!(recorded(&memory, side) == recorded(&file, side), "{side:?}");
    }
    assert!(recorded(&memory, Side::Agent).len() > UPDATES);
    assert_eq!(memory.header().program, ["agent", "--token", "[secret]"]);
    assert_eq!(memory.redacted().render().to_string(), file.redacted().render().to_string());
}

#[tokio::test]
async fn a_recording_in_memory_ends_at_its_limit() {
    let limit = 4096;
    let recorder = Recorder::builder().memory_bytes(limit).in_memory().expect("the header fits");
    for _ in 0..200 {
        recorder.stderr(b"a line of thirty-two characters.");
        recorder.room().await;
    }
    let full = |error| matches!(error, Error::MemoryFull { limit: found } if found == limit);
    assert!(full(recorder.flush().await.expect_err("it is full")));
    let kept = recorder.transcript().await.expect("what fits");
    let (last, lines) = kept.records().split_last().expect("records");
    assert!(lines.len() > 30 && lines.iter().all(|line| matches!(line.event, RecordEvent::Stderr(_))));
    let lost = 200 - lines.len() as u64;
    assert_eq!(last.event, RecordEvent::Dropped { lines: lost, bytes: 32 * lost });
    assert!(last.at >= lines[lines.len() - 1].at);
    // Later lines are counted too.
    recorder.stderr(b"one more");
    let kept = recorder.transcript().await.expect("what fits");
    let event = &kept.records()[lines.len()].event;
    assert_eq!(*event, RecordEvent::Dropped { lines: lost + 1, bytes: 32 * lost + 8 });
    assert!(full(recorder.finish().await.expect_err("it is full")));
    let too_small = Recorder::builder().memory_bytes(10).in_memory().expect_err("no header");
    assert!(matches!(too_small, Error::MemoryFull { limit: 10 }));
}
