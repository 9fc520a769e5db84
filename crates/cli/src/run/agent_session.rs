//! The lifetime of an agent under a command: starts the agent, serves the user while it works, and
//! ends the agent and the recording.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::IsTerminal as _;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use duologue_client::{
    Client, Command, Connection, Error as ClientError, Host, Result as ClientResult, Session, Updates,
};
use duologue_schema::{Implementation, NewSessionRequest, Request as _, SessionId, SessionUpdate};
use duologue_transcript::{Recorder, Side};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::children::ShownChildren;
use super::input::{InputEvent, InputLine, Typing, UserInput};
use super::login::{TerminalLogin, explain};
use super::output::SessionOutput;
use super::rows::Span;
use super::ui_queue::{QueuedQuestion, StderrLines, UiEvent, UiEvents, UiQueue};
use crate::commands::AgentSessionArgs;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::recording;
use crate::signals::{Signal, Signals};
use crate::ui::{BAD, DIM, plural};

/// The delay after which a wait is announced.
const SOON: Duration = Duration::from_secs(2);
/// Limit on the time in which the agent has to end after the user has left and it was sent SIGTERM. It may save its state.
const LEAVING: Duration = Duration::from_secs(2);
/// Limit on the time in which a killed agent has to end.
const KILLED: Duration = Duration::from_millis(500);
/// Limit on the time in which the stderr of an ended agent ends. Only a child process of the agent reaches it.
const STDERR_LIMIT: Duration = Duration::from_secs(2);

/// The number of events of a wait after which the input has its turn, though the agent sends without a pause.
const INPUT_TURN: u32 = 16;
const TOO_LONG: &str = "· a text does not fit (1 MiB for a paste, 2 MiB for all that is typed), so this line cannot be sent; \
     put the text into a file, and pass - as the prompt";
/// The note behind a line that is given up.
pub(super) const REFUSED: &str = "· not sent, since a text did not fit; Up shows the rest of a prompt";

/// The reason for which a session ends early.
pub(crate) enum SessionEnd {
    /// The user left, or a signal demands the end.
    Left(Signal),
    /// An error.
    Failed(Error),
}

impl<E: Into<Error>> From<E> for SessionEnd {
    fn from(error: E) -> Self {
        SessionEnd::Failed(error.into())
    }
}

/// The first event of a wait.
pub(crate) enum WaitResult<T> {
    /// The awaited value.
    Done(T),
    /// A line of the user, or the end of the input.
    Line(Option<InputLine>),
    /// Ctrl-C.
    Interrupt,
    /// Esc, during a turn.
    Escape,
}

/// The input that a wait reacts to, besides answers and signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    Nothing,
    /// Esc.
    Escape,
    /// A prompt.
    Prompt,
}

/// An agent and the user of this command, while both are connected.
pub(crate) struct AgentSession {
    pub(super) output: SessionOutput,
    recorder: Option<Recorder>,
    /// Ready when the agent's stderr is read to its end.
    stderr_end: Option<oneshot::Receiver<()>>,
    pub(super) input: Option<UserInput>,
    /// True if the user types prompts or answers.
    reads: bool,
    events: UiEvents,
    signals: Signals,
    /// The session, once it is open.
    pub(super) session: Option<SessionId>,
    /// The handle of the session whose child sessions are shown.
    pub(super) opened: Option<Session>,
    /// Updates outside of turns that may arrive until the agent has ended.
    pub(super) idle: Option<Updates>,
    /// The child sessions of the session.
    pub(super) children: ShownChildren,
    /// The number of updates of children since the work of a wait had its turn.
    child_updates: u32,
    /// True if the end of the last turn has shown its error.
    pub(super) error_shown: bool,
    /// The question that the user reads.
    pub(super) open_question: Option<QueuedQuestion>,
    /// The questions behind it.
    pub(super) waiting: VecDeque<QueuedQuestion>,
    /// True if a question ended while the user turned its pages, and no other was shown since.
    turned_page: bool,
    /// True if a request of the agent was rejected.
    pub(super) refused: bool,
    /// True if that counts for the exit code.
    pub(super) counts_refusals: bool,
    /// The number of events since the input had its turn.
    events_since_input: u32,
}

