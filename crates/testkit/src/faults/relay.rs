//! The mock between two pipes: what it says goes through the faults, what it is told is looked at on its way.

use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use duologue_agent::rpc::{CancellationToken, Stdio};
use duologue_agent::{Error, Transport};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::Notify;

use super::bytes::Out;
use super::list::Faults;
use super::process;
use super::turns::Turns;
use crate::error::Result;
use crate::mock::Mock;

/// Between two updates of a replay that never ends.
const REPLAY_PACE: Duration = Duration::from_millis(1);

/// Serves the mock over stdin and stdout with these faults. Equal seeds make equal random choices.
pub(crate) async fn serve(mock: Mock, faults: Faults, seed: u64) -> Result<()> {
    process::say(&format!("faults {}, seed {seed}", faults.words()));
    process::prepare(&faults)?;
    let faults = Arc::new(faults);
    let Stdio { transport, end, .. } = Stdio::take()?;
    process::end_with(&faults, end)?;
    let (stdin, stdout) = transport.into_split();

    let deaf = CancellationToken::new();
    let heard = Arc::new(Heard::default());
    let out = Out::new(stdout, faults.clone(), seed, deaf.clone());
    let mut turns = Turns::new(faults.clone(), heard.clone(), out);
    turns.begin().await?;

    let (ours, theirs) = Transport::memory();
    let server = mock.server()?;
    let served = tokio::spawn(async move { server.serve(theirs).await });
    let (said, told) = ours.into_split();
    tokio::spawn(listen(stdin, told, heard.clone(), deaf));

    let spoken = speak(said, &mut turns, &heard).await;
    if faults.ignore_eof {
        pending::<()>().await;
    }
    match spoken {
        Ok(()) => Ok(served.await.map_err(Error::other)??),
        // The client is gone.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Passes on what the mock says, until it has nothing more to say.
async fn speak(said: impl AsyncRead + Unpin, turns: &mut Turns, heard: &Heard) -> io::Result<()> {
    let mut lines = BufReader::new(said).lines();
    loop {
        tokio::select! {
            line = lines.next_line() => match line? {
                Some(line) => turns.pass(serde_json::from_str(&line)?).await?,
                None => return turns.finish().await,
            },
            () = heard.answered.notified() => turns.release().await?,
            () = tokio::time::sleep(REPLAY_PACE), if turns.is_loading() => turns.replay().await?,
        }
    }
}

/// Passes on what the client says, until it has nothing more to say or we are deaf.
async fn listen(
    stdin: impl AsyncRead + Unpin,
    mut told: impl AsyncWrite + Unpin,
    heard: Arc<Heard>,
    deaf: CancellationToken,
) {
    let mut stdin = BufReader::new(stdin);
    let mut line = Vec::new();
    loop {
        line.clear();
        tokio::select! {
            biased;
            () = deaf.cancelled() => pending().await,
            read = stdin.read_until(b'\n', &mut line) => if !matches!(read, Ok(1..)) { break },
        }
        if !heard.is_for_us(&line) && told.write_all(&line).await.is_err() {
            break;
        }
    }
    let _ = told.shutdown().await;
}

/// What the client said: what it asked, and what it answered to questions the mock never asked.
#[derive(Default)]
pub(super) struct Heard {
    state: Mutex<State>,
    answered: Notify,
}

#[derive(Default)]
struct State {
    /// What was asked, by the id as it is written.
    asked: HashMap<String, Asked>,
    /// How many questions of a turn wait for their answer.
    open: HashMap<usize, usize>,
}

/// A request of the client's.
pub(super) struct Asked {
    pub(super) method: String,
    /// Its session, if it has one.
    pub(super) session: String,
}

/// What the ids of our own questions begin with.
const QUESTION: &str = "fault-";

impl Heard {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of a question.
    pub(super) fn question(turn: usize, number: usize) -> String {
        format!("{QUESTION}{turn}-{number}")
    }

    /// So many questions of this turn are about to be asked.
    pub(super) fn expect(&self, turn: usize, questions: usize) {
        self.lock().open.insert(turn, questions);
    }

    pub(super) fn is_answered(&self, turn: usize) -> bool {
        self.lock().open.get(&turn).is_none_or(|open| *open == 0)
    }

    /// What was asked with this id, which is answered now.
    pub(super) fn asked(&self, id: &Value) -> Option<Asked> {
        self.lock().asked.remove(&id.to_string())
    }

    /// Looks at a line. `true` if it answers one of our questions, of which the mock knows nothing.
    fn is_for_us(&self, line: &[u8]) -> bool {
        let Ok(line) = serde_json::from_slice::<Value>(line) else { return false };
        let Some(id) = line.get("id") else { return false };
        if let Some(method) = line["method"].as_str() {
            let session = line["params"]["sessionId"].as_str().unwrap_or_default().to_owned();
            self.lock().asked.insert(id.to_string(), Asked { method: method.to_owned(), session });
            return false;
        }
        let question = id.as_str().and_then(|id| id.strip_prefix(QUESTION));
        let Some(turn) = question.and_then(|id| id.split('-').next()?.parse().ok()) else { return false };
        if let Some(open) = self.lock().open.get_mut(&turn) {
            *open = open.saturating_sub(1);
        }
        self.answered.notify_one();
        true
    }
}
