//! Removal of secrets from texts that come in pieces, each of which is written before the next one is known. The part
//! of a secret that came before it was recognised stays. Redaction of the whole transcript removes it.

use std::borrow::Cow;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;
use std::sync::LazyLock;

use duologue_rpc::{Limits, RpcMessage};
use memchr::memmem::Finder;
use regex::bytes::Regex;

use super::json_scan::{Edits, QuotedString};
use super::secret_patterns::{self, SECRET, in_key, rest_of_key};
use super::secrets::Secrets;
use super::streamed_text::PieceEvent;
use super::text_key::TextKey;
use crate::classify::session_of;
use crate::terminal_text;

/// The number of texts of one side that are followed.
const TEXTS: usize = 64;

/// The bytes of a text that are kept, before and after the start of a secret that has not ended.
const KEPT: usize = 256;

/// The bytes after a secret in which it may go on.
const SLACK: usize = 16;

/// The capacity of the end of a text, in bytes.
const CAPACITY: usize = 4 * KEPT;

/// The dots in the longest pattern of a secret.
const MAX_DOTS: usize = 4;

/// The longest line without its text that is kept to recognise the next one, in bytes.
const FRAME: usize = 1024;

/// Matches each line that may have a piece of a text or clear one, and few others.
static PIECE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let names =
        r#"(?-u)_chunk"|_clear"|_message"|_thought"|"compaction_update"|"terminal_update"|task\.output"#;
    Regex::new(&format!(r"{names}|terminal_output|\\u00[2-7]")).ok()
});
static PROMPT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"/prompt\""));

/// The texts of one side that may get further pieces.
#[derive(Debug, Default)]
pub(super) struct ChunkSecrets {
    texts: Vec<OpenText>,
    /// The index of the text of the last piece.
    latest: usize,
    /// The number of pieces so far.
    pieces: u64,
    hasher: RandomState,
}

#[derive(Debug)]
struct OpenText {
    key: TextKey,
    frame: Option<LineFrame>,
    /// The number of the last piece.
    used: u64,
    end: TextEnd,
}

/// The bytes around the last piece. A line that begins and ends with them has the next piece.
#[derive(Debug)]
struct LineFrame {
    before: Vec<u8>,
    after: Vec<u8>,
    /// True until a second line has them.
    is_new: bool,
    /// True if nothing in them is suspicious, once it is known.
    is_clean: Option<bool>,
}

/// The end of a text.
#[derive(Debug)]
struct TextEnd {
    tail: Vec<u8>,
    /// The bytes after the last part that may begin a secret, and after the characters of a key behind it.
    behind: usize,
    /// True if the text ended with these characters.
    in_run: bool,
    /// True if the text ended within a secret.
    in_secret: bool,
    /// True if the last piece is suspicious, alone or together with the text before.
    is_suspicious: bool,
}

/// The result of the search for parts of secrets that began in an earlier piece.
pub(super) enum PieceOutcome {
    /// The line without them.
    Redacted(Vec<u8>),
    /// The line has no secret at all.
    Clean,
    /// The line has none of them. It was not searched for others.
    Unknown,
}

impl ChunkSecrets {
    /// Removes the parts of secrets that began in an earlier piece.
    pub(super) fn redact(&mut self, secrets: &Secrets, line: &[u8]) -> PieceOutcome {
        self.follow(secrets, line).unwrap_or(PieceOutcome::Unknown)
    }

    fn follow(&mut self, secrets: &Secrets, line: &[u8]) -> Option<PieceOutcome> {
        let place = self.piece(line)?;
        let spelled = line.get(place.clone())?;
        let text = match memchr::memchr(b'\\', spelled) {
            None => Cow::Borrowed(spelled),
            Some(_) => Cow::Owned(string_at(line, &place)?.read().text.into_owned().into_bytes()),
        };
        let open = self.texts.get_mut(self.latest)?;
        if open.key.is_base64 {
            let piece = terminal_text::decoded(std::str::from_utf8(&text).ok()?)?;
            let found = open.end.push(secrets, &piece);
            if found.is_empty() {
                return None;
            }
            let mut edits = Edits::default();
            found.into_iter().for_each(|part| edits.replace(part, SECRET));
            let mut line_edits = Edits::default();
            line_edits.replace(place, terminal_text::encoded(&edits.apply(&piece)));
            return Some(PieceOutcome::Redacted(line_edits.apply(line)));
        }
        let found = open.end.push(secrets, &text);
        if found.is_empty() {
            // A line with escapes is checked as a whole.
            let clean = matches!(text, Cow::Borrowed(_)) && open.has_clean_line(&text);
            return clean.then_some(PieceOutcome::Clean);
        }
        let piece = string_at(line, &place)?.read();
        let mut edits = Edits::default();
        found.into_iter().for_each(|part| edits.replace(piece.span(part), SECRET));
        Some(PieceOutcome::Redacted(edits.apply(line)))
    }

