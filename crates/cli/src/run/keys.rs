//! The keys of a terminal, decoded from the bytes that it sends.

use std::time::{Duration, Instant};

/// Limit on the bytes of a pasted text.
pub(super) const LONGEST_PASTE: usize = 1024 * 1024;
/// Limit on the bytes of a sequence. The rest of a longer one is ignored.
const LONGEST_SEQUENCE: usize = 256;
/// The beginning and the end of a pasted text.
const PASTE_BEGIN: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";
/// The pause after which an ESC is the key and not the beginning of a sequence.
const ESCAPE: Duration = Duration::from_millis(50);
/// The pause after which a paste without an end is shown, and a single key is typed again.
const PASTE_PAUSE: Duration = Duration::from_secs(1);

/// A key, or a pasted text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PressedKey {
    /// Typed characters that arrived together.
    Text(String),
    /// Pasted text with `\n` as its line breaks.
    Paste(String),
    /// A text that found no room, and was dropped: a paste over the limit, or keys that nothing took.
    Lost,
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

/// A key with the times of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TimedKey {
    pub(super) key: PressedKey,
    /// The arrival of the first byte. For a pasted text this is the mark in front of it.
    pub(super) begun: Instant,
    /// The arrival of the last byte.
    pub(super) ended: Instant,
}

/// Splits the bytes of a terminal into keys. Sequences without a meaning here are dropped.
#[derive(Debug, Default)]
pub(super) struct KeyDecoder {
    /// The begun sequence or character, and the arrival of its first byte.
    begun: Vec<u8>,
    begun_at: Option<Instant>,
    paste: Option<Paste>,
}

#[derive(Debug)]
struct Paste {
    text: Vec<u8>,
    /// The number of bytes of [`PASTE_END`] that were seen.
    matched: usize,
    is_long: bool,
    /// True after a pause: the end may have been lost.
    is_paused: bool,
    begun: Instant,
    ended: Instant,
}

/// The state of a sequence.
enum Sequence {
    Begun,
    PressedKey(PressedKey),
    PasteBegins,
    Ignored,
}

impl KeyDecoder {
    /// Decodes bytes that arrived at a time.
    pub(super) fn decode(&mut self, bytes: &[u8], at: Instant) -> Vec<TimedKey> {
        if self.paste.as_ref().is_some_and(|paste| paste.is_paused && paste.matched == 0 && is_typed(bytes)) {
            self.paste = None;
        }
        let mut keys = Vec::new();
        for &byte in bytes {
            self.push(byte, at, &mut keys);
        }
        keys
    }

    fn push(&mut self, byte: u8, at: Instant, keys: &mut Vec<TimedKey>) {
        if let Some(paste) = &mut self.paste {
            if paste.push(byte, at) {
                keys.extend(self.paste.take().and_then(|mut paste| paste.take(true)));
            }
            return;
        }
        let begun = *self.begun_at.get_or_insert(at);
        if self.begun.len() < LONGEST_SEQUENCE {
            self.begun.push(byte);
        }
        let key = match sequence(&self.begun, byte) {
            Sequence::Begun => return,
            Sequence::PressedKey(key) => Some(key),
            Sequence::PasteBegins => {
                self.paste = Some(Paste::new(begun));
                None
            }
            Sequence::Ignored => None,
        };
        // A character that was cut off does not take the next one with it.
        let is_cut =
            key.is_none() && self.begun.len() > 1 && self.begun.first().is_some_and(|first| *first >= 0x80);
        self.begun.clear();
        self.begun_at = None;
        match (key, keys.last_mut()) {
            (None, _) if is_cut => self.push(byte, at, keys),
            (None, _) => {}
            (Some(PressedKey::Text(char)), Some(TimedKey { key: PressedKey::Text(text), ended, .. })) => {
                text.push_str(&char);
                *ended = at;
            }
            (Some(key), _) => keys.push(TimedKey { key, begun, ended: at }),
        }
    }

    /// Returns the pause that ends the begun sequence.
    pub(super) fn longest_pause(&self) -> Option<Duration> {
        match &self.paste {
            Some(paste) => (!paste.is_paused).then_some(PASTE_PAUSE),
            None => self.begun.starts_with(b"\x1b").then_some(ESCAPE),
        }
    }

    /// Ends the begun sequence after a pause: a lone ESC is the key Escape. A paste goes on if its end
    /// follows, and returns the text so far.
    pub(super) fn pause(&mut self) -> Option<TimedKey> {
        if let Some(paste) = &mut self.paste {
            paste.is_paused = true;
            return paste.take(false);
        }
        if !self.begun.starts_with(b"\x1b") {
            return None;
        }
        let begun = std::mem::take(&mut self.begun);
        let at = self.begun_at.take()?;
        let is_escape = begun.iter().all(|byte| *byte == 0x1b);
        is_escape.then_some(TimedKey { key: PressedKey::Escape, begun: at, ended: at })
    }
}

/// Returns true if the bytes are one typed key or the beginning of a paste, and not the rest of a pasted
/// text.
fn is_typed(bytes: &[u8]) -> bool {
    if bytes == b"\x1b" || bytes.starts_with(PASTE_BEGIN) {
        return true;
    }
    let mut decoder = KeyDecoder::default();
    match decoder.decode(bytes, Instant::now()).as_slice() {
        [TimedKey { key: PressedKey::Text(text), .. }] => {
            text.len() == bytes.len() && text.chars().count() == 1
        }
        [_] => decoder.begun.is_empty() && bytes.len() <= LONGEST_SEQUENCE,
        _ => false,
    }
}

