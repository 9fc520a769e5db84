//! A conversation with an agent, whatever it is about: the agent is started, the user looked after
//! meanwhile, and in the end the agent ended and the recording with it.

use std::collections::VecDeque;
use std::io::IsTerminal as _;
use std::pin::pin;
use std::time::Duration;

use duologue_client::{Client, Command, Connection, Error as ClientError, Host, Session};
use duologue_schema::{AuthMethod, Implementation, SessionId};
use duologue_transcript::{Recorder, Side};
use tokio::sync::oneshot;

use super::desk::{Desk, DeskEvents, Event, Question, StderrLines};
use super::input::{Input, Line};
use super::output::Output;
use super::rows::Span;
use crate::commands::TalkArgs;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::recording;
use crate::signals::{Signal, Signals};
use crate::ui::{BAD, DIM, plural};

/// What takes longer deserves a word.
const SOON: Duration = Duration::from_secs(2);
/// How long an agent may take to end after the user has left.
const LEAVING: Duration = Duration::from_millis(500);

/// Why a session is not gone on with.
pub(crate) enum Stop {
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
pub(crate) enum Step<T> {
    /// What was waited for.
    Done(T),
    /// A line, or the end of the input.
    Line(Option<Line>),
    /// Ctrl-C.
    Interrupt,
}

/// A conversation between a user and an agent.
pub(crate) struct Talk {
    pub(super) output: Output,
    recorder: Option<Recorder>,
    /// Ready when all of the agent's stderr was read.
    stderr_end: Option<oneshot::Receiver<()>>,
    pub(super) input: Option<Input>,
    events: DeskEvents,
    signals: Signals,
    /// The session, once there is one.
    pub(super) session: Option<SessionId>,
    /// Whether the end of the last turn has told what went wrong.
    pub(super) told: bool,
    /// The question the user reads.
    pub(super) asked: Option<Question>,
    /// Questions behind it.
    pub(super) waiting: VecDeque<Question>,
    /// True if the agent was refused something.
    pub(super) refused: bool,
    /// True if that counts for the exit code.
    pub(super) counts_refusals: bool,
}

impl Talk {
    /// Holds a conversation. `client` has what the agent may ask for, and may put it to the user;
    /// `converse` does what the conversation is about, once the agent has said hello. `reads` says whether
    /// the user types anything.
    pub(super) async fn hold<H: Host>(
        args: &TalkArgs,
        output: Output,
        reads: bool,
        client: impl FnOnce(Desk) -> Result<Client<H>>,
        converse: impl AsyncFnOnce(&mut Talk, &Connection) -> Result<Exit, Stop>,
    ) -> Result<Exit> {
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
            refused: false,
            counts_refusals: true,
        };
        talk.last_resort(None);
        let outcome = talk.run(args, desk, client, converse).await;
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
            Ok(exit) if talk.refused && talk.counts_refusals => shown.map(|()| exit.or_worse(Exit::Refused)),
            Ok(exit) => shown.map(|()| exit),
        }
    }

    async fn run<H: Host>(
        &mut self,
        args: &TalkArgs,
        desk: Desk,
        client: impl FnOnce(Desk) -> Result<Client<H>>,
        converse: impl AsyncFnOnce(&mut Talk, &Connection) -> Result<Exit, Stop>,
    ) -> Result<Exit, Stop> {
        let agent = self.connect(args, desk, client).await?;
        self.last_resort(Some(agent.clone()));
        let outcome = converse(self, &agent).await;
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

    /// Starts the agent, or the mock, and logs in.
    async fn connect<H: Host>(
        &mut self,
        args: &TalkArgs,
        desk: Desk,
        client: impl FnOnce(Desk) -> Result<Client<H>>,
    ) -> Result<Connection, Stop> {
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
        let info = Implementation::new("duologue", env!("CARGO_PKG_VERSION"));
        let mut client = client(desk)?.info(info).start_timeout(args.patience());
        if let Some(recorder) = &self.recorder {
            client = client.tap(recorder.tap(Side::Client));
        }
        let agent = self.patiently(args, client.spawn(command)).await??;
        if let Some(method) = &args.login {
            self.through(agent.authenticate(method.as_str())).await?.map_err(|error| explain(error, args))?;
        }
        Ok(agent)
    }

    /// A new session in the folder.
    pub(super) async fn open(&mut self, args: &TalkArgs, agent: &Connection) -> Result<Session, Stop> {
        let opened = self.in_time(args, agent, "session/new", agent.new_session(args.folder()?)).await?;
        let session = opened.map_err(|error| explain(error, args))?;
        self.session = Some(session.id().clone());
        Ok(session)
    }

    /// Waits for something that is not to be interrupted but by leaving.
    pub(super) async fn through<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Stop> {
        match self.attend(work, false).await? {
            Step::Done(done) => Ok(done),
            Step::Line(_) | Step::Interrupt => Err(Stop::Left(Signal::Interrupt)),
        }
    }

    /// Waits for the agent, and says so if it takes long and somebody sits there.
    pub(super) async fn patiently<T>(
        &mut self,
        args: &TalkArgs,
        work: impl Future<Output = T>,
    ) -> Result<T, Stop> {
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
    pub(super) async fn in_time<T>(
        &mut self,
        args: &TalkArgs,
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
    pub(super) async fn attend<T>(
        &mut self,
        work: impl Future<Output = T>,
        reading: bool,
    ) -> Result<Step<T>, Stop> {
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
                Some(event) = self.events.events.recv() => self.event(event)?,
                () = withdrawn(&mut self.asked), if asking => {
                    self.asked = None;
                    self.output.withdraw()?;
                    self.next_question()?;
                }
                line = line(&mut self.input, asking), if asking || reading => match (line?, self.asked.take()) {
                    (Some(line), Some(mut question)) => {
                        if self.output.turn_page(&mut question.text, &line.text)? {
                            self.asked = Some(question);
                            continue;
                        }
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

    fn event(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Question(question) => {
                self.waiting.push_back(*question);
                self.next_question()?;
            }
            Event::Note(note) => self.output.note(note)?,
            Event::Audit { entry, shown } => {
                self.refused |= entry.is_refusal();
                self.output.audit(&entry)?;
                let _ = shown.map(|shown| shown.send(()));
            }
            Event::Stderr(line) => self.output.stderr(&line)?,
        }
        Ok(())
    }

    /// Puts the next question, if none is open.
    fn next_question(&mut self) -> Result<()> {
        if self.asked.is_some() {
            return Ok(());
        }
        let Some(mut question) = self.waiting.pop_front() else { return Ok(()) };
        let call = question.about.as_ref().map(|call| call.tool_call_id.clone());
        if let Some(call) = question.about.take() {
            question.text.describe(&self.output.described(call.clone()));
            if question.is_new {
                self.output.asked_about(call);
            }
        }
        if let Some(input) = &mut self.input {
            input.begin_answer();
        }
        self.output.ask(&question.text, call)?;
        self.asked = Some(question);
        Ok(())
    }

    /// Shows what is left to be said. Questions come too late.
    pub(super) fn catch_up(&mut self) -> Result<()> {
        while let Ok(event) = self.events.events.try_recv() {
            if !matches!(event, Event::Question(_)) {
                self.event(event)?;
            }
        }
        let left_out = self.events.take_left_out();
        if left_out > 0 {
            self.refused = true;
            let text = format!("✗ … {} left out", plural(left_out, "more rejected request"));
            self.output.note(vec![Span::new(BAD, &text)])?;
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
pub(super) fn explain(error: ClientError, args: &TalkArgs) -> Error {
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
    Error::Login(text)
}
