//! The output of terminals that an agent of protocol version 2 runs: bytes in base64.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem::Finder;

use crate::redact::json_scan::{Edits, PathStep};

/// The kind of an update with a further piece of the output.
pub(crate) const OUTPUT_CHUNK: &str = "terminal_output_chunk";

/// The kind of an update with the whole output.
pub(crate) const OUTPUT_UPDATE: &str = "terminal_update";

/// Decodes output; `None` if it is not base64.
pub(crate) fn decoded(data: &str) -> Option<Vec<u8>> {
    #[cfg(test)]
    data.bytes().for_each(|_| crate::steps::count());
    STANDARD.decode(data).ok()
}

/// Encodes output.
pub(crate) fn encoded(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Returns true for the path of output in a line. `path` has the names of its members.
fn is_output(path: &[PathStep<'_>]) -> bool {
    let mut names = path.iter().map(|step| step.member.as_deref());
    names.next() == Some(Some("params"))
        && names.next() == Some(Some("update"))
        && matches!(
            (names.next(), names.next(), names.next()),
            (Some(Some("data")), None, _) | (Some(Some("output")), Some(Some("data")), None)
        )
}

/// Applies `rules` to the output of a terminal at a path of a line. Returns the new base64, if it changes.
pub(crate) fn redacted(
    path: &[PathStep<'_>],
    data: &str,
    rules: impl FnOnce(&[u8], &mut Edits),
) -> Option<String> {
    if !is_output(path) {
        return None;
    }
    let bytes = decoded(data)?;
    let mut edits = Edits::default();
    rules(&bytes, &mut edits);
    (!edits.is_empty()).then(|| encoded(&edits.apply(&bytes)))
}

/// Returns true if a line may have output of a terminal.
pub(crate) fn is_in(line: &[u8]) -> bool {
    static KIND: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"terminal_"));
    KIND.find(line).is_some()
}

/// Appends a piece to output. Returns false, and changes nothing, if the piece or the end of the output is not base64.
pub(crate) fn append(output: &mut String, piece: &str) -> bool {
    // Only the last group of characters may have padding. Decoding the whole output for each piece would be quadratic.
    const GROUP: usize = 4;
    let whole = output.len().saturating_sub(GROUP);
    let (Some(end), Some(piece)) = (output.get(whole..).and_then(decoded), decoded(piece)) else {
        return false;
    };
    output.truncate(whole);
    output.push_str(&encoded(&[end, piece].concat()));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_length_are_appended() {
        let text = b"The output of a terminal.";
        for first in 0..text.len() {
            for second in first..text.len() {
                let mut output = encoded(&text[..first]);
                assert!(append(&mut output, &encoded(&text[first..second])));
                assert!(append(&mut output, &encoded(&text[second..])));
                assert_eq!(output, encoded(text), "{first} {second}");
            }
        }
        for (first, second) in
            [("Zm9v", "?"), ("Zm9v", "Zg"), ("Zg", "Zm9v"), ("Zm9v?", "Zm9v"), ("é€", "Zm9v")]
        {
            let mut output = first.to_owned();
            assert!(!append(&mut output, second));
            assert_eq!(output, first);
        }
    }
}
