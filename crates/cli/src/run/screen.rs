//! A session on a terminal: applies updates, returns the bytes to write.
//!
//! The blocks (messages, tool calls, the plan) are divided into rows here, so that the position of
//! each row on the screen is known. A drawing starts at the first row that differs. The terminal
//! itself never wraps a row.
//!
//! Rows that have scrolled out of the window cannot be drawn over. A block that changes there is
//! drawn again at the bottom, with a remark.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use duologue_schema::{
    AvailableCommandsUpdate, Conversation, Patch, PlanId, PlanUpdate, SessionState, SessionUpdate,
    SubagentUpdate, TerminalId, ToolCall, ToolCallContent, ToolCallId, ToolCallStatus, ToolCallUpdate,
};

use duologue_transcript::describe;

use super::blocks::{self, Repeat};
use super::input::TypedText;
use super::question::QuestionText;
use super::rows::{
    INDENT, RowWidths, Span, behind, between, flat, indented, typed_rows, typed_rows_around, wrap,
};
use super::terminals::{TerminalTail, Terminals};
use super::text_output::update_len;
use crate::ui::DIM;

/// The size of a terminal in columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowSize {
    pub(super) width: usize,
    pub(super) height: usize,
}

/// The lower end of a terminal.
pub(super) struct Screen {
    size: WindowSize,
    colours: bool,
    conversation: Conversation,
    /// The bytes of the conversation, roughly.
    bytes: usize,
    /// The number of bytes from which on the conversation is forgotten.
    kept_bytes: usize,
    terminals: Terminals,
    /// The terminals of the agent whose output has changed since it was drawn.
    stale_terminals: HashSet<TerminalId>,
    blocks: Vec<Block>,
    changed: HashSet<usize>,
    /// True if new slash commands are shown.
    pub(super) shows_commands: bool,
    /// True if the states of the session are shown.
    pub(super) shows_states: bool,
    /// True if the turn has reported its usage.
    used: bool,
    next: usize,
    /// The rows that can be drawn over.
    drawn: Vec<DrawnRow>,
    /// The place of the cursor. `None` if it is behind the last row.
    cursor: Option<Cursor>,
    /// The question below everything else.
    question: QuestionText,
    /// The number of its first rows that have scrolled out of the window. They are not drawn again for a key.
    question_gone: usize,
    /// The line that the user edits behind the question.
    typed: Option<TypedText>,
    /// The tool call that the question describes.
    described_call: Option<ToolCallId>,
}

/// A place in the drawn rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor {
    /// The number of rows below it.
    below: usize,
    column: usize,
}

/// A row on the screen.
struct DrawnRow {
    text: String,
    /// Its block, and the offset in the block's text at which the next row begins.
    place: Option<(usize, usize)>,
}

/// A block of rows.
struct Block {
    id: usize,
    source: BlockSource,
    repeat: Repeat,
    /// True if an empty row precedes it.
    apart: bool,
    spans: Vec<Span>,
    /// The text of the last span, if the block is one text that may grow.
    text: String,
    /// The text that cannot be drawn over: it scrolled away, or the window had another size.
    gone: String,
    /// The text of earlier drawings further above.
    printed: String,
    /// True if the first line is out of reach and has changed, so that it is the last line too.
    ends_with_head: bool,
}

/// Limit on the printed text that a block remembers, in bytes.
const PRINTED: usize = 256 * 1024;
/// Limit on the bytes of messages and tool calls that may still change on the screen.
const KEPT: usize = 16 * 1024 * 1024;
/// Limit on the unfinished tool calls that are kept beyond that, and on the bytes of each.
const KEPT_CALLS: usize = 64;
const KEPT_CALL: usize = 64 * 1024;

impl Block {
    fn is_gone(&self) -> bool {
        self.gone.len() == self.spans.iter().map(|span| span.as_str().len()).sum::<usize>()
    }
}

