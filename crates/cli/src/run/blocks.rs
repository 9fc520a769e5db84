//! How the parts of a conversation look: each as text in styles.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use anstyle::Style;
use duologue_schema::{
    Compaction, CompactionStatus, ContentBlock, Conversation, ConversationEntry, ConversationMessage, Diff,
    EmbeddedResourceResource, MessageKind, Notice, NoticeSeverity, Plan, PlanEntryPriority, PlanEntryStatus,
    SessionConfigKind, SessionConfigOption, SessionUpdate, ToolCall, ToolCallContent, ToolCallStatus,
};
use similar::{ChangeTag, TextDiff};

use super::rows::Span;
use crate::ui::{BAD, BOLD, DIM, GOOD, MARK};

/// How many lines of a tool's output are shown.
const OUTPUT_LINES: usize = 12;
/// How many lines of a diff are shown.
const DIFF_LINES: usize = 80;
/// How long the best diff is looked for.
const DIFF_TIME: Duration = Duration::from_millis(100);

pub(super) const NORMAL: Style = Style::new();

/// Whether a block is shown for the first time, or again because what is above cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    First,
    Again,
}

/// A message, a tool call or a compaction.
pub(super) fn entry(entry: &ConversationEntry, again: Repeat) -> Vec<Span> {
    match entry {
        ConversationEntry::Message(message) => self::message(message, again),
        ConversationEntry::ToolCall(call) => tool_call(call, again),
        ConversationEntry::Compaction(compaction) => self::compaction(compaction),
        _ => Vec::new(),
    }
}

/// The text that ends the last span of a message, if it is nothing but text.
pub(super) fn only_text(entry: &ConversationEntry) -> Option<&str> {
    match entry {
        ConversationEntry::Message(ConversationMessage { content, .. }) => match content.as_slice() {
            [ContentBlock::Text(text)] => Some(text.text.trim_end_matches(['\r', '\n'])),
            _ => None,
        },
        _ => None,
    }
}

fn message(message: &ConversationMessage, again: Repeat) -> Vec<Span> {
    let (style, mark) = match message.kind {
        MessageKind::User => (MARK, "> "),
        MessageKind::Thought => (DIM, "thinking: "),
        _ => (NORMAL, ""),
    };
    let mut spans = Vec::new();
    if again == Repeat::Again {
        spans.push(Span::new(DIM, "↑ what was said above is taken back\n"));
    }
    let last = message.content.len().saturating_sub(1);
    for (index, block) in message.content.iter().enumerate() {
        match block {
            // The end of the last line is the block's own.
            ContentBlock::Text(text) if index == last => {
                spans.push(Span::new(style, text.text.trim_end_matches(['\r', '\n'])));
            }
            ContentBlock::Text(text) => spans.push(Span::new(style, &text.text)),
            other => {
                let open = spans.last().is_some_and(|span| !span.as_str().ends_with('\n'));
                let end = if index == last { "" } else { "\n" };
                spans.push(Span::new(DIM, &format!("{}{}{end}", if open { "\n" } else { "" }, name(other))));
            }
        }
    }
    if !mark.is_empty() && !message.content.is_empty() {
        spans.insert(0, Span::new(style, mark));
    }
    spans
}

/// Returns text as it is, and a short description of any other content.
pub(super) fn name(block: &ContentBlock) -> String {
    let bytes = |base64: &str| base64.len() / 4 * 3;
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => format!("[{}, {} bytes]", image.mime_type, bytes(&image.data)),
        ContentBlock::Audio(audio) => format!("[{}, {} bytes]", audio.mime_type, bytes(&audio.data)),
        ContentBlock::ResourceLink(link) => format!("[{}: {}]", link.name, link.uri),
        ContentBlock::Resource(resource) => match &resource.resource {
            EmbeddedResourceResource::TextResourceContents(text) => {
                format!("[{}]\n{}", text.uri, text.text.trim_end())
            }
            EmbeddedResourceResource::BlobResourceContents(blob) => {
                format!("[{}, {} bytes]", blob.uri, bytes(&blob.blob))
            }
            _ => "[a resource]".into(),
        },
        ContentBlock::Unknown(unknown) => format!("[content of the unknown kind {}]", unknown.tag()),
        _ => "[content]".into(),
    }
}

