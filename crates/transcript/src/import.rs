//! Import of logs of other programs: JSON-RPC lines with a direction.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::BufRead;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;

use crate::error::Result;
use crate::format::{Header, LineEnd, Record, RecordEvent, RecordedLine, Side, micros, representable};
use crate::line_reader::LineReader;

/// A part of a line, or the reason why the line is invalid.
type LineResult<T> = std::result::Result<T, String>;

/// Reads a log of JSON-RPC lines as the records of a transcript.
///
/// A line is either an object or text. The direction, the frame and the optional time are members of the
/// object. In text, an optional date comes first, then the direction, then the frame.
///
/// ```text
/// {"dir":"c2a","line":{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}}
/// {"ts":"2026-11-21T15:00:00.250Z","from":"agent","message":"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}"}
/// 2026-11-21T15:00:01Z > {"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}
/// agent: Loading models…
/// ```
///
/// | part | members | values |
/// | --- | --- | --- |
/// | direction | `from`, `dir`, `direction`, `sender`, `side`, `source`, `stream`, `type`, `kind` | the client: `client`, `editor`, `ide`, `c2a`, `c2s`, `client->agent`, `to_agent`, `stdin`; the agent: `agent`, `server`, `a2c`, `s2c`, `agent->client`, `to_client`, `stdout`; relative to the writer of the log: `out`, `outgoing`, `sent`, `send`, `>`, `->`, `→` and `in`, `incoming`, `received`, `recv`, `<`, `<-`, `←`; `stderr` |
/// | frame | `frame`, `line`, `message`, `msg`, `data`, `json`, `payload`, `raw`, `text`; `b64` | the object, or a string with the line; base64 |
/// | time | `at`, `ts`, `time`, `timestamp` | RFC 3339; a number since 1970 in seconds, milli-, micro- or nanoseconds, by its size; a number since the start in milliseconds, with a fraction in seconds, in `at` in microseconds |
///
/// The first member with a valid value is used. The frame is kept byte for byte. `out` and `in` are relative
/// to the client, unless [`seen_by`](Self::seen_by) sets the other side. Blank lines are skipped. The time
/// of a record never decreases. A line without a time has the time of the line before it.
///
/// After an error, reading can go on with the next line. An incomplete last line is left out, see
/// [`is_cut`](Self::is_cut).
#[derive(Debug)]
pub struct Importer<R> {
    lines: LineReader<R>,
    state: LogState,
}

/// The state of an import.
#[derive(Debug)]
struct LogState {
    seen_by: Side,
    /// The first date in the log, and the time of the last record.
    started: Option<SystemTime>,
    last: Duration,
    /// True once an `at` was too small for a date, as in the records of a transcript: so are all later ones.
    at_since_start: bool,
}

impl<R: BufRead> Importer<R> {
    /// Creates an importer for a log of the client, or one that names the sender of each line.
    #[must_use]
    pub fn new(input: R) -> Self {
        let state =
            LogState { seen_by: Side::Client, started: None, last: Duration::ZERO, at_since_start: false };
        Importer { lines: LineReader::new(input), state }
    }

    /// Sets the side that wrote the log. Its outgoing lines come from this side.
    #[must_use]
    pub fn seen_by(mut self, side: Side) -> Self {
        self.state.seen_by = side;
        self
    }

    /// Returns the header, with the first date in the lines read so far.
    #[must_use]
    pub fn header(&self) -> Header {
        let mut header = Header::new(concat!("duologue ", env!("CARGO_PKG_VERSION"), " (import)"));
        header.started = self.state.started.unwrap_or(SystemTime::UNIX_EPOCH);
        header
    }

    /// Returns the line number of the last record or error, counted from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.lines.line()
    }

    /// Returns true if the log ended within a line. Known once the end is reached.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.lines.is_cut()
    }
}

impl LogState {
    fn record_of(&mut self, line: &str) -> LineResult<Record> {
        if line.starts_with('{') { self.object(line) } else { self.text(line) }
    }

