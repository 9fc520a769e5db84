//! Updates, tool calls and plans in words: the one list of what is shown of each kind.
//!
//! [`update`] and its neighbours describe decoded values, for a terminal or a page. A script has to
//! show every field, those of later versions included, so it is written from JSON: `write_update`
//! lists the fields of each kind.

use std::borrow::Cow;
use std::path::Path;

use duologue_schema::v2::{DiffOperation, TerminalUpdate};
use duologue_schema::{
    AvailableCommand, Compaction, CompactionStatus, ContentBlock, Diff, EmbeddedResourceResource,
    NoticeSeverity, Notification as _, Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus,
    PlanUpdateContent, SessionConfigKind, SessionConfigOption, SessionNotification, SessionUpdate,
    StateUpdate, SubagentUpdate, ToolCall, ToolCallContent, ToolCallLocation, ToolCallStatus, UsageUpdate,
    v2,
};
use serde_json::Value;

use super::RenderOptions;
use super::content;
use super::object_line::ObjectLine;
use crate::terminal_text;

/// An update, a tool call or a plan in words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description<'a> {
    /// The name of the kind: `mode`, `notice`, the kind of a tool.
    pub label: Cow<'a, str>,
    /// The title, or the new value.
    pub text: Cow<'a, str>,
    /// The status, if it has one.
    pub status: Option<DescribedStatus<'a>>,
    /// The details, in the order in which they are shown.
    pub parts: Vec<DescribedPart<'a>>,
}

/// The status of a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescribedStatus<'a> {
    /// The status as the protocol spells it.
    pub word: &'a str,
    /// The stage that it stands for.
    pub stage: Stage,
}

/// The stage of something that has a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Not begun.
    Pending,
    /// Begun.
    Running,
    /// Ended well.
    Completed,
    /// Failed, or the severity of an error.
    Failed,
    /// Ended early.
    Cancelled,
    /// The severity of a warning.
    Warning,
    /// The severity of an information.
    Info,
    /// An unknown status.
    Other,
}

