//! The format: a header and records, each one line of JSON (RFD 0003).

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duologue_rpc::{Limits, Malformed, RpcMessage};
use duologue_schema::{Json, ProtocolVersion};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// The value of the header's `format`.
pub(crate) const FORMAT: &str = "acp-transcript";
/// The format version that is written, and the latest that can be read.
pub(crate) const VERSION: u32 = 1;

/// A side of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The editor or script.
    Client,
    /// The agent.
    Agent,
}

impl Side {
    /// Returns the other side.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Side::Client => Side::Agent,
            Side::Agent => Side::Client,
        }
    }

    /// Returns `client` or `agent`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Side::Client => "client",
            Side::Agent => "agent",
        }
    }
}

/// The extent to which a transcript is redacted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Redacted {
    /// Not redacted: it may contain keys and tokens.
    #[default]
    Nothing,
    /// Secrets were removed before they were written.
    Secrets,
    /// Secrets, ids and paths were removed, see [`Transcript::redacted`](crate::Transcript::redacted).
    Everything,
}

/// The first line of a transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Header {
    format: String,
    version: u32,
    /// The program that wrote the transcript, with its version.
    pub recorder: String,
    /// The command of the agent, if known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub program: Vec<String>,
    /// The protocol version of the recorder. The negotiated version is in the first frames.
    pub protocol_version: ProtocolVersion,
    /// The time at which `at` was zero. A time outside of the years 1970 to 9999 is written as the nearest one.
    #[serde(serialize_with = "write_time", deserialize_with = "read_time")]
    pub started: SystemTime,
    /// The extent of redaction. An unknown value is read as [`Redacted::Nothing`].
    #[serde(default, deserialize_with = "read_redacted")]
    pub redacted: Redacted,
}

impl Header {
    /// Creates a header for a recording that starts now.
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

    /// Returns the format version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    pub(crate) fn is_known(&self) -> bool {
        self.format == FORMAT
    }
}

/// The last second of the year 9999, counted from 1970.
const LAST_SECOND: u64 = 253_402_300_799;

/// Rounds a time to whole microseconds. Returns `None` before 1970 and after the year 9999.
pub(crate) fn representable(time: SystemTime) -> Option<SystemTime> {
    let since =
        time.duration_since(SystemTime::UNIX_EPOCH).ok().filter(|since| since.as_secs() <= LAST_SECOND)?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_micros(micros(since)))
}

/// Writes a time; one outside of the years 1970 to 9999 becomes the nearest.
fn write_time<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let nearest = SystemTime::UNIX_EPOCH + since.min(Duration::from_secs(LAST_SECOND));
    serializer.collect_str(&humantime::format_rfc3339_micros(nearest))
}

fn read_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
    let text = String::deserialize(deserializer)?;
    let time = humantime::parse_rfc3339_weak(&text).map_err(serde::de::Error::custom)?;
    // A finer time would change when it is written again.
    Ok(representable(time).unwrap_or(time))
}

/// Reads an unknown level as no redaction, since it guarantees nothing.
fn read_redacted<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Redacted, D::Error> {
    let level = serde_json::Value::deserialize(deserializer)?;
    Ok(Redacted::deserialize(level).unwrap_or_default())
}

/// A record: an event with its time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Record {
    /// The time since the recording started, in whole microseconds. It never decreases.
    pub at: Duration,
    /// The event.
    pub event: RecordEvent,
}

/// An event in a recording.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RecordEvent {
    /// One side wrote a line.
    Line(RecordedLine),
    /// The agent wrote a line to stderr. Invalid UTF-8 is replaced.
    Stderr(String),
    /// One side closed its output.
    Eof(Side),
    /// The process of the agent ended.
    Exit(ProcessExit),
    /// Lines that are missing here: the disk was too slow for a lossy recorder, or a line that passed a proxy
    /// was longer than 16 MiB.
    Dropped {
        /// The number of lines.
        lines: u64,
        /// Their total length.
        bytes: u64,
    },
    /// An event of a later version of the format.
    Unknown(Json),
}

/// The end of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessExit {
    /// The exit code, if the process returned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The signal that ended the process.
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

/// The end of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineEnd {
    /// A line feed.
    #[default]
    Lf,
    /// A carriage return and a line feed.
    CrLf,
    /// Nothing: the output ended within the line.
    None,
}

impl LineEnd {
    /// Returns the bytes of the end.
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

/// A line, byte for byte as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedLine {
    /// The side that wrote it.
    pub from: Side,
    bytes: Box<[u8]>,
    /// The text that the SDKs read instead, if the line contains half a surrogate pair.
    repaired: Option<Box<[u8]>>,
    /// The end of the line.
    pub end: LineEnd,
}

impl RecordedLine {
    /// Creates a line that ends with a line feed. `bytes` must not contain one.
    #[must_use]
    pub fn new(from: Side, bytes: impl Into<Box<[u8]>>) -> Self {
        let bytes = bytes.into();
        let repaired = RpcMessage::repair(&bytes).map(Into::into);
        RecordedLine { from, bytes, repaired, end: LineEnd::Lf }
    }

    /// Creates a line from the bytes of a stream, with the end that they have.
    #[must_use]
    pub fn from_wire(from: Side, bytes: &[u8]) -> Self {
        let (line, end) = match bytes {
            [line @ .., b'\r', b'\n'] => (line, LineEnd::CrLf),
            [line @ .., b'\n'] => (line, LineEnd::Lf),
            line => (line, LineEnd::None),
        };
        RecordedLine::new(from, line).ending(end)
    }

