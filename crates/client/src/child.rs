//! The process of an agent with its pipes and its process group, with the operating-system code for it.

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

use crate::command::Command;
use crate::error::{Error, Result};
use crate::limits::{CLOSE_STEP, REAP};

/// A running agent with raw pipes and without a connection, for proxies and test tools. Editors use
/// [`Client::spawn`](crate::Client::spawn).
///
/// The process leads a process group of its own. Dropping this kills the group.
///
/// ```
/// use duologue_client::{AgentProcess, Command};
/// use tokio::io::AsyncReadExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (process, mut pipes) = AgentProcess::start(Command::new("echo").arg("no agent"))?;
/// let mut output = String::new();
/// pipes.stdout.read_to_string(&mut output).await?;
/// assert_eq!(output, "no agent\n");
/// let status = process.end().await;
/// assert!(status.is_some_and(|status| status.success()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AgentProcess {
    pub(crate) child: Child,
    pub(crate) group: ProcessGroup,
}

/// The three pipes of an [`AgentProcess`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Pipes {
    /// The stdin of the process. Dropping it asks the agent to exit.
    pub stdin: ChildStdin,
    /// The stdout of the process, with its messages.
    pub stdout: ChildStdout,
    /// The stderr of the process. Read it, because a full pipe blocks the process.
    pub stderr: ChildStderr,
}

impl AgentProcess {
    /// Starts the program.
    ///
    /// # Errors
    ///
    /// [`Error::Spawn`] if the program cannot be started.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O enabled.
    pub fn start(command: impl Into<Command>) -> Result<(Self, Pipes)> {
        let command = command.into();
        let program = command.program();
        let mut command = tokio::process::Command::from(command.into_std());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        #[cfg(unix)]
        command.process_group(0);
        #[cfg(not(unix))]
        command.kill_on_drop(true);
        let failed = |error| Error::Spawn { program: program.clone(), error: Arc::new(error) };
        let mut child = command.spawn().map_err(failed)?;
        let group = ProcessGroup::of(&child);
        match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => {
                Ok((AgentProcess { child, group }, Pipes { stdin, stdout, stderr }))
            }
            _ => Err(failed(std::io::Error::other("the system gave no pipes"))),
        }
    }

    /// Returns the id of the process, while it runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until the program exits by itself. Processes of its group can continue until this is dropped. If there are
    /// none, later calls and the drop send no signals, because the id of the group can be reused.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn wait(&mut self) -> Option<ExitStatus> {
        let status = self.child.wait().await.ok();
        self.group.forget_if_empty();
        status
    }

    /// Sends SIGTERM to the process group. Has no effect on systems without signals.
    pub fn terminate(&self) {
        self.group.terminate();
    }

    /// Kills the process group at once.
    pub fn kill(&self) {
        self.group.kill();
    }

    /// Ends the process group. Drop stdin first. This waits two seconds, sends SIGTERM, waits two more seconds
    /// and sends SIGKILL. Returns `None` if the exit status is unknown.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future kills the process group at once.
    pub async fn end(mut self) -> Option<ExitStatus> {
        let status = graceful_shutdown(&mut self.child, &self.group).await;
        self.group.kill();
        self.group.forget();
        status
    }
}

/// Ends a process whose input was closed: waits, sends SIGTERM, waits and sends SIGKILL.
pub(crate) async fn graceful_shutdown(child: &mut Child, group: &ProcessGroup) -> Option<ExitStatus> {
    if let Some(status) = exit_or_terminate(child.wait(), || group.terminate()).await {
        return status.ok();
    }
    group.kill();
    reap(child).await
}

/// Waits for the exit, calls `terminate` and waits again. Returns `None` if the process has to be killed.
async fn exit_or_terminate<T>(exit: impl Future<Output = T>, terminate: impl FnOnce()) -> Option<T> {
    let mut exit = std::pin::pin!(exit);
    if let Ok(status) = tokio::time::timeout(CLOSE_STEP, &mut exit).await {
        return Some(status);
    }
    terminate();
    tokio::time::timeout(CLOSE_STEP, exit).await.ok()
}

pub(crate) async fn reap(child: &mut Child) -> Option<ExitStatus> {
    let _ = child.start_kill();
    tokio::time::timeout(REAP, child.wait()).await.ok().and_then(std::result::Result::ok)
}

/// The process group of an agent. Dropping it kills the group, even if the runtime of the supervisor was
/// dropped.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    #[cfg(unix)]
    id: Option<rustix::process::Pid>,
}

impl ProcessGroup {
    #[cfg(unix)]
    pub(crate) fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
        ProcessGroup { id }
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(id) = self.id {
            // An error means that the group is gone.
            let _ = rustix::process::kill_process_group(id, signal);
        }
    }

    #[cfg(unix)]
    pub(crate) fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    #[cfg(unix)]
    pub(crate) fn kill(&self) {
        self.signal(rustix::process::Signal::KILL);
    }

    /// Forgets the group after its end, because its id can be reused.
    #[cfg(unix)]
    pub(crate) fn forget(&mut self) {
        self.id = None;
    }

    /// Forgets the group if its leader was reaped and no other process is in it.
    #[cfg(unix)]
    fn forget_if_empty(&mut self) {
        if self
            .id
            .is_some_and(|id| rustix::process::test_kill_process_group(id) == Err(rustix::io::Errno::SRCH))
        {
            self.forget();
        }
    }

    // On other systems only the process itself is ended, by `reap`.
    #[cfg(not(unix))]
    pub(crate) fn of(_: &Child) -> Self {
        ProcessGroup {}
    }
    #[cfg(not(unix))]
    pub(crate) fn terminate(&self) {}
    #[cfg(not(unix))]
    pub(crate) fn kill(&self) {}
    #[cfg(not(unix))]
    pub(crate) fn forget(&mut self) {}
    #[cfg(not(unix))]
    fn forget_if_empty(&mut self) {}
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
        // The runtime that reaps the leader may have been dropped.
        #[cfg(unix)]
        if let Some(id) = self.id {
            let _ = std::thread::Builder::new()
                .name("duologue-reap".into())
                .spawn(move || rustix::process::waitpid(Some(id), rustix::process::WaitOptions::empty()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    #[cfg(unix)]
    #[tokio::test]
    async fn a_group_is_forgotten_when_it_is_empty() {
        for (script, is_empty) in [("exit 0", true), ("sleep 60 & exit 0", false)] {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", script]);
            let (mut process, _pipes) = AgentProcess::start(command).expect("a shell");
            assert!(process.wait().await.is_some_and(|status| status.success()));
            assert_eq!(process.group.id.is_none(), is_empty, "{script}");
        }
    }

    /// A process that exits in time is not signalled. Another one is signalled once, at the right time.
    #[tokio::test(start_paused = true)]
    async fn each_step_of_the_shutdown_has_its_time() {
        for after in [0, 1, 1999, 2001, 2500, 3999, 4001, 3_600_000] {
            let (started, signalled) = (Instant::now(), Cell::new(None));
            let exit = exit_or_terminate(sleep(Duration::from_millis(after)), || {
                assert_eq!(signalled.replace(Some(started.elapsed())), None, "once");
            })
            .await;
            assert_eq!(exit.is_some(), after < 4000, "an exit after {after} ms");
            assert_eq!(signalled.get(), (after > 2000).then_some(Duration::from_secs(2)), "after {after} ms");
            assert_eq!(started.elapsed(), Duration::from_millis(after.min(4000)));
        }
        // With the last step, the shutdown takes at most five seconds.
        assert_eq!(2 * CLOSE_STEP + REAP, Duration::from_secs(5));
    }
}