/// A detail of a description.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum DescribedPart<'a> {
    /// Text of any length.
    Text(Cow<'a, str>),
    /// A file, with a line if one is named.
    Location(&'a ToolCallLocation),
    /// A change to a file.
    Diff(&'a Diff),
    /// A name and a value.
    Field {
        /// The name.
        name: Cow<'a, str>,
        /// The value.
        text: Cow<'a, str>,
        /// True for the raw JSON of a tool, which is too long for a terminal.
        is_raw: bool,
    },
    /// A step of a plan.
    Step {
        /// The step.
        text: &'a str,
        /// Its status.
        status: DescribedStatus<'a>,
        /// True for a high priority.
        is_urgent: bool,
    },
}

impl<'a> DescribedPart<'a> {
    fn field(name: impl Into<Cow<'a, str>>, text: impl Into<Cow<'a, str>>) -> Self {
        DescribedPart::Field { name: name.into(), text: text.into(), is_raw: false }
    }

    fn raw(name: &'a str, text: &'a str) -> Self {
        DescribedPart::Field { name: name.into(), text: text.into(), is_raw: true }
    }
}

/// Describes an update of the session as a whole. `None` for the updates of messages, tool calls and
/// compactions, of which the conversation is shown.
#[must_use]
pub fn update(update: &SessionUpdate) -> Option<Description<'_>> {
    let described = match update {
        SessionUpdate::Plan(plan) => self::plan(plan),
        SessionUpdate::AvailableCommandsUpdate(update) => commands(&update.available_commands),
        SessionUpdate::CurrentModeUpdate(update) => labelled("mode", update.current_mode_id.as_str()),
        SessionUpdate::ConfigOptionUpdate(update) => Description {
            label: "options".into(),
            parts: update.config_options.iter().map(option).collect(),
            ..Description::default()
        },
        SessionUpdate::SessionInfoUpdate(info) => {
            labelled("title", info.title.value().map(String::as_str).unwrap_or_default())
        }
        SessionUpdate::UsageUpdate(usage) => labelled("usage", self::usage(usage)),
        SessionUpdate::Notice(notice) => Description {
            label: "notice".into(),
            text: notice.title.as_str().into(),
            status: Some(DescribedStatus {
                word: notice.severity.as_str(),
                stage: match notice.severity {
                    NoticeSeverity::Error => Stage::Failed,
                    NoticeSeverity::Warning => Stage::Warning,
                    _ => Stage::Info,
                },
            }),
            parts: notice.description.iter().map(|text| DescribedPart::Text(text.into())).collect(),
        },
        SessionUpdate::StateUpdate(state) => self::state(state),
        SessionUpdate::PlanUpdate(update) => plan_with_id(&update.plan),
        SessionUpdate::PlanRemoved(removed) => labelled("plan removed", removed.plan_id.as_str()),
        SessionUpdate::SubagentUpdate(update) => subagent(update),
        SessionUpdate::TerminalUpdate(update) => terminal(update),
        SessionUpdate::TerminalOutputChunk(chunk) => Description {
            parts: output(&chunk.data).map(DescribedPart::Text).into_iter().collect(),
            ..labelled("terminal", chunk.terminal_id.as_str())
        },
        SessionUpdate::Unknown(unknown) => {
            Description { label: unknown.tag().into(), ..Description::default() }
        }
        _ => return None,
    };
    Some(described)
}

/// Describes the state of the foreground work.
fn state(state: &StateUpdate) -> Description<'_> {
    let Some(reason) = state.stop_reason() else { return labelled("state", state.tag()) };
    let error = match state {
        StateUpdate::Idle(idle) => idle.stop.error(),
        _ => None,
    };
    Description {
        parts: error.iter().map(|error| DescribedPart::Text(error.message.to_string().into())).collect(),
        ..labelled("state", format!("{}: {}", state.tag(), reason.as_str()))
    }
}

/// Describes a plan with an id, which is the text of the description.
#[must_use]
pub fn plan_with_id(content: &PlanUpdateContent) -> Description<'_> {
    match content {
        PlanUpdateContent::Items(items) => {
            Description { text: items.plan_id.as_str().into(), ..steps(&items.entries) }
        }
        PlanUpdateContent::Markdown(markdown) => {
            let path = markdown.path.iter().map(|path| DescribedPart::field("file", path.to_string_lossy()));
            let text = DescribedPart::Text(markdown.content.as_str().into());
            Description { parts: path.chain([text]).collect(), ..labelled("plan", markdown.plan_id.as_str()) }
        }
        other => labelled("plan", other.plan_id().map(|id| id.as_str().to_owned()).unwrap_or_default()),
    }
}

/// Describes a child session.
fn subagent(update: &SubagentUpdate) -> Description<'_> {
    let title = update.title.value().map_or(update.session_id.as_str(), String::as_str);
    let described = update.description.value().map(|text| DescribedPart::Text(text.into()));
    let state = update.state.value().map(|state| DescribedPart::field("state", state.tag()));
    Description { parts: described.into_iter().chain(state).collect(), ..labelled("subagent", title) }
}

/// Describes an update of a terminal that the agent runs.
fn terminal(update: &TerminalUpdate) -> Description<'_> {
    let exit = update.exit_status.value().map(|status| match (status.exit_code, &status.signal) {
        (_, Some(signal)) => DescribedPart::field("signal", signal),
        (Some(code), None) => DescribedPart::field("exit", code.to_string()),
        (None, None) => DescribedPart::field("exit", ""),
    });
    let output = update.output.value().and_then(|output| self::output(&output.data)).map(DescribedPart::Text);
    let text = update.command.value().map_or(update.terminal_id.as_str(), String::as_str);
    Description { parts: exit.into_iter().chain(output).collect(), ..labelled("terminal", text) }
}

