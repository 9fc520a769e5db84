//! Recordings of streams: the directions of a proxy, stderr, and the lines of a tap.

use std::io::{self, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll};

use duologue_rpc::{Incoming, Limits, PeerBuilder, Responder, Service, Transport};
use duologue_test_support::in_time;
use duologue_transcript::{LineEnd, RecordEvent, Recorder, Side, Transcript, forward, proxy};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufWriter, ReadBuf};

async fn events(recorder: &Recorder) -> Vec<RecordEvent> {
    let transcript = in_time(recorder.transcript()).await.expect("a transcript");
    transcript.records().iter().map(|record| record.event.clone()).collect()
}

fn lines(transcript: &Transcript) -> Vec<String> {
    let lines = transcript.records().iter().filter_map(|record| record.line());
    lines.map(|line| String::from_utf8_lossy(line.bytes()).into_owned()).collect()
}

/// A stream of reads. Its last error is repeated.
struct Reads(Vec<Result<&'static [u8], io::ErrorKind>>);

impl AsyncRead for Reads {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = if self.0.len() > 1 { self.0.remove(0) } else { self.0[0] };
        Poll::Ready(read.map(|bytes| buffer.put_slice(bytes)).map_err(Into::into))
    }
}

/// A stream that takes nothing.
struct Closed;

impl AsyncWrite for Closed {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// An input that fails has ended. An interrupted read is repeated.
#[tokio::test]
async fn an_input_that_fails_has_ended() {
    let recorder = Recorder::in_memory().expect("memory");
    let input = Reads(vec![
        Err(io::ErrorKind::Interrupted),
        Ok(b"{\"id\":1}\nhalf"),
        Err(io::ErrorKind::ConnectionReset),
    ]);
    let forwarded = in_time(forward(Side::Client, input, tokio::io::sink(), &recorder)).await;
    assert_eq!(forwarded.expect_err("it fails").kind(), io::ErrorKind::ConnectionReset);
    let events = events(&recorder).await;
    assert_eq!(events.len(), 3);
    assert_eq!(events.last(), Some(&RecordEvent::Eof(Side::Client)));
}

/// The error of either direction is the error of the proxy.
#[tokio::test]
async fn a_proxy_fails_with_either_direction() {
    let recorder = Recorder::in_memory().expect("memory");
    let side = |fails: bool| {
        let reader = &b"{\"id\":1}\n"[..];
        if fails { Transport::new(reader, Closed) } else { Transport::new(reader, tokio::io::sink()) }
    };
    for (client, agent) in [(true, false), (false, true), (false, false)] {
        let passed = in_time(proxy(side(client), side(agent), &recorder)).await;
        assert_eq!(passed.is_err(), client || agent);
    }
}

/// A part of a line is forwarded at once, also through a buffer. The end is in the file before the other side sees it.
#[tokio::test]
async fn bytes_are_forwarded_as_they_arrive() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("talk.jsonl");
    let recorder = Recorder::create(&path).expect("a file");
    let (mut client, input) = tokio::io::duplex(100);
    let (output, mut agent) = tokio::io::duplex(100);
    let forwarding = forward(Side::Client, input, BufWriter::new(output), &recorder);
    let reading = async {
        client.write_all(b"half").await.expect("a proxy");
        let mut half = [0; 4];
        in_time(agent.read_exact(&mut half)).await.expect("a part of a line");
        drop(client);
        in_time(agent.read_to_end(&mut Vec::new())).await.expect("an end");
        let transcript = Transcript::load(&path).expect("a transcript");
        assert_eq!(
            transcript.records().last().map(|record| record.event.clone()),
            Some(RecordEvent::Eof(Side::Client))
        );
    };
    let (forwarded, ()) = in_time(async { tokio::join!(forwarding, reading) }).await;
    forwarded.expect("all of it");
}

/// Lines of stderr are recorded as they are completed. One over the limit is counted.
#[tokio::test]
async fn stderr_is_recorded_line_by_line() {
    let recorder = Recorder::in_memory().expect("memory");
    let mut writer = recorder.stderr_writer();
    writer.write_all(b"one\ntw").expect("it takes all");
    writer.write_all(b"o\r\n").expect("it takes all");
    let long = vec![b'x'; Limits::default().frame_bytes + 2];
    writer.write_all(&long).expect("it takes all");
    writer.write_all(b"\nlast").expect("it takes all");
    drop(writer);
    let stderr = |text: &str| RecordEvent::Stderr(text.into());
    let dropped = RecordEvent::Dropped { lines: 1, bytes: long.len() as u64 };
    assert_eq!(events(&recorder).await, [stderr("one"), stderr("two"), dropped, stderr("last")]);
}

