//! Seeds: what the targets begin with, made of the tables of `tests/` and `fuzz/`, of recorded transcripts,
//! and of random values that fit the schema.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use duologue_schema::export::random::RandomValues;
use duologue_schema::{METHODS, MethodRow, MethodSide, dialogue, envelope, v2, work};
use serde_json::Value;

use super::Paths;
use crate::interop::Result;

/// Tables of lines; in the first a line is called `input`.
const TABLES: [(&str, &str); 5] = [
    ("fuzz/seeds/json.jsonl", "input"),
    ("tests/hostile/known.jsonl", "line"),
    ("tests/hostile/lines.jsonl", "line"),
    ("tests/hostile/agent.jsonl", "line"),
    ("tests/hostile/client.jsonl", "line"),
];
/// Folders with recorded transcripts.
const TRANSCRIPTS: [&str; 3] =
    ["crates/cli/tests/transcripts", "crates/cli/tests/html", "examples/transcripts"];
/// Random values for each type.
const VALUES: u64 = 12;

/// Writes the seeds of a target into its folder, none of them longer than `longest`.
pub(super) fn write(paths: &Paths, target: &str, folder: &Path, longest: usize) -> Result<()> {
    let lines = || lines(paths, longest);
    let mut seeds = match target {
        "framer" | "output" => headed(lines()?, &[40, 7, 3, 64, 1]),
        "dialogue" => headed(lines()?, &[0; 4]),
        "envelope" | "surrogates" | "differential" => messages(lines()?),
        "agent_params" => {
            values(&side(|side| side != MethodSide::Client), &[document("v1/schema.json", paths)?])?
        }
        "client_params" => {
            values(&side(|side| side == MethodSide::Client), &[document("v1/schema.json", paths)?])?
        }
        "versions" => values(&v2::METHODS.concat(), &[document("v2/schema.unstable.json", paths)?])?,
        "exchange_params" => {
            let rows = [envelope::METHODS, dialogue::METHODS, work::METHODS].concat();
            let extension_schemas = ["envelope", "dialogue", "work"];
            let documents: Result<Vec<_>> = extension_schemas
                .iter()
                .map(|name| document(&format!("duologue/{name}.json"), paths))
                .collect();
            values(&rows, &documents?)?
        }
        "socket" => sockets(paths, longest)?,
        "events" => headed(events(lines()?), &[255, 7, 3, 64, 1]),
        "cursors" => cursors(lines()?),
        "transcript" => transcripts(paths, longest)?,
        "escapes" => [transcripts(paths, longest)?, lines()?].concat(),
        // Every byte means something to these.
        _ => vec![vec![0; 16]],
    };
    // They would be cut, and then be no JSON.
    seeds.retain(|seed| seed.len() <= longest);
    // Those of an earlier run would stay where there are fewer now.
    std::fs::remove_dir_all(folder)?;
    std::fs::create_dir(folder)?;
    for (number, seed) in seeds.iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{number:04}")), seed)?;
    }
    Ok(())
}