impl Paste {
    fn new(begun: Instant) -> Self {
        Paste { text: Vec::new(), matched: 0, is_long: false, is_paused: false, begun, ended: begun }
    }

    /// Adds a byte and returns true at the end of the paste.
    fn push(&mut self, byte: u8, at: Instant) -> bool {
        (self.ended, self.is_paused) = (at, false);
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

    /// Takes the text, without a character at its end whose rest may follow.
    fn take(&mut self, is_end: bool) -> Option<TimedKey> {
        let mut text = std::mem::take(&mut self.text);
        if !is_end
            && let Err(error) = std::str::from_utf8(&text)
            && error.error_len().is_none()
        {
            self.text = text.split_off(error.valid_up_to());
        }
        let key = match self.is_long {
            true => PressedKey::Lost,
            false if text.is_empty() => return None,
            false => {
                PressedKey::Paste(String::from_utf8_lossy(&text).replace("\r\n", "\n").replace('\r', "\n"))
            }
        };
        Some(TimedKey { key, begun: self.begun, ended: self.ended })
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
                Some(char) => PressedKey::Text(char.into()),
                None => return Sequence::Ignored,
            },
            Err(error) if error.error_len().is_none() => return Sequence::Begun,
            Err(_) => return Sequence::Ignored,
        },
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{KeyDecoder, LONGEST_PASTE, PressedKey};

    fn keys(decoder: &mut KeyDecoder, bytes: &[u8]) -> Vec<PressedKey> {
        decoder.decode(bytes, Instant::now()).into_iter().map(|timed| timed.key).collect()
    }

    fn decoded(bytes: &[u8]) -> Vec<PressedKey> {
        let mut decoder = KeyDecoder::default();
        let mut decoded = keys(&mut decoder, bytes);
        decoded.extend(decoder.pause().map(|timed| timed.key));
        decoded
    }

    fn text(text: &str) -> PressedKey {
        PressedKey::Text(text.into())
    }

    fn paste(text: &str) -> PressedKey {
        PressedKey::Paste(text.into())
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
            ("ß".as_bytes(), text("ß")),
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
        assert_eq!(keys(&mut decoder, b"\x1b"), []);
        assert!(decoder.longest_pause().is_some());
        assert_eq!(keys(&mut decoder, b"[1;"), []);
        assert_eq!(keys(&mut decoder, b"5D\xe7\xb5"), [PressedKey::WordLeft]);
        // A pause ends a sequence, and no character.
        assert!(decoder.longest_pause().is_none());
        assert_eq!(decoder.pause(), None);
        assert_eq!(keys(&mut decoder, b"\x82x"), [text("終x")]);
        // A byte that is no character takes no key with it.
        assert_eq!(keys(&mut decoder, b"\xe9\r\xe7\xb5\x1b[A"), [PressedKey::Enter, PressedKey::Up]);
        assert!(decoder.longest_pause().is_none());
    }

    #[test]
    fn a_paste_is_one_text() {
        let pasted = decoded(b"\x1b[200~one\r\ntwo\rthree\x1b[A\x1b\x1b[201~\r");
        assert_eq!(pasted, [paste("one\ntwo\nthree\u{1b}[A\u{1b}"), PressedKey::Enter]);
        let long = [b"\x1b[200~", vec![b'x'; LONGEST_PASTE + 1].as_slice(), b"\x1b[201~y"].concat();
        assert_eq!(decoded(&long), [PressedKey::Lost, text("y")]);
    }

    #[test]
    fn a_paste_has_the_time_of_its_first_mark() {
        let mut decoder = KeyDecoder::default();
        let begun = Instant::now();
        let later = |millis| begun + Duration::from_millis(millis);
        assert_eq!(decoder.decode(b"\x1b[20", begun), []);
        assert_eq!(decoder.decode(b"0~one\r", later(10)), []);
        let pasted = decoder.decode(b"two\x1b[201~y", later(20));
        let times: Vec<_> = pasted.iter().map(|timed| (timed.begun, timed.ended)).collect();
        assert_eq!(times, [(begun, later(20)), (later(20), later(20))]);
        assert_eq!(pasted[0].key, paste("one\ntwo"));
    }

    /// A single key behind a pause is typed. Anything else belongs to the paste, so that no line break of
    /// it is Enter.
    #[test]
    fn a_paste_may_have_no_end() {
        let mut decoder = KeyDecoder::default();
        assert_eq!(keys(&mut decoder, b"\x1b[200~one\r\xe7"), []);
        assert!(decoder.longest_pause().is_some());
        assert_eq!(decoder.pause().map(|timed| timed.key), Some(paste("one\n")));
        assert!(decoder.longest_pause().is_none());
        // It goes on.
        assert_eq!(keys(&mut decoder, b"\xb5\x82\r1\r"), []);
        assert_eq!(decoder.pause().map(|timed| timed.key), Some(paste("終\n1\n")));
        assert_eq!(keys(&mut decoder, b"y"), [text("y")]);
        assert_eq!(keys(&mut decoder, b"\r\x1b[201~!\r"), [PressedKey::Enter, text("!"), PressedKey::Enter]);
        // Another one begins.
        assert_eq!(keys(&mut decoder, b"\x1b[200~lost"), []);
        assert!(decoder.pause().is_some());
        assert_eq!(keys(&mut decoder, b"\x1b[200~two\x1b[201~\r"), [paste("two"), PressedKey::Enter]);
        // The end itself came late.
        assert_eq!(keys(&mut decoder, b"\x1b[200~three\x1b[20"), []);
        assert_eq!(decoder.pause().map(|timed| timed.key), Some(paste("three")));
        assert_eq!(keys(&mut decoder, b"1~\r"), [PressedKey::Enter]);
    }
}
