//! Requests to the client in a session: permissions, files, terminals and elicitation.

use std::collections::HashSet;
use std::path::PathBuf;

use duologue_schema::{
    CompleteElicitationNotification, CreateElicitationRequest, CreateElicitationResponse,
    CreateTerminalRequest, CreateTerminalResponse, ElicitationFormMode, ElicitationId, ElicitationMode,
    ElicitationSchema, ElicitationUrlMode, ErrorCode, KillTerminalRequest, Meta, PermissionOption,
    PermissionOptionId, ReadTextFileRequest, ReadTextFileResponse, RelativePath, ReleaseTerminalRequest,
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse, TerminalExitStatus,
    TerminalId, TerminalOutputRequest, TerminalOutputResponse, ToolCallUpdate, WaitForTerminalExitRequest,
    WriteTextFileRequest,
};

use crate::error::{Error, Result};
use crate::request::{AgentRequestBuilder, ElicitationCompleteBuilder};
use crate::session::Session;

impl Session {
    /// Requests permission for a tool call. If the turn is cancelled, or the client answers with an option that was not
    /// offered, the result is [`RequestPermissionOutcome::Cancelled`].
    ///
    /// # Errors
    ///
    /// Fails if the connection ends or the client responds with an error, and with [`Error::RelativePath`]. In version 2 it
    /// also fails if there are no options, if two of them have the same id, and with [`Error::SessionClosed`] after a close.
    pub fn request_permission(
        &self,
        tool_call: ToolCallUpdate,
        options: Vec<PermissionOption>,
    ) -> AgentRequestBuilder<RequestPermissionRequest, RequestPermissionOutcome> {
        let request = RequestPermissionRequest::new(self.id().clone(), tool_call, options);
        let offered: Vec<_> = request.options.iter().map(|option| option.option_id.clone()).collect();
        let has_options = !self.client().is_v2() || are_options(&offered);
        let check = absolute(request.tool_call.relative_path()).and_then(|()| match has_options {
            true => Ok(()),
            false => Err(Error::other("a permission request needs options, each with an id of its own")),
        });
        let outcome = |_: &Session, response| Ok(permission(response)?.outcome);
        AgentRequestBuilder::new(self, request, |request, meta| request.meta = Some(meta), check, outcome)
            .restricted(move |response| only_offered(response, &offered))
    }

    /// Reads a text file through the editor, including unsaved changes.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] unless the client advertised `fs.readTextFile`, [`Error::RelativePath`], and
    /// the error of the client.
    pub fn read_text_file(
        &self,
        path: impl Into<PathBuf>,
    ) -> AgentRequestBuilder<ReadTextFileRequest, String> {
        self.read(ReadTextFileRequest::new(self.id().clone(), path.into()))
    }

    /// Reads `limit` lines, beginning with `line`, which counts from 1.
    ///
    /// # Errors
    ///
    /// As [`read_text_file`](Self::read_text_file).
    pub fn read_lines(
        &self,
        path: impl Into<PathBuf>,
        line: u32,
        limit: u32,
    ) -> AgentRequestBuilder<ReadTextFileRequest, String> {
        self.read(ReadTextFileRequest::new(self.id().clone(), path.into()).line(line).limit(limit))
    }

    fn read(&self, request: ReadTextFileRequest) -> AgentRequestBuilder<ReadTextFileRequest, String> {
        let offered = self.client().require(|client| client.fs.read_text_file, "fs.readTextFile");
        let check = offered.and_then(|()| absolute(request.relative_path()));
        let content = |_: &Session, response: Result<ReadTextFileResponse>| response.map(|read| read.content);
        AgentRequestBuilder::new(self, request, |request, meta| request.meta = Some(meta), check, content)
    }

    /// Writes a text file through the editor. Creates the file if it does not exist.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] unless the client advertised `fs.writeTextFile`, [`Error::RelativePath`], and
    /// the error of the client.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request. The client may write the file all the same.
    pub fn write_text_file(
        &self,
        path: impl Into<PathBuf>,
        content: impl Into<String>,
    ) -> AgentRequestBuilder<WriteTextFileRequest, ()> {
        let request = WriteTextFileRequest::new(self.id().clone(), path.into(), content.into());
        let offered = self.client().require(|client| client.fs.write_text_file, "fs.writeTextFile");
        let check = offered.and_then(|()| absolute(request.relative_path()));
        AgentRequestBuilder::new(self, request, |request, meta| request.meta = Some(meta), check, nothing)
    }

