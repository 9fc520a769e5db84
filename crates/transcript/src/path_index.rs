//! Search for known paths in a text, in time that does not depend on their number.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

/// Values by path. [`find`](Self::find) takes as long for ten thousand paths as for ten.
#[derive(Clone, Debug)]
pub(crate) struct PathIndex<V> {
    paths: BTreeMap<Vec<u8>, V>,
}

impl<V> Default for PathIndex<V> {
    fn default() -> Self {
        PathIndex { paths: BTreeMap::new() }
    }
}

impl<V> PathIndex<V> {
    /// Returns the value of a path, after inserting one if there is none. A path starts with `/`, a drive letter
    /// or `[`.
    pub(crate) fn get_or_insert_with(&mut self, path: &str, make: impl FnOnce() -> V) -> &mut V {
        self.paths.entry(path.into()).or_insert_with(make)
    }

    /// Calls `found` with each known path that stands alone in the text. Paths that start at the same
    /// place come longest first.
    pub(crate) fn find<'i>(&'i self, text: &[u8], mut found: impl FnMut(Range<usize>, &'i V)) {
        if self.paths.is_empty() {
            return;
        }
        for at in memchr::memchr3_iter(b'/', b'[', b':', text) {
            let start = match (text.get(at), at.checked_sub(1)) {
                (Some(b':'), Some(drive)) if text.get(drive).is_some_and(u8::is_ascii_alphanumeric) => drive,
                (Some(b':'), _) => continue,
                _ => at,
            };
            if !begins(text, start) {
                continue;
            }
            self.prefixes(text.get(start..).unwrap_or_default(), |length, value| {
                let span = start..start + length;
                if ends(text, span.end) {
                    found(span, value);
                }
            });
        }
    }

    /// Calls `found` with the length of each known path that `text` starts with, longest first.
    fn prefixes<'i>(&'i self, text: &[u8], mut found: impl FnMut(usize, &'i V)) {
        let mut longest = text.len();
        loop {
            #[cfg(test)]
            crate::steps::count();
            let limit = text.get(..longest).unwrap_or_default();
            // The greatest path up to `limit` either is its longest prefix or shares one with it.
            let below = self.paths.range::<[u8], _>((Bound::Unbounded, Bound::Included(limit))).next_back();
            let Some((path, value)) = below else { return };
            let common = path.iter().zip(limit).take_while(|(a, b)| a == b).count();
            longest = common;
            if common == path.len() {
                found(common, value);
                let Some(shorter) = common.checked_sub(1) else { return };
                longest = shorter;
            }
        }
    }
}

/// Returns true if the text in `span` is a whole folder and not a part of another name.
pub(crate) fn stands_alone(text: &[u8], span: &Range<usize>) -> bool {
    begins(text, span.start) && ends(text, span.end)
}

/// Returns true if an absolute path can begin here: neither inside another path nor after a placeholder.
fn begins(text: &[u8], at: usize) -> bool {
    let before = text.get(..at).unwrap_or_default();
    match before {
        [] => true,
        [.., b':', b'/', b'/'] => true,
        // JSON inside a string.
        [.., b'\\', b'n' | b't' | b'r'] => true,
        [.., last] => {
            let joined = matches!(last, b'/' | b'\\' | b'_' | b'-' | b'.' | b'~' | b'*' | b']' | b'}' | b')');
            !joined && !is_letter(*last)
        }
    }
}

/// Returns true if a component of a path ends here.
fn ends(text: &[u8], at: usize) -> bool {
    match text.get(at..).unwrap_or_default() {
        [b'.', next, ..] => !is_letter(*next) && !matches!(next, b'_' | b'.' | b'-'),
        [next, ..] => !is_letter(*next) && !matches!(next, b'_' | b'-' | b'@' | b'+' | b'~' | b'%'),
        [] => true,
    }
}

/// Returns true for a digit and for a letter of any script.
fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80
}

/// Returns the spellings of a folder in a text: as it is, as in a URI, and for Windows with slashes and
/// as in JSON inside a string. Some may be equal.
pub(crate) fn spellings(path: &str) -> [String; 4] {
    let windows = matches!(path.as_bytes(), [drive, b':', ..] if drive.is_ascii_alphabetic());
    let slashes = |slash| if windows { path.replace('\\', slash) } else { path.to_owned() };
    [path.to_owned(), percent_encoded(path), slashes("/"), slashes("\\\\")]
}

fn percent_encoded(path: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~:@+".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// The index finds the same paths as a search for each of them.
        #[test]
        fn all_paths_are_found(
            paths in prop::collection::vec("/[ab/ ]{0,4}|C:[/ab]{0,3}|\\[[a-]{1,2}\\]", 1..6),
            text in "[ab/ :.C\\[\\]-]{0,40}",
        ) {
            let mut index = PathIndex::default();
            let mut expected = Vec::new();
            for path in &paths {
                index.get_or_insert_with(path, || path.clone());
                for start in 0..text.len() {
                    let span = start..start + path.len();
                    let alone = text.as_bytes()[start..].starts_with(path.as_bytes()) && stands_alone(text.as_bytes(), &span);
                    if alone && !expected.contains(&(span.clone(), path.clone())) {
                        expected.push((span, path.clone()));
                    }
                }
            }
            let mut found = Vec::new();
            index.find(text.as_bytes(), |span, path| found.push((span, path.clone())));
            let key = |(span, path): &(Range<usize>, String)| (span.start, span.end, path.clone());
            found.sort_by_key(key);
            expected.sort_by_key(key);
            prop_assert_eq!(found, expected);
        }
    }
}
