//! The format: a header and records, each one line of JSON (RFD 0003).

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duologue_rpc::{Limits, Malformed, RpcMessage};
use duologue_schema::{Json, ProtocolVersion};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// What the header's `format` says.
pub(crate) const FORMAT: &str = "acp-transcript";
/// The version of the format that is written, and the last that is read.
pub(crate) const VERSION: u32 = 1;

/// One of the two that talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The editor or script.
    Client,
    /// The agent.
    Agent,
}

impl Side {
    /// The one it talks to.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Side::Client => Side::Agent,
            Side::Agent => Side::Client,
        }
    }

    /// `client` or `agent`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Side::Client => "client",
            Side::Agent => "agent",
        }
    }
}

/// How much was taken out of a transcript.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Redacted {
    /// Nothing: it may hold keys and tokens.
    #[default]
    Nothing,
    /// What looked like a secret, before it was written.
    Secrets,
    /// Secrets, ids and paths, see [`Transcript::redacted`](crate::Transcript::redacted).
    Everything,
}

/// The first line of a transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Header {
    format: String,
    version: u32,
    /// The program that wrote it, and its version.
    pub recorder: String,
    /// The agent's program and its arguments, if known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub program: Vec<String>,
    /// The version of the protocol the recorder knows; what was agreed on is in the first frames.
    pub protocol_version: ProtocolVersion,
    /// When the time of the records was zero. Written as the nearest time from 1970 to the year 9999.
    #[serde(serialize_with = "write_time", deserialize_with = "read_time")]
    pub started: SystemTime,
    /// What was taken out. What a later version says here is read as nothing.
    #[serde(default, deserialize_with = "read_redacted")]
    pub redacted: Redacted,
}

impl Header {
    /// A header for a recording that starts now.
    #[must_use]
    pub fn new(recorder: impl Into<String>) -> Self {
        Header {
            format: FORMAT.into(),
            version: VERSION,
            recorder: recorder.into(),
            program: Vec::new(),
            protocol_version: ProtocolVersion::LATEST,
            started: SystemTime::now(),
            redacted: Redacted::Nothing,
        }
    }

    /// The version of the format.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    pub(crate) fn is_known(&self) -> bool {
        self.format == FORMAT
    }
}

/// The last moment that a date of four digits a year can say, in seconds.
const LAST_SECOND: u64 = 253_402_300_799;

/// A time as the header can say it, in whole microseconds: none before 1970, none after the year 9999.
pub(crate) fn sayable(time: SystemTime) -> Option<SystemTime> {
    let since =
        time.duration_since(SystemTime::UNIX_EPOCH).ok().filter(|since| since.as_secs() <= LAST_SECOND)?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_micros(micros(since)))
}

/// Writes a time; one that no date can say becomes the nearest.
fn write_time<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let nearest = SystemTime::UNIX_EPOCH + since.min(Duration::from_secs(LAST_SECOND));
    serializer.collect_str(&humantime::format_rfc3339_micros(nearest))
}

fn read_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
    let text = String::deserialize(deserializer)?;
    let time = humantime::parse_rfc3339_weak(&text).map_err(serde::de::Error::custom)?;
    // What is finer than it is written would be another time once it is.
    Ok(sayable(time).unwrap_or(time))
}

