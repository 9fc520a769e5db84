//! The keys that the user types on a terminal, and the lines that they edit.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use duologue_rpc::Lock as _;
use tokio::sync::Notify;

use super::input::{BURST, InputEvent, InputLine, Typing};
use super::keys::{KeyDecoder, LONGEST_PASTE, PressedKey, TimedKey};
use super::line_editor::{Edit, LineEditor};
use super::terminal_modes::{self, JobSignal, JobSignals, TerminalModes};

/// Limit on the bytes of keys that no line has taken. Beyond it keys are dropped, and the prompt that they
/// belong to is not sent.
const AHEAD: usize = 2 * LONGEST_PASTE;
/// Length of the buffer of a read.
const READ: usize = 16 * 1024;
/// Limit on the reads before a question. The kernel keeps less.
const READS: usize = 64;
/// The time between two looks at a terminal that another program uses.
const BACKGROUND: Duration = Duration::from_millis(50);

/// The keys of a terminal. They edit a prompt or an answer. Keys that are typed at other times are kept for
/// the next prompt.
pub(super) struct KeyInput {
    keys: TypedKeys,
    modes: TerminalModes,
    jobs: JobSignals,
}

impl KeyInput {
    /// Starts a thread that reads the terminal until the process ends. It waits for nothing but keys, so
    /// that their times are true.
    pub(super) fn start() -> io::Result<Self> {
        let jobs = JobSignals::listen()?;
        let modes = TerminalModes::keys();
        let keys = TypedKeys::new();
        let unread = keys.unread.clone();
        std::thread::Builder::new().name("duologue-keys".into()).spawn(move || unread.read_all())?;
        Ok(KeyInput { keys, modes, jobs })
    }

    pub(super) fn restore(&self) -> impl FnOnce() + Send + use<> {
        self.modes.restore()
    }

    /// Begins the input of an answer.
    pub(super) fn begin_answer(&mut self) {
        // Everything that the kernel has got until now is older than the question.
        let mut buffer = [0; READ];
        for _ in 0..READS {
            if !matches!(self.keys.unread.read(&mut buffer), Ok(true)) {
                break;
            }
        }
        self.keys.begin_answer(Instant::now());
    }

    /// Sets the words that Tab completes in a prompt.
    pub(super) fn complete(&mut self, words: Vec<String>) {
        self.keys.prompt.complete(words);
    }

    /// Returns the line that is edited.
    pub(super) fn line(&self, typing: Typing) -> &LineEditor {
        if typing == Typing::Answer { &self.keys.answer } else { &self.keys.prompt }
    }

    /// Removes the text of the line that is edited. Returns false if there was none.
    pub(super) fn clear(&mut self, typing: Typing) -> bool {
        if typing == Typing::Answer { self.keys.answer.clear() } else { self.keys.prompt.clear() }
    }

    /// Waits for the next event. The end of the input is returned each time, except where nothing may be
    /// typed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn next(&mut self, typing: Typing) -> InputEvent {
        loop {
            if let Some(event) = self.keys.take(typing) {
                return event;
            }
            tokio::select! {
                () = self.keys.unread.arrived.notified() => {}
                signal = self.jobs.next() => match signal {
                    JobSignal::Stop => {
                        self.modes.leave();
                        JobSignals::stop();
                    }
                    JobSignal::Continue if terminal_modes::is_foreground() => {
                        self.modes.enter();
                        return InputEvent::Redraw;
                    }
                    JobSignal::Continue => JobSignals::stop_in_background(),
                }
            }
        }
    }
}

/// The keys that no line has taken yet, and the lines.
struct TypedKeys {
    unread: Arc<UnreadKeys>,
    /// The keys that were not looked at, in the order of their times.
    arrived: VecDeque<TimedKey>,
    /// The keys before them, which are kept for the next prompt.
    ahead: VecDeque<TimedKey>,
    prompt: LineEditor,
    answer: LineEditor,
    /// The time at which the open question was shown. Keys that began earlier do not answer it.
    asked: Instant,
    /// The end of the last key, if it is kept or belongs to a prompt that is not entered.
    kept: Option<Instant>,
}

impl TypedKeys {
    fn new() -> Self {
        TypedKeys {
            unread: Arc::default(),
            arrived: VecDeque::new(),
            ahead: VecDeque::new(),
            prompt: LineEditor::prompt(),
            answer: LineEditor::answer(),
            asked: Instant::now(),
            kept: None,
        }
    }