    /// Ends the messages without an id of a session whose other side sends a prompt.
    pub(super) fn other_side(&mut self, line: &[u8]) {
        if self.has_unnamed() && PROMPT.find(line).is_some() {
            let _ = self.read(line);
        }
    }

    /// Returns the place of the piece in a line, without its quotes. Its text becomes the latest one.
    fn piece(&mut self, line: &[u8]) -> Option<Range<usize>> {
        self.pieces += 1;
        if let Some(text) = self.texts.get(self.latest)
            && let Some(place) = text.piece(line)
        {
            return Some(place);
        }
        if PIECE.as_ref().is_some_and(|pattern| !pattern.is_match(line)) {
            return None;
        }
        let known = self.texts.iter().find_map(|text| Some((text.key, text.piece(line)?)));
        if let Some((key, place)) = known {
            self.open(key);
            return Some(place);
        }
        self.read(line)
    }

    /// Parses a line whose frame is new.
    fn read(&mut self, line: &[u8]) -> Option<Range<usize>> {
        let repaired;
        let limits = Limits::default();
        let message = match RpcMessage::read(line, &limits)? {
            Ok(message) => message,
            Err(_) => {
                repaired = RpcMessage::repair(line)?;
                RpcMessage::read(&repaired, &limits)?.ok()?
            }
        };
        let (RpcMessage::Notification { method, params } | RpcMessage::Request { method, params, .. }) =
            message
        else {
            return None;
        };
        let event = PieceEvent::of(&method, params)?;
        let session = self.hasher.hash_one(params.and_then(session_of).as_ref().map(|id| id.as_str()));
        let in_session = |text: &OpenText| text.key.session == session && text.key.is_message;
        match event {
            PieceEvent::Clear(kind) => {
                let kind = self.hasher.hash_one(kind);
                self.texts.retain(|text| !in_session(text) || text.key.kind != kind);
                self.latest = usize::MAX;
                None
            }
            PieceEvent::Prompt => {
                self.texts.retain(|text| !in_session(text) || text.key.id.is_some());
                self.latest = usize::MAX;
                None
            }
            PieceEvent::Begin(text) => {
                let key = TextKey::of(&self.hasher, session, &text);
                self.texts.retain(|known| known.key != key);
                self.latest = usize::MAX;
                let place = text.piece(std::str::from_utf8(line).ok()?)?.read().whole();
                self.open(key);
                Some(place)
            }
            PieceEvent::Piece(text) => {
                self.open(TextKey::of(&self.hasher, session, &text));
                let line_text = std::str::from_utf8(line).ok()?;
                let place = text.piece(line_text)?.read().whole();
                let frame = (line.get(..place.start)?, line.get(place.end..)?);
                let open = self.texts.get_mut(self.latest)?;
                let fits = frame.0.len() + frame.1.len() <= FRAME;
                let (before, after) = (frame.0.to_vec(), frame.1.to_vec());
                open.frame = fits.then_some(LineFrame { before, after, is_new: true, is_clean: None });
                Some(place)
            }
        }
    }

    /// Makes a text the latest one. The text that was used least recently is dropped for a new one.
    fn open(&mut self, key: TextKey) {
        self.latest = match self.texts.iter().position(|text| text.key == key) {
            Some(known) => known,
            None => {
                if self.texts.len() >= TEXTS
                    && let Some((oldest, _)) = self.texts.iter().enumerate().min_by_key(|(_, text)| text.used)
                {
                    self.texts.swap_remove(oldest);
                }
                self.texts.push(OpenText { key, frame: None, used: 0, end: TextEnd::default() });
                self.texts.len() - 1
            }
        };
        if let Some(text) = self.texts.get_mut(self.latest) {
            text.used = self.pieces;
        }
    }