    fn object(&mut self, text: &str) -> LineResult<Record> {
        let members: BTreeMap<Cow<'_, str>, &RawValue> =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        let member = |name: &&'static str| Some((*name, *members.get(*name)?));
        let Some(who) = DIRECTION.iter().filter_map(member).find_map(|(_, raw)| who(&string(raw)?)) else {
            return match Record::read(text) {
                // A record without a direction, from a transcript without its header.
                Ok(Record { at, event }) if !matches!(event, RecordEvent::Unknown(_)) => {
                    Ok(Record::new(self.clock(Some(LogTime::Since(at))), event))
                }
                _ if members.contains_key("jsonrpc") => {
                    Err("a message without a direction, such as `> ` of the client or `< ` of the agent"
                        .into())
                }
                _ => Err(format!("no direction: none of {}", DIRECTION.join(", "))),
            };
        };
        let at = TIME.iter().filter_map(member).find_map(|(name, raw)| self.time(name, raw));
        let Some((name, raw)) =
            FRAME.iter().filter_map(member).find(|(_, raw)| raw.get().starts_with(['{', '[', '"']))
        else {
            return Err(format!("no frame: none of {}", FRAME.join(", ")));
        };
        let bytes = match (string(raw), name) {
            (Some(text), "b64") => STANDARD.decode(text).map_err(|error| error.to_string())?,
            (Some(text), _) => text.into_bytes(),
            (None, _) if raw.get().starts_with('"') => {
                return Err("the frame contains half a surrogate pair".into());
            }
            (None, _) => raw.get().as_bytes().to_vec(),
        };
        self.record(at, who, &bytes)
    }

    fn text(&mut self, text: &str) -> LineResult<Record> {
        let (at, text) = leading_date(text);
        let arrows = text.len() - text.trim_start_matches(['-', '=', '<', '>', '→', '←']).len();
        let end = if arrows > 0 { Some(arrows) } else { text.find([':', ' ', '\t']) };
        let (word, frame) = text.split_at_checked(end.unwrap_or(text.len())).unwrap_or((text, ""));
        let Some(who) = who(word.trim_matches(['[', ']', '(', ')'])) else {
            return Err("neither an object nor a direction and a frame".into());
        };
        let frame = frame.strip_prefix(':').unwrap_or(frame).trim_start();
        self.record(at.map(LogTime::Date), who, frame.as_bytes())
    }

    fn record(&mut self, at: Option<LogTime>, who: LogSource, bytes: &[u8]) -> LineResult<Record> {
        let from = match who {
            LogSource::Side(side) => side,
            LogSource::Sender => self.seen_by,
            LogSource::Receiver => self.seen_by.other(),
            LogSource::Stderr => Side::Agent,
        };
        let mut line = RecordedLine::from_wire(from, bytes);
        if line.end == LineEnd::None {
            line.end = LineEnd::Lf;
        }
        if line.bytes().contains(&b'\n') {
            return Err("the frame contains a line feed".into());
        }
        let event = match who {
            LogSource::Stderr => RecordEvent::Stderr(String::from_utf8_lossy(line.bytes()).into_owned()),
            _ => RecordEvent::Line(line),
        };
        Ok(Record::new(self.clock(at), event))
    }

    /// Returns the time in a member.
    fn time(&mut self, name: &str, raw: &RawValue) -> Option<LogTime> {
        if name == "at"
            && let Ok(number @ 0.0..) = serde_json::from_str::<f64>(raw.get())
        {
            self.at_since_start |= number < 1e11;
            if self.at_since_start {
                return Some(LogTime::Since(Duration::from_micros(number as u64)));
            }
        }
        time(raw)
    }

    /// Returns the time of the next record.
    fn clock(&mut self, at: Option<LogTime>) -> Duration {
        let at = match at {
            Some(LogTime::Since(since)) => since,
            Some(LogTime::Date(date)) => {
                let started = *self.started.get_or_insert(date);
                date.duration_since(started).unwrap_or_default()
            }
            None => Duration::ZERO,
        };
        // The resolution of records is one microsecond.
        self.last = self.last.max(Duration::from_micros(micros(at)));
        self.last
    }
}

