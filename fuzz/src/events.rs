//! The events of a response, however its bytes arrive: those that the whole text has.

use crate::input::Input;

/// The name of a field, its colon and its space.
const FIELD: usize = "data: ".len();

/// The limit, four lengths of pieces, and the bytes of the response.
pub fn check(input: &[u8]) {
    let mut input = Input::new(input);
    let limit = usize::from(input.byte()) * 4;
    let lengths = std::array::from_fn(|_| input.below(64));
    let (whole, pieces) = input.pieces(lengths);

    let lines = lines(whole);
    let expected = events(&lines);
    let is_long = |(line, _): &(&[u8], bool)| line.len() > limit + FIELD;
    match duologue_http::fuzzing::events(pieces, limit) {
        Ok(read) => {
            assert_eq!(read, expected.complete, "pieces of {lengths:?}");
            assert!(read.iter().all(|(_, data)| data.len() <= limit));
        }
        Err(before) => {
            let longest = expected.longest;
            assert!(longest > limit || lines.iter().any(is_long), "refused: {longest} bytes, limit {limit}");
            assert!(expected.complete.starts_with(&before), "events before the refusal");
        }
    }
}

/// Splits a text into its lines. The last one has no end.
fn lines(mut text: &[u8]) -> Vec<(&[u8], bool)> {
    let mut lines = Vec::new();
    while let Some(end) = text.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
        let length = if text[end..].starts_with(b"\r\n") { 2 } else { 1 };
        lines.push((&text[..end], true));
        text = &text[end + length..];
    }
    lines.push((text, false));
    lines
}

/// The events of a text.
struct TextEvents {
    complete: Vec<(Option<String>, Vec<u8>)>,
    /// The length of the longest data, also of an event that is not complete.
    longest: usize,
}

/// Reads events by the rules of server-sent events, from whole lines.
fn events(lines: &[(&[u8], bool)]) -> TextEvents {
    let mut events = TextEvents { complete: Vec::new(), longest: 0 };
    let (mut id, mut data) = (None, None::<Vec<u8>>);
    for (number, (line, _)) in lines.iter().enumerate().filter(|(_, (_, has_end))| *has_end) {
        let line = if number == 0 { line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line) } else { line };
        if line.is_empty() {
            events.complete.extend(data.take().map(|data| (id.clone(), data)));
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"data" => {
                let mut whole = data.take().map_or_else(Vec::new, |mut data| {
                    data.push(b'\n');
                    data
                });
                whole.extend_from_slice(value);
                events.longest = events.longest.max(whole.len());
                data = Some(whole);
            }
            b"id" if value.iter().all(|byte| matches!(byte, b' '..=b'~')) => {
                id = Some(String::from_utf8_lossy(value).into_owned()).filter(|id| !id.is_empty());
            }
            _ => {}
        }
    }
    events
}
