//! The `duologue run` command: opens a session and runs turns.

use std::sync::Arc;

use duologue_client::{Client, Connection, Error as ClientError, LocalHost, PromptBuilder, Session, Updates};
use duologue_schema::{
    ConfigOptionUpdate, CurrentModeUpdate, ListSessionsRequest, LoadSessionRequest, OtherTurnNotification,
    PromptResponse, Request as _, ResumeSessionRequest, SessionState, SessionUpdate, StopReason,
};

use serde_json::{Map, json};

use super::agent_session::{AgentSession, Listen, REFUSED, SessionEnd, WaitResult};
use super::audit::AuditEntry;
use super::host::RunHost;
use super::input::{self, InputLine, Typing};
use super::login::explain;
use super::output::{SessionOutput, print_line};
use super::permission::{DefaultAnswer, Rules};
use super::rows::Span;
use super::settings::{self, Setting};
use super::ui_queue::UiQueue;
use crate::commands::run::RunArgs;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::signals::Signal;
use crate::ui::{BAD, DIM};

/// The commands of this program at the prompt.
const OWN_COMMANDS: [&str; 6] = [":help", ":settings", ":mode", ":option", "/exit", "/quit"];
/// Longest name of a command of the agent that is completed.
const LONGEST_COMMAND: usize = 100;
const CANCELLING: &str = "· cancelling; Ctrl-C again leaves";
const OTHER_TURN: &str = "· another client's turn runs; Ctrl-C cancels it";
const HELP: [&str; 6] = [
    "· :settings lists the modes and options; :mode ID and :option NAME=VALUE set one",
    "· /exit, /quit or Ctrl-D leaves; every other line is a prompt",
    "· Alt-Enter, or a backslash at the end, begins a new line; a paste keeps its lines",
    "· Tab completes commands; the arrows go through the prompts of this session",
    "· Esc or Ctrl-C cancels the turn",
    "· a prompt that begins with : needs a space before it",
];

/// Runs the command.
pub(crate) async fn run(args: RunArgs) -> Result<Exit> {
    let prompt = match args.prompt.as_deref() {
        Some("-") => Some(input::all()?),
        prompt => prompt.map(str::to_owned),
    };
    let mut output = SessionOutput::new(args.json);
    if args.verbose {
        output.show_states();
    }
    let is_live = output.is_live();
    let asks = output.can_ask() && input::is_interactive();
    let reads = asks || (prompt.is_none() && !args.list && !args.settings);
    let client = |ui: UiQueue| {
        let rejected = ui.clone();
        let mut client = Client::new(host(&args, ui, asks, is_live)?);
        if args.protocol == 2 {
            client = client.protocol_v2();
        }
        Ok(client.on_rejected(move |_, request, error| {
            AuditEntry::of_rejected(request, error).into_iter().for_each(|entry| rejected.add(entry));
        }))
    };
    let use_agent = async |agent_session: &mut AgentSession, agent: &Connection| {
        agent_session.use_agent(&args, prompt, agent).await
    };
    AgentSession::run(&args.session, output, reads, client, use_agent).await
}

/// Returns the host that serves the agent's requests.
fn host(args: &RunArgs, ui: UiQueue, asks: bool, shows_terminals: bool) -> Result<RunHost> {
    let otherwise = match (args.yes, asks) {
        (true, _) => DefaultAnswer::Allow,
        (false, true) => DefaultAnswer::Ask,
        (false, false) => DefaultAnswer::Refuse,
    };
    let rules = Rules::new(&args.allow, otherwise);
    let mut local = LocalHost::new(args.session.folder()?).permissions(rules.permissions(ui.clone()));
    if args.read_only || args.no_tools {
        local = local.read_only();
    }
    Ok(RunHost { local: Arc::new(local), rules, ui, tools: !args.no_tools, asks, shows_terminals })
}

impl AgentSession {
    async fn use_agent(
        &mut self,
        args: &RunArgs,
        prompt: Option<String>,
        agent: &Connection,
    ) -> Result<Exit, SessionEnd> {
        if args.list {
            let mut listing = agent.list_sessions(None)?;
            let (timed, method) = (&args.session, ListSessionsRequest::METHOD);
            while let Some(session) = self.with_timeout(timed, agent, method, listing.next()).await? {
                let session = session.map_err(|error| explain(error, &args.session))?;
                let title = session.title.unwrap_or_default();
                let updated = session.updated_at.unwrap_or_default();
                let line = format!("{}\t{updated}\t{}\t{title}", session.session_id, session.cwd.display());
                print_line(&line)?;
            }
            return Ok(Exit::Ok);
        }
        let session = self.begin(args, agent).await?;
        if args.settings {
            self.output.settings(&session)?;
            return Ok(Exit::Ok);
        }
        match prompt {
            Some(prompt) => {
                let mut updates = session.updates();
                let exit = self.turn(&session, &mut updates, prompt, args).await?;
                // The last ones are shown when the agent has ended.
                self.idle = Some(updates);
                exit.map_err(SessionEnd::from)
            }
            None => self.interact(&session, args, agent).await,
        }
    }

