//! Drives a session: starts the agent, runs turns, and meanwhile looks after the user.

use std::collections::VecDeque;
use std::io::IsTerminal as _;
use std::pin::pin;
use std::time::Duration;

use duologue_client::{Client, Command, Connection, Error as ClientError, LocalHost, Session, Updates};
use duologue_schema::{
    AuthMethod, ConfigOptionUpdate, CurrentModeUpdate, Implementation, PromptResponse, SessionConfigKind,
    SessionConfigOptionValue, SessionId, StopReason,
};
use duologue_transcript::{Recorder, Side};
use tokio::sync::mpsc;
use tokio::sync::oneshot;

use super::desk::{Desk, Event, Question, StderrLines};
use super::host::RunHost;
use super::input::{self, Input, Line};
use super::output::Output;
use super::permission::{self, Otherwise};
use super::rows::Span;
use crate::commands::run::Args;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::recording;
use crate::signals::{Signal, Signals};
use crate::ui::{BAD, DIM, plural};

/// What takes longer deserves a word.
const SOON: Duration = Duration::from_secs(2);
/// How long an agent may take to end after the user has left.
const LEAVING: Duration = Duration::from_millis(500);

/// Runs the command.
pub(crate) async fn run(args: Args) -> Result<Exit> {
    let prompt = match args.prompt.as_deref() {
        Some("-") => Some(input::all()?),
        prompt => prompt.map(str::to_owned),
    };
    let output = Output::new(args.json);
    let asks = output.can_ask() && input::is_interactive();
    let reads = asks || (prompt.is_none() && !args.list);
    let (desk, events) = Desk::new();
    let recorder = match &args.record {
        Some(path) => {
            Some(recording::begin(Recorder::builder().program(args.agent.words()), path, args.force)?)
        }
        None => None,
    };
    let (signals, input) = (Signals::listen()?, reads.then(Input::start));
    let mut talk = Talk {
        output,
        recorder,
        stderr_end: None,
        input,
        events,
        signals,
        session: None,
        told: false,
        asked: None,
        waiting: VecDeque::new(),
    };
    talk.last_resort(None);
    let outcome = talk.run(&args, prompt, desk, asks).await;
    let shown = talk.finish(&outcome);
    if let (Some(recorder), Some(path)) = (talk.recorder.take(), &args.record) {
        match &outcome {
            Err(Stop::Failed(Error::Agent(ClientError::Spawn { .. }))) => {
                recording::take_back(recorder, path).await;
            }
            _ => recorder.finish().await?,
        }
    }
    match outcome {
        Err(Stop::Left(signal)) => Ok(Exit::Signal(signal)),
        Err(Stop::Failed(error)) => Err(error),
        Ok(exit) => shown.map(|()| exit),
    }
}

/// Why a session is not gone on with.
enum Stop {
    /// The user has left, or the system wants us to.
    Left(Signal),
    /// Something failed.
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Stop::Failed(error.into())
    }
}

/// What came first.
enum Step<T> {
    /// What was waited for.
    Done(T),
    /// A line, or the end of the input.
    Line(Option<Line>),
    /// Ctrl-C.
    Interrupt,
}

/// A conversation between a user and an agent.
struct Talk {
    output: Output,
    recorder: Option<Recorder>,
    /// Ready when all of the agent's stderr was read.
    stderr_end: Option<oneshot::Receiver<()>>,
    input: Option<Input>,
    events: mpsc::Receiver<Event>,
    signals: Signals,
    /// The session, once there is one.
    session: Option<SessionId>,
    /// Whether the end of the last turn has told what went wrong.
    told: bool,
    /// The question the user reads.
    asked: Option<Question>,
    /// Questions behind it.
    waiting: VecDeque<Question>,
}

