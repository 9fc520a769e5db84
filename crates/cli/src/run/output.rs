//! The output of a session: a terminal, a pipe, or JSON for a script.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use anstream::ColorChoice;
use duologue_client::{Error, Session};
use duologue_schema::{
    PromptResponse, SessionId, SessionUpdate, StopReason, ToolCall, ToolCallId, ToolCallUpdate,
};
use tokio::time::Instant;

use super::audit::AuditEntry;
use super::input::TypedText;
use super::json;
use super::question::QuestionText;
use super::rows::{self, Span, flat};
use super::screen::{self, Screen, WindowSize};
use super::settings;
use super::terminals::TerminalTail;
use super::text_output::TextOutput;
use crate::ui::{BAD, DIM, MARK, stderr};

/// The shortest time between two drawings of the terminal.
const FRAME: Duration = Duration::from_millis(16);

/// The output of a session.
pub(super) enum SessionOutput {
    /// A terminal, redrawn as updates arrive.
    Live(Box<LiveOutput>),
    /// The agent's final text. On a terminal, questions too.
    Text(Box<TextOutput>),
    /// Every update as JSON.
    Json,
}

/// A terminal.
pub(super) struct LiveOutput {
    screen: Screen,
    /// The time of the last drawing.
    drawn: Instant,
    /// True if something has changed since.
    stale: bool,
}

impl SessionOutput {
    /// Returns the output that fits stdout.
    pub(super) fn new(json: bool) -> Self {
        let stdout = io::stdout();
        if json {
            return SessionOutput::Json;
        }
        // A terminal of the type `dumb` cannot draw over its rows.
        if !stdout.is_terminal() || std::env::var_os("TERM").is_none_or(|term| term == "dumb") {
            return SessionOutput::words();
        }
        let colours = anstream::AutoStream::choice(&stdout) != ColorChoice::Never;
        let screen = Screen::new(size(), colours);
        SessionOutput::Live(Box::new(LiveOutput { screen, drawn: Instant::now(), stale: false }))
    }

