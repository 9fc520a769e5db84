//! The line that a user edits: its text, its history and its completion.

use std::collections::VecDeque;

use rustyline::line_buffer::{ChangeListener, DeleteListener, Direction, LineBuffer};
use rustyline::{At, Movement, Word};

use super::keys::{LONGEST_PASTE, PressedKey};

/// Limit on the bytes of a line with its line breaks.
const LONGEST_LINE: usize = 2 * LONGEST_PASTE;
/// Limit on the lines of the history, and on their bytes.
const HISTORY_LINES: usize = 500;
const HISTORY_BYTES: usize = 4 * 1024 * 1024;

/// The effect of a key on the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Edit {
    /// The line may look different.
    Changed,
    /// Enter: the line.
    Entered(String),
    /// Ctrl-D in an empty line.
    End,
    /// A text does not fit, so the line is incomplete.
    TooLong,
    /// Enter in an incomplete line, which is given up.
    Refused,
}

/// A line of any number of rows. The history lives as long as the line; that of an answer is empty, since
/// answers may be secrets.
pub(super) struct LineEditor {
    line: LineBuffer,
    /// Earlier lines, the oldest first.
    history: VecDeque<String>,
    history_bytes: usize,
    keeps_history: bool,
    /// True if a text did not fit. The rest of the line is not what the user typed, so it is not entered.
    is_incomplete: bool,
    /// The shown line of the history, and the text that was typed before.
    recalled: Option<(usize, String)>,
    /// The words that Tab completes.
    words: Vec<String>,
    /// The words that Tab offers.
    offered: Vec<String>,
    killed: String,
}

/// Keeps the text that was deleted.
struct Killed<'a>(&'a mut String);

impl DeleteListener for Killed<'_> {
    fn delete(&mut self, _: usize, text: &str, _: Direction) {
        *self.0 = text.to_owned();
    }
}

/// Ignores every change.
struct Ignore;

impl DeleteListener for Ignore {
    fn delete(&mut self, _: usize, _: &str, _: Direction) {}
}

impl ChangeListener for Ignore {
    fn insert_char(&mut self, _: usize, _: char) {}
    fn insert_str(&mut self, _: usize, _: &str) {}
    fn replace(&mut self, _: usize, _: &str, _: &str) {}
}

impl LineEditor {
    /// Creates the line of a prompt.
    pub(super) fn prompt() -> Self {
        LineEditor { keeps_history: true, ..LineEditor::answer() }
    }

    /// Creates the line of an answer, which is kept nowhere.
    pub(super) fn answer() -> Self {
        LineEditor {
            line: LineBuffer::with_capacity(LONGEST_LINE),
            history: VecDeque::new(),
            history_bytes: 0,
            keeps_history: false,
            is_incomplete: false,
            recalled: None,
            words: Vec::new(),
            offered: Vec::new(),
            killed: String::new(),
        }
    }

    pub(super) fn text(&self) -> &str {
        self.line.as_str()
    }

    /// Returns the place of the cursor in the text, in bytes.
    pub(super) fn cursor(&self) -> usize {
        self.line.pos()
    }

    /// Returns the words that Tab offers.
    pub(super) fn offered(&self) -> &[String] {
        &self.offered
    }

    /// Sets the words that Tab completes.
    pub(super) fn complete(&mut self, words: Vec<String>) {
        self.words = words;
    }

    /// Removes the text. Returns false if there was none.
    pub(super) fn clear(&mut self) -> bool {
        let had_text = !self.line.is_empty() || self.is_incomplete;
        self.replace("");
        self.recalled = None;
        self.is_incomplete = false;
        self.offered.clear();
        if !self.keeps_history {
            self.killed.clear();
        }
        had_text
    }