impl Talk {
    async fn run(
        &mut self,
        args: &Args,
        prompt: Option<String>,
        desk: Desk,
        asks: bool,
    ) -> Result<Exit, Stop> {
        let agent = self.connect(args, desk, asks).await?;
        self.last_resort(Some(agent.clone()));
        let outcome = self.converse(args, prompt, &agent).await;
        let shown = self.output.leave();
        if let Some(recorder) = self.recorder.as_ref().filter(|_| !agent.peer().is_closed()) {
            recorder.eof(Side::Client);
        }
        let mut ended = match outcome {
            Err(Stop::Left(_)) => tokio::time::timeout(LEAVING, agent.close()).await.ok(),
            // An agent that takes its time is waited for, unless the user has enough.
            _ => match self.attend(agent.close(), false).await {
                Ok(Step::Done(status)) => Some(status),
                _ => None,
            },
        };
        if ended.is_none() {
            agent.kill();
            ended = tokio::time::timeout(LEAVING, agent.close()).await.ok();
        }
        if let Some(end) = self.stderr_end.take() {
            // What it wrote last is on its way; a helper it left behind may hold on to the pipe.
            let _ = tokio::time::timeout(LEAVING, end).await;
        }
        if let Some(recorder) = &self.recorder {
            if agent.peer().is_closed() {
                recorder.eof(Side::Agent);
            }
            if let Some(Some(status)) = ended {
                recorder.exit(status);
            }
        }
        if args.stderr {
            self.tell_noise(&agent)?;
        }
        match outcome {
            Ok(exit) => Ok(shown.map(|()| exit)?),
            outcome => outcome,
        }
    }

    /// What is done if we are stuck, a signal comes, and nobody takes it.
    fn last_resort(&self, agent: Option<Connection>) {
        let restore = self.input.as_ref().map(Input::restore);
        self.signals.last_resort(move || {
            if let Some(agent) = agent {
                agent.kill();
                // It is killed by a task.
                std::thread::sleep(Duration::from_millis(50));
            }
            if let Some(restore) = restore {
                restore();
            }
        });
    }

    /// Shows what is left to be shown, unless nobody is there to see it.
    fn finish(&mut self, outcome: &Result<Exit, Stop>) -> Result<()> {
        if let Err(Stop::Left(_)) = outcome {
            return Ok(());
        }
        self.catch_up()?;
        self.output.leave()?;
        match outcome {
            Err(Stop::Failed(error)) if !self.told => Ok(self.output.fail(self.session.as_ref(), error)?),
            _ => Ok(()),
        }
    }

    /// Says what the agent wrote beside the protocol.
    fn tell_noise(&mut self, agent: &Connection) -> Result<()> {
        let stats = agent.peer().stats();
        let counts =
            [(stats.noise, "line", "beside the protocol"), (stats.dropped, "message", "that did not fit")];
        for (count, what, how) in counts.into_iter().filter(|(count, ..)| *count > 0) {
            let count = plural(usize::try_from(count).unwrap_or(usize::MAX), what);
            self.output.note(vec![Span::new(DIM, &format!("stdout: {count} {how}"))])?;
        }
        for line in agent.peer().recent_noise() {
            self.output.note(vec![Span::line(DIM, &format!("stdout: {line}"))])?;
        }
        Ok(())
    }

    /// Starts the agent, or the mock.
    async fn connect(&mut self, args: &Args, desk: Desk, asks: bool) -> Result<Connection, Stop> {
        let mut command = match args.agent.given() {
            Some(command) => command,
            None => Command::new(std::env::current_exe()?).arg("mock"),
        };
        let recorder = self.recorder.clone();
        if args.stderr || recorder.is_some() {
            let (lines, end) = StderrLines::new(args.stderr.then(|| desk.clone()), recorder);
            command = command.stderr_to(lines);
            self.stderr_end = Some(end);
        }
        let otherwise = match (args.yes, asks) {
            (true, _) => Otherwise::Allow,
            (false, true) => Otherwise::Ask,
            (false, false) => Otherwise::Refuse,
        };
        let permissions = permission::permissions(&args.allow, otherwise, desk.clone());
        let mut local = LocalHost::new(args.folder()?).permissions(permissions);
        if args.read_only || args.no_tools {
            local = local.read_only();
        }
        let host = RunHost { local, desk, tools: !args.no_tools, asks };
        let info = Implementation::new("duologue", env!("CARGO_PKG_VERSION"));
        let mut client = Client::new(host).info(info).start_timeout(args.patience());
        if let Some(recorder) = &self.recorder {
            client = client.tap(recorder.tap(Side::Client));
        }
        let agent = self.patiently(args, client.spawn(command)).await??;
        if let Some(method) = &args.login {
            self.through(agent.authenticate(method.as_str())).await?.map_err(|error| explain(error, args))?;
        }
        Ok(agent)
    }