impl<R: BufRead> Iterator for Importer<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        self.lines.next(|line| self.state.record_of(line)).transpose()
    }
}

const DIRECTION: [&str; 9] =
    ["from", "dir", "direction", "sender", "side", "source", "stream", "type", "kind"];
const FRAME: [&str; 10] =
    ["frame", "line", "message", "msg", "data", "json", "payload", "raw", "text", "b64"];
const TIME: [&str; 4] = ["at", "ts", "time", "timestamp"];

/// The source of a line, as the log names it.
#[derive(Clone, Copy)]
enum LogSource {
    Side(Side),
    /// The side that wrote the log.
    Sender,
    /// The other side.
    Receiver,
    Stderr,
}

fn who(word: &str) -> Option<LogSource> {
    let word = word.to_lowercase().replace(['_', ' '], "").replace("-to-", "to").replace("=>", "->");
    Some(match word.as_str() {
        "client" | "editor" | "ide" | "c2a" | "c2s" | "client->agent" | "client->server" | "client→agent"
        | "clienttoagent" | "clienttoserver" | "toagent" | "fromclient" | "stdin" => {
            LogSource::Side(Side::Client)
        }
        "agent" | "server" | "a2c" | "s2c" | "agent->client" | "server->client" | "agent→client"
        | "agenttoclient" | "servertoclient" | "toclient" | "fromagent" | "stdout" => {
            LogSource::Side(Side::Agent)
        }
        "out" | "outgoing" | "outbound" | "sent" | "send" | "tx" | ">" | ">>" | ">>>" | "->" | "-->"
        | "→" => LogSource::Sender,
        "in" | "incoming" | "inbound" | "received" | "receive" | "recv" | "rx" | "<" | "<<" | "<<<"
        | "<-" | "<--" | "←" => LogSource::Receiver,
        "stderr" => LogSource::Stderr,
        _ => return None,
    })
}