#[derive(Clone, Debug, PartialEq)]
enum BlockSource {
    /// An entry of the conversation.
    Entry(usize),
    /// A plan. The one without an id is [`SessionState::MAIN_PLAN`].
    Plan(PlanId),
    /// A note of this program. Its first row has no margin.
    Note(Vec<Span>),
    /// A note in the agent's words.
    AgentNote(Vec<Span>),
    /// A block that does not change any more.
    Final,
}

impl BlockSource {
    fn is_note(&self) -> bool {
        matches!(self, BlockSource::Note(_) | BlockSource::AgentNote(_) | BlockSource::Final)
    }
}

impl Screen {
    pub(super) fn new(size: WindowSize, colours: bool) -> Self {
        Screen {
            size,
            colours,
            conversation: Conversation::default(),
            bytes: 0,
            kept_bytes: KEPT,
            terminals: Terminals::default(),
            stale_terminals: HashSet::new(),
            blocks: Vec::new(),
            changed: HashSet::new(),
            shows_commands: false,
            shows_states: false,
            used: false,
            next: 0,
            drawn: Vec::new(),
            cursor: None,
            question: QuestionText::default(),
            question_gone: 0,
            typed: None,
            described_call: None,
        }
    }

    /// Applies an update. A change that no block shows becomes a note.
    pub(super) fn update(&mut self, update: &SessionUpdate) {
        let shown = match update {
            SessionUpdate::AvailableCommandsUpdate(_) => self.shows_commands,
            SessionUpdate::StateUpdate(_) => self.shows_states,
            _ => true,
        };
        let notes = if shown { blocks::notes(&self.conversation, update) } else { Vec::new() };
        let entry = self.conversation.apply(update);
        if let Some(entry) = entry {
            self.bytes = self.bytes.saturating_add(update_len(update));
            self.touch(BlockSource::Entry(entry));
        }
        self.used |= matches!(update, SessionUpdate::UsageUpdate(_));
        match update {
            SessionUpdate::Plan(_) => self.touch(BlockSource::Plan(SessionState::MAIN_PLAN.into())),
            SessionUpdate::PlanUpdate(update) => {
                if let Some(id) = update.plan.plan_id() {
                    self.touch(BlockSource::Plan(id));
                }
            }
            SessionUpdate::PlanRemoved(removed) => {
                let source = BlockSource::Plan(removed.plan_id.clone());
                if self.blocks.iter().any(|block| block.source == source) {
                    self.touch(source);
                }
            }
            SessionUpdate::TerminalUpdate(update) => self.display_terminal(&update.terminal_id),
            SessionUpdate::TerminalOutputChunk(chunk) => self.display_terminal(&chunk.terminal_id),
            _ => {}
        }
        for note in notes {
            self.touch(BlockSource::AgentNote(note));
        }
    }

    /// Applies an initial value of the session without a note.
    pub(super) fn know(&mut self, update: &SessionUpdate) {
        self.conversation.apply(update);
    }

    /// Shows a note.
    pub(super) fn note(&mut self, note: Vec<Span>) {
        self.touch(BlockSource::Note(note));
    }

    /// Begins a turn. A message that came before it does not continue.
    pub(super) fn begin_turn(&mut self) {
        self.conversation.end_turn();
    }

    /// Notes that the agent has sent output of its terminal. The next drawing reads it.
    fn display_terminal(&mut self, id: &TerminalId) {
        let has_ended = self.conversation.terminal(id.clone()).is_some_and(|it| it.exit_status.is_some());
        self.stale_terminals.insert(id.clone());
        self.touch_terminal(id, has_ended);
    }

    /// Shows the output of a terminal in the tool calls that name it.
    pub(super) fn terminal(&mut self, tail: TerminalTail) {
        let (id, has_ended) = (tail.id().clone(), tail.has_ended());
        self.terminals.put(tail);
        self.touch_terminal(&id, has_ended);
    }

