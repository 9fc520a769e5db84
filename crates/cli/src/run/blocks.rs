//! Messages, tool calls, plans and notes as styled text for a terminal.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::{Duration, Instant};

use anstyle::Style;
use duologue_schema::{
    AvailableCommandsUpdate, Compaction, ConfigOptionUpdate, ContentBlock, Conversation, ConversationEntry,
    ConversationMessage, Diff, InterSessionMessage, MessageKind, Patch, PlanId, SessionId, SessionTree,
    SessionUpdate, ToolCall,
};
use duologue_transcript::describe::{self, DescribedPart, Description, Stage};
use similar::{ChangeTag, TextDiff};

use super::rows::{Span, flat};
use super::terminals::{TerminalTail, Terminals};
use crate::ui::{BAD, BOLD, DIM, GOOD, MARK};

/// Limit on the lines of a tool's output.
const OUTPUT_LINES: usize = 12;
/// Limit on the lines of a diff.
const DIFF_LINES: usize = 80;
/// Limit on the lines that are compared for the shortest diff, without those that both texts begin and end with. The work
/// grows with the square of them.
pub(super) const COMPARED_LINES: usize = 5_000;

pub(super) const NORMAL: Style = Style::new();

/// The occasion on which a block is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// For the first time.
    First,
    /// Again at the bottom, since the rows above cannot be changed.
    Again,
}

/// Returns an entry of the conversation as text. `printed` is the text that an earlier drawing
/// left above.
pub(super) fn entry(
    entry: &ConversationEntry,
    repeat: Repeat,
    printed: &str,
    (terminals, children): (&Terminals, &SessionTree),
) -> Vec<Span> {
    match entry {
        ConversationEntry::Message(message) => self::message(message, repeat),
        ConversationEntry::ToolCall(call) => tool_call(call, printed, terminals, children),
        ConversationEntry::Compaction(compaction) => self::compaction(compaction),
        ConversationEntry::SessionMessage(message) => session_message(message, children),
        _ => Vec::new(),
    }
}

/// Returns the text of a message that is nothing but text. It ends the last span of the message.
pub(super) fn only_text(entry: &ConversationEntry) -> Option<&str> {
    match entry {
        ConversationEntry::Message(ConversationMessage { content, .. }) => match content.as_slice() {
            [ContentBlock::Text(text)] => Some(text.text.trim_end_matches(['\r', '\n'])),
            _ => None,
        },
        _ => None,
    }
}

fn message(message: &ConversationMessage, repeat: Repeat) -> Vec<Span> {
    let (style, mark) = match message.kind {
        MessageKind::User => (MARK, "> "),
        MessageKind::Thought => (DIM, "thinking: "),
        _ => (NORMAL, ""),
    };
    let mut spans = Vec::new();
    if repeat == Repeat::Again {
        spans.push(Span::new(DIM, "↑ the text above was retracted\n"));
    }
    let last = message.content.len().saturating_sub(1);
    for (index, block) in message.content.iter().enumerate() {
        match block {
            // The block itself ends the last line.
            ContentBlock::Text(text) if index == last => {
                spans.push(Span::new(style, text.text.trim_end_matches(['\r', '\n'])));
            }
            ContentBlock::Text(text) => spans.push(Span::new(style, &text.text)),
            other => {
                let open = spans.last().is_some_and(|span| !span.as_str().ends_with('\n'));
                let (start, end) = (if open { "\n" } else { "" }, if index == last { "" } else { "\n" });
                spans.push(Span::new(DIM, &format!("{start}{}{end}", describe::content(other))));
            }
        }
    }
    if !mark.is_empty() && !message.content.is_empty() {
        spans.insert(0, Span::new(style, mark));
    }
    spans
}

/// Returns the style and the mark of a stage.
fn mark(stage: Stage) -> (Style, &'static str) {
    match stage {
        Stage::Pending => (DIM, "○"),
        Stage::Running => (MARK, "▸"),
        Stage::Completed => (GOOD, "✓"),
        Stage::Failed => (BAD, "✗"),
        Stage::Cancelled => (DIM, "✗"),
        Stage::Warning => (BOLD, "!"),
        Stage::Info => (MARK, "·"),
        _ => (DIM, "?"),
    }
}

/// Returns the mark of the status that a description has.
fn status_mark(description: &Description<'_>) -> Span {
    let (style, mark) = mark(description.status.map_or(Stage::Other, |status| status.stage));
    Span::new(style, mark)
}

/// Returns the first line of a tool call, without its details.
pub(super) fn tool_call_head(call: &ToolCall) -> Vec<Span> {
    head(&describe::tool_call(call))
}