    fn has_unnamed(&self) -> bool {
        self.texts.iter().any(|text| text.key.is_message && text.key.id.is_none())
    }
}

impl OpenText {
    /// Returns the place of the piece in a line that differs from the last one only there.
    fn piece(&self, line: &[u8]) -> Option<Range<usize>> {
        let LineFrame { before, after, .. } = self.frame.as_ref()?;
        let rest = line.strip_prefix(before.as_slice())?;
        let text = rest.strip_suffix(after.as_slice())?;
        let mut at = 0;
        while let Some(next) = memchr::memchr2(b'"', b'\\', text.get(at..)?) {
            at += next;
            if text.get(at) == Some(&b'"') {
                return None;
            }
            // An escape of two characters. After `\u` come characters that are neither.
            at += 2;
        }
        (at <= text.len()).then(|| before.len()..before.len() + text.len())
    }

    /// Returns true if nothing in the line of the last piece, which has no escapes, is suspicious.
    fn has_clean_line(&mut self, piece: &[u8]) -> bool {
        let Some(frame) = &mut self.frame else { return false };
        // The first line of a kind is checked as a whole. Perhaps there is no other.
        if std::mem::take(&mut frame.is_new) || self.end.is_suspicious {
            return false;
        }
        let LineFrame { before, after, is_clean, .. } = frame;
        let around = || [before.as_slice(), after].concat();
        *is_clean.get_or_insert_with(|| !secret_patterns::suspicious(&around()))
            && !secret_patterns::suspicious_string(piece)
    }
}

/// Returns the string at a place in a line.
fn string_at<'a>(line: &'a [u8], place: &Range<usize>) -> Option<QuotedString<'a>> {
    let start = place.start.checked_sub(1)?;
    let token = std::str::from_utf8(line.get(start..=place.end)?).ok()?;
    Some(QuotedString::new(token, start))
}

impl Default for TextEnd {
    fn default() -> Self {
        TextEnd {
            tail: Vec::new(),
            behind: usize::MAX,
            in_run: false,
            in_secret: false,
            is_suspicious: false,
        }
    }
}

impl TextEnd {
    /// Appends a piece, and returns its parts that belong to a secret.
    fn push(&mut self, secrets: &Secrets, piece: &[u8]) -> Vec<Range<usize>> {
        let known = self.tail.len();
        self.tail.extend_from_slice(piece);
        let (mut found, mut open) = (Vec::new(), None);
        if self.watch(known) || secrets.has_own() {
            (found, open) = self.search(secrets, known);
        }
        self.forget(open);
        found
    }

    /// Finds the last part that may begin a secret, and counts the bytes behind it. Returns true if the text may
    /// contain a secret that is not known yet.
    fn watch(&mut self, known: usize) -> bool {
        let seam = known.saturating_sub(secret_patterns::REACH);
        let recent = self.tail.get(seam..).unwrap_or_default();
        let found = secret_patterns::last_suspicion(recent);
        self.is_suspicious = found.is_some();
        // A secret may end in this piece.
        let was_near = self.behind <= KEPT;
        let last = match found {
            Some(end) => seam + end,
            None if self.in_run => known,
            None => {
                self.behind = self.behind.saturating_add(self.tail.len() - known);
                return was_near;
            }
        };
        let rest = self.tail.get(last..).unwrap_or_default();
        let run = rest.iter().take_while(|byte| in_key(byte)).count();
        self.in_run = run == rest.len();
        self.behind = rest.len() - run;
        found.is_some() || was_near
    }

