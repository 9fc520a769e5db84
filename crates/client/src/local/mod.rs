//! A host that serves the files and programs of this machine.

mod folders;
#[cfg(fuzzing)]
pub mod fuzzing;
mod permissions;
mod program;
mod read;
mod system;
mod terminals;
mod write;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::time::Duration;

use duologue_rpc::Lock;
use duologue_schema::{
    ClientCapabilities, CreateTerminalRequest, CreateTerminalResponse, Error as WireError,
    FileSystemCapabilities, KillTerminalRequest, KillTerminalResponse, ReadTextFileRequest,
    ReadTextFileResponse, ReleaseTerminalRequest, ReleaseTerminalResponse, Request, RequestPermissionRequest,
    RequestPermissionResponse, SessionId, TerminalOutputRequest, TerminalOutputResponse,
    WaitForTerminalExitRequest, WaitForTerminalExitResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use tokio::time::Instant;

use crate::context::{ConnectionId, HostContext};
use crate::fair::{FairSemaphore, Permit};
use crate::host::{Host, HostResult};
use crate::limits::{FILE_THREADS, READ_BYTES, SCAN_BYTES};
use folders::{AllowedFolders, FileError, SessionKey};
pub use permissions::Permissions;
use read::{LineRange, Slice, TextRead};
use terminals::TerminalTable;

/// A [`Host`] for agents on this machine. It reads and writes files and runs programs. [`Permissions`] answer the
/// permission requests of the agent and reject everything by default.
///
/// Permissions are not a sandbox: the agent can read, write and run programs without a permission request. Only the
/// folders limit its access to files.
///
/// ```no_run
/// use duologue_client::schema::{ReadTextFileRequest, ReadTextFileResponse, ToolKind};
/// use duologue_client::{Client, Command, LocalHost, Permissions};
///
/// # async fn run() -> duologue_client::Result<()> {
/// let host = LocalHost::new("/home/me/project").permissions(Permissions::new().allow(ToolKind::Read));
/// let agent = Client::new(host).spawn(Command::new("echo-agent")).await?;
/// let session = agent.new_session("/home/me/project").await?;
/// # Ok(())
/// # }
/// ```
///
/// A host can serve several connections, at once or one after the other. The [`HostContext`] of a call names its
/// connection, so sessions of two connections are distinct even if they have the same id. At the end of a connection the
/// host ends its terminals and forgets its sessions and its *always* answers.
///
/// An editor can replace single methods with [`Client::on_with`](crate::Client::on_with). In this example it responds with
/// unsaved text if there is some:
///
/// ```no_run
/// use std::path::{Path, PathBuf};
/// use std::sync::Arc;
///
/// use duologue_client::schema::{ReadTextFileRequest, ReadTextFileResponse};
/// use duologue_client::{Client, Host, LocalHost};
///
/// fn unsaved(path: &Path) -> Option<String> {
///     None // the unsaved text of the editor
/// }
///
/// let host = Arc::new(LocalHost::new("/home/me/project"));
/// let client = Client::new(host.clone()).on_with(host, async |disk, context, request: ReadTextFileRequest| {
///     match unsaved(&request.path) {
///         Some(text) => Ok(ReadTextFileResponse::new(request.lines_of(&text))),
///         None => disk.read_text_file(&context, request).await,
///     }
/// });
/// # let _ = client;
/// ```
///
/// # Files
///
/// A session can use files that are in a root of the host ([`new`](Self::new), [`root`](Self::root)) and also
/// in a folder of the session (its `cwd` and additional directories). Neither `..` nor links lead outside, even
/// if another process replaces them meanwhile. Links that end inside are followed. The target of a hard link or
/// a mount inside a root counts as inside. Requests before the response to `session/new` are rejected. A host
/// that wraps this one has to forward [`session_started`](Host::session_started), or all requests are rejected, and
/// [`session_ended`](Host::session_ended), which ends the access to the folders of that session and its terminals.
///
/// A root is opened when the host is created, or by the first request after the root appears. If a root is
/// deleted and created again, a new host is needed.
///
/// Reading accepts regular files in UTF-8 and returns their unchanged text with its line ends. Absent lines read
/// as empty text, and line 0 as line 1. All hosts of a program share [`FILE_THREADS`] threads for files.
///
/// Writing creates missing files and folders. The new text replaces the old text in one step. It keeps the
/// permissions of the file, but not its extended attributes. Some files are written in place, where a crash can
/// leave half of the text: a file with several names, behind a link, of another owner, or in a folder without
/// write permission. A file with the set-user-id or set-group-id bit is rejected.
///
/// # Terminals
///
/// A program starts in a folder of the session, without input. It inherits the environment of this program, even if
/// the agent itself has a [clean one](crate::Command::clean_env). **It is not confined**: it has all rights of the
/// user. Its stdout and stderr are kept in their order, including escape sequences. At most the last 1 MiB is kept,
/// or as much as the agent requests up to 2 MiB. When the program exits, the rest of its process group is killed.
/// Output of processes that left the group is not awaited.
///
/// A `command` with arguments is run unchanged. A `command` without arguments is a command line for `/bin/sh` if it
/// contains spaces or characters of the shell and is not a file, because many agents send such lines.
///
/// Terminals that the agent does not release end when their session is closed or deleted, and with the connection.
#[must_use = "pass the host to Client::new"]
#[derive(Debug)]
pub struct LocalHost {
    folders: Arc<AllowedFolders>,
    permissions: Permissions,
    /// `None` when no programs may be run.
    terminals: Option<TerminalTable>,
    writes: bool,
    max_read: u64,
    max_scan: u64,
    threads: Threads,
}

impl LocalHost {
    /// Creates a host for sessions in the folder `root`, an absolute path.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let host = LocalHost {
            folders: Arc::default(),
            permissions: Permissions::new(),
            terminals: Some(TerminalTable::new()),
            writes: true,
            max_read: READ_BYTES,
            max_scan: SCAN_BYTES,
            threads: Threads::new(),
        };
        host.root(root)
    }

    /// Adds a root folder for sessions.
    pub fn root(mut self, root: impl Into<PathBuf>) -> Self {
        if let Some(folders) = Arc::get_mut(&mut self.folders) {
            folders.add(root.into());
        }
        self
    }

    /// Sets the rules that answer permission requests.
    pub fn permissions(mut self, permissions: Permissions) -> Self {
        self.permissions = permissions;
        self
    }

    /// Disables writing files and running programs.
    pub fn read_only(mut self) -> Self {
        self.writes = false;
        self.without_terminals()
    }

    /// Disables running programs.
    pub fn without_terminals(mut self) -> Self {
        self.terminals = None;
        self
    }

    /// Sets the most terminals of a connection at once, 64 by default. A number above that of
    /// [`max_terminals_together`](Self::max_terminals_together) raises it.
    pub fn max_terminals(mut self, most: usize) -> Self {
        if let Some(terminals) = &mut self.terminals {
            terminals.most = most;
            terminals.most_together = terminals.most_together.max(most);
        }
        self
    }

    /// Sets the most terminals of all connections of this host at once, 256 by default.
    pub fn max_terminals_together(mut self, most: usize) -> Self {
        if let Some(terminals) = &mut self.terminals {
            terminals.most_together = most;
        }
        self
    }

    /// Sets the most bytes of a file in one response, 8 MiB by default. Larger reads are rejected; the agent
    /// can request fewer lines.
    pub fn max_read(mut self, bytes: u64) -> Self {
        self.max_read = bytes;
        self
    }

    /// Sets the most bytes that a read skips before its first line, 1 GiB by default. A read of later lines is
    /// rejected.
    pub fn max_scan(mut self, bytes: u64) -> Self {
        self.max_scan = bytes;
        self
    }

    /// Returns the last whole characters of a terminal's output in at most `bytes` bytes, for an editor that shows a part of
    /// it. It copies no more than that. `truncated` is true if there was output before.
    ///
    /// # Errors
    ///
    /// As `terminal/output`: for an unknown terminal, and without terminals.
    pub fn terminal_output_end(
        &self,
        context: &HostContext,
        request: &TerminalOutputRequest,
        bytes: usize,
    ) -> HostResult<TerminalOutputResponse> {
        let terminals = self.terminals::<TerminalOutputRequest>()?;
        let terminal = terminals.get(&SessionKey::of(context, &request.session_id), &request.terminal_id)?;
        Ok(terminal.so_far(bytes))
    }

    fn terminals<R: Request>(&self) -> HostResult<&TerminalTable> {
        self.terminals.as_ref().ok_or_else(|| WireError::method_not_found(R::METHOD))
    }
}