/// What a later version may take out promises nothing to this one.
fn read_redacted<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Redacted, D::Error> {
    let said = serde_json::Value::deserialize(deserializer)?;
    Ok(Redacted::deserialize(said).unwrap_or_default())
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Record {
    /// When, since the recording started, by a clock that never goes back. Microseconds count.
    pub at: Duration,
    /// What.
    pub event: RecordEvent,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RecordEvent {
    /// One side wrote a line.
    Line(RecordedLine),
    /// The agent wrote a line to stderr. What was not UTF-8 is replaced.
    Stderr(String),
    /// One side will write nothing more.
    Eof(Side),
    /// The agent's process ended.
    Exit(ProcessExit),
    /// Lines the recorder left out: the disk was too slow for one that may do so, or a line that passed a
    /// proxy was longer than 16 MiB.
    Dropped {
        /// How many lines are missing here.
        lines: u64,
        /// How long they were together.
        bytes: u64,
    },
    /// Something a later version of the format knows.
    Unknown(Json),
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessExit {
    /// Its exit code, if it returned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

impl From<std::process::ExitStatus> for ProcessExit {
    fn from(status: std::process::ExitStatus) -> Self {
        #[cfg(unix)]
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        #[cfg(not(unix))]
        let signal = None;
        ProcessExit { code: status.code(), signal }
    }
}

/// What stood at the end of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineEnd {
    /// A line feed.
    #[default]
    Lf,
    /// A carriage return and a line feed.
    CrLf,
    /// Nothing: the output ended in the middle of the line.
    None,
}

impl LineEnd {
    /// The bytes.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            LineEnd::Lf => "\n",
            LineEnd::CrLf => "\r\n",
            LineEnd::None => "",
        }
    }

    fn read(text: &str) -> Option<Self> {
        [LineEnd::Lf, LineEnd::CrLf, LineEnd::None].into_iter().find(|end| end.as_str() == text)
    }
}

/// A line as it was written, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedLine {
    /// Who wrote it.
    pub from: Side,
    bytes: Box<[u8]>,
    /// What is read instead, where that is not what stands there.
    repaired: Option<Box<[u8]>>,
    /// Its end.
    pub end: LineEnd,
}

impl RecordedLine {
    /// A line that ends with a line feed. `bytes` holds none.
    #[must_use]
    pub fn new(from: Side, bytes: impl Into<Box<[u8]>>) -> Self {
        let bytes = bytes.into();
        let repaired = RpcMessage::repair(&bytes).map(Into::into);
        RecordedLine { from, bytes, repaired, end: LineEnd::Lf }
    }

    /// The same with another end.
    #[must_use]
    pub fn ending(self, end: LineEnd) -> Self {
        RecordedLine { end, ..self }
    }

    /// The line without its end; not always UTF-8.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The line as the SDKs read it: as it stands, but for halves of characters.
    #[must_use]
    pub fn readable(&self) -> &[u8] {
        self.repaired.as_deref().unwrap_or(&self.bytes)
    }

    /// The line as text, if it is UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }

    /// The line as the SDKs read it: a message, or why it is none. A blank line is `None`.
    #[must_use]
    pub fn message(&self) -> Option<Result<RpcMessage<'_>, Malformed>> {
        RpcMessage::read(self.readable(), &Limits::default())
    }
}

/// How the bytes of a line stand in their record.
enum LineBody<'a> {
    /// A JSON object with nothing around it: as it is.
    Frame(&'a str),
    /// Other text.
    Text(&'a str),
    /// No text at all.
    Bytes(&'a [u8]),
}

impl<'a> LineBody<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        match std::str::from_utf8(bytes) {
            // A raw value leaves white space around it out, and that would be lost.
            Ok(text)
                if text.starts_with('{')
                    && text.ends_with('}')
                    && serde_json::from_str::<&RawValue>(text).is_ok() =>
            {
                LineBody::Frame(text)
            }
            Ok(text) => LineBody::Text(text),
            Err(_) => LineBody::Bytes(bytes),
        }
    }
}

/// Appends the record of a line that is known to be a JSON object and nothing else, without reading
/// it again: what a recorder does for nearly every line.
pub(crate) fn write_frame(out: &mut Vec<u8>, at: Duration, from: Side, frame: &[u8]) {
    begin(out, at);
    out.extend_from_slice(b",\"from\":\"");
    out.extend_from_slice(from.name().as_bytes());
    out.extend_from_slice(b"\",\"frame\":");
    out.extend_from_slice(frame);
    out.extend_from_slice(b"}\n");
}

/// Appends the record of a line.
pub(crate) fn write_line(out: &mut Vec<u8>, at: Duration, from: Side, bytes: &[u8], end: LineEnd) {
    begin(out, at);
    member(out, "from", &from);
    match LineBody::of(bytes) {
        LineBody::Frame(text) => {
            out.extend_from_slice(b",\"frame\":");
            out.extend_from_slice(text.as_bytes());
        }
        LineBody::Text(text) => member(out, "text", text),
        LineBody::Bytes(bytes) => member(out, "b64", &STANDARD.encode(bytes)),
    }
    if end != LineEnd::Lf {
        member(out, "end", end.as_str());
    }
    out.extend_from_slice(b"}\n");
}