    fn touch_terminal(&mut self, id: &TerminalId, has_ended: bool) {
        let names_it = |content: &ToolCallContent| match content {
            ToolCallContent::Terminal(terminal) | ToolCallContent::DisplayTerminal(terminal) => {
                terminal.terminal_id == *id
            }
            _ => false,
        };
        // While a program runs, its output is not repeated below rows that are out of reach.
        let changed = self.blocks.iter().filter(|block| {
            (has_ended || block.gone.is_empty())
                && self.call_of(&block.source).is_some_and(|call| call.content.iter().any(names_it))
        });
        let changed: Vec<_> = changed.map(|block| block.id).collect();
        self.changed.extend(changed);
    }

    /// Ends the turn and shows its usage, if it has reported any.
    pub(super) fn end_turn(&mut self) {
        self.conversation.end_turn();
        let used = std::mem::take(&mut self.used);
        if let Some(usage) = blocks::usage(&self.conversation).filter(|_| used) {
            self.touch(BlockSource::AgentNote(usage));
        }
    }

    /// Returns the known tool call with the fields of a permission request.
    pub(super) fn described(&self, update: ToolCallUpdate) -> ToolCall {
        described(&self.conversation, update)
    }

    /// Shows a question below everything else. The question describes `call`, so its block shows only
    /// its first line.
    pub(super) fn ask(&mut self, question: QuestionText, call: Option<ToolCallId>) {
        self.forget_question();
        self.question = question;
        self.touch_call(call.as_ref());
        self.described_call = call;
    }

    /// Removes the question.
    pub(super) fn withdraw(&mut self) {
        self.forget_question();
    }

    fn forget_question(&mut self) {
        self.question.clear();
        self.question_gone = 0;
        self.typed = None;
        let call = self.described_call.take();
        self.touch_call(call.as_ref());
    }

    fn touch_call(&mut self, call: Option<&ToolCallId>) {
        let is_it = |source: &BlockSource| {
            call.is_some() && self.call_of(source).map(|known| &known.tool_call_id) == call
        };
        let changed: Vec<_> =
            self.blocks.iter().filter(|block| is_it(&block.source)).map(|block| block.id).collect();
        self.changed.extend(changed);
    }

    fn call_of(&self, source: &BlockSource) -> Option<&ToolCall> {
        match source {
            BlockSource::Entry(index) => self.conversation.entries().get(*index)?.as_tool_call(),
            _ => None,
        }
    }

    /// Shows the line that the user edits.
    pub(super) fn show_typed(&mut self, typed: Option<TypedText>) {
        self.typed = typed;
    }

    /// Applies an answer. `shown` is true if the terminal echoed it.
    pub(super) fn answered(&mut self, typed: &str, shown: bool) {
        if shown {
            self.echoed(self.last_column(), typed);
        }
        self.forget_question();
    }

    /// Turns a page of the question, if the line demands that. `shown` is true if the terminal echoed
    /// the line.
    pub(super) fn turn_page(&mut self, typed: &str, shown: bool) -> bool {
        let column = self.last_column();
        let turned = self.question.turn_page(typed, self.size);
        self.question_gone = 0;
        if turned && shown {
            self.echoed(column, typed);
        }
        self.typed = self.typed.take().map(|_| TypedText::default());
        turned
    }

    pub(super) fn is_paging(&self) -> bool {
        self.question.is_paging()
    }

    fn last_column(&self) -> usize {
        self.question.rows(self.size, false).last().map_or(0, |row| row.chars().count())
    }

    /// Accounts for the echo of a typed line. Rows behind an echo of unknown width cannot be drawn
    /// over.
    fn echoed(&mut self, last: usize, typed: &str) {
        let known = typed.chars().all(|char| char == ' ' || char.is_ascii_graphic());
        if known && last + typed.len() + 1 < self.size.width {
            self.drawn.push(DrawnRow { text: String::new(), place: None });
            self.scroll();
        } else {
            self.let_go();
        }
    }

    /// Keeps a typed line on the screen.
    pub(super) fn typed(&mut self) {
        self.forget_question();
        self.let_go();
    }

