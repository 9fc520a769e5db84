//! Replay of one side of a recording against a live other side.

mod compare;
mod folder_index;
mod inbound;
mod name_map;
mod outbound;
mod plan;
mod player;
mod report;
mod secret_env;
#[cfg(test)]
mod tests;
mod transport;
mod update_amounts;

use std::path::PathBuf;
use std::time::Duration;

use duologue_rpc::Transport;

use crate::error::Result;
use crate::format::{Header, Side};
use crate::ignored_paths::IgnoredPaths;
use crate::record::Recorder;
use crate::transcript::Transcript;
use player::Player;
pub use report::{Difference, ReplayReport};

/// The default of [`Replay::patience`].
const PATIENCE: Duration = Duration::from_secs(30);
/// The time that an agent has to end its output after a played client has ended its input.
const LEAVE: Duration = Duration::from_secs(2);
/// The time for which a played client waits for updates, which may be missing from a shorter text.
const SETTLE: Duration = Duration::from_millis(500);

/// The pace of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Timing {
    /// As fast as the order of lines allows.
    #[default]
    Fast,
    /// With the pauses of the recording.
    Recorded,
    /// With its pauses multiplied by a factor: 0.5 is twice as fast.
    Scaled(f64),
}

/// Plays one side of a recording. A played agent lets the tests of an editor run without the real one. A played
/// client compares an agent with an earlier version.
///
/// The order of lines is kept within each recorded session. Sessions are independent of each other, and so are the
/// lines that belong to no session.
///
/// # Differences that are accepted
///
/// - **Ids** of JSON-RPC, and all ids that the live side chooses, are mapped in both directions. This includes the ids
///   in envelopes and dialogues. A new session gets its recorded id. Times and signatures are not compared. A signed
///   message with a mapped id has no valid signature any more.
/// - **Folders**: the `cwd` of a session may differ. In paths, the recorded one is replaced by the live one.
/// - **The client**: `clientInfo` and `clientCapabilities` of `initialize` are not compared, since an editor's test
///   is rarely recorded with the same editor. A missing capability shows in its responses. `_meta` is never
///   compared. See [`ignore`](Self::ignore).
/// - **Missing, `null` and empty** values are equal.
/// - **Placeholders** of a redacted recording (`[time]`, `[session-1]`) match any text. If only its secrets were
///   removed, only `[secret]` does. Played lines contain the `[home]` and `[tmp]` of this machine, and no environment
///   variable whose value is `[secret]`.
///
/// All other values must be equal, above all the text of a prompt.
///
/// Nothing is invented. A request whose response is in a gap or after the end of a cut recording gets an error. A
/// response without its request is left out. Both are reported as a [`Difference::Gap`]. The agent of a cut
/// recording ends where the recording does.
///
/// ```
/// use duologue_rpc::Transport;
/// use duologue_transcript::{Replay, Transcript};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let recording = concat!(
///     r#"{"format":"acp-transcript","version":1,"recorder":"by hand","protocolVersion":1,"started":"2026-01-01T00:00:00Z"}"#, "\n",
///     r#"{"at":1,"from":"client","frame":{"jsonrpc":"2.0","id":1,"method":"_greet","params":{"name":"Ada"}}}"#, "\n",
///     r#"{"at":2,"from":"agent","frame":{"jsonrpc":"2.0","id":1,"result":"Hello, Ada"}}"#, "\n",
/// );
/// let (ours, theirs) = Transport::memory();
/// let replay = tokio::spawn(Replay::new(Transcript::read(recording.as_bytes())?).serve(theirs));
///
/// let (mut reader, mut writer) = ours.into_split();
/// writer.write_all(br#"{"jsonrpc":"2.0","id":"mine","method":"_greet","params":{"name":"Ada"}}"#).await?;
/// writer.shutdown().await?;
/// let mut response = String::new();
/// reader.read_to_string(&mut response).await?;
/// assert_eq!(response, "{\"jsonrpc\":\"2.0\",\"id\":\"mine\",\"result\":\"Hello, Ada\"}\n");
/// assert!(replay.await??.differences.is_empty());
/// # Ok(())
/// # }
/// ```
#[must_use = "a replay does nothing until it serves or drives"]
pub struct Replay {
    transcript: Transcript,
    settings: ReplaySettings,
    stderr: Option<OnStderr>,
    recorder: Option<Recorder>,
}

