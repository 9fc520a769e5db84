//! What came of a replay.

use std::fmt;

use super::compare::text_diff;
use crate::format::{ProcessExit, RecordEvent};
use crate::ignored_paths::IgnoredPaths;
use crate::transcript::Transcript;

/// Something that was not as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// The other side said what it had not said in the recording.
    Unexpected {
        /// What it said.
        what: String,
        /// Against the nearest thing in the recording, if there is one.
        diff: String,
    },
    /// The other side said something else than in the recording.
    Other {
        /// About what.
        what: String,
        /// What had been said and what was.
        diff: String,
    },
    /// The other side had said this in the recording; this time it went on without, or took too long.
    Missing {
        /// What it had said.
        what: String,
    },
    /// The recording does not say what had been said here: it began later, ends before, or has a gap.
    Gap {
        /// Where, and what becomes of it.
        what: String,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let diff = match self {
            Difference::Unexpected { what, diff } => {
                f.write_str(what)?;
                diff
            }
            Difference::Other { what, diff } => {
                write!(f, "not as recorded: {what}")?;
                diff
            }
            Difference::Missing { what } => return write!(f, "missing: {what}"),
            Difference::Gap { what } => return f.write_str(what),
        };
        for line in diff.lines() {
            write!(f, "\n    {line}")?;
        }
        Ok(())
    }
}

/// What came of a replay.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReplayReport {
    /// What was not as recorded.
    pub differences: Vec<Difference>,
    /// What the other side had said in the recording and did not come to this time. It may have left
    /// early on purpose.
    pub unused: Vec<String>,
    /// How the agent of the recording ended, if it ended by itself and the replay came that far.
    pub exit: Option<ProcessExit>,
    /// This conversation.
    pub live: Transcript,
    pub(super) recording: Transcript,
    pub(super) ignored: IgnoredPaths,
}

impl ReplayReport {
    /// How the two conversations differ when both are redacted and rendered: `None` when they do
    /// not. Stderr, how the processes ended, and the places given to [`Replay::ignore`] are left out.
    ///
    /// [`Replay::ignore`]: crate::Replay::ignore
    #[must_use]
    pub fn diff(&self) -> Option<String> {
        let said = |transcript: &Transcript| {
            let lines =
                transcript.records().iter().filter(|record| matches!(record.event, RecordEvent::Line(_)));
            let transcript = Transcript::new(transcript.header().clone(), lines.cloned().collect());
            transcript.without(&self.ignored).redacted().render()
        };
        let (recorded, live) = (said(&self.recording), said(&self.live));
        (recorded != live).then(|| text_diff(&recorded, &live))
    }
}