/// Decodes output of a terminal; `None` if there is none.
fn output(data: &str) -> Option<Cow<'static, str>> {
    let bytes = terminal_text::decoded(data)?;
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned().into())
}

fn labelled<'a>(label: &'a str, text: impl Into<Cow<'a, str>>) -> Description<'a> {
    Description { label: label.into(), text: text.into(), ..Description::default() }
}

fn commands(commands: &[AvailableCommand]) -> Description<'_> {
    let names: Vec<_> = commands.iter().map(|command| format!("/{}", command.name)).collect();
    labelled("commands", names.join(" "))
}

fn option(option: &SessionConfigOption) -> DescribedPart<'_> {
    DescribedPart::field(&option.name, option_value(option))
}

/// Returns the value of an option.
#[must_use]
pub fn option_value(option: &SessionConfigOption) -> &str {
    match &option.kind {
        SessionConfigKind::Select(select) => select.current_value.as_str(),
        SessionConfigKind::Boolean(boolean) if boolean.current_value => "on",
        SessionConfigKind::Boolean(_) => "off",
        _ => "?",
    }
}

/// Describes the used tokens and the cost.
#[must_use]
pub fn usage(usage: &UsageUpdate) -> String {
    let cost = usage.cost.value().map(|cost| format!(", {} {}", amount(cost.amount), cost.currency));
    format!("{} of {} tokens{}", usage.used, usage.size, cost.unwrap_or_default())
}

/// Formats an amount of money with at most six decimals.
fn amount(amount: f64) -> String {
    let text = format!("{amount:.6}");
    match text.trim_end_matches('0').trim_end_matches('.') {
        "0" | "-0" if amount != 0.0 => format!("{amount:.1e}"),
        rounded => rounded.to_owned(),
    }
}

/// Describes a plan.
#[must_use]
pub fn plan(plan: &Plan) -> Description<'_> {
    steps(&plan.entries)
}

fn steps(entries: &[PlanEntry]) -> Description<'_> {
    let steps = entries.iter().map(|entry| DescribedPart::Step {
        text: &entry.content,
        status: DescribedStatus {
            word: entry.status.as_str(),
            stage: match entry.status {
                PlanEntryStatus::Pending => Stage::Pending,
                PlanEntryStatus::InProgress => Stage::Running,
                PlanEntryStatus::Completed => Stage::Completed,
                _ => Stage::Other,
            },
        },
        is_urgent: entry.priority == PlanEntryPriority::High,
    });
    Description { label: "plan".into(), parts: steps.collect(), ..Description::default() }
}

/// Describes a tool call. Its locations come first.
#[must_use]
pub fn tool_call(call: &ToolCall) -> Description<'_> {
    let stage = match &call.status {
        ToolCallStatus::Pending => Stage::Pending,
        ToolCallStatus::InProgress => Stage::Running,
        ToolCallStatus::Completed => Stage::Completed,
        ToolCallStatus::Failed => Stage::Failed,
        // Only version 2 names it.
        status if status.as_str() == "cancelled" => Stage::Cancelled,
        _ => Stage::Other,
    };
    let mut parts: Vec<_> = call.locations.iter().map(DescribedPart::Location).collect();
    parts.extend(call.raw_input.as_ref().map(|json| DescribedPart::raw("input", json.get())));
    parts.extend(call.content.iter().map(tool_content));
    parts.extend(call.raw_output.as_ref().map(|json| DescribedPart::raw("output", json.get())));
    Description {
        label: call.kind.as_str().into(),
        text: call.title.as_str().into(),
        status: Some(DescribedStatus { word: call.status.as_str(), stage }),
        parts,
    }
}