    fn begin_answer(&mut self, at: Instant) {
        self.asked = at;
        self.answer.clear();
    }

    /// Applies the keys that arrived, until there is an event.
    fn take(&mut self, typing: Typing) -> Option<InputEvent> {
        let mut has_changed = false;
        let has_ended = self.unread.take(&mut self.arrived);
        while let Some(timed) = self.next_key(typing) {
            // A text that goes on without a pause is older than the question too: a paste without marks.
            let goes_on = self.kept.is_some_and(|kept| timed.begun.saturating_duration_since(kept) < BURST);
            let is_kept = match typing {
                Typing::Prompt => false,
                Typing::Answer => timed.begun < self.asked || goes_on,
                Typing::Nothing => true,
            };
            if typing != Typing::Prompt && timed.key == PressedKey::Escape {
                self.unread.release(&timed.key);
                return Some(InputEvent::Escape);
            }
            if is_kept {
                self.kept = Some(timed.ended);
                self.ahead.push_back(timed);
                continue;
            }
            self.unread.release(&timed.key);
            let line = if typing == Typing::Answer { &mut self.answer } else { &mut self.prompt };
            let edit = line.key(timed.key);
            let goes_on = typing == Typing::Prompt && matches!(edit, Edit::Changed | Edit::TooLong);
            self.kept = goes_on.then_some(timed.ended);
            match edit {
                Edit::Changed => has_changed = true,
                Edit::Entered(text) => return Some(InputEvent::Line(InputLine { text, shown: false })),
                Edit::End => return Some(InputEvent::End),
                Edit::TooLong => return Some(InputEvent::TooLong),
                Edit::Refused => return Some(InputEvent::Refused),
            }
        }
        match has_changed {
            true => Some(InputEvent::Changed),
            false => (has_ended && typing != Typing::Nothing).then_some(InputEvent::End),
        }
    }

    /// Takes the next key: for a prompt the kept ones first.
    fn next_key(&mut self, typing: Typing) -> Option<TimedKey> {
        let ahead = if typing == Typing::Prompt { self.ahead.pop_front() } else { None };
        ahead.or_else(|| self.arrived.pop_front())
    }
}

/// The keys that a thread has read.
#[derive(Default)]
struct UnreadKeys {
    queue: Mutex<KeyQueue>,
    arrived: Notify,
}

#[derive(Default)]
struct KeyQueue {
    decoder: KeyDecoder,
    keys: VecDeque<TimedKey>,
    /// The bytes of these keys, and of those that no line has taken.
    bytes: usize,
    /// True if the last key found no room.
    is_full: bool,
    /// The time of the last read.
    read: Option<Instant>,
    has_ended: bool,
}

/// Marks the end of the input when the thread ends, for whatever reason.
struct EndOfKeys<'a>(&'a UnreadKeys);

impl Drop for EndOfKeys<'_> {
    fn drop(&mut self) {
        self.0.queue.lock_unpoisoned().has_ended = true;
        self.0.arrived.notify_one();
    }
}

impl UnreadKeys {
    /// Reads the terminal until its end.
    fn read_all(&self) {
        let _end = EndOfKeys(self);
        let mut buffer = [0; READ];
        loop {
            let pause = self.queue.lock_unpoisoned().decoder.longest_pause();
            let read = match terminal_modes::wait_for_input(pause) {
                Ok(true) if terminal_modes::is_background() => {
                    std::thread::sleep(BACKGROUND);
                    Ok(false)
                }
                Ok(true) => self.read(&mut buffer),
                Ok(false) => {
                    self.pause(Instant::now());
                    Ok(false)
                }
                Err(error) => Err(error),
            };
            match read {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return,
                _ => {}
            }
        }
    }

    /// Reads the bytes that the terminal has. Returns false if there are none.
    fn read(&self, buffer: &mut [u8]) -> io::Result<bool> {
        // The lock keeps another reader from taking them in between, after which the read would block.
        let mut queue = self.queue.lock_unpoisoned();
        if !terminal_modes::wait_for_input(Some(Duration::ZERO))? || terminal_modes::is_background() {
            return Ok(false);
        }
        let bytes = match terminal_modes::read(buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => buffer.get(..count).unwrap_or_default(),
        };
        queue.push_bytes(bytes, Instant::now());
        self.arrived.notify_one();
        Ok(true)
    }

