//! The operating-system code of the local host.

use std::io::{self, PipeReader};
use std::process::ExitStatus;

use cap_std::fs::{Metadata, OpenOptions};
use duologue_schema::TerminalExitStatus;
use tokio::io::AsyncRead;

/// Makes opening non-blocking, and prevents that a terminal becomes the controlling one.
#[cfg(unix)]
pub(super) fn at_once(options: &mut OpenOptions) -> &mut OpenOptions {
    use cap_std::fs::OpenOptionsExt;
    use rustix::fs::OFlags;

    options.custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed())
}

#[cfg(not(unix))]
pub(super) fn at_once(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Returns true if `new` can replace `old`: `old` has no other names, and both have the same owner.
#[cfg(unix)]
pub(super) fn replaceable(old: &Metadata, new: &Metadata) -> bool {
    use cap_std::fs::MetadataExt;

    old.nlink() == 1 && (old.uid(), old.gid()) == (new.uid(), new.gid())
}

#[cfg(not(unix))]
pub(super) fn replaceable(_: &Metadata, _: &Metadata) -> bool {
    true
}

/// Returns true for a file with the set-user-id or set-group-id bit.
#[cfg(unix)]
pub(super) fn has_special_bits(metadata: &Metadata) -> bool {
    use cap_std::fs::MetadataExt;

    metadata.mode() & 0o6000 != 0
}

#[cfg(not(unix))]
pub(super) fn has_special_bits(_: &Metadata) -> bool {
    false
}

/// Restricts a new file to its owner.
#[cfg(unix)]
pub(super) fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    use cap_std::fs::OpenOptionsExt;

    options.mode(0o600)
}

#[cfg(not(unix))]
pub(super) fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Makes the command start in a process group of its own.
#[cfg(unix)]
pub(super) fn own_group(command: &mut std::process::Command) -> &mut std::process::Command {
    use std::os::unix::process::CommandExt;

    command.process_group(0)
}

#[cfg(not(unix))]
pub(super) fn own_group(command: &mut std::process::Command) -> &mut std::process::Command {
    command
}

/// Kills the process group of a program that has not been reaped.
#[cfg(unix)]
pub(super) fn kill_group(leader: u32) {
    if let Some(group) = rustix::process::Pid::from_raw(leader.cast_signed()) {
        // An error means that all processes have exited.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

// On other systems only the program itself is killed.
#[cfg(not(unix))]
pub(super) fn kill_group(_: u32) {}

/// Waits for the exit of a child without reaping it.
#[cfg(unix)]
pub(super) fn wait_for_end(child: u32, _: impl Fn() -> io::Result<Option<ExitStatus>>) {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    let Some(child) = Pid::from_raw(child.cast_signed()) else { return };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(child), options) {}
}

#[cfg(not(unix))]
pub(super) fn wait_for_end(_: u32, try_wait: impl Fn() -> io::Result<Option<ExitStatus>>) {
    while let Ok(None) = try_wait() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Returns a command that runs a line in the shell.
pub(super) fn shell(line: &str) -> std::process::Command {
    let (shell, flag) = if cfg!(windows) { ("cmd", "/C") } else { ("/bin/sh", "-c") };
    let mut command = std::process::Command::new(shell);
    command.arg(flag).arg(line);
    command
}

/// Converts the reading end of a pipe to an async reader, without a thread of its own on Unix.
#[cfg(unix)]
pub(super) fn reader(pipe: PipeReader) -> io::Result<impl AsyncRead + Unpin + Send + 'static> {
    tokio::net::unix::pipe::Receiver::from_owned_fd(pipe.into())
}

#[cfg(windows)]
pub(super) fn reader(pipe: PipeReader) -> io::Result<impl AsyncRead + Unpin + Send + 'static> {
    Ok(tokio::fs::File::from_std(std::os::windows::io::OwnedHandle::from(pipe).into()))
}

/// Converts an exit status to the type of the protocol.
pub(super) fn exit_status(status: Option<ExitStatus>) -> TerminalExitStatus {
    let mut exit = TerminalExitStatus::new();
    if let Some(status) = status {
        exit.exit_code = status.code().map(i32::cast_unsigned);
        exit.signal = signal(status);
    }
    exit
}

#[cfg(unix)]
fn signal(status: ExitStatus) -> Option<String> {
    use std::os::unix::process::ExitStatusExt;

    use rustix::process::Signal;

    let number = status.signal()?;
    let named = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
        (Signal::SYS, "SIGSYS"),
    ];
    let name = named.iter().find(|(signal, _)| signal.as_raw() == number);
    Some(name.map_or_else(|| format!("signal {number}"), |(_, name)| (*name).to_owned()))
}

#[cfg(not(unix))]
fn signal(_: ExitStatus) -> Option<String> {
    None
}
