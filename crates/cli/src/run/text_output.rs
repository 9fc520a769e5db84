//! The agent's final text, for a pipe. A terminal gets it in rows behind a margin.

use std::io::{self, IsTerminal as _, Write as _};

use duologue_schema::{
    ContentBlock, ContentChunk, Conversation, MessageId, MessageKind, SessionUpdate, serialized_len,
};

use super::output;
use super::rows::{self, Span};
use crate::ui::DIM;

/// Limit on the bytes of a turn that are kept until its end.
const TURN_BYTES: usize = 64 * 1024 * 1024;

/// The text of a session. A turn is printed at its end, since the agent may clear its messages until then.
#[derive(Default)]
pub(super) struct TextOutput {
    pub(super) conversation: Conversation,
    /// True during a turn.
    in_turn: bool,
    /// The kept bytes.
    bytes: usize,
    /// The message whose beginning is printed, if the turn was too long to be kept.
    printed: Option<Option<MessageId>>,
}

impl TextOutput {
    /// Begins a turn. Text that came before it is a paragraph of its own.
    pub(super) fn begin_turn(&mut self, prompt: &str) -> io::Result<()> {
        self.end()?;
        self.conversation.prompt(&[prompt.into()]);
        self.in_turn = true;
        Ok(())
    }

    /// Applies an update. Returns a note if the turn is too long to be kept.
    pub(super) fn update(&mut self, update: &SessionUpdate) -> io::Result<Option<Vec<Span>>> {
        self.conversation.apply(update);
        self.bytes = self.bytes.saturating_add(update_len(update));
        if self.bytes <= TURN_BYTES {
            return Ok(None);
        }
        let is_first = self.printed.is_none();
        self.print_part()?;
        let text = "· more than 64 MiB in a turn: its text is printed before it is final";
        Ok(is_first.then(|| vec![Span::new(DIM, text)]))
    }

    /// Forgets the conversation, without printing it.
    pub(super) fn forget(&mut self) {
        *self = TextOutput::default();
    }

    /// Ends the turn or the time between two turns, and prints the text.
    pub(super) fn end(&mut self) -> io::Result<()> {
        let has_begun = self.printed.is_some();
        if has_begun {
            self.print_part()?;
        }
        let text = self.conversation.all_agent_text();
        let mut stdout = io::stdout().lock();
        if has_begun {
            writeln!(stdout)?;
        } else if !text.is_empty() {
            writeln!(stdout, "{}", shown(text.trim_end_matches('\n')))?;
        }
        stdout.flush()?;
        *self = TextOutput::default();
        Ok(())
    }

    /// Ends what is printed outside of a turn.
    pub(super) fn leave(&mut self) -> io::Result<()> {
        if self.in_turn { Ok(()) } else { self.end() }
    }

    /// Prints the text so far, in front of text that continues it.
    fn print_part(&mut self) -> io::Result<()> {
        let is_agent = |kind: &MessageKind| *kind == MessageKind::Agent;
        let (first, last) = {
            let messages = self.conversation.messages();
            let mut ids =
                messages.filter(|message| is_agent(&message.kind)).map(|message| message.id.clone());
            let first = ids.next();
            (first.clone(), ids.next_back().or(first))
        };
        let text = self.conversation.all_agent_text();
        if !text.is_empty() {
            let mut stdout = io::stdout().lock();
            if self.printed.is_some() && self.printed != first {
                stdout.write_all(b"\n\n")?;
            }
            stdout.write_all(shown(&text).as_bytes())?;
            // On a terminal, the next part begins a row.
            if stdout.is_terminal() {
                writeln!(stdout)?;
            }
            stdout.flush()?;
        }
        self.printed = last.or_else(|| self.printed.take()).or(Some(None));
        (self.conversation, self.bytes) = (Conversation::default(), 0);
        Ok(())
    }
}

/// Returns text of the agent for stdout.
fn shown(text: &str) -> String {
    let spans = [Span::plain(text)];
    if !io::stdout().is_terminal() {
        return rows::flat(&spans);
    }
    rows::indented(&spans, output::size().width.saturating_sub(1), false).join("\n")
}

/// Returns the bytes of an update, roughly.
pub(super) fn update_len(update: &SessionUpdate) -> usize {
    match update {
        SessionUpdate::AgentMessageChunk(ContentChunk { content: ContentBlock::Text(text), .. })
        | SessionUpdate::AgentThoughtChunk(ContentChunk { content: ContentBlock::Text(text), .. }) => {
            text.text.len()
        }
        update => serialized_len(update, TURN_BYTES).unwrap_or(TURN_BYTES),
    }
}