    /// Opens or restores the session, and sets the mode and options of the command line.
    async fn begin(&mut self, args: &RunArgs, agent: &Connection) -> Result<Session, SessionEnd> {
        let folder = args.session.folder()?;
        let session = if let Some(id) = &args.load {
            let mut replay = agent.load_session(id.as_str(), folder)?;
            let (timed, method) = (&args.session, LoadSessionRequest::METHOD);
            while let Some(update) = self.with_timeout(timed, agent, method, replay.next()).await? {
                self.output.update(&id.as_str().into(), &update?)?;
            }
            self.output.end_replay()?;
            self.uninterrupted(replay.outcome()).await?
        } else if let Some(id) = &args.resume {
            self.with_timeout(
                &args.session,
                agent,
                ResumeSessionRequest::METHOD,
                agent.resume_session(id.as_str(), folder),
            )
            .await?
        } else {
            Ok(self.open(&args.session, agent).await?)
        };
        let session = session.map_err(|error| explain(error, &args.session))?;
        self.session = Some(session.id().clone());
        self.opened = Some(session.clone());
        self.children.follow(&session);
        let state = session.state();
        if let Some(modes) = state.modes {
            self.output.know(&CurrentModeUpdate::new(modes.current_mode_id).into());
        }
        let mode = args.mode.iter().cloned().map(Setting::Mode);
        let options = args.option.iter().cloned().map(|(id, value)| Setting::Option(id, value));
        for setting in mode.chain(options) {
            self.with_timeout(&args.session, agent, setting.method(), setting.set(&session)).await??;
        }
        self.output.know(&ConfigOptionUpdate::new(session.state().config_options).into());
        Ok(session)
    }

    /// Runs turns until the user leaves.
    async fn interact(
        &mut self,
        session: &Session,
        args: &RunArgs,
        agent: &Connection,
    ) -> Result<Exit, SessionEnd> {
        self.output.show_commands();
        if self.output.is_live() {
            // The first words are ours: the agent chooses its name and the session's id.
            let name = agent
                .info()
                .map_or_else(|| "the agent".into(), |info| format!("{} {}", info.name, info.version));
            let text = format!("· connected to {name} · {} · /exit or Ctrl-D leaves", session.id());
            self.output.note(vec![Span::line(DIM, &text)])?;
        }
        let mut updates = session.updates();
        let counts = !input::is_interactive();
        self.counts_refusals = counts;
        let mut worst = Exit::Ok;
        loop {
            let prompt = self.read_prompt(session, &mut updates).await?;
            let prompt = prompt.filter(|prompt| !matches!(prompt.trim(), "/exit" | "/quit"));
            let Some(prompt) = prompt else {
                self.idle = Some(updates);
                return Ok(worst);
            };
            match prompt.trim() {
                "" => {}
                command if !counts && prompt.starts_with(':') => self.own_command(command, session).await?,
                _ => {
                    let outcome = self.turn(session, &mut updates, prompt, args).await?;
                    if counts {
                        worst = worst.or_worse(outcome.as_ref().map_or_else(Error::exit, |exit| *exit));
                    }
                    if let Err(error) = outcome {
                        if agent.peer().is_closing() {
                            return Err(error.into());
                        }
                        self.note_error(&error)?;
                    }
                }
            }
        }
    }

    /// Runs a command of this program.
    async fn own_command(&mut self, line: &str, session: &Session) -> Result<(), SessionEnd> {
        let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let setting = match (command, rest, rest.split_once('=')) {
            (":settings", "", _) => {
                let lines = settings::lines(&session.state());
                let none = ["the agent offers no modes and no options".to_owned()];
                let lines = if lines.is_empty() { none.as_slice() } else { &lines };
                for line in lines {
                    self.output.note(vec![Span::line(DIM, &line.replace('\t', "  "))])?;
                }
                return Ok(());
            }
            (":mode", mode, _) if !mode.is_empty() => Setting::Mode(mode.to_owned()),
            (":option", _, Some((id, value))) => Setting::Option(id.to_owned(), value.to_owned()),
            _ => {
                for line in HELP {
                    self.output.note(vec![Span::new(DIM, line)])?;
                }
                return Ok(());
            }
        };
        match self.uninterrupted(setting.set(session)).await? {
            Ok(()) => {}
            Err(error) => self.note_error(&error)?,
        }
        Ok(())
    }

    fn note_error(&mut self, error: &Error) -> Result<()> {
        Ok(self.output.note(vec![Span::new(BAD, "error"), Span::plain(&format!(": {error}"))])?)
    }

