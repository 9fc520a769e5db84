//! Access to internals for the targets in `fuzz/`. Other builds do not contain it.

use duologue_schema::{Error, RequestId};

use crate::frame::Frame;
use crate::limits::Limits;
use crate::line_buffer::LineBuffer;
use crate::message::{fast_path_prefix, plain_params};

/// Splits `pieces` into lines. Returns the lines and the bytes after the last line end, or the lines before one that
/// was too long.
pub fn lines<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    limit: usize,
) -> Result<(Vec<Vec<u8>>, Vec<u8>), Vec<Vec<u8>>> {
    let mut buffer = LineBuffer::new(limit);
    let mut lines = Vec::new();
    for piece in pieces {
        if buffer.feed(piece, |line| lines.push(line.to_vec())).is_err() {
            return Err(lines);
        }
    }
    let rest = buffer.rest().to_vec();
    Ok((lines, rest))
}

/// Returns the line that rejects a request with an error.
pub fn refusal(id: &RequestId, error: &Error) -> serde_json::Result<Vec<u8>> {
    Ok(Frame::error(id, error)?.line().to_vec())
}

/// Returns a value as it is written into a message.
pub fn written(value: &impl serde::Serialize) -> serde_json::Result<Vec<u8>> {
    let mut out = Vec::new();
    crate::json_writer::write(&mut out, value)?;
    Ok(out)
}

/// Returns a line of the notification `m` on the fast path, with `rest` in place of its params.
pub fn fast_path_line(rest: &[u8]) -> Vec<u8> {
    [fast_path_prefix("m").as_bytes(), rest].concat()
}

/// Returns the params that the fast path takes from a line.
pub fn fast_path_params_of(line: &[u8]) -> Option<&str> {
    plain_params(line, &fast_path_prefix("m"), &Limits::default())
}
