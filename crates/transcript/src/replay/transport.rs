//! The lines of a replay on the wire. They are written as they were, noise included, so this is no
//! connection with its manners but bytes in and bytes out.

use std::future::pending;
use std::io;

use duologue_rpc::{Limits, Transport};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};

use super::player::{Player, PlayerAction};
use crate::format::{LineEnd, Record, RecordEvent, RecordedLine, Side};

/// Unwritten output beyond which nothing more is said.
const FULL: usize = 256 * 1024;

/// Steps after which others have their turn.
const STEPS: usize = 256;

/// What a live side may say beyond four times the recording. More comes from one that never ends.
const FLOOD: usize = 64 << 20;

/// What a record takes in memory.
fn weight(record: &Record) -> usize {
    size_of::<Record>() + record.line().map_or(0, |line| line.bytes().len())
}

/// Plays until it is over; returns what was said.
pub(super) async fn play(
    player: &mut Player,
    recording: &[Record],
    plays: Side,
    transport: Transport,
    mut stderr: Option<super::OnStderr>,
) -> io::Result<Vec<Record>> {
    let started = Instant::now();
    let (mut reader, writer) = transport.into_split();
    let mut writer = Some(writer);
    let mut live = Vec::new();
    let most = FLOOD + 4 * recording.iter().map(weight).sum::<usize>();
    let mut heard = 0;
    let mut input = Input::default();
    let mut output: Vec<u8> = Vec::new();
    // Whether there is output, or some that is written and not flushed.
    let mut unflushed = false;
    let (mut ended, mut close) = (false, false);
    loop {
        let now = started.elapsed();
        let mut wake = None;
        let mut done = false;
        let mut steps = 0;
        while output.len() < FULL && steps < STEPS {
            steps += 1;
            match player.next(now) {
                PlayerAction::Send(bytes) => {
                    // What nobody can read any more was not said.
                    if writer.is_some() && !close {
                        live.push(Record::new(now, RecordEvent::Line(line(plays, &bytes))));
                        output.extend_from_slice(&bytes);
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
                        live.push(Record::new(now, RecordEvent::Eof(plays)));
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
        if !unflushed {
            let leaving = if close || done { writer.take() } else { None };
            if let Some(mut writer) = leaving {
                // Whoever has left needs no farewell.
                let _ = writer.shutdown().await;
            }
            if done {
                return Ok(live);
            }
        }
        tokio::select! {
            written = write(&mut writer, &output), if unflushed => match written {
                Ok(count) if count > 0 || output.is_empty() => {
                    unflushed = !output.is_empty();
                    output.drain(..count);
                }
                // It does not listen any more, but may have said something.
                Ok(_) | Err(_) => {
                    output.clear();
                    unflushed = false;
                    writer = None;
                }
            },
            read = reader.read_buf(&mut input.bytes), if !ended => {
                let now = started.elapsed();
                match read {
                    Ok(0) => ended = true,
                    Ok(_) => {}
                    // A pipe that breaks is the end of what comes through it.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
                    Err(_) => ended = true,
                }
                while let Some(line) = input.line(plays.other(), ended) {
                    player.receive(line.readable(), now);
                    let record = Record::new(now, RecordEvent::Line(line));
                    heard += weight(&record);
                    live.push(record);
                }
                if heard > most {
                    let (who, mib) = (plays.other().name(), most >> 20);
                    let flood = format!("the {who} floods: it has said more than {mib} MiB and goes on");
                    return Err(io::Error::other(flood));
                }
                if input.bytes.len() > Limits::default().frame_bytes {
                    // A line without an end is the end of the conversation, as everywhere.
                    ended = true;
                }
                if ended {
                    live.push(Record::new(now, RecordEvent::Eof(plays.other())));
                    player.end(now);
                }
            },
            () = until(wake) => {}
            () = tokio::task::yield_now(), if steps == STEPS => {}
        }
    }
}

type Writer = Option<Box<dyn AsyncWrite + Send + Unpin>>;

/// Writes a part, or flushes when all is written: one or the other, since this may be dropped in
/// between and must not forget what it has written.
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

/// Bytes on their way to lines.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    /// How much of it holds no end of a line.
    seen: usize,
}

impl Input {
    fn line(&mut self, from: Side, ended: bool) -> Option<RecordedLine> {
        let unseen = self.bytes.get(self.seen..).unwrap_or_default();
        let Some(end) = memchr::memchr(b'\n', unseen).map(|at| self.seen + at + 1) else {
            self.seen = self.bytes.len();
            return (ended && self.seen > 0).then(|| {
                self.seen = 0;
                line(from, &std::mem::take(&mut self.bytes))
            });
        };
        let whole = line(from, self.bytes.get(..end).unwrap_or_default());
        self.bytes.drain(..end);
        self.seen = 0;
        Some(whole)
    }
}

/// Bytes that hold at most one line, as a line.
fn line(from: Side, bytes: &[u8]) -> RecordedLine {
    let (bytes, end) = match bytes {
        [line @ .., b'\r', b'\n'] => (line, LineEnd::CrLf),
        [line @ .., b'\n'] => (line, LineEnd::Lf),
        line => (line, LineEnd::None),
    };
    RecordedLine::new(from, bytes).ending(end)
}
