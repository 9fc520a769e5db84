//! The lines of a log: those of its owner, and the record that begins a life.

use std::time::Duration;

use bytes::Bytes;
use duologue_transcript::{Record, Transcript};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::error::{Error, Result};

/// A record as one line of JSON, without its line feed.
///
/// The log does not interpret it. It must be a valid record of a transcript, or readers report it as damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine(Bytes);

impl LogLine {
    /// Creates a line from the bytes of a JSON object. They are not parsed.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidLine`] if the bytes are visibly no line of JSON: they do not begin and end with a brace,
    /// contain a line feed or a NUL, or are longer than [`Transcript::LINE_BYTES`].
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self> {
        let bytes = bytes.into();
        let invalid = |reason| Err(Error::InvalidLine { reason });
        if bytes.len() < 2 || !bytes.starts_with(b"{") || !bytes.ends_with(b"}") {
            return invalid("it is not a JSON object");
        }
        if memchr::memchr2(b'\n', 0, &bytes).is_some() {
            return invalid("it contains a line feed or a NUL");
        }
        if bytes.len() as u64 >= Transcript::LINE_BYTES {
            return invalid("it is longer than `Transcript::LINE_BYTES`, 128 MiB");
        }
        Ok(LogLine(bytes))
    }

    /// Creates the line of a record.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new). Only an event of an unknown kind can contain a line feed.
    pub fn of(record: &Record) -> Result<Self> {
        let mut text = Vec::new();
        record.write(&mut text);
        text.pop();
        LogLine::new(text)
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Returns the length in a file, with the line feed.
    pub(crate) fn written_len(&self) -> usize {
        self.0.len() + 1
    }

    /// Returns the record that begins a life.
    pub(crate) fn opened(at: Duration, life: u32) -> Self {
        let text = format!(r#"{{"at":{},"hub":{{"event":"opened","life":{life}}}}}"#, micros(at));
        LogLine(text.into())
    }

    /// Returns the record in the place of lost ones, the record `dropped` of a transcript.
    pub(crate) fn dropped(at: Duration, lines: u64, bytes: u64) -> Self {
        let at = micros(at);
        LogLine(format!(r#"{{"at":{at},"dropped":{{"lines":{lines},"bytes":{bytes}}}}}"#).into())
    }
}

/// The latest time of a record, 2^53 microseconds. Numbers in JSON are exact up to this limit.
const LATEST_MICROS: u64 = 1 << 53;

/// Returns a time in whole microseconds, capped at [`LATEST_MICROS`].
pub(crate) fn micros(at: Duration) -> u64 {
    u64::try_from(at.as_micros()).unwrap_or(u64::MAX).min(LATEST_MICROS)
}

/// Returns the time of a record, if it has one.
pub(crate) fn time_of(line: &[u8]) -> Option<Duration> {
    #[derive(Deserialize)]
    struct Time {
        at: u64,
    }
    let Time { at } = serde_json::from_slice(line).ok()?;
    Some(Duration::from_micros(at.min(LATEST_MICROS)))
}

/// Returns the life that a record begins, if it begins one.
pub(crate) fn life_of(line: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct Opened<'a> {
        #[serde(borrow)]
        hub: OpenedEvent<'a>,
    }
    #[derive(Deserialize)]
    struct OpenedEvent<'a> {
        event: &'a str,
        life: u32,
    }
    let Opened { hub } = serde_json::from_slice(line).ok()?;
    (hub.event == "opened").then_some(hub.life)
}

/// Checks that a line of a file is one JSON object.
pub(crate) fn check_record(line: &[u8]) -> std::result::Result<(), String> {
    let text = std::str::from_utf8(line).map_err(|error| error.to_string())?;
    if !text.starts_with('{') {
        return Err("it is not a JSON object".into());
    }
    serde_json::from_str::<IgnoredAny>(text).map(drop).map_err(|error| error.to_string())
}

/// Returns the length of the first of two records in one line, between which the line feed was damaged.
pub(crate) fn first_of_two(line: &[u8]) -> Option<usize> {
    let mut values = serde_json::Deserializer::from_slice(line).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    let length = values.byte_offset();
    let (first, second) = (line.get(..length)?, line.get(length + 1..)?);
    (check_record(first).is_ok() && check_record(second).is_ok()).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_object_without_line_feed_or_nul() {
        for bytes in ["", "{", "}", "[]", "{}\n", "{\n}", "{\0}", " {}", "{} "] {
            assert!(matches!(LogLine::new(bytes), Err(Error::InvalidLine { .. })), "{bytes:?}");
        }
        assert_eq!(LogLine::new("{}").expect("a line").bytes().as_ref(), b"{}");
    }

    #[test]
    fn two_records_in_a_line_are_found() {
        for (line, length) in [
            (&br#"{"a":{}}x{"b":"}"}"#[..], 8),
            (b"{} {}", 2),
            (b"{}\xff{}", 2),
            (b"{}\0{}", 2),
            (b"{}}{}", 2),
            (br#"{}"{}"#, 2),
        ] {
            assert_eq!(first_of_two(line), Some(length), "{line:?}");
        }
        let others =
            ["", "{}", "{}{}", "{}  {}", "{} {", "{x {}", "[] {}", "{} []", "{},{},{}", r#"{"a":"} {"}"#];
        for line in others {
            assert_eq!(first_of_two(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn the_record_of_a_life_is_a_record_with_its_time() {
        let line = LogLine::opened(Duration::from_micros(12), 3);
        assert_eq!(line.bytes().as_ref(), br#"{"at":12,"hub":{"event":"opened","life":3}}"#);
        assert_eq!(check_record(line.bytes()), Ok(()));
        assert_eq!(time_of(line.bytes()), Some(Duration::from_micros(12)));
        assert_eq!((time_of(b"{}"), life_of(b"{}")), (None, None));
        assert_eq!(life_of(line.bytes()), Some(3));
        assert_eq!(life_of(br#"{"at":12,"hub":{"event":"other","life":3}}"#), None);
    }
}