    /// Applies a new size of the window. The terminal has moved its text in an unknown way, so the
    /// drawn rows stay and the next ones go below them.
    pub(super) fn resize(&mut self, size: WindowSize) -> String {
        if size == self.size {
            return String::new();
        }
        self.size = size;
        self.go_below()
    }

    /// Keeps the drawn rows for good and continues below them. Removes the question.
    pub(super) fn leave(&mut self) -> String {
        self.forget_question();
        self.go_below()
    }

    /// Draws everything in reach again.
    pub(super) fn forget_drawn(&mut self) {
        self.drawn.clear();
        self.question_gone = 0;
        self.cursor = None;
    }

    fn go_below(&mut self) -> String {
        let mut out = self.move_to_last_row();
        if !self.drawn.is_empty() {
            out.push_str("\r\n");
        }
        self.let_go();
        out
    }

    /// Returns the bytes that move the cursor to the last row.
    fn move_to_last_row(&mut self) -> String {
        match self.cursor.take() {
            Some(Cursor { below: below @ 1.., .. }) => format!("\u{1b}[{below}B"),
            _ => String::new(),
        }
    }

    /// Returns the bytes that update the screen.
    pub(super) fn paint(&mut self) -> String {
        self.refresh();
        self.forget_if_long();
        let (mut rows, mut cursor) = self.rows();
        if self.question_gone > 0 && rows.iter().any(|row| row.place.is_some()) {
            // The beginning of the question would stand above these.
            self.question_gone = 0;
            (rows, cursor) = self.rows();
        }
        let same = self.drawn.iter().zip(&rows).take_while(|(drawn, row)| drawn.text == row.text).count();
        let is_same = same == rows.len() && same == self.drawn.len();
        if is_same && cursor == self.cursor {
            return String::new();
        }
        let mut out = self.move_to_last_row();
        if !is_same {
            out.push_str(&self.draw(&rows, same.min(rows.len().saturating_sub(1))));
        }
        if let Some(Cursor { below, column }) = cursor {
            let _ = match below {
                0 => write!(out, "\r"),
                below => write!(out, "\r\u{1b}[{below}A"),
            };
            if column > 0 {
                let _ = write!(out, "\u{1b}[{column}C");
            }
        }
        (self.drawn, self.cursor) = (rows, cursor);
        self.question_gone += self.scroll();
        out
    }

    fn draw(&self, rows: &[DrawnRow], from: usize) -> String {
        // Without wrapping: the terminal may take a row for wider than we do.
        let mut out = String::from("\u{1b}[?7l");
        match self.drawn.len().checked_sub(from + 1) {
            Some(0) => out.push('\r'),
            Some(up) => {
                let _ = write!(out, "\r\u{1b}[{up}A");
            }
            // The first changed row is below the drawn ones.
            None if self.drawn.is_empty() => {}
            None => out.push_str("\r\n"),
        }
        for (index, row) in rows.iter().skip(from).enumerate() {
            if index > 0 {
                out.push_str("\r\n");
            }
            out.push_str(&row.text);
            out.push_str("\u{1b}[K");
        }
        out.push_str("\u{1b}[J\u{1b}[?7h");
        out
    }

    /// Returns the rows of all blocks that can be drawn, and the place of the cursor in them.
    fn rows(&self) -> (Vec<DrawnRow>, Option<Cursor>) {
        // The last column stays free: after a write there, terminals disagree about the cursor.
        let width = self.size.width.saturating_sub(1).max(1);
        let mut rows = Vec::new();
        for block in self.blocks.iter().filter(|block| !block.is_gone()) {
            let mut start = block.gone.len();
            for row in wrap(&block.spans, start, RowWidths::indented(width), self.colours) {
                let is_first = start <= usize::from(block.apart);
                let is_own = is_first && matches!(block.source, BlockSource::Note(_));
                let text = if is_own { row.text } else { behind(INDENT, row.text) };
                start = row.end;
                rows.push(DrawnRow { text, place: Some((block.id, row.end)) });
            }
        }
        let mut question = self.question.rows(self.size, self.colours);
        question.drain(..self.question_gone.min(question.len().saturating_sub(1)));
        rows.extend(question.into_iter().map(|text| DrawnRow { text, place: None }));
        let cursor = self.typed.as_ref().and_then(|typed| self.typed_rows(typed, width, &mut rows));
        (rows, cursor)
    }

