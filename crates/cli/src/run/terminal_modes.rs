//! The modes of the user's terminal: changed for this program, and restored at its end.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpgrp, getpid, kill_process};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr,
    tcgetpgrp, tcsetattr,
};

/// Makes the terminal send a pasted text between marks.
const PASTE_ON: &[u8] = b"\x1b[?2004h";
const PASTE_OFF: &[u8] = b"\x1b[?2004l";

/// Limit on the time in which the thread of the reader takes the finished lines.
const READING: Duration = Duration::from_millis(20);

/// Returns true if this program may read from its terminal and change it.
pub(super) fn is_foreground() -> bool {
    tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
}

/// Returns true if another program reads the terminal now.
pub(super) fn is_background() -> bool {
    tcgetpgrp(stdin()).is_ok_and(|group| group != getpgrp())
}

/// Waits until the terminal has input, which may be its end. Returns false after the timeout.
///
/// # Errors
///
/// The kernel cannot wait for this terminal.
pub(super) fn wait_for_input(timeout: Option<Duration>) -> io::Result<bool> {
    let stdin = stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    poll(&mut fds, timeout.as_ref())?;
    let [fd] = &fds;
    match fd.revents() {
        events if events.contains(PollFlags::NVAL) => Err(io::ErrorKind::Unsupported.into()),
        events => Ok(!events.is_empty()),
    }
}

/// Returns true if the input can be waited for.
pub(super) fn can_wait() -> bool {
    wait_for_input(Some(Duration::ZERO)).is_ok()
}

/// Reads keys that have arrived. Blocks without any.
pub(super) fn read(buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::read(stdin(), buffer)?)
}

/// Discards the unfinished line of a terminal that delivers lines. The finished ones are read first.
pub(super) fn discard_unfinished() {
    let deadline = Instant::now() + READING;
    while rustix::io::ioctl_fionread(stdin()).is_ok_and(|unread| unread > 0) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    discard_typed();
}

/// Discards what was typed and not read yet.
pub(super) fn discard_typed() {
    let _ = tcflush(stdin(), QueueSelector::IFlush);
}

/// The modes of the terminal at the start, which the drop restores.
pub(super) struct TerminalModes {
    found: Option<Termios>,
    /// True if keys are read one by one. Else the terminal delivers lines.
    keys: bool,
}

impl TerminalModes {
    /// Reads lines, without an echo.
    pub(super) fn lines() -> Self {
        let modes = TerminalModes { found: tcgetattr(stdin()).ok(), keys: false };
        modes.echo(false);
        modes
    }

    /// Reads keys, without an echo. Ctrl-C and Ctrl-Z stay signals.
    pub(super) fn keys() -> Self {
        let modes = TerminalModes { found: tcgetattr(stdin()).ok(), keys: true };
        modes.enter();
        modes
    }

    /// Sets the modes for keys, at the start and after a stop.
    pub(super) fn enter(&self) {
        let Some(found) = &self.found else { return };
        let mut modes = found.clone();
        modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN;
        modes.input_modes -=
            InputModes::ICRNL | InputModes::INLCR | InputModes::IGNCR | InputModes::IXON | InputModes::ISTRIP;
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        let _ = tcsetattr(stdin(), OptionalActions::Now, &modes);
        let _ = rustix::io::write(stdout(), PASTE_ON);
    }

    /// Turns the echo of lines on or off.
    pub(super) fn echo(&self, echo: bool) {
        if let Some(found) = self.found.as_ref().filter(|_| !self.keys) {
            let mut modes = found.clone();
            if !echo {
                modes.local_modes -= LocalModes::ECHO;
            }
            let _ = tcsetattr(stdin(), OptionalActions::Now, &modes);
        }
    }

    /// Restores the modes.
    pub(super) fn leave(&self) {
        if let Some(found) = &self.found {
            let _ = tcsetattr(stdin(), OptionalActions::Now, found);
            if self.keys {
                let _ = rustix::io::write(stdout(), PASTE_OFF);
            }
        }
    }

    /// Returns a closure that does the work of the drop. It does not wait for a terminal that takes no
    /// output.
    pub(super) fn restore(&self) -> impl FnOnce() + Send + use<> {
        let (found, keys) = (self.found.clone(), self.keys);
        move || {
            let modes = TerminalModes { found, keys };
            let (done, is_done) = std::sync::mpsc::channel::<()>();
            std::thread::spawn(move || {
                drop(modes);
                drop(done);
            });
            let _ = is_done.recv_timeout(std::time::Duration::from_millis(50));
        }
    }
}

impl Drop for TerminalModes {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A signal of job control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobSignal {
    /// Ctrl-Z.
    Stop,
    /// The program runs again.
    Continue,
}

/// Receives the signals of job control.
pub(super) struct JobSignals {
    stop: tokio::signal::unix::Signal,
    cont: tokio::signal::unix::Signal,
}

impl JobSignals {
    pub(super) fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let kind = |signal: Signal| SignalKind::from_raw(signal.as_raw());
        Ok(JobSignals { stop: signal(kind(Signal::TSTP))?, cont: signal(kind(Signal::CONT))? })
    }

    /// Waits for the next signal.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> JobSignal {
        tokio::select! {
            Some(()) = self.stop.recv() => JobSignal::Stop,
            Some(()) = self.cont.recv() => JobSignal::Continue,
            else => std::future::pending().await,
        }
    }

    /// Stops this process, until another one continues it.
    pub(super) fn stop() {
        send(Signal::STOP);
    }

    /// Stops this process as one that reads its terminal in the background.
    pub(super) fn stop_in_background() {
        send(Signal::TTIN);
    }
}

fn send(signal: Signal) {
    let _ = kill_process(getpid(), signal);
}
