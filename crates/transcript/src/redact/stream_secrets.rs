//! Lines as they come to a recorder, which has to write each before it sees the next: private keys that go over
//! several, and messages that are like the one before.

use std::borrow::Cow;

use super::json_scan::Edits;
use super::secret_patterns::{self, SECRET};
use super::secrets::Secrets;

/// So many lines in a row can stand between the beginning of a key, or a part of it, and the next part.
const PATIENCE: u8 = 4;

/// A line of more bytes is not remembered.
const REMEMBERED: usize = 1024;

/// One stream of lines, and whether it is within a private key.
#[derive(Debug, Default)]
pub(crate) struct StreamSecrets {
    /// How many lines may still come before the next part of the key; 0 outside of one.
    patience: u8,
    /// The last message in which nothing was suspicious.
    clean: Vec<u8>,
}

impl StreamSecrets {
    /// The next line without its secrets.
    pub(crate) fn redact<'a>(&mut self, secrets: &Secrets, line: &'a [u8]) -> Cow<'a, [u8]> {
        // A message is whole, and stands among whatever else is written.
        if line.trim_ascii_start().starts_with(b"{") {
            return if secrets.has_own() || self.suspicious(line) {
                secrets.redact(line)
            } else {
                Cow::Borrowed(line)
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

    /// Whether anything may be found in a message. In a stream of them, most of each is as it was in the one before,
    /// and is not looked at again.
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
        check("AQ==", "[secret]");
        check("-----END RSA PRIVATE KEY----- done", "[secret] done");
        check("abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz");
        // It never ends.
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

    /// What a message says, in pieces of which some are secret only together.
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
        ]);
        prop::collection::vec(word, 0..5).prop_map(|words| words.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1_000, ..Default::default() })]

        /// What is known of the message before changes nothing.
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
    }
}
