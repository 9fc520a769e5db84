//! Requests to the client in a session: permissions, files, terminals and elicitation.

use std::path::{Path, PathBuf};

use duologue_rpc::{Closed, Error as RpcError, RequestHandle};
use duologue_schema::{
    CompleteElicitationNotification, CreateElicitationRequest, CreateElicitationResponse,
    CreateTerminalRequest, ElicitationFormMode, ElicitationId, ElicitationMode, ElicitationSchema,
    ElicitationUrlMode, ErrorCode, KillTerminalRequest, PermissionOption, ReadTextFileRequest,
    ReleaseTerminalRequest, Request, RequestPermissionOutcome, RequestPermissionRequest, TerminalExitStatus,
    TerminalId, TerminalOutputRequest, TerminalOutputResponse, ToolCallUpdate, WaitForTerminalExitRequest,
    WriteTextFileRequest,
};
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::session::Session;

impl Session {
    /// Sends a request to the client. The error names the method.
    async fn call<R: Request>(&self, request: &R) -> Result<R::Result> {
        self.peer().request(request).await.map_err(Error::of_request::<R>)
    }

    /// Requests permission for a tool call. If the turn is cancelled, the result is
    /// [`RequestPermissionOutcome::Cancelled`].
    ///
    /// # Errors
    ///
    /// Fails if the connection ends or the client responds with an error.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request.
    pub async fn request_permission(
        &self,
        tool_call: ToolCallUpdate,
        options: Vec<PermissionOption>,
    ) -> Result<RequestPermissionOutcome> {
        let request = RequestPermissionRequest::new(self.id().clone(), tool_call, options);
        if let Some(relative) = request.tool_call.relative_path() {
            return Err(relative.into());
        }
        match self.call(&request).await {
            Ok(response) => Ok(response.outcome),
            // Some clients respond with the JSON-RPC error for a cancelled request.
            Err(Error::Refused { error, .. }) if error.code == ErrorCode::REQUEST_CANCELLED => {
                Ok(RequestPermissionOutcome::Cancelled)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a text file through the editor, including unsaved changes.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] unless the client advertised `fs.readTextFile`, [`Error::RelativePath`], and
    /// the error of the client.
    pub async fn read_text_file(&self, path: impl Into<PathBuf>) -> Result<String> {
        self.read(ReadTextFileRequest::new(self.id().clone(), path.into())).await
    }

    /// Reads `limit` lines, beginning with `line`, which counts from 1.
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
        absolute("path", &request.path)?;
        Ok(self.call(&request).await?.content)
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
    pub async fn write_text_file(&self, path: impl Into<PathBuf>, content: impl Into<String>) -> Result<()> {
        self.client().require(|client| client.fs.write_text_file, "fs.writeTextFile")?;
        let request = WriteTextFileRequest::new(self.id().clone(), path.into(), content.into());
        absolute("path", &request.path)?;
        self.call(&request).await?;
        Ok(())
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
    pub async fn create_terminal(
        &self,
        command: impl Into<String>,
        args: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<RemoteTerminal> {
        let mut request = CreateTerminalRequest::new(self.id().clone(), command.into());
        request.args = args.into_iter().map(Into::into).collect();
        self.create_terminal_with(request).await
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
    pub async fn create_terminal_with(&self, mut request: CreateTerminalRequest) -> Result<RemoteTerminal> {
        self.client().require(|client| client.terminal, "terminal")?;
        request.cwd.as_deref().map_or(Ok(()), |cwd| absolute("cwd", cwd))?;
        request.session_id = self.id().clone();
        let (sender, receiver) = oneshot::channel();
        let request = self.peer().request_into(&request, None, {
            let session = self.clone();
            move |response| {
                // If the caller has gone, the terminal is dropped with the message, which releases it.
                let _ = sender.send(response.map(|created| RemoteTerminal {
                    session,
                    id: created.terminal_id,
                    released: false,
                }));
            }
        })?;
        let _withdraw = WithdrawTerminal(request);
        let created = receiver.await.map_err(|_| RpcError::Closed(Closed::Local))?;
        created.map_err(Error::of_request::<CreateTerminalRequest>)
    }

    /// Requests that the user fills in a form. Never use it for secrets.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] unless the client advertised `elicitation.form`, and the error of the
    /// client.
    pub async fn elicit_form(
        &self,
        message: impl Into<String>,
        form: ElicitationSchema,
    ) -> Result<CreateElicitationResponse> {
        self.elicit(CreateElicitationRequest::new(message, ElicitationFormMode::new(self.id().clone(), form)))
            .await
    }

    /// Requests that the user opens a link. An accepted response means that the link was opened. Call
    /// [`elicitation_complete`](Self::elicitation_complete) when the user has finished there.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] unless the client advertised `elicitation.url`, and the error of the
    /// client.
    pub async fn elicit_url(
        &self,
        message: impl Into<String>,
        id: impl Into<ElicitationId>,
        url: impl Into<String>,
    ) -> Result<CreateElicitationResponse> {
        let mode = ElicitationUrlMode::new(self.id().clone(), id, url);
        self.elicit(CreateElicitationRequest::new(message, mode)).await
    }

    /// Sends an elicitation in any mode. Its scope can be a tool call or a request instead of the session.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] unless the client advertised the mode, and the error of the client.
    pub async fn elicit(&self, request: CreateElicitationRequest) -> Result<CreateElicitationResponse> {
        let client = self.client().capabilities();
        let (offered, capability) = match &request.mode {
            ElicitationMode::Form(_) => (client.has_form_elicitation(), "elicitation.form"),
            ElicitationMode::Url(_) => (client.has_url_elicitation(), "elicitation.url"),
            _ => (false, "this mode of elicitation"),
        };
        self.client().require(|_| offered, capability)?;
        self.call(&request).await
    }

    /// Notifies the client that the user has finished at the link of an elicitation.
    ///
    /// # Errors
    ///
    /// Fails if the connection has ended.
    pub async fn elicitation_complete(&self, id: impl Into<ElicitationId>) -> Result<()> {
        Ok(self.peer().notify(&CompleteElicitationNotification::new(id.into())).await?)
    }
}

fn absolute(field: &'static str, path: &Path) -> Result<()> {
    if path.is_absolute() { Ok(()) } else { Err(Error::RelativePath { field, path: path.to_owned() }) }
}

/// Cancels the request for a terminal when it is dropped, unless the response has arrived.
struct WithdrawTerminal(RequestHandle);

impl Drop for WithdrawTerminal {
    fn drop(&mut self) {
        self.0.cancel();
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
    released: bool,
}

impl RemoteTerminal {
    /// Returns the id of the terminal.
    #[must_use]
    pub fn id(&self) -> &TerminalId {
        &self.id
    }

    /// Requests the output of the program so far, and its exit status if it has ended.
    ///
    /// # Errors
    ///
    /// Fails if the connection ends or the client responds with an error.
    pub async fn output(&self) -> Result<TerminalOutputResponse> {
        let request = TerminalOutputRequest::new(self.session.id().clone(), self.id.clone());
        self.session.call(&request).await
    }

    /// Waits until the program has ended.
    ///
    /// # Errors
    ///
    /// As [`output`](Self::output).
    pub async fn wait_for_exit(&self) -> Result<TerminalExitStatus> {
        let request = WaitForTerminalExitRequest::new(self.session.id().clone(), self.id.clone());
        Ok(self.session.call(&request).await?.into())
    }

    /// Ends the program. Its output can still be requested.
    ///
    /// # Errors
    ///
    /// As [`output`](Self::output).
    pub async fn kill(&self) -> Result<()> {
        let request = KillTerminalRequest::new(self.session.id().clone(), self.id.clone());
        self.session.call(&request).await?;
        Ok(())
    }

    /// Ends the program if it still runs, and releases the terminal.
    ///
    /// # Errors
    ///
    /// As [`output`](Self::output).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the release.
    pub async fn release(mut self) -> Result<()> {
        self.released = true;
        // Detached, because the release is needed even if nobody waits for it.
        let released = self.session.peer().request(&self.release_request()).detach().await;
        released.map_err(Error::of_request::<ReleaseTerminalRequest>)?;
        Ok(())
    }

    fn release_request(&self) -> ReleaseTerminalRequest {
        ReleaseTerminalRequest::new(self.session.id().clone(), self.id.clone())
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
