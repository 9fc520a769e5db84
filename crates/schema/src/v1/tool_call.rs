//! Tool calls and their updates.
//!
//! See [Tool calls](https://agentclientprotocol.com/protocol/v1/tool-calls).

use std::path::PathBuf;

use duologue_schema_derive::wire;

use crate::{ContentBlock, Json, Meta, Patch, SessionId, TerminalId, ToolCallId};

/// A tool call as first announced.
#[wire]
pub struct ToolCall {
    /// The id of the tool call.
    pub tool_call_id: ToolCallId,
    /// A title to show to the user.
    pub title: String,
    /// The name of the tool.
    #[wire(lenient)]
    pub name: Option<String>,
    /// The kind of the tool.
    #[wire(default, lenient)]
    pub kind: ToolKind,
    /// The status of the call.
    #[wire(default, lenient)]
    pub status: ToolCallStatus,
    /// The content that the call has produced so far.
    #[wire(default, skip_invalid)]
    pub content: Vec<ToolCallContent>,
    /// The files that the call works on, for editors that follow the agent.
    #[wire(default, skip_invalid)]
    pub locations: Vec<ToolCallLocation>,
    /// The input of the tool.
    #[wire(lenient)]
    pub raw_input: Option<Json>,
    /// The output of the tool.
    #[wire(lenient)]
    pub raw_output: Option<Json>,
    /// The controls that an agent of version 2 offers to the client.
    #[cfg(feature = "protocol-v2")]
    #[wire(local)]
    pub capabilities: Option<crate::v2::ToolCallCapabilities>,
}

/// A change to a tool call. An absent field keeps its value, and a list replaces the whole list.
///
/// An update may arrive for a call that was never announced.
#[wire]
pub struct ToolCallUpdate {
    /// The id of the tool call.
    pub tool_call_id: ToolCallId,
    /// The new title.
    #[wire(lenient)]
    pub title: Option<String>,
    /// The name of the tool.
    #[wire(lenient)]
    pub name: Option<String>,
    /// The new kind.
    #[wire(lenient)]
    pub kind: Option<ToolKind>,
    /// The new status.
    #[wire(lenient)]
    pub status: Option<ToolCallStatus>,
    /// All content. It replaces the previous content, unless every item is malformed.
    #[wire(skip_invalid)]
    pub content: Option<Vec<ToolCallContent>>,
    /// All locations. They replace the previous ones, unless every item is malformed.
    #[wire(skip_invalid)]
    pub locations: Option<Vec<ToolCallLocation>>,
    /// The new input.
    #[wire(lenient)]
    pub raw_input: Option<Json>,
    /// The new output.
    #[wire(lenient)]
    pub raw_output: Option<Json>,
    /// The controls that an agent of version 2 offers to the client.
    #[cfg(feature = "protocol-v2")]
    #[wire(local)]
    pub capabilities: Patch<crate::v2::ToolCallCapabilities>,
    /// The fields that an agent of version 2 removes. Version 1 can only replace them.
    #[cfg(feature = "protocol-v2")]
    #[wire(local)]
    pub cleared: ClearedFields,
}

/// The fields of a tool call that an update of version 2 removes.
#[cfg(feature = "protocol-v2")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClearedFields {
    /// True to remove the name.
    pub name: bool,
    /// True to remove the input.
    pub raw_input: bool,
    /// True to remove the output.
    pub raw_output: bool,
    /// True to remove all extension data.
    pub meta: bool,
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
        #[cfg(feature = "protocol-v2")]
        {
            fn clear<T>(field: &mut Option<T>, cleared: bool) {
                if cleared {
                    *field = None;
                }
            }
            clear(&mut call.name, self.cleared.name);
            clear(&mut call.raw_input, self.cleared.raw_input);
            clear(&mut call.raw_output, self.cleared.raw_output);
            clear(&mut call.meta, self.cleared.meta);
            self.capabilities.apply(&mut call.capabilities);
        }
        if let Some(meta) = self.meta {
            Meta::patch(&mut call.meta, Patch::Set(meta));
        }
    }
}

/// Creates a call from an update alone. An absent title becomes the id.
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
            #[cfg(feature = "protocol-v2")]
            capabilities: call.capabilities.map_or(Patch::Keep, Patch::Set),
            #[cfg(feature = "protocol-v2")]
            cleared: ClearedFields::default(),
        }
    }
}

