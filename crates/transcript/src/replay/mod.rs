//! Playing one side of a recording against a live other side.

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
use crate::transcript::Transcript;
use player::Player;
pub use report::{Difference, ReplayReport};

/// How long an agent may take to say what it had said, by default.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a client waits for updates that may not come, since another text may be shorter.
const SETTLE: Duration = Duration::from_millis(500);

/// How fast a recording is played.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Timing {
    /// As fast as the order allows.
    #[default]
    Fast,
    /// With the pauses of the recording.
    Recorded,
    /// With its pauses times this: 0.5 is twice as fast.
    Scaled(f64),
}

/// Plays one side of a recording: the agent, so that an editor's tests run without the real one, or
/// the client, so that an agent can be compared with what it did before.
///
/// Each recorded session is a lane, and what concerns the whole connection is one more. Order is kept
/// within a lane; sessions run beside each other as the live side likes.
///
/// # What may differ
///
/// - **Ids**: those of JSON-RPC, and whatever the live side chooses, are mapped both ways. A session
///   that is made live has the recorded id. Those that agents give each other, in envelopes and dialogues,
///   are ids like any other; times and signatures beside them are not compared. A signed message in which
///   something had to change is not validly signed any more.
/// - **Folders**: the `cwd` of a session may be another one; wherever the recorded one stands at the
///   beginning of a path, the live one is sent.
/// - **Who the client is**: `clientInfo` and `clientCapabilities` of `initialize` are not compared, since
///   an editor's test is hardly ever recorded with the same editor; what a lacking capability leads
///   to shows in its answers. `_meta` is not compared anywhere. See [`ignore`](Self::ignore).
/// - **What is left out, `null` or empty** is the same.
/// - **Placeholders** of a redacted recording (`[time]`, `[session-1]`) stand for any text; if only its
///   secrets were taken out, `[secret]` alone does. What is said has `[home]` and `[tmp]` of this
///   machine, and no environment variable whose value is `[secret]`.
///
/// What the recording does not hold is not made up: a request whose answer is in a gap, or behind the
/// end of a recording that was cut, is answered with an error; an answer whose request is not there is
/// left out. Both are a [`Difference::Gap`]. The agent of a recording that was cut ends with it.
///
/// All else, the text of a prompt above all, has to be equal.
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
/// let mut said = String::new();
/// reader.read_to_string(&mut said).await?;
/// assert_eq!(said, "{\"jsonrpc\":\"2.0\",\"id\":\"mine\",\"result\":\"Hello, Ada\"}\n");
/// assert!(replay.await??.differences.is_empty());
/// # Ok(())
/// # }
/// ```
#[must_use = "a replay does nothing until it serves or drives"]
pub struct Replay {
    transcript: Transcript,
    settings: ReplaySettings,
    stderr: Option<OnStderr>,
}

/// Who hears the lines of stderr.
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
    /// A replay of a recording, redacted or not.
    pub fn new(transcript: Transcript) -> Self {
        let settings = ReplaySettings {
            ignored: IgnoredPaths::default(),
            timing: Timing::Fast,
            patience: PATIENCE,
            settle: SETTLE,
            cwd: None,
        };
        Replay { transcript, settings, stderr: None }
    }

    /// Does not compare one more place, neither while the replay runs nor in [`ReplayReport::diff`];
    /// [`IgnoredPaths::add`] says how places are written.
    ///
    /// # Errors
    ///
    /// [`Error::BadPath`] when it is no JSONPath.
    ///
    /// [`Error::BadPath`]: crate::Error::BadPath
    pub fn ignore(mut self, path: &str) -> Result<Self> {
        self.settings.ignored.add(path)?;
        Ok(self)
    }

    /// Does not compare these places either, as if each was given to [`ignore`](Self::ignore).
    pub fn ignoring(mut self, paths: IgnoredPaths) -> Self {
        self.settings.ignored.extend(paths);
        self
    }

    /// The places given to [`ignore`](Self::ignore) that no message of the recording has. Perhaps they are
    /// misspelled.
    #[must_use]
    pub fn unmatched(&self) -> Vec<&str> {
        self.settings.ignored.unmatched(&[&self.transcript])
    }

    /// How fast it is played; as fast as possible by default.
    pub fn timing(mut self, timing: Timing) -> Self {
        self.settings.timing = timing;
        self
    }

    /// How long a live agent may be silent while something is owed: after that it is missing and the
    /// replay goes on. 30 seconds by default, [`Duration::MAX`] is no limit. A live client is waited for without limit.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// The folder that a live agent is given in place of the [recorded one](Transcript::cwd).
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.settings.cwd = Some(cwd.into());
        self
    }

    /// Who is told the lines that the recorded agent wrote to stderr; nobody by default.
    pub fn on_stderr(mut self, line: impl FnMut(&str) + Send + 'static) -> Self {
        self.stderr = Some(Box::new(line));
        self
    }

    /// Plays the agent for one live client, until the client closes or the recorded agent ends by
    /// itself.
    ///
    /// A request takes the next recorded one of its method and session that is not used up and has
    /// equal params; the agent's lines come when all that the client had said before them in that
    /// session has come. A request that is not in the recording is answered with an error that shows
    /// the difference. One that comes although others, which had been answered before it was asked,
    /// did not, counts those as missing.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) when the transport cannot be used at all, and when the live side says 64 MiB more than
    /// four times what was recorded and goes on.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn serve(self, transport: Transport) -> Result<ReplayReport> {
        self.play(Side::Agent, transport).await
    }

    /// Plays the client for a live agent.
    ///
    /// The client's lines come when all that the agent had asked and answered before them in that
    /// session has come; updates are waited for only for a moment, since another text may be shorter
    /// or cut otherwise. What the agent asks is answered as it was. Compare all that was said with
    /// [`ReplayReport::diff`].
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
        let records =
            transport::play(&mut player, recording.records(), plays, transport, self.stderr).await?;
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
