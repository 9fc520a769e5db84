//! The keys of a terminal, decoded from the bytes that it sends.

/// Limit on the bytes of a pasted text.
pub(super) const LONGEST_PASTE: usize = 1024 * 1024;
/// Limit on the bytes of a sequence. The rest of a longer one is ignored.
const LONGEST_SEQUENCE: usize = 256;
/// The end of a pasted text.
const PASTE_END: &[u8] = b"\x1b[201~";

/// A key, or a pasted text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PressedKey {
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
    PressedKey(PressedKey),
    PasteBegins,
    Ignored,
}

impl KeyDecoder {
    /// Decodes bytes.
    pub(super) fn decode(&mut self, bytes: &[u8]) -> Vec<PressedKey> {
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
                Sequence::PressedKey(key) => keys.push(key),
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
    pub(super) fn pause(&mut self) -> Option<PressedKey> {
        let begun = std::mem::take(&mut self.begun);
        (!begun.is_empty() && begun.iter().all(|byte| *byte == 0x1b)).then_some(PressedKey::Escape)
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

    fn into_key(self) -> PressedKey {
        if self.is_long {
            return PressedKey::LongPaste;
        }
        PressedKey::Paste(String::from_utf8_lossy(&self.text).replace("\r\n", "\n").replace('\r', "\n"))
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
        [0x1b, b'\r' | b'\n'] => Sequence::PressedKey(PressedKey::NewLine),
        [0x1b, 0x08 | 0x7f] => Sequence::PressedKey(PressedKey::KillWord),
        [0x1b, b'b' | b'B'] => Sequence::PressedKey(PressedKey::WordLeft),
        [0x1b, b'f' | b'F'] => Sequence::PressedKey(PressedKey::WordRight),
        [0x1b, b'd' | b'D'] => Sequence::PressedKey(PressedKey::KillNextWord),
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
        ("1" | "7", b'~') => PressedKey::Home,
        ("4" | "8", b'~') => PressedKey::End,
        ("3", b'~') => PressedKey::Delete,
        ("13", b'u') if is_modified => PressedKey::NewLine,
        ("13", b'u') => PressedKey::Enter,
        ("27", b'u') => PressedKey::Escape,
        ("27", b'~') if text.ends_with(";13") => PressedKey::NewLine,
        _ => return cursor_key(last, is_modified),
    };
    Sequence::PressedKey(key)
}

fn cursor_key(last: u8, is_modified: bool) -> Sequence {
    Sequence::PressedKey(match (last, is_modified) {
        (b'A', _) => PressedKey::Up,
        (b'B', _) => PressedKey::Down,
        (b'C', false) => PressedKey::Right,
        (b'D', false) => PressedKey::Left,
        (b'C', true) => PressedKey::WordRight,
        (b'D', true) => PressedKey::WordLeft,
        (b'H', _) => PressedKey::Home,
        (b'F', _) => PressedKey::End,
        _ => return Sequence::Ignored,
    })
}

fn character(bytes: &[u8]) -> Sequence {
    Sequence::PressedKey(match bytes {
        [0x01] => PressedKey::Home,
        [0x02] => PressedKey::Left,
        [0x04] => PressedKey::EndOfInput,
        [0x05] => PressedKey::End,
        [0x06] => PressedKey::Right,
        [0x08 | 0x7f] => PressedKey::Backspace,
        [b'\t'] => PressedKey::Tab,
        [b'\r' | b'\n'] => PressedKey::Enter,
        [0x0b] => PressedKey::KillToEnd,
        [0x0e] => PressedKey::Down,
        [0x10] => PressedKey::Up,
        [0x15] => PressedKey::KillToStart,
        [0x17] => PressedKey::KillWord,
        [0x19] => PressedKey::Yank,
        bytes => match std::str::from_utf8(bytes) {
            Ok(text) => match text.chars().next().filter(|char| !char.is_control()) {
                Some(char) => PressedKey::Char(char),
                None => return Sequence::Ignored,
            },
            Err(error) if error.error_len().is_none() => return Sequence::Begun,
            Err(_) => return Sequence::Ignored,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::{KeyDecoder, LONGEST_PASTE, PressedKey};

    fn decoded(bytes: &[u8]) -> Vec<PressedKey> {
        let mut decoder = KeyDecoder::default();
        let mut keys = decoder.decode(bytes);
        keys.extend(decoder.pause());
        keys
    }

    #[test]
    fn sequences_are_keys_and_never_text() {
        for (bytes, key) in [
            (&b"\x1b[A"[..], PressedKey::Up),
            (b"\x1bOB", PressedKey::Down),
            (b"\x1b[1;5C", PressedKey::WordRight),
            (b"\x1b\x1b[D", PressedKey::Left),
            (b"\x1b[3~", PressedKey::Delete),
            (b"\x1bOH", PressedKey::Home),
            (b"\x1b\r", PressedKey::NewLine),
            (b"\x1b[13;2u", PressedKey::NewLine),
            (b"\x1b[27;2;13~", PressedKey::NewLine),
            (b"\x1bb", PressedKey::WordLeft),
            (b"\x1b", PressedKey::Escape),
            (b"\x1b\x1b", PressedKey::Escape),
            ("ß".as_bytes(), PressedKey::Char('ß')),
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
        assert_eq!(decoder.decode(b"5D\xe7\xb5"), [PressedKey::WordLeft]);
        assert_eq!(decoder.decode(b"\x82x"), [PressedKey::Char('終'), PressedKey::Char('x')]);
        assert!(!decoder.is_pending());
    }

    #[test]
    fn a_paste_is_one_text() {
        let pasted = decoded(b"\x1b[200~one\r\ntwo\rthree\x1b[A\x1b\x1b[201~\r");
        assert_eq!(pasted, [PressedKey::Paste("one\ntwo\nthree\u{1b}[A\u{1b}".into()), PressedKey::Enter]);
        let long = [b"\x1b[200~", vec![b'x'; LONGEST_PASTE + 1].as_slice(), b"\x1b[201~y"].concat();
        assert_eq!(decoded(&long), [PressedKey::LongPaste, PressedKey::Char('y')]);
    }
}
