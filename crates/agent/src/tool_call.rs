//! Tool calls: announce, update and finish.

use std::path::PathBuf;
use std::sync::Mutex;

use duologue_rpc::{CancellationToken, Lock};
use duologue_schema::{
    ContentBlock, Json, PermissionOption, PermissionOptionKind, RequestPermissionOutcome,
    RequestPermissionRequest, SessionId, SessionUpdate, ToolCall, ToolCallContent, ToolCallId,
    ToolCallLocation, ToolCallStatus, ToolCallUpdate, ToolKind,
};
use serde_json::Value;

use crate::calls::{RemoteTerminal, permission};
use crate::error::{Error, Result};
use crate::request::AgentRequestBuilder;
use crate::turn::Turn;

/// A tool call that has not been sent to the client yet. Dropping the future that sends it sends nothing if it still waits.
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
#[must_use = "call start or announce to send the tool call"]
#[derive(Debug)]
pub struct NewToolCall {
    turn: Turn,
    call: ToolCall,
    /// The token of a call that can be cancelled without its turn.
    cancellation: Option<CancellationToken>,
}

impl NewToolCall {
    pub(crate) fn new(turn: Turn, title: String) -> Self {
        NewToolCall { turn, call: ToolCall::new(Turn::new_tool_call_id(), title), cancellation: None }
    }

    /// Sets the id. It is a random UUID by default.
    pub fn id(mut self, id: impl Into<ToolCallId>) -> Self {
        self.call.tool_call_id = id.into();
        self
    }

    /// Sets the kind of the tool, for which clients choose an icon.
    pub fn kind(mut self, kind: ToolKind) -> Self {
        self.call.kind = kind;
        self
    }

    /// Adds a file the tool works on. The path must be absolute.
    pub fn location(mut self, path: impl Into<PathBuf>) -> Self {
        self.call.locations.push(ToolCallLocation::new(path.into()));
        self
    }

    /// Sets the input of the tool.
    pub fn raw_input(mut self, input: Value) -> Self {
        self.call.raw_input = Some(Json::from(input));
        self
    }