/// The kind of a tool, for example to choose an icon.
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
    /// Searches.
    Search,
    /// Runs a command or code.
    Execute,
    /// Reasons or plans.
    Think,
    /// Fetches external data.
    Fetch,
    /// Changes the mode of the session.
    SwitchMode,
    /// Anything else.
    #[default]
    Other,
}

/// The status of a tool call.
#[wire]
#[derive(Default)]
pub enum ToolCallStatus {
    /// The call has not started: its input is incomplete, or it awaits approval.
    #[default]
    Pending,
    /// The call is running.
    InProgress,
    /// The call has begun and waits. Only version 2 has it.
    #[cfg(feature = "protocol-v2")]
    Paused,
    /// The call succeeded.
    Completed,
    /// The call failed.
    Failed,
    /// The call was cancelled. Only version 2 has it.
    #[cfg(feature = "protocol-v2")]
    Cancelled,
}

impl ToolCallStatus {
    /// Returns true if the call has ended.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            ToolCallStatus::Completed | ToolCallStatus::Failed => true,
            // Only version 2 names it.
            status => status.as_str() == "cancelled",
        }
    }
}

/// Content that a tool call produced.
#[wire(tag = "type")]
pub enum ToolCallContent {
    /// A content block.
    Content(Content),
    /// A change to a file.
    Diff(Box<Diff>),
    /// The live output of a terminal of the client.
    Terminal(Terminal),
    /// A reference to another session, such as a child that the call creates or waits for.
    Session(SessionReference),
    /// Changes to files, from an agent of version 2.
    #[cfg(feature = "protocol-v2")]
    #[wire(rename = "diff", never_read)]
    Changes(Box<crate::v2::Diff>),
    /// A terminal that an agent of version 2 runs and describes by updates.
    #[cfg(feature = "protocol-v2")]
    #[wire(rename = "terminal", never_read)]
    DisplayTerminal(Terminal),
}

impl ToolCallContent {
    /// Creates a change to a file. Without `old_text` the file is new.
    pub fn diff(
        path: impl Into<PathBuf>,
        old_text: impl Into<Option<String>>,
        new_text: impl Into<String>,
    ) -> Self {
        let mut diff = Diff::new(path, new_text);
        diff.old_text = old_text.into();
        diff.into()
    }

    /// Creates the live output of a terminal.
    pub fn terminal(terminal_id: impl Into<TerminalId>) -> Self {
        Terminal::new(terminal_id).into()
    }

    /// Creates a reference to a session that the client knows, mostly a child session.
    ///
    /// ```
    /// use duologue_schema::ToolCallContent;
    ///
    /// let content = ToolCallContent::session("child");
    /// assert_eq!(serde_json::to_string(&content)?, r#"{"type":"session","sessionId":"child"}"#);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn session(session_id: impl Into<SessionId>) -> Self {
        SessionReference::new(session_id).into()
    }

    /// Creates the live output of a terminal that an agent of version 2 runs.
    #[cfg(feature = "protocol-v2")]
    pub fn display_terminal(terminal_id: impl Into<TerminalId>) -> Self {
        ToolCallContent::DisplayTerminal(Terminal::new(terminal_id))
    }
}

impl<T: Into<ContentBlock>> From<T> for ToolCallContent {
    fn from(content: T) -> Self {
        Content::new(content).into()
    }
}

/// A content block in a tool call.
#[wire]
pub struct Content {
    /// The block.
    pub content: ContentBlock,
}

/// A further piece of the content of a tool call.
#[cfg(feature = "protocol-v2")]
#[wire]
pub struct ToolCallContentChunk {
    /// The id of the tool call.
    pub tool_call_id: ToolCallId,
    /// The content to append.
    pub content: ToolCallContent,
}

/// A change to a file.
#[wire]
pub struct Diff {
    /// The file, as an absolute path.
    pub path: PathBuf,
    /// The text before the change. Absent for a new file.
    #[wire(lenient)]
    pub old_text: Option<String>,
    /// The text after the change.
    pub new_text: String,
}

/// A terminal shown in a tool call. It stays visible after its release.
#[wire]
pub struct Terminal {
    /// The id of the terminal.
    pub terminal_id: TerminalId,
}

/// A reference to another session in a tool call, to show. It grants no control of that session.
#[wire]
pub struct SessionReference {
    /// The session.
    pub session_id: SessionId,
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