/// The words of the protocol, for libFuzzer to put in.
pub(super) fn dictionary(paths: &Paths) -> Result<PathBuf> {
    let mut words = BTreeSet::from(["\"$serde_json::private::RawValue\":".to_owned(), "\\ud83d".to_owned()]);
    for file in ["v1/schema.json", "duologue/envelope.json", "duologue/dialogue.json", "duologue/work.json"] {
        collect(&document(file, paths)?, &mut words);
    }
    words.extend(METHODS.concat().iter().map(|row| format!("\"{}\"", row.method)));
    words.extend(["jsonrpc", "id", "method", "params", "result", "error"].map(|name| format!("\"{name}\":")));
    let mut text = String::new();
    for word in words.iter().filter(|word| word.len() <= 60 && word.is_ascii()) {
        writeln!(text, "\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))?;
    }
    let file = paths.target.join("words.dict");
    std::fs::write(&file, text)?;
    Ok(file)
}

/// The names of members and the values that are the only ones possible.
fn collect(schema: &Value, words: &mut BTreeSet<String>) {
    match schema {
        Value::Object(members) => {
            for (key, value) in members {
                match (key.as_str(), value) {
                    ("properties", Value::Object(properties)) => {
                        words.extend(properties.keys().map(|name| format!("\"{name}\":")));
                    }
                    ("const", Value::String(only)) => drop(words.insert(format!("\"{only}\""))),
                    _ => {}
                }
                collect(value, words);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, words)),
        _ => {}
    }
}

fn document(file: &str, paths: &Paths) -> Result<Value> {
    let file = paths.root.join("schema").join(file);
    let text = std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(serde_json::from_slice(&text)?)
}

fn side(wanted: impl Fn(MethodSide) -> bool) -> Vec<MethodRow> {
    METHODS.concat().into_iter().filter(|row| wanted(row.side)).collect()
}

/// `METHOD`, a line end, and a value that fits its params or its result.
fn values(rows: &[MethodRow], documents: &[Value]) -> Result<Vec<Vec<u8>>> {
    let mut seeds = Vec::new();
    for row in rows {
        for name in [Some(row.params), row.result].into_iter().flatten() {
            let has = |document: &&Value| document["$defs"].get(name).is_some();
            let document = documents.iter().find(has).ok_or_else(|| format!("no schema has {name}"))?;
            for seed in 0..VALUES {
                let value = RandomValues::new(document, seed).definition(name);
                seeds.push(format!("{}\n{value}", row.method).into_bytes());
            }
        }
    }
    Ok(seeds)
}

/// Requests, frames and lines for a socket, after the byte that says which.
fn sockets(paths: &Paths, longest: usize) -> Result<Vec<Vec<u8>>> {
    let mut seeds = vec![b"\0GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec()];
    let post = b"\0POST /acp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
        accept: application/json, text/event-stream\r\ncontent-length: ";
    let positions =
        r#"{"jsonrpc":"2.0","id":1,"method":"stream/resume","params":{"connectionId":"c","streams":[]}}"#;
    let mut lines = lines(paths, longest)?;
    lines.push(positions.into());
    for line in lines {
        let length = line.len().to_string();
        seeds.push([post.as_slice(), length.as_bytes(), b"\r\n\r\n", &line].concat());
        seeds.push([b"\x02", line.as_slice()].concat());
    }
    seeds.push(b"\x01\x81\x82\0\0\0\0{}\x88\x80\0\0\0\0".to_vec());
    Ok(seeds)
}

/// Responses with an event for each line, one of which has each kind of field and line end.
fn events(lines: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut seeds =
        vec![b"\xef\xbb\xbf: c\n\nid: 7\r\ndata:{\rdata: }\r\r\nevent: e\nretry: 5\nid\ndata\n\n".to_vec()];
    seeds.extend(lines.chunks(3).map(|lines| {
        let events = lines.iter().enumerate();
        events
            .flat_map(|(id, line)| [format!("id: {id}\ndata: ").as_bytes(), line, b"\n\n"].concat())
            .collect::<Vec<u8>>()
    }));
    seeds
}

/// The text of a cursor, a line end, and messages.
fn cursors(lines: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut seeds = vec![b"3-812\n".to_vec(), b"+1\n{}".to_vec(), b"18446744073709551615\n{}".to_vec()];
    let update = br#"{"method":"session/update","params":{"sessionId":"s","_meta":{"acp/cursor":"9"}}}"#;
    seeds.extend(lines.into_iter().map(|line| [b"1\n", line.as_slice(), b"\n", update].concat()));
    seeds
}

/// All lines of the tables.
fn lines(paths: &Paths, longest: usize) -> Result<Vec<Vec<u8>>> {
    let mut lines = Vec::new();
    for (table, member) in TABLES {
        for row in std::fs::read_to_string(paths.root.join(table))?.lines() {
            let row: Value = serde_json::from_str(row)?;
            lines.extend(bytes(&row[member], longest));
        }
    }
    Ok(lines)
}

/// Text, or a list of text, bytes and `{"times", "of"}`; `None` for what is too long for a seed.
fn bytes(line: &Value, longest: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for part in line.as_array().map_or(std::slice::from_ref(line), Vec::as_slice) {
        match part {
            Value::String(text) => bytes.extend(text.replace("$SESSION", "s").bytes()),
            Value::Number(byte) => bytes.push(u8::try_from(byte.as_u64()?).ok()?),
            repeated => {
                let times = usize::try_from(repeated["times"].as_u64()?).ok()?;
                let of = repeated["of"].as_str()?;
                bytes.extend((times * of.len() <= longest).then(|| of.repeat(times))?.bytes());
            }
        }
    }
    Some(bytes)
}

/// The lines, and the inputs of the JSON table as params.
fn messages(lines: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let as_params =
        |json: &[u8]| [br#"{"jsonrpc":"2.0","id":1,"method":"m","params":["#, json, b"]}"].concat();
    let wrapped: Vec<_> = lines.iter().filter(|line| line.len() < 200).map(|line| as_params(line)).collect();
    lines.into_iter().chain(wrapped).collect()
}

fn headed(lines: Vec<Vec<u8>>, head: &[u8]) -> Vec<Vec<u8>> {
    lines.into_iter().map(|line| [head, &line].concat()).collect()
}

/// The recorded transcripts, in parts of a header and as many records as fit.
fn transcripts(paths: &Paths, longest: usize) -> Result<Vec<Vec<u8>>> {
    let mut seeds = Vec::new();
    for folder in TRANSCRIPTS {
        for file in std::fs::read_dir(paths.root.join(folder))? {
            let text = std::fs::read(file?.path())?;
            let mut lines = text.split_inclusive(|byte| *byte == b'\n');
            let Some(header) = lines.next() else { continue };
            let mut part = header.to_vec();
            for line in lines {
                if part.len() + line.len() > longest {
                    seeds.push(std::mem::replace(&mut part, header.to_vec()));
                }
                part.extend_from_slice(line);
            }
            seeds.push(part);
        }
    }
    Ok(seeds)
}
