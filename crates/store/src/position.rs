//! Positions in a log, and cursors that survive a restart.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// The number of a record in its log, from 1. Zero is the place before the first record.
///
/// Records keep their numbers for ever, also when older ones are removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition(u64);

impl LogPosition {
    /// The place before the first record.
    pub const START: LogPosition = LogPosition(0);

    /// Creates a position from its number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        LogPosition(number)
    }

    /// Returns the number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A position together with the life of the log in which it was given out.
///
/// A power cut can remove the newest records, and the next life gives their numbers to other records.
/// [`Log::check`](crate::Log::check) refuses a cursor to a removed record, since its life ends before it.
///
/// Its text is `LIFE-POSITION`, such as `3-812`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogCursor {
    /// The life, see [`Log::life`](crate::Log::life).
    pub life: u32,
    /// The position of the last record that was received.
    pub position: LogPosition,
}

impl fmt::Display for LogCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.life, self.position)
    }
}

impl FromStr for LogCursor {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let (life, position) = text.split_once('-').unwrap_or((text, ""));
        Ok(LogCursor { life: life.parse()?, position: LogPosition(position.parse()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_from_its_text() {
        let cursor = LogCursor { life: 3, position: LogPosition::new(812) };
        assert_eq!(cursor.to_string(), "3-812");
        assert_eq!("3-812".parse(), Ok(cursor));
        for other in ["", "3", "3-", "-3", "3-x", "4294967296-1", "3-18446744073709551616"] {
            assert!(other.parse::<LogCursor>().is_err(), "{other}");
        }
    }
}