    /// Waits for a prompt and shows the updates that arrive meanwhile. Returns `None` if the user
    /// leaves.
    async fn read_prompt(
        &mut self,
        session: &Session,
        updates: &mut Updates,
    ) -> Result<Option<String>, SessionEnd> {
        if let Some(input) = &mut self.input {
            input.begin_prompt();
            input.complete(words(&session.state()));
        }
        self.output.ask_prompt()?;
        self.show_typed(Typing::Prompt)?;
        let mut has_other_turn = OtherTurnNotification::at_begin(session.meta().as_ref()) == Some(true)
            && session.may_have_other_turn();
        let mut is_cancelled = false;
        if has_other_turn {
            self.output.note(vec![Span::new(DIM, OTHER_TURN)])?;
        }
        loop {
            let next = async {
                tokio::select! {
                    biased;
                    update = updates.next() => Some(update),
                    () = session.other_turn_ended(), if has_other_turn => None,
                }
            };
            match self.wait_for(next, Listen::Prompt).await? {
                WaitResult::Done(None) => {
                    (has_other_turn, is_cancelled) = (false, false);
                    self.output.note(vec![Span::new(DIM, "· the other client's turn has ended")])?;
                }
                WaitResult::Done(Some(Some(update))) => {
                    let update = update?;
                    self.show_update(session, &update)?;
                    if !has_other_turn && is_of_turn(&update) && session.may_have_other_turn() {
                        has_other_turn = true;
                        self.output.note(vec![Span::new(DIM, OTHER_TURN)])?;
                    }
                    if let Some(input) = &mut self.input {
                        input.complete(words(&session.state()));
                    }
                }
                WaitResult::Done(Some(None)) => return Err(session.connection().closed().await.into()),
                WaitResult::Line(Some(InputLine { mut text, shown })) => {
                    self.output.prompted(&text, shown)?;
                    if let Some(input) = self.input.as_mut().filter(|_| shown)
                        && !input.add_pasted(&mut text).await?
                    {
                        self.output.note(vec![Span::new(BAD, REFUSED)])?;
                        text.clear();
                    }
                    return Ok(Some(text));
                }
                WaitResult::Line(None) => return Ok(None),
                WaitResult::Interrupt if has_other_turn && !is_cancelled => {
                    is_cancelled = true;
                    session.cancel();
                    self.output.note(vec![Span::new(DIM, CANCELLING)])?;
                }
                WaitResult::Interrupt => return Err(SessionEnd::Left(Signal::Interrupt)),
                WaitResult::Escape => {}
            }
        }
    }

    /// Runs one turn, behind the updates that arrived before it. The inner result is the agent's response.
    async fn turn(
        &mut self,
        session: &Session,
        updates: &mut Updates,
        prompt: String,
        args: &RunArgs,
    ) -> Result<Result<Exit>, SessionEnd> {
        let mut sent = PromptBuilder::new(prompt.as_str());
        if args.fresh {
            sent = sent.meta(Map::from_iter([("duologue".to_owned(), json!({"fresh": true}))]));
        }
        let begun = self.uninterrupted(session.prompt(sent)).await?;
        if let Ok(turn) = &begun {
            while let Some(update) = updates.next_before(turn) {
                self.show_update(session, &update?)?;
            }
        }
        self.output.begin_turn(&prompt)?;
        let mut cancelled = false;
        let outcome: Result<PromptResponse, ClientError> = match begun {
            Err(error) => Err(error),
            Ok(mut turn) => loop {
                match self.wait_for(turn.next(), Listen::Escape).await? {
                    WaitResult::Done(Some(Ok(update))) => self.show_update(session, &update)?,
                    WaitResult::Done(Some(Err(error))) => break Err(error),
                    WaitResult::Done(None) => break turn.outcome().await,
                    WaitResult::Interrupt if cancelled => return Err(SessionEnd::Left(Signal::Interrupt)),
                    WaitResult::Escape if cancelled => {}
                    WaitResult::Interrupt | WaitResult::Escape => {
                        cancelled = true;
                        turn.cancel();
                        self.output.note(vec![Span::new(DIM, CANCELLING)])?;
                    }
                    WaitResult::Line(_) => {}
                }
            },
        };
        self.show_children().await?;
        // The end of a turn cancels its questions.
        self.open_question = None;
        self.waiting.clear();
        self.output.withdraw()?;
        self.show_queued()?;
        self.output.end_turn(session.id(), &outcome)?;
        self.error_shown = outcome.is_err();
        Ok(match outcome {
            Err(error) => Err(explain(error, &args.session)),
            Ok(_) if cancelled => Ok(Exit::Signal(Signal::Interrupt)),
            Ok(PromptResponse { stop_reason: StopReason::EndTurn, .. }) => Ok(Exit::Ok),
            Ok(_) => Ok(Exit::Found),
        })
    }
}

/// Returns true for an update that only a turn has.
fn is_of_turn(update: &SessionUpdate) -> bool {
    matches!(
        update,
        SessionUpdate::AgentMessageChunk(_)
            | SessionUpdate::AgentThoughtChunk(_)
            | SessionUpdate::ToolCall(_)
            | SessionUpdate::ToolCallUpdate(_)
    )
}

/// Returns the words that Tab completes: the agent's commands and our own.
fn words(state: &SessionState) -> Vec<String> {
    let fits = |name: &&str| {
        name.len() <= LONGEST_COMMAND
            && !name.contains(|char: char| char.is_whitespace() || char.is_control())
    };
    let agents = state.commands.iter().map(|command| &*command.name).filter(fits);
    let mut words: Vec<_> = agents.map(|name| format!("/{name}")).collect();
    words.extend(OWN_COMMANDS.map(str::to_owned));
    words
}
