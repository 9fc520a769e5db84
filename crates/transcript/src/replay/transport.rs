//! Input and output of a replay. Lines are written as they were recorded, noise included, so it does not use a
//! connection of `duologue_rpc`.

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::time::Duration;

use duologue_rpc::{Limits, LineBuffer, LineTooLong, Transport};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};

use super::player::{Player, PlayerAction};
use crate::error::{Error, Result};
use crate::format::{Record, RecordEvent, RecordedLine, Side};
use crate::record::Recorder;

/// The number of unwritten bytes above which no further line is sent.
const FULL: usize = 256 * 1024;

/// The number of actions after which other tasks get their turn.
const STEPS: usize = 256;

/// The bytes that a live side may send beyond four times the recording. An endless output exceeds this.
const FLOOD: usize = 64 << 20;

/// Returns the memory that a record takes.
fn weight(record: &Record) -> usize {
    record.line().map_or(size_of::<Record>(), line_weight)
}

fn line_weight(line: &RecordedLine) -> usize {
    size_of::<Record>() + line.bytes().len()
}

/// The live conversation, which may also be recorded to a file.
#[derive(Default)]
struct LiveRecords {
    records: Vec<Record>,
    recorder: Option<Recorder>,
}

impl LiveRecords {
    fn push(&mut self, at: Duration, event: RecordEvent) {
        match (&self.recorder, &event) {
            (Some(recorder), RecordEvent::Line(line)) => recorder.line(line),
            (Some(recorder), RecordEvent::Eof(side)) => recorder.eof(*side),
            _ => {}
        }
        self.records.push(Record::new(at, event));
    }

    /// Waits while the queue of the file is full.
    async fn room(&self) {
        if let Some(recorder) = &self.recorder {
            recorder.room().await;
        }
    }
}

/// Runs the replay. Returns the live conversation.
pub(super) async fn play(
    player: &mut Player,
    recording: &[Record],
    plays: Side,
    transport: Transport,
    mut stderr: Option<super::OnStderr>,
    recorder: Option<Recorder>,
) -> Result<Vec<Record>> {
    let started = Instant::now();
    let (mut reader, writer) = transport.into_split();
    let mut writer = Some(writer);
    let mut live = LiveRecords { recorder, ..LiveRecords::default() };
    let most = FLOOD + 4 * recording.iter().map(weight).sum::<usize>();
    let mut received = 0;
    let mut input = LineBuffer::new(Limits::default().frame_bytes);
    let mut output: VecDeque<u8> = VecDeque::new();
    // True if bytes are unwritten, or written but not flushed.
    let mut unflushed = false;
    let (mut ended, mut close) = (false, false);
    loop {
        live.room().await;
        let now = started.elapsed();
        let mut wake = None;
        let mut done = false;
        let mut steps = 0;
        while output.len() < FULL && steps < STEPS {
            steps += 1;
            match player.next(now) {
                PlayerAction::Send(bytes) => {
                    // Lines are not recorded after the reader has left.
                    if writer.is_some() && !close {
                        live.push(now, RecordEvent::Line(RecordedLine::from_wire(plays, &bytes)));
                        output.extend(bytes);
                        unflushed = true;
                    }
                }
                PlayerAction::Stderr(text) => {
                    if let Some(stderr) = &mut stderr {
                        stderr(&text);
                    }
                }
                PlayerAction::Close => {
                    if !close {
                        live.push(now, RecordEvent::Eof(plays));
                    }
                    close = true;
                }
                PlayerAction::Wait(until) => {
                    wake = until.and_then(|until| started.checked_add(until));
                    break;
                }
                PlayerAction::Done => {
                    done = true;
                    break;
                }
            }
        }
        // A side that does not read the responses to its requests may not send more of them.
        let reads = !player.owes_replies();
        // Lines are received one by one, so that what each of them causes comes before the next.
        match if reads { input.next_line_with_end() } else { Ok(None) } {
            Ok(Some(bytes)) => {
                received += receive(player, plays, bytes, now, &mut live);
                if received > most {
                    return Err(Error::Flood { side: plays.other(), limit: most });
                }
                continue;
            }
            // A line without an end closes the conversation, as on every connection.
            Err(LineTooLong) if !ended => {
                ended = true;
                live.push(now, RecordEvent::Eof(plays.other()));
                player.end();
                continue;
            }
            Ok(None) | Err(LineTooLong) => {}
        }
        if !unflushed {
            let leaving = if close || done { writer.take() } else { None };
            if let Some(mut writer) = leaving {
                // The reader may have left already.
                let _ = writer.shutdown().await;
            }
            if done {
                return Ok(live.records);
            }
        }
        tokio::select! {
            written = write(&mut writer, output.as_slices().0), if unflushed => match written {
                Ok(count) if count > 0 || output.is_empty() => {
                    unflushed = !output.is_empty();
                    output.drain(..count);
                }
                // The reader has left, but may have sent something before.
                Ok(_) | Err(_) => {
                    output.clear();
                    unflushed = false;
                    writer = None;
                }
            },
            read = reader.read(input.space()), if reads && !ended => {
                let now = started.elapsed();
                match read {
                    Ok(0) => ended = true,
                    Ok(count) => input.filled(count),
                    // A broken pipe is the end of the input.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error.into()),
                    Err(_) => ended = true,
                }
                if ended {
                    let rest = input.rest_with_end();
                    if !rest.is_empty() {
                        receive(player, plays, rest, now, &mut live);
                    }
                    live.push(now, RecordEvent::Eof(plays.other()));
                    player.end();
                }
            },
            () = until(wake) => {}
            () = tokio::task::yield_now(), if steps == STEPS => {}
        }
    }
}

