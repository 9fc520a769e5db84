//! The host, which handles the requests of agents to the editor.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use duologue_schema::{
    ClientCapabilities, CompleteElicitationNotification, CreateElicitationRequest, CreateElicitationResponse,
    CreateTerminalRequest, CreateTerminalResponse, Error as WireError, KillTerminalRequest,
    KillTerminalResponse, ReadTextFileRequest, ReadTextFileResponse, ReleaseTerminalRequest,
    ReleaseTerminalResponse, Request, RequestPermissionOutcome, RequestPermissionRequest, SessionId,
    TerminalOutputRequest, TerminalOutputResponse, WaitForTerminalExitRequest, WaitForTerminalExitResponse,
    WriteTextFileRequest, WriteTextFileResponse,
};

tokio::task_local! {
    static CONNECTION: ConnectionId;
}

/// The id of a connection in this program. With it a host distinguishes sessions of two agents that have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId(u64);

impl ConnectionId {
    /// Returns a new id.
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        ConnectionId(NUMBER.fetch_add(1, Relaxed))
    }

    /// Returns the connection of the current call to a host, or `None` outside of the tasks of such calls.
    #[cfg(feature = "local-host")]
    pub(crate) fn current() -> Option<Self> {
        CONNECTION.try_with(|connection| *connection).ok()
    }

    /// Calls a host for this connection.
    pub(crate) fn call<T>(self, host: impl FnOnce() -> T) -> T {
        CONNECTION.sync_scope(self, host)
    }

    /// Runs a call to a host for this connection.
    pub(crate) fn scope<F: Future>(self, call: F) -> impl Future<Output = F::Output> {
        CONNECTION.scope(self, call)
    }
}

/// The result of the methods of a [`Host`]. The agent receives the error.
pub type HostResult<T> = Result<T, WireError>;