impl Host for LocalHost {
    fn capabilities(&self) -> ClientCapabilities {
        let files = FileSystemCapabilities::new().read_text_file(true).write_text_file(self.writes);
        ClientCapabilities::new().fs(files).terminal(self.terminals.is_some())
    }

    fn session_started(&self, context: &HostContext, session: &SessionId, folders: &[PathBuf]) {
        self.folders.session_started(SessionKey::of(context, session), folders);
    }

    fn session_ended(&self, context: &HostContext, session: &SessionId) {
        let session = SessionKey::of(context, session);
        self.folders.session_ended(&session);
        if let Some(terminals) = &self.terminals {
            terminals.close_session(&session);
        }
    }

    async fn request_permission(
        &self,
        context: &HostContext,
        request: RequestPermissionRequest,
    ) -> HostResult<RequestPermissionResponse> {
        Ok(self.permissions.answer(context, request, &self.threads).await)
    }

    async fn read_text_file(
        &self,
        context: &HostContext,
        request: ReadTextFileRequest,
    ) -> HostResult<ReadTextFileResponse> {
        let session = SessionKey::of(context, &request.session_id);
        let folders = self.folders.clone();
        let (max_read, max_scan) = (self.max_read, self.max_scan);
        let opened = self.threads.run(context.connection_id(), move || {
            let ReadTextFileRequest { path, line, limit, .. } = request;
            folders.open(&session, &path, |dir, way| {
                let extent = LineRange { line: line.unwrap_or(1), limit, max_read, max_scan };
                let reading = TextRead::new(read::open(dir, way, &path)?, &path, extent)?;
                Box::new(reading).slice()
            })
        });
        let mut slice = opened.await?;
        loop {
            let reading = match slice {
                Slice::Finished(text) => return Ok(ReadTextFileResponse::new(text)),
                Slice::Unfinished(reading) => reading,
            };
            slice = self.threads.run(context.connection_id(), move || reading.next()).await?;
        }
    }

