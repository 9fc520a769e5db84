//! The host, which handles the requests of agents to the editor.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use duologue_schema::{
    ClientCapabilities, CompleteElicitationNotification, CreateElicitationRequest, CreateElicitationResponse,
    CreateTerminalRequest, CreateTerminalResponse, Error as WireError, KillTerminalRequest,
    KillTerminalResponse, ReadTextFileRequest, ReadTextFileResponse, ReleaseTerminalRequest,
    ReleaseTerminalResponse, Request, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SessionId, TerminalOutputRequest, TerminalOutputResponse,
    WaitForTerminalExitRequest, WaitForTerminalExitResponse, WriteTextFileRequest, WriteTextFileResponse,
};

use crate::context::HostContext;

/// The result of the methods of a [`Host`]. The agent receives the error.
pub type HostResult<T> = Result<T, WireError>;

/// Handles the requests of the agent: permissions, files, terminals and elicitation.
///
/// Every method rejects the request by default, as `request_permission` does with `cancelled`, and gets a [`HostContext`]. The agent uses only what
/// [`capabilities`](Host::capabilities) advertises. `()` is a host that rejects everything. A closure can
/// handle a single method, see [`Client::on`](crate::Client::on).
///
/// Each call runs in a task of its own and may await anything. Calls with data first wait for their share of
/// [`Client::host_bytes`](crate::Client::host_bytes). A call can begin before earlier updates have been
/// taken from the stream of their turn. It is dropped when the agent cancels it or the connection ends:
/// requests to the user at once, other calls after one second.
///
/// ```
/// use duologue_client::{Host, HostContext, HostResult};
/// use duologue_client::schema::{ClientCapabilities, FileSystemCapabilities, ReadTextFileRequest, ReadTextFileResponse};
///
/// struct Buffers;
///
/// impl Host for Buffers {
///     fn capabilities(&self) -> ClientCapabilities {
///         ClientCapabilities::default().fs(FileSystemCapabilities::default().read_text_file(true))
///     }
///
///     async fn read_text_file(
///         &self,
///         context: &HostContext,
///         request: ReadTextFileRequest,
///     ) -> HostResult<ReadTextFileResponse> {
///         let text = format!("the text of {} for {:?}", request.path.display(), context.connection_id());
///         Ok(ReadTextFileResponse::new(request.lines_of(&text)))
///     }
/// }
/// ```
pub trait Host: Send + Sync + 'static {
    /// Returns the capabilities that the client advertises. Clearing messages is always added.
    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities::default()
    }

    /// Called when a session begins, and again when it is loaded or resumed. `folders` are its `cwd` and its
    /// additional directories. It precedes all requests of the session, except those that the agent sends
    /// before it responds to `session/new`. It must not block.
    ///
    /// A panic is logged, and the session continues.
    fn session_started(&self, context: &HostContext, session: &SessionId, folders: &[PathBuf]) {
        let _ = (context, session, folders);
    }

    /// Called when a session was closed or deleted, or a load or resume of it was refused and it was not open before. Its
    /// folders are not the agent's any more. A session that was open before continues: then
    /// [`session_started`](Self::session_started) is called again, with its earlier folders. It must not block.
    ///
    /// A panic is logged, and the connection continues.
    fn session_ended(&self, context: &HostContext, session: &SessionId) {
        let _ = (context, session);
    }

    /// Decides about a tool call of the agent, usually with a question to the user. The outcome is one of
    /// `request.options`, for example [`request.outcome(true)`](RequestPermissionRequest::outcome) for the one that allows the
    /// call, or `cancelled`, which the agent has to treat as a rejection. The default is `cancelled`.
    ///
    /// ```
    /// use duologue_client::schema::{RequestPermissionRequest, RequestPermissionResponse};
    /// use duologue_client::{Host, HostContext, HostResult};
    ///
    /// struct Willing;
    ///
    /// impl Host for Willing {
    ///     async fn request_permission(
    ///         &self,
    ///         _: &HostContext,
    ///         request: RequestPermissionRequest,
    ///     ) -> HostResult<RequestPermissionResponse> {
    ///         Ok(request.outcome(true).into())
    ///     }
    /// }
    /// ```
    ///
    /// Members that `request.tool_call` lacks are taken from earlier updates of the call in the same turn, while the call is
    /// open. These are title, name, kind, content, locations and input. The client keeps the last 256 open calls of a
    /// session, at most 1 MiB of them, and at most 16 MiB of all sessions. For a call that was evicted the request is as
    /// the agent sent it.
    ///
    /// If the turn is cancelled, the client responds with `cancelled` and drops this call.
    fn request_permission(
        &self,
        context: &HostContext,
        request: RequestPermissionRequest,
    ) -> impl Future<Output = HostResult<RequestPermissionResponse>> + Send {
        let _ = (context, request);
        std::future::ready(Ok(RequestPermissionOutcome::Cancelled.into()))
    }

    /// Reads a file, including unsaved changes. Advertise it with `fs.read_text_file`.
    fn read_text_file(
        &self,
        context: &HostContext,
        request: ReadTextFileRequest,
    ) -> impl Future<Output = HostResult<ReadTextFileResponse>> + Send {
        refuse(context, request)
    }

    /// Writes a file. Creates it if it does not exist. Advertise it with `fs.write_text_file`.
    fn write_text_file(
        &self,
        context: &HostContext,
        request: WriteTextFileRequest,
    ) -> impl Future<Output = HostResult<WriteTextFileResponse>> + Send {
        refuse(context, request)
    }

    /// Starts a program and returns at once. Advertise all five terminal methods with `terminal`.
    fn create_terminal(
        &self,
        context: &HostContext,
        request: CreateTerminalRequest,
    ) -> impl Future<Output = HostResult<CreateTerminalResponse>> + Send {
        refuse(context, request)
    }

    /// Returns the output of a terminal's program so far.
    fn terminal_output(
        &self,
        context: &HostContext,
        request: TerminalOutputRequest,
    ) -> impl Future<Output = HostResult<TerminalOutputResponse>> + Send {
        refuse(context, request)
    }

    /// Waits for the end of a terminal's program.
    fn wait_for_terminal_exit(
        &self,
        context: &HostContext,
        request: WaitForTerminalExitRequest,
    ) -> impl Future<Output = HostResult<WaitForTerminalExitResponse>> + Send {
        refuse(context, request)
    }

    /// Ends a terminal's program. Its output can still be requested.
    fn kill_terminal(
        &self,
        context: &HostContext,
        request: KillTerminalRequest,
    ) -> impl Future<Output = HostResult<KillTerminalResponse>> + Send {
        refuse(context, request)
    }

    /// Releases a terminal. Ends its program if it still runs.
    fn release_terminal(
        &self,
        context: &HostContext,
        request: ReleaseTerminalRequest,
    ) -> impl Future<Output = HostResult<ReleaseTerminalResponse>> + Send {
        refuse(context, request)
    }

    /// Requests that the user fills in a form or opens a link. Advertise it with `elicitation.form` or
    /// `elicitation.url`. The client rejects other modes itself.
    fn create_elicitation(
        &self,
        context: &HostContext,
        request: CreateElicitationRequest,
    ) -> impl Future<Output = HostResult<CreateElicitationResponse>> + Send {
        refuse(context, request)
    }

    /// Called when the user has finished at the link of an elicitation. It runs on the reader and must not
    /// block.
    fn elicitation_complete(&self, context: &HostContext, notification: CompleteElicitationNotification) {
        let _ = (context, notification);
    }

    /// Called at the end of the connection, to release its resources. It is called again for a session that starts
    /// afterwards, because the program opened it while the connection ended. Handlers of the connection may still run for a
    /// short time. It must not block.
    ///
    /// A host that wraps another host has to forward the call. Otherwise the other host keeps the terminals of the
    /// connection running until it is dropped.
    fn closed(&self, context: &HostContext) {
        let _ = context;
    }
}

