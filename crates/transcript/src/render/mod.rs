//! A transcript as a script that a person reads: one line an event.

mod agents;
mod build;
mod content;
mod fields;
mod fold;
mod line;
mod methods;
mod script;
#[cfg(feature = "insta")]
mod snapshot;
mod updates;

pub use fold::FoldedSession;
pub use script::{ResponseTo, Script, ScriptStep, Section, StepKind, Subject};
#[cfg(feature = "insta")]
pub use snapshot::Snapshot;

use crate::Transcript;

/// How a transcript is rendered.
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
    /// As [`Transcript::render`] does it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether each chunk of a message is an event of its own. Otherwise chunks that follow one
    /// another in their session and differ in nothing but their text are one.
    #[must_use]
    pub fn single_chunks(mut self, yes: bool) -> Self {
        self.single_chunks = yes;
        self
    }

    /// Whether each event shows when it was, in seconds since the recording started.
    #[must_use]
    pub fn times(mut self, yes: bool) -> Self {
        self.times = yes;
        self
    }

    /// Whether what is not said on the wire is shown: stderr, and how the process ended. Real agents
    /// log there what is never twice the same. Shown unless told otherwise.
    #[must_use]
    pub fn process(mut self, yes: bool) -> Self {
        self.process = yes;
        self
    }

    /// How many bytes of one text, or of one piece of raw JSON, are shown; 4,096 unless told. Of what
    /// is longer the beginning is shown, with its length and a digest, so that a change is still seen.
    #[must_use]
    pub fn text_bytes(mut self, bytes: usize) -> Self {
        self.text_bytes = bytes;
        self
    }

    /// The script of a transcript.
    #[must_use]
    pub fn script(self, transcript: &Transcript) -> Script {
        build::build(transcript, self)
    }
}

impl Transcript {
    /// The transcript as a script: what was said, session by session, in a form that is the same for
    /// recordings that differ only in times, in where messages were cut into chunks, and in how
    /// independent sessions and stderr ran into each other.
    #[must_use]
    pub fn script(&self) -> Script {
        RenderOptions::new().script(self)
    }

    /// The script as text, one line an event: what a snapshot holds. Ids stand in it as they were,
    /// unless the transcript was redacted before.
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
