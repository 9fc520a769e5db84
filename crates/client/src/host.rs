//! What an editor offers to the agents it runs.

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

/// Names a connection of this program, so that a host can tell apart the sessions of two agents that use one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId(u64);

impl ConnectionId {
    /// Returns a name that no other connection has.
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        ConnectionId(NUMBER.fetch_add(1, Relaxed))
    }

    /// Returns the connection whose call to a host this is; `None` outside of the tasks of such calls.
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

/// What the methods of a [`Host`] return: an error is the answer the agent gets.
pub type HostResult<T> = Result<T, WireError>;

/// The editor's side of the conversation: permissions, files, terminals, questions to the user.
///
/// Every method has a default that refuses, and an agent is only told of what
/// [`capabilities`](Host::capabilities) advertises. `()` is a host that refuses everything. A single
/// method can also be given to [`Client::on`](crate::Client::on) as a closure.
///
/// Each call runs in a task of its own and may await anything. Calls that hold data wait for their share of
/// [`Client::host_bytes`](crate::Client::host_bytes) first. A call may begin before the updates that
/// the agent sent ahead of it have been taken from their turn. It is dropped when the agent withdraws
/// it or the connection ends: questions to the user at once, other calls a second later.
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
    /// What the agent may ask for. Messages can always be cleared, that need not be said here.
    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities::default()
    }

    /// A session begins in these folders: its `cwd`, then its additional directories. This comes before
    /// whatever the agent asks for in the session, unless it asks before it has answered
    /// `session/new`, and again when the session is loaded or resumed. It must not block.
    ///
    /// A panic in it is logged, and the session goes on as if it had returned.
    fn session_started(&self, session: &SessionId, folders: &[PathBuf]) {
        let _ = (session, folders);
    }

    /// Lets the user decide whether a tool may run. The default chooses nothing, which the agent
    /// has to treat as a no.
    ///
    /// What the request leaves out of the tool call is filled in from what the agent has said of that call
    /// before in the same turn: title, name, kind, content, locations and input. It is known of the last 256
    /// calls that have not ended, and of 1 MiB of them; of fewer when all sessions together know more than 16 MiB.
    ///
    /// When the turn is cancelled the question is answered `cancelled` for you, and this is dropped.
    fn request_permission(
        &self,
        request: RequestPermissionRequest,
    ) -> impl Future<Output = HostResult<RequestPermissionOutcome>> + Send {
        let _ = request;
        std::future::ready(Ok(RequestPermissionOutcome::Cancelled))
    }

    /// Reads a file, unsaved changes included. Advertise with `fs.read_text_file`.
    fn read_text_file(
        &self,
        request: ReadTextFileRequest,
    ) -> impl Future<Output = HostResult<ReadTextFileResponse>> + Send {
        refuse(request)
    }

    /// Writes a file, creating it if needed. Advertise with `fs.write_text_file`.
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

    /// What a terminal's program has printed so far.
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

    /// Ends a terminal's program; its output stays readable.
    fn kill_terminal(
        &self,
        request: KillTerminalRequest,
    ) -> impl Future<Output = HostResult<KillTerminalResponse>> + Send {
        refuse(request)
    }

    /// Gives a terminal back, ending its program if need be.
    fn release_terminal(
        &self,
        request: ReleaseTerminalRequest,
    ) -> impl Future<Output = HostResult<ReleaseTerminalResponse>> + Send {
        refuse(request)
    }

    /// Asks the user to fill in a form or open a link. Advertise with `elicitation.form` or
    /// `elicitation.url`; other modes are refused before they get here.
    fn create_elicitation(
        &self,
        request: CreateElicitationRequest,
    ) -> impl Future<Output = HostResult<CreateElicitationResponse>> + Send {
        refuse(request)
    }

    /// What the user did behind a link is done. Called on the reader: it must not block.
    fn elicitation_complete(&self, notification: CompleteElicitationNotification) {
        let _ = notification;
    }

    /// The connection has ended, and what was begun for it can end too. Handlers of the connection may still run for a
    /// moment. It must not block.
    ///
    /// A host that wraps another one has to forward it, or the other one keeps terminals of the connection running until
    /// it is dropped.
    fn closed(&self) {}
}

/// A host the editor keeps a hand on: to fall back on it in a closure of
/// [`Client::on`](crate::Client::on), or to show a terminal's output while it runs.
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

    fn read_text_file(
        &self,
        request: ReadTextFileRequest,
    ) -> impl Future<Output = HostResult<ReadTextFileResponse>> + Send {
        H::read_text_file(self, request)
    }

    fn write_text_file(
        &self,
        request: WriteTextFileRequest,
    ) -> impl Future<Output = HostResult<WriteTextFileResponse>> + Send {
        H::write_text_file(self, request)
    }

    fn create_terminal(
        &self,
        request: CreateTerminalRequest,
    ) -> impl Future<Output = HostResult<CreateTerminalResponse>> + Send {
        H::create_terminal(self, request)
    }

    fn terminal_output(
        &self,
        request: TerminalOutputRequest,
    ) -> impl Future<Output = HostResult<TerminalOutputResponse>> + Send {
        H::terminal_output(self, request)
    }

    fn wait_for_terminal_exit(
        &self,
        request: WaitForTerminalExitRequest,
    ) -> impl Future<Output = HostResult<WaitForTerminalExitResponse>> + Send {
        H::wait_for_terminal_exit(self, request)
    }

    fn kill_terminal(
        &self,
        request: KillTerminalRequest,
    ) -> impl Future<Output = HostResult<KillTerminalResponse>> + Send {
        H::kill_terminal(self, request)
    }

    fn release_terminal(
        &self,
        request: ReleaseTerminalRequest,
    ) -> impl Future<Output = HostResult<ReleaseTerminalResponse>> + Send {
        H::release_terminal(self, request)
    }

    fn create_elicitation(
        &self,
        request: CreateElicitationRequest,
    ) -> impl Future<Output = HostResult<CreateElicitationResponse>> + Send {
        H::create_elicitation(self, request)
    }

    fn elicitation_complete(&self, notification: CompleteElicitationNotification) {
        H::elicitation_complete(self, notification);
    }

    fn closed(&self) {
        H::closed(self);
    }
}

/// A host that refuses everything.
impl Host for () {}

fn refuse<R: Request>(_: R) -> impl Future<Output = HostResult<R::Result>> + Send {
    std::future::ready(Err(WireError::method_not_found(R::METHOD)))
}