    /// Adds the edited line behind the last row, as much of it as the window has room for.
    fn typed_rows(&self, typed: &TypedText, width: usize, rows: &mut Vec<DrawnRow>) -> Option<Cursor> {
        let question = self.question.rows(self.size, false);
        let indent = question.last()?.chars().count();
        let room = self.size.height.saturating_sub(question.len()).max(1);
        let whole = typed_rows(&typed.text, typed.cursor, indent, width, room);
        let is_whole = whole.is_some();
        let (mut lines, (mut row, column)) = whole.unwrap_or_else(|| {
            // The whole text has no room: the rows up to the cursor are below the question.
            typed_rows_around(&typed.text, typed.cursor, width, room.saturating_sub(1).max(1))
        });
        if is_whole {
            rows.last_mut()?.text.push_str(&lines.remove(0));
        } else {
            row += 1;
        }
        let mut cursor = Cursor { below: lines.len() - row, column };
        let room = room.saturating_sub(lines.len() + 1);
        rows.extend(lines.into_iter().map(|text| DrawnRow { text, place: None }));
        if !typed.offered.is_empty() {
            // Commands of the agent are among the words.
            let words = [Span::line(DIM, &typed.offered.join("  "))];
            let offered = indented(&words, width, self.colours).into_iter().take(room);
            let before = rows.len();
            rows.extend(offered.map(|text| DrawnRow { text, place: None }));
            cursor.below += rows.len() - before;
        }
        Some(cursor)
    }

    /// Updates the changed blocks. One that changed where nothing can be drawn moves to the bottom.
    fn refresh(&mut self) {
        for id in std::mem::take(&mut self.stale_terminals) {
            if let Some(terminal) = self.conversation.terminal(id) {
                self.terminals.put(TerminalTail::of_agent(terminal));
            }
        }
        let changed = std::mem::take(&mut self.changed);
        let (mut blocks, mut moved, mut new) = (Vec::new(), Vec::new(), Vec::new());
        let last_gone = self.blocks.iter().rfind(|block| !block.gone.is_empty()).map(|block| block.id);
        let drawn: HashSet<_> = self.drawn.iter().filter_map(|row| Some(row.place?.0)).collect();
        for mut block in std::mem::take(&mut self.blocks) {
            if changed.contains(&block.id) && !self.grow(&mut block) {
                block.spans = self.spans(&block);
                let stays = flat(&block.spans).starts_with(&block.gone)
                    || last_gone == Some(block.id) && self.repeat_head(&mut block);
                if !stays {
                    if block.printed.len() + block.gone.len() <= PRINTED {
                        block.printed.push_str(&block.gone);
                    }
                    block.gone.clear();
                    (block.repeat, block.apart, block.ends_with_head) = (Repeat::Again, true, false);
                    block.spans = self.spans(&block);
                    moved.push(block);
                    continue;
                }
            }
            let is_new = block.gone.is_empty() && !drawn.contains(&block.id);
            if is_new { new.push(block) } else { blocks.push(block) }
        }
        // A block that was not drawn yet is later than the change of an earlier one.
        blocks.append(&mut moved);
        blocks.append(&mut new);
        self.blocks = blocks;
    }

