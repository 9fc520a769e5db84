//! Lines: however the bytes arrive, the same ones, and none longer than the limit.

use crate::input::Input;

/// The limit, four lengths of pieces, and the bytes that arrive.
pub fn check(input: &[u8]) {
    let mut input = Input::new(input);
    let limit = usize::from(input.byte()) * 4;
    let lengths = std::array::from_fn(|_| usize::from(input.byte()));
    let (whole, pieces) = input.pieces(lengths);
    let expected = plainly(whole, limit);
    let lines = duologue_rpc::fuzzing::lines(pieces, limit);
    assert_eq!(lines, expected, "limit {limit}, pieces of {lengths:?}");
}

type Lines = Result<(Vec<Vec<u8>>, Vec<u8>), Vec<Vec<u8>>>;

/// The same over the whole input at once.
fn plainly(whole: &[u8], limit: usize) -> Lines {
    let mut lines = Vec::new();
    for line in whole.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > limit {
            return Err(lines);
        }
        lines.push(line.to_vec());
    }
    let rest = lines.pop().unwrap_or_default();
    Ok((lines, rest))
}