    /// Runs a program in a terminal of the client. `command` is a program, not a line for a shell.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] unless the client advertised `terminal`, [`Error::RelativePath`], and the error of the
    /// client.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request. If the client starts the program all the same, its terminal is
    /// released.
    pub fn create_terminal(
        &self,
        command: impl Into<String>,
        args: impl IntoIterator<Item = impl Into<String>>,
    ) -> AgentRequestBuilder<CreateTerminalRequest, RemoteTerminal> {
        let mut request = CreateTerminalRequest::new(self.id().clone(), command.into());
        request.args = args.into_iter().map(Into::into).collect();
        self.create_terminal_with(request)
    }

    /// [`create_terminal`](Self::create_terminal) with a folder, environment and output limit. The
    /// session of the request is set to this one.
    ///
    /// # Errors
    ///
    /// As [`create_terminal`](Self::create_terminal).
    ///
    /// # Cancel safety
    ///
    /// As [`create_terminal`](Self::create_terminal).
    pub fn create_terminal_with(
        &self,
        mut request: CreateTerminalRequest,
    ) -> AgentRequestBuilder<CreateTerminalRequest, RemoteTerminal> {
        request.session_id = self.id().clone();
        let offered = self.client().require(|client| client.terminal, "terminal");
        let check = offered.and_then(|()| absolute(request.relative_path()));
        let terminal = |session: &Session, response: Result<_>| {
            let CreateTerminalResponse { terminal_id: id, meta, .. } = response?;
            Ok(RemoteTerminal { session: session.clone(), id, meta, released: false })
        };
        AgentRequestBuilder::new(self, request, |request, meta| request.meta = Some(meta), check, terminal)
    }

    /// Requests that the user fills in a form. Never use it for secrets.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] unless the client advertised `elicitation.form`, and the error of the
    /// client.
    pub fn elicit_form(
        &self,
        message: impl Into<String>,
        form: ElicitationSchema,
    ) -> AgentRequestBuilder<CreateElicitationRequest, CreateElicitationResponse> {
        self.elicit(CreateElicitationRequest::new(message, ElicitationFormMode::new(self.id().clone(), form)))
    }

    /// Requests that the user opens a link. An accepted response means that the link was opened. Call
    /// [`elicitation_complete`](Self::elicitation_complete) when the user has finished there.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] unless the client advertised `elicitation.url`, and the error of the
    /// client.
    pub fn elicit_url(
        &self,
        message: impl Into<String>,
        id: impl Into<ElicitationId>,
        url: impl Into<String>,
    ) -> AgentRequestBuilder<CreateElicitationRequest, CreateElicitationResponse> {
        let mode = ElicitationUrlMode::new(self.id().clone(), id, url);
        self.elicit(CreateElicitationRequest::new(message, mode))
    }

    /// Sends an elicitation in any mode. Its scope can be a tool call or a request instead of the session.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] unless the client advertised the mode, and the error of the client.
    pub fn elicit(
        &self,
        request: CreateElicitationRequest,
    ) -> AgentRequestBuilder<CreateElicitationRequest, CreateElicitationResponse> {
        let client = self.client().capabilities();
        let (offered, capability) = match &request.mode {
            ElicitationMode::Form(_) => (client.has_form_elicitation(), "elicitation.form"),
            ElicitationMode::Url(_) => (client.has_url_elicitation(), "elicitation.url"),
            _ => (false, "this mode of elicitation"),
        };
        let check = self.client().require(|_| offered, capability);
        let whole = |_: &Session, response| response;
        AgentRequestBuilder::new(self, request, |request, meta| request.meta = Some(meta), check, whole)
    }

    /// Notifies the client that the user has finished at the link of an elicitation. It takes the id of the elicitation, or
    /// a whole notification.
    ///
    /// # Errors
    ///
    /// Fails if the connection has ended.
    pub fn elicitation_complete(
        &self,
        elicitation: impl Into<CompleteElicitationNotification>,
    ) -> ElicitationCompleteBuilder {
        ElicitationCompleteBuilder { session: self.clone(), notification: elicitation.into() }
    }
}

/// Returns true if there are options, and each has an id of its own.
fn are_options(ids: &[PermissionOptionId]) -> bool {
    !ids.is_empty() && ids.iter().collect::<HashSet<_>>().len() == ids.len()
}