    /// Forgets a conversation that has grown too long, except its unfinished tool calls. Everything that is
    /// on the screen stays there as it is.
    fn forget_if_long(&mut self) {
        if self.bytes <= self.kept_bytes {
            return;
        }
        let old = std::mem::take(&mut self.conversation);
        let state = old.state();
        self.conversation.begin(state.modes.clone(), state.config_options.clone());
        let commands = AvailableCommandsUpdate::new(old.commands().to_vec()).into();
        let plan = old.plan().cloned().map(SessionUpdate::Plan);
        let plans = state.plans.iter().map(|plan| PlanUpdate::new(plan.clone()).into());
        let children = old.children().children_of(None).map(|child| {
            let mut known = SubagentUpdate::new(child.id.clone());
            known.title = child.title.clone().map_or(Patch::Keep, Patch::Set);
            SessionUpdate::from(known)
        });
        let usage = old.usage().cloned().map(SessionUpdate::UsageUpdate);
        let is_open =
            |call: &&ToolCall| matches!(call.status, ToolCallStatus::Pending | ToolCallStatus::InProgress);
        let calls = old.entries().iter().rev().filter_map(|entry| entry.as_tool_call()).filter(is_open);
        let calls = calls.map(|call| SessionUpdate::from(call.clone()));
        let mut calls: Vec<_> = calls.filter(|call| update_len(call) <= KEPT_CALL).take(KEPT_CALLS).collect();
        calls.reverse();
        self.bytes = 0;
        let kept = [commands].into_iter().chain(plan).chain(plans).chain(children).chain(usage).chain(calls);
        for update in kept {
            if self.conversation.apply(&update).is_some() {
                self.bytes = self.bytes.saturating_add(update_len(&update));
            }
        }
        self.blocks.retain_mut(|block| {
            if let BlockSource::Entry(_) = block.source {
                block.source = BlockSource::Final;
                (block.text, block.printed) = (String::new(), String::new());
            }
            block.source != BlockSource::Final || !block.is_gone()
        });
        let text = format!("· more than {} MiB were shown; they stay as they are", KEPT >> 20);
        self.note(vec![Span::new(DIM, &text)]);
        self.refresh();
    }

    /// Repeats the first line of a tool call at its end, if nothing else of the text that is out of reach
    /// has changed.
    fn repeat_head(&self, block: &mut Block) -> bool {
        let Some(call) = self.call_of(&block.source) else { return false };
        let apart = if block.apart { "\n" } else { "" };
        let (before, gone) = (block.ends_with_head, block.gone.clone());
        let Some((_, body)) = gone.get(apart.len()..).and_then(|gone| gone.split_once('\n')) else {
            return false;
        };
        block.ends_with_head = true;
        block.gone = format!("{apart}{}\n{body}", flat(&blocks::tool_call_head(call)));
        block.spans = self.spans(block);
        if flat(&block.spans).starts_with(&block.gone) {
            return true;
        }
        (block.ends_with_head, block.gone) = (before, gone);
        false
    }

    /// Appends the new text of a message, so that a long message is not processed again.
    fn grow(&self, block: &mut Block) -> bool {
        let BlockSource::Entry(index) = block.source else { return false };
        let text = self.conversation.entries().get(index).and_then(blocks::only_text).unwrap_or_default();
        let grown = text.strip_prefix(block.text.as_str()).filter(|_| !block.text.is_empty());
        if let (Some(grown), Some(span)) = (grown, block.spans.last_mut()) {
            span.push(grown);
            block.text.push_str(grown);
            return true;
        }
        block.text = text.into();
        false
    }

    fn spans(&self, block: &Block) -> Vec<Span> {
        let described = self
            .call_of(&block.source)
            .filter(|call| self.described_call.as_ref() == Some(&call.tool_call_id));
        let head = described
            .map(blocks::tool_call_head)
            .filter(|head| block.gone.len() <= flat(head).len() + usize::from(block.apart));
        let mut spans = match &block.source {
            BlockSource::Entry(_) if head.is_some() => head,
            BlockSource::Entry(index) => {
                let entry = self.conversation.entries().get(*index);
                let others = (&self.terminals, self.conversation.children());
                entry.map(|entry| blocks::entry(entry, block.repeat, &block.printed, others))
            }
            BlockSource::Plan(id) => Some(self.plan(id)),
            BlockSource::Note(spans) | BlockSource::AgentNote(spans) => Some(spans.clone()),
            BlockSource::Final => Some(block.spans.clone()),
        }
        .unwrap_or_default();
        if let Some(call) = self.call_of(&block.source).filter(|_| block.ends_with_head) {
            spans.push(Span::plain("\n"));
            spans.extend(blocks::tool_call_head(call));
        }
        if block.apart && spans.iter().any(|span| !span.as_str().is_empty()) {
            spans.insert(0, Span::plain("\n"));
        }
        spans
    }

