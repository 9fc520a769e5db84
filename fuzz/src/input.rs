//! Input, taken from the front.

/// Bytes that are used up; what is missing reads as 0.
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Input(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number below `bound`, which is at most 256.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound
    }

    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Returns the rest of the input, cut into pieces of the given lengths in turn.
    pub(crate) fn pieces(mut self, lengths: [usize; 4]) -> (&'a [u8], Vec<&'a [u8]>) {
        let (whole, mut pieces) = (self.0, Vec::new());
        for length in lengths.into_iter().cycle() {
            if self.is_empty() {
                break;
            }
            pieces.push(self.take(length.max(1)));
        }
        (whole, pieces)
    }
}