impl AgentSession {
    /// Runs `use_agent` with an initialized agent. `client` serves the agent's requests and may send
    /// questions to the user through the queue. `reads` is true if the user types prompts or answers.
    pub(super) async fn run<H: Host>(
        args: &AgentSessionArgs,
        output: SessionOutput,
        reads: bool,
        client: impl FnOnce(UiQueue) -> Result<Client<H>>,
        use_agent: impl AsyncFnOnce(&mut AgentSession, &Connection) -> Result<Exit, SessionEnd>,
    ) -> Result<Exit> {
        let (ui, events) = UiQueue::new();
        let recorder = match &args.record {
            Some(path) => {
                Some(recording::create(Recorder::builder().program(args.agent.words()), path, args.force)?)
            }
            None => None,
        };
        let signals = Signals::listen()?;
        // The program of a login reads the same terminal first.
        let reads_now = reads && args.login.is_none();
        let input = if reads_now { Some(UserInput::start(output.is_live())?) } else { None };
        let mut agent_session = AgentSession {
            output,
            recorder,
            stderr_end: None,
            input,
            reads,
            events,
            signals,
            session: None,
            opened: None,
            idle: None,
            children: ShownChildren::default(),
            child_updates: 0,
            error_shown: false,
            open_question: None,
            waiting: VecDeque::new(),
            turned_page: false,
            refused: false,
            counts_refusals: true,
            events_since_input: 0,
        };
        agent_session.last_resort(None);
        let outcome = agent_session.drive(args, ui, client, use_agent).await;
        let shown = agent_session.finish(&outcome);
        if let (Some(recorder), Some(path)) = (agent_session.recorder.take(), &args.record) {
            match &outcome {
                Err(SessionEnd::Failed(Error::Agent(ClientError::Spawn { .. }))) => {
                    recording::remove(recorder, path).await;
                }
                _ => recorder.finish().await?,
            }
        }
        match outcome {
            Err(SessionEnd::Left(signal)) => Ok(Exit::Signal(signal)),
            Err(SessionEnd::Failed(error)) => Err(if args.stderr { error.with_detail() } else { error }),
            Ok(exit) if agent_session.refused && agent_session.counts_refusals => {
                shown.map(|()| exit.or_worse(Exit::Refused))
            }
            Ok(exit) => shown.map(|()| exit),
        }
    }

    async fn drive<H: Host>(
        &mut self,
        args: &AgentSessionArgs,
        ui: UiQueue,
        client: impl FnOnce(UiQueue) -> Result<Client<H>>,
        use_agent: impl AsyncFnOnce(&mut AgentSession, &Connection) -> Result<Exit, SessionEnd>,
    ) -> Result<Exit, SessionEnd> {
        let agent = self.connect(args, ui, client).await?;
        self.last_resort(Some(agent.clone()));
        let outcome = use_agent(self, &agent).await;
        self.end_agent(args, &agent, outcome).await
    }