    async fn write_text_file(
        &self,
        context: &HostContext,
        request: WriteTextFileRequest,
    ) -> HostResult<WriteTextFileResponse> {
        if !self.writes {
            return Err(WireError::method_not_found(WriteTextFileRequest::METHOD));
        }
        let session = SessionKey::of(context, &request.session_id);
        let folders = self.folders.clone();
        let write = move || {
            let WriteTextFileRequest { path, content, .. } = request;
            folders.open(&session, &path, |dir, way| write::write(dir, way, &path, content.as_bytes()))
        };
        self.threads.run(context.connection_id(), write).await?;
        Ok(WriteTextFileResponse::new())
    }

    async fn create_terminal(
        &self,
        context: &HostContext,
        request: CreateTerminalRequest,
    ) -> HostResult<CreateTerminalResponse> {
        let terminals = self.terminals::<CreateTerminalRequest>()?;
        let session = SessionKey::of(context, &request.session_id);
        let (folders, key, cwd) = (self.folders.clone(), session.clone(), request.cwd.clone());
        let place = terminals.reserve(context.connection_id())?;
        let cwd = self.threads.run(context.connection_id(), move || match cwd {
            None => folders.home(&key),
            Some(cwd) => folder(&folders, &key, &cwd).map(|()| cwd),
        });
        let output_limit = request.output_byte_limit;
        let program = program::start(request, cwd.await?, place.clone()).await?;
        let terminal = terminals.open(session.clone(), output_limit, place, program);
        // The session or the connection may have ended before the terminal was registered. Both ends remove the session
        // first.
        if self.folders.of(&session).is_none() {
            terminals.take(&session, &terminal)?.kill().await;
            return Err(WireError::internal("the session has ended"));
        }
        Ok(CreateTerminalResponse::new(terminal))
    }

    async fn terminal_output(
        &self,
        context: &HostContext,
        request: TerminalOutputRequest,
    ) -> HostResult<TerminalOutputResponse> {
        self.terminal_output_end(context, &request, usize::MAX)
    }

    async fn wait_for_terminal_exit(
        &self,
        context: &HostContext,
        request: WaitForTerminalExitRequest,
    ) -> HostResult<WaitForTerminalExitResponse> {
        let terminals = self.terminals::<WaitForTerminalExitRequest>()?;
        Ok(terminals
            .get(&SessionKey::of(context, &request.session_id), &request.terminal_id)?
            .exited()
            .await
            .into())
    }

    async fn kill_terminal(
        &self,
        context: &HostContext,
        request: KillTerminalRequest,
    ) -> HostResult<KillTerminalResponse> {
        let terminals = self.terminals::<KillTerminalRequest>()?;
        terminals.get(&SessionKey::of(context, &request.session_id), &request.terminal_id)?.kill().await;
        Ok(KillTerminalResponse::new())
    }

    async fn release_terminal(
        &self,
        context: &HostContext,
        request: ReleaseTerminalRequest,
    ) -> HostResult<ReleaseTerminalResponse> {
        let terminals = self.terminals::<ReleaseTerminalRequest>()?;
        terminals.take(&SessionKey::of(context, &request.session_id), &request.terminal_id)?.kill().await;
        Ok(ReleaseTerminalResponse::new())
    }

