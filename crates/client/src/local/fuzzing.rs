//! A door for the targets in `fuzz/`; no other build has it.

use super::tail::OutputTail;

/// What is kept of output that comes in pieces, and whether some of it was dropped.
pub fn tail<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limit: usize) -> (String, bool) {
    let mut tail = OutputTail::new(limit);
    for piece in pieces {
        tail.push(piece);
    }
    tail.finish();
    tail.text()
}
