//! The client on our SDK: it starts the agent, plays what its command line says, and prints one line of figures.

use std::time::Instant;

use duologue_client::schema::{ReadTextFileRequest, ReadTextFileResponse, SetSessionModeRequest};
use duologue_client::{
    AgentProcess, Client, Command, Connection, Conversation, PromptBuilder, Session, SessionUpdate,
    StopReason, Transport,
};
use duologue_proxy::{Proxy, ProxyStage};
use duologue_transcript::{Recorder, Side};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::agent::Allocations;
use crate::figures::{Figures, Watch, take_reads, usage};
use crate::play::{FILE_BYTES, Play};

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Plays what the command line asks for.
///
/// # Errors
///
/// A play there is none of, and whatever goes wrong in it.
#[expect(clippy::print_stdout, reason = "its output is its result")]
pub async fn main(allocations: Allocations) -> Result<()> {
    let mut args: Vec<String> =
        std::env::args().skip(1).skip_while(|arg| arg == crate::MANY_THREADS).collect();
    let option = args.first().filter(|arg| [crate::RECORD, crate::STAGES].contains(&arg.as_str())).cloned();
    if option.is_some() {
        args.remove(0);
    }
    let is = |name: &str| option.as_deref() == Some(name);
    let end = args.iter().position(|arg| arg == "--").ok_or("PLAY NUMBER.. -- AGENT ARG..")?;
    let (play, agent) = (Play::parse(&args[..end])?, &args[end + 1..]);
    let figures = match play {
        Play::Start { count } => start(agent, count).await?,
        _ if is(crate::RECORD) => recorded(agent, allocations, play).await?,
        _ if is(crate::STAGES) => staged(agent, allocations, play).await?,
        _ => Opened::new(connect(agent, None).await?, allocations, None).await?.play(play).await?,
    };
    println!("{}", figures.line());
    Ok(())
}

/// Plays with a recorder. Its file is complete at the end of the play, but not yet on the disk.
async fn recorded(agent: &[String], allocations: Allocations, play: Play) -> Result<Figures> {
    let folder = tempfile::tempdir()?;
    let recorder = Recorder::create(folder.path().join("recording.jsonl"))?;
    let connection = connect(agent, Some(recorder.clone())).await?;
    let figures = Opened::new(connection, allocations, Some(recorder.clone())).await?.play(play).await?;
    recorder.finish().await?;
    Ok(figures)
}

/// Plays with three stages that pass everything between the client and the agent's pipes.
async fn staged(agent: &[String], allocations: Allocations, play: Play) -> Result<Figures> {
    struct Passes;
    impl ProxyStage for Passes {}
    let (process, mut pipes) = AgentProcess::start(command(agent)?)?;
    tokio::spawn(async move { tokio::io::copy(&mut pipes.stderr, &mut tokio::io::sink()).await });
    let transport = Transport::new(pipes.stdout, pipes.stdin).writes_at_once();
    let proxy = Proxy::new().stage(Passes).stage(Passes).stage(Passes);
    let connection = client().connect(proxy.to_agent(transport)).await?;
    let figures = Opened::new(connection, allocations, None).await?.play(play).await?;
    process.end().await;
    Ok(figures)
}

fn command(agent: &[String]) -> Result<Command> {
    let (program, args) = agent.split_first().ok_or("an agent is missing after --")?;
    Ok(Command::new(program).args(args).show_stderr())
}

/// Returns a client that has one file.
fn client() -> Client<()> {
    let file = "x".repeat(FILE_BYTES);
    Client::new(()).on(move |_, _: ReadTextFileRequest| {
        let file = file.clone();
        async { Ok(ReadTextFileResponse::new(file)) }
    })
}

/// Starts an agent, or connects to the server whose address is given instead.
async fn connect(agent: &[String], recorder: Option<Recorder>) -> Result<Connection> {
    let client = match recorder {
        Some(recorder) => client().tap(recorder.tap(Side::Client)),
        None => client(),
    };
    if let Some(url) = agent.first().filter(|word| word.contains("://")) {
        return Ok(client.connect(crate::remote::connect(url).await?).await?);
    }
    Ok(client.spawn(command(agent)?).await?)
}

/// The play that has no connection of its own.
async fn start(agent: &[String], count: usize) -> Result<Figures> {
    let mut figures = Figures::default();
    let mut watch = Watch::start(count);
    for _ in 0..count {
        watch.again();
        let connection = connect(agent, None).await?;
        watch.lap();
        connection.close().await;
        figures.messages += 1;
    }
    (figures.wall, figures.latency) = watch.stop();
    Ok(figures)
}

/// A connection with one session.
struct Opened {
    connection: Connection,
    session: Session,
    allocations: Allocations,
    recorder: Option<Recorder>,
}

impl Opened {
    async fn new(
        connection: Connection,
        allocations: Allocations,
        recorder: Option<Recorder>,
    ) -> Result<Self> {
        let session = connection.new_session("/bench").await?;
        Ok(Opened { connection, session, allocations, recorder })
    }

    /// Plays it, with a look at both processes before and after.
    async fn play(&self, play: Play) -> Result<Figures> {
        let before = self.usage().await?;
        let (mut figures, kept) = match play {
            Play::Start { .. } => return Err("it has no connection of its own".into()),
            Play::Stream { count, bytes } => (self.stream(count, bytes).await?, Vec::new()),
            Play::Prompts { count } => (self.prompts(count).await?, Vec::new()),
            Play::Read { count } => (self.read(count).await?, Vec::new()),
            Play::Sessions { sessions, count, bytes } => {
                (self.sessions(sessions, count, bytes).await?, Vec::new())
            }
            Play::Idle { sessions } => self.idle(sessions).await?,
            Play::Image { bytes, count } => (self.image(bytes, count).await?, Vec::new()),
            Play::Redraw { rounds, bytes } => (self.redraw(rounds, bytes).await?, Vec::new()),
            Play::Modes { count } => (self.modes(count).await?, Vec::new()),
        };
        figures.usage = vec![before, self.usage().await?];
        drop(kept);
        self.connection.close().await;
        Ok(figures)
    }