/// A time as it is written; one that nothing can last, as the longest.
pub(crate) fn micros(at: Duration) -> u64 {
    u64::try_from(at.as_micros()).unwrap_or(u64::MAX)
}

fn begin(out: &mut Vec<u8>, at: Duration) {
    use std::io::Write as _;
    // Writing to memory does not fail.
    let _ = write!(out, "{{\"at\":{}", micros(at));
}

fn member<T: Serialize + ?Sized>(out: &mut Vec<u8>, name: &str, value: &T) {
    out.push(b',');
    // Neither does writing what is only strings and numbers.
    let _ = serde_json::to_writer(&mut *out, name);
    out.push(b':');
    let _ = serde_json::to_writer(&mut *out, value);
}

impl Record {
    /// Something that happened `at` this time since the start.
    #[must_use]
    pub fn new(at: Duration, event: RecordEvent) -> Self {
        Record { at, event }
    }

    /// The line, if one was written.
    #[must_use]
    pub fn line(&self) -> Option<&RecordedLine> {
        match &self.event {
            RecordEvent::Line(line) => Some(line),
            _ => None,
        }
    }

    /// Appends the record as one line of JSON, with its end.
    pub fn write(&self, out: &mut Vec<u8>) {
        match &self.event {
            RecordEvent::Unknown(json) => {
                out.extend_from_slice(json.get().as_bytes());
                out.push(b'\n');
                return;
            }
            RecordEvent::Line(line) => return write_line(out, self.at, line.from, line.bytes(), line.end),
            _ => begin(out, self.at),
        }
        match &self.event {
            RecordEvent::Stderr(text) => member(out, "stderr", text),
            RecordEvent::Eof(side) => member(out, "eof", side),
            RecordEvent::Exit(exit) => member(out, "exit", exit),
            RecordEvent::Dropped { lines, bytes } => {
                member(out, "dropped", &Dropped { lines: *lines, bytes: *bytes })
            }
            RecordEvent::Line(_) | RecordEvent::Unknown(_) => {}
        }
        out.extend_from_slice(b"}\n");
    }

    /// Reads a record from one line.
    ///
    /// # Errors
    ///
    /// When the line is not a JSON object, or says two things at once.
    pub(crate) fn read(line: &str) -> Result<Self, String> {
        let wire: RecordFields<'_> = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let at = Duration::from_micros(wire.at);
        let end = match wire.end.as_deref() {
            None => LineEnd::Lf,
            Some(end) => LineEnd::read(end).ok_or("an unknown end of line")?,
        };
        let says = [
            wire.frame.map(|raw| Ok(raw.get().as_bytes().into())),
            wire.text.map(|text| Ok(text.into_bytes().into_boxed_slice())),
            wire.b64.map(|text| STANDARD.decode(text).map(Into::into).map_err(|error| error.to_string())),
        ];
        let mut events = Vec::new();
        for bytes in says.into_iter().flatten() {
            let bytes: Box<[u8]> = bytes?;
            if bytes.contains(&b'\n') {
                return Err("a line holds the end of a line".into());
            }
            let from = wire.from.ok_or("a line without `from`")?;
            events.push(RecordEvent::Line(RecordedLine::new(from, bytes).ending(end)));
        }
        events.extend(wire.stderr.map(RecordEvent::Stderr));
        events.extend(wire.eof.map(RecordEvent::Eof));
        events.extend(wire.exit.map(RecordEvent::Exit));
        events.extend(wire.dropped.map(|it| RecordEvent::Dropped { lines: it.lines, bytes: it.bytes }));
        let event = match (events.pop(), events.is_empty()) {
            (Some(event), true) => event,
            (Some(_), false) => return Err("a record says one thing, this one says several".into()),
            (None, _) => RecordEvent::Unknown(serde_json::from_str(line).map_err(|error| error.to_string())?),
        };
        Ok(Record { at, event })
    }
}

#[derive(Serialize, Deserialize)]
struct Dropped {
    lines: u64,
    bytes: u64,
}