/// A writer of stderr cannot wait, so it counts the lines for which a queue has no room.
#[cfg(unix)]
#[tokio::test]
async fn stderr_of_a_full_queue_is_counted() {
    const LINES: u64 = 3000;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("slow");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
    let mut disk = std::fs::OpenOptions::new().read(true).write(true).open(&path).expect("a reader");
    let recorder = Recorder::builder().queue_bytes(1000).replace(&path).expect("a pipe");
    let mut writer = recorder.stderr_writer();
    for _ in 0..LINES {
        writer.write_all(&[&[b'x'; 99][..], b"\n"].concat()).expect("it takes all");
    }
    drop(writer);
    let reading = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\"eof\":\"agent\"}\n") {
            let mut piece = [0; 4096];
            let count = io::Read::read(&mut disk, &mut piece).expect("bytes");
            bytes.extend_from_slice(&piece[..count]);
        }
        Transcript::read(bytes.as_slice()).expect("a transcript")
    });
    recorder.eof(Side::Agent);
    in_time(recorder.finish()).await.expect("written");
    let transcript = in_time(reading).await.expect("no panic");
    let count = |event: &RecordEvent| match event {
        RecordEvent::Stderr(_) => (1, 0),
        RecordEvent::Dropped { lines, .. } => (0, *lines),
        _ => (0, 0),
    };
    let counts = transcript.records().iter().map(|record| count(&record.event));
    let (kept, lost) = counts.fold((0, 0), |(kept, lost), (one, two)| (kept + one, lost + two));
    assert!(kept + lost == LINES && lost > 0, "{kept} + {lost}");
}

/// A line is recorded as it is, whatever it contains.
#[tokio::test]
async fn a_line_of_any_bytes_is_recorded() {
    let recorder = Recorder::in_memory().expect("memory");
    for line in ["{noise}", " {\"id\":1}", "{\"id\":1} "] {
        recorder.push_line(Side::Agent, line.as_bytes(), LineEnd::CrLf);
    }
    let transcript = recorder.transcript().await.expect("a transcript");
    assert_eq!(lines(&transcript), ["{noise}", " {\"id\":1}", "{\"id\":1} "]);
    assert!(
        transcript.records().iter().all(|record| record.line().is_some_and(|it| it.end == LineEnd::CrLf))
    );
}

struct Silent;

impl Service for Silent {
    fn request(&self, _: Incoming<'_>, _: Responder) {}
    fn notification(&self, _: Incoming<'_>) {}
}

/// A tap sees lines with white space around a message, and lines that are none.
#[tokio::test]
async fn a_tap_records_each_line_as_it_came() {
    let recorder = Recorder::in_memory().expect("memory");
    let (ours, theirs) = Transport::memory();
    let peer = PeerBuilder::new(ours).tap(recorder.tap(Side::Client)).start(|_| Silent);
    let (_reader, mut writer) = theirs.into_split();
    let message = r#"{"jsonrpc":"2.0","method":"_x"}"#;
    let sent = [format!(" {message}"), format!("{message} "), "{noise}".to_owned(), message.to_owned()];
    writer.write_all(format!("{}\n", sent.join("\n")).as_bytes()).await.expect("a peer");
    in_time(async {
        while events(&recorder).await.len() < sent.len() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(peer);
    assert_eq!(lines(&recorder.transcript().await.expect("a transcript")), sent);
}

/// A secret in pieces of a message loses its rest, but a prompt ends the message.
#[tokio::test]
async fn a_secret_in_pieces_ends_with_a_prompt() {
    const KEY: &str = "sk-ant-api03-Ab7dEfGhIjKlMnOpQrStUvWxYz0123456789Ab7dEfGhIjKlMnOpQrStUvWxYz";
    let (one, two) = KEY.split_at(25);
    let chunk = |text: &str| {
        let update =
            json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}});
        json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}})
            .to_string()
    };
    let prompt = json!({"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": {"sessionId": "s", "prompt": []}});
    for ends in [false, true] {
        let recorder = Recorder::in_memory().expect("memory");
        recorder.push_line(Side::Agent, chunk(one).as_bytes(), LineEnd::Lf);
        if ends {
            recorder.push_line(Side::Client, prompt.to_string().as_bytes(), LineEnd::Lf);
        }
        recorder.push_line(Side::Agent, chunk(two).as_bytes(), LineEnd::Lf);
        let transcript = recorder.transcript().await.expect("a transcript");
        let expected = chunk(if ends { two } else { "[secret]" });
        assert_eq!(lines(&transcript).last(), Some(&expected));
    }
}
