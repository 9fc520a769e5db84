//! A session for scripts, one JSON object a line:
//!
//! - `{"sessionId":…,"update":{…}}`: a session update, as the protocol has it;
//! - `{"sessionId":…,"outcome":{"stopReason":…}}`: the end of a turn, the answer to its prompt;
//! - `{"sessionId":…,"error":{"message":…}}`: the end of a turn that failed; with `code` and `data` if the
//!   agent answered so.

use std::io::{self, Write};

use duologue_client::Error;
use duologue_schema::{PromptResponse, SessionId, SessionUpdate};
use serde::Serialize;

use crate::ui::printable;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    session_id: &'a SessionId,
    #[serde(flatten)]
    what: What<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum What<'a> {
    Update(&'a SessionUpdate),
    Outcome(&'a PromptResponse),
    Error(serde_json::Value),
}

/// Writes an update.
pub(super) fn update(out: &mut impl Write, session: &SessionId, update: &SessionUpdate) -> io::Result<()> {
    write(out, session, What::Update(update))
}

/// Writes how a turn ended.
pub(super) fn outcome(
    out: &mut impl Write,
    session: &SessionId,
    outcome: &Result<PromptResponse, Error>,
) -> io::Result<()> {
    let what = match outcome {
        Ok(response) => What::Outcome(response),
        Err(Error::Agent(error)) => What::Error(serde_json::to_value(error)?),
        Err(error) => What::Error(serde_json::json!({ "message": error.to_string() })),
    };
    write(out, session, what)
}

fn write(out: &mut impl Write, session_id: &SessionId, what: What<'_>) -> io::Result<()> {
    let line = serde_json::to_string(&Line { session_id, what })?;
    writeln!(out, "{}", safe(&line))
}

/// The same JSON without characters that change what a terminal shows. Below U+0020 only white space
/// outside of strings is left of them.
fn safe(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for char in json.chars() {
        let text = char.to_string();
        if char.is_ascii_control() && char != '\u{7f}' {
            safe.push(' ');
        } else if printable(&text) != text {
            for unit in char.encode_utf16(&mut [0; 2]) {
                safe.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            safe.push(char);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::safe;

    #[test]
    fn means_the_same() {
        let json = "{\"a\": \"\u{9b}\u{202e}\u{7f}\u{e0041}é\",\r\"b\":1}";
        let safe = safe(json);
        assert_eq!(safe, r#"{"a": "\u009b\u202e\u007f\udb40\udc41é", "b":1}"#);
        let parse = |json: &str| serde_json::from_str::<serde_json::Value>(json).ok();
        assert_eq!(parse(&safe), parse(json));
    }
}