    /// Returns the line with another end.
    #[must_use]
    pub fn ending(self, end: LineEnd) -> Self {
        RecordedLine { end, ..self }
    }

    /// Returns the line without its end. It may be invalid UTF-8.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the line as the SDKs read it: halves of surrogate pairs are replaced.
    #[must_use]
    pub fn readable(&self) -> &[u8] {
        self.repaired.as_deref().unwrap_or(&self.bytes)
    }

    /// Returns the line as text, if it is UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }

    /// Parses the line as the SDKs do. Returns `None` for a blank line, and an error for a line that is not a
    /// message.
    #[must_use]
    pub fn message(&self) -> Option<Result<RpcMessage<'_>, Malformed>> {
        RpcMessage::read(self.readable(), &Limits::default())
    }
}

/// Appends the record of a line that is known to be a JSON object. A recorder does this for nearly every
/// line, and does not parse it again.
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
    match std::str::from_utf8(bytes) {
        // A raw value does not include white space around it, so that would be lost.
        Ok(text)
            if text.starts_with('{')
                && text.ends_with('}')
                && serde_json::from_str::<&RawValue>(text).is_ok() =>
        {
            out.extend_from_slice(b",\"frame\":");
            out.extend_from_slice(bytes);
        }
        Ok(text) => member(out, "text", text),
        Err(_) => member(out, "b64", &STANDARD.encode(bytes)),
    }
    if end != LineEnd::Lf {
        member(out, "end", end.as_str());
    }
    out.extend_from_slice(b"}\n");
}

/// Returns a time in whole microseconds, capped at `u64::MAX`.
pub(crate) fn micros(at: Duration) -> u64 {
    u64::try_from(at.as_micros()).unwrap_or(u64::MAX)
}

fn begin(out: &mut Vec<u8>, at: Duration) {
    out.extend_from_slice(b"{\"at\":");
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(out, &micros(at));
}

/// Appends the record of an event that is not a line.
fn write_event<T: Serialize + ?Sized>(out: &mut Vec<u8>, at: Duration, name: &str, value: &T) {
    begin(out, at);
    member(out, name, value);
    out.extend_from_slice(b"}\n");
}

fn member<T: Serialize + ?Sized>(out: &mut Vec<u8>, name: &str, value: &T) {
    out.push(b',');
    // Strings and numbers can always be written.
    let _ = serde_json::to_writer(&mut *out, name);
    out.push(b':');
    let _ = serde_json::to_writer(&mut *out, value);
}

impl Record {
    /// Creates a record of an event at a time since the start.
    #[must_use]
    pub fn new(at: Duration, event: RecordEvent) -> Self {
        Record { at, event }
    }

    /// Returns the line, if the event is one.
    #[must_use]
    pub fn line(&self) -> Option<&RecordedLine> {
        match &self.event {
            RecordEvent::Line(line) => Some(line),
            _ => None,
        }
    }

    /// Appends the record as a line of JSON, including the line feed.
    pub fn write(&self, out: &mut Vec<u8>) {
        match &self.event {
            RecordEvent::Line(line) => write_line(out, self.at, line.from, line.bytes(), line.end),
            RecordEvent::Stderr(text) => write_event(out, self.at, "stderr", text),
            RecordEvent::Eof(side) => write_event(out, self.at, "eof", side),
            RecordEvent::Exit(exit) => write_event(out, self.at, "exit", exit),
            RecordEvent::Dropped { lines, bytes } => {
                write_event(out, self.at, "dropped", &Dropped { lines: *lines, bytes: *bytes });
            }
            RecordEvent::Unknown(json) => {
                out.extend_from_slice(json.get().as_bytes());
                out.push(b'\n');
            }
        }
    }

    /// Parses a record.
    ///
    /// # Errors
    ///
    /// If the line is not a JSON object, or contains more than one event.
    pub(crate) fn read(line: &str) -> Result<Self, String> {
        let wire: RecordFields<'_> = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let at = Duration::from_micros(wire.at);
        let end = match wire.end.as_deref() {
            None => LineEnd::Lf,
            Some(end) => LineEnd::read(end).ok_or("an unknown end of line")?,
        };
        let lines = [
            wire.frame.map(|raw| Ok(raw.get().as_bytes().into())),
            wire.text.map(|text| Ok(text.into_bytes().into_boxed_slice())),
            wire.b64.map(|text| STANDARD.decode(text).map(Into::into).map_err(|error| error.to_string())),
        ];
        let mut events = Vec::new();
        for bytes in lines.into_iter().flatten() {
            let bytes: Box<[u8]> = bytes?;
            if bytes.contains(&b'\n') {
                return Err("the line contains a line feed".into());
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
            (Some(_), false) => {
                return Err("a record must contain one event, this one contains several".into());
            }
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
    fn a_line_keeps_the_end_that_it_has_on_the_wire() {
        for bytes in ["{}\n", "{}\r\n", "{}\r", "{}", "\n", "\r\n", ""] {
            let line = RecordedLine::from_wire(Side::Agent, bytes.as_bytes());
            assert_eq!(format!("{}{}", line.text().expect("UTF-8"), line.end.as_str()), bytes);
            assert!(!line.bytes().ends_with(b"\n"));
        }
    }

    #[test]
    fn times_out_of_range_are_written_as_the_nearest() {
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
    fn an_unknown_redaction_level_is_read_as_none() {
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
