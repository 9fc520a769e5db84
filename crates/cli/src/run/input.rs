//! The lines that the user types.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _};
use std::time::Duration;

use tokio::sync::mpsc;

/// The longest pause between lines that were pasted together.
const PASTE: Duration = Duration::from_millis(30);
/// Limit on the bytes of a line.
const LONGEST_LINE: u64 = 16 * 1024 * 1024;

/// A line, and true if the terminal showed it while it was typed.
pub(super) struct InputLine {
    pub(super) text: String,
    pub(super) shown: bool,
}

/// The lines of stdin.
pub(super) struct UserInput {
    lines: mpsc::Receiver<io::Result<String>>,
    /// The lines that were typed before a prompt was shown.
    ahead: VecDeque<io::Result<String>>,
    terminal: Option<system::RawTerminal>,
    listening: bool,
}

/// Reads all of stdin.
pub(super) fn all() -> io::Result<String> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| not_text())
}

fn text(line: Vec<u8>) -> io::Result<String> {
    let text = String::from_utf8(line).map_err(|_| not_text())?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn not_text() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "standard input: not UTF-8, so no prompt")
}

/// Returns true if stdin is a terminal in whose foreground this program runs.
pub(super) fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && system::is_foreground()
}

impl UserInput {
    /// Starts a thread that reads stdin until the process ends: a blocking read cannot be cancelled.
    pub(super) fn start() -> Self {
        let (sender, lines) = mpsc::channel(16);
        std::thread::spawn(move || {
            let mut stdin = std::io::stdin().lock();
            loop {
                let mut line = Vec::new();
                match stdin.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => return,
                }
                if sender.blocking_send(text(line)).is_err() {
                    return;
                }
            }
        });
        let terminal = is_interactive().then(system::RawTerminal::new);
        UserInput { lines, ahead: VecDeque::new(), terminal, listening: false }
    }

    /// Returns a closure that restores the terminal, for an exit that drops nothing.
    pub(super) fn restore(&self) -> impl FnOnce() + Send + use<> {
        let restore = self.terminal.as_ref().map(system::RawTerminal::restore);
        move || restore.into_iter().for_each(|restore| restore())
    }

    /// Turns the echo on or off. It is off while the agent writes, or typed text would end up in the
    /// output.
    pub(super) fn listen(&mut self, listen: bool) {
        if let Some(terminal) = self.terminal.as_ref().filter(|_| listen != self.listening) {
            terminal.echo(listen);
        }
        self.listening = listen;
    }

    /// Begins the input of a prompt. Call it before the prompt is shown.
    pub(super) fn begin_prompt(&mut self) {
        self.listen(true);
        self.set_aside();
    }

    /// Begins the input of an answer. Earlier input is discarded, since it was typed before the
    /// question was shown.
    pub(super) fn begin_answer(&mut self) {
        self.listen(true);
        if let Some(terminal) = &self.terminal {
            terminal.discard();
        }
        self.set_aside();
    }

    fn set_aside(&mut self) {
        while let Ok(line) = self.lines.try_recv() {
            self.ahead.push_back(line);
        }
    }

    /// Returns the next line, or `None` at the end. An answer is never a line that was typed earlier.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn line(&mut self, is_answer: bool) -> io::Result<Option<InputLine>> {
        if !is_answer && let Some(text) = self.ahead.pop_front() {
            return Ok(Some(InputLine { text: text?, shown: false }));
        }
        let Some(text) = self.lines.recv().await else { return Ok(None) };
        Ok(Some(InputLine { text: text?, shown: self.terminal.is_some() }))
    }

    /// Returns the lines that were pasted together with the last one.
    pub(super) async fn pasted(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while self.terminal.is_some()
            && let Ok(Some(Ok(line))) = tokio::time::timeout(PASTE, self.lines.recv()).await
        {
            lines.push(line);
        }
        lines
    }
}

#[cfg(unix)]
mod system {
    use rustix::process::getpgrp;
    use rustix::stdio::stdin;
    use rustix::termios::{
        LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcgetpgrp, tcsetattr,
    };

    /// Returns true if this program may read from its terminal and change it.
    pub(super) fn is_foreground() -> bool {
        tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
    }

    /// The modes of the terminal at the start, which the drop restores.
    pub(super) struct RawTerminal(Option<Termios>);

    impl RawTerminal {
        pub(super) fn new() -> Self {
            let terminal = RawTerminal(tcgetattr(stdin()).ok());
            terminal.echo(false);
            terminal
        }

        pub(super) fn echo(&self, echo: bool) {
            if let Some(found) = &self.0 {
                let mut modes = found.clone();
                if !echo {
                    modes.local_modes -= LocalModes::ECHO;
                }
                let _ = tcsetattr(stdin(), OptionalActions::Now, &modes);
            }
        }

        /// Returns a closure that does the work of the drop.
        pub(super) fn restore(&self) -> impl FnOnce() + Send + use<> {
            let found = self.0.clone();
            move || drop(RawTerminal(found))
        }

        pub(super) fn discard(&self) {
            let _ = tcflush(stdin(), QueueSelector::IFlush);
        }
    }

    impl Drop for RawTerminal {
        fn drop(&mut self) {
            self.echo(true);
        }
    }
}

/// On other systems the echo stays on.
#[cfg(not(unix))]
mod system {
    pub(super) fn is_foreground() -> bool {
        true
    }

    pub(super) struct RawTerminal;

    impl RawTerminal {
        pub(super) fn new() -> Self {
            RawTerminal
        }
        pub(super) fn echo(&self, _: bool) {}
        pub(super) fn restore(&self) -> impl FnOnce() + Send + use<> {
            || {}
        }
        pub(super) fn discard(&self) {}
    }
}