    /// Sets the name of the tool, for programs.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.call.name = Some(name.into());
        self
    }

    /// Changes any field of the tool call.
    pub fn with(mut self, change: impl FnOnce(ToolCall) -> ToolCall) -> Self {
        self.call = change(self.call);
        self
    }

    /// Lets the client cancel this call without its turn. Await [`ToolCallHandle::cancelled`], and end the call with the
    /// status [`Cancelled`](ToolCallStatus::Cancelled). Only clients of protocol version 2 can do so. Each session has at
    /// most [`Turn::OPEN_CALLS`] of these calls; further ones cannot be cancelled.
    #[cfg(feature = "protocol-v2")]
    pub fn cancellable(mut self) -> Self {
        let mut cancellable = duologue_schema::v2::ToolCallCapabilities::new();
        cancellable.cancel = Some(duologue_schema::v2::ToolCallCancelCapabilities::new());
        self.call.capabilities = Some(cancellable);
        self.cancellation = Some(self.turn.cancellation());
        self
    }

    /// Sends the tool call as running.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    pub async fn start(self) -> Result<ToolCallHandle> {
        self.announce_as(ToolCallStatus::InProgress).await
    }

    /// Sends the tool call as waiting, for example for a permission.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    pub async fn announce(self) -> Result<ToolCallHandle> {
        self.announce_as(ToolCallStatus::Pending).await
    }

    /// Sends the tool call as running, runs `work`, and completes the call. If `work` fails, the call fails with the
    /// [`user_message`](Error::user_message) of the error. A call that `work` has completed or failed itself is left alone.
    ///
    /// ```
    /// use duologue_agent::ToolKind;
    ///
    /// # async fn turn(turn: &duologue_agent::Turn) -> duologue_agent::Result<()> {
    /// let path = turn.cwd().join("Cargo.toml");
    /// let read = turn.tool_call("Read the manifest").kind(ToolKind::Read).location(&path);
    /// let manifest = read.run(async |call| {
    ///     let text = turn.read_text_file(&path).await?;
    ///     call.content(text.as_str()).await?;
    ///     Ok(text)
    /// });
    /// let manifest: String = manifest.await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `work`, and as [`Turn::update`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`. The end of the turn fails the call then.
    pub async fn run<T>(self, work: impl AsyncFnOnce(&ToolCallHandle) -> Result<T>) -> Result<T> {
        let call = self.start().await?;
        let outcome = work(&call).await;
        let is_open = !call.call.lock_unpoisoned().status.is_final();
        if is_open {
            match &outcome {
                Ok(_) => call.complete().await?,
                // The error of `work` is the more important one.
                Err(error) => drop(call.fail(error.user_message()).await),
            }
        }
        outcome
    }

    /// Lets the client cancel the call, if it can and the session has not too many such calls.
    #[cfg(feature = "protocol-v2")]
    fn offer_cancellation(&mut self) {
        let session = self.turn.session();
        let offered = self.cancellation.clone().is_some_and(|cancellation| {
            let mut cancellable = session.v2().cancellable.lock_unpoisoned();
            session.client().is_v2() && cancellable.add(self.call.tool_call_id.clone(), cancellation)
        });
        if !offered {
            self.call.capabilities = None;
        }
    }

    async fn announce_as(mut self, status: ToolCallStatus) -> Result<ToolCallHandle> {
        if self.call.status == ToolCallStatus::Pending {
            self.call.status = status;
        }
        let id = self.call.tool_call_id.clone();
        #[cfg(feature = "protocol-v2")]
        self.offer_cancellation();
        let announced = self.turn.update(SessionUpdate::from(self.call.clone())).await;
        #[cfg(feature = "protocol-v2")]
        if announced.is_err() {
            self.turn.session().v2().cancellable.lock_unpoisoned().remove(&id);
        }
        announced?;
        let NewToolCall { turn, call, cancellation } = self;
        Ok(ToolCallHandle { turn, id, call: Mutex::new(call), cancellation })
    }
}

/// A tool call that was sent to the client. Call [`complete`](Self::complete) or [`fail`](Self::fail): a handle that is
/// dropped leaves it open. The end of the turn fails calls that are still open, unless they are
/// [detached](Self::detach).
///
/// # Cancel safety
///
/// Dropping the future of a method that sends updates sends nothing if it still waits. If it is [`complete`](Self::complete)
/// or [`fail`](Self::fail), the tool call stays open until the turn ends.
#[derive(Debug)]
pub struct ToolCallHandle {
    turn: Turn,
    id: ToolCallId,
    /// The call as the client knows it.
    call: Mutex<ToolCall>,
    /// The token of a call that can be cancelled without its turn.
    cancellation: Option<CancellationToken>,
}

impl ToolCallHandle {
    /// Returns the id of the tool call.
    #[must_use]
    pub fn id(&self) -> &ToolCallId {
        &self.id
    }

