//! The client of the floors.

use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::line::Scan;
use super::pipe::{Batch, Lines};
use crate::figures::{Figures, Watch, take_reads, usage};
use crate::play::{FILE_BYTES, Play};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Plays what the command line asks for: `nl | serde PLAY NUMBER.. -- AGENT ARG..`
///
/// # Errors
///
/// A play there is none of, and whatever goes wrong in it.
#[expect(clippy::print_stdout, reason = "its output is its result")]
pub fn main() -> Result<()> {
    let scan = super::scan(std::env::args().nth(1))?;
    let args: Vec<String> = std::env::args().skip(2).collect();
    let end = args.iter().position(|arg| arg == "--").ok_or("PLAY NUMBER.. -- AGENT ARG..")?;
    let (play, agent) = (Play::parse(&args[..end])?, &args[end + 1..]);
    let figures = match play {
        Play::Start { count } => start(scan, agent, count)?,
        _ => Player::new(scan, agent)?.play(play)?,
    };
    println!("{}", figures.line());
    Ok(())
}

fn start(scan: Scan, agent: &[String], count: usize) -> Result<Figures> {
    let (mut figures, mut watch) = (Figures::default(), Watch::start(count));
    for _ in 0..count {
        watch.again();
        let agent = Player::connect(scan, agent)?;
        watch.lap();
        agent.close()?;
        figures.messages += 1;
    }
    (figures.wall, figures.latency) = watch.stop();
    Ok(figures)
}

struct Player {
    scan: Scan,
    child: Child,
    lines: Lines<ChildStdout>,
    out: Batch<ChildStdin>,
    last_id: usize,
    session: String,
}

impl Player {
    fn connect(scan: Scan, agent: &[String]) -> Result<Self> {
        let (program, args) = agent.split_first().ok_or("an agent is missing after --")?;
        let mut child =
            Command::new(program).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (stdin, stdout) =
            (child.stdin.take().ok_or("no stdin")?, child.stdout.take().ok_or("no stdout")?);
        let (lines, out) = (Lines::new(stdout), Batch::new(stdin));
        let mut player = Player { scan, child, lines, out, last_id: 0, session: String::new() };
        let hello = r#"{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true}}}"#;
        player.call("initialize", hello)?;
        Ok(player)
    }

    fn new(scan: Scan, agent: &[String]) -> Result<Self> {
        let mut player = Player::connect(scan, agent)?;
        player.session = player.new_session()?;
        Ok(player)
    }

    fn close(self) -> Result<()> {
        let Player { mut child, out, .. } = self;
        drop(out);
        child.wait()?;
        Ok(())
    }

    fn play(mut self, play: Play) -> Result<Figures> {
        let before = self.usage()?;
        let mut figures = match play {
            Play::Start { .. } | Play::Modes { .. } => {
                return Err("it is not for one connection of this client".into());
            }
            Play::Stream { count, bytes } => {
                let begun = Instant::now();
                self.prompt(&self.session.clone(), &format!("stream {count} {bytes}"), "")?;
                let (messages, bytes) = self.counted(1)?;
                Figures { messages, bytes, wall: begun.elapsed(), ..Figures::default() }
            }
            Play::Prompts { count } => self.prompts(count)?,
            Play::Read { count } => self.read(count)?,
            Play::Sessions { sessions, count, bytes } => self.sessions(sessions, count, bytes)?,
            Play::Idle { sessions } => {
                let begun = Instant::now();
                let open: Vec<String> = (0..sessions).map(|_| self.new_session()).collect::<Result<_>>()?;
                Figures { messages: open.len(), wall: begun.elapsed(), ..Figures::default() }
            }
            Play::Image { bytes, count } => self.image(bytes, count)?,
            Play::Redraw { rounds, bytes } => self.redraw(rounds, bytes)?,
        };
        figures.usage = vec![before, self.usage()?];
        self.close()?;
        Ok(figures)
    }

    fn prompts(&mut self, count: usize) -> Result<Figures> {
        let (mut figures, mut watch) = (Figures::default(), Watch::start(count));
        let session = self.session.clone();
        for _ in 0..count {
            self.prompt(&session, "end", "")?;
            let line = self.lines.next()?.and_then(self.scan).ok_or("no answer")?;
            line.id.ok_or("no answer")?;
            watch.lap();
            figures.messages += 1;
        }
        (figures.wall, figures.latency) = watch.stop();
        Ok(figures)
    }