/// The first line of a tool call, without what it is about.
pub(super) fn tool_call_head(call: &ToolCall) -> Vec<Span> {
    let (style, glyph) = match &call.status {
        ToolCallStatus::Pending => (DIM, "○"),
        ToolCallStatus::InProgress => (MARK, "▸"),
        ToolCallStatus::Completed => (GOOD, "✓"),
        ToolCallStatus::Failed => (BAD, "✗"),
        _ => (DIM, "?"),
    };
    vec![
        Span::new(style, glyph),
        Span::plain(" "),
        Span::line(BOLD, &call.title),
        Span::line(DIM, &format!("  {}", call.kind.as_str())),
    ]
}

fn changed_path(content: &ToolCallContent) -> Option<&Path> {
    match content {
        ToolCallContent::Diff(diff) => Some(&diff.path),
        _ => None,
    }
}

fn tool_call(call: &ToolCall, again: Repeat) -> Vec<Span> {
    let mut spans = tool_call_head(call);
    if again == Repeat::Again && call.status != ToolCallStatus::Failed {
        return spans;
    }
    let changed: HashSet<_> = call.content.iter().filter_map(changed_path).collect();
    for location in call.locations.iter().filter(|location| !changed.contains(location.path.as_path())) {
        let line = location.line.map(|line| format!(":{line}")).unwrap_or_default();
        let place = format!("{}{line}", location.path.display());
        spans.extend([Span::plain("\n  "), Span::line(DIM, &place)]);
    }
    for content in &call.content {
        match content {
            ToolCallContent::Diff(diff) => spans.extend(self::diff(diff)),
            ToolCallContent::Content(content) => spans.extend(indented(&name(&content.content))),
            other => spans.extend([Span::plain("\n  "), Span::line(DIM, &label(other))]),
        }
    }
    spans
}

