//! Doors for the targets in `fuzz/`; no other build has them.

use duologue_schema::{Error, RequestId};

use crate::frame::Frame;
use crate::limits::Limits;
use crate::line_buffer::LineBuffer;
use crate::message::{fast_path_params, fast_path_prefix};

/// The lines of what arrives piece by piece, and what is left without an end; `Err` holds the lines before
/// one that was too long.
pub fn lines<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    limit: usize,
) -> Result<(Vec<Vec<u8>>, Vec<u8>), Vec<Vec<u8>>> {
    let mut buffer = LineBuffer::new(limit);
    let mut lines = Vec::new();
    for mut piece in pieces {
        while !piece.is_empty() {
            let space = buffer.space();
            let count = space.len().min(piece.len());
            space[..count].copy_from_slice(&piece[..count]);
            piece = &piece[count..];
            buffer.filled(count);
            loop {
                match buffer.next_line() {
                    Ok(Some(line)) => lines.push(line.to_vec()),
                    Ok(None) => break,
                    Err(_) => return Err(lines),
                }
            }
        }
    }
    let rest = buffer.rest().to_vec();
    Ok((lines, rest))
}

/// The line that answers a request with an error.
pub fn refusal(id: &RequestId, error: &Error) -> serde_json::Result<Vec<u8>> {
    Ok(Frame::error(id, error)?.line().to_vec())
}

/// A value as it is written into a message.
pub fn written(value: &impl serde::Serialize) -> serde_json::Result<Vec<u8>> {
    let mut out = Vec::new();
    crate::json_writer::write(&mut out, value)?;
    Ok(out)
}

/// A line of the notification `m` as most peers write it, up to where its params begin.
pub fn usual(rest: &[u8]) -> Vec<u8> {
    [fast_path_prefix("m").as_bytes(), rest].concat()
}

/// What is taken for the params of such a line without looking at the rest of it.
pub fn params_of_usual(line: &[u8]) -> Option<&str> {
    fast_path_params(line, &fast_path_prefix("m"), &Limits::default())
}
