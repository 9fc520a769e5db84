//! Snapshot tests of transcripts.

use crate::{Result, Transcript};

/// An argument of [`assert_transcript!`](crate::assert_transcript): a transcript, a reference to one,
/// or the result of loading one.
pub trait Snapshot {
    /// Returns the text of the snapshot: the redacted and rendered transcript.
    ///
    /// # Panics
    ///
    /// Panics if the transcript could not be loaded. The message names the file and the reason.
    fn snapshot(&self) -> String;
}

impl Snapshot for Transcript {
    fn snapshot(&self) -> String {
        self.redacted().render()
    }
}

impl<T: Snapshot> Snapshot for &T {
    #[track_caller]
    fn snapshot(&self) -> String {
        (*self).snapshot()
    }
}

impl Snapshot for Result<Transcript> {
    #[track_caller]
    fn snapshot(&self) -> String {
        match self {
            Ok(transcript) => transcript.snapshot(),
            Err(error) => {
                let folder = std::env::current_dir().unwrap_or_default();
                panic!(
                    "{error}\nPaths are looked up in {}. `duologue record -o FILE -- AGENT` records a transcript.",
                    folder.display()
                )
            }
        }
    }
}

/// Asserts that a transcript equals a snapshot of [insta](https://insta.rs), apart from ids, times
/// and paths.
///
/// The transcript is [redacted](crate::Transcript::redacted) and
/// [rendered](crate::Transcript::render) first.
///
/// It needs the feature `insta` of this crate. `cargo insta review` (from `cargo-insta`) shows new
/// snapshots and accepts them. Without it, `INSTA_UPDATE=always cargo test` accepts those in files.
///
/// ```toml
/// [dev-dependencies]
/// duologue-transcript = { version = "0.1", features = ["insta"] }
/// ```
///
/// With a file beside the test's source:
///
/// ```no_run
/// use duologue_transcript::{Transcript, assert_transcript};
///
/// assert_transcript!(Transcript::load("tests/transcripts/hello.jsonl"));
/// ```
///
/// Or with the text in the test itself:
///
/// ```
/// use duologue_transcript::{Transcript, assert_transcript};
///
/// let file = br#"{"format":"acp-transcript","version":1,"recorder":"by hand","protocolVersion":1,"started":"2026-01-01T00:00:00Z"}
/// {"at":5,"from":"client","frame":{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/home/me/project","mcpServers":[]}}}
/// {"at":9,"from":"agent","frame":{"jsonrpc":"2.0","id":1,"result":{"sessionId":"9b1deb4d"}}}
/// "#;
/// assert_transcript!(Transcript::read(&file[..]), @r"
/// ### session [session-1]
///
/// → session/new [cwd]
/// ← session/new ok
/// ");
/// ```
///
/// # Panics
///
/// Panics if the text differs from the snapshot, if there is no snapshot yet, and if the transcript
/// cannot be loaded.
#[macro_export]
macro_rules! assert_transcript {
    ($transcript:expr, @$snapshot:literal $(,)?) => {{
        let transcript = $crate::Snapshot::snapshot(&$transcript);
        $crate::insta::assert_snapshot!(transcript, @$snapshot);
    }};
    ($transcript:expr $(,)?) => {{
        let transcript = $crate::Snapshot::snapshot(&$transcript);
        $crate::insta::assert_snapshot!(transcript);
    }};
}