/// Implements methods of [`Host`] by those of the host `H`.
macro_rules! forward {
    ($($method:ident($request:ty),)*) => {$(
        fn $method(
            &self,
            context: &HostContext,
            request: $request,
        ) -> impl Future<Output = HostResult<<$request as Request>::Result>> + Send {
            H::$method(self, context, request)
        }
    )*};
}

/// A shared host, for several connections. The editor keeps a handle to call it in a closure of [`Client::on`](crate::Client::on), or
/// to show the output of a terminal.
impl<H: Host> Host for Arc<H> {
    fn capabilities(&self) -> ClientCapabilities {
        H::capabilities(self)
    }

    fn session_started(&self, context: &HostContext, session: &SessionId, folders: &[PathBuf]) {
        H::session_started(self, context, session, folders);
    }

    fn session_ended(&self, context: &HostContext, session: &SessionId) {
        H::session_ended(self, context, session);
    }

    forward! {
        request_permission(RequestPermissionRequest),
        read_text_file(ReadTextFileRequest),
        write_text_file(WriteTextFileRequest),
        create_terminal(CreateTerminalRequest),
        terminal_output(TerminalOutputRequest),
        wait_for_terminal_exit(WaitForTerminalExitRequest),
        kill_terminal(KillTerminalRequest),
        release_terminal(ReleaseTerminalRequest),
        create_elicitation(CreateElicitationRequest),
    }

    fn elicitation_complete(&self, context: &HostContext, notification: CompleteElicitationNotification) {
        H::elicitation_complete(self, context, notification);
    }

    fn closed(&self, context: &HostContext) {
        H::closed(self, context);
    }
}

/// A host that rejects everything.
impl Host for () {}

fn refuse<R: Request>(_: &HostContext, _: R) -> impl Future<Output = HostResult<R::Result>> + Send {
    std::future::ready(Err(WireError::method_not_found(R::METHOD)))
}