fn head(call: &Description<'_>) -> Vec<Span> {
    vec![
        status_mark(call),
        Span::plain(" "),
        Span::line(BOLD, &call.text),
        Span::line(DIM, &format!("  {}", call.label)),
    ]
}

/// Returns a tool call without the parts that are already printed.
fn tool_call(call: &ToolCall, printed: &str, terminals: &Terminals, children: &SessionTree) -> Vec<Span> {
    let call = describe::tool_call(call);
    let mut spans = head(&call);
    let changed: HashSet<_> = describe::changed_paths(&call).collect();
    for part in &call.parts {
        let shown = match part {
            DescribedPart::Location(location) if changed.contains(location.path.as_path()) => continue,
            DescribedPart::Location(location) => {
                vec![Span::plain("\n  "), Span::line(DIM, &describe::location(location))]
            }
            DescribedPart::Diff(diff) => self::diff(diff),
            DescribedPart::Text(text) => indented(text),
            DescribedPart::Field { name, text, is_raw: false } if name == "session" => {
                let child = child(children, &SessionId::from(text.as_ref()));
                let text = child.unwrap_or(text.as_ref());
                vec![Span::plain("\n  "), Span::line(DIM, &format!("[session {text}]"))]
            }
            DescribedPart::Field { name, text, is_raw: false } => {
                let terminal = if name == "terminal" { terminals.get(text) } else { None };
                let label = || vec![Span::plain("\n  "), Span::line(DIM, &label(part))];
                terminal.map_or_else(label, TerminalTail::spans)
            }
            _ => continue,
        };
        if printed.is_empty() || !printed.contains(&flat(&shown)) {
            spans.extend(shown);
        }
    }
    spans
}

/// Returns a short description of a tool's product that is neither text nor a change.
pub(super) fn label(part: &DescribedPart<'_>) -> String {
    match part {
        DescribedPart::Field { name, text, .. } => format!("[{name} {text}]"),
        _ => "[content]".into(),
    }
}

fn indented(text: &str) -> Vec<Span> {
    let mut lines = text.lines();
    let mut spans: Vec<Span> = lines
        .by_ref()
        .take(OUTPUT_LINES)
        .flat_map(|line| [Span::plain("\n  "), Span::line(DIM, line)])
        .collect();
    spans.extend(more(lines.count()));
    spans
}

fn more(lines: usize) -> Option<Span> {
    (lines > 0).then(|| Span::new(DIM, &format!("\n  … {lines} more lines")))
}

/// Returns the first lines of a change to a file.
fn diff(diff: &Diff) -> Vec<Span> {
    let new_file = if diff.old_text.is_none() { " (new)" } else { "" };
    let mut spans = vec![Span::plain("\n  "), Span::line(DIM, &format!("{}{new_file}", diff.path.display()))];
    let lines = diff_lines(diff);
    let rest = lines.len().saturating_sub(DIFF_LINES);
    let shown = lines.iter().take(DIFF_LINES);
    spans.extend(shown.flat_map(|(style, line)| [Span::plain("\n  "), Span::line(*style, line)]));
    spans.extend(more(rest));
    spans
}

/// Returns all lines that differ, with three unchanged lines around them.
pub(super) fn diff_lines(diff: &Diff) -> Vec<(Style, String)> {
    let mut budget = COMPARED_LINES;
    diff_lines_within(diff, &mut budget).lines
}

/// The lines that are shown of a diff.
#[derive(Default)]
pub(super) struct DiffLines {
    pub(super) lines: Vec<(Style, String)>,
    /// The bytes of the old and of the new text that they show.
    pub(super) old_bytes: usize,
    pub(super) new_bytes: usize,
}

/// Works like [`diff_lines`], and takes the lines that it compares from `budget`. Texts with more lines are not compared: their
/// lines are removed and added.
pub(super) fn diff_lines_within(diff: &Diff, budget: &mut usize) -> DiffLines {
    let (old, new) = (diff.old_text.as_deref().unwrap_or_default(), diff.new_text.as_str());
    let compared = differing_lines(old, new);
    let mut config = TextDiff::configure();
    match budget.checked_sub(compared) {
        Some(left) => *budget = left,
        // A deadline in the past ends the comparison behind the common lines at both ends, however fast the machine is.
        None => {
            if let Some(past) = Instant::now().checked_sub(Duration::from_nanos(1)) {
                config.deadline(past);
            }
        }
    }
    let text = config.diff_lines(old, new);
    let mut shown = DiffLines::default();
    for hunk in text.unified_diff().context_radius(3).iter_hunks() {
        shown.lines.push((MARK, hunk.header().to_string().trim_end().to_owned()));
        for change in hunk.iter_changes() {
            let (style, sign) = match change.tag() {
                ChangeTag::Insert => (GOOD, '+'),
                ChangeTag::Delete => (BAD, '-'),
                ChangeTag::Equal => (NORMAL, ' '),
            };
            let bytes = change.value().len();
            shown.old_bytes += if sign == '+' { 0 } else { bytes };
            shown.new_bytes += if sign == '-' { 0 } else { bytes };
            shown.lines.push((style, format!("{sign}{}", change.value().trim_end_matches(['\r', '\n']))));
        }
    }
    shown
}