/// Returns the content of a JSON string.
fn string(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

/// A time in a log.
enum LogTime {
    Since(Duration),
    Date(SystemTime),
}

fn time(raw: &RawValue) -> Option<LogTime> {
    if let Some(text) = string(raw) {
        return date(&text).map(LogTime::Date);
    }
    let number: f64 = serde_json::from_str(raw.get()).ok()?;
    let seconds = match number {
        ..0.0 => return None,
        ..1e9 if raw.get().contains('.') => return Some(LogTime::Since(Duration::from_secs_f64(number))),
        ..1e9 => return Some(LogTime::Since(Duration::from_millis(number as u64))),
        ..1e11 => number,
        ..1e14 => number / 1e3,
        ..1e17 => number / 1e6,
        _ => number / 1e9,
    };
    let since = Duration::try_from_secs_f64(seconds).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(since).and_then(representable).map(LogTime::Date)
}

/// Parses an RFC 3339 date with any offset or none.
fn date(text: &str) -> Option<SystemTime> {
    let (local, offset) = match text.get(text.len().checked_sub(6)?..) {
        Some(offset) if offset.starts_with(['+', '-']) => (text.strip_suffix(offset)?, offset),
        _ => (text, "+00:00"),
    };
    let date = humantime::parse_rfc3339_weak(local).ok()?;
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let offset_by =
        Duration::from_secs(hours.parse::<u64>().ok()? * 3600 + minutes.parse::<u64>().ok()? * 60);
    let date =
        if offset.starts_with('+') { date.checked_sub(offset_by) } else { date.checked_add(offset_by) };
    date.and_then(representable)
}

/// Splits a date, with or without brackets, from the start of a line.
fn leading_date(text: &str) -> (Option<SystemTime>, &str) {
    // A space may separate the date from the time of day.
    for (place, _) in text.match_indices([' ', '\t']).take(2) {
        let Some((word, rest)) = text.split_at_checked(place) else { break };
        if let Some(date) = date(word.trim_matches(['[', ']'])) {
            return (Some(date), rest.trim_start());
        }
    }
    (None, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns each record of a log as a line of a transcript, and each error as its text.
    fn import(log: &str, seen_by: Side) -> String {
        let mut out = String::new();
        for record in Importer::new(log.as_bytes()).seen_by(seen_by) {
            match record {
                Ok(record) => {
                    let mut line = Vec::new();
                    record.write(&mut line);
                    out.push_str(&String::from_utf8(line).expect("UTF-8"));
                }
                Err(error) => out.push_str(&format!("{error}\n")),
            }
        }
        out
    }

    #[test]
    fn objects() {
        let log = r#"
{"dir":"c2a","line":{ "id" : 1.0 }}
{"dir":"a2c","text":"{bad json"}
{"type":"request","direction":"out","message":"{\"id\":2}\n"}
{"line":7,"data":"{\"id\":3}\r\n","sender":"Server"}
{"direction":"client -> agent","payload":[1]}
{"from":"agent","b64":"e/99"}
{"type":"stderr","data":"oh"}
{"at":5,"exit":{"code":0}}
"#;
        insta::assert_snapshot!(import(log, Side::Client), @r#"
        {"at":0,"from":"client","frame":{ "id" : 1.0 }}
        {"at":0,"from":"agent","text":"{bad json"}
        {"at":0,"from":"client","frame":{"id":2}}
        {"at":0,"from":"agent","frame":{"id":3},"end":"\r\n"}
        {"at":0,"from":"client","text":"[1]"}
        {"at":0,"from":"agent","b64":"e/99"}
        {"at":0,"stderr":"oh"}
        {"at":5,"exit":{"code":0}}
        "#);
    }

    #[test]
    fn lines_of_text() {
        let log =
            "> {\"id\":1}\n<-- {\"id\" : 1}\r\n\nclient: {\"id\":2}\n[agent] hello: you\n→{}\nstderr: oh\n<";
        insta::assert_snapshot!(import(log, Side::Client), @r#"
        {"at":0,"from":"client","frame":{"id":1}}
        {"at":0,"from":"agent","frame":{"id" : 1}}
        {"at":0,"from":"client","frame":{"id":2}}
        {"at":0,"from":"agent","text":"hello: you"}
        {"at":0,"from":"client","frame":{}}
        {"at":0,"stderr":"oh"}
        {"at":0,"from":"agent","text":""}
        "#);
        insta::assert_snapshot!(import("> {}\n", Side::Agent), @r#"{"at":0,"from":"agent","frame":{}}"#);
    }

    #[test]
    fn time_never_goes_back() {
        let log = r#"
{"at":9,"eof":"client"}
{"at":5,"exit":{"code":0}}
{"from":"agent","frame":{}}
"#;
        insta::assert_snapshot!(import(log, Side::Client), @r#"
        {"at":9,"eof":"client"}
        {"at":9,"exit":{"code":0}}
        {"at":9,"from":"agent","frame":{}}
        "#);
    }

    #[test]
    fn records_of_days_keep_their_time() {
        let log = r#"
{"at":7,"from":"client","frame":{}}
{"at":200000000000,"from":"agent","frame":{}}
"#;
        insta::assert_snapshot!(import(log, Side::Client), @r#"
        {"at":7,"from":"client","frame":{}}
        {"at":200000000000,"from":"agent","frame":{}}
        "#);
    }

    #[test]
    fn times_become_times_since_the_start() {
        let log = r#"
{"ts":"2026-11-21T15:00:00.25Z","from":"client","frame":{}}
{"ts":"2026-11-21T16:00:01+01:00","from":"client","frame":{}}
{"ts":1795273202000,"from":"client","frame":{}}
{"time":1795273203.5,"from":"client","frame":{}}
{"ts":"2026-11-21T15:00:00Z","from":"client","frame":{}}
{"from":"client","frame":{}}
[2026-11-21T15:00:05Z] > {}
2026-11-21 15:00:06 > {}
"#;
        insta::assert_snapshot!(import(log, Side::Client), @r#"
        {"at":0,"from":"client","frame":{}}
        {"at":750000,"from":"client","frame":{}}
        {"at":1750000,"from":"client","frame":{}}
        {"at":3250000,"from":"client","frame":{}}
        {"at":3250000,"from":"client","frame":{}}
        {"at":3250000,"from":"client","frame":{}}
        {"at":4750000,"from":"client","frame":{}}
        {"at":5750000,"from":"client","frame":{}}
        "#);
        let log = r#"
{"at":12,"from":"client","frame":{}}
{"ts":3,"from":"client","frame":{}}
{"ts":0.5,"from":"client","frame":{}}
"#;
        insta::assert_snapshot!(import(log, Side::Client), @r#"
        {"at":12,"from":"client","frame":{}}
        {"at":3000,"from":"client","frame":{}}
        {"at":500000,"from":"client","frame":{}}
        "#);
    }

    #[test]
    fn invalid_lines_are_errors_with_their_number() {
        let log = r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}
{"dir":"up","line":{}}
{"dir":"c2a"}
{"dir":"c2a","line":"{}\n{}"}
hello
> {}
{"dir":"c2a","li"#;
        insta::assert_snapshot!(import(log, Side::Client), @r#"
        line 1 is not a record: a message without a direction, such as `> ` of the client or `< ` of the agent
        line 2 is not a record: no direction: none of from, dir, direction, sender, side, source, stream, type, kind
        line 3 is not a record: no frame: none of frame, line, message, msg, data, json, payload, raw, text, b64
        line 4 is not a record: the frame contains a line feed
        line 5 is not a record: neither an object nor a direction and a frame
        {"at":0,"from":"client","frame":{}}
        "#);
    }

    /// Generates lines with times of any age, in each spelling.
    fn times() -> impl proptest::strategy::Strategy<Value = String> {
        use proptest::prelude::*;
        prop_oneof![
            (
                "(0001|1969|1970|2026|9999)-(01-01|12-31)T(00:00:00|23:59:59|23:59:60)",
                "(Z|[+-][0-9]{2}:[0-9]{2}|)"
            )
                .prop_map(|(date, offset)| format!("[{date}{offset}] > {{}}\n")),
            ("at|ts|time", "-?[0-9]{1,25}(\\.[0-9]{1,3})?(e[0-9]{1,3})?").prop_map(|(name, number)| {
                format!("{{\"{name}\":{number},\"from\":\"client\",\"frame\":{{}}}}\n")
            }),
        ]
    }

    #[test]
    fn times_that_no_date_can_say_are_no_times() {
        for log in [
            "[1970-01-01T00:00:00+01:00] > {}",
            r#"{"ts":1e21,"from":"client","frame":{}}"#,
            "[9999-12-31T23:59:59-10:00] > {}",
        ] {
            let mut written = Vec::new();
            crate::Transcript::import(log.as_bytes())
                .expect("a log")
                .write(&mut written)
                .expect("a transcript");
            let started = String::from_utf8(written).expect("UTF-8");
            assert!(started.contains(r#""started":"1970-01-01T00:00:00"#), "{started}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_log_is_too_strange(
            text in "[-\\[\\]{}:\"<>→ a-c0-9.+TZ\\n]{0,80}",
            times in proptest::collection::vec(times(), 0..4),
        ) {
            let log = times.concat() + &text;
            import(&log, Side::Agent);
            // The records can be written, and read again.
            let mut importer = Importer::new(log.as_bytes());
            let records: Vec<_> = importer.by_ref().flatten().collect();
            let mut written = Vec::new();
            let header = importer.header();
            crate::Transcript::new(header.clone(), records.clone()).write(&mut written).expect("a transcript");
            let read = crate::Transcript::read(written.as_slice()).expect("the same");
            proptest::prop_assert_eq!(read.header().started, header.started);
            proptest::prop_assert_eq!(read.records(), records);
        }
    }
}