#[derive(Deserialize)]
struct RecordFields<'a> {
    at: u64,
    from: Option<Side>,
    #[serde(borrow)]
    frame: Option<&'a RawValue>,
    text: Option<String>,
    b64: Option<String>,
    end: Option<String>,
    stderr: Option<String>,
    eof: Option<Side>,
    exit: Option<ProcessExit>,
    dropped: Option<Dropped>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(event: RecordEvent) -> String {
        let mut out = Vec::new();
        Record::new(Duration::from_micros(7), event).write(&mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn each_kind_of_record_is_one_line() {
        let line = |bytes: &[u8]| RecordEvent::Line(RecordedLine::new(Side::Agent, bytes));
        for (event, expect) in [
            (line(br#"{ "id" : 1}"#), r#"{"at":7,"from":"agent","frame":{ "id" : 1}}"#),
            (line(br#" {"id":1}"#), r#"{"at":7,"from":"agent","text":" {\"id\":1}"}"#),
            (line(b"{\xff}"), r#"{"at":7,"from":"agent","b64":"e/99"}"#),
            (
                RecordEvent::Line(RecordedLine::new(Side::Client, *b"").ending(LineEnd::CrLf)),
                r#"{"at":7,"from":"client","text":"","end":"\r\n"}"#,
            ),
            (RecordEvent::Stderr("oh".into()), r#"{"at":7,"stderr":"oh"}"#),
            (RecordEvent::Eof(Side::Client), r#"{"at":7,"eof":"client"}"#),
            (
                RecordEvent::Exit(ProcessExit { code: None, signal: Some(9) }),
                r#"{"at":7,"exit":{"signal":9}}"#,
            ),
            (RecordEvent::Dropped { lines: 2, bytes: 30 }, r#"{"at":7,"dropped":{"lines":2,"bytes":30}}"#),
        ] {
            let text = written(event.clone());
            assert_eq!(text, format!("{expect}\n"));
            assert_eq!(Record::read(text.trim_end()), Ok(Record::new(Duration::from_micros(7), event)));
        }
        let unknown = r#"{"at":1,"mood":"good"}"#;
        assert!(
            matches!(Record::read(unknown), Ok(Record { event: RecordEvent::Unknown(json), .. }) if json.get() == unknown)
        );
    }

    #[test]
    fn what_cannot_be_written_is_written_as_the_nearest() {
        let mut out = Vec::new();
        Record::new(Duration::MAX, RecordEvent::Eof(Side::Agent)).write(&mut out);
        let text = String::from_utf8(out).expect("UTF-8");
        assert!(Record::read(text.trim_end()).is_ok(), "{text}");

        let far = Duration::from_secs(1 << 40);
        for (time, expect) in [
            (SystemTime::UNIX_EPOCH - far, "1970-01-01T00:00:00.000000Z"),
            (SystemTime::UNIX_EPOCH + far, "9999-12-31T23:59:59.000000Z"),
        ] {
            let mut header = Header::new("a test");
            header.started = time;
            let text = serde_json::to_string(&header).expect("a header");
            assert!(text.contains(expect), "{text}");
        }
    }

    #[test]
    fn a_header_is_written_as_it_was_read() {
        let text = r#"{"format":"acp-transcript","version":1,"recorder":"x","protocolVersion":1,"started":"2026-01-01T00:00:00.123456789Z"}"#;
        let header: Header = serde_json::from_str(text).expect("a header");
        let again = serde_json::to_string(&header).expect("a header");
        assert_eq!(serde_json::from_str::<Header>(&again).ok(), Some(header));
    }

    #[test]
    fn what_a_later_version_redacts_promises_nothing() {
        let header = r#"{"format":"acp-transcript","version":1,"recorder":"x","protocolVersion":1,"started":"2026-01-01T00:00:00Z","redacted":"paths"}"#;
        let header: Header = serde_json::from_str(header).expect("a header");
        assert_eq!(header.redacted, Redacted::Nothing);
    }

    proptest::proptest! {
        #[test]
        fn any_line_comes_back_byte_for_byte(bytes in proptest::collection::vec(0u8.., 0..60), at in 0u64..1 << 50) {
            let bytes: Vec<u8> = bytes.into_iter().filter(|byte| *byte != b'\n').collect();
            let record = Record::new(Duration::from_micros(at), RecordEvent::Line(RecordedLine::new(Side::Agent, bytes)));
            let mut out = Vec::new();
            record.write(&mut out);
            let text = String::from_utf8(out).unwrap();
            proptest::prop_assert_eq!(text.matches('\n').count(), 1);
            proptest::prop_assert_eq!(Record::read(text.trim_end_matches('\n')), Ok(record));
        }
    }
}
