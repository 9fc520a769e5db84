//! Removal of secrets from a stream of lines, each of which is written before the next one is known. Finds private
//! keys over several lines and secrets over several chunks, and skips the unchanged parts of similar messages.

use std::borrow::Cow;

use super::chunk_secrets::{ChunkSecrets, PieceOutcome};
use super::json_scan::Edits;
use super::secret_patterns::{self, SECRET};
use super::secrets::Secrets;
use crate::terminal_text;

/// The number of other lines that may separate two parts of a key.
const PATIENCE: u8 = 4;

/// The longest message that is kept for comparison, in bytes.
const REMEMBERED: usize = 1024;

/// Removes secrets from the lines of one side, each of which is passed on before the next one is known.
///
/// A secret that is split over pieces of a text loses only the pieces after the one in which it is recognised.
///
/// ```
/// use duologue_transcript::{Secrets, StreamSecrets};
///
/// let (secrets, mut stream) = (Secrets::default(), StreamSecrets::default());
/// let line = br#"{"api_key":"sk-proj-0123456789abcdefghij"}"#;
/// assert_eq!(stream.redact(&secrets, line).as_ref(), br#"{"api_key":"[secret]"}"#);
/// ```
#[derive(Debug, Default)]
pub struct StreamSecrets {
    /// The number of lines that may come before the next part of the key; 0 outside of a key.
    patience: u8,
    /// The last message without anything suspicious.
    clean: Vec<u8>,
    /// The texts that come in pieces.
    chunks: ChunkSecrets,
}