    /// Ends the agent, and records and shows its end.
    async fn end_agent(
        &mut self,
        args: &AgentSessionArgs,
        agent: &Connection,
        outcome: Result<Exit, SessionEnd>,
    ) -> Result<Exit, SessionEnd> {
        let shown = self.output.leave();
        if let Some(recorder) = self.recorder.as_ref().filter(|_| !agent.peer().is_closing()) {
            recorder.eof(Side::Client);
        }
        let mut ended = match outcome {
            Err(SessionEnd::Left(_)) => {
                agent.terminate();
                tokio::time::timeout(LEAVING, agent.close()).await.ok()
            }
            // A slow agent has as long as it needs, unless the user interrupts.
            _ => match self.wait_for(agent.close(), Listen::Nothing).await {
                Ok(WaitResult::Done(status)) => Some(status),
                _ => None,
            },
        };
        if ended.is_none() {
            agent.kill();
            ended = tokio::time::timeout(KILLED, agent.close()).await.ok();
        }
        if let Some(end) = self.stderr_end.take() {
            // The last lines may still be in the pipe. A child process of the agent may keep it open.
            let _ = tokio::time::timeout(STDERR_LIMIT, end).await;
        }
        if let (Some(mut idle), Some(session)) = (self.idle.take(), self.session.clone()) {
            while let Ok(Some(Ok(update))) = tokio::time::timeout(Duration::ZERO, idle.next()).await {
                self.output.update(&session, &update)?;
            }
        }
        if let Some(recorder) = &self.recorder {
            if agent.peer().is_closing() {
                recorder.eof(Side::Agent);
            }
            if let Some(Some(status)) = ended {
                recorder.exit(status);
            }
        }
        if args.stderr {
            self.show_noise(agent)?;
        }
        match outcome {
            Ok(exit) => Ok(shown.map(|()| exit)?),
            outcome => outcome,
        }
    }

    /// Sets the emergency exit: if this program is stuck and a signal arrives, it kills the agent and
    /// restores the terminal.
    fn last_resort(&self, agent: Option<Connection>) {
        let restore = self.input.as_ref().map(UserInput::restore);
        self.signals.last_resort(move || {
            if let Some(agent) = agent {
                agent.kill();
                // A task kills it.
                std::thread::sleep(Duration::from_millis(50));
            }
            if let Some(restore) = restore {
                restore();
            }
        });
    }

    /// Shows the queued events and a failure, unless the user has left.
    fn finish(&mut self, outcome: &Result<Exit, SessionEnd>) -> Result<()> {
        if let Err(SessionEnd::Left(_)) = outcome {
            return Ok(());
        }
        self.show_queued()?;
        self.output.leave()?;
        match outcome {
            Err(SessionEnd::Failed(error)) if !self.error_shown => {
                Ok(self.output.fail(self.session.as_ref(), error)?)
            }
            _ => Ok(()),
        }
    }

