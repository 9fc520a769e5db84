//! Tool calls: announce, update, finish.

use std::path::PathBuf;
use std::sync::Mutex;

use duologue_rpc::Lock;
use duologue_schema::{
    ContentBlock, Json, PermissionOption, RequestPermissionOutcome, SessionUpdate, ToolCall, ToolCallContent,
    ToolCallId, ToolCallLocation, ToolCallStatus, ToolCallUpdate, ToolKind,
};
use serde_json::Value;

use crate::calls::RemoteTerminal;
use crate::error::Result;
use crate::turn::Turn;

/// A tool call before the client knows of it.
///
/// ```
/// use duologue_agent::ToolKind;
///
/// # async fn turn(turn: &duologue_agent::Turn) -> duologue_agent::Result<()> {
/// let read = turn.tool_call("Read the manifest").kind(ToolKind::Read).location("/home/me/Cargo.toml").start().await?;
/// let text = turn.read_text_file("/home/me/Cargo.toml").await?;
/// read.content(text).await?;
/// read.complete().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the client sees a tool call once it is started"]
#[derive(Debug)]
pub struct NewToolCall {
    turn: Turn,
    call: ToolCall,
}

impl NewToolCall {
    pub(crate) fn new(turn: Turn, title: String) -> Self {
        NewToolCall { turn, call: ToolCall::new(Turn::new_tool_call_id(), title) }
    }

    /// Uses an id of the agent's own.
    pub fn id(mut self, id: impl Into<ToolCallId>) -> Self {
        self.call.tool_call_id = id.into();
        self
    }

    /// What kind of tool it is; clients choose an icon by it.
    pub fn kind(mut self, kind: ToolKind) -> Self {
        self.call.kind = kind;
        self
    }

    /// Adds a file the tool works on. The path must be absolute.
    pub fn location(mut self, path: impl Into<PathBuf>) -> Self {
        self.call.locations.push(ToolCallLocation::new(path.into()));
        self
    }

    /// What the tool was called with.
    pub fn raw_input(mut self, input: Value) -> Self {
        self.call.raw_input = Some(Json::from(input));
        self
    }

    /// Sets anything else of the tool call.
    pub fn with(mut self, change: impl FnOnce(ToolCall) -> ToolCall) -> Self {
        self.call = change(self.call);
        self
    }

    /// Shows the tool call as running.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    pub async fn start(self) -> Result<ToolCallHandle> {
        self.announce_as(ToolCallStatus::InProgress).await
    }

    /// Shows the tool call as waiting, for a permission say.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    pub async fn announce(self) -> Result<ToolCallHandle> {
        self.announce_as(ToolCallStatus::Pending).await
    }

    async fn announce_as(mut self, status: ToolCallStatus) -> Result<ToolCallHandle> {
        if self.call.status == ToolCallStatus::Pending {
            self.call.status = status;
        }
        let id = self.call.tool_call_id.clone();
        self.turn.update(SessionUpdate::from(self.call.clone())).await?;
        Ok(ToolCallHandle { turn: self.turn, id, call: Mutex::new(self.call) })
    }
}

/// A tool call the client shows. One that is dropped stays open: complete it or let it fail.
#[derive(Debug)]
pub struct ToolCallHandle {
    turn: Turn,
    id: ToolCallId,
    /// The call as the client knows it: content is replaced as a whole, and a permission question
    /// says what it is about.
    call: Mutex<ToolCall>,
}

impl ToolCallHandle {
    /// The tool call's id.
    #[must_use]
    pub fn id(&self) -> &ToolCallId {
        &self.id
    }

    /// Changes anything of the tool call; what is not set stays.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits changes nothing.
    pub async fn update(&self, change: impl FnOnce(ToolCallUpdate) -> ToolCallUpdate) -> Result<()> {
        self.change(|_, update| change(update)).await
    }

    async fn change(&self, change: impl FnOnce(&ToolCall, ToolCallUpdate) -> ToolCallUpdate) -> Result<()> {
        self.turn.room().await?;
        // Sent under the lock: what is sent last has to be what is known last.
        let mut call = self.call.lock_unpoisoned();
        let update = change(&call, ToolCallUpdate::new(self.id.clone()));
        self.turn.update_now(SessionUpdate::from(update.clone()))?;
        update.apply_to(&mut call);
        Ok(())
    }

    /// Sets the status.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    pub async fn status(&self, status: ToolCallStatus) -> Result<()> {
        self.update(|update| update.status(status)).await
    }

    /// Adds text or other content to what the tool produced.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    pub async fn content(&self, content: impl Into<ContentBlock>) -> Result<()> {
        self.add(ToolCallContent::from(content.into())).await
    }

    /// Adds a change to a file. `old` is `None` for a new file; the path must be absolute.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    pub async fn diff(
        &self,
        path: impl Into<PathBuf>,
        old: Option<String>,
        new: impl Into<String>,
    ) -> Result<()> {
        self.add(ToolCallContent::diff(path, old, new)).await
    }

    /// Embeds a terminal, whose output the client then shows live.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    pub async fn terminal(&self, terminal: &RemoteTerminal) -> Result<()> {
        self.add(ToolCallContent::terminal(terminal.id().clone())).await
    }

    async fn add(&self, content: ToolCallContent) -> Result<()> {
        self.change(|call, update| {
            let mut all = call.content.clone();
            all.push(content);
            update.content(all)
        })
        .await
    }

    /// What the tool returned.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    pub async fn raw_output(&self, output: Value) -> Result<()> {
        self.update(|update| update.raw_output(Json::from(output))).await
    }

    /// Asks the user whether the tool may run, telling again what it is.
    ///
    /// # Errors
    ///
    /// As [`Session::request_permission`](crate::Session::request_permission).
    pub async fn request_permission(
        &self,
        options: Vec<PermissionOption>,
    ) -> Result<RequestPermissionOutcome> {
        let call = self.call.lock_unpoisoned().clone();
        self.turn.request_permission(ToolCallUpdate::from(call), options).await
    }

    /// The tool succeeded.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    pub async fn complete(self) -> Result<()> {
        self.status(ToolCallStatus::Completed).await
    }

    /// The tool failed; `why` is added to its content.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    pub async fn fail(self, why: impl Into<String>) -> Result<()> {
        self.content(why.into()).await?;
        self.status(ToolCallStatus::Failed).await
    }
}