    /// Returns the parts of the piece at `known` that belong to a secret, and the start of a secret that may go on.
    fn search(&mut self, secrets: &Secrets, known: usize) -> (Vec<Range<usize>>, Option<usize>) {
        let mut edits = Edits::default();
        secrets.find(&self.tail, |span| edits.replace(span, SECRET));
        if self.in_secret {
            let rest = rest_of_key(self.tail.get(known..).unwrap_or_default());
            if rest > 0 {
                edits.replace(known..known + rest, SECRET);
            }
        }
        let end = self.tail.len();
        let run = || self.tail.iter().rposition(|byte| !in_key(byte)).map_or(0, |last| last + 1);
        let mut open = self.in_run.then(run);
        let mut found = Vec::new();
        self.in_secret = false;
        for (span, _) in edits.merged() {
            self.in_secret = span.end == end;
            // The next line of a private key may follow.
            if end - span.end <= SLACK {
                open = Some(span.start);
                self.behind = 0;
            }
            if span.end > known && span.start < span.end {
                found.push(span.start.max(known) - known..span.end - known);
            }
        }
        (found, open)
    }

    /// Drops text that is not needed to recognise a secret, such as the middle of one that started at `open`.
    fn forget(&mut self, open: Option<usize>) {
        if self.tail.len() <= 2 * KEPT {
            return;
        }
        let end = self.tail.len() - KEPT;
        match open {
            Some(start) => {
                // The name of the secret may stand before it.
                let start = start.saturating_sub(KEPT / 2).min(end);
                let middle = (start + KEPT).min(end)..end;
                // Dots separate the parts of a JSON Web Token.
                let dots = memchr::memchr_iter(b'.', self.tail.get(middle.clone()).unwrap_or_default());
                let parts = b"0.".repeat(dots.take(MAX_DOTS).count());
                self.tail.splice(middle, parts);
                self.tail.drain(..start);
            }
            None => _ = self.tail.drain(..end),
        }
        self.tail.shrink_to(CAPACITY);
    }
}

