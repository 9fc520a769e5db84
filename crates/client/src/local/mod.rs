//! A host for agents on this machine: its files, its programs, and a say in what they do.

mod folders;
#[cfg(fuzzing)]
pub mod fuzzing;
mod permissions;
mod program;
mod read;
mod system;
mod tail;
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
    ReadTextFileResponse, ReleaseTerminalRequest, ReleaseTerminalResponse, Request, RequestPermissionOutcome,
    RequestPermissionRequest, SessionId, TerminalOutputRequest, TerminalOutputResponse,
    WaitForTerminalExitRequest, WaitForTerminalExitResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use tokio::time::Instant;

use crate::fair::{FairSemaphore, Permit};
use crate::host::{ConnectionId, Host, HostResult};
use crate::limits::{FILE_THREADS, READ_BYTES, SCAN_BYTES, TERMINALS};
use folders::{AllowedFolders, FileError, SessionKey};
pub use permissions::Permissions;
use read::{LineRange, Slice, TextRead};
use terminals::TerminalTable;

/// A [`Host`] for agents on this machine: it reads and writes files, runs programs, and answers
/// questions for permission by [`Permissions`], which reject everything unless told otherwise. What it
/// does itself needs no question: permissions answer the agent, the folders bound it.
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
/// It serves one connection after the other, and several at once: the end of one ends its terminals and forgets its
/// sessions and the answers that were to hold *always*. A call that the editor makes outside of the task of a request,
/// for a session id that several connections have, is refused. An editor replaces single methods with [`Client::on`](crate::Client::on)
/// and keeps the rest. Here it answers with unsaved text where it has some:
///
/// ```no_run
/// use std::path::{Path, PathBuf};
/// use std::sync::Arc;
///
/// use duologue_client::schema::{ReadTextFileRequest, ReadTextFileResponse};
/// use duologue_client::{Client, Host, LocalHost};
///
/// fn unsaved(path: &Path) -> Option<String> {
///     None // what the editor has and the disk has not
/// }
///
/// let host = Arc::new(LocalHost::new("/home/me/project"));
/// let disk = host.clone();
/// let client = Client::new(host).on(move |request: ReadTextFileRequest| {
///     let disk = disk.clone();
///     async move {
///         match unsaved(&request.path) {
///             Some(text) => Ok(ReadTextFileResponse::new(request.lines_of(&text))),
///             None => disk.read_text_file(request).await,
///         }
///     }
/// });
/// # let _ = client;
/// ```
///
/// # Files
///
/// A session may use the files that are both in a root of the host ([`new`](Self::new),
/// [`root`](Self::root)) and in a folder of the session (its `cwd` and additional directories). Neither
/// `..` nor links lead out of there, not even while somebody exchanges them; links that end inside are
/// followed. What a hard link or a mount inside a root leads to counts as inside. An agent that asks
/// before it has answered `session/new` is refused, and so is every session of which
/// [`session_started`](Host::session_started) was not forwarded by a host that wraps this one.
///
/// The roots are opened when the host is made, or by the first request after they appear. A root that is
/// deleted and made again needs a new host.
///
/// Reading takes ordinary files in UTF-8 and gives their text as it is, line ends included; lines that
/// are not there read as empty text, and line 0 as line 1. All hosts of a program together use
/// [`FILE_THREADS`] threads for files, in turn. Writing makes missing files with their
/// folders; the new text takes the place of the old in one step and keeps its permissions, but not its
/// extended attributes. A file with several names, behind a link, of another owner or in a folder that
/// takes no new files is written in place, where a crash can leave half of it. A file with the set-user-id or
/// set-group-id bit is refused.
///
/// # Terminals
///
/// A program starts in a folder of the session, without input and with this program's environment, whatever
/// [`Command::clean_env`](crate::Command::clean_env) has left the agent. **It is not confined**: it can do
/// what you can do. Its stdout and stderr are kept in the order they come, at
/// most the last 1 MiB or what the agent asks for up to 2 MiB, escape sequences included. When it ends,
/// what is left of its process group is killed, and output of what left the group is not waited for.
///
/// A `command` with arguments is run as it is. One without, that has spaces or signs of the shell in it
/// and is no file, is a command line for `/bin/sh`, since many agents send those.
///
/// Terminals the agent does not release end with the connection.
#[must_use = "give it to Client::new"]
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
    /// A host for sessions in the folder `root`, an absolute path.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let host = LocalHost {
            folders: Arc::default(),
            permissions: Permissions::new(),
            terminals: Some(TerminalTable::new(TERMINALS)),
            writes: true,
            max_read: READ_BYTES,
            max_scan: SCAN_BYTES,
            threads: Threads::new(),
        };
        host.root(root)
    }

    /// Adds a folder for sessions to work in.
    pub fn root(mut self, root: impl Into<PathBuf>) -> Self {
        if let Some(folders) = Arc::get_mut(&mut self.folders) {
            folders.add(root.into());
        }
        self
    }

    /// Answers questions for permission like this.
    pub fn permissions(mut self, permissions: Permissions) -> Self {
        self.permissions = permissions;
        self
    }

    /// Changes nothing on this machine: writes no files and runs no programs.
    pub fn read_only(mut self) -> Self {
        self.writes = false;
        self.without_terminals()
    }

    /// Runs no programs.
    pub fn without_terminals(mut self) -> Self {
        self.terminals = None;
        self
    }

    /// How many terminals the agent may have at once, 64 by default.
    pub fn max_terminals(mut self, most: usize) -> Self {
        self.terminals = self.terminals.map(|_| TerminalTable::new(most));
        self
    }

    /// How many bytes of a file are sent at once, 8 MiB by default. What does not fit is refused; the
    /// agent can ask for fewer lines.
    pub fn max_read(mut self, bytes: u64) -> Self {
        self.max_read = bytes;
        self
    }

    /// Sets how many bytes into a file a read may look for its first line, 1 GiB by default. A read of later lines
    /// is refused.
    pub fn max_scan(mut self, bytes: u64) -> Self {
        self.max_scan = bytes;
        self
    }

    fn session<'a>(&self, id: &'a SessionId) -> HostResult<SessionKey<'a>> {
        Ok(SessionKey { id, connection: self.folders.connection_of(id)? })
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

    fn session_started(&self, session: &SessionId, folders: &[PathBuf]) {
        self.folders.session_started(session, folders);
    }

    async fn request_permission(
        &self,
        request: RequestPermissionRequest,
    ) -> HostResult<RequestPermissionOutcome> {
        let connection = self.folders.connection_of(&request.session_id).ok();
        Ok(self.permissions.answer(request, connection, &self.threads).await)
    }

    async fn read_text_file(&self, request: ReadTextFileRequest) -> HostResult<ReadTextFileResponse> {
        let connection = self.folders.connection_of(&request.session_id)?;
        let folders = self.folders.clone();
        let (max_read, max_scan) = (self.max_read, self.max_scan);
        let opened = self.threads.run(move || {
            let ReadTextFileRequest { session_id, path, line, limit, .. } = request;
            let session = SessionKey { id: &session_id, connection };
            folders.open(session, &path, |dir, way| {
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
            slice = self.threads.run(move || reading.next()).await?;
        }
    }

    async fn write_text_file(&self, request: WriteTextFileRequest) -> HostResult<WriteTextFileResponse> {
        if !self.writes {
            return Err(WireError::method_not_found(WriteTextFileRequest::METHOD));
        }
        let connection = self.folders.connection_of(&request.session_id)?;
        let folders = self.folders.clone();
        let write = move || {
            let WriteTextFileRequest { session_id, path, content, .. } = request;
            let session = SessionKey { id: &session_id, connection };
            folders.open(session, &path, |dir, way| write::write(dir, way, &path, content.as_bytes()))
        };
        self.threads.run(write).await?;
        Ok(WriteTextFileResponse::new())
    }

    async fn create_terminal(&self, request: CreateTerminalRequest) -> HostResult<CreateTerminalResponse> {
        let terminals = self.terminals::<CreateTerminalRequest>()?;
        let connection = self.folders.connection_of(&request.session_id)?;
        let (folders, id, cwd) = (self.folders.clone(), request.session_id.clone(), request.cwd.clone());
        let room = terminals.reserve()?;
        let cwd = self.threads.run(move || {
            let session = SessionKey { id: &id, connection };
            match cwd {
                None => folders.home(session),
                Some(cwd) => folder(&folders, session, &cwd).map(|()| cwd),
            }
        });
        let (request, program) = program::start(request, cwd.await?, room.clone()).await?;
        let id = request.session_id.clone();
        let session = SessionKey { id: &id, connection };
        let terminal = terminals.open(connection, request, room, program);
        // The end of the connection, which forgets the session first, may have come before the terminal.
        if self.folders.of(session).is_none() {
            terminals.take(session, &terminal)?.kill().await;
            return Err(WireError::internal("the connection has ended"));
        }
        Ok(CreateTerminalResponse::new(terminal))
    }

    async fn terminal_output(&self, request: TerminalOutputRequest) -> HostResult<TerminalOutputResponse> {
        let terminals = self.terminals::<TerminalOutputRequest>()?;
        Ok(terminals.get(self.session(&request.session_id)?, &request.terminal_id)?.so_far())
    }

    async fn wait_for_terminal_exit(
        &self,
        request: WaitForTerminalExitRequest,
    ) -> HostResult<WaitForTerminalExitResponse> {
        let terminals = self.terminals::<WaitForTerminalExitRequest>()?;
        Ok(terminals.get(self.session(&request.session_id)?, &request.terminal_id)?.exited().await.into())
    }

    async fn kill_terminal(&self, request: KillTerminalRequest) -> HostResult<KillTerminalResponse> {
        let terminals = self.terminals::<KillTerminalRequest>()?;
        terminals.get(self.session(&request.session_id)?, &request.terminal_id)?.kill().await;
        Ok(KillTerminalResponse::new())
    }

    async fn release_terminal(&self, request: ReleaseTerminalRequest) -> HostResult<ReleaseTerminalResponse> {
        let terminals = self.terminals::<ReleaseTerminalRequest>()?;
        terminals.take(self.session(&request.session_id)?, &request.terminal_id)?.kill().await;
        Ok(ReleaseTerminalResponse::new())
    }

    fn closed(&self) {
        let connection = ConnectionId::current();
        self.folders.forget(connection);
        self.permissions.forget(connection);
        if let Some(terminals) = &self.terminals {
            terminals.close(connection);
        }
    }
}

/// Whether the session may work in this folder.
fn folder(folders: &AllowedFolders, session: SessionKey<'_>, path: &Path) -> HostResult<()> {
    folders.open(session, path, |dir, way| {
        if dir.metadata(way)?.is_dir() { Ok(()) } else { Err(FileError::about(path, "is no folder")) }
    })
}

/// The host and the connection that use a thread.
type ThreadKey = (u64, Option<ConnectionId>);

/// A host's share of the threads that all hosts of the program use for files.
#[derive(Debug)]
struct Threads {
    /// The number of the host.
    host: u64,
}

impl Threads {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Threads { host: NUMBER.fetch_add(1, Relaxed) }
    }

    /// Runs `work` on a thread that may wait for disks, when it is the turn of this host and connection.
    ///
    /// # Cancel safety
    ///
    /// Work that has begun goes on when the future is dropped, and keeps its thread.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> HostResult<T> + Send + 'static,
    ) -> HostResult<T> {
        static SEMAPHORE: LazyLock<FairSemaphore<ThreadKey>> =
            LazyLock::new(|| FairSemaphore::new(FILE_THREADS));
        let key = (self.host, ConnectionId::current());
        let permit = Arc::new(Mutex::new(SEMAPHORE.acquire(key, 1).await));
        let watch = Watch { permit: Arc::downgrade(&permit), begun: Instant::now() };
        let work = move || {
            let result = work();
            drop(permit);
            result
        };
        let failed = |_| WireError::internal("the host failed");
        let mut task = tokio::task::spawn_blocking(work);
        let result = tokio::select! {
            biased;
            result = &mut task => result,
            () = watch.stuck() => task.await,
        };
        result.map_err(failed).and_then(|result| result)
    }
}