    fn closed(&self, context: &HostContext) {
        let connection = context.connection_id();
        self.folders.forget(connection);
        self.permissions.forget(connection);
        if let Some(terminals) = &self.terminals {
            terminals.close(connection);
        }
    }
}

/// Checks that a path is a folder of the session.
fn folder(folders: &AllowedFolders, session: &SessionKey, path: &Path) -> HostResult<()> {
    folders.open(session, path, |dir, way| {
        if dir.metadata(way)?.is_dir() { Ok(()) } else { Err(FileError::about(path, "is not a folder")) }
    })
}

/// The user of a thread: a host and its connection.
type ThreadKey = (u64, ConnectionId);

/// Access of a host to the threads for files, which all hosts of the program share.
#[derive(Debug)]
struct Threads {
    /// The id of the host.
    host: u64,
}

impl Threads {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Threads { host: NUMBER.fetch_add(1, Relaxed) }
    }

    /// Runs `work` on a thread that may block, after waiting for the turn of this host and connection.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, work that has begun continues on its thread.
    async fn run<T: Send + 'static>(
        &self,
        connection: ConnectionId,
        work: impl FnOnce() -> HostResult<T> + Send + 'static,
    ) -> HostResult<T> {
        static SEMAPHORE: LazyLock<FairSemaphore<ThreadKey>> =
            LazyLock::new(|| FairSemaphore::new(FILE_THREADS));
        let key = (self.host, connection);
        let permit = Arc::new(Mutex::new(SEMAPHORE.acquire(key, 1).await));
        let watch = Watch { permit: Arc::downgrade(&permit), begun: Instant::now() };
        let work = move || {
            let result = work();
            drop(permit);
            result
        };
        let failed = |_| WireError::internal("the client failed to handle this request");
        let mut task = tokio::task::spawn_blocking(work);
        let result = tokio::select! {
            biased;
            result = &mut task => result,
            () = watch.stuck() => task.await,
        };
        result.map_err(failed).and_then(|result| result)
    }
}

/// Supervises work on a thread. If the work takes too long, another thread replaces its thread.
struct Watch {
    permit: Weak<Mutex<Permit<ThreadKey>>>,
    begun: Instant,
}

/// The time after which work counts as stuck.
const STUCK: Duration = Duration::from_secs(5);

impl Watch {
    /// Waits until the work counts as stuck, then replaces its thread.
    async fn stuck(&self) {
        Watch::replace_at(self.permit.clone(), self.begun + STUCK).await;
    }

    async fn replace_at(permit: Weak<Mutex<Permit<ThreadKey>>>, time: Instant) {
        tokio::time::sleep_until(time).await;
        if let Some(permit) = permit.upgrade() {
            permit.lock_unpoisoned().replace();
        }
    }
}

impl Drop for Watch {
    /// Continues to supervise the work of a request that was cancelled.
    fn drop(&mut self) {
        if self.permit.strong_count() > 0
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(Watch::replace_at(self.permit.clone(), self.begun + STUCK));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Two hosts with stuck disks use all threads, until the threads count as stuck.
    #[tokio::test(start_paused = true)]
    async fn a_stuck_disk_costs_only_its_own_host() {
        let connection = ConnectionId::new();
        let (mut stuck, mut disks) = (Vec::new(), Vec::new());
        for threads in [Arc::new(Threads::new()), Arc::new(Threads::new())] {
            // The third exceeds the share of the host.
            for _ in 0..3 {
                let (disk, answer) = mpsc::channel::<()>();
                disks.push(disk);
                let threads = threads.clone();
                let wait = move || {
                    // An error ends the wait too.
                    let _ = answer.recv();
                    Ok(())
                };
                stuck.push(tokio::spawn(async move { threads.run(connection, wait).await }));
            }
        }
        tokio::task::yield_now().await;
        let mut healthy = tokio::spawn(async move { Threads::new().run(connection, || Ok(())).await });
        tokio::task::yield_now().await;
        tokio::time::advance(STUCK - Duration::from_millis(1)).await;
        tokio::task::yield_now().await;
        assert!(!healthy.is_finished(), "there was a thread for it");
        tokio::time::advance(Duration::from_millis(2)).await;
        assert_eq!((&mut healthy).await.expect("no panic"), Ok(()));
        drop(disks);
        for task in stuck {
            assert_eq!(task.await.expect("no panic"), Ok(()));
        }
    }
}
