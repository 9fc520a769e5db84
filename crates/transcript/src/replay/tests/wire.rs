//! Tests of the bytes that a replay reads and writes.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use duologue_rpc::{Limits, Transport};
use duologue_test_support::in_time;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::*;
use crate::error::Error;
use crate::record::Recorder;
use crate::replay::ReplayReport;

const A: &str = r#"{"id":1,"method":"a"}"#;
const ANSWER: &str = r#"{"id":1,"result":{}}"#;

/// Serves a recording to a client that writes `input` and closes. Returns the output and the report.
async fn serve(replay: Replay, input: &str) -> (String, ReplayReport) {
    let (client, agent) = Transport::memory_with_capacity(16);
    let (mut reader, mut writer) = client.into_split();
    let input = frame(input).into_bytes();
    let client = async move {
        writer.write_all(&input).await.expect("a reader");
        writer.shutdown().await.expect("an end");
        let mut output = String::new();
        reader.read_to_string(&mut output).await.expect("text");
        output
    };
    let (output, report) = in_time(async { tokio::join!(client, replay.serve(agent)) }).await;
    (output, report.expect("a report"))
}

fn events(report: &ReplayReport) -> Vec<RecordEvent> {
    report.live.records().iter().map(|record| record.event.clone()).collect()
}

/// Lines longer than the pipe are written whole. The last line of the input needs no end.
#[tokio::test]
async fn all_bytes_are_read_and_written() {
    let script = format!("> {A}\n< {ANSWER}\n< .\nx0");
    let mut header = Header::new("by hand");
    header.program = vec!["agent".into()];
    let transcript = Transcript::new(header, recording(&script).records().to_vec());
    let recorder = Recorder::in_memory().expect("memory");
    let (output, report) = serve(Replay::new(transcript).record(recorder.clone()), A).await;
    assert_eq!(output, format!("{}\n", frame(ANSWER)));
    let live = events(&report);
    let ends = |side| live.iter().filter(|event| **event == RecordEvent::Eof(side)).count();
    assert_eq!((live.len(), ends(Side::Client), ends(Side::Agent)), (4, 1, 1), "{live:?}");
    assert_eq!(report.live.header().program, ["agent"]);
    let recorded = recorder.transcript().await.expect("a transcript");
    let recorded: Vec<_> = recorded.records().iter().map(|record| record.event.clone()).collect();
    assert_eq!(recorded, live);
}

/// Many actions without any input or output are carried out without waiting for more.
#[tokio::test]
async fn the_log_of_an_agent_comes_before_any_input() {
    const COUNT: usize = 1000;
    let (client, agent) = Transport::memory();
    let lines = Arc::new(Mutex::new(0));
    let counted = lines.clone();
    let replay = Replay::new(recording(&"! a line\n".repeat(COUNT)))
        .on_stderr(move |_| *counted.lock().expect("no panic") += 1);
    let serving = tokio::spawn(replay.serve(agent));
    in_time(async {
        while *lines.lock().expect("no panic") < COUNT {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(client);
    in_time(serving).await.expect("no panic").expect("a report");
}

/// A pause of the recording ends without any input.
#[tokio::test]
async fn a_line_comes_after_its_pause() {
    let (client, agent) = Transport::memory();
    let replay = Replay::new(recording(&format!("> {A}\n< {ANSWER}"))).timing(Timing::Scaled(20.0));
    let serving = tokio::spawn(replay.serve(agent));
    let (mut reader, mut writer) = client.into_split();
    writer.write_all(format!("{}\n", frame(A)).as_bytes()).await.expect("a reader");
    let mut answer = vec![0; frame(ANSWER).len()];
    in_time(reader.read_exact(&mut answer)).await.expect("an answer");
    drop((reader, writer));
    in_time(serving).await.expect("no panic").expect("a report");
}

/// An agent sees the end of its input before the replay ends, and may send a last line.
#[tokio::test]
async fn an_agent_sees_the_end_of_its_client() {
    let (client, agent) = Transport::memory();
    let (mut reader, mut writer) = agent.into_split();
    let agent = async move {
        let mut input = String::new();
        writer.write_all(format!("{}\n", frame(ANSWER)).as_bytes()).await.expect("a reader");
        reader.read_to_string(&mut input).await.expect("text");
        writer.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"_bye\"}\n").await.expect("a reader");
        input
    };
    let replay = Replay::new(recording(&format!("> {A}\n< {ANSWER}")));
    let (input, report) = in_time(async { tokio::join!(agent, replay.drive(client)) }).await;
    assert_eq!(input, format!("{}\n", frame(A)));
    let report = report.expect("a report");
    assert!(report.live.entries().iter().any(|entry| entry.method() == Some("_bye")), "{report:?}");
}

/// A line over the limit of messages ends the conversation like the end of the input.
#[tokio::test]
async fn a_line_that_is_too_long_is_an_end() {
    let (client, agent) = Transport::memory();
    let serving = tokio::spawn(Replay::new(recording(&format!("> {A}\n< {ANSWER}"))).serve(agent));
    let (_reader, mut writer) = client.into_split();
    let piece = vec![b'x'; 1 << 20];
    let mut left = Limits::default().frame_bytes + 2;
    in_time(async {
        // The replay stops to read once the line is too long.
        while left > 0 && writer.write_all(piece.get(..left.min(piece.len())).expect("bytes")).await.is_ok() {
            left = left.saturating_sub(piece.len());
        }
    })
    .await;
    let report = in_time(serving).await.expect("no panic").expect("a report");
    assert_eq!(events(&report), [RecordEvent::Eof(Side::Client)]);
}

/// A stream that fails in one way, or takes no bytes.
struct Broken(Option<io::ErrorKind>);

impl AsyncRead for Broken {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.map_or(Ok(()), |kind| Err(kind.into())))
    }
}

