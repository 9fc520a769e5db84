//! R3 on the client: lines no agent should write, each followed by a question.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Run, log_of, raw_agent};
use crate::interop::Result;
use crate::reliability::stage::{Measured, Stage, Subject};

/// The session that a line may name.
const SESSION: &str = "s1";

/// A line, and what it is to be answered: see `tests/hostile_lines.rs`.
pub(super) struct Row {
    pub(super) line: Vec<u8>,
    name: String,
    answers: Vec<Value>,
    unordered: bool,
    updates: u64,
}

/// The lines that an agent writes.
pub(super) fn rows() -> Result<Vec<Row>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hostile");
    let mut rows = Vec::new();
    for table in ["lines.jsonl", "client.jsonl"] {
        for line in fs::read_to_string(folder.join(table))?.lines() {
            let row: Value = serde_json::from_str(line)?;
            let answers = row["client"].as_array().cloned().unwrap_or_default();
            rows.push(Row {
                line: bytes(&row["line"]),
                name: row["case"].as_str().unwrap_or_default().to_owned(),
                answers: answers.iter().map(expanded).collect(),
                unordered: row["unordered"] == true,
                updates: row["updates"].as_u64().unwrap_or_default(),
            });
        }
    }
    Ok(rows)
}

/// Answers may hold long ids.
fn expanded(answer: &Value) -> Value {
    match &answer[1] {
        id @ Value::Object(_) => json!([answer[0], String::from_utf8_lossy(&bytes(&json!([id])))]),
        _ => answer.clone(),
    }
}

/// Text, or a list of texts, bytes as numbers, and texts that are repeated.
fn bytes(line: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in line.as_array().map_or(std::slice::from_ref(line), Vec::as_slice) {
        let filled = |text: &Value| text.as_str().unwrap_or_default().replace("$SESSION", SESSION);
        match part {
            Value::Number(byte) => bytes.extend(byte.as_u64().and_then(|byte| u8::try_from(byte).ok())),
            Value::Object(_) => {
                let times = part["times"].as_u64().unwrap_or_default() as usize;
                bytes.extend(filled(&part["of"]).repeat(times).bytes());
            }
            text => bytes.extend(filled(text).bytes()),
        }
    }
    bytes
}

/// One turn for each line; a client that does not survive one is started again for the next.
pub(in super::super) fn bad_lines(stage: &Stage, subject: Subject) -> Result<Measured> {
    let rows = rows()?;
    let (mut survived, mut right, mut wrong, mut from) = (0, 0, Vec::new(), 0);
    let mut starts = 0;
    while from < rows.len() {
        let (agent, log) = raw_agent(stage, "bad")?;
        let scene = ["turns", &from.to_string(), &rows.len().to_string(), "bad"];
        let run = Run::of(stage, subject, &scene, &agent, Duration::from_secs(stage.size(15, 60)))?;
        let log = log_of(&log)?;
        let turns = run.lines.iter().filter(|line| line["updates"].is_u64());
        let mut next = from;
        for (turn, (number, row)) in turns.zip(rows.iter().enumerate().skip(from)) {
            let heard = log.iter().find(|line| line["bad"] == number);
            let lives = turn["stop"].is_string() && heard.is_some_and(|heard| heard["probe_ms"].is_u64());
            survived += usize::from(lives);
            let fault = if lives {
                heard.and_then(|heard| row.fault(turn, heard))
            } else {
                Some("the turn failed".into())
            };
            match fault {
                None => right += 1,
                Some(fault) => wrong.push(format!("{}: {fault}", row.name)),
            }
            next = number + 1;
            if !turn["stop"].is_string() {
                break;
            }
        }
        starts += 1;
        // Without a word about the line it is the line that was too much.
        from = if next == from { from + 1 } else { next };
    }
    let mut text = format!(
        "{right} of {} as they should be, {survived} turns went on, {} connections lost",
        rows.len(),
        starts - 1
    );
    if let Some(first) = wrong.first() {
        text = format!("{text}; such as {}", first.chars().take(120).collect::<String>());
    }
    if std::env::var_os("DUOLOGUE_SHOW").is_some() {
        text = format!("{text}\n{}", wrong.join("\n"));
    }
    Ok(Measured::new(right == rows.len(), text))
}

impl Row {
    /// What is wrong with what came of it.
    fn fault(&self, turn: &Value, heard: &Value) -> Option<String> {
        let mut answers = heard["answers"].as_array().cloned().unwrap_or_default();
        let mut expected = self.answers.clone();
        if self.unordered {
            answers.sort_by_key(Value::to_string);
            expected.sort_by_key(Value::to_string);
        }
        if answers != expected {
            return Some(format!("answered {} instead of {}", json!(answers), json!(expected)));
        }
        // One more says that the turn goes on.
        let updates = turn["updates"].as_u64().unwrap_or_default();
        (updates != self.updates + 1).then(|| format!("{updates} updates instead of {}", self.updates + 1))
    }
}
