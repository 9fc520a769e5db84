//! Terminals: programs of the agent with their output and their exit.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use duologue_rpc::Lock;
use duologue_schema::{
    Error as WireError, OutputTail, TerminalExitStatus, TerminalId, TerminalOutputResponse,
};
use tokio::io::AsyncReadExt;
use tokio::sync::{Notify, watch};

use super::folders::SessionKey;
use super::program::Program;
use super::system;
use crate::context::ConnectionId;
use crate::host::HostResult;
use crate::last_output::{LAST_OUTPUT, LAST_ROUNDS};
use crate::limits::{MOST_TERMINAL_OUTPUT, REAP, TERMINAL_OUTPUT, TERMINALS, TERMINALS_TOGETHER};

/// The terminals of a host. Dropping the table kills their programs.
#[derive(Debug)]
pub(super) struct TerminalTable {
    open: Mutex<HashMap<TerminalId, OpenTerminal>>,
    counts: TerminalCounts,
    /// The most terminals of one connection.
    pub(super) most: usize,
    /// The most terminals of all connections.
    pub(super) most_together: usize,
}

/// The number of terminals of each connection that has any.
type TerminalCounts = Arc<Mutex<HashMap<ConnectionId, usize>>>;

/// The place of a terminal among those of its connection, which is free again when the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct TerminalPlace(#[expect(dead_code, reason = "dropped")] Arc<CountedTerminal>);

#[derive(Debug)]
struct CountedTerminal {
    connection: ConnectionId,
    counts: TerminalCounts,
}

impl Drop for CountedTerminal {
    fn drop(&mut self) {
        let mut counts = self.counts.lock_unpoisoned();
        if let Some(count) = counts.get_mut(&self.connection) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.connection);
            }
        }
    }
}

/// A terminal that was not released. Its place is not a part of the terminal, whose task outlives the answer to a release.
#[derive(Debug)]
struct OpenTerminal {
    terminal: Arc<LocalTerminal>,
    _place: TerminalPlace,
}

/// A program with its output. It runs or has exited.
#[derive(Debug)]
pub(super) struct LocalTerminal {
    session: SessionKey,
    output: Mutex<OutputTail>,
    /// `Some` after the program has exited and its output was read.
    exit: watch::Sender<Option<TerminalExitStatus>>,
    kill: Notify,
}