    /// Shows the lines of the agent's stdout that are not messages.
    fn show_noise(&mut self, agent: &Connection) -> Result<()> {
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

    /// Starts the agent, or the mock agent, and logs in.
    async fn connect<H: Host>(
        &mut self,
        args: &AgentSessionArgs,
        ui: UiQueue,
        client: impl FnOnce(UiQueue) -> Result<Client<H>>,
    ) -> Result<Connection, SessionEnd> {
        let mut command = match args.agent.given() {
            Some(command) => command,
            None => Command::new(std::env::current_exe()?).arg("mock"),
        };
        let recorder = self.recorder.clone();
        let is_complete = args.stderr || recorder.is_some();
        let (lines, end) = StderrLines::new(Some(ui.clone()), args.stderr, recorder);
        command = command.stderr_to(lines);
        self.stderr_end = is_complete.then_some(end);
        let info = Implementation::new("duologue", env!("CARGO_PKG_VERSION"));
        let mut client = client(ui)?.info(info).start_timeout(args.patience());
        if let Some(recorder) = &self.recorder {
            client = client.tap(recorder.tap(Side::Client));
        }
        let agent = self.wait_for_agent(args, client.spawn(command)).await??;
        let Some(method) = &args.login else { return Ok(agent) };
        let terminal_login = TerminalLogin::find(agent.auth_methods(), method, args)?;
        if let Some(login) = &terminal_login {
            self.log_in(login, method).await?;
        }
        if self.reads {
            self.input = Some(UserInput::start(self.output.is_live())?);
            self.last_resort(Some(agent.clone()));
        }
        if terminal_login.is_none() {
            self.wait_for_agent(args, agent.authenticate(method.as_str()).into_future())
                .await?
                .map_err(|error| explain(error, args))?;
        }
        Ok(agent)
    }

    /// Opens a session in the folder.
    pub(super) async fn open(
        &mut self,
        args: &AgentSessionArgs,
        agent: &Connection,
    ) -> Result<Session, SessionEnd> {
        let opened = self
            .with_timeout(args, agent, NewSessionRequest::METHOD, agent.new_session(args.folder()?))
            .await?;
        let session = opened.map_err(|error| explain(error, args))?;
        self.session = Some(session.id().clone());
        Ok(session)
    }

    /// Waits for `work`. An interrupt ends the session.
    pub(super) async fn uninterrupted<T>(&mut self, work: impl Future<Output = T>) -> Result<T, SessionEnd> {
        match self.wait_for(work, Listen::Nothing).await? {
            WaitResult::Done(done) => Ok(done),
            _ => Err(SessionEnd::Left(Signal::Interrupt)),
        }
    }

    /// Waits for the agent. On a terminal, a long wait is announced.
    pub(super) async fn wait_for_agent<T>(
        &mut self,
        args: &AgentSessionArgs,
        work: impl Future<Output = T>,
    ) -> Result<T, SessionEnd> {
        let mut work = pin!(work);
        if let Ok(done) = self.uninterrupted(tokio::time::timeout(SOON, &mut work)).await? {
            return Ok(done);
        }
        if self.output.is_live() || std::io::stderr().is_terminal() {
            let text = format!("· waiting for {}… (Ctrl-C leaves)", args.program());
            self.output.note(vec![Span::line(DIM, &text)])?;
        }
        self.uninterrupted(work).await
    }

    /// Waits for an answer that comes before the first turn, as long as the command line allows.
    pub(super) async fn with_timeout<T>(
        &mut self,
        args: &AgentSessionArgs,
        agent: &Connection,
        method: &str,
        work: impl Future<Output = T>,
    ) -> Result<T, SessionEnd> {
        let patience = args.patience();
        if let Ok(done) = self.wait_for_agent(args, tokio::time::timeout(patience, work)).await? {
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

    /// Waits for `work`. Meanwhile it shows the agent's questions and redraws the screen.
    ///
    /// Updates are shown before questions, in the order of the wire.
    pub(super) async fn wait_for<T>(
        &mut self,
        work: impl Future<Output = T>,
        listen: Listen,
    ) -> Result<WaitResult<T>, SessionEnd> {
        let mut work = pin!(work);
        loop {
            let due = self.output.due();
            let typing = match (&self.open_question, listen) {
                (Some(_), _) => Typing::Answer,
                (None, Listen::Prompt) => Typing::Prompt,
                (None, _) => Typing::Nothing,
            };
            self.events_since_input += 1;
            if self.events_since_input >= INPUT_TURN {
                self.events_since_input = 0;
                if let Some(event) = arrived_event(&mut self.input, typing).await {
                    if let Some(result) = self.input_event(event?, typing, listen)? {
                        return Ok(result);
                    }
                    continue;
                }
            }
            // The work has its turn, though children send without a pause.
            if self.child_updates >= INPUT_TURN {
                self.child_updates = 0;
                let polled = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
                if let Poll::Ready(done) = polled {
                    return Ok(WaitResult::Done(done));
                }
            }
            tokio::select! {
                biased;
                signal = self.signals.next() => match signal {
                    // With a half-typed prompt it begins a new one.
                    Signal::Interrupt if typing == Typing::Prompt && self.clear_prompt()? => {}
                    Signal::Interrupt => return Ok(WaitResult::Interrupt),
                    signal => return Err(SessionEnd::Left(signal)),
                },
                // A child is shown in front of later updates of its session.
                (child, update) = self.children.next() => {
                    self.child_updates += 1;
                    self.show_child(&child, update)?;
                }
                done = &mut work => return Ok(WaitResult::Done(done)),
                Some(event) = self.events.events.recv() => self.event(event)?,
                () = withdrawn(&mut self.open_question), if typing == Typing::Answer => {
                    let withdrawn = self.open_question.take();
                    self.turned_page |= withdrawn.is_some_and(|question| self.output.is_paging(&question.text));
                    self.output.withdraw()?;
                    self.next_question()?;
                    self.ask_again(listen)?;
                }
                event = next_event(&mut self.input, typing) => {
                    if let Some(result) = self.input_event(event?, typing, listen)? {
                        return Ok(result);
                    }
                }
                () = at(due) => self.output.paint()?,
            }
        }
    }

    /// Shows an update of the session, and follows the child that it announces.
    pub(super) fn show_update(
        &mut self,
        session: &Session,
        update: &SessionUpdate,
    ) -> Result<(), SessionEnd> {
        if let SessionUpdate::SubagentUpdate(child) = update {
            self.children.end_messages(&mut self.output, Some(&child.session_id))?;
        }
        self.output.update(session.id(), update)?;
        if let SessionUpdate::SubagentUpdate(_) = update {
            self.children.follow(session);
        }
        Ok(())
    }

    /// Shows the updates of children that have arrived, and the rest of their messages.
    pub(super) async fn show_children(&mut self) -> Result<(), SessionEnd> {
        while let Ok((child, update)) = tokio::time::timeout(Duration::ZERO, self.children.next()).await {
            self.show_child(&child, update)?;
        }
        Ok(self.children.end_messages(&mut self.output, None)?)
    }

    fn show_child(
        &mut self,
        child: &SessionId,
        update: ClientResult<SessionUpdate>,
    ) -> Result<(), SessionEnd> {
        // The session fails for the same reason.
        let Ok(update) = update else { return Ok(()) };
        self.children.show(&mut self.output, child, &update)?;
        if let (SessionUpdate::SubagentUpdate(_), Some(session)) = (&update, &self.opened) {
            self.children.follow(session);
        }
        Ok(())
    }

    /// Applies an event of the input. Returns the result of the wait, if the event ends it.
    fn input_event<T>(
        &mut self,
        event: InputEvent,
        typing: Typing,
        listen: Listen,
    ) -> Result<Option<WaitResult<T>>, SessionEnd> {
        match (event, typing) {
            (InputEvent::Line(line), Typing::Answer) => {
                self.answer(&line)?;
                self.ask_again(listen)?;
            }
            (InputEvent::Line(line), _) => return Ok(Some(WaitResult::Line(Some(line)))),
            // The input has ended, so no question can be answered.
            (InputEvent::End, Typing::Answer) => return Err(SessionEnd::Left(Signal::Interrupt)),
            (InputEvent::End, Typing::Prompt) => return Ok(Some(WaitResult::Line(None))),
            (InputEvent::End, Typing::Nothing) => {}
            (InputEvent::Changed, typing) => self.show_typed(typing)?,
            (InputEvent::TooLong, typing) => {
                self.output.note(vec![Span::new(BAD, TOO_LONG)])?;
                self.show_typed(typing)?;
            }
            (InputEvent::Refused, typing) => {
                self.output.note(vec![Span::new(BAD, REFUSED)])?;
                self.show_typed(typing)?;
            }
            (InputEvent::Redraw, typing) => {
                self.output.redraw()?;
                self.show_typed(typing)?;
            }
            (InputEvent::Escape, _) => {
                let shown = self.open_question.as_mut();
                let closes_page = match shown {
                    Some(question) => self.output.turn_page(&mut question.text, "q", false)?,
                    None => false,
                };
                if !closes_page && listen == Listen::Escape {
                    return Ok(Some(WaitResult::Escape));
                }
            }
        }
        Ok(None)
    }

    /// Answers the open question with a line, or turns its page.
    fn answer(&mut self, line: &InputLine) -> Result<()> {
        let Some(mut question) = self.open_question.take() else { return Ok(()) };
        if self.output.turn_page(&mut question.text, &line.text, line.shown)? {
            self.open_question = Some(question);
            return Ok(());
        }
        self.output.answered(&line.text, line.shown)?;
        question.answer(line.text.clone());
        self.next_question()
    }

    /// Shows the prompt again after a question that came between.
    fn ask_again(&mut self, listen: Listen) -> Result<()> {
        if listen == Listen::Prompt && self.open_question.is_none() {
            self.output.ask_prompt()?;
            self.show_typed(Typing::Prompt)?;
        }
        Ok(())
    }

    /// Shows the edited line.
    pub(super) fn show_typed(&mut self, typing: Typing) -> Result<()> {
        let typed = self.input.as_ref().and_then(|input| input.typed(typing));
        Ok(self.output.show_typed(typed)?)
    }

    /// Removes a half-typed prompt. Returns false if there is none.
    fn clear_prompt(&mut self) -> Result<bool> {
        let had_text = self.input.as_mut().is_some_and(|input| input.clear(Typing::Prompt));
        self.show_typed(Typing::Prompt)?;
        Ok(had_text)
    }

    fn event(&mut self, event: UiEvent) -> Result<()> {
        match event {
            UiEvent::Question(question) => {
                self.waiting.push_back(*question);
                self.next_question()?;
            }
            UiEvent::Note(note) => self.output.note(note)?,
            UiEvent::Audit { entry, shown } => {
                self.refused |= entry.is_refusal();
                self.output.audit(&entry)?;
                let _ = shown.map(|shown| shown.send(()));
            }
            UiEvent::Stderr(line) => self.output.stderr(line.trim_end())?,
            UiEvent::Terminal(tail) => self.output.terminal(tail)?,
        }
        Ok(())
    }

    /// Shows the next question, if none is open.
    fn next_question(&mut self) -> Result<()> {
        if self.open_question.is_some() {
            return Ok(());
        }
        let Some(mut question) = self.waiting.pop_front() else { return Ok(()) };
        let call = question.about.as_ref().map(|call| call.tool_call_id.clone());
        if let Some(call) = question.about.take() {
            question.text.describe(&self.output.described(call.clone()));
            if question.is_new {
                self.output.apply_question(call);
            }
        }
        if std::mem::take(&mut self.turned_page) {
            question.text.ignore_enter();
        }
        if let Some(input) = &mut self.input {
            input.begin_answer();
        }
        self.output.ask(&question.text, call)?;
        self.open_question = Some(question);
        self.show_typed(Typing::Answer)?;
        Ok(())
    }

    /// Shows the queued events. Questions are dropped, since their turn has ended.
    pub(super) fn show_queued(&mut self) -> Result<()> {
        while let Ok(event) = self.events.events.try_recv() {
            if !matches!(event, UiEvent::Question(_)) {
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

async fn withdrawn(question: &mut Option<QueuedQuestion>) {
    match question {
        Some(question) => question.withdrawn().await,
        None => std::future::pending().await,
    }
}

async fn next_event(input: &mut Option<UserInput>, typing: Typing) -> std::io::Result<InputEvent> {
    match input {
        Some(input) => input.next(typing).await,
        None if typing == Typing::Nothing => std::future::pending().await,
        None => Ok(InputEvent::End),
    }
}

/// Returns the next event of a user's input, if it has arrived.
async fn arrived_event(input: &mut Option<UserInput>, typing: Typing) -> Option<std::io::Result<InputEvent>> {
    let input = input.as_mut().filter(|input| input.is_terminal())?;
    tokio::select! {
        biased;
        event = input.next(typing) => Some(event),
        () = std::future::ready(()) => None,
    }
}

/// Waits until this time, or forever without one.
pub(super) async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