#[cfg(test)]
#[allow(clippy::string_slice)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::Transcript;
    use crate::redact::{Redaction, StreamSecrets};

    fn line(session: &str, text: &str) -> String {
        let update =
            json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}});
        json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "update": update}})
            .to_string()
    }

    /// Redacts chunks of sessions one by one, and returns their texts.
    fn texts<'a>(chunks: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
        let (secrets, mut stream) = (Secrets::default(), StreamSecrets::default());
        let text = |(session, text): (&str, &str)| {
            let line = line(session, text);
            let redacted = stream.redact(&secrets, line.as_bytes()).into_owned();
            let json: Value = serde_json::from_slice(&redacted).unwrap();
            json["params"]["update"]["content"]["text"].as_str().unwrap().to_owned()
        };
        chunks.into_iter().map(text).collect()
    }

    fn pieces(text: &str, length: usize) -> Vec<&str> {
        let mut rest = text;
        std::iter::from_fn(|| {
            let (piece, after) = rest.split_at(length.min(rest.len()));
            rest = after;
            (!piece.is_empty()).then_some(piece)
        })
        .collect()
    }

    const KEY: &str = "sk-ant-api03-Ab7dEfGhIjKlMnOpQrStUvWxYz0123456789Ab7dEfGhIjKlMnOpQrStUvWxYz";

    #[test]
    fn a_key_in_pieces_loses_all_after_it_is_recognised() {
        for length in 1..20 {
            let text = format!("Use \"{KEY}\" now. All done.");
            let redacted = texts(pieces(&text, length).into_iter().map(|piece| ("s", piece))).concat();
            assert!(redacted.contains(SECRET), "{length}: {redacted}");
            // The shortest key has 19 characters. The rest of a piece may come with the last of them.
            assert!(!redacted.contains(&KEY[..19 + length]), "{length}: {redacted}");
            assert!(!redacted.contains(&KEY[19 + length..24 + length]), "{length}: {redacted}");
            assert!(redacted.ends_with("\" now. All done."), "{length}: {redacted}");
        }
    }

    #[test]
    fn a_private_key_in_pieces_loses_its_body() {
        let body: Vec<String> =
            (0..30).map(|line| format!("MIIE{line:02}vQIBADANBgkqhkiG9w0BAQEFAASC+/{line:032}")).collect();
        let key = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----", body.join("\n"));
        let text = format!("Here it is:\n{key}\nKeep it well, and do not lose it.");
        for length in [3, 8, 40, 100, 600] {
            let redacted = texts(pieces(&text, length).into_iter().map(|piece| ("s", piece))).concat();
            for line in &body {
                assert!(!redacted.contains(&line[4..]), "{length}: {redacted}");
            }
            assert!(redacted.ends_with("\nKeep it well, and do not lose it."), "{length}: {redacted}");
        }
    }

    #[test]
    fn a_value_after_its_name_and_a_long_token_are_found() {
        assert_eq!(texts([("s", "the password: "), ("s", "'hunter2hunter2' it is")])[1], "'[secret]' it is");
        assert_eq!(texts([("s", "https://me:"), ("s", "hunter2@host/x")])[1], "[secret]@host/x");
        let token = format!("eyJhbGciOiJIUzI1NiJ9.eyJ{}.{}", "a1".repeat(20), "Zz9".repeat(500));
        let redacted = texts(pieces(&token, 7).into_iter().map(|piece| ("s", piece))).concat();
        assert!(!redacted.contains("Zz9Zz9Zz9Zz9"), "{redacted}");
    }

    #[test]
    fn sessions_are_apart_and_other_text_stays() {
        let (one, two) = KEY.split_at(25);
        let redacted = texts([("a", one), ("b", "some words"), ("a", two), ("b", two)]);
        assert_eq!(redacted, ["[secret]", "some words", "[secret]", two]);
        let prose =
            "A key and a token: the secret of https://example.com is that nothing is secret.\n\"Yes\" \\ no";
        for length in [1, 4, 30] {
            assert_eq!(texts(pieces(prose, length).into_iter().map(|piece| ("s", piece))).concat(), prose);
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut chunks = ChunkSecrets::default();
        for session in 0..TEXTS + 5 {
            for text in
                ["sk-abcdefghijklmnop0123", &"x1".repeat(10_000), "-----BEGIN PRIVATE KEY-----\n", "."]
            {
                chunks.redact(&Secrets::default(), line(&format!("s{session}"), text).as_bytes());
            }
        }
        assert_eq!(chunks.texts.len(), TEXTS);
        assert!(chunks.texts.iter().all(|text| text.end.tail.capacity() <= 2 * CAPACITY));
        chunks.redact(&Secrets::default(), line(&"s".repeat(FRAME), "text").as_bytes());
        let update =
            r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"text"},"messageId":"#;
        let long = format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{update}"{}"}}}}}}"#,
            "m".repeat(FRAME)
        );
        chunks.redact(&Secrets::default(), long.as_bytes());
        assert!(chunks.texts.iter().any(|text| text.frame.is_none()));
        let frames = chunks.texts.iter().flat_map(|text| &text.frame);
        assert!(
            frames.map(|frame| frame.before.capacity() + frame.after.capacity()).all(|size| size <= FRAME)
        );
    }

    /// A key that begins at the end of a long piece is found in the next one.
    #[test]
    fn a_long_piece_before_a_key_changes_nothing() {
        let key = format!("AIza{}", "Ab7dE".repeat(7));
        let prose = "This is prose. ".repeat(20);
        for cut in 17..33 {
            let (start, rest) = key.split_at(cut);
            let redacted = texts([("s", format!("{prose}{start}").as_str()), ("s", rest), ("s", " ok")]);
            assert_eq!(redacted[1..], ["[secret]", " ok"], "{cut}");
        }
    }

    /// The start of a long token that is not known to be one yet is kept.
    #[test]
    fn the_signature_of_a_long_token_goes() {
        let payload = "eyJ".to_owned() + &"a1B2c3D4".repeat(200);
        let token = format!("eyJhbGciOiJIUzI1NiJ9.{payload}.{}", "Zz9".repeat(20));
        for length in [1, 5, 100, 700] {
            let redacted = texts(pieces(&token, length).into_iter().map(|piece| ("s", piece))).concat();
            assert!(!redacted.contains("Zz9Zz9") || length == 700, "{length}: {redacted}");
            assert!(redacted.ends_with(SECRET), "{length}: {redacted}");
        }
    }

    /// An encrypted token is known by its dots, however long its parts are.
    #[test]
    fn a_token_with_long_parts_goes() {
        let (header, text) = (format!("eyJ{}", "h1G2".repeat(150)), "c3D4".repeat(300));
        let token = format!("{header}..iv12.{text}.{}", "Zz9".repeat(20));
        for length in [20, 100] {
            let redacted = texts(pieces(&token, length).into_iter().map(|piece| ("s", piece))).concat();
            assert!(!redacted.contains("Zz9Zz9"), "{length}: {redacted}");
        }
    }

    /// A name stands before its value, however long the value is.
    #[test]
    fn a_long_value_goes_with_each_of_its_parts() {
        let parts: Vec<String> = (0..100).map(|number| format!("part{number}=v{number}; ")).collect();
        let redacted =
            texts(["Cookie: "].into_iter().chain(parts.iter().map(String::as_str)).map(|piece| ("s", piece)));
        assert!(redacted[2..].iter().all(|piece| !piece.contains('v')), "{redacted:?}");
    }

    /// Up to [`KEPT`] bytes may stand between the start of a secret and the piece in which it is recognised.
    #[test]
    fn a_long_password_in_a_url_goes() {
        for length in [1, 100, KEPT - 1] {
            let start = format!("https://me:{}", "!".repeat(length));
            assert_eq!(texts([("s", start.as_str()), ("s", "!@host/x")])[1], "[secret]@host/x", "{length}");
        }
    }

    /// A private key goes on behind other text of up to [`SLACK`] bytes.
    #[test]
    fn a_private_key_goes_on_behind_a_gap() {
        let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC0123456789abcdefghijklmnopqrstuv";
        let start = format!("-----BEGIN PRIVATE KEY-----\n{}", [line; 10].join("\n"));
        for (gap, left) in [("\nmore of it now\n", SECRET), ("\nmore of it below\n", line)] {
            assert_eq!(gap.len() <= SLACK, left == SECRET);
            let redacted = texts([("s", start.as_str()), ("s", gap), ("s", line)]);
            assert_eq!(redacted, [SECRET, gap, left]);
        }
    }

    /// A secret beside the text is found in each line.
    #[test]
    fn a_secret_beside_the_text_goes() {
        let line = |text: &str, key: &str| {
            let update = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}, "_meta": {"apiKey": key}});
            json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}})
        };
        let lines = ["one", "two", "three"].map(|text| line(text, "a1b2c3d4e5f6g7h8"));
        assert_eq!(redact_all(&lines), ["one", "two", "three"].map(|text| line(text, SECRET)));
        // It goes together with the rest of another one.
        let (one, two) = KEY.split_at(25);
        let redacted = redact_all(&[line(one, "a1b2c3d4e5f6g7h8"), line(two, "a1b2c3d4e5f6g7h8")]);
        assert_eq!(redacted, [line(SECRET, SECRET), line(SECRET, SECRET)]);
    }

    fn redact_all(lines: &[Value]) -> Vec<Value> {
        let (secrets, mut stream) = (Secrets::default(), StreamSecrets::default());
        let lines = lines.iter().map(Value::to_string);
        let redacted = lines.map(|line| stream.redact(&secrets, line.as_bytes()).into_owned());
        redacted.map(|line| serde_json::from_slice(&line).unwrap()).collect()
    }

    /// A message is known by its session, kind and id, whatever else its chunks carry.
    #[test]
    fn other_members_of_a_chunk_may_change() {
        let (one, two) = KEY.split_at(25);
        let chunk = |text: &str, id: &str, meta: Value| {
            let update = json!({"sessionUpdate": "agent_message_chunk", "_meta": meta, "content": {"type": "text", "text": text}, "messageId": id});
            json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}})
        };
        for metas in [
            [json!({"traceparent": "00-1"}), json!({"traceparent": "00-2"})],
            [json!({"text": "first"}), json!({"text": "second"})],
            [json!({"x": "y".repeat(2 * FRAME)}), json!({"x": "z".repeat(2 * FRAME)})],
        ] {
            let [first, second] = metas;
            let redacted =
                redact_all(&[chunk(one, "m", first), chunk("?", "other", json!(1)), chunk(two, "m", second)]);
            assert_eq!(redacted[2]["params"]["update"]["content"]["text"], SECRET);
        }
        // Many messages may be open at once.
        let id = |number: usize| format!("m{number}");
        let first = (0..TEXTS).map(|at| chunk(one, &id(at), json!({})));
        let second = (0..TEXTS).map(|at| chunk(two, &id(at), json!({})));
        let lines: Vec<_> = first.chain(second).collect();
        let redacted = redact_all(&lines);
        assert!(redacted[TEXTS..].iter().all(|line| line["params"]["update"]["content"]["text"] == SECRET));
    }

    /// The output of a task and of a terminal in `_meta` is text in pieces too.
    #[test]
    fn output_in_pieces_loses_its_keys() {
        let output = |task: &str, chunk: &str| {
            json!({"jsonrpc": "2.0", "method": "_session/notify", "params": {"sessionId": "s", "envelope": {
                "v": 1, "id": "e1", "from": "a", "to": "b", "ts": 1, "kind": "notify", "ref": task,
                "payload": {"topic": "task.output", "data": {"chunk": chunk, "position": 0, "complete": false}}}}})
        };
        let terminal = |id: &str, data: &str| {
            let meta = json!({"terminal_output": {"terminal_id": id, "data": data}});
            let update = json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "_meta": meta});
            json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}})
        };
        for form in [&output as &dyn Fn(&str, &str) -> Value, &terminal] {
            let (one, two) = KEY.split_at(25);
            let lines = [form("t1", one), form("t2", "abc"), form("t1", two), form("t2", "def1")];
            let redacted = redact_all(&lines);
            assert_eq!(redacted[2], form("t1", SECRET));
            assert_eq!((&redacted[1], &redacted[3]), (&lines[1], &lines[3]));
        }
    }

    /// A clear or a prompt ends the messages that it names, and no other text. Redaction of the whole transcript joins
    /// the same pieces.
    #[test]
    fn other_texts_go_on() {
        let (one, two) = KEY.split_at(25);
        let update = |session: &str, update: Value| json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "update": update}});
        let chunk = |session: &str, id: Option<&str>, text: &str| {
            let content = json!({"type": "text", "text": text});
            let mut chunk = json!({"sessionUpdate": "agent_message_chunk", "content": content});
            id.into_iter().for_each(|id| chunk["messageId"] = id.into());
            update(session, chunk)
        };
        let terminal = |data: &str| {
            let meta = json!({"terminal_output": {"terminal_id": "t", "data": data}});
            update("s", json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "_meta": meta}))
        };
        let clear = |session: &str, id: Option<&str>| {
            let mut clear = json!({"sessionUpdate": "agent_message_clear"});
            id.into_iter().for_each(|id| clear["messageId"] = id.into());
            update(session, clear)
        };
        let prompt = |session: &str| json!({"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": {"sessionId": session, "prompt": []}});
        let message = |id: Option<&'static str>| move |text: &str| chunk("s", id, text);
        let (unnamed, named) = (message(None), message(Some("m")));
        type Line<'a> = &'a dyn Fn(&str) -> Value;
        let cases: [(Line<'_>, Value, bool); 11] = [
            (&unnamed, clear("s", None), false),
            (&unnamed, clear("other", None), true),
            (&unnamed, clear("s", Some("m")), true),
            (&unnamed, prompt("s"), false),
            (&unnamed, prompt("other"), true),
            (&named, clear("s", None), false),
            (&named, clear("s", Some("m")), false),
            (&named, clear("s", Some("n")), true),
            (&named, prompt("s"), true),
            (&terminal, clear("s", None), true),
            (&terminal, prompt("s"), true),
        ];
        for (at, (line, between, goes_on)) in cases.into_iter().enumerate() {
            let (secrets, mut stream) = (Secrets::default(), StreamSecrets::default());
            stream.redact(&secrets, line(one).to_string().as_bytes());
            // A prompt of the other side is read only while a text without an id is open.
            let thought = chunk("s", None, "text").to_string().replace("agent_message", "agent_thought");
            stream.redact(&secrets, thought.as_bytes());
            let between = between.to_string();
            if between.contains("prompt") {
                stream.other_side(between.as_bytes());
            } else {
                stream.redact(&secrets, between.as_bytes());
            }
            let last = line(two).to_string();
            let redacted = stream.redact(&secrets, last.as_bytes()).into_owned();
            let expected = line(if goes_on { SECRET } else { two }).to_string();
            assert_eq!(String::from_utf8(redacted).unwrap(), expected, "case {at}");
            let sender = if between.contains("prompt") { '>' } else { '<' };
            let log = format!("< {}\n{sender} {between}\n< {last}\n", line(one));
            let whole = Transcript::import(log.as_bytes()).unwrap().redact(&Redaction::secrets_only());
            let left = whole.records()[2].line().and_then(|line| line.text()).unwrap();
            assert_eq!(left, line(if goes_on { "" } else { two }).to_string(), "case {at}");
        }
    }

    /// A new text takes the place of the one that was used least recently.
    #[test]
    fn the_text_that_was_used_last_is_followed_longest() {
        let (one, two) = KEY.split_at(25);
        let session = |number: usize| format!("s{number}");
        let sessions: Vec<_> = (0..=TEXTS).map(session).collect();
        let mut chunks: Vec<(&str, &str)> =
            sessions.iter().take(TEXTS).map(|session| (session.as_str(), one)).collect();
        // The first one goes on, so that the second one is the oldest.
        chunks.push((&sessions[0], "A"));
        chunks.push((&sessions[TEXTS], one));
        chunks.extend([0, 2, 1].map(|number: usize| (sessions[number].as_str(), two)));
        let redacted = texts(chunks);
        assert_eq!(redacted[TEXTS + 2..], [SECRET, SECRET, two]);
    }

    /// A match of a pattern of one's own may look like any text.
    #[test]
    fn a_pattern_of_ones_own_is_found_in_pieces() {
        let secrets = Secrets::default().pattern(r"room \d{6}").expect("a pattern");
        let mut stream = StreamSecrets::default();
        let mut redact = |text: &str| {
            let line = line("s", text);
            String::from_utf8(stream.redact(&secrets, line.as_bytes()).into_owned()).unwrap()
        };
        assert_eq!(redact("It is in roo"), line("s", "It is in roo"));
        assert_eq!(redact("m 12"), line("s", "m 12"));
        assert_eq!(redact("3456, upstairs"), line("s", "[secret], upstairs"));
        // A secret at the end of a piece goes on with the characters of a key.
        assert_eq!(redact(", not room 123456"), line("s", ", not [secret]"));
        assert_eq!(redact("78 up"), line("s", "[secret] up"));
        assert_eq!(redact("78 up"), line("s", "78 up"));
    }

    /// Texts are joined as `Transcript::redact` joins them.
    #[test]
    fn a_new_message_begins_anew() {
        let (one, two) = KEY.split_at(25);
        let update = |update: Value| json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}});
        let chunk = |kind: &str, text: &str| {
            update(json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}}))
        };
        let (answer, thought) = ("agent_message_chunk", "agent_thought_chunk");
        let clear = update(json!({"sessionUpdate": "agent_message_clear"}));
        let redacted = redact_all(&[chunk(answer, one), clear, chunk(answer, two)]);
        assert_eq!(redacted[2], chunk(answer, two));
        for between in [
            update(json!({"sessionUpdate": "tool_call", "toolCallId": "t", "title": "x"})),
            update(json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "in_progress"})),
            update(json!({"sessionUpdate": "plan", "entries": []})),
            update(
                json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "_meta": {"terminal_output": {"terminal_id": "t", "data": "x"}}}),
            ),
            chunk(thought, "hm"),
        ] {
            let redacted = redact_all(&[chunk(answer, one), between, chunk(answer, two)]);
            assert_eq!(redacted[2], chunk(answer, SECRET));
        }
        // The last of two members with the same name counts.
        let twice = |text: &str| {
            let line = chunk(answer, text).to_string();
            line.replace(
                r#""sessionUpdate""#,
                r#""_meta":1,"messageId":"n","_meta":{},"messageId":"m","sessionUpdate""#,
            )
        };
        let (secrets, mut stream) = (Secrets::default(), StreamSecrets::default());
        stream.redact(&secrets, twice(one).as_bytes());
        assert_eq!(stream.redact(&secrets, twice(two).as_bytes()), twice(SECRET).as_bytes());
        let (secrets, mut stream) = (Secrets::default(), StreamSecrets::default());
        let mut redact = |line: Value| stream.redact(&secrets, line.to_string().as_bytes()).into_owned();
        redact(chunk(answer, one));
        let prompt = json!({"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": {"sessionId": "s", "prompt": []}});
        stream.other_side(prompt.to_string().as_bytes());
        let line = chunk(answer, two).to_string();
        assert_eq!(stream.redact(&secrets, line.as_bytes()), line.as_bytes());
    }
}
