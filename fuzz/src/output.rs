//! Output of programs: the longest end of it within the limit, as text, and whether something is missing.

use crate::input::Input;

/// The limit, four lengths of pieces, and the bytes that are printed.
pub fn check(input: &[u8]) {
    let mut input = Input::new(input);
    let limit = usize::from(input.byte());
    let lengths = std::array::from_fn(|_| input.below(64));
    let (whole, pieces) = input.pieces(lengths);

    let text = String::from_utf8_lossy(whole);
    let surplus = text.len().saturating_sub(limit);
    let from = (surplus..=text.len()).find(|from| text.is_char_boundary(*from)).unwrap_or(text.len());
    let expected = (text[from..].to_owned(), from > 0);
    assert_eq!(duologue_client::fuzzing::tail(pieces, limit), expected, "pieces of {lengths:?}");
}