    /// Ends a begun sequence, if nothing followed it for long enough.
    fn pause(&self, now: Instant) {
        let mut queue = self.queue.lock_unpoisoned();
        let since = queue.read.map_or(Duration::ZERO, |read| now.saturating_duration_since(read));
        if queue.decoder.longest_pause().is_some_and(|pause| since >= pause)
            && let Some(key) = queue.decoder.pause()
        {
            queue.push(key);
            self.arrived.notify_one();
        }
    }

    /// Appends the keys to `keys`. Returns true if there will be no more.
    fn take(&self, keys: &mut VecDeque<TimedKey>) -> bool {
        let mut queue = self.queue.lock_unpoisoned();
        keys.append(&mut queue.keys);
        queue.has_ended
    }

    /// Makes room for more keys.
    fn release(&self, key: &PressedKey) {
        let mut queue = self.queue.lock_unpoisoned();
        queue.bytes = queue.bytes.saturating_sub(len(key));
    }
}

impl KeyQueue {
    fn push_bytes(&mut self, bytes: &[u8], at: Instant) {
        self.read = Some(at);
        for key in self.decoder.decode(bytes, at) {
            self.push(key);
        }
    }

    /// Adds a key. One that finds no room is lost, and the first of them leaves a mark. Esc always has
    /// room, since it cancels a turn.
    fn push(&mut self, timed: TimedKey) {
        let is_escape = timed.key == PressedKey::Escape;
        let fits = self.bytes + len(&timed.key) <= AHEAD;
        let key = match timed.key {
            key if fits => key,
            _ if is_escape && self.keys.back().is_none_or(|last| last.key != PressedKey::Escape) => {
                PressedKey::Escape
            }
            _ if is_escape || self.is_full => return,
            _ => PressedKey::Lost,
        };
        self.is_full = if is_escape { self.is_full } else { !fits };
        self.bytes += len(&key);
        self.keys.push_back(TimedKey { key, ..timed });
    }
}

