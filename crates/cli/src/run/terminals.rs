//! The output of the terminals that this program runs, as the screen shows it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use duologue_client::{HostContext, LocalHost};
use duologue_schema::{
    DisplayTerminal, SessionId, TerminalExitStatus, TerminalId, TerminalOutputRequest, TerminalOutputResponse,
};

use super::rows::Span;
use super::ui_queue::UiQueue;
use crate::ui::{BAD, DIM};

/// The pause between two looks at the output of a program.
const EVERY: Duration = Duration::from_millis(100);
/// Limit on the shown lines of an output, and on the characters of a line.
const LINES: usize = 12;
const LINE_CHARS: usize = 500;
/// The bytes at the end of an output that are looked at, more than the lines above need. A longer line begins in the
/// middle.
const COPIED_BYTES: usize = 32 * 1024;
/// Limit on the remembered terminals. The oldest is forgotten first.
const TERMINALS: usize = 64;

/// The last lines of a terminal's output.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TerminalTail {
    id: TerminalId,
    lines: Vec<String>,
    /// True if the output began before these lines.
    is_cut: bool,
    end: Option<TerminalExitStatus>,
}

impl TerminalTail {
    pub(super) fn of(id: &TerminalId, response: &TerminalOutputResponse) -> Self {
        let text = anstream::adapter::strip_str(&response.output).to_string();
        let mut lines = text.trim_end().rsplit('\n').filter(|_| !text.trim_end().is_empty());
        // Text behind a carriage return replaces the line.
        let shown = |line: &str| {
            line.trim_end().rsplit('\r').next().unwrap_or_default().chars().take(LINE_CHARS).collect()
        };
        let mut tail: Vec<String> = lines.by_ref().take(LINES).map(shown).collect();
        tail.reverse();
        let is_cut = response.truncated || lines.next().is_some();
        TerminalTail { id: id.clone(), lines: tail, is_cut, end: response.exit_status.clone() }
    }

    /// Returns the last lines of a terminal of the agent.
    pub(super) fn of_agent(terminal: &DisplayTerminal) -> Self {
        let (output, truncated) = terminal.output();
        let least = output.len().saturating_sub(COPIED_BYTES);
        let start = (least..=output.len()).find(|at| output.is_char_boundary(*at)).unwrap_or_default();
        let end = output.get(start..).unwrap_or_default();
        let mut response = TerminalOutputResponse::new(end, truncated || start > 0);
        response.exit_status = terminal.exit_status.as_ref().map(|status| {
            let mut end = TerminalExitStatus::new();
            end.exit_code = status.exit_code.and_then(|code| u32::try_from(code).ok());
            end.signal.clone_from(&status.signal);
            end
        });
        Self::of(&terminal.id, &response)
    }

    pub(super) fn id(&self) -> &TerminalId {
        &self.id
    }

    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Returns the rows of a tool call that show the output.
    pub(super) fn spans(&self) -> Vec<Span> {
        let mut rows = Vec::new();
        if self.is_cut {
            rows.push((DIM, "…"));
        }
        rows.extend(self.lines.iter().map(|line| (DIM, line.as_str())));
        let end = self.end.as_ref().and_then(|end| match (end.exit_code, &end.signal) {
            (Some(0), _) => None,
            (Some(code), _) => Some(format!("[ended with code {code}]")),
            (None, Some(signal)) => Some(format!("[ended by {signal}]")),
            (None, None) => Some("[ended]".to_owned()),
        });
        rows.extend(end.iter().map(|end| (BAD, end.as_str())));
        if rows.is_empty() {
            rows.push((DIM, if self.has_ended() { "[no output]" } else { "[no output yet]" }));
        }
        rows.into_iter().flat_map(|(style, row)| [Span::plain("\n  "), Span::line(style, row)]).collect()
    }
}

/// The terminals whose output is known.
#[derive(Debug, Default)]
pub(super) struct Terminals(VecDeque<TerminalTail>);

impl Terminals {
    pub(super) fn get(&self, id: &str) -> Option<&TerminalTail> {
        self.0.iter().find(|tail| tail.id.as_str() == id)
    }

    pub(super) fn put(&mut self, tail: TerminalTail) {
        self.0.retain(|known| known.id != tail.id);
        self.0.push_back(tail);
        if self.0.len() > TERMINALS {
            self.0.pop_front();
        }
    }
}

/// Sends the output of a terminal to the screen until its program has ended or the agent releases it.
pub(super) async fn watch(
    local: Arc<LocalHost>,
    context: HostContext,
    session: SessionId,
    terminal: TerminalId,
    ui: UiQueue,
) {
    let mut shown = None;
    while let Some(tail) = look(&local, &context, &session, &terminal) {
        let has_ended = tail.has_ended();
        if shown.as_ref() != Some(&tail) {
            ui.show_terminal(tail.clone()).await;
            shown = Some(tail);
        }
        if has_ended {
            return;
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Returns the last output of a terminal, if it exists.
pub(super) fn look(
    local: &LocalHost,
    context: &HostContext,
    session: &SessionId,
    terminal: &TerminalId,
) -> Option<TerminalTail> {
    let request = TerminalOutputRequest::new(session.clone(), terminal.clone());
    let response = local.terminal_output_end(context, &request, COPIED_BYTES).ok()?;
    Some(TerminalTail::of(terminal, &response))
}