/// Handles the requests of the agent: permissions, files, terminals and elicitation.
///
/// Every method rejects the request by default. The agent uses only what
/// [`capabilities`](Host::capabilities) advertises. `()` is a host that rejects everything. A closure can
/// handle a single method, see [`Client::on`](crate::Client::on).
///
/// Each call runs in a task of its own and may await anything. Calls with data first wait for their share of
/// [`Client::host_bytes`](crate::Client::host_bytes). A call can begin before earlier updates have been
/// taken from the stream of their turn. It is dropped when the agent cancels it or the connection ends:
/// requests to the user at once, other calls after one second.
///
/// ```
/// use duologue_client::{Host, HostResult};
/// use duologue_client::schema::{ClientCapabilities, FileSystemCapabilities, ReadTextFileRequest, ReadTextFileResponse};
///
/// struct Buffers;
///
/// impl Host for Buffers {
///     fn capabilities(&self) -> ClientCapabilities {
///         ClientCapabilities::default().fs(FileSystemCapabilities::default().read_text_file(true))
///     }
///
///     async fn read_text_file(&self, request: ReadTextFileRequest) -> HostResult<ReadTextFileResponse> {
///         Ok(ReadTextFileResponse::new(format!("what {} holds", request.path.display())))
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
    fn session_started(&self, session: &SessionId, folders: &[PathBuf]) {
        let _ = (session, folders);
    }

    /// Requests permission for a tool call. The default selects no option, which the agent has to treat as a
    /// rejection.
    ///
    /// Absent fields of the tool call are filled in from its earlier updates in the same turn: title, name,
    /// kind, content, locations and input. A session keeps the last 256 open calls and at most 1 MiB of them,
    /// and fewer if all sessions together exceed 16 MiB.
    ///
    /// If the turn is cancelled, the client responds with `cancelled` and drops this call.
    fn request_permission(
        &self,
        request: RequestPermissionRequest,
    ) -> impl Future<Output = HostResult<RequestPermissionOutcome>> + Send {
        let _ = request;
        std::future::ready(Ok(RequestPermissionOutcome::Cancelled))
    }

    /// Reads a file, including unsaved changes. Advertise it with `fs.read_text_file`.
    fn read_text_file(
        &self,
        request: ReadTextFileRequest,
    ) -> impl Future<Output = HostResult<ReadTextFileResponse>> + Send {
        refuse(request)
    }

    /// Writes a file. Creates it if it does not exist. Advertise it with `fs.write_text_file`.
    fn write_text_file(
        &self,
        request: WriteTextFileRequest,
    ) -> impl Future<Output = HostResult<WriteTextFileResponse>> + Send {
        refuse(request)
    }

    /// Starts a program and returns at once. Advertise all five terminal methods with `terminal`.
    fn create_terminal(
        &self,
        request: CreateTerminalRequest,
    ) -> impl Future<Output = HostResult<CreateTerminalResponse>> + Send {
        refuse(request)
    }

    /// Returns the output of a terminal's program so far.
    fn terminal_output(
        &self,
        request: TerminalOutputRequest,
    ) -> impl Future<Output = HostResult<TerminalOutputResponse>> + Send {
        refuse(request)
    }

    /// Waits for the end of a terminal's program.
    fn wait_for_terminal_exit(
        &self,
        request: WaitForTerminalExitRequest,
    ) -> impl Future<Output = HostResult<WaitForTerminalExitResponse>> + Send {
        refuse(request)
    }

    /// Ends a terminal's program. Its output can still be requested.
    fn kill_terminal(
        &self,
        request: KillTerminalRequest,
    ) -> impl Future<Output = HostResult<KillTerminalResponse>> + Send {
        refuse(request)
    }

    /// Releases a terminal. Ends its program if it still runs.
    fn release_terminal(
        &self,
        request: ReleaseTerminalRequest,
    ) -> impl Future<Output = HostResult<ReleaseTerminalResponse>> + Send {
        refuse(request)
    }

    /// Requests that the user fills in a form or opens a link. Advertise it with `elicitation.form` or
    /// `elicitation.url`. The client rejects other modes itself.
    fn create_elicitation(
        &self,
        request: CreateElicitationRequest,
    ) -> impl Future<Output = HostResult<CreateElicitationResponse>> + Send {
        refuse(request)
    }

    /// Called when the user has finished at the link of an elicitation. It runs on the reader and must not
    /// block.
    fn elicitation_complete(&self, notification: CompleteElicitationNotification) {
        let _ = notification;
    }

    /// Called at the end of the connection, to release its resources. Handlers of the connection may still run for a
    /// short time. It must not block.
    ///
    /// A host that wraps another host has to forward the call. Otherwise the other host keeps the terminals of the
    /// connection running until it is dropped.
    fn closed(&self) {}
}

/// Implements methods of [`Host`] by those of the host `H`.
macro_rules! forward {
    ($($method:ident($request:ty),)*) => {$(
        fn $method(
            &self,
            request: $request,
        ) -> impl Future<Output = HostResult<<$request as Request>::Result>> + Send {
            H::$method(self, request)
        }
    )*};
}

/// A shared host. The editor keeps a handle to call it in a closure of [`Client::on`](crate::Client::on), or
/// to show the output of a terminal.
impl<H: Host> Host for Arc<H> {
    fn capabilities(&self) -> ClientCapabilities {
        H::capabilities(self)
    }

    fn session_started(&self, session: &SessionId, folders: &[PathBuf]) {
        H::session_started(self, session, folders);
    }

    fn request_permission(
        &self,
        request: RequestPermissionRequest,
    ) -> impl Future<Output = HostResult<RequestPermissionOutcome>> + Send {
        H::request_permission(self, request)
    }

    forward! {
        read_text_file(ReadTextFileRequest),
        write_text_file(WriteTextFileRequest),
        create_terminal(CreateTerminalRequest),
        terminal_output(TerminalOutputRequest),
        wait_for_terminal_exit(WaitForTerminalExitRequest),
        kill_terminal(KillTerminalRequest),
        release_terminal(ReleaseTerminalRequest),
        create_elicitation(CreateElicitationRequest),
    }

    fn elicitation_complete(&self, notification: CompleteElicitationNotification) {
        H::elicitation_complete(self, notification);
    }

    fn closed(&self) {
        H::closed(self);
    }
}

/// A host that rejects everything.
impl Host for () {}

fn refuse<R: Request>(_: R) -> impl Future<Output = HostResult<R::Result>> + Send {
    std::future::ready(Err(WireError::method_not_found(R::METHOD)))
}
