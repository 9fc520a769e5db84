//! Tool calls, and what is told about them while they run.
//!
//! See [Tool calls](https://agentclientprotocol.com/protocol/v1/tool-calls).

use std::path::PathBuf;

use duologue_schema_derive::wire;

use crate::{ContentBlock, Json, TerminalId, ToolCallId};

/// A tool call the model asked for, as first announced.
#[wire]
pub struct ToolCall {
    /// Which call.
    pub tool_call_id: ToolCallId,
    /// What it does, for a person.
    pub title: String,
    /// The tool's own name.
    #[wire(lenient)]
    pub name: Option<String>,
    /// What sort of tool it is.
    #[wire(default, lenient)]
    pub kind: ToolKind,
    /// How far it is.
    #[wire(default, lenient)]
    pub status: ToolCallStatus,
    /// What it produced so far.
    #[wire(default, skip_invalid)]
    pub content: Vec<ToolCallContent>,
    /// The files it touches, for editors that follow along.
    #[wire(default, skip_invalid)]
    pub locations: Vec<ToolCallLocation>,
    /// The input as the tool got it.
    #[wire(lenient)]
    pub raw_input: Option<Json>,
    /// The output as the tool gave it.
    #[wire(lenient)]
    pub raw_output: Option<Json>,
}

/// A change to a tool call. What is absent stays as it was; a list replaces the whole list.
///
/// It may be the first thing heard of a call.
#[wire]
pub struct ToolCallUpdate {
    /// Which call.
    pub tool_call_id: ToolCallId,
    /// The new title.
    #[wire(lenient)]
    pub title: Option<String>,
    /// The tool's own name.
    #[wire(lenient)]
    pub name: Option<String>,
    /// The new kind.
    #[wire(lenient)]
    pub kind: Option<ToolKind>,
    /// The new status.
    #[wire(lenient)]
    pub status: Option<ToolCallStatus>,
    /// All content, in place of the old. A list of nothing but malformed items changes nothing.
    #[wire(skip_invalid)]
    pub content: Option<Vec<ToolCallContent>>,
    /// All locations, in place of the old. A list of nothing but malformed items changes nothing.
    #[wire(skip_invalid)]
    pub locations: Option<Vec<ToolCallLocation>>,
    /// The new input.
    #[wire(lenient)]
    pub raw_input: Option<Json>,
    /// The new output.
    #[wire(lenient)]
    pub raw_output: Option<Json>,
}

impl ToolCallUpdate {
    /// Applies the change to `call`.
    pub fn apply_to(self, call: &mut ToolCall) {
        fn set<T>(current: &mut T, new: Option<T>) {
            if let Some(new) = new {
                *current = new;
            }
        }
        set(&mut call.title, self.title);
        set(&mut call.kind, self.kind);
        set(&mut call.status, self.status);
        set(&mut call.content, self.content);
        set(&mut call.locations, self.locations);
        call.name = self.name.or(call.name.take());
        call.raw_input = self.raw_input.or(call.raw_input.take());
        call.raw_output = self.raw_output.or(call.raw_output.take());
        call.meta = self.meta.or(call.meta.take());
    }
}

/// A call first heard of by an update has no title but its id.
impl From<ToolCallUpdate> for ToolCall {
    fn from(update: ToolCallUpdate) -> Self {
        let mut call = ToolCall::new(update.tool_call_id.clone(), update.tool_call_id.as_str());
        update.apply_to(&mut call);
        call
    }
}

impl From<ToolCall> for ToolCallUpdate {
    fn from(call: ToolCall) -> Self {
        ToolCallUpdate {
            tool_call_id: call.tool_call_id,
            title: Some(call.title),
            name: call.name,
            kind: Some(call.kind),
            status: Some(call.status),
            content: Some(call.content),
            locations: Some(call.locations),
            raw_input: call.raw_input,
            raw_output: call.raw_output,
            meta: call.meta,
        }
    }
}

/// What sort of tool it is; helps to pick an icon.
#[wire]
#[derive(Default)]
pub enum ToolKind {
    /// Reads files or data.
    Read,
    /// Changes files or content.
    Edit,
    /// Removes files or data.
    Delete,
    /// Moves or renames files.
    Move,
    /// Looks for something.
    Search,
    /// Runs a command or code.
    Execute,
    /// Reasons or plans.
    Think,
    /// Gets data from elsewhere.
    Fetch,
    /// Changes the session's mode.
    SwitchMode,
    /// Anything else.
    #[default]
    Other,
}

/// How far a tool call is.
#[wire]
#[derive(Default)]
pub enum ToolCallStatus {
    /// Not started: its input still streams, or it awaits approval.
    #[default]
    Pending,
    /// Running.
    InProgress,
    /// Ended well.
    Completed,
    /// Ended badly.
    Failed,
}

/// Something a tool call produced.
#[wire(tag = "type")]
pub enum ToolCallContent {
    /// Ordinary content.
    Content(Content),
    /// A change to a file.
    Diff(Box<Diff>),
    /// The output of a terminal the client runs, shown live.
    Terminal(Terminal),
}

impl ToolCallContent {
    /// A change to a file; without `old_text` the file is new.
    pub fn diff(
        path: impl Into<PathBuf>,
        old_text: impl Into<Option<String>>,
        new_text: impl Into<String>,
    ) -> Self {
        let mut diff = Diff::new(path, new_text);
        diff.old_text = old_text.into();
        diff.into()
    }

    /// The live output of a terminal.
    pub fn terminal(terminal_id: impl Into<TerminalId>) -> Self {
        Terminal::new(terminal_id).into()
    }
}

impl<T: Into<ContentBlock>> From<T> for ToolCallContent {
    fn from(content: T) -> Self {
        Content::new(content).into()
    }
}

/// Ordinary content in a tool call.
#[wire]
pub struct Content {
    /// The block.
    pub content: ContentBlock,
}

/// A change to a file.
#[wire]
pub struct Diff {
    /// The file, as an absolute path.
    pub path: PathBuf,
    /// What it held before; absent for a new file.
    #[wire(lenient)]
    pub old_text: Option<String>,
    /// What it holds now.
    pub new_text: String,
}

/// A terminal shown in a tool call. It stays visible after its release.
#[wire]
pub struct Terminal {
    /// Which terminal.
    pub terminal_id: TerminalId,
}

/// A place in a file that a tool call works on.
#[wire]
pub struct ToolCallLocation {
    /// The file, as an absolute path.
    pub path: PathBuf,
    /// The line, counted from 1.
    #[wire(lenient)]
    pub line: Option<u32>,
}
