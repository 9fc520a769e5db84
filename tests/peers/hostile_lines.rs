//! The table `tests/hostile/known.jsonl` of lines nobody should send, which holds what any peer may be expected to do.
//!
//! A row's `agent` and `client` list the outcomes that are right, each a list of answers `[code, id]`, `["result", id]` or, for
//! either, `["any", id]`. `state` is `fresh` before `initialize` and `session` when one is needed, `last` means that
//! the input ends behind the line, without a line end. `line` is written as in `tests/it/hostile_lines.rs`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::Result;

/// Returns the rows of the table that say what a peer of this kind may do: `agent` or `client`.
pub fn known(side: &str) -> Result<Vec<Value>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile/known.jsonl");
    let mut rows = Vec::new();
    for line in fs::read_to_string(path)?.lines() {
        let row: Value = serde_json::from_str(line)?;
        if row.get(side).is_some() {
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Returns the part of an answer that the table speaks of.
pub fn shown(answer: &Value) -> Value {
    let what = if answer.get("result").is_some() { json!("result") } else { answer["error"]["code"].clone() };
    json!([what, answer["id"]])
}

/// Returns true if these responses are one of the outcomes.
pub fn is_right(outcomes: &Value, answers: &[Value]) -> bool {
    let same = |wanted: &Value, answer: &Value| {
        let id = |a: &Value, b: &Value| a == b || (a.is_number() && a.as_f64() == b.as_f64());
        (wanted[0] == "any" || wanted[0] == answer[0]) && id(&wanted[1], &answer[1])
    };
    let outcomes = outcomes.as_array().into_iter().flatten().filter_map(Value::as_array);
    let mut right = outcomes.filter(|wanted| wanted.len() == answers.len());
    right.any(|wanted| wanted.iter().zip(answers).all(|(wanted, answer)| same(wanted, answer)))
}

/// Returns the bytes of a line of the table.
pub fn bytes(line: &Value, session: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for part in line.as_array().map_or(std::slice::from_ref(line), Vec::as_slice) {
        match part {
            Value::String(text) => bytes.extend(text.replace("$SESSION", session).bytes()),
            Value::Number(byte) => bytes.push(u8::try_from(byte.as_u64().unwrap_or(u64::MAX))?),
            repeated => {
                let times = usize::try_from(repeated["times"].as_u64().ok_or("how often?")?)?;
                bytes.extend(repeated["of"].as_str().ok_or("of what?")?.repeat(times).bytes());
            }
        }
    }
    Ok(bytes)
}