/// Returns the number of lines of both texts between their common first and last lines.
fn differing_lines(old: &str, new: &str) -> usize {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let equal = |(old, new): &(&&str, &&str)| old == new;
    let first = old.iter().zip(&new).take_while(equal).count();
    let (old, new) = (old.get(first..).unwrap_or_default(), new.get(first..).unwrap_or_default());
    let last = old.iter().rev().zip(new.iter().rev()).take_while(equal).count();
    old.len() + new.len() - 2 * last
}

fn compaction(compaction: &Compaction) -> Vec<Span> {
    let compaction = describe::compaction(compaction);
    let words = match compaction.status.map(|status| status.stage) {
        Some(Stage::Completed) => "the context is compacted",
        Some(Stage::Failed) => "compacting the context failed",
        Some(Stage::Cancelled) => "compacting the context was cancelled",
        _ => "compacting the context",
    };
    let mut spans = vec![status_mark(&compaction), Span::new(DIM, &format!(" {words}"))];
    if !compaction.text.is_empty() {
        spans.push(Span::line(DIM, &format!(": {}", compaction.text)));
    }
    for part in &compaction.parts {
        if let DescribedPart::Text(text) = part {
            spans.extend(indented(text));
        }
    }
    spans
}

/// Returns the title of a child session, or its id.
fn child<'a>(children: &'a SessionTree, id: &SessionId) -> Option<&'a str> {
    children.get(id).map(|child| child.title.as_deref().unwrap_or(child.id.as_str()))
}

/// Returns a message between sessions. The session of the user has no name.
fn session_message(message: &InterSessionMessage, children: &SessionTree) -> Vec<Span> {
    let name = |id: &Option<SessionId>| id.as_ref().and_then(|id| child(children, id).map(str::to_owned));
    let words = match (name(&message.sender), name(&message.recipient)) {
        (Some(sender), Some(recipient)) => format!("message from {sender} to {recipient}"),
        (Some(sender), None) => format!("message from {sender}"),
        (None, Some(recipient)) => format!("message to {recipient}"),
        (None, None) => "message between sessions".to_owned(),
    };
    let mut spans = vec![Span::line(DIM, &format!("· {words}"))];
    let content: Vec<_> = message.content.iter().map(describe::content).collect();
    spans.extend(indented(&content.join("\n")));
    spans
}

/// Returns a plan: its steps, or its text.
pub(super) fn plan(plan: &Description<'_>) -> Vec<Span> {
    let mut spans = plan_head(&plan.text);
    for part in &plan.parts {
        match part {
            DescribedPart::Step { text, status, is_urgent } => {
                let (style, mark) = mark(status.stage);
                spans.extend([
                    Span::plain("\n  "),
                    Span::new(style, mark),
                    Span::plain(" "),
                    Span::line(NORMAL, text),
                ]);
                if *is_urgent {
                    spans.push(Span::new(DIM, "  high"));
                }
            }
            DescribedPart::Text(text) => {
                let lines = text.lines().flat_map(|line| [Span::plain("\n  "), Span::line(NORMAL, line)]);
                spans.extend(lines);
            }
            part => spans.extend([Span::plain("\n  "), Span::line(DIM, &label(part))]),
        }
    }
    spans
}

/// Returns that a plan was removed.
pub(super) fn removed_plan(id: &PlanId) -> Vec<Span> {
    let mut spans = plan_head(id.as_str());
    spans.push(Span::new(DIM, ": removed"));
    spans
}

fn plan_head(id: &str) -> Vec<Span> {
    let head = Span::new(BOLD, "Plan");
    if id.is_empty() { vec![head] } else { vec![head, Span::line(DIM, &format!(" {id}"))] }
}