    /// Returns an output of final text, for any stdout.
    pub(super) fn words() -> Self {
        SessionOutput::Text(Box::default())
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self, SessionOutput::Live(_))
    }

    /// Returns true if the user sees questions.
    pub(super) fn can_ask(&self) -> bool {
        match self {
            SessionOutput::Live(_) => true,
            SessionOutput::Text(_) => io::stdout().is_terminal(),
            SessionOutput::Json => false,
        }
    }

    /// Changes the terminal, if the output is one.
    fn on_terminal(&mut self, change: impl FnOnce(&mut LiveOutput) -> io::Result<()>) -> io::Result<()> {
        match self {
            SessionOutput::Live(live) => change(live),
            _ => Ok(()),
        }
    }

    /// Shows the agent's slash commands, for a user who types prompts.
    pub(super) fn show_commands(&mut self) {
        if let SessionOutput::Live(live) = self {
            live.screen.shows_commands = true;
        }
    }

    /// Shows the states of the session.
    pub(super) fn show_states(&mut self) {
        if let SessionOutput::Live(live) = self {
            live.screen.shows_states = true;
        }
    }

    /// Begins a turn with the user's prompt. Text that the agent sent before is not part of its answer.
    pub(super) fn begin_turn(&mut self, prompt: &str) -> io::Result<()> {
        match self {
            SessionOutput::Live(live) => live.screen.begin_turn(),
            SessionOutput::Text(text) => text.begin_turn(prompt)?,
            SessionOutput::Json => {}
        }
        Ok(())
    }

    /// Ends the conversation of a loaded session. A pipe does not get it.
    pub(super) fn end_replay(&mut self) -> io::Result<()> {
        if let SessionOutput::Text(text) = self {
            text.forget();
        }
        self.leave()
    }

    /// Shows the output of a terminal.
    pub(super) fn terminal(&mut self, tail: TerminalTail) -> io::Result<()> {
        self.on_terminal(|live| {
            live.screen.terminal(tail);
            live.changed()
        })
    }

    /// Shows an update.
    pub(super) fn update(&mut self, session: &SessionId, update: &SessionUpdate) -> io::Result<()> {
        match self {
            SessionOutput::Live(live) => {
                live.screen.update(update);
                live.changed()
            }
            SessionOutput::Text(text) => match text.update(update)? {
                Some(note) => self.note(note),
                None => Ok(()),
            },
            SessionOutput::Json => json::update(session, update),
        }
    }

    /// Applies an initial value of the session without showing it.
    pub(super) fn know(&mut self, update: &SessionUpdate) {
        if let SessionOutput::Live(live) = self {
            live.screen.know(update);
        }
    }

    /// Applies the tool call of a permission request. The question shows it.
    pub(super) fn apply_question(&mut self, call: ToolCallUpdate) {
        if let SessionOutput::Live(live) = self {
            live.screen.update(&SessionUpdate::from(call));
        }
    }

    /// Returns the known tool call with the fields of a permission request.
    pub(super) fn described(&self, call: ToolCallUpdate) -> ToolCall {
        match self {
            SessionOutput::Live(live) => live.screen.described(call),
            SessionOutput::Text(conversation) => screen::described(&conversation.conversation, call),
            SessionOutput::Json => call.into(),
        }
    }

    /// Shows an entry of the audit trail.
    pub(super) fn audit(&mut self, entry: &AuditEntry) -> io::Result<()> {
        match self {
            SessionOutput::Json => json::audit(entry),
            _ => self.note(entry.line()),
        }
    }

    /// Prints the modes and options of the session, one a line, as the result of the command.
    pub(super) fn settings(&mut self, session: &Session) -> io::Result<()> {
        if let SessionOutput::Json = self {
            return json::settings(session.id(), &session.state());
        }
        self.leave()?;
        settings::lines(&session.state()).iter().try_for_each(|line| print_line(line))
    }

    /// Shows a note of this program.
    pub(super) fn note(&mut self, note: Vec<Span>) -> io::Result<()> {
        match self {
            SessionOutput::Live(live) => {
                live.screen.note(note);
                live.changed()
            }
            _ if !io::stderr().is_terminal() => writeln!(stderr(), "{}", flat(&note)),
            // The terminal must not break a row where text of the agent goes on.
            _ => {
                let rows = rows::note(&note, stderr_size().width.saturating_sub(1), false);
                rows.iter().try_for_each(|row| writeln!(stderr(), "{row}"))
            }
        }
    }

    /// Shows a line of the agent's stderr.
    pub(super) fn stderr(&mut self, line: &str) -> io::Result<()> {
        self.note(vec![Span::line(DIM, &format!("stderr: {line}"))])
    }

    /// Ends the turn.
    pub(super) fn end_turn(
        &mut self,
        session: &SessionId,
        outcome: &Result<PromptResponse, Error>,
    ) -> io::Result<()> {
        let stopped = match outcome {
            Ok(PromptResponse { stop_reason: StopReason::EndTurn, .. }) | Err(_) => None,
            Ok(response) => Some(vec![Span::line(BAD, &format!("· stopped: {}", response.stop_reason))]),
        };
        match self {
            SessionOutput::Live(live) => {
                live.screen.end_turn();
                if let Some(note) = stopped {
                    live.screen.note(note);
                }
                live.leave()
            }
            SessionOutput::Text(text) => {
                text.end()?;
                stopped.map_or(Ok(()), |note| self.note(note))
            }
            SessionOutput::Json => json::outcome(session, outcome),
        }
    }

    /// Shows the error that ended the command.
    pub(super) fn fail(
        &mut self,
        session: Option<&SessionId>,
        error: &crate::error::Error,
    ) -> io::Result<()> {
        match self {
            SessionOutput::Json => json::failure(session, error),
            _ => Ok(()),
        }
    }

    /// Shows a question, which describes `call`.
    pub(super) fn ask(&mut self, question: &QuestionText, call: Option<ToolCallId>) -> io::Result<()> {
        match self {
            SessionOutput::Live(live) => {
                live.screen.ask(question.clone(), call);
                live.paint()
            }
            SessionOutput::Text(_) if self.can_ask() => write(&question.flat(size())),
            _ => Ok(()),
        }
    }

    /// Shows the line that the user edits behind the question.
    pub(super) fn show_typed(&mut self, typed: Option<TypedText>) -> io::Result<()> {
        self.on_terminal(|live| {
            live.screen.show_typed(typed);
            live.paint()
        })
    }

    /// Draws everything again, below the output of another program.
    pub(super) fn redraw(&mut self) -> io::Result<()> {
        self.on_terminal(|live| {
            live.screen.forget_drawn();
            live.paint()
        })
    }

    /// Turns a page of the question, if the user typed that. `shown` is true if the terminal echoed it.
    pub(super) fn turn_page(
        &mut self,
        question: &mut QuestionText,
        typed: &str,
        shown: bool,
    ) -> io::Result<bool> {
        match self {
            SessionOutput::Live(live) => {
                let turned = live.screen.turn_page(typed, shown);
                live.paint()?;
                Ok(turned)
            }
            SessionOutput::Text(_) if question.turn_page(typed, size()) => {
                write(&question.flat(size()))?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Returns true if the user reads a page of the question.
    pub(super) fn is_paging(&self, question: &QuestionText) -> bool {
        match self {
            SessionOutput::Live(live) => live.screen.is_paging(),
            _ => question.is_paging(),
        }
    }

    /// Shows the prompt sign.
    pub(super) fn ask_prompt(&mut self) -> io::Result<()> {
        self.ask(&vec![Span::new(MARK, "> ")].into(), None)
    }

    /// Removes the question.
    pub(super) fn withdraw(&mut self) -> io::Result<()> {
        self.on_terminal(|live| {
            live.screen.withdraw();
            live.paint()
        })
    }

    /// Applies the line that answered the question. `shown` is true if the terminal echoed it.
    pub(super) fn answered(&mut self, line: &str, shown: bool) -> io::Result<()> {
        self.on_terminal(|live| {
            live.screen.answered(line, shown);
            live.paint()
        })
    }

    /// Keeps the typed prompt on the screen. `shown` is true if the terminal echoed it.
    pub(super) fn prompted(&mut self, prompt: &str, shown: bool) -> io::Result<()> {
        self.on_terminal(|live| {
            if shown {
                live.screen.typed();
                return Ok(());
            }
            live.screen.ask(vec![Span::new(MARK, "> "), Span::plain(prompt)].into(), None);
            live.leave()
        })
    }

    /// Keeps the drawn rows and moves the cursor below them.
    pub(super) fn leave(&mut self) -> io::Result<()> {
        match self {
            SessionOutput::Live(live) => live.leave(),
            SessionOutput::Text(text) => text.leave(),
            SessionOutput::Json => Ok(()),
        }
    }

    /// Returns the time of the next drawing, if one is due.
    pub(super) fn due(&self) -> Option<Instant> {
        match self {
            SessionOutput::Live(live) if live.stale => Some(live.drawn + FRAME),
            _ => None,
        }
    }

    /// Draws the changes.
    pub(super) fn paint(&mut self) -> io::Result<()> {
        self.on_terminal(LiveOutput::paint)
    }
}

impl LiveOutput {
    /// Draws now, or marks the screen as stale if the last drawing is too recent.
    fn changed(&mut self) -> io::Result<()> {
        self.stale = true;
        if self.drawn.elapsed() >= FRAME { self.paint() } else { Ok(()) }
    }

    fn paint(&mut self) -> io::Result<()> {
        let mut bytes = self.screen.resize(size());
        bytes.push_str(&self.screen.paint());
        (self.drawn, self.stale) = (Instant::now(), false);
        write(&bytes)
    }

    fn leave(&mut self) -> io::Result<()> {
        self.paint()?;
        write(&self.screen.leave())
    }
}

fn write(bytes: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes.as_bytes())?;
    stdout.flush()
}

/// Prints a line of a result. A terminal gets it escaped.
pub(super) fn print_line(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{}", Span::line(anstyle::Style::new(), line).as_str())
}

/// Returns the size of the window of stdout.
pub(super) fn size() -> WindowSize {
    #[cfg(unix)]
    let size = window(rustix::stdio::stdout());
    #[cfg(not(unix))]
    let size = None;
    size.unwrap_or(USUAL_SIZE)
}

/// Returns the size of the window of stderr.
fn stderr_size() -> WindowSize {
    #[cfg(unix)]
    let size = window(rustix::stdio::stderr());
    #[cfg(not(unix))]
    let size = None;
    size.unwrap_or(USUAL_SIZE)
}

/// The size of a window that does not report one.
const USUAL_SIZE: WindowSize = WindowSize { width: 80, height: 24 };

#[cfg(unix)]
fn window(terminal: impl std::os::fd::AsFd) -> Option<WindowSize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    let size = WindowSize { width: size.ws_col.into(), height: size.ws_row.into() };
    (size.width > 0 && size.height > 0).then_some(size)
}
