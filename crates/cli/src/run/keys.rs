//! The keys of a terminal, decoded from the bytes that it sends.

/// Limit on the bytes of a pasted text.
pub(super) const LONGEST_PASTE: usize = 1024 * 1024;
/// Limit on the bytes of a sequence. The rest of a longer one is ignored.
const LONGEST_SEQUENCE: usize = 256;
/// The end of a pasted text.
const PASTE_END: &[u8] = b"\x1b[201~";

/// A key, or a pasted text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    /// Pasted text with `\n` as its line breaks.
    Paste(String),
    /// A paste over the limit. Its text is dropped.
    LongPaste,
    Enter,
    /// Alt-Enter or Shift-Enter.
    NewLine,
    Tab,
    Escape,
    Backspace,
    Delete,
    Left,
    Right,
    Up,
    Down,
    Home,
    End,
    WordLeft,
    WordRight,
    KillWord,
    KillNextWord,
    KillToStart,
    KillToEnd,
    Yank,
    /// Ctrl-D.
    EndOfInput,
}

/// Splits the bytes of a terminal into keys. Sequences without a meaning here are dropped.
#[derive(Debug, Default)]
pub(super) struct KeyDecoder {
    /// The begun sequence or character.
    begun: Vec<u8>,
    paste: Option<Paste>,
}

#[derive(Debug, Default)]
struct Paste {
    text: Vec<u8>,
    /// The number of bytes of [`PASTE_END`] that were seen.
    matched: usize,
    is_long: bool,
}

/// The state of a sequence.
enum Sequence {
    Begun,
    Key(Key),
    PasteBegins,
    Ignored,
}

impl KeyDecoder {
    /// Decodes bytes.
    pub(super) fn decode(&mut self, bytes: &[u8]) -> Vec<Key> {
        let mut keys = Vec::new();
        for &byte in bytes {
            if let Some(paste) = &mut self.paste {
                if paste.push(byte) {
                    keys.extend(self.paste.take().map(Paste::into_key));
                }
                continue;
            }
            if self.begun.len() < LONGEST_SEQUENCE {
                self.begun.push(byte);
            }
            match sequence(&self.begun, byte) {
                Sequence::Begun => continue,
                Sequence::Key(key) => keys.push(key),
                Sequence::PasteBegins => self.paste = Some(Paste::default()),
                Sequence::Ignored => {}
            }
            self.begun.clear();
        }
        keys
    }

    /// Returns true if the last bytes may be the beginning of a longer sequence.
    pub(super) fn is_pending(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Ends a begun sequence after a pause: a lone ESC is the key Escape.
    pub(super) fn pause(&mut self) -> Option<Key> {
        let begun = std::mem::take(&mut self.begun);
        (!begun.is_empty() && begun.iter().all(|byte| *byte == 0x1b)).then_some(Key::Escape)
    }
}

impl Paste {
    /// Adds a byte and returns true at the end of the paste.
    fn push(&mut self, byte: u8) -> bool {
        if PASTE_END.get(self.matched) == Some(&byte) {
            self.matched += 1;
            return self.matched == PASTE_END.len();
        }
        let matched = std::mem::take(&mut self.matched);
        self.keep(PASTE_END.get(..matched).unwrap_or_default());
        match byte {
            0x1b => self.matched = 1,
            byte => self.keep(&[byte]),
        }
        false
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.is_long |= self.text.len() + bytes.len() > LONGEST_PASTE;
        if !self.is_long {
            self.text.extend_from_slice(bytes);
        }
    }

    fn into_key(self) -> Key {
        if self.is_long {
            return Key::LongPaste;
        }
        Key::Paste(String::from_utf8_lossy(&self.text).replace("\r\n", "\n").replace('\r', "\n"))
    }
}

/// Returns the meaning of a sequence, of which `last` is the last byte.
fn sequence(begun: &[u8], last: u8) -> Sequence {
    match begun {
        [0x1b] | [0x1b, b'O' | b'['] => Sequence::Begun,
        // Alt with a key that is a sequence itself.
        [0x1b, rest @ ..] if rest.first() == Some(&0x1b) => sequence(rest, last),
        // The function keys of the Linux console.
        [0x1b, b'[', b'['] => Sequence::Begun,
        [0x1b, b'[', b'[', ..] => Sequence::Ignored,
        [0x1b, b'[', params @ .., _] => match last {
            0x20..=0x3f => Sequence::Begun,
            0x40..=0x7e => control_sequence(params, last),
            _ => Sequence::Ignored,
        },
        [0x1b, b'O', ..] => cursor_key(last, false),
        // A reply of the terminal: it ends with BEL or with ESC and a backslash.
        [0x1b, b']' | b'P' | b'_' | b'^', rest @ ..] => match (last, rest) {
            (0x07, _) | (b'\\', [.., 0x1b, _]) => Sequence::Ignored,
            _ => Sequence::Begun,
        },
        [0x1b, b'\r' | b'\n'] => Sequence::Key(Key::NewLine),
        [0x1b, 0x08 | 0x7f] => Sequence::Key(Key::KillWord),
        [0x1b, b'b' | b'B'] => Sequence::Key(Key::WordLeft),
        [0x1b, b'f' | b'F'] => Sequence::Key(Key::WordRight),
        [0x1b, b'd' | b'D'] => Sequence::Key(Key::KillNextWord),
        [0x1b, char @ ..] => match character(char) {
            Sequence::Begun => Sequence::Begun,
            _ => Sequence::Ignored,
        },
        char => character(char),
    }
}

fn control_sequence(params: &[u8], last: u8) -> Sequence {
    let text = std::str::from_utf8(params).unwrap_or_default();
    let mut params = text.split(';');
    let first = params.next().unwrap_or_default();
    let modifier = params.next().and_then(|param| param.split(':').next()).unwrap_or_default();
    let is_modified = !matches!(modifier, "" | "1");
    let key = match (first, last) {
        ("200", b'~') => return Sequence::PasteBegins,
        ("1" | "7", b'~') => Key::Home,
        ("4" | "8", b'~') => Key::End,
        ("3", b'~') => Key::Delete,
        ("13", b'u') if is_modified => Key::NewLine,
        ("13", b'u') => Key::Enter,
        ("27", b'u') => Key::Escape,
        ("27", b'~') if text.ends_with(";13") => Key::NewLine,
        _ => return cursor_key(last, is_modified),
    };
    Sequence::Key(key)
}

fn cursor_key(last: u8, is_modified: bool) -> Sequence {
    Sequence::Key(match (last, is_modified) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', false) => Key::Right,
        (b'D', false) => Key::Left,
        (b'C', true) => Key::WordRight,
        (b'D', true) => Key::WordLeft,
        (b'H', _) => Key::Home,
        (b'F', _) => Key::End,
        _ => return Sequence::Ignored,
    })
}