    /// Returns true if the client cancelled the turn or this call.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancellation.as_ref().map_or_else(|| self.turn.is_cancelled(), CancellationToken::is_cancelled)
    }

    /// Waits until the client cancels the turn or this call.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn cancelled(&self) {
        match &self.cancellation {
            Some(cancellation) => cancellation.cancelled().await,
            None => self.turn.cancelled().await,
        }
    }

    /// Changes fields of the tool call. Fields that are not set keep their value.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits sends nothing.
    pub async fn update(&self, change: impl FnOnce(ToolCallUpdate) -> ToolCallUpdate) -> Result<()> {
        self.change(|_, update| change(update)).await
    }

    async fn change(&self, change: impl FnOnce(&ToolCall, ToolCallUpdate) -> ToolCallUpdate) -> Result<()> {
        self.turn.room().await?;
        self.change_now(change)
    }

    fn change_now(&self, change: impl FnOnce(&ToolCall, ToolCallUpdate) -> ToolCallUpdate) -> Result<()> {
        // Sent under the lock, so that the stored call matches the last update.
        let mut call = self.call.lock_unpoisoned();
        let update = change(&call, ToolCallUpdate::new(self.id.clone()));
        self.turn.update_now(SessionUpdate::from(update.clone()))?;
        update.apply_to(&mut call);
        Ok(())
    }

    /// Waits for space, but not after a cancel: the end of the call is sent then even if the output is full.
    async fn room_to_end(&self) -> Result<()> {
        match self.turn.room().await {
            Err(Error::Cancelled) => Ok(()),
            ready => ready,
        }
    }

    /// Sets the status. After a cancel of the turn this does not wait.
    ///
    /// # Errors
    ///
    /// As [`Session::update`](crate::Session::update), and [`Error::TurnEnded`] after the response of the turn.
    pub async fn status(&self, status: ToolCallStatus) -> Result<()> {
        self.room_to_end().await?;
        self.change_now(|_, update| update.status(status))
    }

    /// Changes the title.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    pub async fn title(&self, title: impl Into<String>) -> Result<()> {
        self.update(|update| update.title(title)).await
    }

    /// Adds a file the tool works on. The path must be absolute.
    ///
    /// # Errors
    ///
    /// [`Error::RelativePath`], and as [`Turn::update`].
    pub async fn location(&self, path: impl Into<PathBuf>) -> Result<()> {
        let location = ToolCallLocation::new(path.into());
        self.change(|call, update| update.locations(with(&call.locations, location))).await
    }

    /// Sets the input of the tool.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    pub async fn raw_input(&self, input: Value) -> Result<()> {
        self.update(|update| update.raw_input(Json::from(input))).await
    }

    /// Adds text or other content to the output of the tool.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    pub async fn content(&self, content: impl Into<ContentBlock>) -> Result<()> {
        self.add(ToolCallContent::from(content.into())).await
    }

    /// Adds a change of a file. `old` is `None` for a new file. The path must be absolute.
    ///
    /// # Errors
    ///
    /// [`Error::RelativePath`], and as [`Turn::update`].
    pub async fn diff(
        &self,
        path: impl Into<PathBuf>,
        old: Option<String>,
        new: impl Into<String>,
    ) -> Result<()> {
        self.add(ToolCallContent::diff(path, old, new)).await
    }

    /// Embeds a terminal. The client shows its output live.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    pub async fn terminal(&self, terminal: &RemoteTerminal) -> Result<()> {
        self.add(ToolCallContent::terminal(terminal.id().clone())).await
    }

    /// Refers to a session that the client knows, mostly a [child session](crate::Subagent) that the call begins or waits for.
    /// The client shows the reference. It is only sent to clients that advertise `subagents`.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    pub async fn session(&self, session: impl Into<SessionId>) -> Result<()> {
        if self.turn.client().capabilities().subagents.is_none() {
            return Ok(());
        }
        self.add(ToolCallContent::session(session)).await
    }

    pub(crate) async fn add(&self, content: ToolCallContent) -> Result<()> {
        self.change(|call, update| update.content(with(&call.content, content))).await
    }

    /// Sets the output of the tool.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    pub async fn raw_output(&self, output: Value) -> Result<()> {
        self.update(|update| update.raw_output(Json::from(output))).await
    }

    /// Requests permission to run the tool. The request repeats all fields of the tool call.
    ///
    /// # Errors
    ///
    /// As [`Session::request_permission`](crate::Session::request_permission).
    pub fn request_permission(
        &self,
        options: Vec<PermissionOption>,
    ) -> AgentRequestBuilder<RequestPermissionRequest, RequestPermissionOutcome> {
        let call = self.call.lock_unpoisoned().clone();
        self.turn.request_permission(ToolCallUpdate::from(call), options)
    }

    /// Asks the user to allow or reject the tool, once. The result is false after a cancel, and for every other answer than the
    /// permission. [`request_permission`](Self::request_permission) offers other options.
    ///
    /// ```
    /// # async fn turn(turn: &duologue_agent::Turn) -> duologue_agent::Result<()> {
    /// let call = turn.tool_call("Delete the notes").announce().await?;
    /// match call.allowed().await? {
    ///     true => call.complete().await,
    ///     false => call.fail("The user rejected it.").await,
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`request_permission`](Self::request_permission).
    pub fn allowed(&self) -> AgentRequestBuilder<RequestPermissionRequest, bool> {
        const ALLOW: &str = "allow";
        let options = vec![
            PermissionOption::new(ALLOW, "Allow", PermissionOptionKind::AllowOnce),
            PermissionOption::new("reject", "Reject", PermissionOptionKind::RejectOnce),
        ];
        self.request_permission(options).with_output(|_, response| {
            let outcome = permission(response)?.outcome;
            Ok(matches!(outcome, RequestPermissionOutcome::Selected(chosen) if chosen.option_id == ALLOW))
        })
    }

    /// Sets the status to completed. After a cancel of the turn this does not wait.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    pub async fn complete(&self) -> Result<()> {
        self.status(ToolCallStatus::Completed).await
    }

    /// Leaves the tool call open at the end of the turn, for work that goes on in the background. The session sends its
    /// later updates:
    ///
    /// ```
    /// use duologue_agent::schema::{ToolCallStatus, ToolCallUpdate};
    ///
    /// # async fn build() {}
    /// # async fn turn(turn: &duologue_agent::Turn) -> duologue_agent::Result<()> {
    /// let id = turn.tool_call("Build in the background").start().await?.detach()?;
    /// let session = turn.session().clone();
    /// tokio::spawn(async move {
    ///     build().await;
    ///     session.update(ToolCallUpdate::new(id).status(ToolCallStatus::Completed)).await
    /// });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::TurnEnded`] after the response of the turn, which has failed the call.
    pub fn detach(self) -> Result<ToolCallId> {
        // Nothing would see the cancellation.
        #[cfg(feature = "protocol-v2")]
        if self.cancellation.is_some() {
            let session = self.turn.session();
            crate::v2::withdraw(session, &self.id, |update| self.turn.update_now(update.update))?;
        }
        self.turn.detach_call(&self.id)?;
        Ok(self.id)
    }

    /// [Detaches](Self::detach) a call that the client can [cancel](NewToolCall::cancellable) after the turn too. A
    /// cancellation of the turn no longer cancels it.
    ///
    /// ```
    /// use duologue_agent::schema::{ToolCallStatus, ToolCallUpdate};
    ///
    /// # async fn build() -> ToolCallStatus { ToolCallStatus::Completed }
    /// # async fn turn(turn: &duologue_agent::Turn) -> duologue_agent::Result<()> {
    /// let call = turn.tool_call("Build in the background").cancellable().start().await?.detach_cancellable()?;
    /// let session = turn.session().clone();
    /// tokio::spawn(async move {
    ///     let status = tokio::select! {
    ///         status = build() => status,
    ///         () = call.cancelled() => ToolCallStatus::Cancelled,
    ///     };
    ///     session.update(ToolCallUpdate::new(call.id().clone()).status(status)).await
    /// });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`detach`](Self::detach).
    #[cfg(feature = "protocol-v2")]
    pub fn detach_cancellable(self) -> Result<crate::DetachedToolCall> {
        self.turn.detach_call(&self.id)?;
        Ok(crate::DetachedToolCall::new(self.turn.session().clone(), self.id))
    }

    /// Sets the status to failed and adds `why` to the content. After a cancel of the turn this does not wait.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits sends nothing, because the two updates are sent together. The call stays open.
    pub async fn fail(&self, why: impl Into<String>) -> Result<()> {
        self.room_to_end().await?;
        let why = ToolCallContent::from(ContentBlock::from(why.into()));
        self.change_now(|call, update| update.content(with(&call.content, why)))?;
        self.change_now(|_, update| update.status(ToolCallStatus::Failed))
    }
}

/// Returns a list with `more` appended. A list in an update replaces the whole list.
fn with<T: Clone>(list: &[T], more: T) -> Vec<T> {
    let mut all = list.to_vec();
    all.push(more);
    all
}
