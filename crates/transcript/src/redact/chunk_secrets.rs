//! Removal of secrets from messages that are streamed in chunks, each of which is written before the next one is
//! known. The part of a secret that came before it was recognised stays.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::json_scan::Edits;
use super::secret_patterns::{self, SECRET};
use super::secrets::Secrets;
use super::split_text;

/// The number of messages of one side that are followed.
const MESSAGES: usize = 8;

/// The bytes of a message's text that are kept, before and after the start of a secret that has not ended.
const KEPT: usize = 256;

/// The bytes after a secret in which it may go on.
const SLACK: usize = 16;

/// The longest line without its text that is followed, in bytes.
const FRAME: usize = 1024;

static CHUNK: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"_chunk\""));
static TEXT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"text\""));

/// The messages of one side that may get further chunks, the latest first.
#[derive(Debug, Default)]
pub(super) struct ChunkSecrets {
    messages: Vec<OpenMessage>,
}

/// A message, known by the bytes around its text: they contain its session, its kind and its id.
#[derive(Debug, Default)]
struct OpenMessage {
    before: Vec<u8>,
    after: Vec<u8>,
    /// The end of its text.
    text: Vec<u8>,
    /// The bytes for which the text is searched, after something that may begin a secret.
    watched: usize,
    /// True if the text ended within a secret.
    open: bool,
}

impl ChunkSecrets {
    /// Removes the parts of secrets that began in an earlier chunk. Returns `None` if there are none.
    pub(super) fn redact(&mut self, secrets: &Secrets, line: &[u8]) -> Option<Vec<u8>> {
        let place = text_place(line)?;
        let (before, after) = (line.get(..place.start)?, line.get(place.end..)?);
        if before.len() + after.len() > FRAME {
            return None;
        }
        let text = decoded(line.get(place.clone())?);
        let message = self.message(before, after)?;
        let known = message.text.len();
        message.text.extend_from_slice(&text);
        let new = message.text.get(known.saturating_sub(secret_patterns::REACH)..).unwrap_or_default();
        if secrets.has_own()
            || secret_patterns::suspicious(new)
            || memchr::memmem::find(new, b"://").is_some()
        {
            message.watched = KEPT;
        } else if message.watched == 0 {
            message.forget(None);
            return None;
        }
        message.watched = message.watched.saturating_sub(text.len());
        let found = message.search(secrets, known);
        if found.is_empty() {
            return None;
        }
        let chunk = split_text::chunk(std::str::from_utf8(line).ok()?)?;
        if chunk.whole().start != place.start || chunk.text.as_bytes() != text.as_ref() {
            return None;
        }
        let mut edits = Edits::default();
        found.into_iter().for_each(|part| edits.replace(chunk.span(part), SECRET));
        Some(edits.apply(line))
    }

    /// Returns the message with these bytes around its text. The oldest one is forgotten for a new one.
    fn message(&mut self, before: &[u8], after: &[u8]) -> Option<&mut OpenMessage> {
        let known =
            self.messages.iter().position(|message| message.before == before && message.after == after);
        match known {
            Some(known) => {
                self.messages.get_mut(..=known).into_iter().for_each(|known| known.rotate_right(1))
            }
            None => {
                self.messages.truncate(MESSAGES - 1);
                let message =
                    OpenMessage { before: before.into(), after: after.into(), ..OpenMessage::default() };
                self.messages.insert(0, message);
            }
        }
        self.messages.first_mut()
    }
}

impl OpenMessage {
    /// Returns the parts of the new text, which starts at `known`, that belong to a secret.
    fn search(&mut self, secrets: &Secrets, known: usize) -> Vec<Range<usize>> {
        let mut edits = Edits::default();
        secrets.find(&self.text, |span| edits.replace(span, SECRET));
        let new = self.text.get(known..).unwrap_or_default();
        if self.open {
            let rest = rest_of_key(new);
            if rest > 0 {
                edits.replace(known..known + rest, SECRET);
            }
        }
        let end = self.text.len();
        let mut last = None;
        let mut found = Vec::new();
        self.open = false;
        for (span, _) in edits.merged() {
            self.open = span.end == end;
            // The next line of a private key may follow.
            if end - span.end <= SLACK {
                last = Some(span.start);
            }
            if span.end > known && span.start < span.end {
                found.push(span.start.max(known) - known..span.end - known);
            }
        }
        if last.is_some() {
            self.watched = KEPT;
        }
        self.forget(last);
        found
    }

    /// Drops text that is not needed to recognise a secret, such as the middle of one that started at `open`.
    fn forget(&mut self, open: Option<usize>) {
        if self.text.len() <= 2 * KEPT {
            return;
        }
        let tail = self.text.len() - KEPT;
        match open {
            Some(start) => {
                // The name of the secret may stand before it.
                let start = start.saturating_sub(KEPT / 2);
                self.text.drain((start + KEPT).min(tail)..tail);
                self.text.drain(..start.min(tail));
            }
            None => _ = self.text.drain(..tail),
        }
    }
}

/// Returns the number of bytes at the start of a text that go on with a key.
fn rest_of_key(text: &[u8]) -> usize {
    let in_key = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=_.~%-".contains(byte);
    let rest = text.iter().position(|byte| !in_key(byte)).unwrap_or(text.len());
    // A full stop ends a sentence.
    let last = text.get(..rest).and_then(|rest| rest.iter().rposition(u8::is_ascii_alphanumeric));
    last.map_or(0, |last| if text.get(last + 1..rest) == Some(b".") { last + 1 } else { rest })
}

/// Returns the place of the text of a chunk, without its quotes.
fn text_place(line: &[u8]) -> Option<Range<usize>> {
    CHUNK.find(line)?;
    let start = TEXT.find_iter(line).find_map(|at| {
        let (name, after) =
            (at + b"\"text\"".len(), |at: usize| line.get(at..).map(<[u8]>::trim_ascii_start));
        let value = after(name)?.strip_prefix(b":")?.trim_ascii_start().strip_prefix(b"\"")?;
        Some(line.len() - value.len())
    })?;
    let mut end = start;
    loop {
        end += memchr::memchr2(b'"', b'\\', line.get(end..)?)?;
        if line.get(end) == Some(&b'"') {
            return Some(start..end);
        }
        end += 2;
    }
}

/// Decodes the escapes of a string.
fn decoded(spelled: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', spelled).is_none() {
        return Cow::Borrowed(spelled);
    }
    let quoted = [b"\"", spelled, b"\""].concat();
    serde_json::from_slice::<String>(&quoted).map_or(Cow::Borrowed(spelled), |text| text.into_bytes().into())
}

#[cfg(test)]
#[allow(clippy::string_slice)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::redact::StreamSecrets;

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
        for session in 0..100 {
            for text in ["sk-abcdefghijklmnop0123", &"x1".repeat(10_000), "-----BEGIN PRIVATE KEY-----\n"] {
                chunks.redact(&Secrets::default(), line(&format!("s{session}"), text).as_bytes());
            }
        }
        assert_eq!(chunks.messages.len(), MESSAGES);
        assert!(chunks.messages.iter().all(|message| message.text.len() <= 3 * KEPT));
        chunks.redact(&Secrets::default(), line(&"s".repeat(FRAME), "text").as_bytes());
        assert!(chunks.messages.iter().all(|message| message.before.len() + message.after.len() <= FRAME));
    }
}