impl AsyncWrite for Broken {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.0.map_or(Ok(0), |kind| Err(kind.into())))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A broken pipe is the end of the input. Any misuse of the stream is an error.
#[tokio::test]
async fn a_broken_input_is_an_end() {
    for (kind, is_end) in [(io::ErrorKind::BrokenPipe, true), (io::ErrorKind::InvalidInput, false)] {
        let transport = Transport::new(Broken(Some(kind)), tokio::io::sink());
        let played = in_time(Replay::new(recording("")).serve(transport)).await;
        assert_eq!(played.is_ok(), is_end, "{kind}");
        assert!(is_end || matches!(played, Err(Error::Io(_))));
    }
}

/// A client that reads nothing any more may have sent something before. Lines that it does not get are not recorded.
#[tokio::test]
async fn lines_without_a_reader_are_not_recorded() {
    let script = format!("> {A}\n< {ANSWER}\n> {}\n< {}", A.replace('1', "2"), ANSWER.replace('1', "2"));
    for kind in [None, Some(io::ErrorKind::BrokenPipe)] {
        let (input, mut client) = tokio::io::duplex(1000);
        let serving =
            tokio::spawn(Replay::new(recording(&script)).serve(Transport::new(input, Broken(kind))));
        client.write_all(format!("{}\n", frame(A)).as_bytes()).await.expect("a reader");
        // The first response is written by now.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        client.write_all(format!("{}\n", frame(&A.replace('1', "2"))).as_bytes()).await.expect("a reader");
        drop(client);
        let report = in_time(serving).await.expect("no panic").expect("a report");
        assert_eq!(report.differences, []);
        let from_agent = report.live.entries().iter().filter(|entry| entry.from() == Side::Agent).count();
        assert_eq!(from_agent, 1, "{kind:?}");
    }
}

/// The differences of ignored paths are in no diff.
#[tokio::test]
async fn ignored_paths_are_in_no_diff() {
    let script = format!("> {A}\n< {}", ANSWER.replace("{}", r#"{"n":1}"#));
    for (path, is_equal) in [("result.n", true), ("result.m", false)] {
        let mut ignored = crate::IgnoredPaths::default();
        ignored.add(path).expect("a path");
        let replay = Replay::new(recording(&script)).ignoring(ignored);
        assert_eq!(replay.unmatched().is_empty(), is_equal);
        let (_, mut report) = serve(replay, A).await;
        report.recording = recording(&script.replace(r#""n":1"#, r#""n":2"#));
        assert_eq!(report.diff().is_none(), is_equal, "{path}");
    }
}