impl StreamSecrets {
    /// Removes the secrets from the next line, without its end.
    pub fn redact<'a>(&mut self, secrets: &Secrets, line: &'a [u8]) -> Cow<'a, [u8]> {
        // A message is complete, and may stand between the lines of other output.
        if line.trim_ascii_start().starts_with(b"{") {
            return match self.chunks.redact(secrets, line) {
                PieceOutcome::Redacted(redacted) => Cow::Owned(secrets.redact(&redacted).into_owned()),
                PieceOutcome::Clean if !secrets.has_own() => Cow::Borrowed(line),
                _ if secrets.has_own() || self.suspicious(line) || terminal_text::is_in(line) => {
                    secrets.redact(line)
                }
                _ => Cow::Borrowed(line),
            };
        }
        let mut edits = Edits::default();
        if self.patience > 0 {
            self.go_on(line, &mut edits);
        }
        let mut cut_off = false;
        secret_patterns::private_keys(line, |key| cut_off = key.end.is_none());
        if cut_off {
            self.patience = PATIENCE;
        }
        if edits.is_empty() {
            return secrets.redact(line);
        }
        Cow::Owned(secrets.redact(&edits.apply(line)).into_owned())
    }

    /// Notes the next line of the other side: a prompt ends the messages without an id.
    pub fn other_side(&mut self, line: &[u8]) {
        self.chunks.other_side(line);
    }

    /// Returns true if a message may contain a secret. In a stream most of each message is equal to the one before,
    /// and is not checked again.
    fn suspicious(&mut self, line: &[u8]) -> bool {
        let new = line.get(secret_patterns::unlike(&self.clean, line)).unwrap_or_default();
        let suspicious = secret_patterns::suspicious(new);
        if !suspicious && line.len() <= REMEMBERED {
            self.clean.clear();
            self.clean.extend_from_slice(line);
        }
        suspicious
    }

    fn go_on(&mut self, line: &[u8], edits: &mut Edits) {
        if let Some(end) = secret_patterns::end_of_private_key(line) {
            edits.replace(0..end, SECRET);
            self.patience = 0;
            return;
        }
        self.patience -= 1;
        secret_patterns::parts_of_key(line, |part| {
            edits.replace(part, SECRET);
            self.patience = PATIENCE;
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_goes_line_by_line() {
        let mut lines = StreamSecrets::default();
        let mut check = |line: &str, expect: &str| {
            let redacted = lines.redact(&Secrets::default(), line.as_bytes()).into_owned();
            assert_eq!(String::from_utf8(redacted).unwrap(), expect);
        };
        check("abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz");
        check("10:00 -----BEGIN RSA PRIVATE KEY-----", "10:00 [secret]");
        check("10:00 Proc-Type: 4,ENCRYPTED", "10:00 Proc-Type: 4,ENCRYPTED");
        check("", "");
        check("10:00 MIIEvQIBADANBgkqhkiG9w0BAQEFAASC+/", "10:00 [secret]");
        let message = r#"{"text":"abcdefghijklmnopqrstuvwxyz -----BEGIN PRIVATE KEY-----"}"#;
        check(message, &message.replace("-----BEGIN PRIVATE KEY-----", "[secret]"));
        let message = r#"{"text":"abcdefghijklmnopqrstuvwxyz"}"#;
        check(&format!("  {message}"), &format!("  {message}"));
        check("AQ==", "[secret]");
        check("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC+/ password: hunter2", "[secret] password: [secret]");
        check("-----END RSA PRIVATE KEY----- done", "[secret] done");
        check("abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz");
        // This key never ends.
        check("no `-----BEGIN PRIVATE KEY-----` in it:", "no `[secret]` in it:");
        for _ in 0..PATIENCE {
            check("some words about it", "some words about it");
        }
        check("abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz");
        check(
            "-----BEGIN PRIVATE KEY-----\\nMIIE\\n-----END PRIVATE KEY----- abcdefghijklmnopqrstuvwxyz",
            "[secret] abcdefghijklmnopqrstuvwxyz",
        );
        check("abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz");
    }

    /// A message is compared with the last one without a secret, which is short.
    #[test]
    fn a_secret_goes_each_time() {
        let (secrets, mut stream) = (Secrets::default(), StreamSecrets::default());
        let line = |text: &str| format!(r#"{{"method":"a","text":"{text}"}}"#);
        for text in ["words", "sk-abcdefghijklmnop0123", "sk-abcdefghijklmnop0123", "words"] {
            let redacted = stream.redact(&secrets, line(text).as_bytes()).into_owned();
            let expected = line(if text == "words" { text } else { SECRET });
            assert_eq!(String::from_utf8(redacted).unwrap(), expected);
        }
        stream.redact(&secrets, line(&"words ".repeat(REMEMBERED)).as_bytes());
        assert!(!stream.clean.is_empty() && stream.clean.capacity() <= REMEMBERED);
    }

    /// A pattern of one's own may match a line in which nothing else is suspicious.
    #[test]
    fn patterns_of_ones_own_are_searched_in_each_line() {
        let (secrets, mut stream) =
            (Secrets::default().pattern(r"ACME-\d+").unwrap(), StreamSecrets::default());
        let chunk = |text: &str, id: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}},"_meta":{{"from":"{id}"}}}}}}}}"#
            )
        };
        let other = |id: &str| format!(r#"{{"method":"a","text":"{id}"}}"#);
        for _ in 0..2 {
            let forms: [&dyn Fn(&str) -> String; 3] =
                [&|id| chunk("one", id), &|id| chunk("two", id), &other];
            for form in forms {
                let redacted = stream.redact(&secrets, form("ACME-42").as_bytes()).into_owned();
                assert_eq!(String::from_utf8(redacted).unwrap(), form(SECRET));
            }
        }
    }

    /// Generates texts whose parts are secret only together.
    fn words() -> impl Strategy<Value = String> {
        let word = prop::sample::select(vec![
            "The ",
            "sk-",
            "abcdefghijklmnop0123",
            "ghp_",
            "to",
            "ken=",
            "Bearer ",
            "pass",
            "word: ",
            "https:",
            "//me",
            ":hunter2",
            "@host",
            "\\u00",
            "73k-",
            "-----BEGIN PRIV",
            "ATE KEY-----",
            "MIIE",
            "\\\"",
            "eyJ",
            ".",
            "env",
        ]);
        prop::collection::vec(word, 0..5).prop_map(|words| words.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 300, ..Default::default() })]

        /// The message before makes no difference.
        #[test]
        fn a_message_is_redacted_alike_alone_and_behind_others(
            messages in prop::collection::vec((prop::sample::select(vec!["", "agent_message_chunk", "authenticate"]), words()), 1..20),
        ) {
            let (secrets, mut lines) = (Secrets::default(), StreamSecrets::default());
            for (method, text) in messages {
                let line = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"sessionId":"s","text":"{text}"}},"messageId":"8724c388-e3c6-4303-927d-e8674b0d4afa"}}"#);
                let alone = secrets.redact(line.as_bytes());
                prop_assert_eq!(lines.redact(&secrets, line.as_bytes()), alone);
            }
        }

        /// The chunk before makes no difference to the secrets that a chunk has of its own.
        #[test]
        fn a_chunk_keeps_no_secret_behind_others(
            chunks in prop::collection::vec((prop::sample::select(vec![r#""sessionId":"s""#, r#""apiKey":"a1b2c3d4e5f6g7h8""#]), words()), 1..20),
        ) {
            let (secrets, mut lines) = (Secrets::default(), StreamSecrets::default());
            for (other, text) in chunks {
                let line = format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{{{other},"update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}}}}}"#);
                let redacted = lines.redact(&secrets, line.as_bytes());
                prop_assert_eq!(secrets.redact(&redacted), &*redacted);
            }
        }
    }
}