    fn read(&mut self, count: usize) -> Result<Figures> {
        let (mut figures, begun, file) = (Figures::default(), Instant::now(), vec![b'x'; FILE_BYTES]);
        self.prompt(&self.session.clone(), &format!("read {count}"), "")?;
        let said = loop {
            let line = self.lines.next()?.ok_or("the agent has left")?;
            let seen = (self.scan)(line);
            match seen.and_then(|line| Some((line.id?, line.method?))) {
                Some((id, b"fs/read_text_file")) => {
                    let begin = br#","result":{"content":""#;
                    self.out.write(&[br#"{"jsonrpc":"2.0","id":"#, id, begin, &file, b"\"}}\n"])?;
                    self.out.flush()?;
                }
                _ => break text(line)?,
            }
        };
        self.answer()?;
        figures.wall = begun.elapsed();
        take_reads(&mut figures, &said).ok_or("the agent did not say what it read")?;
        Ok(figures)
    }

    fn sessions(&mut self, sessions: usize, count: usize, bytes: usize) -> Result<Figures> {
        let open: Vec<String> = (0..sessions).map(|_| self.new_session()).collect::<Result<_>>()?;
        let begun = Instant::now();
        for session in &open {
            self.prompt(session, &format!("stream {count} {bytes}"), "")?;
        }
        let (messages, bytes) = self.counted(sessions)?;
        Ok(Figures { messages, bytes, wall: begun.elapsed(), ..Figures::default() })
    }

    fn image(&mut self, bytes: usize, count: usize) -> Result<Figures> {
        let image = format!(r#"{{"type":"image","mimeType":"image/png","data":"{}"}},"#, "A".repeat(bytes));
        let (mut figures, mut watch, session) =
            (Figures::default(), Watch::start(count), self.session.clone());
        for _ in 0..count {
            watch.again();
            self.prompt(&session, "image", &image)?;
            figures.bytes += text(self.lines.next()?.ok_or("the agent has left")?)?.parse::<usize>()?;
            self.answer()?;
            watch.lap();
            figures.messages += 1;
        }
        (figures.wall, figures.latency) = watch.stop();
        Ok(figures)
    }

    fn redraw(&mut self, rounds: usize, bytes: usize) -> Result<Figures> {
        let (mut figures, begun, mut message) = (Figures::default(), Instant::now(), Vec::new());
        self.prompt(&self.session.clone(), &format!("redraw {rounds} {bytes}"), "")?;
        loop {
            let line = self.lines.next()?.and_then(self.scan).ok_or("the agent has left")?;
            match (line.id, line.text) {
                (Some(_), _) => break,
                (None, b"") => message.clear(),
                (None, text) => message.extend_from_slice(text),
            }
            figures.messages += 1;
        }
        (figures.wall, figures.bytes) = (begun.elapsed(), message.len());
        Ok(figures)
    }

    /// Counts chunks, and bytes in them, up to the end of so many turns.
    fn counted(&mut self, turns: usize) -> Result<(usize, usize)> {
        let (mut messages, mut bytes, mut ended) = (0, 0, 0);
        while ended < turns {
            let line = self.lines.next()?.and_then(self.scan).ok_or("the agent has left")?;
            if line.id.is_some() {
                ended += 1;
            } else {
                messages += 1;
                bytes += line.text.len();
            }
        }
        Ok((messages, bytes))
    }

    fn usage(&mut self) -> Result<(Value, Value)> {
        self.prompt(&self.session.clone(), "usage", "")?;
        let agent = serde_json::from_str(&text(self.lines.next()?.ok_or("the agent has left")?)?)?;
        self.answer()?;
        Ok((usage(None), agent))
    }

    fn new_session(&mut self) -> Result<String> {
        let answer = self.call("session/new", r#"{"cwd":"/bench","mcpServers":[]}"#)?;
        Ok(answer["result"]["sessionId"].as_str().ok_or("no session")?.to_owned())
    }

    fn prompt(&mut self, session: &str, text: &str, image: &str) -> Result<()> {
        self.last_id += 1;
        let id = self.last_id.to_string();
        self.out.write(&[
            br#"{"jsonrpc":"2.0","id":"#,
            id.as_bytes(),
            br#","method":"session/prompt","params":{"sessionId":""#,
            session.as_bytes(),
            br#"","prompt":["#,
            image.as_bytes(),
            br#"{"type":"text","text":""#,
            text.as_bytes(),
            b"\"}]}}\n",
        ])?;
        Ok(self.out.flush()?)
    }

    fn call(&mut self, method: &str, params: &str) -> Result<Value> {
        self.last_id += 1;
        let id = self.last_id;
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        self.out.write(&[line.as_bytes(), b"\n"])?;
        self.out.flush()?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Value> {
        Ok(serde_json::from_slice(self.lines.next()?.ok_or("the agent has left")?)?)
    }
}

/// The text of a chunk, escapes and all.
fn text(line: &[u8]) -> Result<String> {
    let line: Value = serde_json::from_slice(line)?;
    Ok(line["params"]["update"]["content"]["text"].as_str().ok_or("no chunk")?.to_owned())
}
