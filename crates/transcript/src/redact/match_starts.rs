//! A filter in front of a regular expression. The expression takes a byte after the other, each of which waits for the
//! one before. The filter looks at many bytes at once, and nearly every text needs nothing else.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::literal::Extractor;

/// The number of bits in a hash of them.
const HASH_BITS: u32 = 16;

/// The number of words with a bit for each hash.
const WORDS: usize = 1 << (HASH_BITS - u64::BITS.ilog2());

/// The most starts of matches. With many times as many the filter would stop at every text.
const MOST: usize = 2_000;

/// The hashes of the first bytes of each match of a regular expression. A text without any of them has no match.
#[derive(Debug)]
pub(super) struct MatchStarts {
    words: Box<[u64; WORDS]>,
}

impl MatchStarts {
    /// The number of bytes at the start of a match that the filter knows.
    pub(super) const LENGTH: usize = 3;

    /// Returns `None` if matches start in too many ways, or have one byte.
    pub(super) fn of(pattern: &str) -> Option<Self> {
        let pattern = ParserBuilder::new().utf8(false).build().parse(pattern).ok()?;
        let mut extractor = Extractor::new();
        let found =
            extractor.limit_literal_len(Self::LENGTH).limit_class(64).limit_total(MOST).extract(&pattern);
        let mut starts = MatchStarts { words: Box::new([0; WORDS]) };
        for start in found.literals()? {
            match *start.as_bytes() {
                [a, b, c] => starts.add([a, b, c]),
                [a, b] => (0..=u8::MAX).for_each(|c| starts.add([a, b, c])),
                _ => return None,
            }
        }
        Some(starts)
    }

    fn add(&mut self, [a, b, c]: [u8; Self::LENGTH]) {
        let (word, bit) = place([a, b, c, 0]);
        self.words[word] |= bit;
    }

    /// Returns a place that no match starts before; `None` if there is no match.
    pub(super) fn find(&self, text: &[u8]) -> Option<usize> {
        // The last match may have fewer bytes than are compared.
        let end = text.len().saturating_sub(Self::LENGTH);
        let mut last = [0; 2 * Self::LENGTH];
        last.iter_mut().zip(text.get(end..)?).for_each(|(to, from)| *to = *from);
        self.first(text).or_else(|| self.first(&last).map(|start| end + start))
    }

    fn first(&self, text: &[u8]) -> Option<usize> {
        let is_start = |bytes| {
            let (word, bit) = place(bytes);
            self.words[word] & bit != 0
        };
        // A load has four bytes.
        text.windows(4).position(|bytes| <[u8; 4]>::try_from(bytes).is_ok_and(is_start))
    }
}

/// Returns the index of the word and the bit of the first three bytes. Upper and lower case have one place.
fn place(bytes: [u8; 4]) -> (usize, u64) {
    let folded = u32::from_le_bytes(bytes) & 0xFF_FF_FF | 0x20_20_20;
    let hash = folded.wrapping_mul(0x9E37_79B1) >> (u32::BITS - HASH_BITS);
    (hash as usize / 64, 1 << (hash % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_start_is_found() {
        let starts = MatchStarts::of(r"(?-u)key|(?i:to)ken|\xC2\xAD|gh[pous]_").unwrap();
        for (text, at) in [
            ("a key", Some(2)),
            ("tOken", Some(0)),
            ("xghs", Some(1)),
            ("\u{ad}", Some(0)),
            ("-\u{ad}x", Some(1)),
            ("k-y to_ ken", None),
            ("ke", None),
            ("", None),
        ] {
            assert_eq!(starts.find(text.as_bytes()), at, "{text:?}");
        }
    }

    #[test]
    fn matches_that_start_in_any_way_have_no_filter() {
        for pattern in ["(?-u).+", "(?-u)a", "(?-u)ab|", "(?-u)[^x][^y][^z]", "("] {
            assert!(MatchStarts::of(pattern).is_none(), "{pattern}");
        }
    }
}