/// Returns a short description of what a tool produced besides text and changes.
pub(super) fn label(content: &ToolCallContent) -> String {
    match content {
        ToolCallContent::Terminal(terminal) => format!("[terminal {}]", terminal.terminal_id),
        ToolCallContent::Unknown(unknown) => format!("[content of the unknown kind {}]", unknown.tag()),
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

/// A change to a file: its first lines.
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

/// Returns all lines that differ, with three around them.
pub(super) fn diff_lines(diff: &Diff) -> Vec<(Style, String)> {
    diff_lines_within(diff, DIFF_TIME).lines
}

/// The lines that are shown of a diff.
#[derive(Default)]
pub(super) struct DiffLines {
    pub(super) lines: Vec<(Style, String)>,
    /// The bytes of the old and of the new text that they show.
    pub(super) old_bytes: usize,
    pub(super) new_bytes: usize,
}

/// Like [`diff_lines`], with so much time to look for the shortest difference.
pub(super) fn diff_lines_within(diff: &Diff, time: Duration) -> DiffLines {
    let old = diff.old_text.as_deref().unwrap_or_default();
    let text = TextDiff::configure().timeout(time).diff_lines(old, diff.new_text.as_str());
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

fn compaction(compaction: &Compaction) -> Vec<Span> {
    let (style, glyph, what) = match &compaction.status {
        CompactionStatus::InProgress => (MARK, "▸", "compacting the context"),
        CompactionStatus::Completed => (GOOD, "✓", "the context is compacted"),
        CompactionStatus::Failed => (BAD, "✗", "compacting the context failed"),
        CompactionStatus::Cancelled => (DIM, "✗", "compacting the context was cancelled"),
        _ => (DIM, "?", "compacting the context"),
    };
    let mut spans = vec![Span::new(style, glyph), Span::new(DIM, &format!(" {what}"))];
    if let Some(error) = &compaction.error {
        spans.push(Span::line(DIM, &format!(": {error}")));
    }
    spans.extend(compaction.summary.iter().flat_map(|block| indented(&name(block))));
    spans
}

pub(super) fn plan(plan: &Plan) -> Vec<Span> {
    let mut spans = vec![Span::new(BOLD, "Plan")];
    for entry in &plan.entries {
        let (style, glyph) = match &entry.status {
            PlanEntryStatus::Pending => (DIM, "○"),
            PlanEntryStatus::InProgress => (MARK, "▸"),
            PlanEntryStatus::Completed => (GOOD, "✓"),
            _ => (DIM, "?"),
        };
        spans.extend([
            Span::plain("\n  "),
            Span::new(style, glyph),
            Span::plain(" "),
            Span::line(NORMAL, &entry.content),
        ]);
        if entry.priority == PlanEntryPriority::High {
            spans.push(Span::new(DIM, "  high"));
        }
    }
    spans
}

/// What an update tells besides the conversation, given what was known before.
pub(super) fn notes(before: &Conversation, update: &SessionUpdate) -> Vec<Vec<Span>> {
    let dim = |text: String| vec![Span::line(DIM, &text)];
    match update {
        SessionUpdate::Notice(notice) => vec![self::notice(notice)],
        SessionUpdate::CurrentModeUpdate(update) => vec![dim(format!("· mode: {}", update.current_mode_id))],
        SessionUpdate::ConfigOptionUpdate(update) => {
            let was = |id| before.config_options().iter().find(|option| option.id == id).map(value);
            let changed =
                update.config_options.iter().filter(|option| was(option.id.clone()) != Some(value(option)));
            changed.map(|option| dim(format!("· {}: {}", option.name, value(option)))).collect()
        }
        SessionUpdate::SessionInfoUpdate(info) => {
            info.title.value().map(|title| dim(format!("· title: {title}"))).into_iter().collect()
        }
        SessionUpdate::AvailableCommandsUpdate(update) if update.available_commands != before.commands() => {
            let new = update.available_commands.iter().filter(|command| !before.commands().contains(command));
            let names: Vec<_> = new.map(|command| format!("/{}", command.name)).collect();
            if names.is_empty() { Vec::new() } else { vec![dim(format!("· commands: {}", names.join(" ")))] }
        }
        SessionUpdate::Unknown(unknown)
            if !unknown.tag().ends_with("_message") && unknown.tag() != "agent_thought" =>
        {
            vec![dim(format!("· an update of the unknown kind {}", unknown.tag()))]
        }
        _ => Vec::new(),
    }
}

fn value(option: &SessionConfigOption) -> String {
    match &option.kind {
        SessionConfigKind::Select(select) => select.current_value.to_string(),
        SessionConfigKind::Boolean(boolean) => if boolean.current_value { "on" } else { "off" }.into(),
        _ => "?".into(),
    }
}

fn notice(notice: &Notice) -> Vec<Span> {
    let (style, glyph) = match &notice.severity {
        NoticeSeverity::Error => (BAD, "✗"),
        NoticeSeverity::Warning => (BOLD, "!"),
        _ => (MARK, "·"),
    };
    // A title may read like a line of our own.
    let mut spans =
        vec![Span::new(style, glyph), Span::new(DIM, " notice: "), Span::line(NORMAL, &notice.title)];
    if let Some(description) = &notice.description {
        spans.push(Span::line(DIM, &format!("  {description}")));
    }
    spans
}

/// Tokens and money used so far, if the agent told.
pub(super) fn usage(conversation: &Conversation) -> Option<Vec<Span>> {
    let usage = conversation.usage()?;
    let cost =
        usage.cost.as_ref().map(|cost| format!(", {} {}", cost.amount, cost.currency)).unwrap_or_default();
    Some(vec![Span::line(DIM, &format!("· {} of {} tokens{cost}", usage.used, usage.size))])
}
