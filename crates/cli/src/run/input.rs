//! The input of the user: keys of a terminal that is drawn on, or lines of anything else.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

#[cfg(unix)]
use super::key_input::KeyInput;
#[cfg(unix)]
use super::terminal_modes::{self, TerminalModes};

/// The longest pause in a text that is pasted without marks.
pub(super) const BURST: Duration = Duration::from_millis(30);
/// Limit on the bytes of a line, of lines that were pasted together, and of all lines that nothing took.
const LONGEST_LINE: u32 = 16 * 1024 * 1024;
/// The bytes that a short line counts for.
const SHORT_LINE: u32 = 128;

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
    /// A text that found no room, so that its line is incomplete.
    TooLong,
    /// Enter in an incomplete line, which was given up.
    Refused,
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

fn too_long() -> io::Error {
    let text = format!("standard input: a line is longer than {} MiB", LONGEST_LINE >> 20);
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Returns true if stdin is a terminal in whose foreground this program runs.
pub(super) fn is_interactive() -> bool {
    #[cfg(unix)]
    let is_ours = terminal_modes::is_foreground();
    #[cfg(not(unix))]
    let is_ours = true;
    std::io::stdin().is_terminal() && is_ours
}

/// Discards what was typed on the terminal and not read yet.
pub(super) fn discard_typed() {
    #[cfg(unix)]
    terminal_modes::discard_typed();
}

impl UserInput {
    /// Starts to read. Keys are read only if the edited line can be drawn.
    pub(super) fn start(draws: bool) -> io::Result<Self> {
        #[cfg(unix)]
        if draws && is_interactive() && terminal_modes::can_wait() {
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

    /// Begins the input of an answer. Earlier input is no answer. Call it before the question is shown, or
    /// the keys of a program that sees the question come too early.
    pub(super) fn begin_answer(&mut self) {
        match self {
            UserInput::Lines(lines) => lines.begin_answer(),
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

    /// Appends the lines that were pasted together with a text. Returns false if one of them found no room.
    pub(super) async fn add_pasted(&mut self, text: &mut String) -> io::Result<bool> {
        match self {
            UserInput::Lines(lines) => lines.add_pasted(text).await,
            #[cfg(unix)]
            UserInput::Keys(_) => Ok(true),
        }
    }

    /// Returns true if a user types, and not a script.
    pub(super) fn is_terminal(&self) -> bool {
        match self {
            UserInput::Lines(lines) => lines.is_terminal,
            #[cfg(unix)]
            UserInput::Keys(_) => true,
        }
    }
}

/// A line and the time at which it was read.
struct ReadLine {
    at: Instant,
    /// `None` in place of lines that found no room.
    text: Option<io::Result<String>>,
    /// The room that the line takes until it is used.
    _room: Option<OwnedSemaphorePermit>,
}

/// The lines of stdin.
pub(super) struct LineInput {
    lines: mpsc::UnboundedReceiver<ReadLine>,
    /// The lines that were typed before a prompt was shown.
    ahead: VecDeque<ReadLine>,
    /// The time at which the open question was shown. Earlier lines do not answer it.
    asked: Instant,
    /// The time of the last line, if it was set aside.
    kept: Option<Instant>,
    is_terminal: bool,
    #[cfg(unix)]
    modes: Option<TerminalModes>,
    listening: bool,
}

impl LineInput {
    /// Starts a thread that reads stdin until the process ends: a blocking read cannot be cancelled.
    fn start() -> Self {
        let is_terminal = is_interactive();
        let (sender, lines) = mpsc::unbounded_channel();
        // A script waits for room. A terminal is read at once, so that the times of its lines are true.
        let waits = (!is_terminal).then(Handle::current);
        std::thread::spawn(move || read_lines(&sender, waits.as_ref()));
        LineInput {
            lines,
            ahead: VecDeque::new(),
            asked: Instant::now(),
            kept: None,
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

    fn begin_answer(&mut self) {
        // The user did not see an unfinished line, and would end it with the answer.
        #[cfg(unix)]
        if self.modes.is_some() {
            terminal_modes::discard_unfinished();
        }
        self.listen(true);
        self.set_aside();
        self.asked = Instant::now();
    }

    fn set_aside(&mut self) {
        while let Ok(line) = self.lines.try_recv() {
            self.keep(line);
        }
    }

    fn keep(&mut self, line: ReadLine) {
        self.kept = Some(line.at);
        self.ahead.push_back(line);
    }

    async fn next(&mut self, typing: Typing) -> io::Result<InputEvent> {
        self.listen(typing != Typing::Nothing);
        loop {
            let ahead = if typing == Typing::Prompt { self.ahead.pop_front() } else { None };
            let (line, shown) = match (ahead, typing) {
                (Some(line), _) => (Some(line), false),
                (None, Typing::Nothing) => std::future::pending().await,
                (None, _) => (self.lines.recv().await, self.is_terminal),
            };
            let Some(line) = line else { return Ok(InputEvent::End) };
            // Lines that follow each other without a pause were pasted before the question.
            let goes_on = |kept| line.at.saturating_duration_since(kept) < BURST;
            if typing == Typing::Answer && (line.at < self.asked || self.kept.is_some_and(goes_on)) {
                self.keep(line);
                continue;
            }
            self.kept = None;
            return match line.text {
                Some(text) => Ok(InputEvent::Line(InputLine { text: text?, shown })),
                None => Ok(InputEvent::TooLong),
            };
        }
    }

    async fn add_pasted(&mut self, text: &mut String) -> io::Result<bool> {
        let mut fits = true;
        while self.is_terminal
            && let Ok(Some(line)) = tokio::time::timeout(BURST, self.lines.recv()).await
        {
            let line = line.text.transpose()?;
            match line.filter(|line| fits && text.len() + line.len() < LONGEST_LINE as usize) {
                Some(line) => {
                    text.push('\n');
                    text.push_str(&line);
                }
                None => fits = false,
            }
        }
        Ok(fits)
    }
}

/// Reads lines until the end of stdin, or until nobody receives them. Without a runtime to wait on, lines
/// beyond the limit are lost, and leave a mark.
fn read_lines(sender: &mpsc::UnboundedSender<ReadLine>, waits: Option<&Handle>) {
    let room = Arc::new(Semaphore::new(LONGEST_LINE as usize));
    let mut stdin = io::stdin().lock();
    let mut is_full = false;
    loop {
        let mut line = Vec::new();
        let limit = u64::from(LONGEST_LINE);
        let count = match stdin.by_ref().take(limit).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(count) => u32::try_from(count).unwrap_or(LONGEST_LINE),
        };
        let at = Instant::now();
        let is_cut = count == LONGEST_LINE && !line.ends_with(b"\n");
        let needed = room.clone();
        let count = count.max(SHORT_LINE);
        let taken = match waits {
            Some(runtime) => runtime.block_on(needed.acquire_many_owned(count)).ok(),
            None => needed.try_acquire_many_owned(count).ok(),
        };
        let text = match &taken {
            Some(_) if is_cut => Some(Err(too_long())),
            Some(_) => Some(text(line)),
            None if is_full => continue,
            None => None,
        };
        is_full = taken.is_none();
        if sender.send(ReadLine { at, text, _room: taken }).is_err() || is_cut {
            return;
        }
    }
}
