//! What to take out of a transcript.

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

/// What to take out of a transcript, so that it can be compared with another and be shown to others.
///
/// By default: secrets ([`Secrets`]); ids (`[session-1]`, `[message-2]`, `[tool-call-1]`,
/// `[terminal-1]`, `[request-1]`, and `[id-1]` for any other UUID); the folders that paths begin with
/// (`[cwd]`, `[home]`, `[tmp]`); times (`[time]`), and durations where a member says that it is one. A
/// record keeps its place, but not its time.
///
/// Ids are numbered within their session in the order in which they appear, sessions in the order in
/// which they are asked for. A request is numbered within its session and by who asks, and its id says
/// so, `[session-1.request-2]`, since the ids of open requests must differ over a whole connection. So are
/// envelopes, dialogues and their messages (`[session-1.envelope-1]`), while an agent is `[agent-1]` in all
/// sessions; signatures go with the ids (`[signature]`). An id is also replaced where it stands in a text
/// or path, if it is long enough to be nothing else.
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
    /// Secrets and nothing else: what a recorder takes out, also where a secret is spread over the
    /// chunks of a message or the lines of stderr.
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

    /// What is secret.
    #[must_use]
    pub fn secrets(self, secrets: Secrets) -> Self {
        Redaction { secrets, ..self }
    }

    /// Whether ids become `[session-1]` and so on.
    #[must_use]
    pub fn ids(self, ids: bool) -> Self {
        Redaction { ids, ..self }
    }

    /// Whether work folder, home and the folder for temporary files become `[cwd]`, `[home]`, `[tmp]`
    /// where a path begins with them. Further work folders of a session are `[cwd-2]`, `[cwd-3]`…
    #[must_use]
    pub fn paths(self, paths: bool) -> Self {
        Redaction { paths, ..self }
    }

    /// Whether times become `[time]`, in RFC 3339 or as a log prints them, and numbers of seconds or
    /// milliseconds since 1970 become 0 where a member says that they are a time (`createdAt`).
    #[must_use]
    pub fn times(self, times: bool) -> Self {
        Redaction { times, ..self }
    }

    /// Whether numbers become 0 where a member says that they are a duration (`durationMs`).
    #[must_use]
    pub fn durations(self, durations: bool) -> Self {
        Redaction { durations, ..self }
    }

    /// Whether the versions of the two programs become `[version]`.
    #[must_use]
    pub fn versions(self, versions: bool) -> Self {
        Redaction { versions, ..self }
    }

    /// Whether records keep their times, for a replay with the pauses of the recording. Otherwise they
    /// are all 0, and two recordings of the same are the same file.
    #[must_use]
    pub fn keep_pace(self, keep_pace: bool) -> Self {
        Redaction { keep_pace, ..self }
    }

    /// One more folder by which a path may begin, and what stands in its place.
    #[must_use]
    pub fn folder(mut self, path: impl AsRef<Path>, name: &str) -> Self {
        self.folders.add(path.as_ref(), name);
        self
    }

    /// Replaces what a regular expression matches in any string, and in lines that are no JSON. The
    /// replacement may name groups (`$1`). It should not match what it was replaced by, or redacting
    /// twice is not the same as once.
    ///
    /// # Errors
    ///
    /// [`Error::Pattern`].
    pub fn pattern(mut self, pattern: &str, replacement: &str) -> Result<Self> {
        let bad = |error: regex::Error| Error::Pattern { pattern: pattern.into(), reason: error.to_string() };
        self.patterns.push((Regex::new(pattern).map_err(bad)?, replacement.into()));
        Ok(self)
    }

    /// Replaces each value that a [JSON path](https://www.rfc-editor.org/rfc/rfc9535) finds in a
    /// message, such as `$.params.update.rawOutput.pid`.
    ///
    /// # Errors
    ///
    /// [`Error::Pattern`].
    pub fn json_path(mut self, path: &str, replacement: impl Into<Value>) -> Result<Self> {
        let bad = |error: serde_json_path::ParseError| Error::Pattern {
            pattern: path.into(),
            reason: error.to_string(),
        };
        self.places.push((JsonPath::parse(path).map_err(bad)?, replacement.into()));
        Ok(self)
    }

    /// Begins with the first line of a conversation.
    #[must_use]
    pub fn start(&self) -> Redactor {
        Redactor::new(self.clone())
    }

    /// What is the same however often it is done.
    pub(crate) fn settled(&self) -> Self {
        Redaction { patterns: Vec::new(), places: Vec::new(), ..self.clone() }
    }

    /// Shows the matches of the patterns of one's own, and what replaces each.
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

/// RFC 3339, also without a zone and as logs print it.
static TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let date = r"[12][0-9]{3}-[01][0-9]-[0-3][0-9]";
    let time =
        r"[0-2][0-9]:[0-5][0-9](?::[0-6][0-9](?:[.,][0-9]{1,9})?)?(?:Z\b| ?[+-][0-2][0-9]:?[0-5][0-9]\b)?";
    Regex::new(&format!(r"(?-u)\b{date}[Tt ]{time}")).ok()
});

/// Shows each time of day with its date.
pub(crate) fn find_times(text: &[u8], mut found: impl FnMut(Range<usize>)) {
    for time in TIME.iter().flat_map(|pattern| pattern.find_iter(text)) {
        found(time.range());
    }
}
