//! What becomes of the process: it dies, hangs, shouts, leaves others behind. Operating-system code lives here.

use std::io::{self, Write as _};
use std::process::Command;
use std::time::Duration;

use super::list::{Faults, Wrapper};

/// Nothing that ignores its end lives longer than this after it: a test leaves no process for ever.
const AT_LAST: Duration = Duration::from_secs(600);
/// How long any other may take for it, as an agent does.
const AT_ONCE: Duration = Duration::from_millis(1_600);

/// How to die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Kill,
    Segv,
    Abrt,
    Term,
}

impl Signal {
    pub(super) const ALL: [Signal; 4] = [Signal::Kill, Signal::Segv, Signal::Abrt, Signal::Term];

    pub(super) fn name(self) -> &'static str {
        match self {
            Signal::Kill => "KILL",
            Signal::Segv => "SEGV",
            Signal::Abrt => "ABRT",
            Signal::Term => "TERM",
        }
    }
}

/// What comes after so many frames.
pub(super) enum Fate {
    /// The conversation goes on.
    Live,
    /// Nothing more is said.
    Hang,
    /// Nothing more is read.
    Deaf,
    /// Nothing more can be said.
    CloseStdout,
}

/// What has to be done before stdin and stdout are taken.
pub(super) fn prepare(faults: &Faults) -> io::Result<()> {
    if faults.wrapper == Some(Wrapper::Session) {
        system::leave_group()?;
    }
    if faults.ignore_term {
        system::ignore_term()?;
    }
    if faults.straggler {
        Command::new("sleep")
            .arg(AT_LAST.as_secs().to_string())
            .stdin(std::process::Stdio::null())
            .spawn()?;
    }
    Ok(())
}

/// Ends the process some time after its stdin did, whatever it hangs in.
pub(super) fn end_with(faults: &Faults, end: duologue_agent::rpc::InputEnd) -> io::Result<()> {
    let stays = faults.ignore_eof || faults.hang.or(faults.deaf).or(faults.endless).is_some();
    let time = if stays { AT_LAST } else { AT_ONCE };
    std::thread::Builder::new().name("mock-stdin-end".into()).spawn(move || {
        end.wait();
        std::thread::sleep(time);
        std::process::exit(0);
    })?;
    Ok(())
}

/// What happens after `frame`.
pub(super) fn after(frame: usize, faults: &Faults) -> Fate {
    if let Some((bytes, _)) = faults.stderr.filter(|(_, at)| *at == frame) {
        shout(bytes);
    }
    if let Some((code, _)) = faults.exit.filter(|(_, at)| *at == frame) {
        say(&format!("ending with code {code} after frame {frame}, as asked"));
        std::process::exit(code.into());
    }
    if let Some((signal, _)) = faults.crash.filter(|(_, at)| *at == frame) {
        say(&format!("dying by {} after frame {frame}, as asked", signal.name()));
        system::die(signal);
    }
    if faults.hang == Some(frame) {
        say(&format!("hanging after frame {frame}, as asked"));
        return Fate::Hang;
    }
    if faults.close_stdout == Some(frame) {
        return Fate::CloseStdout;
    }
    if faults.deaf == Some(frame) { Fate::Deaf } else { Fate::Live }
}

/// Half of a frame is out.
pub(super) fn torn(frame: usize) -> ! {
    say(&format!("ending in the middle of frame {frame}, as asked"));
    std::process::exit(1)
}

/// A line on stderr.
pub(super) fn say(what: &str) {
    let _ = writeln!(io::stderr(), "mock: {what}");
}

/// Writes to stderr and waits until it is taken, as programs do.
fn shout(mut bytes: usize) {
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

/// Runs this program again, as a child with our stdin and stdout, if that is one of the faults. The
/// code to end with.
pub(crate) fn wrap(faults: &Faults) -> io::Result<Option<u8>> {
    if faults.wrapper.is_none() {
        return Ok(None);
    }
    let program = std::env::current_exe()?;
    let status = Command::new(program).args(std::env::args_os().skip(1)).arg("--wrapped").status()?;
    let exit = duologue_transcript::ProcessExit::from(status);
    Ok(Some(crate::exit::agent_code(&exit).unwrap_or(1)))
}

#[cfg(unix)]
mod system {
    use std::io;
    use std::time::Duration;

    use rustix::process::{Resource, Rlimit, getpid, kill_process, setrlimit, setsid};

    use super::Signal;

    pub(super) fn leave_group() -> io::Result<()> {
        Ok(setsid().map(drop)?)
    }

    pub(super) fn ignore_term() -> io::Result<()> {
        // Whoever has asked for a signal no longer dies of it.
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).map(drop)
    }

    pub(super) fn die(signal: Signal) -> ! {
        // On purpose: nobody wants to look into it.
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        let signal = match signal {
            Signal::Kill => rustix::process::Signal::KILL,
            Signal::Segv => rustix::process::Signal::SEGV,
            Signal::Abrt => rustix::process::Signal::ABORT,
            Signal::Term => rustix::process::Signal::TERM,
        };
        loop {
            // Not once: the standard library takes the first SEGV for a stack overflow, and lets it pass.
            let _ = kill_process(getpid(), signal);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The list refuses these faults here.
#[cfg(not(unix))]
mod system {
    use std::io;

    pub(super) fn leave_group() -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn ignore_term() -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn die(_: super::Signal) -> ! {
        std::process::abort()
    }
}
