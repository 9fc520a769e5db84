//! Private keys that come line by line, to a recorder that has to write each before it sees the next.

use std::borrow::Cow;

use super::scan::Edits;
use super::secrets::Secrets;
use super::shapes::{self, SECRET};

/// So many lines in a row can stand between the beginning of a key, or a part of it, and the next part.
const PATIENCE: u8 = 4;

/// One stream of lines, and whether it is within a private key.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// How many lines may still come before the next part of the key; 0 outside of one.
    patience: u8,
}

impl Lines {
    /// The next line without its secrets.
    pub(crate) fn redact<'a>(&mut self, secrets: &Secrets, line: &'a [u8]) -> Cow<'a, [u8]> {
        // A message is whole, and stands among whatever else is written.
        if line.trim_ascii_start().starts_with(b"{") {
            return secrets.redact(line);
        }
        let mut edits = Edits::default();
        if self.patience > 0 {
            self.go_on(line, &mut edits);
        }
        let mut cut_off = false;
        shapes::private_keys(line, |key| cut_off = key.end.is_none());
        if cut_off {
            self.patience = PATIENCE;
        }
        if edits.is_empty() {
            return secrets.redact(line);
        }
        Cow::Owned(secrets.redact(&edits.apply(line)).into_owned())
    }

    fn go_on(&mut self, line: &[u8], edits: &mut Edits) {
        if let Some(end) = shapes::end_of_private_key(line) {
            edits.replace(0..end, SECRET);
            self.patience = 0;
            return;
        }
        self.patience -= 1;
        shapes::parts_of_key(line, |part| {
            edits.replace(part, SECRET);
            self.patience = PATIENCE;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_line_by_line() {
        let mut lines = Lines::default();
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
}
