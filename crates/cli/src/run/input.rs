//! The input of the user: keys of a terminal that is drawn on, or lines of anything else.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _};
use std::time::Duration;

use tokio::sync::mpsc;

#[cfg(unix)]
use super::key_input::KeyInput;
#[cfg(unix)]
use super::terminal_modes::{self, TerminalModes};

/// The longest pause between lines that were pasted together.
const PASTE: Duration = Duration::from_millis(30);
/// Limit on the bytes of a line.
const LONGEST_LINE: u64 = 16 * 1024 * 1024;

/// A line, and true if the terminal showed it while it was typed.
#[derive(Debug)]
pub(super) struct InputLine {
    pub(super) text: String,
    pub(super) shown: bool,
}

/// The text that the user may type now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Typing {
    /// Nothing. Keys are kept for the next prompt.
    Nothing,
    Prompt,
    /// The answer to a question. It is never a line that was typed earlier.
    Answer,
}

/// An event of the input.
#[derive(Debug)]
pub(super) enum InputEvent {
    /// A line that was entered.
    Line(InputLine),
    /// The end of the input.
    End,
    /// The edited line looks different.
    Changed,
    /// A text that is longer than a line may be.
    TooLong,
    /// Another program has used the terminal.
    Redraw,
    /// Esc, except in a prompt.
    Escape,
}

/// The line that the user edits, as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TypedText {
    pub(super) text: String,
    /// The place of the cursor in the text, in bytes.
    pub(super) cursor: usize,
    /// The words below the line, to choose from.
    pub(super) offered: Vec<String>,
}

/// The input of the user.
pub(super) enum UserInput {
    Lines(LineInput),
    #[cfg(unix)]
    Keys(Box<KeyInput>),
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
    #[cfg(unix)]
    let is_ours = terminal_modes::is_foreground();
    #[cfg(not(unix))]
    let is_ours = true;
    std::io::stdin().is_terminal() && is_ours
}

impl UserInput {
    /// Starts to read. Keys are read only if the edited line can be drawn.
    pub(super) fn start(draws: bool) -> io::Result<Self> {
        #[cfg(unix)]
        if draws && is_interactive() {
            return Ok(UserInput::Keys(Box::new(KeyInput::start()?)));
        }
        let _ = draws;
        Ok(UserInput::Lines(LineInput::start()))
    }

    /// Returns a closure that restores the terminal, for an exit that drops nothing.
    pub(super) fn restore(&self) -> Box<dyn FnOnce() + Send> {
        match self {
            #[cfg(unix)]
            UserInput::Lines(lines) => {
                let restore = lines.modes.as_ref().map(TerminalModes::restore);
                Box::new(|| restore.into_iter().for_each(|restore| restore()))
            }
            #[cfg(unix)]
            UserInput::Keys(keys) => Box::new(keys.restore()),
            #[cfg(not(unix))]
            UserInput::Lines(_) => Box::new(|| {}),
        }
    }

    /// Begins the input of a prompt. Call it before the prompt is shown.
    pub(super) fn begin_prompt(&mut self) {
        if let UserInput::Lines(lines) = self {
            lines.listen(true);
            lines.set_aside();
        }
    }

    /// Begins the input of an answer. Earlier input is no answer, since it was typed before the
    /// question was shown.
    pub(super) fn begin_answer(&mut self) {
        match self {
            UserInput::Lines(lines) => {
                lines.listen(true);
                #[cfg(unix)]
                if lines.modes.is_some() {
                    terminal_modes::discard();
                }
                lines.set_aside();
            }
            #[cfg(unix)]
            UserInput::Keys(keys) => keys.begin_answer(),
        }
    }

    /// Sets the words that Tab completes in a prompt.
    pub(super) fn complete(&mut self, words: Vec<String>) {
        match self {
            UserInput::Lines(_) => drop(words),
            #[cfg(unix)]
            UserInput::Keys(keys) => keys.complete(words),
        }
    }

    /// Returns the line that is edited, if this program shows it.
    pub(super) fn typed(&self, typing: Typing) -> Option<TypedText> {
        match self {
            UserInput::Lines(_) => None,
            #[cfg(unix)]
            UserInput::Keys(_) if typing == Typing::Nothing => None,
            #[cfg(unix)]
            UserInput::Keys(keys) => {
                let line = keys.line(typing);
                let (text, offered) = (line.text().to_owned(), line.offered().to_vec());
                Some(TypedText { text, cursor: line.cursor(), offered })
            }
        }
    }

    /// Removes the text of the edited line. Returns false if there was none.
    pub(super) fn clear(&mut self, typing: Typing) -> bool {
        match self {
            UserInput::Lines(_) => false,
            #[cfg(unix)]
            UserInput::Keys(keys) => keys.clear(typing),
        }
    }

    /// Waits for the next event.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn next(&mut self, typing: Typing) -> io::Result<InputEvent> {
        match self {
            UserInput::Lines(lines) => lines.next(typing).await,
            #[cfg(unix)]
            UserInput::Keys(keys) => Ok(keys.next(typing).await),
        }
    }

    /// Returns the lines that were pasted together with the last one.
    pub(super) async fn pasted(&mut self) -> Vec<String> {
        match self {
            UserInput::Lines(lines) => lines.pasted().await,
            #[cfg(unix)]
            UserInput::Keys(_) => Vec::new(),
        }
    }
}

/// The lines of stdin.
pub(super) struct LineInput {
    lines: mpsc::Receiver<io::Result<String>>,
    /// The lines that were typed before a prompt was shown.
    ahead: VecDeque<io::Result<String>>,
    is_terminal: bool,
    #[cfg(unix)]
    modes: Option<TerminalModes>,
    listening: bool,
}

impl LineInput {
    /// Starts a thread that reads stdin until the process ends: a blocking read cannot be cancelled.
    fn start() -> Self {
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
        let is_terminal = is_interactive();
        LineInput {
            lines,
            ahead: VecDeque::new(),
            is_terminal,
            #[cfg(unix)]
            modes: is_terminal.then(TerminalModes::lines),
            listening: false,
        }
    }

    /// Turns the echo on or off. It is off while the agent writes, or typed text would end up in the
    /// output.
    fn listen(&mut self, listen: bool) {
        #[cfg(unix)]
        if let Some(modes) = self.modes.as_ref().filter(|_| listen != self.listening) {
            modes.echo(listen);
        }
        self.listening = listen;
    }

    fn set_aside(&mut self) {
        while let Ok(line) = self.lines.try_recv() {
            self.ahead.push_back(line);
        }
    }

    async fn next(&mut self, typing: Typing) -> io::Result<InputEvent> {
        self.listen(typing != Typing::Nothing);
        let ahead = if typing == Typing::Prompt { self.ahead.pop_front() } else { None };
        let (line, shown) = match (ahead, typing) {
            (Some(line), _) => (Some(line), false),
            (None, Typing::Nothing) => std::future::pending().await,
            (None, _) => (self.lines.recv().await, self.is_terminal),
        };
        Ok(line.transpose()?.map_or(InputEvent::End, |text| InputEvent::Line(InputLine { text, shown })))
    }

    async fn pasted(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while self.is_terminal
            && let Ok(Some(Ok(line))) = tokio::time::timeout(PASTE, self.lines.recv()).await
        {
            lines.push(line);
        }
        lines
    }
}