/// Returns the bytes that a key counts for.
fn len(key: &PressedKey) -> usize {
    size_of::<TimedKey>()
        + match key {
            PressedKey::Text(text) | PressedKey::Paste(text) => text.len(),
            _ => 0,
        }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{AHEAD, InputEvent, TypedKeys, Typing};
    use crate::run::keys::{LONGEST_PASTE, PressedKey};

    /// Keys that are typed at times after a start.
    struct Typist {
        keys: TypedKeys,
        start: Instant,
    }

    impl Typist {
        fn new() -> Self {
            Typist { keys: TypedKeys::new(), start: Instant::now() }
        }

        fn at(&self, millis: u64) -> Instant {
            self.start + Duration::from_millis(millis)
        }

        fn types(&self, millis: u64, bytes: &str) {
            let mut queue = self.keys.unread.queue.lock().unwrap();
            queue.push_bytes(bytes.as_bytes(), self.at(millis));
        }

        fn is_asked(&mut self, millis: u64) {
            let at = self.at(millis);
            self.keys.begin_answer(at);
        }

        /// Returns the next event that is more than a change: a line as it is, anything else by its name.
        fn next(&mut self, typing: Typing) -> Option<String> {
            loop {
                return match self.keys.take(typing)? {
                    InputEvent::Changed => continue,
                    InputEvent::Line(line) => Some(line.text),
                    event => Some(format!("{event:?}")),
                };
            }
        }

        fn answers(&mut self) -> Option<String> {
            self.next(Typing::Answer)
        }

        fn prompts(&mut self) -> Option<String> {
            self.next(Typing::Prompt)
        }
    }

    #[test]
    fn a_paste_around_a_question_goes_to_the_prompt() {
        let mut typist = Typist::new();
        let half = "line\r1\ry\ryes\r".repeat(2500);
        typist.types(0, &format!("\u{1b}[200~{half}"));
        assert_eq!(typist.next(Typing::Nothing), None);
        typist.is_asked(1000);
        typist.types(2000, &half);
        typist.types(4000, "\u{1b}[201~");
        assert_eq!(typist.answers(), None);
        typist.types(5000, "n\r");
        assert_eq!(typist.answers().as_deref(), Some("n"));
        typist.types(6000, "\r");
        assert_eq!(typist.prompts(), Some(half.repeat(2).replace('\r', "\n")));
    }

    #[test]
    fn a_paste_without_marks_goes_on_behind_a_question() {
        let mut typist = Typist::new();
        typist.types(0, "one\ry\r");
        typist.is_asked(5);
        typist.types(10, "y\r");
        typist.types(20, "1\r");
        assert_eq!(typist.answers(), None);
        typist.types(100, "n\r");
        typist.types(101, "behind\r");
        assert_eq!(typist.answers().as_deref(), Some("n"));
        typist.is_asked(150);
        assert_eq!(typist.answers(), None);
        let prompts: Vec<_> = std::iter::from_fn(|| typist.prompts()).collect();
        assert_eq!(prompts, ["one", "y", "y", "1", "behind"]);

        // The same in the middle of a prompt.
        typist.types(1000, "half");
        assert_eq!(typist.prompts(), None);
        typist.is_asked(1005);
        typist.types(1010, "y\ry\r");
        assert_eq!(typist.answers(), None);
        typist.types(1100, "\u{1b}[200~y\r\u{1b}[201~");
        assert_eq!(typist.answers(), None);
        typist.types(1200, "\r");
        assert_eq!(typist.answers().as_deref(), Some("y\n"));
    }

    /// A prompt with a text that found no room is not sent, and the next one is.
    #[test]
    fn lost_keys_take_their_prompt_with_them() {
        let paste = |length: usize| format!("\u{1b}[200~{}\u{1b}[201~", "x".repeat(length));
        let mut typist = Typist::new();
        typist.types(0, &format!("see {} here\rnext\r", paste(LONGEST_PASTE + 1)));
        assert_eq!(typist.next(Typing::Nothing), None);
        assert_eq!(typist.prompts().as_deref(), Some("TooLong"));
        assert_eq!(typist.prompts().as_deref(), Some("Refused"));
        assert_eq!(typist.prompts().as_deref(), Some("next"));

        // The last paste finds no room, as all small keys do. Esc does.
        let mut typist = Typist::new();
        typist.types(0, "first\r");
        for _ in 0..3 {
            typist.types(0, &paste(LONGEST_PASTE - 1000));
        }
        typist.types(0, &"more\r".repeat(1000));
        assert!(typist.keys.unread.queue.lock().unwrap().bytes < AHEAD + 1000);
        typist.types(0, "\u{1b}");
        typist.keys.unread.pause(typist.at(50));
        assert_eq!(typist.next(Typing::Nothing).as_deref(), Some("Escape"));
        assert_eq!(typist.next(Typing::Nothing), None);
        assert_eq!(typist.prompts().as_deref(), Some("first"));
        assert_eq!(typist.prompts().as_deref(), Some("TooLong"));
        let rest: Vec<_> = std::iter::from_fn(|| typist.prompts()).collect();
        assert_eq!(rest.first().map(String::as_str), Some("Refused"));
        typist.types(10, "last\r");
        let last: Vec<_> = std::iter::from_fn(|| typist.prompts()).collect();
        assert!(last.iter().all(|line| ["last", "Refused"].contains(&line.as_str())), "{last:?}");
        assert_eq!(typist.keys.unread.queue.lock().unwrap().bytes, 0);
    }

    #[test]
    fn the_end_of_the_input_is_returned_each_time() {
        let mut typist = Typist::new();
        typist.types(0, "one\r");
        typist.keys.unread.queue.lock().unwrap().has_ended = true;
        assert_eq!(typist.next(Typing::Nothing), None);
        assert_eq!(typist.prompts().as_deref(), Some("one"));
        for _ in 0..2 {
            assert_eq!(typist.prompts().as_deref(), Some("End"));
            assert_eq!(typist.answers().as_deref(), Some("End"));
            assert_eq!(typist.next(Typing::Nothing), None);
        }
    }

    #[test]
    fn a_flood_of_keys_is_bounded() {
        let typist = Typist::new();
        for millis in 0..20_000 {
            typist.types(millis, "\r\r\r\u{1b}[13;2u\u{1b}[27u");
        }
        let queue = typist.keys.unread.queue.lock().unwrap();
        assert!(queue.bytes < AHEAD + 1000, "{}", queue.bytes);
        assert!(queue.keys.iter().any(|timed| timed.key == PressedKey::Lost));
    }
}
