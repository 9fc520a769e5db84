//! Calls back to the client that belong to a session: permission, files, terminals, elicitation.

use std::path::{Path, PathBuf};

use duologue_schema::{
    CompleteElicitationNotification, CreateElicitationRequest, CreateElicitationResponse,
    CreateTerminalRequest, ElicitationFormMode, ElicitationId, ElicitationMode, ElicitationSchema,
    ElicitationUrlMode, ErrorCode, KillTerminalRequest, PermissionOption, ReadTextFileRequest,
    ReleaseTerminalRequest, RequestPermissionOutcome, RequestPermissionRequest, TerminalExitStatus,
    TerminalId, TerminalOutputRequest, TerminalOutputResponse, ToolCallUpdate, WaitForTerminalExitRequest,
    WriteTextFileRequest,
};

use crate::error::{Error, Result};
use crate::session::Session;

impl Session {
    /// Asks the user whether a tool call may run. A cancelled turn counts as
    /// [`RequestPermissionOutcome::Cancelled`].
    ///
    /// # Errors
    ///
    /// When the connection ends or the client answers with an error.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the question.
    pub async fn request_permission(
        &self,
        tool_call: ToolCallUpdate,
        options: Vec<PermissionOption>,
    ) -> Result<RequestPermissionOutcome> {
        let request = RequestPermissionRequest::new(self.id().clone(), tool_call, options);
        match self.peer().request(&request).await {
            Ok(response) => Ok(response.outcome),
            // Some clients answer a cancelled question the JSON-RPC way.
            Err(error)
                if error.as_response().is_some_and(|error| error.code == ErrorCode::REQUEST_CANCELLED) =>
            {
                Ok(RequestPermissionOutcome::Cancelled)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reads a text file as the editor has it, unsaved changes included.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] unless the client advertised `fs.readTextFile`; what the client
    /// answers otherwise.
    pub async fn read_text_file(&self, path: impl Into<PathBuf>) -> Result<String> {
        self.read(ReadTextFileRequest::new(self.id().clone(), path.into())).await
    }

    /// Reads `limit` lines from the 1-based `line` on.
    ///
    /// # Errors
    ///
    /// As [`read_text_file`](Self::read_text_file).
    pub async fn read_lines(&self, path: impl Into<PathBuf>, line: u32, limit: u32) -> Result<String> {
        let mut request = ReadTextFileRequest::new(self.id().clone(), path.into());
        request.line = Some(line);
        request.limit = Some(limit);
        self.read(request).await
    }

    async fn read(&self, request: ReadTextFileRequest) -> Result<String> {
        self.client().require(|client| client.fs.read_text_file, "fs.readTextFile")?;
        absolute(&request.path)?;
        Ok(self.peer().request(&request).await?.content)
    }

    /// Writes a text file through the editor, creating it if needed.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] unless the client advertised `fs.writeTextFile`; what the client
    /// answers otherwise.
    pub async fn write_text_file(&self, path: impl Into<PathBuf>, content: impl Into<String>) -> Result<()> {
        self.client().require(|client| client.fs.write_text_file, "fs.writeTextFile")?;
        let request = WriteTextFileRequest::new(self.id().clone(), path.into(), content.into());
        absolute(&request.path)?;
        self.peer().request(&request).await?;
        Ok(())
    }

    /// Runs a program in a terminal of the client: `command` is the program, not a shell line.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] unless the client advertised `terminal`; what the client answers
    /// otherwise.
    pub async fn create_terminal(
        &self,
        command: impl Into<String>,
        args: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<RemoteTerminal> {
        let mut request = CreateTerminalRequest::new(self.id().clone(), command.into());
        request.args = args.into_iter().map(Into::into).collect();
        self.create_terminal_with(request).await
    }

    /// [`create_terminal`](Self::create_terminal) with folder, environment and output limit. The
    /// request's session is set to this one.
    ///
    /// # Errors
    ///
    /// As [`create_terminal`](Self::create_terminal).
    pub async fn create_terminal_with(&self, mut request: CreateTerminalRequest) -> Result<RemoteTerminal> {
        self.client().require(|client| client.terminal, "terminal")?;
        request.session_id = self.id().clone();
        let id = self.peer().request(&request).await?.terminal_id;
        Ok(RemoteTerminal { session: self.clone(), id, released: false })
    }

    /// Asks the user to fill in a form. Never for secrets.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] unless the client advertised `elicitation.form`; what the client
    /// answers otherwise.
    pub async fn elicit_form(
        &self,
        message: impl Into<String>,
        form: ElicitationSchema,
    ) -> Result<CreateElicitationResponse> {
        self.elicit(CreateElicitationRequest::new(message, ElicitationFormMode::new(self.id().clone(), form)))
            .await
    }

    /// Asks the user to open a link. An accepted answer means that it was opened; tell with
    /// [`elicitation_complete`](Self::elicitation_complete) when what is behind it is done.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] unless the client advertised `elicitation.url`; what the client
    /// answers otherwise.
    pub async fn elicit_url(
        &self,
        message: impl Into<String>,
        id: impl Into<ElicitationId>,
        url: impl Into<String>,
    ) -> Result<CreateElicitationResponse> {
        let mode = ElicitationUrlMode::new(self.id().clone(), id, url);
        self.elicit(CreateElicitationRequest::new(message, mode)).await
    }

    /// Asks the user in any mode, for a tool call or a request instead of the session.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] unless the client advertised the mode; what the client answers
    /// otherwise.
    pub async fn elicit(&self, request: CreateElicitationRequest) -> Result<CreateElicitationResponse> {
        let client = self.client().capabilities();
        let (offered, capability) = match &request.mode {
            ElicitationMode::Form(_) => (client.has_form_elicitation(), "elicitation.form"),
            ElicitationMode::Url(_) => (client.has_url_elicitation(), "elicitation.url"),
            _ => (false, "this mode of elicitation"),
        };
        self.client().require(|_| offered, capability)?;
        Ok(self.peer().request(&request).await?)
    }

    /// Tells the client that what it opened for a link elicitation is done.
    ///
    /// # Errors
    ///
    /// When the connection has ended.
    pub async fn elicitation_complete(&self, id: impl Into<ElicitationId>) -> Result<()> {
        Ok(self.peer().notify(&CompleteElicitationNotification::new(id.into())).await?)
    }
}

fn absolute(path: &Path) -> Result<()> {
    if path.is_absolute() {
        return Ok(());
    }
    Err(Error::invalid_params(format!("the path must be absolute: {}", path.display())))
}

/// A program running in a terminal of the client. Dropping it releases the terminal.
///
/// Embed it in a tool call (see [`ToolCallHandle::terminal`](crate::ToolCallHandle::terminal))
/// before it is released, and the client keeps showing it.
#[derive(Debug)]
pub struct RemoteTerminal {
    session: Session,
    id: TerminalId,
    released: bool,
}

impl RemoteTerminal {
    /// The terminal's id.
    #[must_use]
    pub fn id(&self) -> &TerminalId {
        &self.id
    }

    /// What the program has printed so far, and its exit status if it has ended.
    ///
    /// # Errors
    ///
    /// When the connection ends or the client answers with an error.
    pub async fn output(&self) -> Result<TerminalOutputResponse> {
        let request = TerminalOutputRequest::new(self.session.id().clone(), self.id.clone());
        Ok(self.session.peer().request(&request).await?)
    }

    /// Waits until the program has ended.
    ///
    /// # Errors
    ///
    /// As [`output`](Self::output).
    pub async fn wait_for_exit(&self) -> Result<TerminalExitStatus> {
        let request = WaitForTerminalExitRequest::new(self.session.id().clone(), self.id.clone());
        let response = self.session.peer().request(&request).await?;
        let mut status = TerminalExitStatus::default();
        status.exit_code = response.exit_code;
        status.signal = response.signal;
        Ok(status)
    }

    /// Ends the program; its output stays readable.
    ///
    /// # Errors
    ///
    /// As [`output`](Self::output).
    pub async fn kill(&self) -> Result<()> {
        let request = KillTerminalRequest::new(self.session.id().clone(), self.id.clone());
        self.session.peer().request(&request).await?;
        Ok(())
    }

    /// Ends the program if it still runs, and gives the terminal back.
    ///
    /// # Errors
    ///
    /// As [`output`](Self::output).
    pub async fn release(mut self) -> Result<()> {
        self.released = true;
        // Detached: a release that is no longer waited for is still wanted.
        self.session.peer().request(&self.release_request()).detach().await?;
        Ok(())
    }

    fn release_request(&self) -> ReleaseTerminalRequest {
        ReleaseTerminalRequest::new(self.session.id().clone(), self.id.clone())
    }
}

impl Drop for RemoteTerminal {
    fn drop(&mut self) {
        if !self.released {
            // The protocol wants every terminal released; nobody is left to wait for the answer.
            drop(self.session.peer().request(&self.release_request()).detach());
        }
    }
}