    /// Returns a plan, or that it was removed.
    fn plan(&self, id: &PlanId) -> Vec<Span> {
        let state = self.conversation.state();
        let with_id = state.plans.iter().rfind(|plan| plan.plan_id().as_ref() == Some(id));
        let main = state.plan.as_ref().filter(|_| id.as_str() == SessionState::MAIN_PLAN);
        match with_id.map(describe::plan_with_id).or_else(|| main.map(describe::plan)) {
            Some(plan) => blocks::plan(&plan),
            None => blocks::removed_plan(id),
        }
    }

    /// Marks the block of `source` as changed. Adds it if there is none.
    fn touch(&mut self, source: BlockSource) {
        if !source.is_note()
            && let Some(block) = self.blocks.iter().rfind(|block| block.source == source)
        {
            self.changed.insert(block.id);
            return;
        }
        let id = self.next;
        self.next += 1;
        let apart = match (self.blocks.last(), &source) {
            (None, _) => false,
            (Some(Block { source: last, .. }), new) if last.is_note() && new.is_note() => false,
            (Some(Block { source: BlockSource::Entry(last), .. }), BlockSource::Entry(new)) => {
                let is_call = |index: &usize| {
                    self.conversation
                        .entries()
                        .get(*index)
                        .is_some_and(|entry| entry.as_tool_call().is_some())
                };
                !(is_call(last) && is_call(new))
            }
            _ => true,
        };
        self.blocks.push(Block {
            id,
            source,
            repeat: Repeat::First,
            apart,
            spans: Vec::new(),
            text: String::new(),
            gone: String::new(),
            printed: String::new(),
            ends_with_head: false,
        });
        self.changed.insert(id);
    }

    /// Removes the rows that have scrolled out of the window. Returns the number of those that belong to no block.
    fn scroll(&mut self) -> usize {
        let surplus = self.drawn.len().saturating_sub(self.size.height.max(1));
        let scrolled: Vec<_> = self.drawn.drain(..surplus).collect();
        let of_question = scrolled.iter().filter(|row| row.place.is_none()).count();
        self.out_of_reach(scrolled);
        of_question
    }

    /// Gives up all drawn rows: none of them is drawn over again.
    fn let_go(&mut self) {
        let drawn = std::mem::take(&mut self.drawn);
        self.question_gone = 0;
        self.out_of_reach(drawn);
    }

    fn out_of_reach(&mut self, rows: Vec<DrawnRow>) {
        let ends: HashMap<usize, usize> = rows.into_iter().filter_map(|row| row.place).collect();
        let last = self.blocks.last().map(|block| block.id);
        self.blocks.retain_mut(|block| {
            let Some(&end) = ends.get(&block.id) else { return true };
            let gone = block.gone.len();
            block.gone.push_str(&between(&block.spans, gone, end));
            // The next block needs the last one, and nothing needs the others.
            !block.source.is_note() || !block.is_gone() || Some(block.id) == last
        });
    }
}

/// Returns a tool call of the conversation with the fields of an update.
pub(super) fn described(conversation: &Conversation, update: ToolCallUpdate) -> ToolCall {
    let known = conversation.tool_call(update.tool_call_id.clone()).cloned();
    let mut call =
        known.unwrap_or_else(|| ToolCall::new(update.tool_call_id.clone(), update.tool_call_id.as_str()));
    update.apply_to(&mut call);
    call
}

#[cfg(test)]
mod tests;