    async fn converse(
        &mut self,
        args: &Args,
        prompt: Option<String>,
        agent: &Connection,
    ) -> Result<Exit, Stop> {
        if args.list {
            let listing = agent.list_sessions(None)?;
            let sessions = self.through(listing.all()).await?.map_err(|error| explain(error, args))?;
            for session in sessions {
                let title = session.title.unwrap_or_default();
                let updated = session.updated_at.unwrap_or_default();
                let line = format!("{}\t{updated}\t{}\t{title}", session.session_id, session.cwd.display());
                use std::io::Write as _;
                writeln!(std::io::stdout(), "{}", Span::line(anstyle::Style::new(), &line).as_str())?;
            }
            return Ok(Exit::Ok);
        }
        let session = self.begin(args, agent).await?;
        match prompt {
            Some(prompt) => {
                let mut updates = session.updates();
                self.take_waiting(&session, &mut updates).await?;
                let exit = self.turn(&session, prompt, args).await?;
                self.take_waiting(&session, &mut updates).await?;
                exit.map_err(Stop::from)
            }
            None => self.interact(&session, args, agent).await,
        }
    }

    /// Makes or restores the session, and sets what the command line says.
    async fn begin(&mut self, args: &Args, agent: &Connection) -> Result<Session, Stop> {
        let folder = args.folder()?;
        let session = if let Some(id) = &args.load {
            let mut replay = agent.load_session(id.as_str(), folder)?;
            while let Some(update) = self.through(replay.next()).await? {
                self.output.update(&id.as_str().into(), &update?)?;
            }
            self.output.leave()?;
            self.through(replay.outcome()).await?
        } else if let Some(id) = &args.resume {
            self.in_time(args, agent, "session/resume", agent.resume_session(id.as_str(), folder)).await?
        } else {
            self.in_time(args, agent, "session/new", agent.new_session(folder)).await?
        };
        let session = session.map_err(|error| explain(error, args))?;
        self.session = Some(session.id().clone());
        let state = session.state();
        if let Some(modes) = state.modes {
            self.output.know(&CurrentModeUpdate::new(modes.current_mode_id).into());
        }
        let options = state.config_options;
        if let Some(mode) = &args.mode {
            self.through(session.set_mode(mode.as_str())).await??;
        }
        for (id, value) in &args.option {
            let known = options.iter().find(|known| known.id == **id);
            let value = match known.map(|known| &known.kind) {
                Some(SessionConfigKind::Boolean(_)) => match value.as_str() {
                    "on" | "true" | "yes" | "1" => true.into(),
                    "off" | "false" | "no" | "0" => false.into(),
                    _ => return Err(Error::Usage(format!("--option {id}: on or off, not {value}")).into()),
                },
                _ => SessionConfigOptionValue::from(value.as_str()),
            };
            self.through(session.set_config_option(id.as_str(), value)).await??;
        }
        self.output.know(&ConfigOptionUpdate::new(session.state().config_options).into());
        Ok(session)
    }

    /// Prompts until the user leaves.
    async fn interact(&mut self, session: &Session, args: &Args, agent: &Connection) -> Result<Exit, Stop> {
        self.output.tell_commands();
        if self.output.is_live() {
            let name =
                agent.info().map_or_else(String::new, |info| format!("{} {} · ", info.name, info.version));
            let text = format!("· {name}{} · /exit or Ctrl-D leaves", session.id());
            self.output.note(vec![Span::line(DIM, &text)])?;
        }
        let mut updates = session.updates();
        let counts = !input::is_interactive();
        let mut worst = Exit::Ok;
        loop {
            let Some(prompt) = self.read_prompt(session, &mut updates).await? else { return Ok(worst) };
            match prompt.trim() {
                "" => {}
                "/exit" | "/quit" => return Ok(worst),
                _ => {
                    let outcome = self.turn(session, prompt, args).await?;
                    if counts {
                        worst = worst.or_worse(outcome.as_ref().map_or_else(Error::exit, |exit| *exit));
                    }
                    if let Err(error) = outcome {
                        if agent.peer().is_closed() {
                            return Err(error.into());
                        }
                        self.output
                            .note(vec![Span::new(BAD, "error"), Span::plain(&format!(": {error}"))])?;
                    }
                }
            }
        }
    }

