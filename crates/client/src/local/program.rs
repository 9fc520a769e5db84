//! A program of a terminal. A thread of its own starts it, waits for it and collects it.
//!
//! Starting may wait for a disk, which must not hold up the runtime. The thread lives as long as the program, because a
//! program may ask the system to end it together with the thread that started it.

use std::io::{self, PipeReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use duologue_rpc::Lock;
use duologue_schema::{CreateTerminalRequest, Error as WireError};
use tokio::io::AsyncRead;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::system;
use crate::host::HostResult;

/// Enough for starting a program and waiting for it.
const STACK_BYTES: usize = 256 * 1024;

/// A program that was started.
pub(super) struct Program {
    pub(super) process: ProcessGuard,
    /// Its exit status, once it has ended and its process group was killed.
    pub(super) exit: oneshot::Receiver<Option<ExitStatus>>,
    /// Its stdout and stderr, in the order they were written.
    pub(super) output: Box<dyn AsyncRead + Unpin + Send>,
}

/// Kills the process group of a program, at the latest when it is dropped.
pub(super) struct ProcessGuard(Arc<Process>);

struct Process {
    id: u32,
    state: Mutex<State>,
}

struct State {
    child: Child,
    /// Set when its number may belong to another process.
    is_collected: bool,
}

/// Starts a program in a process group of its own, without input and with both its outputs in one pipe. `room` is
/// returned when the program has ended, also if nobody waits for it any more.
pub(super) async fn start(
    request: CreateTerminalRequest,
    cwd: PathBuf,
    room: Arc<OwnedSemaphorePermit>,
) -> HostResult<(CreateTerminalRequest, Program)> {
    let (sender, started) = oneshot::channel();
    let program = request.command.clone();
    let thread = move || {
        let (child, output) = match spawn(&request, &cwd) {
            Ok(spawned) => spawned,
            Err(error) => {
                drop(room);
                return drop(sender.send(Err(error)));
            }
        };
        let process = Process { id: child.id(), state: Mutex::new(State { child, is_collected: false }) };
        let process = Arc::new(process);
        let (ended, exit) = oneshot::channel();
        // If the request is gone, the guard is dropped with it.
        drop(sender.send(Ok((request, ProcessGuard(process.clone()), exit, output))));
        let status = process.wait();
        // Before anybody can see the end, and start another program in its place.
        drop(room);
        let _ = ended.send(status);
    };
    let failed = |error: io::Error| WireError::internal(format!("cannot start {program}: {error}"));
    let thread = std::thread::Builder::new().name("terminal".into()).stack_size(STACK_BYTES).spawn(thread);
    // The thread is not joined: the program may outlive the interest in it.
    drop(thread.map_err(failed)?);
    let started = started.await.map_err(|_| WireError::internal("the host failed"))?;
    let (request, process, exit, output) = started?;
    let output = Box::new(system::reader(output).map_err(failed)?);
    Ok((request, Program { process, exit, output }))
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

    /// Waits for the end of the program, kills what is left of its group, as a closing terminal would, and collects it.
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
        return Err(WireError::invalid_params(format!("{:?} is no name for a variable", bad.name)));
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
        io::ErrorKind::InvalidInput => WireError::invalid_params("the command must not hold a NUL byte"),
        _ => WireError::internal(format!("cannot start {}: {error}", request.command)),
    };
    let (output, input) = io::pipe().map_err(failed)?;
    command.stdin(Stdio::null()).stdout(input.try_clone().map_err(failed)?).stderr(input);
    let child = system::own_group(&mut command).spawn().map_err(failed)?;
    Ok((child, output))
}

/// Returns true if `command` is a whole command line. The protocol has the arguments in `args`, but many agents
/// leave the splitting to a shell, as the first editors used one.
fn is_line(request: &CreateTerminalRequest, cwd: &Path) -> bool {
    let line = |character: char| character.is_whitespace() || "|&;<>()$`\"'*?~#=%!{}[]".contains(character);
    request.args.is_empty() && request.command.contains(line) && !cwd.join(&request.command).is_file()
}