/// Makes the choice of an option that was not offered a cancelled request, which permits nothing.
fn only_offered(response: &mut RequestPermissionResponse, offered: &[PermissionOptionId]) {
    if let RequestPermissionOutcome::Selected(selected) = &response.outcome
        && !offered.contains(&selected.option_id)
    {
        tracing::warn!(
            option = selected.option_id.as_str(),
            "the client chose an option that was not offered"
        );
        response.outcome = RequestPermissionOutcome::Cancelled;
    }
}

fn absolute(relative: Option<RelativePath<'_>>) -> Result<()> {
    relative.map_or(Ok(()), |relative| Err(relative.into()))
}

fn nothing<T>(_: &Session, response: Result<T>) -> Result<()> {
    response.map(drop)
}

/// Some clients respond with the JSON-RPC error for a cancelled request.
pub(crate) fn permission(response: Result<RequestPermissionResponse>) -> Result<RequestPermissionResponse> {
    match response {
        Err(Error::Refused { error, .. }) if error.code == ErrorCode::REQUEST_CANCELLED => {
            Ok(RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled))
        }
        response => response,
    }
}

/// A program in a terminal of the client. Dropping the handle releases the terminal.
///
/// If the terminal is embedded in a tool call before its release (see
/// [`ToolCallHandle::terminal`](crate::ToolCallHandle::terminal)), the client continues to show it.
///
/// # Cancel safety
///
/// Dropping the future of a request cancels the request, but the client may have acted on it already. A release continues.
#[derive(Debug)]
pub struct RemoteTerminal {
    session: Session,
    id: TerminalId,
    meta: Option<Meta>,
    released: bool,
}

impl RemoteTerminal {
    /// Returns the id of the terminal.
    #[must_use]
    pub fn id(&self) -> &TerminalId {
        &self.id
    }

    /// Returns the `_meta` of the response to `terminal/create`.
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        self.meta.as_ref()
    }

    /// Requests the output of the program so far, and its exit status if it has ended.
    ///
    /// # Errors
    ///
    /// Fails if the connection ends or the client responds with an error.
    pub fn output(&self) -> AgentRequestBuilder<TerminalOutputRequest, TerminalOutputResponse> {
        let request = TerminalOutputRequest::new(self.session.id().clone(), self.id.clone());
        let whole = |_: &Session, response| response;
        AgentRequestBuilder::new(
            &self.session,
            request,
            |request, meta| request.meta = Some(meta),
            Ok(()),
            whole,
        )
    }

    /// Waits until the program has ended.
    ///
    /// # Errors
    ///
    /// As [`output`](Self::output).
    pub fn wait_for_exit(&self) -> AgentRequestBuilder<WaitForTerminalExitRequest, TerminalExitStatus> {
        let request = WaitForTerminalExitRequest::new(self.session.id().clone(), self.id.clone());
        let status = |_: &Session, response: Result<_>| response.map(TerminalExitStatus::from);
        AgentRequestBuilder::new(
            &self.session,
            request,
            |request, meta| request.meta = Some(meta),
            Ok(()),
            status,
        )
    }

    /// Ends the program. Its output can still be requested.
    ///
    /// # Errors
    ///
    /// As [`output`](Self::output).
    pub fn kill(&self) -> AgentRequestBuilder<KillTerminalRequest, ()> {
        let request = KillTerminalRequest::new(self.session.id().clone(), self.id.clone());
        AgentRequestBuilder::new(
            &self.session,
            request,
            |request, meta| request.meta = Some(meta),
            Ok(()),
            nothing,
        )
    }

    /// Ends the program if it still runs, and releases the terminal.
    ///
    /// # Errors
    ///
    /// As [`output`](Self::output).
    ///
    /// # Cancel safety
    ///
    /// Dropping the builder or the future does not stop the release.
    pub fn release(self) -> AgentRequestBuilder<ReleaseTerminalRequest, ()> {
        let request = self.release_request();
        let set_meta = |request: &mut ReleaseTerminalRequest, meta| request.meta = Some(meta);
        AgentRequestBuilder::new(&self.session, request, set_meta, Ok(()), nothing).releasing(self)
    }

    fn release_request(&self) -> ReleaseTerminalRequest {
        ReleaseTerminalRequest::new(self.session.id().clone(), self.id.clone())
    }

    /// Drops the handle. The caller sends the request that releases the terminal.
    pub(crate) fn mark_released(mut self) {
        self.released = true;
    }
}

impl Drop for RemoteTerminal {
    fn drop(&mut self) {
        if !self.released {
            // The protocol requires a release of every terminal. Nobody waits for the response.
            drop(self.session.peer().request(&self.release_request()).detach());
        }
    }
}