    /// Applies a key.
    pub(super) fn key(&mut self, key: PressedKey) -> Edit {
        if key != PressedKey::Tab {
            self.offered.clear();
        }
        let line = &mut self.line;
        let mut killed = Killed(&mut self.killed);
        match key {
            PressedKey::Text(text) | PressedKey::Paste(text) => return self.insert(&text),
            PressedKey::Yank => return self.insert(&self.killed.clone()),
            PressedKey::Lost => return self.too_long(),
            PressedKey::NewLine => return self.insert("\n"),
            PressedKey::Enter if line.is_cursor_at_end() && line.as_str().ends_with('\\') => {
                line.backspace(1, &mut Ignore);
                return self.insert("\n");
            }
            PressedKey::Enter if self.is_incomplete => {
                self.enter();
                return Edit::Refused;
            }
            PressedKey::Enter => return Edit::Entered(self.enter()),
            PressedKey::EndOfInput if line.is_empty() => return Edit::End,
            PressedKey::Up => self.up(),
            PressedKey::Down => self.down(),
            PressedKey::Tab => self.tab(),
            PressedKey::Escape => {}
            PressedKey::Backspace => {
                line.backspace(1, &mut Ignore);
            }
            PressedKey::Delete | PressedKey::EndOfInput => {
                line.delete(1, &mut Ignore);
            }
            PressedKey::Left => {
                line.move_backward(1);
            }
            PressedKey::Right => {
                line.move_forward(1);
            }
            PressedKey::Home => {
                line.move_home();
            }
            PressedKey::End => {
                line.move_end();
            }
            PressedKey::WordLeft => {
                line.move_to_prev_word(Word::Emacs, 1);
            }
            PressedKey::WordRight => {
                line.move_to_next_word(At::AfterEnd, Word::Emacs, 1);
            }
            PressedKey::KillWord => {
                line.kill(&Movement::BackwardWord(1, Word::Big), &mut killed);
            }
            PressedKey::KillNextWord => {
                line.kill(&Movement::ForwardWord(1, At::AfterEnd, Word::Emacs), &mut killed);
            }
            PressedKey::KillToStart => {
                line.kill(&Movement::BeginningOfLine, &mut killed);
            }
            PressedKey::KillToEnd => {
                line.kill(&Movement::EndOfLine, &mut killed);
            }
        }
        Edit::Changed
    }

    fn insert(&mut self, text: &str) -> Edit {
        if self.line.len() + text.len() > LONGEST_LINE {
            return self.too_long();
        }
        let at = self.line.pos();
        self.line.insert_str(at, text, &mut Ignore);
        self.line.set_pos(at + text.len());
        Edit::Changed
    }

    /// Marks the line as incomplete. Only the first text that does not fit is reported.
    fn too_long(&mut self) -> Edit {
        match std::mem::replace(&mut self.is_incomplete, true) {
            true => Edit::Changed,
            false => Edit::TooLong,
        }
    }

    fn replace(&mut self, text: &str) {
        self.line.update(text, text.len(), &mut Ignore);
    }

    fn enter(&mut self) -> String {
        let text = self.line.as_str().to_owned();
        self.clear();
        if self.keeps_history && !text.trim().is_empty() && self.history.back() != Some(&text) {
            self.history_bytes += text.len();
            self.history.push_back(text.clone());
        }
        while self.history.len() > HISTORY_LINES || self.history_bytes > HISTORY_BYTES {
            self.history_bytes -= self.history.pop_front().map_or(0, |oldest| oldest.len());
        }
        text
    }

    /// Moves up a line of the text, or shows the line before in the history.
    fn up(&mut self) {
        let before = self.line.as_str().get(..self.line.pos()).unwrap_or_default();
        if let Some((above, here)) = before.rsplit_once('\n') {
            let line = above.rsplit('\n').next().unwrap_or_default();
            let start = above.len() - line.len();
            return self.line.set_pos(start + column(line, here.chars().count()));
        }
        let shown = self.recalled.as_ref().map_or(self.history.len(), |(shown, _)| *shown);
        if let Some(text) = shown.checked_sub(1).and_then(|index| self.history.get(index)).cloned() {
            let typed = self.recalled.take().map_or_else(|| self.text().to_owned(), |(_, typed)| typed);
            self.recalled = Some((shown - 1, typed));
            self.replace(&text);
        }
    }

    /// Moves down a line of the text, or shows the next line of the history.
    fn down(&mut self) {
        let (before, after) = self.line.as_str().split_at(self.line.pos());
        if let Some((rest, below)) = after.split_once('\n') {
            let here = before.rsplit('\n').next().unwrap_or_default().chars().count();
            let start = before.len() + rest.len() + 1;
            let line = below.split('\n').next().unwrap_or_default();
            return self.line.set_pos(start + column(line, here));
        }
        let Some((shown, typed)) = self.recalled.take() else { return };
        match self.history.get(shown + 1).cloned() {
            Some(text) => {
                self.recalled = Some((shown + 1, typed));
                self.replace(&text);
            }
            None => self.replace(&typed),
        }
    }

    /// Completes the first word, as far as it is certain, and offers the rest.
    fn tab(&mut self) {
        let text = self.line.as_str();
        if text.is_empty() || !self.line.is_cursor_at_end() || text.contains(char::is_whitespace) {
            return;
        }
        let fitting: Vec<_> = self.words.iter().filter(|word| word.starts_with(text)).cloned().collect();
        let common = rustyline::completion::longest_common_prefix(&fitting).map(str::to_owned);
        match (fitting.as_slice(), common) {
            ([only], _) => self.replace(&format!("{only} ")),
            (_, Some(common)) if common.len() > text.len() => self.replace(&common),
            (fitting, _) => self.offered = fitting.to_vec(),
        }
    }
}

