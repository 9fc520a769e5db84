//! Keeps the end of a program's output as text.

use std::collections::VecDeque;

/// Keeps the last characters of a stream of bytes, at most `limit` bytes. Invalid UTF-8 becomes U+FFFD,
/// independent of the pieces in which the stream arrives.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputTail {
    limit: usize,
    /// Whole characters. The capacity never exceeds the limit, because an agent can have many programs.
    text: VecDeque<u8>,
    /// The beginning of an incomplete character, at most three bytes.
    partial: Vec<u8>,
    truncated: bool,
}

impl OutputTail {
    /// Creates an empty tail of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        OutputTail { limit, text: VecDeque::new(), partial: Vec::new(), truncated: false }
    }

    /// Appends the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut input = std::mem::take(&mut self.partial);
        input.extend_from_slice(bytes);
        let mut text = String::with_capacity(input.len());
        let mut chunks = input.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            let unfinished = || std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if chunks.peek().is_none() && unfinished() {
                self.partial = invalid.to_owned();
            } else if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.keep(&text);
    }

    /// Ends the stream. An incomplete character becomes U+FFFD.
    pub fn finish(&mut self) {
        if !std::mem::take(&mut self.partial).is_empty() {
            self.keep("\u{fffd}");
        }
    }

    /// Returns the text, and true if some text was dropped.
    #[must_use]
    pub fn text(&self) -> (String, bool) {
        self.end(usize::MAX)
    }

    /// Returns the last whole characters of the text in at most `bytes` bytes, and true if there was text before them.
    #[must_use]
    pub fn end(&self, bytes: usize) -> (String, bool) {
        let start = self.text.len().saturating_sub(bytes);
        let (front, back) = self.text.as_slices();
        let back = back.get(start.saturating_sub(front.len())..).unwrap_or_default();
        let end = [front.get(start..).unwrap_or_default(), back].concat();
        // Only whole characters are added and removed, so this changes a text that is cut here alone.
        let cut = end.iter().take_while(|byte| **byte & 0xc0 == 0x80).count();
        let text = String::from_utf8_lossy(end.get(cut..).unwrap_or_default()).into_owned();
        (text, self.truncated || start > 0)
    }

    fn keep(&mut self, text: &str) {
        let surplus = (self.text.len() + text.len()).saturating_sub(self.limit);
        let dropped = surplus.min(self.text.len());
        self.text.drain(..dropped);
        let text = text.as_bytes().get(surplus - dropped..).unwrap_or_default();
        let length = self.text.len() + text.len();
        if length > self.text.capacity() {
            // Without this, the capacity could become twice the limit.
            let room = (2 * self.text.capacity()).clamp(length, self.limit);
            self.text.reserve_exact(room - self.text.len());
        }
        self.text.extend(text);
        if surplus > 0 {
            self.truncated = true;
            while self.text.front().is_some_and(|byte| byte & 0xc0 == 0x80) {
                self.text.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::OutputTail;

    /// Returns the number of cases. A campaign sets it.
    fn runs(default: u32) -> u32 {
        std::env::var("DUOLOGUE_RUNS")
            .map_or(default, |runs| runs.replace('_', "").parse().expect("a number"))
    }

    /// Generates output of programs: text, text cut inside of characters, and arbitrary bytes.
    fn output() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            "[a-z\u{1b}\r\n]{0,8}".prop_map(String::into_bytes),
            "\\PC{0,6}".prop_map(String::into_bytes),
            ("[é€𝄞\u{301}]", 0..4usize).prop_map(|(text, cut)| { text.bytes().take(cut).collect() }),
            vec(any::<u8>(), 0..6),
        ];
        vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    /// Returns the expected tail, computed in a simple way.
    fn expected(bytes: &[u8], limit: usize) -> (String, bool) {
        let whole = String::from_utf8_lossy(bytes).into_owned();
        let from = whole.len().saturating_sub(limit);
        let from = (from..=whole.len()).find(|&index| whole.is_char_boundary(index)).unwrap_or_default();
        (whole.get(from..).unwrap_or_default().to_owned(), from > 0)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(runs(1_000)) })]

        fn longest_end(
            bytes in output(),
            limit in 0..160usize,
            cuts in vec(0..200usize, 0..8),
        ) {
            let mut tail = OutputTail::new(limit);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let (mut from, mut seen) = (0, String::new());
            for cut in cuts.into_iter().chain([bytes.len()]) {
                tail.push(bytes.get(from..cut).unwrap_or_default());
                from = cut;
                prop_assert!(tail.text.capacity() <= limit && tail.partial.len() <= 3);
                // Text that was returned earlier stays, unless it is dropped.
                let (text, truncated) = tail.text();
                prop_assert!(text.len() <= limit);
                prop_assert!(truncated || text.starts_with(&seen));
                seen = text;
            }
            tail.finish();
            prop_assert_eq!(tail.text(), expected(&bytes, limit));
            let (whole, truncated) = tail.text();
            for fewer in 0..=limit {
                let (end, is_cut) = expected(whole.as_bytes(), fewer);
                prop_assert_eq!(tail.end(fewer), (end, is_cut || truncated));
            }
        }
    }

    #[test]
    #[allow(clippy::print_stdout, reason = "what a campaign reads")]
    fn is_the_longest_end_within_the_limit() {
        longest_end();
        println!("measured: {} outputs, each the longest end that fits", runs(1_000));
    }
}