    /// Waits for a prompt and shows what the agent does meanwhile. `None` when the user leaves.
    async fn read_prompt(
        &mut self,
        session: &Session,
        updates: &mut Updates,
    ) -> Result<Option<String>, Stop> {
        if let Some(input) = &mut self.input {
            input.begin_prompt();
        }
        self.output.ask_prompt()?;
        loop {
            match self.attend(updates.next(), true).await? {
                Step::Done(Some(update)) => self.output.update(session.id(), &update?)?,
                Step::Done(None) => return Err(session.connection().closed().await.into()),
                Step::Line(Some(Line { mut text, shown })) => {
                    self.output.prompted(&text, shown)?;
                    if let Some(input) = self.input.as_mut().filter(|_| shown) {
                        for pasted in input.pasted().await {
                            text.push('\n');
                            text.push_str(&pasted);
                        }
                    }
                    return Ok(Some(text));
                }
                Step::Line(None) => return Ok(None),
                Step::Interrupt => return Err(Stop::Left(Signal::Interrupt)),
            }
        }
    }

    /// Shows what has happened outside of turns.
    async fn take_waiting(&mut self, session: &Session, updates: &mut Updates) -> Result<()> {
        while let Ok(Some(Ok(update))) = tokio::time::timeout(Duration::ZERO, updates.next()).await {
            self.output.update(session.id(), &update)?;
        }
        Ok(())
    }

    /// Runs one turn. What the agent answers it with is in the inner result.
    async fn turn(&mut self, session: &Session, prompt: String, args: &Args) -> Result<Result<Exit>, Stop> {
        self.output.begin_turn(&prompt);
        let mut cancelled = false;
        let outcome: Result<PromptResponse, ClientError> = match self.through(session.prompt(prompt)).await? {
            Err(error) => Err(error),
            Ok(mut turn) => loop {
                match self.attend(turn.next(), false).await? {
                    Step::Done(Some(Ok(update))) => self.output.update(session.id(), &update)?,
                    Step::Done(Some(Err(error))) => break Err(error),
                    Step::Done(None) => break turn.outcome().await,
                    Step::Interrupt if cancelled => return Err(Stop::Left(Signal::Interrupt)),
                    Step::Interrupt => {
                        cancelled = true;
                        turn.cancel();
                        self.output.note(vec![Span::new(DIM, "· cancelling; Ctrl-C again leaves")])?;
                    }
                    Step::Line(_) => {}
                }
            },
        };
        // Questions end with their turn.
        self.asked = None;
        self.waiting.clear();
        self.output.withdraw()?;
        self.catch_up()?;
        self.output.end_turn(session.id(), &outcome)?;
        self.told = outcome.is_err();
        Ok(match outcome {
            Err(error) => Err(explain(error, args)),
            Ok(_) if cancelled => Ok(Exit::Signal(Signal::Interrupt)),
            Ok(PromptResponse { stop_reason: StopReason::EndTurn, .. }) => Ok(Exit::Ok),
            Ok(_) => Ok(Exit::Found),
        })
    }

    /// Waits for something that is not to be interrupted but by leaving.
    async fn through<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Stop> {
        match self.attend(work, false).await? {
            Step::Done(done) => Ok(done),
            Step::Line(_) | Step::Interrupt => Err(Stop::Left(Signal::Interrupt)),
        }
    }

    /// Waits for a step of the agent's start, and says so if it takes long and somebody sits there.
    async fn patiently<T>(&mut self, args: &Args, work: impl Future<Output = T>) -> Result<T, Stop> {
        let mut work = pin!(work);
        if let Ok(done) = self.through(tokio::time::timeout(SOON, &mut work)).await? {
            return Ok(done);
        }
        if self.output.is_live() || std::io::stderr().is_terminal() {
            let text = format!("· waiting for {}… (Ctrl-C leaves)", args.program());
            self.output.note(vec![Span::line(DIM, &text)])?;
        }
        self.through(work).await
    }

    /// Waits for an answer that a session begins with, as long as the command line allows.
    async fn in_time<T>(
        &mut self,
        args: &Args,
        agent: &Connection,
        method: &str,
        work: impl Future<Output = T>,
    ) -> Result<T, Stop> {
        let patience = args.patience();
        if let Ok(done) = self.patiently(args, tokio::time::timeout(patience, work)).await? {
            return Ok(done);
        }
        let mut text = format!("the agent did not answer {method} within {patience:?} (--timeout)");
        let stderr = agent.stderr();
        let lines: Vec<_> = stderr.lines().filter(|line| !line.trim().is_empty()).collect();
        if let Some(last) = lines.get(lines.len().saturating_sub(5)..).filter(|last| !last.is_empty()) {
            text.push_str(&format!("; its stderr ended with:\n{}", last.join("\n")));
        }
        Err(Error::Start(text).into())
    }

