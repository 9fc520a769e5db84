//! The result of a replay.

use std::cell::Cell;
use std::fmt;

use super::compare::text_diff;
use crate::format::{ProcessExit, RecordEvent};
use crate::ignored_paths::IgnoredPaths;
use crate::transcript::Transcript;

/// A difference from the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// The live side sent a line that is not in the recording.
    Unexpected {
        /// A description of the line.
        what: String,
        /// A diff with the most similar recorded line, if there is one.
        diff: String,
    },
    /// The live side sent a line that differs from the recorded one.
    Other {
        /// A description of the line.
        what: String,
        /// A diff of the recorded and the live line.
        diff: String,
    },
    /// The live side did not send a recorded line, or took too long.
    Missing {
        /// A description of the line.
        what: String,
    },
    /// The recording does not contain the line: it starts later, ends earlier or has a gap.
    Gap {
        /// A description of the place and of the consequence.
        what: String,
    },
    /// Further differences, which are only counted.
    LeftOut {
        /// The number of differences.
        count: usize,
    },
}

/// The number of differences that are kept. A live side that floods a replay causes one with each line.
const KEPT: usize = 10_000;

/// The number of bytes of JSON that diffs compare in a replay. Further differences have no diff.
const DIFF_BYTES: usize = 64 << 20;

/// The differences so far.
#[derive(Debug)]
pub(super) struct DifferenceLog {
    kept: Vec<Difference>,
    left_out: usize,
    /// The bytes that diffs may still compare.
    pub(super) diff_bytes: Cell<usize>,
}

impl Default for DifferenceLog {
    fn default() -> Self {
        DifferenceLog { kept: Vec::new(), left_out: 0, diff_bytes: Cell::new(DIFF_BYTES) }
    }
}

impl DifferenceLog {
    pub(super) fn push(&mut self, difference: Difference) {
        if self.kept.len() < KEPT {
            self.kept.push(difference);
        } else {
            self.left_out += 1;
        }
    }

    pub(super) fn take(&mut self) -> Vec<Difference> {
        let mut all = std::mem::take(&mut self.kept);
        if self.left_out > 0 {
            all.push(Difference::LeftOut { count: std::mem::take(&mut self.left_out) });
        }
        all
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, what, diff) = match self {
            Difference::LeftOut { count } => return write!(f, "{count} more differences"),
            Difference::Unexpected { what, diff } => ("", what, diff.as_str()),
            Difference::Other { what, diff } => ("not as recorded: ", what, diff.as_str()),
            Difference::Missing { what } => ("missing: ", what, ""),
            Difference::Gap { what } => ("", what, ""),
        };
        write!(f, "{before}{what}")?;
        for line in diff.lines() {
            write!(f, "\n    {line}")?;
        }
        Ok(())
    }
}

/// The result of a replay.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReplayReport {
    /// The differences from the recording.
    pub differences: Vec<Difference>,
    /// The recorded lines that the live side did not reach. It may have ended early on purpose.
    pub unused: Vec<String>,
    /// The end of the recorded agent's process, if it ended by itself and the replay reached that point.
    pub exit: Option<ProcessExit>,
    /// The live conversation.
    pub live: Transcript,
    pub(super) recording: Transcript,
    pub(super) ignored: IgnoredPaths,
}

impl ReplayReport {
    /// Returns a diff of both conversations, redacted and rendered, or `None` if they are equal. It leaves out stderr,
    /// the end of the processes, and the paths given to [`Replay::ignore`].
    ///
    /// [`Replay::ignore`]: crate::Replay::ignore
    #[must_use]
    pub fn diff(&self) -> Option<String> {
        let rendered = |transcript: &Transcript| {
            let lines =
                transcript.records().iter().filter(|record| matches!(record.event, RecordEvent::Line(_)));
            let transcript = Transcript::new(transcript.header().clone(), lines.cloned().collect());
            transcript.without(&self.ignored).redacted().render()
        };
        let (recorded, live) = (rendered(&self.recording), rendered(&self.live));
        (recorded != live).then(|| text_diff(&recorded, &live))
    }
}
