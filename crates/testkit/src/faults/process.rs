//! Faults of the process: it dies, hangs, floods stderr or leaves children behind. All system calls are here.

use std::io::{self, Write as _};
use std::process::Command;
use std::time::Duration;

use super::list::{Faults, WrapperMode};

/// The life of a process after its stdin ended if a fault keeps it running, so that no test leaves one for ever.
const MAX_LIFE: Duration = Duration::from_secs(600);
/// The time that any other process may take to end after its stdin.
const GRACE: Duration = Duration::from_millis(1_600);

/// The signal that kills the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CrashSignal {
    Kill,
    Segv,
    Abrt,
    Term,
}

impl CrashSignal {
    pub(super) const ALL: [CrashSignal; 4] =
        [CrashSignal::Kill, CrashSignal::Segv, CrashSignal::Abrt, CrashSignal::Term];

    pub(super) fn name(self) -> &'static str {
        match self {
            CrashSignal::Kill => "KILL",
            CrashSignal::Segv => "SEGV",
            CrashSignal::Abrt => "ABRT",
            CrashSignal::Term => "TERM",
        }
    }
}

/// The continuation after a frame.
pub(super) enum AfterFrame {
    /// The conversation goes on.
    Live,
    /// Nothing more is written.
    Hang,
    /// Nothing more is read.
    Deaf,
    /// The output is closed.
    CloseStdout,
}

/// Applies the faults that act before stdin and stdout are taken.
pub(super) fn prepare(faults: &Faults) -> io::Result<()> {
    if faults.wrapper == Some(WrapperMode::Session) {
        system::leave_group()?;
    }
    if faults.ignore_term {
        system::ignore_term()?;
    }
    if faults.straggler {
        Command::new("sleep")
            .arg(MAX_LIFE.as_secs().to_string())
            .stdin(std::process::Stdio::null())
            .spawn()?;
    }
    Ok(())
}

/// Ends the process some time after its stdin ended, even if the runtime hangs.
pub(super) fn exit_after(faults: &Faults, end: duologue_agent::rpc::InputWatch) -> io::Result<()> {
    let stays = faults.ignore_eof || faults.hang.or(faults.deaf).or(faults.endless).is_some();
    let time = if stays { MAX_LIFE } else { GRACE };
    std::thread::Builder::new().name("mock-stdin-end".into()).spawn(move || {
        end.wait();
        std::thread::sleep(time);
        std::process::exit(0);
    })?;
    Ok(())
}

/// Applies the faults that act after a frame.
pub(super) fn after(frame: usize, faults: &Faults) -> AfterFrame {
    if let Some((bytes, _)) = faults.stderr.filter(|(_, at)| *at == frame) {
        flood_stderr(bytes);
    }
    if let Some((code, _)) = faults.exit.filter(|(_, at)| *at == frame) {
        log(&format!("ending with code {code} after frame {frame}, as asked"));
        std::process::exit(code.into());
    }
    if let Some((signal, _)) = faults.crash.filter(|(_, at)| *at == frame) {
        log(&format!("dying by {} after frame {frame}, as asked", signal.name()));
        system::die(signal);
    }
    if faults.hang == Some(frame) {
        log(&format!("hanging after frame {frame}, as asked"));
        return AfterFrame::Hang;
    }
    if faults.close_stdout == Some(frame) {
        return AfterFrame::CloseStdout;
    }
    if faults.deaf == Some(frame) { AfterFrame::Deaf } else { AfterFrame::Live }
}

/// Ends the process after half of a frame.
pub(super) fn torn(frame: usize) -> ! {
    log(&format!("ending in the middle of frame {frame}, as asked"));
    std::process::exit(1)
}

/// Writes a line to stderr.
pub(super) fn log(message: &str) {
    let _ = writeln!(io::stderr(), "mock: {message}");
}

/// Writes to stderr and blocks until everything is read.
fn flood_stderr(mut bytes: usize) {
    let line = format!("mock: {}\n", "nothing to say, at length ".repeat(39));
    let lines = line.repeat(64);
    let mut stderr = io::stderr().lock();
    while bytes > 0 {
        let chunk = &lines.as_bytes()[..bytes.min(lines.len())];
        if stderr.write_all(chunk).is_err() {
            return;
        }
        bytes -= chunk.len();
    }
}

#[cfg(unix)]
mod system {
    use std::io;
    use std::time::Duration;

    use rustix::process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit, setsid};

    use super::CrashSignal;

    pub(super) fn leave_group() -> io::Result<()> {
        Ok(setsid().map(drop)?)
    }

    pub(super) fn ignore_term() -> io::Result<()> {
        // A process that handles the signal does not die of it.
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).map(drop)
    }

    pub(super) fn die(signal: CrashSignal) -> ! {
        // The death is intended, so no core dump is needed.
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        let signal = match signal {
            CrashSignal::Kill => Signal::KILL,
            CrashSignal::Segv => Signal::SEGV,
            CrashSignal::Abrt => Signal::ABORT,
            CrashSignal::Term => Signal::TERM,
        };
        loop {
            // Repeated, since the standard library takes the first SEGV for a stack overflow and returns from it.
            let _ = kill_process(getpid(), signal);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// [`list`](super::list) rejects these faults on this system.
#[cfg(not(unix))]
mod system {
    use std::io;

    pub(super) fn leave_group() -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn ignore_term() -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn die(_: super::CrashSignal) -> ! {
        std::process::abort()
    }
}
