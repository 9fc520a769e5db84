//! The keys that the user types on a terminal, and the line that they edit.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::input::{InputEvent, InputLine, Typing};
use super::keys::{KeyDecoder, LONGEST_PASTE, PressedKey};
use super::line_editor::{Edit, LineEditor};
use super::terminal_modes::{self, JobSignal, JobSignals, TerminalModes};

/// The pause after which an ESC is the key and not the beginning of a sequence.
const ESCAPE: Duration = Duration::from_millis(50);
/// Limit on the bytes that are kept for the next prompt.
const AHEAD: usize = 2 * LONGEST_PASTE;

/// The keys of a terminal. They edit a prompt or an answer. What is typed at other times is kept for the
/// next prompt.
pub(super) struct KeyInput {
    bytes: mpsc::Receiver<(Instant, Vec<u8>)>,
    decoder: KeyDecoder,
    ahead: VecDeque<PressedKey>,
    ahead_bytes: usize,
    prompt: LineEditor,
    answer: LineEditor,
    /// The time at which the open question was shown. Earlier keys do not answer it.
    asked: Instant,
    modes: TerminalModes,
    jobs: JobSignals,
    has_ended: bool,
}

impl KeyInput {
    /// Starts a thread that reads the terminal until the process ends: a blocking read cannot be
    /// cancelled.
    pub(super) fn start() -> io::Result<Self> {
        let jobs = JobSignals::listen()?;
        let modes = TerminalModes::keys();
        let (sender, bytes) = mpsc::channel(16);
        std::thread::spawn(move || {
            let mut stdin = io::stdin().lock();
            let mut buffer = [0; 4096];
            loop {
                match stdin.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(count) => {
                        let read = buffer.get(..count).unwrap_or_default().to_vec();
                        if sender.blocking_send((Instant::now(), read)).is_err() {
                            return;
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return,
                }
            }
        });
        Ok(KeyInput {
            bytes,
            decoder: KeyDecoder::default(),
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            prompt: LineEditor::new(),
            answer: LineEditor::new(),
            asked: Instant::now(),
            modes,
            jobs,
            has_ended: false,
        })
    }

    pub(super) fn restore(&self) -> impl FnOnce() + Send + use<> {
        self.modes.restore()
    }

    /// Begins the input of an answer.
    pub(super) fn begin_answer(&mut self) {
        terminal_modes::discard();
        self.asked = Instant::now();
        self.answer.clear();
    }

    /// Sets the words that Tab completes in a prompt.
    pub(super) fn complete(&mut self, words: Vec<String>) {
        self.prompt.complete(words);
    }

    /// Returns the line that is edited.
    pub(super) fn line(&self, typing: Typing) -> &LineEditor {
        if typing == Typing::Answer { &self.answer } else { &self.prompt }
    }

    /// Removes the text of the line that is edited. Returns false if there was none.
    pub(super) fn clear(&mut self, typing: Typing) -> bool {
        if typing == Typing::Answer { self.answer.clear() } else { self.prompt.clear() }
    }

    /// Restores the terminal and stops this process.
    fn stop(&mut self) {
        self.modes.leave();
        JobSignals::stop();
    }

    /// Waits for the next event.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn next(&mut self, typing: Typing) -> InputEvent {
        let mut has_changed = false;
        while typing == Typing::Prompt
            && let Some(key) = self.ahead.pop_front()
        {
            self.ahead_bytes = self.ahead_bytes.saturating_sub(len(&key));
            match self.prompt.key(key) {
                Edit::Changed => has_changed = true,
                edit => return event(edit),
            }
        }
        if has_changed {
            return InputEvent::Changed;
        }
        loop {
            let received = if self.has_ended {
                std::future::pending().await
            } else {
                tokio::select! {
                    received = self.bytes.recv() => received.map(Some),
                    () = tokio::time::sleep(ESCAPE), if self.decoder.is_pending() => Some(None),
                    signal = self.jobs.next() => {
                        match signal {
                            JobSignal::Stop => self.stop(),
                            JobSignal::Continue if terminal_modes::is_foreground() => {
                                self.modes.enter();
                                return InputEvent::Redraw;
                            }
                            JobSignal::Continue => {}
                        }
                        continue;
                    }
                }
            };
            let (at, keys) = match received {
                Some(Some((at, bytes))) => (at, self.decoder.decode(&bytes)),
                Some(None) => (Instant::now(), self.decoder.pause().into_iter().collect()),
                None => {
                    self.has_ended = true;
                    return InputEvent::End;
                }
            };
            // Keys that were typed before the question was shown do not answer it.
            let typing = if typing == Typing::Answer && at < self.asked { Typing::Nothing } else { typing };
            if let Some(event) = self.take(keys, typing) {
                return event;
            }
        }
    }

    /// Applies keys that arrived together.
    fn take(&mut self, keys: Vec<PressedKey>, typing: Typing) -> Option<InputEvent> {
        let mut result = None;
        for key in keys {
            if typing == Typing::Nothing || matches!(result, Some(InputEvent::Line(_) | InputEvent::End)) {
                match key {
                    PressedKey::Escape if typing == Typing::Nothing => result = Some(InputEvent::Escape),
                    key => self.keep(key),
                }
                continue;
            }
            if key == PressedKey::Escape && typing == Typing::Answer {
                result = Some(InputEvent::Escape);
                continue;
            }
            let line = if typing == Typing::Answer { &mut self.answer } else { &mut self.prompt };
            result = Some(event(line.key(key)));
        }
        result
    }

    /// Keeps a key for the next prompt.
    fn keep(&mut self, key: PressedKey) {
        if self.ahead_bytes + len(&key) <= AHEAD {
            self.ahead_bytes += len(&key);
            self.ahead.push_back(key);
        }
    }
}

fn event(edit: Edit) -> InputEvent {
    match edit {
        Edit::Changed => InputEvent::Changed,
        Edit::Entered(text) => InputEvent::Line(InputLine { text, shown: false }),
        Edit::End => InputEvent::End,
        Edit::TooLong => InputEvent::TooLong,
    }
}

/// Returns the bytes that a kept key counts for.
fn len(key: &PressedKey) -> usize {
    match key {
        PressedKey::Paste(text) => text.len() + size_of::<PressedKey>(),
        _ => size_of::<PressedKey>(),
    }
}