    /// Waits for `work`, and meanwhile asks the agent's questions and draws what is due. With `reading`
    /// it also waits for a line.
    ///
    /// What the agent does comes before what it asks, as on the wire.
    async fn attend<T>(&mut self, work: impl Future<Output = T>, reading: bool) -> Result<Step<T>, Stop> {
        let mut work = pin!(work);
        loop {
            let asking = self.asked.is_some();
            let due = self.output.due();
            if let Some(input) = &mut self.input {
                input.listen(asking || reading);
            }
            tokio::select! {
                biased;
                signal = self.signals.next() => match signal {
                    Signal::Interrupt => return Ok(Step::Interrupt),
                    signal => return Err(Stop::Left(signal)),
                },
                done = &mut work => return Ok(Step::Done(done)),
                Some(event) = self.events.recv() => self.event(event)?,
                () = withdrawn(&mut self.asked), if asking => {
                    self.asked = None;
                    self.output.withdraw()?;
                    self.next_question()?;
                }
                line = line(&mut self.input, asking), if asking || reading => match (line?, self.asked.take()) {
                    (Some(line), Some(question)) => {
                        self.output.answered(&line.text)?;
                        question.answer(line.text);
                        self.next_question()?;
                    }
                    // Nobody is there any more to answer this or any other question.
                    (None, Some(_)) => return Err(Stop::Left(Signal::Interrupt)),
                    (line, None) => return Ok(Step::Line(line)),
                },
                () = sleep_until(due), if due.is_some() => self.output.paint()?,
            }
        }
    }

    fn event(&mut self, event: Event) -> Result<(), Stop> {
        match event {
            Event::Question(question) => {
                self.waiting.push_back(*question);
                self.next_question()?;
            }
            Event::Note(note) => self.output.note(note)?,
            Event::Stderr(line) => self.output.stderr(&line)?,
        }
        Ok(())
    }

    /// Puts the next question, if none is open.
    fn next_question(&mut self) -> Result<(), Stop> {
        if self.asked.is_some() {
            return Ok(());
        }
        let Some(mut question) = self.waiting.pop_front() else { return Ok(()) };
        if let Some(call) = question.about.take() {
            self.output.asked_about(call)?;
        }
        if let Some(input) = &mut self.input {
            input.begin_answer();
        }
        self.output.ask(question.text.clone())?;
        self.asked = Some(question);
        Ok(())
    }

    /// Shows what is left to be said.
    fn catch_up(&mut self) -> Result<()> {
        while let Ok(event) = self.events.try_recv() {
            match event {
                Event::Question(_) => {}
                Event::Note(note) => self.output.note(note)?,
                Event::Stderr(line) => self.output.stderr(&line)?,
            }
        }
        Ok(())
    }
}

async fn withdrawn(asked: &mut Option<Question>) {
    match asked {
        Some(question) => question.withdrawn().await,
        None => std::future::pending().await,
    }
}

async fn line(input: &mut Option<Input>, is_answer: bool) -> std::io::Result<Option<Line>> {
    match input {
        Some(input) => input.line(is_answer).await,
        None => Ok(None),
    }
}

async fn sleep_until(due: Option<tokio::time::Instant>) {
    if let Some(due) = due {
        tokio::time::sleep_until(due).await;
    }
}

/// Says what to do about a login.
fn explain(error: ClientError, args: &Args) -> Error {
    let ClientError::AuthRequired { methods, message } = &error else { return error.into() };
    let mut text = format!("the agent wants a login: {message}");
    if methods.is_empty() {
        text.push_str("\nit offers no way to log in from here");
    } else {
        text.push_str("\ntry again with:");
    }
    for method in methods {
        let (what, name, description) = match (method, method.as_agent()) {
            (AuthMethod::Terminal(terminal), _) => {
                let words = args.agent.words().into_iter().chain(terminal.args.iter().cloned());
                let line = format!("(first, in a terminal) {}", words.collect::<Vec<_>>().join(" "));
                (line, terminal.name.clone(), terminal.description.clone())
            }
            (_, Some(agent)) => (format!("--login {}", agent.id), agent.name, agent.description),
            _ => continue,
        };
        let about = description.map(|text| format!(" ({text})")).unwrap_or_default();
        text.push_str(&format!("\n  {what}  {name}{about}"));
    }
    Error::Start(text)
}