    async fn usage(&self) -> Result<(Value, Value)> {
        let agent = serde_json::from_str(&said(&self.session, "usage").await?)?;
        Ok((usage((self.allocations)()), agent))
    }

    async fn stream(&self, count: usize, bytes: usize) -> Result<Figures> {
        let begun = Instant::now();
        let (messages, bytes) = counted(&self.session, format!("stream {count} {bytes}")).await?;
        if let Some(recorder) = &self.recorder {
            recorder.flush().await?;
        }
        Ok(Figures { messages, bytes, wall: begun.elapsed(), ..Figures::default() })
    }

    async fn prompts(&self, count: usize) -> Result<Figures> {
        let mut figures = Figures::default();
        let mut watch = Watch::start(count);
        for _ in 0..count {
            let mut turn = self.session.prompt("end").await?;
            ended(turn.outcome().await?.stop_reason)?;
            watch.lap();
            figures.messages += 1;
        }
        (figures.wall, figures.latency) = watch.stop();
        Ok(figures)
    }

    async fn modes(&self, count: usize) -> Result<Figures> {
        let mut figures = Figures::default();
        let mut watch = Watch::start(count);
        for _ in 0..count {
            // The session of this agent has no modes, so `Session::set_mode` would send nothing.
            let request = SetSessionModeRequest::new(self.session.id().clone(), "bench");
            self.connection.peer().request(&request).await?;
            watch.lap();
            figures.messages += 1;
        }
        (figures.wall, figures.latency) = watch.stop();
        Ok(figures)
    }

    async fn read(&self, count: usize) -> Result<Figures> {
        let (mut figures, begun) = (Figures::default(), Instant::now());
        let text = said(&self.session, format!("read {count}")).await?;
        figures.wall = begun.elapsed();
        take_reads(&mut figures, &text).ok_or("the agent did not say what it read")?;
        Ok(figures)
    }

    async fn sessions(&self, sessions: usize, count: usize, bytes: usize) -> Result<Figures> {
        let mut open = Vec::new();
        for _ in 0..sessions {
            open.push(self.connection.new_session("/bench").await?);
        }
        let (mut figures, begun) = (Figures::default(), Instant::now());
        let mut turns = JoinSet::new();
        for session in open {
            turns.spawn(async move { counted(&session, format!("stream {count} {bytes}")).await });
        }
        while let Some(turn) = turns.join_next().await {
            let (seen, of) = turn??;
            if seen != count {
                return Err(format!("a session saw {seen} of {count} updates").into());
            }
            figures.messages += seen;
            figures.bytes += of;
        }
        figures.wall = begun.elapsed();
        Ok(figures)
    }

    async fn idle(&self, sessions: usize) -> Result<(Figures, Vec<Session>)> {
        let begun = Instant::now();
        let mut open = Vec::new();
        for _ in 0..sessions {
            open.push(self.connection.new_session("/bench").await?);
        }
        Ok((Figures { messages: open.len(), wall: begun.elapsed(), ..Figures::default() }, open))
    }

    async fn image(&self, bytes: usize, count: usize) -> Result<Figures> {
        let image = "A".repeat(bytes);
        let (mut figures, mut watch) = (Figures::default(), Watch::start(count));
        for _ in 0..count {
            let prompt = PromptBuilder::new("image").image(image.clone(), "image/png");
            watch.again();
            figures.bytes += said(&self.session, prompt).await?.parse::<usize>()?;
            watch.lap();
            figures.messages += 1;
        }
        (figures.wall, figures.latency) = watch.stop();
        Ok(figures)
    }

    async fn redraw(&self, rounds: usize, bytes: usize) -> Result<Figures> {
        let (mut figures, begun) = (Figures::default(), Instant::now());
        let mut conversation = Conversation::default();
        let mut turn = self.session.prompt(format!("redraw {rounds} {bytes}")).await?;
        while let Some(update) = turn.next().await {
            conversation.apply(&update?);
            figures.messages += 1;
        }
        ended(turn.outcome().await?.stop_reason)?;
        figures.wall = begun.elapsed();
        figures.bytes = conversation.agent_text().len();
        Ok(figures)
    }
}

/// Prompts, and counts the chunks of the turn and the bytes in them.
async fn counted(session: &Session, prompt: String) -> Result<(usize, usize)> {
    let (mut messages, mut bytes) = (0, 0);
    let mut turn = session.prompt(prompt).await?;
    while let Some(update) = turn.next().await {
        if let SessionUpdate::AgentMessageChunk(chunk) = update? {
            messages += 1;
            bytes += chunk.content.as_text().map_or(0, str::len);
        }
    }
    ended(turn.outcome().await?.stop_reason)?;
    Ok((messages, bytes))
}

/// Prompts, and takes what the agent says.
async fn said(session: &Session, prompt: impl Into<PromptBuilder>) -> Result<String> {
    let reply = session.prompt(prompt).await?.finish().await?;
    ended(reply.response.stop_reason)?;
    Ok(reply.text)
}

fn ended(reason: StopReason) -> Result<()> {
    if reason == StopReason::EndTurn { Ok(()) } else { Err(format!("a turn ended with {reason:?}").into()) }
}