/// A callback for the lines of stderr.
type OnStderr = Box<dyn FnMut(&str) + Send>;

#[derive(Clone, Debug)]
struct ReplaySettings {
    ignored: IgnoredPaths,
    timing: Timing,
    patience: Duration,
    settle: Duration,
    cwd: Option<PathBuf>,
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Replay {
    /// Creates a replay of a recording, redacted or not.
    pub fn new(transcript: Transcript) -> Self {
        let settings = ReplaySettings {
            ignored: IgnoredPaths::default(),
            timing: Timing::Fast,
            patience: PATIENCE,
            settle: SETTLE,
            cwd: None,
        };
        Replay { transcript, settings, stderr: None, recorder: None }
    }

    /// Ignores a path, both during the replay and in [`ReplayReport::diff`]. [`IgnoredPaths::add`] describes the syntax.
    ///
    /// # Errors
    ///
    /// [`Error::BadPath`] if the path is invalid.
    ///
    /// [`Error::BadPath`]: crate::Error::BadPath
    pub fn ignore(mut self, path: &str) -> Result<Self> {
        self.settings.ignored.add(path)?;
        Ok(self)
    }

    /// Ignores these paths too, as [`ignore`](Self::ignore) does with each of them.
    pub fn ignoring(mut self, paths: IgnoredPaths) -> Self {
        self.settings.ignored.extend(paths);
        self
    }

    /// Returns the ignored paths that match nothing in the recording. They may be misspelled.
    #[must_use]
    pub fn unmatched(&self) -> Vec<&str> {
        self.settings.ignored.unmatched(&[&self.transcript])
    }

    /// Sets the pace; as fast as possible by default.
    pub fn timing(mut self, timing: Timing) -> Self {
        self.settings.timing = timing;
        self
    }

    /// Sets the time for which a live agent may be silent while it owes a line: 30 seconds by default, and no limit for
    /// [`Duration::MAX`]. After that the line is missing and the replay goes on. There is no limit for a live client.
    ///
    /// At the end of its input an agent owes nothing, and has two seconds for its last lines.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// Sets the folder that a live agent gets in place of the [recorded one](Transcript::cwd).
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.settings.cwd = Some(cwd.into());
        self
    }

    /// Sets a callback for the lines that the recorded agent wrote to stderr; none by default.
    pub fn on_stderr(mut self, line: impl FnMut(&str) + Send + 'static) -> Self {
        self.stderr = Some(Box::new(line));
        self
    }

    /// Also records the live conversation while it happens.
    pub fn record(mut self, recorder: Recorder) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Plays the agent for a live client, until the client closes its output or the recorded agent ends.
    ///
    /// A request matches the next recorded one with the same method, session and params. The agent's lines are sent
    /// once the client has sent all its earlier lines of that session. A request that is not in the recording gets an
    /// error with the difference. If a request is skipped that was answered before a later one was sent, it is
    /// reported as missing.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) if the transport cannot be used, and [`Error::Flood`](crate::Error::Flood) if the
    /// live side sends 64 MiB more than four times the size of the recording.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn serve(self, transport: Transport) -> Result<ReplayReport> {
        self.play(Side::Agent, transport).await
    }

    /// Plays the client for a live agent.
    ///
    /// The client's lines are sent once the agent has sent all earlier requests and responses of that session. Updates are
    /// awaited only for a moment, since another text may be shorter or split otherwise. Requests of the agent get the
    /// recorded responses. Compare the conversations with [`ReplayReport::diff`].
    ///
    /// # Errors
    ///
    /// As [`serve`](Self::serve).
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn drive(self, transport: Transport) -> Result<ReplayReport> {
        self.play(Side::Client, transport).await
    }

    async fn play(self, plays: Side, transport: Transport) -> Result<ReplayReport> {
        let mut header = Header::new(concat!("duologue ", env!("CARGO_PKG_VERSION")));
        header.program = self.transcript.header().program.clone();
        let recording = self.transcript.clone();
        let ignored = self.settings.ignored.clone();
        let mut player = Player::new(self.transcript, self.settings, plays);
        let recorded = recording.records();
        let records =
            transport::play(&mut player, recorded, plays, transport, self.stderr, self.recorder).await?;
        Ok(ReplayReport {
            differences: player.differences(),
            unused: player.unused(),
            exit: player.exit(),
            live: Transcript::new(header, records),
            recording,
            ignored,
        })
    }
}
