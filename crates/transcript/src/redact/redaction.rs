//! The settings of redaction.

use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;

use regex::bytes::Regex;
use serde_json::Value;
use serde_json_path::JsonPath;

use super::folders::KnownFolders;
use super::redactor::Redactor;
use super::secrets::Secrets;
use crate::error::{Error, Result};

/// The settings of redaction, which makes a transcript comparable with others and fit to be shown.
///
/// By default it replaces:
///
/// - secrets ([`Secrets`]) and signatures (`[signature]`);
/// - ids (`[session-1]`, `[message-2]`, `[tool-call-1]`, `[terminal-1]`, `[request-1]`), and any other UUID
///   (`[id-1]`), also within a text or path if they are distinctive;
/// - the folders that paths begin with (`[cwd]`, `[home]`, `[tmp]`);
/// - times (`[time]`), and the values of members that are named as durations.
///
/// Records keep their order, but not their times.
///
/// Ids are numbered within their session in the order of their appearance, and sessions in the order of the
/// requests that create them. Requests are numbered by session and sender. The ids of requests, envelopes,
/// dialogues and their messages must be unique on a connection, so they contain the session:
/// `[session-1.request-2]`, `[session-1.envelope-1]`. An agent is `[agent-1]` in all sessions.
///
/// ```
/// use duologue_transcript::{RecordedLine, Redaction, Side};
///
/// let redaction = Redaction::default().versions(true).pattern(r"pid \d+", "pid [pid]")?;
/// let mut redactor = redaction.start();
/// let line = br#"{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"/home/me/x","mcpServers":[]}}"#;
/// assert_eq!(
///     redactor.line(&RecordedLine::new(Side::Client, line.as_slice())).text(),
///     Some(r#"{"jsonrpc":"2.0","id":"[session-1.request-1]","method":"session/new","params":{"cwd":"[cwd]","mcpServers":[]}}"#),
/// );
/// # duologue_transcript::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Redaction {
    pub(crate) secrets: Secrets,
    pub(crate) ids: bool,
    pub(crate) paths: bool,
    pub(crate) times: bool,
    pub(crate) durations: bool,
    pub(crate) versions: bool,
    pub(crate) keep_pace: bool,
    pub(crate) folders: KnownFolders,
    pub(crate) patterns: Vec<(Regex, String)>,
    pub(crate) places: Vec<(JsonPath, Value)>,
}

impl Default for Redaction {
    fn default() -> Self {
        Redaction {
            secrets: Secrets::default(),
            ids: true,
            paths: true,
            times: true,
            durations: true,
            versions: false,
            keep_pace: false,
            folders: KnownFolders::here(),
            patterns: Vec::new(),
            places: Vec::new(),
        }
    }
}

impl Redaction {
    /// Removes only secrets, as a recorder does, but also those that are split over chunks of a message or lines of
    /// stderr.
    #[must_use]
    pub fn secrets_only() -> Self {
        Redaction {
            ids: false,
            paths: false,
            times: false,
            durations: false,
            keep_pace: true,
            ..Redaction::default()
        }
    }

    /// Sets the secrets to remove.
    #[must_use]
    pub fn secrets(self, secrets: Secrets) -> Self {
        Redaction { secrets, ..self }
    }

    /// Sets if ids are replaced.
    #[must_use]
    pub fn ids(self, ids: bool) -> Self {
        Redaction { ids, ..self }
    }

    /// Sets if the working, home and temporary folders at the start of paths are replaced. Further folders of a
    /// session are `[cwd-2]`, `[cwd-3]` and so on.
    #[must_use]
    pub fn paths(self, paths: bool) -> Self {
        Redaction { paths, ..self }
    }

    /// Sets if times are replaced, in RFC 3339 or as logs print them. Numbers of seconds or milliseconds since 1970
    /// become 0 in members that are named as times (`createdAt`).
    #[must_use]
    pub fn times(self, times: bool) -> Self {
        Redaction { times, ..self }
    }

    /// Sets if numbers become 0 in members that are named as durations (`durationMs`).
    #[must_use]
    pub fn durations(self, durations: bool) -> Self {
        Redaction { durations, ..self }
    }

    /// Sets if the versions of both programs become `[version]`.
    #[must_use]
    pub fn versions(self, versions: bool) -> Self {
        Redaction { versions, ..self }
    }

    /// Sets if records keep their times, for a replay at the recorded pace. Otherwise all times are 0, so that two
    /// recordings of the same conversation are equal.
    #[must_use]
    pub fn keep_pace(self, keep_pace: bool) -> Self {
        Redaction { keep_pace, ..self }
    }

    /// Adds a folder that paths may begin with, and its placeholder.
    #[must_use]
    pub fn folder(mut self, path: impl AsRef<Path>, name: &str) -> Self {
        self.folders.add(path.as_ref(), name);
        self
    }

    /// Replaces the matches of a regular expression in each string and in lines that are not JSON. The replacement
    /// may refer to groups (`$1`). It should not match the pattern, or redacting twice differs from redacting once.
    ///
    /// # Errors
    ///
    /// [`Error::Pattern`].
    pub fn pattern(mut self, pattern: &str, replacement: &str) -> Result<Self> {
        let regex = Regex::new(pattern).map_err(|error| Error::pattern(pattern, error))?;
        self.patterns.push((regex, replacement.into()));
        Ok(self)
    }

    /// Replaces each value that a [JSON path](https://www.rfc-editor.org/rfc/rfc9535) matches in a message, such as
    /// `$.params.update.rawOutput.pid`.
    ///
    /// # Errors
    ///
    /// [`Error::Pattern`].
    pub fn json_path(mut self, path: &str, replacement: impl Into<Value>) -> Result<Self> {
        let parsed = JsonPath::parse(path).map_err(|error| Error::pattern(path, error))?;
        self.places.push((parsed, replacement.into()));
        Ok(self)
    }

    /// Starts to redact a conversation.
    #[must_use]
    pub fn start(&self) -> Redactor {
        Redactor::new(self.clone())
    }

    /// Returns the settings without custom patterns and paths: redacting again with them has no further effect.
    pub(crate) fn settled(&self) -> Self {
        Redaction { patterns: Vec::new(), places: Vec::new(), ..self.clone() }
    }

    /// Calls `found` with the matches of the custom patterns and their replacements.
    pub(crate) fn find_patterns(&self, text: &[u8], mut found: impl FnMut(Range<usize>, String)) {
        for (pattern, replacement) in &self.patterns {
            for captures in pattern.captures_iter(text) {
                let Some(whole) = captures.get(0).filter(|whole| !whole.is_empty()) else { continue };
                let mut with = Vec::new();
                captures.expand(replacement.as_bytes(), &mut with);
                found(whole.range(), String::from_utf8_lossy(&with).into_owned());
            }
        }
    }
}

/// RFC 3339 times, also without a zone and as logs print them.
static TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let date = r"[12][0-9]{3}-[01][0-9]-[0-3][0-9]";
    let time =
        r"[0-2][0-9]:[0-5][0-9](?::[0-6][0-9](?:[.,][0-9]{1,9})?)?(?:Z\b| ?[+-][0-2][0-9]:?[0-5][0-9]\b)?";
    Regex::new(&format!(r"(?-u)\b{date}[Tt ]{time}")).ok()
});

/// Calls `found` with each date with a time of day.
pub(crate) fn find_times(text: &[u8], mut found: impl FnMut(Range<usize>)) {
    for time in TIME.iter().flat_map(|pattern| pattern.find_iter(text)) {
        found(time.range());
    }
}