/// Returns the offset of a column in a line, or its end.
fn column(line: &str, column: usize) -> usize {
    line.char_indices().nth(column).map_or(line.len(), |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::keys::{KeyDecoder, PressedKey};
    use super::{Edit, LONGEST_LINE, LineEditor};

    /// Types bytes, and returns the last effect.
    fn type_keys(editor: &mut LineEditor, bytes: &str) -> Option<Edit> {
        let keys = KeyDecoder::default().decode(bytes.as_bytes(), Instant::now());
        keys.into_iter().map(|timed| editor.key(timed.key)).last()
    }

    fn typed(bytes: &str) -> String {
        let mut editor = LineEditor::prompt();
        type_keys(&mut editor, bytes);
        let (before, after) = editor.text().split_at(editor.cursor());
        format!("{before}|{after}")
    }

    #[test]
    fn keys_edit_the_line() {
        assert_eq!(typed("one two\x1b[D\x1b[DX"), "one tX|wo");
        assert_eq!(typed("one two\x1b[1;5D\x7f"), "one|two");
        assert_eq!(typed("one two\x17"), "one |");
        assert_eq!(typed("one two\x01\x0b\x19\x19"), "one twoone two|");
        assert_eq!(typed("one two\x01\x1b[3~\x05!"), "ne two!|");
        // A character with an accent of its own is one character.
        assert_eq!(typed("e\u{301}\x7f"), "|");
        assert_eq!(typed("one\x1b\rthree\x1b[AX\x1b[B\x1b[BY"), "oneX\nthreY|e");
        assert_eq!(typed("one\\\rtwo"), "one\ntwo|");
    }

    #[test]
    fn earlier_lines_come_back() {
        let mut editor = LineEditor::prompt();
        assert_eq!(type_keys(&mut editor, "one\r"), Some(Edit::Entered("one".into())));
        type_keys(&mut editor, "two\rtwo\r\r");
        type_keys(&mut editor, "draft\x1b[A");
        assert_eq!(editor.text(), "two");
        type_keys(&mut editor, "\x1b[A\x1b[A");
        assert_eq!(editor.text(), "one");
        type_keys(&mut editor, "\x1b[B\x1b[B\x1b[B");
        assert_eq!(editor.text(), "draft");
    }

    #[test]
    fn tab_completes_the_first_word() {
        let mut editor = LineEditor::prompt();
        editor.complete(["/hello", "/help", "/exit"].map(str::to_owned).into());
        type_keys(&mut editor, "/h\t");
        assert_eq!(editor.text(), "/hel");
        type_keys(&mut editor, "\t");
        assert_eq!(editor.offered(), ["/hello", "/help"]);
        type_keys(&mut editor, "l\t");
        assert_eq!(editor.text(), "/hello ");
        assert!(editor.offered().is_empty());
        type_keys(&mut editor, "\t");
        assert_eq!(editor.text(), "/hello ");
    }

    #[test]
    fn a_line_has_a_limit() {
        let mut editor = LineEditor::prompt();
        let paste = format!("\x1b[200~{}\x1b[201~", "x".repeat(LONGEST_LINE / 2));
        assert_eq!(type_keys(&mut editor, &paste), Some(Edit::Changed));
        assert_eq!(type_keys(&mut editor, &paste), Some(Edit::Changed));
        assert_eq!(type_keys(&mut editor, "y"), Some(Edit::TooLong));
        assert_eq!(editor.text().len(), LONGEST_LINE);
    }

    /// A prompt is sent whole or not at all. Its rest is in the history.
    #[test]
    fn an_incomplete_line_is_not_entered() {
        let mut editor = LineEditor::prompt();
        type_keys(&mut editor, "please read ");
        assert_eq!(editor.key(PressedKey::Lost), Edit::TooLong);
        assert_eq!(editor.key(PressedKey::Lost), Edit::Changed);
        assert_eq!(type_keys(&mut editor, "this\r"), Some(Edit::Refused));
        assert_eq!(type_keys(&mut editor, "next\r"), Some(Edit::Entered("next".into())));
        type_keys(&mut editor, "\x1b[A\x1b[A");
        assert_eq!(editor.text(), "please read this");
        assert_eq!(editor.key(PressedKey::Lost), Edit::TooLong);
        assert!(editor.clear());
        assert_eq!(type_keys(&mut editor, "\r"), Some(Edit::Entered(String::new())));
    }

    /// An answer may be a secret, so the next question does not show it.
    #[test]
    fn answers_are_not_kept() {
        let mut editor = LineEditor::answer();
        assert_eq!(type_keys(&mut editor, "secret\r"), Some(Edit::Entered("secret".into())));
        type_keys(&mut editor, "key\x15");
        editor.clear();
        type_keys(&mut editor, "\x1b[A\x10\x19");
        assert_eq!(editor.text(), "");
    }
}