impl TerminalTable {
    pub(super) fn new() -> Self {
        TerminalTable {
            open: Mutex::default(),
            counts: TerminalCounts::default(),
            most: TERMINALS,
            most_together: TERMINALS_TOGETHER,
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<TerminalId, OpenTerminal>> {
        self.open.lock_unpoisoned()
    }

    /// Reserves the place of another terminal.
    pub(super) fn reserve(&self, connection: ConnectionId) -> HostResult<TerminalPlace> {
        let mut counts = self.counts.lock_unpoisoned();
        // A connection is in the table only while it has a terminal, so this sum is short.
        let together: usize = counts.values().sum();
        let full = |most: usize, whose: &str, setting: &str| {
            let message = format!("too many terminals are open{whose} ({most}); release one first");
            Err(WireError::internal(message).data(format!("the limit is LocalHost::{setting}")))
        };
        if counts.get(&connection).is_some_and(|count| *count >= self.most) || self.most == 0 {
            return full(self.most, "", "max_terminals");
        }
        if together >= self.most_together {
            return full(self.most_together, " in all connections", "max_terminals_together");
        }
        *counts.entry(connection).or_default() += 1;
        Ok(TerminalPlace(Arc::new(CountedTerminal { connection, counts: self.counts.clone() })))
    }

    /// Opens the terminal of a program.
    pub(super) fn open(
        &self,
        session: SessionKey,
        output_limit: Option<u64>,
        place: TerminalPlace,
        program: Program,
    ) -> TerminalId {
        // Unique in the whole program, because an editor can show terminals of several agents.
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let limit = output_limit.map_or(TERMINAL_OUTPUT, |limit| {
            usize::try_from(limit).unwrap_or(usize::MAX).min(MOST_TERMINAL_OUTPUT)
        });
        let terminal = Arc::new(LocalTerminal {
            session,
            output: Mutex::new(OutputTail::new(limit)),
            exit: watch::Sender::new(None),
            kill: Notify::new(),
        });
        tokio::spawn(terminal.clone().run(program));
        let id = TerminalId::new(format!("terminal-{}", NUMBER.fetch_add(1, Relaxed)));
        self.table().insert(id.clone(), OpenTerminal { terminal, _place: place });
        id
    }

    /// Kills the programs of a connection.
    pub(super) fn close(&self, connection: ConnectionId) {
        self.kill_where(|terminal| terminal.session.connection == connection);
    }

    /// Kills the programs of a session.
    pub(super) fn close_session(&self, session: &SessionKey) {
        self.kill_where(|terminal| terminal.session == *session);
    }

    /// Removes terminals and kills their programs.
    fn kill_where(&self, is_killed: impl Fn(&LocalTerminal) -> bool) {
        self.table().retain(|_, OpenTerminal { terminal, .. }| {
            let stays = !is_killed(terminal);
            if !stays {
                terminal.kill.notify_one();
            }
            stays
        });
    }

    /// Returns a terminal of this session.
    pub(super) fn get(&self, session: &SessionKey, id: &TerminalId) -> HostResult<Arc<LocalTerminal>> {
        let open = self.table();
        let open = open.get(id).filter(|open| open.terminal.session == *session);
        open.map(|open| open.terminal.clone()).ok_or_else(unknown)
    }

    /// Removes a terminal of this session from the table.
    pub(super) fn take(&self, session: &SessionKey, id: &TerminalId) -> HostResult<Arc<LocalTerminal>> {
        let mut open = self.table();
        if open.get(id).is_none_or(|open| open.terminal.session != *session) {
            return Err(unknown());
        }
        open.remove(id).map(|open| open.terminal).ok_or_else(unknown)
    }
}

impl Drop for TerminalTable {
    fn drop(&mut self) {
        self.kill_where(|_| true);
    }
}

fn unknown() -> WireError {
    WireError::resource_not_found("this session has no such terminal, or has released it")
}

impl LocalTerminal {
    fn output(&self) -> MutexGuard<'_, OutputTail> {
        self.output.lock_unpoisoned()
    }

    /// Returns the last `bytes` of the output so far, and the exit status if the program has exited.
    pub(super) fn so_far(&self, bytes: usize) -> TerminalOutputResponse {
        // In this order, the output of an exited program is complete.
        let exit = self.exit.borrow().clone();
        let (text, truncated) = self.output().end(bytes);
        let mut response = TerminalOutputResponse::new(text, truncated);
        response.exit_status = exit;
        response
    }

    /// Waits for the exit of the program.
    pub(super) async fn exited(&self) -> TerminalExitStatus {
        let mut exit = self.exit.subscribe();
        let status = exit.wait_for(Option::is_some).await;
        status.ok().and_then(|status| status.clone()).unwrap_or_default()
    }

    /// Kills the process group of the program and waits for its exit.
    pub(super) async fn kill(&self) {
        self.kill.notify_one();
        let _ = tokio::time::timeout(REAP, self.exited()).await;
    }

    async fn run(self: Arc<Self>, program: Program) {
        let Program { process, mut exit, mut output } = program;
        let mut chunk = vec![0; 16 * 1024];
        let mut more = true;
        let status = loop {
            tokio::select! {
                status = &mut exit => break status.ok().flatten(),
                () = self.kill.notified() => process.kill(),
                read = output.read(&mut chunk), if more => more = self.take(read, &chunk),
            }
        };
        // A process that left the group can keep the pipe open or continue to write.
        let rest = async {
            while more && let Ok(read) = tokio::time::timeout(LAST_OUTPUT, output.read(&mut chunk)).await {
                more = self.take(read, &chunk);
            }
        };
        // Reading a full pipe takes less.
        let _ = tokio::time::timeout(LAST_OUTPUT * LAST_ROUNDS, rest).await;
        drop(output);
        self.output().finish();
        self.exit.send_replace(Some(system::exit_status(status)));
    }

    /// Appends the bytes that were read. Returns false at the end of the output.
    fn take(&self, read: io::Result<usize>, chunk: &[u8]) -> bool {
        let Ok(count @ 1..) = read else { return false };
        self.output().push(chunk.get(..count).unwrap_or_default());
        true
    }
}
