//! The end of a program's output, as text.

/// Keeps the last characters of a stream of bytes, at most `limit` bytes of them. What is no UTF-8
/// becomes U+FFFD, wherever the stream is cut into pieces.
#[derive(Debug)]
pub(super) struct Tail {
    limit: usize,
    text: String,
    /// The beginning of a character that has not come whole, at most three bytes.
    partial: Vec<u8>,
    truncated: bool,
}

impl Tail {
    pub(super) fn new(limit: usize) -> Self {
        Tail { limit, text: String::new(), partial: Vec::new(), truncated: false }
    }

    /// Takes what comes next.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let mut input = std::mem::take(&mut self.partial);
        input.extend_from_slice(bytes);
        let mut chunks = input.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            let unfinished = || std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if chunks.peek().is_none() && unfinished() {
                self.partial = invalid.to_owned();
            } else if !invalid.is_empty() {
                self.text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        // Cutting at twice the limit keeps the copying linear.
        if self.text.len() > self.limit.saturating_mul(2) {
            self.cut();
        }
    }

    /// The stream has ended: what is unfinished stays so.
    pub(super) fn finish(&mut self) {
        if !std::mem::take(&mut self.partial).is_empty() {
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
    }

    /// The text, and whether some of it was dropped.
    pub(super) fn text(&mut self) -> (String, bool) {
        self.cut();
        (self.text.clone(), self.truncated)
    }

    fn cut(&mut self) {
        let surplus = self.text.len().saturating_sub(self.limit);
        if surplus > 0 {
            let from = (surplus..self.text.len()).find(|&index| self.text.is_char_boundary(index));
            self.text.drain(..from.unwrap_or(self.text.len()));
            self.truncated = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::Tail;

    /// Bytes as programs print them: text, text cut in pieces, and anything.
    fn output() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            "[a-z\u{1b}\r\n]{0,8}".prop_map(String::into_bytes),
            "\\PC{0,6}".prop_map(String::into_bytes),
            ("[é€𝄞\u{301}]", 0..4usize).prop_map(|(text, cut)| { text.bytes().take(cut).collect() }),
            vec(any::<u8>(), 0..6),
        ];
        vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    /// What it has to be, the simple way.
    fn expected(bytes: &[u8], limit: usize) -> (String, bool) {
        let whole = String::from_utf8_lossy(bytes).into_owned();
        let from = whole.len().saturating_sub(limit);
        let from = (from..=whole.len()).find(|&index| whole.is_char_boundary(index)).unwrap_or_default();
        (whole.get(from..).unwrap_or_default().to_owned(), from > 0)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4_000) })]

        #[test]
        fn is_the_longest_end_within_the_limit(
            bytes in output(),
            limit in 0..160usize,
            cuts in vec(0..200usize, 0..8),
        ) {
            let mut tail = Tail::new(limit);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let (mut from, mut seen) = (0, String::new());
            for cut in cuts.into_iter().chain([bytes.len()]) {
                tail.push(bytes.get(from..cut).unwrap_or_default());
                from = cut;
                prop_assert!(tail.text.len() <= 2 * limit && tail.partial.len() <= 3);
                // What was shown before everything had come is not taken back.
                let (text, truncated) = tail.text();
                prop_assert!(text.len() <= limit);
                prop_assert!(truncated || text.starts_with(&seen));
                seen = text;
            }
            tail.finish();
            prop_assert_eq!(tail.text(), expected(&bytes, limit));
        }
    }
}
