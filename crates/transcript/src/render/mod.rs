//! A transcript as text: a script with one line an event, or the folded sessions.

mod agents;
mod build;
mod content;
pub mod describe;
mod fields;
mod fold;
mod line;
mod methods;
mod object_line;
mod script;
#[cfg(feature = "insta")]
mod snapshot;

pub use fold::{ConversationEvent, FoldedSession, TranscriptFold};
pub use script::{ResponseTo, Script, ScriptStep, Section, StepKind, Subject};
#[cfg(feature = "insta")]
pub use snapshot::Snapshot;

use crate::Transcript;

/// The options of a script.
///
/// ```
/// use duologue_transcript::{Header, RenderOptions, Transcript};
///
/// let transcript = Transcript::new(Header::new("a test"), Vec::new());
/// let script = RenderOptions::new().single_chunks(true).times(true).script(&transcript);
/// assert_eq!(script.to_string(), "");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenderOptions {
    single_chunks: bool,
    times: bool,
    process: bool,
    text_bytes: usize,
}

impl Default for RenderOptions {
    fn default() -> Self {
        RenderOptions { single_chunks: false, times: false, process: true, text_bytes: 4096 }
    }
}

impl RenderOptions {
    /// Creates the options of [`Transcript::render`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes each chunk of a message a step of its own. By default, adjacent chunks of a session that
    /// differ only in their text are one step.
    #[must_use]
    pub fn single_chunks(self, single_chunks: bool) -> Self {
        RenderOptions { single_chunks, ..self }
    }

    /// Adds the time of each step, in seconds since the start of the recording.
    #[must_use]
    pub fn times(self, times: bool) -> Self {
        RenderOptions { times, ..self }
    }

    /// Includes stderr and the end of the process, which is the default. Logs of real agents differ
    /// in every run.
    #[must_use]
    pub fn process(self, process: bool) -> Self {
        RenderOptions { process, ..self }
    }

    /// Limits the bytes of one text or one piece of raw JSON; the default is 4,096. A longer one is
    /// cut and followed by its length and a digest, so that a change is still visible.
    #[must_use]
    pub fn text_bytes(self, text_bytes: usize) -> Self {
        RenderOptions { text_bytes, ..self }
    }

    /// Returns the script of a transcript.
    #[must_use]
    pub fn script(self, transcript: &Transcript) -> Script {
        build::build(transcript, self)
    }
}

impl Transcript {
    /// Returns the transcript as a script, session by session. Recordings have the same script if
    /// they differ only in times, in the boundaries of chunks, and in the interleaving of independent
    /// sessions and stderr.
    #[must_use]
    pub fn script(&self) -> Script {
        RenderOptions::new().script(self)
    }

    /// Returns the script as text, one line an event, for a snapshot. Ids are not replaced unless the
    /// transcript was redacted before.
    ///
    /// ```
    /// use std::time::Duration;
    /// use duologue_transcript::{RecordEvent, Header, RecordedLine, Record, Side, Transcript};
    ///
    /// let record = |from, line: &str| Record::new(Duration::ZERO, RecordEvent::Line(RecordedLine::new(from, line.as_bytes())));
    /// let chunk = |text| record(Side::Agent, &format!(
    ///     r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s1","update":{{
    ///     "sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}}}}}"#
    /// ).replace('\n', ""));
    /// let prompt = r#"{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s1","prompt":[{"type":"text","text":"Tea?"}]}}"#;
    /// let answer = r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}"#;
    ///
    /// let transcript = Transcript::new(Header::new("a test"), vec![
    ///     record(Side::Client, prompt),
    ///     chunk("Yes, "),
    ///     chunk("please."),
    ///     record(Side::Agent, answer),
    /// ]);
    /// assert_eq!(transcript.render(), r#"## session s1
    ///
    /// → session/prompt "Tea?"
    /// ← agent_message "Yes, please."
    /// ← session/prompt end_turn
    /// "#);
    /// ```
    #[must_use]
    pub fn render(&self) -> String {
        self.script().to_string()
    }
}