/// Describes a product of a tool call.
#[must_use]
pub fn tool_content(content: &ToolCallContent) -> DescribedPart<'_> {
    match content {
        ToolCallContent::Content(content) => DescribedPart::Text(self::content(&content.content)),
        ToolCallContent::Diff(diff) => DescribedPart::Diff(diff),
        ToolCallContent::Terminal(terminal) => {
            DescribedPart::field("terminal", terminal.terminal_id.as_str())
        }
        ToolCallContent::DisplayTerminal(terminal) => {
            DescribedPart::field("terminal", terminal.terminal_id.as_str())
        }
        ToolCallContent::Session(session) => DescribedPart::field("session", session.session_id.as_str()),
        ToolCallContent::Changes(diff) => DescribedPart::Text(changes(diff)),
        ToolCallContent::Unknown(unknown) => {
            DescribedPart::field("content of the unknown kind", unknown.tag())
        }
        _ => DescribedPart::Text("[content]".into()),
    }
}

/// Returns the text of changes to files, or the changed files if the agent sent no text.
fn changes(diff: &v2::Diff) -> Cow<'_, str> {
    if let Some(patch) = &diff.patch {
        return patch.text.as_str().into();
    }
    let lines: Vec<_> = diff.changes.iter().map(|change| file_operation(&change.operation)).collect();
    lines.join("\n").into()
}

/// Returns an operation on a file with its paths.
#[must_use]
pub fn file_operation(operation: &DiffOperation) -> String {
    match operation {
        DiffOperation::Add(at) | DiffOperation::Delete(at) | DiffOperation::Modify(at) => {
            format!("{} {}", operation.tag(), at.path.display())
        }
        DiffOperation::Move(at) | DiffOperation::Copy(at) => {
            format!("{} {} to {}", operation.tag(), at.old_path.display(), at.path.display())
        }
        _ => operation.tag().to_owned(),
    }
}

/// Describes a compaction: its summary, and the reason for a failure.
#[must_use]
pub fn compaction(compaction: &Compaction) -> Description<'_> {
    let stage = match &compaction.status {
        CompactionStatus::InProgress => Stage::Running,
        CompactionStatus::Completed => Stage::Completed,
        CompactionStatus::Failed => Stage::Failed,
        CompactionStatus::Cancelled => Stage::Cancelled,
        _ => Stage::Other,
    };
    Description {
        label: "compaction".into(),
        text: compaction.error.as_deref().unwrap_or_default().into(),
        status: Some(DescribedStatus { word: compaction.status.as_str(), stage }),
        parts: compaction.summary.iter().map(|block| DescribedPart::Text(self::content(block))).collect(),
    }
}

/// Returns the text of a content block, or a short description of any other content.
#[must_use]
pub fn content(block: &ContentBlock) -> Cow<'_, str> {
    let bytes = |base64: &str| base64.len() / 4 * 3;
    let text = match block {
        ContentBlock::Text(text) => return text.text.as_str().into(),
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
        ContentBlock::Skill(skill) => format!("[skill {}]", skill.name),
        ContentBlock::Unknown(unknown) => format!("[content of the unknown kind {}]", unknown.tag()),
        _ => "[content]".into(),
    };
    text.into()
}

/// Returns a location as a path, with the line if one is named.
#[must_use]
pub fn location(location: &ToolCallLocation) -> String {
    let line = location.line.map(|line| format!(":{line}")).unwrap_or_default();
    format!("{}{line}", location.path.display())
}

/// Returns the files that a description changes.
pub fn changed_paths<'a>(description: &Description<'a>) -> impl Iterator<Item = &'a Path> {
    description.parts.iter().filter_map(|part| match part {
        DescribedPart::Diff(diff) => Some(diff.path.as_path()),
        _ => None,
    })
}

/// Writes the params of a `session/update` as lines of a script.
pub(super) fn write_update(it: &mut ObjectLine<'_>, options: RenderOptions) {
    match it.fields.object("update") {
        Some(update) => it.line.object(update, |it| write_update_kind(it, options)),
        None => _ = it.add(SessionNotification::METHOD),
    }
}

