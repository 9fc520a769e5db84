//! The agent of the floors.

use std::io::{StdinLock, StdoutLock};

use super::line::{CHUNK, END, Scan, UPDATE};
use super::pipe::{Batch, Lines};
use crate::figures::{Watch, reads, usage};
use crate::play::{PromptCommand, growth};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Serves one client.
///
/// # Errors
///
/// When the pipe breaks or the client asks for what there is not.
pub fn main() -> Result<()> {
    let mut agent = Agent {
        scan: super::scan(std::env::args().nth(1))?,
        lines: Lines::new(std::io::stdin().lock()),
        out: Batch::new(std::io::stdout().lock()),
        sessions: 0,
    };
    while agent.serve()? {}
    agent.out.flush()?;
    Ok(())
}

struct Agent {
    scan: Scan,
    lines: Lines<StdinLock<'static>>,
    out: Batch<StdoutLock<'static>>,
    sessions: usize,
}

impl Agent {
    /// Answers the next request.
    fn serve(&mut self) -> Result<bool> {
        if self.lines.is_waiting() {
            self.out.flush()?;
        }
        let Some(line) = self.lines.next()? else { return Ok(false) };
        let line = (self.scan)(line).ok_or("a line that cannot be read")?;
        let id = line.id.ok_or("a line without an id")?.to_owned();
        match line.method {
            Some(b"initialize") => {
                let hello =
                    br#"{"protocolVersion":1,"agentCapabilities":{"promptCapabilities":{"image":true}}}"#;
                self.answer(&id, hello)?;
            }
            Some(b"session/new") => {
                self.sessions += 1;
                self.answer(&id, format!(r#"{{"sessionId":"{:036}"}}"#, self.sessions).as_bytes())?;
            }
            Some(b"session/prompt") => {
                let (session, data) = (line.session.to_owned(), line.data);
                let ask = std::str::from_utf8(line.text).ok().and_then(PromptCommand::parse);
                self.turn(ask.ok_or("the prompt is none of the benchmark's")?, &session, data)?;
                self.answer(&id, br#"{"stopReason":"end_turn"}"#)?;
            }
            _ => return Err("a method that is not there".into()),
        }
        Ok(true)
    }

    fn turn(&mut self, ask: PromptCommand, session: &[u8], data: usize) -> Result<()> {
        match ask {
            PromptCommand::End => {}
            PromptCommand::Stream { count, bytes } => {
                let chunk = vec![b'x'; bytes];
                for _ in 0..count {
                    self.say(session, &chunk)?;
                }
            }
            PromptCommand::Read { count } => {
                let (mut watch, mut bytes) = (Watch::start(count), 0);
                for number in 0..count {
                    bytes += self.read(number, session)?;
                    watch.lap();
                }
                self.say(session, reads(count, bytes, watch.stop().1).replace('"', r#"\""#).as_bytes())?;
            }
            PromptCommand::Redraw { rounds, bytes } => {
                let (whole, mut there) = (vec![b'x'; bytes], 0);
                for length in growth(rounds, bytes) {
                    self.say(session, &whole[there..length])?;
                    self.say(session, b"")?;
                    self.say(session, &whole[..length])?;
                    there = length;
                }
            }
            PromptCommand::Image => self.say(session, data.to_string().as_bytes())?,
            PromptCommand::Usage => {
                self.say(session, usage(None).to_string().replace('"', r#"\""#).as_bytes())?
            }
        }
        Ok(())
    }

    fn read(&mut self, number: usize, session: &[u8]) -> Result<usize> {
        let id = number.to_string();
        self.out.write(&[
            br#"{"jsonrpc":"2.0","id":"#,
            id.as_bytes(),
            br#","method":"fs/read_text_file","params":{"sessionId":""#,
            session,
            br#"","path":"/bench/file"}}
"#,
        ])?;
        self.out.flush()?;
        let line = self.lines.next()?.and_then(self.scan).ok_or("no answer to a read")?;
        Ok(line.text.len())
    }

    fn say(&mut self, session: &[u8], text: &[u8]) -> Result<()> {
        Ok(self.out.write(&[UPDATE, session, CHUNK, text, END])?)
    }

    fn answer(&mut self, id: &[u8], result: &[u8]) -> Result<()> {
        Ok(self.out.write(&[br#"{"jsonrpc":"2.0","id":"#, id, br#","result":"#, result, b"}\n"])?)
    }
}