/// Returns a note for each change of an update that no entry of the conversation shows.
pub(super) fn notes(before: &Conversation, update: &SessionUpdate) -> Vec<Vec<Span>> {
    let Some(update) = changes(before, update) else { return Vec::new() };
    let Some(description) = describe::update(&update) else { return Vec::new() };
    let note = |name: &str, value: &str| vec![Span::line(DIM, &format!("· {name}: {value}"))];
    match &*update {
        SessionUpdate::Notice(_) => vec![notice(&description)],
        SessionUpdate::Unknown(_) => {
            let text = format!("· an update of the unknown kind {}", description.label);
            vec![vec![Span::line(DIM, &text)]]
        }
        SessionUpdate::ConfigOptionUpdate(_) => {
            let fields = description.parts.iter().filter_map(|part| match part {
                DescribedPart::Field { name, text, .. } => Some(note(name, text)),
                _ => None,
            });
            fields.collect()
        }
        SessionUpdate::SubagentUpdate(_) => {
            let state = description.parts.iter().find_map(|part| match part {
                DescribedPart::Field { text, .. } => Some(format!(", {text}")),
                _ => None,
            });
            vec![note(&description.label, &format!("{}{}", description.text, state.unwrap_or_default()))]
        }
        _ if description.text.is_empty() => Vec::new(),
        _ => vec![note(&description.label, &description.text)],
    }
}

/// Returns the part of an update that is new and that a note shows.
fn changes<'a>(before: &Conversation, update: &'a SessionUpdate) -> Option<Cow<'a, SessionUpdate>> {
    match update {
        SessionUpdate::ConfigOptionUpdate(update) => {
            let was = |id| before.config_options().iter().find(|option| option.id == id);
            let mut options = update.config_options.clone();
            options.retain(|option| {
                was(option.id.clone()).map(describe::option_value) != Some(describe::option_value(option))
            });
            Some(Cow::Owned(ConfigOptionUpdate::new(options).into()))
        }
        SessionUpdate::AvailableCommandsUpdate(update) => {
            let mut commands = update.available_commands.clone();
            commands.retain(|command| !before.commands().contains(command));
            Some(Cow::Owned(AvailableCommandsUpdate::new(commands).into()))
        }
        // The screen shows the plans in place, and the usage at the end of the turn.
        SessionUpdate::Plan(_)
        | SessionUpdate::PlanUpdate(_)
        | SessionUpdate::PlanRemoved(_)
        | SessionUpdate::UsageUpdate(_) => None,
        // A later update of a child has its changes alone.
        SessionUpdate::SubagentUpdate(update) => {
            let mut shown = update.clone();
            if let (Patch::Keep, Some(known)) = (&update.title, before.children().get(&update.session_id)) {
                update.state.value()?;
                shown.title = known.title.clone().map_or(Patch::Keep, Patch::Set);
            }
            Some(Cow::Owned(SessionUpdate::SubagentUpdate(shown)))
        }
        // The conversation shows messages between sessions.
        SessionUpdate::SessionMessage(_) | SessionUpdate::SessionMessageChunk(_) => None,
        // The tool calls that name a terminal show it.
        SessionUpdate::TerminalUpdate(_) | SessionUpdate::TerminalOutputChunk(_) => None,
        // The conversation shows whole messages.
        SessionUpdate::UserMessage(_) | SessionUpdate::AgentMessage(_) | SessionUpdate::AgentThought(_) => {
            None
        }
        update => Some(Cow::Borrowed(update)),
    }
}

fn notice(notice: &Description<'_>) -> Vec<Span> {
    // A title may look like one of our own lines.
    let mut spans = vec![status_mark(notice), Span::new(DIM, " notice: "), Span::line(NORMAL, &notice.text)];
    for part in &notice.parts {
        if let DescribedPart::Text(description) = part {
            spans.push(Span::line(DIM, &format!("  {description}")));
        }
    }
    spans
}

/// Returns the used tokens and the cost, if the agent sent them.
pub(super) fn usage(conversation: &Conversation) -> Option<Vec<Span>> {
    let usage = describe::usage(conversation.usage()?);
    Some(vec![Span::line(DIM, &format!("· {usage}"))])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines of a diff whose texts differ in every second line of `lines`.
    fn shown(lines: usize) -> Vec<String> {
        let text = |sign: &str| -> String {
            let line =
                |number: usize| format!("{number}{}\n", if number.is_multiple_of(2) { "" } else { sign });
            (0..lines).map(line).collect()
        };
        let mut diff = Diff::new("/a", text("b"));
        diff.old_text = Some(text("a"));
        diff_lines(&diff).into_iter().map(|(_, line)| line).collect()
    }

    #[test]
    fn long_texts_are_removed_and_added_without_a_comparison() {
        let short = shown(COMPARED_LINES / 2);
        assert!(short.windows(2).any(|pair| pair == ["+1b", " 2"]), "{:?}", &short[..8]);
        let long = shown(COMPARED_LINES / 2 + 2);
        // The first line is common.
        assert_eq!(long.iter().filter(|line| line.starts_with(' ')).count(), 1);
        assert_eq!(long.len(), 2 + 2 * (COMPARED_LINES / 2 + 1));
    }
}
