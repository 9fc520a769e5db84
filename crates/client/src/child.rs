//! A program with its three pipes, in a process group of its own. Operating-system code lives here.

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

use crate::command::Command;
use crate::error::{Error, Result};
use crate::limits::{CLOSE_STEP, REAP};

/// A running agent to whom nobody speaks the protocol: three pipes and an end. For what stands
/// beside a conversation, such as a proxy or a test bench; editors use
/// [`Client::spawn`](crate::Client::spawn).
///
/// It is the leader of a process group of its own. Dropping it kills the group.
///
/// ```
/// use duologue_client::{AgentProcess, Command};
/// use tokio::io::AsyncReadExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (process, mut pipes) = AgentProcess::start(Command::new("echo").arg("no agent"))?;
/// let mut said = String::new();
/// pipes.stdout.read_to_string(&mut said).await?;
/// assert_eq!(said, "no agent\n");
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
    /// What it reads. Dropping it is the polite way to end an agent.
    pub stdin: ChildStdin,
    /// What it says.
    pub stdout: ChildStdout,
    /// What it says beside the conversation. Somebody has to read it, or it may wait for ever.
    pub stderr: ChildStderr,
}

impl AgentProcess {
    /// Starts the program.
    ///
    /// # Errors
    ///
    /// [`Error::Spawn`] when it cannot be started.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with I/O enabled.
    pub fn start(command: impl Into<Command>) -> Result<(Self, Pipes)> {
        let command = command.into();
        let program = command.program();
        let mut command = tokio::process::Command::from(command.into_std());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        #[cfg(unix)]
        command.process_group(0);
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

    /// The number of the process, while it runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for the program to end by itself. What it started may live on.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn wait(&mut self) -> Option<ExitStatus> {
        self.child.wait().await.ok()
    }

    /// Asks the program and all it started to terminate (`SIGTERM`; nothing on systems without it).
    pub fn terminate(&self) {
        self.group.terminate();
    }

    /// Kills the program and all it started, at once.
    pub fn kill(&self) {
        self.group.kill();
    }

    /// Ends the program, whose stdin should have been dropped: waits two seconds, asks it to
    /// terminate, waits two more, kills it. Whatever it started goes with it. `None` when even that
    /// could not be seen.
    pub async fn end(mut self) -> Option<ExitStatus> {
        let status = graceful_shutdown(&mut self.child, &self.group).await;
        self.group.kill();
        self.group.forget();
        status
    }
}

/// The rest of the ladder, after the end of input: wait, TERM, wait, KILL.
pub(crate) async fn graceful_shutdown(child: &mut Child, group: &ProcessGroup) -> Option<ExitStatus> {
    if let Some(status) = asked_to_leave(child.wait(), || group.terminate()).await {
        return status.ok();
    }
    group.kill();
    reap(child).await
}

/// All of the ladder but its last step; `None` when that is due.
async fn asked_to_leave<T>(left: impl Future<Output = T>, terminate: impl FnOnce()) -> Option<T> {
    let mut left = std::pin::pin!(left);
    if let Ok(left) = tokio::time::timeout(CLOSE_STEP, &mut left).await {
        return Some(left);
    }
    terminate();
    tokio::time::timeout(CLOSE_STEP, left).await.ok()
}

pub(crate) async fn reap(child: &mut Child) -> Option<ExitStatus> {
    let _ = child.start_kill();
    tokio::time::timeout(REAP, child.wait()).await.ok().and_then(std::result::Result::ok)
}

/// The process group of an agent. Dropping it kills what is left, also when the runtime that ran
/// the supervisor goes away.
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
            // Gone already is what we want.
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

    /// The group is gone, and its number may soon be somebody else's.
    #[cfg(unix)]
    pub(crate) fn forget(&mut self) {
        self.id = None;
    }

    // Elsewhere only the process itself is ended, by `reap`.
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
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
        // The runtime that would have collected the leader may be gone.
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

    /// On a clock of the test's own: who leaves in time is never signalled, who does not is, once
    /// and at the time that was given.
    #[tokio::test(start_paused = true)]
    async fn the_ladder_takes_its_time_and_no_more() {
        for after in [0, 1, 1999, 2001, 2500, 3999, 4001, 3_600_000] {
            let (begun, signalled) = (Instant::now(), Cell::new(None));
            let left = asked_to_leave(sleep(Duration::from_millis(after)), || {
                assert_eq!(signalled.replace(Some(begun.elapsed())), None, "once");
            })
            .await;
            assert_eq!(left.is_some(), after < 4000, "who leaves after {after} ms");
            assert_eq!(signalled.get(), (after > 2000).then_some(Duration::from_secs(2)), "after {after} ms");
            assert_eq!(begun.elapsed(), Duration::from_millis(after.min(4000)));
        }
        // With the last step, five seconds for the worst of them.
        assert_eq!(2 * CLOSE_STEP + REAP, Duration::from_secs(5));
    }
}