fn character(bytes: &[u8]) -> Sequence {
    Sequence::Key(match bytes {
        [0x01] => Key::Home,
        [0x02] => Key::Left,
        [0x04] => Key::EndOfInput,
        [0x05] => Key::End,
        [0x06] => Key::Right,
        [0x08 | 0x7f] => Key::Backspace,
        [b'\t'] => Key::Tab,
        [b'\r' | b'\n'] => Key::Enter,
        [0x0b] => Key::KillToEnd,
        [0x0e] => Key::Down,
        [0x10] => Key::Up,
        [0x15] => Key::KillToStart,
        [0x17] => Key::KillWord,
        [0x19] => Key::Yank,
        bytes => match std::str::from_utf8(bytes) {
            Ok(text) => match text.chars().next().filter(|char| !char.is_control()) {
                Some(char) => Key::Char(char),
                None => return Sequence::Ignored,
            },
            Err(error) if error.error_len().is_none() => return Sequence::Begun,
            Err(_) => return Sequence::Ignored,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::{Key, KeyDecoder, LONGEST_PASTE};

    fn decoded(bytes: &[u8]) -> Vec<Key> {
        let mut decoder = KeyDecoder::default();
        let mut keys = decoder.decode(bytes);
        keys.extend(decoder.pause());
        keys
    }

    #[test]
    fn sequences_are_keys_and_never_text() {
        for (bytes, key) in [
            (&b"\x1b[A"[..], Key::Up),
            (b"\x1bOB", Key::Down),
            (b"\x1b[1;5C", Key::WordRight),
            (b"\x1b\x1b[D", Key::Left),
            (b"\x1b[3~", Key::Delete),
            (b"\x1bOH", Key::Home),
            (b"\x1b\r", Key::NewLine),
            (b"\x1b[13;2u", Key::NewLine),
            (b"\x1b[27;2;13~", Key::NewLine),
            (b"\x1bb", Key::WordLeft),
            (b"\x1b", Key::Escape),
            (b"\x1b\x1b", Key::Escape),
            ("ß".as_bytes(), Key::Char('ß')),
        ] {
            assert_eq!(decoded(bytes), [key], "{bytes:?}");
        }
        for bytes in [
            &b"\x1bx"[..],
            b"\x1b[15~",
            b"\x1b[[A",
            b"\x1bOP",
            b"\x1b]11;rgb:0/0/0\x07",
            b"\x1bP1$r0m\x1b\\",
            b"\x1b[?62;c",
            b"\x1b[",
            "\x1bß".as_bytes(),
            b"\xff\x80",
            b"\x00\x1a\x1c",
        ] {
            assert_eq!(decoded(bytes), [], "{bytes:?}");
        }
    }

    #[test]
    fn a_key_may_come_in_pieces() {
        let mut decoder = KeyDecoder::default();
        assert_eq!(decoder.decode(b"\x1b"), []);
        assert!(decoder.is_pending());
        assert_eq!(decoder.decode(b"[1;"), []);
        assert_eq!(decoder.decode(b"5D\xe7\xb5"), [Key::WordLeft]);
        assert_eq!(decoder.decode(b"\x82x"), [Key::Char('終'), Key::Char('x')]);
        assert!(!decoder.is_pending());
    }

    #[test]
    fn a_paste_is_one_text() {
        let pasted = decoded(b"\x1b[200~one\r\ntwo\rthree\x1b[A\x1b\x1b[201~\r");
        assert_eq!(pasted, [Key::Paste("one\ntwo\nthree\u{1b}[A\u{1b}".into()), Key::Enter]);
        let long = [b"\x1b[200~", vec![b'x'; LONGEST_PASTE + 1].as_slice(), b"\x1b[201~y"].concat();
        assert_eq!(decoded(&long), [Key::LongPaste, Key::Char('y')]);
    }
}
