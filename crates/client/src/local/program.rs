//! The program of a terminal. A thread of its own starts it, waits for it and reaps it.
//!
//! Starting can block on a disk, which must not block the runtime. The thread lives as long as the program, because a
//! program can request a signal for the exit of the thread that started it.

use std::io::{self, PipeReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use duologue_rpc::Lock;
use duologue_schema::{CreateTerminalRequest, Error as WireError};
use tokio::io::AsyncRead;
use tokio::sync::oneshot;

use super::system;
use crate::host::HostResult;

/// The stack of a thread that starts a program and waits for it.
const STACK_BYTES: usize = 256 * 1024;

/// A running program.
pub(super) struct Program {
    pub(super) process: ProcessGuard,
    /// Receives the exit status after the exit, when the process group was killed.
    pub(super) exit: oneshot::Receiver<Option<ExitStatus>>,
    /// The stdout and stderr in their order.
    pub(super) output: Box<dyn AsyncRead + Unpin + Send>,
}

/// Kills the process group of a program on request and when it is dropped.
pub(super) struct ProcessGuard(Arc<Process>);

struct Process {
    id: u32,
    state: Mutex<State>,
}

struct State {
    child: Child,
    /// True if the id may belong to another process.
    is_collected: bool,
}

/// Starts a program in a process group of its own, without input and with both outputs in one pipe. Drops `room` when the
/// program has exited, even if nothing waits for it.
pub(super) async fn start(
    request: CreateTerminalRequest,
    cwd: PathBuf,
    room: impl Send + 'static,
) -> HostResult<Program> {
    let (sender, started) = oneshot::channel();
    let program = request.command.clone();
    let thread = move || {
        let spawned = spawn(&request, &cwd);
        // It can be long, and the thread lives as long as the program.
        drop(request);
        let (child, output) = match spawned {
            Ok(spawned) => spawned,
            Err(error) => {
                drop(room);
                return drop(sender.send(Err(error)));
            }
        };
        let process = Process { id: child.id(), state: Mutex::new(State { child, is_collected: false }) };
        let process = Arc::new(process);
        let (ended, exit) = oneshot::channel();
        // If the request was dropped, the guard is dropped here and kills the program.
        drop(sender.send(Ok((ProcessGuard(process.clone()), exit, output))));
        let status = process.wait();
        // Dropped before the exit is visible, so that another program can start at once.
        drop(room);
        let _ = ended.send(status);
    };
    let failed = |error: io::Error| WireError::internal(format!("cannot start {program}: {error}"));
    let thread = std::thread::Builder::new().name("terminal".into()).stack_size(STACK_BYTES).spawn(thread);
    // The thread is not joined, because the program may outlive the request.
    drop(thread.map_err(failed)?);
    let started =
        started.await.map_err(|_| WireError::internal("the client failed to handle this request"))?;
    let (process, exit, output) = started?;
    let output = Box::new(system::reader(output).map_err(failed)?);
    Ok(Program { process, exit, output })
}

impl ProcessGuard {
    /// Kills the program and its process group.
    pub(super) fn kill(&self) {
        self.0.kill();
    }
}

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Process {
    fn kill(&self) {
        let mut state = self.state.lock_unpoisoned();
        if !state.is_collected {
            system::kill_group(self.id);
            let _ = state.child.kill();
        }
    }

    /// Waits for the exit of the program, kills the rest of its group like a closing terminal, and reaps the program.
    fn wait(&self) -> Option<ExitStatus> {
        let try_wait = || {
            let mut state = self.state.lock_unpoisoned();
            state.child.try_wait()
        };
        system::wait_for_end(self.id, try_wait);
        let mut state = self.state.lock_unpoisoned();
        system::kill_group(self.id);
        state.is_collected = true;
        state.child.wait().ok()
    }
}

fn spawn(request: &CreateTerminalRequest, cwd: &Path) -> HostResult<(Child, PipeReader)> {
    if let Some(bad) = request.env.iter().find(|set| set.name.is_empty() || set.name.contains('=')) {
        return Err(WireError::invalid_params(format!("{:?} is not a valid name of a variable", bad.name)));
    }
    let mut command = match is_line(request, cwd) {
        true => system::shell(&request.command),
        false => Command::new(&request.command),
    };
    command.args(&request.args).envs(request.env.iter().map(|set| (&set.name, &set.value))).current_dir(cwd);
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            WireError::resource_not_found(format!("there is no program {}", request.command))
        }
        io::ErrorKind::InvalidInput => WireError::invalid_params("the command must not contain a NUL byte"),
        _ => WireError::internal(format!("cannot start {}: {error}", request.command)),
    };
    let (output, input) = io::pipe().map_err(failed)?;
    command.stdin(Stdio::null()).stdout(input.try_clone().map_err(failed)?).stderr(input);
    let child = system::own_group(&mut command).spawn().map_err(failed)?;
    Ok((child, output))
}

/// Returns true if `command` is a command line. The protocol passes arguments in `args`, but many agents rely on a shell,
/// because the first editors used one.
fn is_line(request: &CreateTerminalRequest, cwd: &Path) -> bool {
    let line = |character: char| character.is_whitespace() || "|&;<>()$`\"'*?~#=%!{}[]".contains(character);
    request.args.is_empty() && request.command.contains(line) && !cwd.join(&request.command).is_file()
}

#[cfg(all(test, unix))]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use tokio::sync::Semaphore;

    use super::*;

    /// Returns true if a process has this text in its command line.
    #[cfg(target_os = "linux")]
    fn is_running(text: &str) -> bool {
        let processes = std::fs::read_dir("/proc").expect("processes").flatten();
        processes
            .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
            .any(|line| line.windows(text.len()).any(|part| part == text.as_bytes()))
    }

    /// The request is dropped while its program starts, so no terminal owns the program.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_program_whose_request_is_dropped_is_killed_with_its_group() {
        let mut dropped = 0;
        for round in 0..20 {
            let room = Arc::new(Semaphore::new(1));
            let permit = Arc::new(room.clone().try_acquire_owned().expect("room"));
            let marker = format!("1000.{}{round}", std::process::id());
            let line = format!("sleep {marker} & sleep {marker}");
            let mut starting = Box::pin(start(CreateTerminalRequest::new("s", line), "/".into(), permit));
            // On a busy machine the program may have started already. Then the guard is dropped with it.
            dropped += u32::from((&mut starting).now_or_never().is_none());
            drop(starting);
            // The permit returns when the program was reaped.
            let permit = tokio::time::timeout(Duration::from_secs(20), room.acquire()).await;
            drop(permit.expect("the program still runs").expect("room"));
            let killed = async {
                while is_running(&marker) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            let killed = tokio::time::timeout(Duration::from_secs(20), killed).await;
            killed.expect("a process of its group still runs");
        }
        assert!(dropped > 0, "no request was dropped while its program started");
    }
}
