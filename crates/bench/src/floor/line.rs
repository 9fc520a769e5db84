//! The two ways in which a floor parses a line.

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A parser of lines.
pub(super) type Scan = fn(&[u8]) -> Option<FloorLine<'_>>;

/// Before the session of an update.
pub(super) const UPDATE: &[u8] = br#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":""#;
/// Between the session and the text of a chunk.
pub(super) const CHUNK: &[u8] =
    br#"","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":""#;
/// Behind its text. Our SDK gives every message an id of that length, so the floor does too.
pub(super) const END: &[u8] = br#""},"messageId":"00000000-0000-0000-0000-000000000000"}}}
"#;
/// The length of session ids, here and in our SDK.
pub(super) const ID: usize = 36;
/// The number of bytes at the start of a line in which a newline scan looks for members.
const NEAR: usize = 256;

/// The parsed members of a line. An update has no id, a response no method.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FloorLine<'a> {
    pub(super) id: Option<&'a [u8]>,
    pub(super) method: Option<&'a [u8]>,
    pub(super) session: &'a [u8],
    /// Of a chunk, of a prompt, of a file.
    pub(super) text: &'a [u8],
    /// The bytes of an image.
    pub(super) data: usize,
}

/// Looks at an update by its length alone and for the members of any other line.
pub(super) fn newline(line: &[u8]) -> Option<FloorLine<'_>> {
    if let Some(rest) = line.strip_prefix(UPDATE) {
        let text = rest.get(ID + CHUNK.len()..rest.len() + 1 - END.len())?;
        return Some(FloorLine {
            session: &rest[..ID],
            text,
            method: Some(b"session/update"),
            ..FloorLine::default()
        });
    }
    // Where a string begins, near the place where it has to be, and what is in it.
    let begin = |name: &[u8], from: usize| {
        let at = memmem::find(&line[from..line.len().min(from + NEAR)], name)?;
        Some(from + at + name.len())
    };
    let string =
        |start: usize| &line[start..start + memchr::memchr(b'"', &line[start..]).unwrap_or_default()];
    let id = begin(br#""id":"#, 0)?;
    let id = &line[id..id + line[id..].iter().position(|byte| matches!(byte, b',' | b'}'))?];
    let method = begin(br#""method":""#, 0).map(string);
    let session = begin(br#""sessionId":""#, 0).map(string).unwrap_or_default();
    let data = begin(br#""data":""#, 0);
    let behind = data.map_or(0, |data| data + string(data).len());
    let text = begin(br#""text":""#, behind).or_else(|| begin(br#""content":""#, 0));
    let text = text.map(string).unwrap_or_default();
    Some(FloorLine { id: Some(id), method, session, text, data: data.map_or(0, |data| behind - data) })
}

#[derive(Deserialize)]
struct Borrowed<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<&'a str>,
    params: Option<Params<'a>>,
    result: Option<Answer<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    session_id: Option<&'a str>,
    #[serde(borrow)]
    update: Option<Update<'a>>,
    #[serde(default)]
    prompt: Vec<Content<'a>>,
}

#[derive(Deserialize)]
struct Update<'a> {
    #[serde(borrow)]
    content: Option<Content<'a>>,
}

#[derive(Deserialize)]
struct Content<'a> {
    text: Option<&'a str>,
    data: Option<&'a str>,
}

#[derive(Deserialize)]
struct Answer<'a> {
    content: Option<&'a str>,
}

/// Reads the line once, copies nothing.
pub(super) fn borrowed(line: &[u8]) -> Option<FloorLine<'_>> {
    let line: Borrowed<'_> = serde_json::from_slice(line).ok()?;
    let mut seen = FloorLine {
        id: line.id.map(|id| id.get().as_bytes()),
        method: line.method.map(str::as_bytes),
        ..FloorLine::default()
    };
    if let Some(params) = line.params {
        seen.session = params.session_id.unwrap_or_default().as_bytes();
        for content in params.prompt.into_iter().chain(params.update.and_then(|update| update.content)) {
            seen.text = content.text.map_or(seen.text, str::as_bytes);
            seen.data += content.data.map_or(0, str::len);
        }
    }
    if let Some(Answer { content: Some(content) }) = line.result {
        seen.text = content.as_bytes();
    }
    Some(seen)
}
