//! Parsers for the values of faults: numbers, sizes, times and frames.

use std::time::Duration;

/// Parses a number, with `_` between its digits if that helps.
pub(super) fn number(text: &str) -> Result<usize, String> {
    text.replace('_', "").parse().map_err(|_| format!("{text:?} is no number"))
}

/// Parses a number of bytes: `4096`, `64KiB`, `16MiB`, `1GiB`.
pub(super) fn size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text.strip_prefix(digits) {
        Some("" | "B") => 1,
        Some("KiB") => 1 << 10,
        Some("MiB") => 1 << 20,
        Some("GiB") => 1 << 30,
        _ => return Err(format!("{text:?} is no size: write it as 4096, 64KiB, 16MiB or 1GiB")),
    };
    number(digits)?.checked_mul(unit).ok_or_else(|| format!("{text:?} is too large"))
}

/// Parses a time: `50ms`, `2s`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{text:?} is no time ({error}): write it as 50ms or 2s"))
}

/// Splits `VALUE@FRAME`; the value is optional.
pub(super) fn at(text: &str) -> Result<(Option<&str>, usize), String> {
    match text.split_once('@') {
        Some((what, frame)) => Ok((Some(what), number(frame)?)),
        None => Ok((None, number(text)?)),
    }
}

/// Parses a value, or returns `otherwise` if it is empty.
pub(super) fn or<T>(
    text: &str,
    otherwise: T,
    read: fn(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if text.is_empty() { Ok(Some(otherwise)) } else { read(text).map(Some) }
}