/// Passes a line of the other side to the player. Returns the memory that it takes.
fn receive(player: &mut Player, plays: Side, bytes: &[u8], now: Duration, live: &mut LiveRecords) -> usize {
    let line = RecordedLine::from_wire(plays.other(), bytes);
    player.receive(line.readable(), now);
    let memory = line_weight(&line);
    live.push(now, RecordEvent::Line(line));
    memory
}

type Writer = Option<Box<dyn AsyncWrite + Send + Unpin>>;

/// Writes a part of the output, or flushes once all is written. It never does both, since it may be dropped in
/// between and must not lose track of the written bytes.
async fn write(writer: &mut Writer, output: &[u8]) -> io::Result<usize> {
    match writer {
        Some(writer) if output.is_empty() => writer.flush().await.map(|()| 0),
        Some(writer) => writer.write(output).await,
        None => Ok(output.len()),
    }
}

async fn until(wake: Option<Instant>) {
    match wake {
        Some(wake) => sleep_until(wake).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Header, Replay, Transcript};

    #[tokio::test]
    async fn a_client_that_reads_no_responses_cannot_send_on() {
        const COUNT: usize = 50_000;
        let (client, agent) = Transport::memory();
        let replay = Replay::new(Transcript::new(Header::new("a test"), Vec::new()));
        let replay = tokio::spawn(replay.serve(agent));
        let (mut reader, mut writer) = client.into_split();
        let (sent, seen) = tokio::sync::watch::channel(0);
        let sender = tokio::spawn(async move {
            for number in 1..=COUNT {
                writer
                    .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"_x\"}\n")
                    .await
                    .expect("it reads");
                let _ = sent.send(number);
            }
            writer.shutdown().await.expect("an end");
        });
        let mut before = usize::MAX;
        while before != *seen.borrow() {
            before = *seen.borrow();
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
        }
        assert!(before < COUNT, "the replay waits");
        let reading = tokio::spawn(async move {
            let mut responses = Vec::new();
            reader.read_to_end(&mut responses).await.expect("an end");
            responses.iter().filter(|byte| **byte == b'\n').count()
        });
        sender.await.expect("all is sent once the responses are read");
        assert_eq!(reading.await.expect("responses"), COUNT);
        let report = replay.await.expect("no panic").expect("a report");
        let last = report.differences.last().map(ToString::to_string);
        assert_eq!(last.as_deref(), Some("40000 more differences"));
    }
}