/// Work on a thread. If it takes too long, the others get another thread for it.
struct Watch {
    permit: Weak<Mutex<Permit<ThreadKey>>>,
    begun: Instant,
}

/// The time after which a disk is taken for one that does not answer.
const STUCK: Duration = Duration::from_secs(5);

impl Watch {
    /// Waits until the work counts as stuck, and replaces its thread.
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
    /// Goes on watching work whose request was cancelled.
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

    /// Two hosts whose disks do not answer hold all threads, until these count as stuck.
    #[tokio::test(start_paused = true)]
    async fn a_disk_that_does_not_answer_costs_only_its_own_host() {
        let (mut stuck, mut disks) = (Vec::new(), Vec::new());
        for threads in [Arc::new(Threads::new()), Arc::new(Threads::new())] {
            // The third would be over the host's share.
            for _ in 0..3 {
                let (disk, answer) = mpsc::channel::<()>();
                disks.push(disk);
                let threads = threads.clone();
                let wait = move || {
                    // An error is an answer too.
                    let _ = answer.recv();
                    Ok(())
                };
                stuck.push(tokio::spawn(async move { threads.run(wait).await }));
            }
        }
        tokio::task::yield_now().await;
        let mut healthy = tokio::spawn(async { Threads::new().run(|| Ok(())).await });
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