fn write_update_kind(it: &mut ObjectLine<'_>, options: RenderOptions) {
    let kind = it.fields.string("sessionUpdate").unwrap_or_default();
    match kind.as_str() {
        "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk" => {
            // Joined, they are a message.
            let message = kind.trim_end_matches("_chunk");
            it.add(if options.single_chunks { kind.as_str() } else { message });
            it.words(&["messageId"]).object("content", content::block);
        }
        "compaction_summary_chunk" => {
            it.add("compaction_summary").words(&["compactionId"]).object("content", content::block);
        }
        "user_message" | "agent_message" | "agent_thought" => {
            it.add(&kind).words(&["messageId"]);
            whole_message(it);
        }
        "session_message" => {
            session_message(it.add(&kind));
            whole_message(it);
        }
        "session_message_chunk" => {
            it.add("session_message").words(&["messageId"]).object("content", content::block);
        }
        "state_update" => content::state(it.add("state")),
        "tool_call_content_chunk" => {
            it.add(&kind).words(&["toolCallId"]).object("content", content::tool_content);
        }
        "terminal_update" => content::display_terminal(it.add("terminal")),
        terminal_text::OUTPUT_CHUNK => content::display_terminal(it.add("terminal")),
        "plan_update" => _ = it.add("plan").object("plan", content::plan_with_id),
        "plan_removed" => _ = it.add(&kind).words(&["planId"]),
        "subagent_update" => {
            it.add("subagent").words(&["sessionId"]).quoted(&["title", "description"]);
            it.object("state", content::state).named("in", "cwd");
        }
        "agent_message_clear" | "agent_thought_clear" => _ = it.add(&kind).words(&["messageId"]),
        "tool_call" | "tool_call_update" => content::tool_call(it.add(&kind)),
        "plan" => content::plan(it.add(&kind)),
        "available_commands_update" => content::commands(it.add(&kind)),
        "current_mode_update" => _ = it.add(&kind).words(&["currentModeId", "modeId"]),
        "config_option_update" => content::config_options(it.add(&kind)),
        "session_info_update" => _ = it.add(&kind).words(&["updatedAt"]).quoted(&["title"]),
        "usage_update" => write_usage(it.add(&kind)),
        "notice" => _ = it.add(&kind).words(&["severity"]).quoted(&["title", "description"]),
        "compaction_update" => {
            it.add(&kind).words(&["compactionId", "status"]).quoted(&["error"]);
            content::blocks(it, "summary");
        }
        _ => {
            it.add(SessionNotification::METHOD);
            if !kind.is_empty() {
                it.fields.put("sessionUpdate", kind.into());
            }
        }
    }
}

/// Writes the content that replaces that of a message: the blocks behind `=`, or that it is cleared.
fn whole_message(it: &mut ObjectLine<'_>) {
    match it.fields.peek_value("content") {
        Some(Value::Array(blocks)) if !blocks.is_empty() => content::blocks(it.add("="), "content"),
        Some(Value::Array(_) | Value::Null) => {
            it.fields.take("content");
            it.add("cleared");
        }
        _ => {}
    }
}

/// Writes the ids of a message between sessions.
fn session_message(it: &mut ObjectLine<'_>) {
    it.words(&["messageId"]).named("from", "senderSessionId").named("to", "recipientSessionId");
}

/// Writes the used and the available tokens, and the cost.
pub(super) fn write_usage(it: &mut ObjectLine<'_>) {
    it.number("used", "{}").number("size", "of {}");
    it.object("cost", |it| _ = it.number("amount", "{}").words(&["currency"]));
}

/// Limit on the bytes of two texts that are compared: a diff may take the square of their length.
const LONGEST_DIFF: usize = 128 * 1024;

/// Returns true if two texts are short enough for an exact diff.
#[must_use]
pub fn diff_is_cheap(old: &str, new: &str) -> bool {
    old.len() + new.len() <= LONGEST_DIFF
}
