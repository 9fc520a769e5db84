//! Access to internals for the targets in `fuzz/`. Other builds do not contain it.

use duologue_schema::OutputTail;

/// Returns the tail that is kept of `pieces`, and true if some output was dropped.
pub fn tail<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limit: usize) -> (String, bool) {
    let mut tail = OutputTail::new(limit);
    for piece in pieces {
        tail.push(piece);
    }
    tail.finish();
    tail.text()
}
