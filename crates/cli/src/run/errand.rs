//! One errand with an agent that speaks envelopes: it is asked or given something, answers, and that is it.
//!
//! An errand advertises envelopes itself, so that the agent can send news of its work and ask who is there.
//! `duologue run` does not: its user wants turns, and an agent that takes it for a colleague would hand
//! tasks to nobody.
//!
//! With `--json` each message of the agent is a line, `{"kind":…,"payload":…}` as in its envelope. What goes
//! wrong on the way is a line too, of the kind `error`, with the code that an agent would use.

use std::io::{self, Write as _};
use std::pin::pin;
use std::time::Duration;

use anstyle::Style;
use duologue_client::exchange::envelope::{Capabilities, Correspondent, Subscription};
use duologue_client::exchange::{self, Exchange, PeerAgent};
use duologue_client::{Client, Connection, Error as ClientError, Session};
use duologue_schema::Json;
use duologue_schema::envelope::{Fault, FaultCode, Kind, Payload};
use serde::Serialize;

use super::output::Output;
use super::rows::Span;
use super::talk::{Stop, Talk};
use crate::commands::{ErrandArgs, TalkArgs};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::ui::{DIM, json_line, printable_json};

/// An agent that speaks envelopes, and what is wanted of it.
pub(crate) struct Errand<'a> {
    pub(super) talk: &'a mut Talk,
    args: &'a TalkArgs,
    agent: &'a Connection,
    /// What it was asked in, as long as the errand lasts.
    session: Option<Session>,
    /// What it tells without being asked.
    pub(super) news: Subscription,
    json: bool,
}

/// Who we are to the agent. Nobody is there to answer its questions.
struct Caller;

impl Correspondent for Caller {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("duologue")
    }
}

/// Runs an errand to its end.
pub(crate) async fn run(
    args: &ErrandArgs,
    errand: impl AsyncFnOnce(&mut Errand<'_>) -> Result<Exit, Stop>,
) -> Result<Exit> {
    let converse = async |talk: &mut Talk, agent: &Connection| {
        let spoken = agent.peer_agent().require_envelopes();
        let named = |error: &str| error.replacen("the other side", &args.talk.program(), 1);
        spoken.map_err(|error| Error::NotSpoken(named(&error.to_string())))?;
        let news = agent.peer_agent().subscribe("*");
        let json = args.json;
        errand(&mut Errand { talk, args: &args.talk, agent, session: None, news, json }).await
    };
    // It lends the agent nothing: no files, no programs, no permission.
    let client = |_| Ok(Client::new(()).exchange(Exchange::new().correspondent(Caller)));
    let done = Talk::hold(&args.talk, Output::words(), false, client, converse).await;
    if let Err(error) = &done
        && args.json
    {
        print(&fault(error))?;
    }
    done
}

impl Errand<'_> {
    /// The agent, for what needs no session.
    pub(crate) fn peer(&self) -> PeerAgent {
        self.agent.peer_agent().clone()
    }

    /// The agent, in a new session.
    pub(crate) async fn in_session(&mut self) -> Result<PeerAgent, Stop> {
        let session = self.talk.open(self.args, self.agent).await?;
        Ok(self.session.insert(session).peer_agent())
    }

    /// How long the agent may take for what has no deadline of its own.
    pub(super) fn patience(&self) -> Duration {
        self.args.patience()
    }

    /// Waits for an answer that has a deadline of its own.
    pub(crate) async fn answer<T>(
        &mut self,
        work: impl Future<Output = exchange::Result<T>>,
    ) -> Result<T, Stop> {
        Ok(self.talk.patiently(self.args, work).await?.map_err(to_error)?)
    }

    /// Waits for an answer as long as for any other step.
    pub(crate) async fn quick_answer<T>(
        &mut self,
        kind: Kind,
        work: impl Future<Output = exchange::Result<T>>,
    ) -> Result<T, Stop> {
        let after = self.patience();
        let work = pin!(work);
        self.answer(async {
            let timeout = |_| Err(exchange::Error::Timeout { kind, after });
            tokio::time::timeout(after, work).await.unwrap_or_else(timeout)
        })
        .await
    }

    /// Prints a message of the agent: as JSON, or in the words given, a line each.
    pub(crate) fn say<P: Payload>(&self, payload: &P, words: &[String]) -> Result<()> {
        if self.json {
            return print(payload);
        }
        let mut stdout = io::stdout().lock();
        words.iter().try_for_each(|line| writeln!(stdout, "{line}"))?;
        Ok(stdout.flush()?)
    }

    /// Prints a message of the agent on the way to its last one: as JSON, or in words beside the answer.
    pub(super) fn tell<P: Payload>(&mut self, payload: &P, words: impl FnOnce() -> String) -> Result<()> {
        if self.json { print(payload) } else { self.note(&words()) }
    }

    /// Says something of our own, beside what the agent says. Not with JSON, which has it all.
    pub(crate) fn note(&mut self, text: &str) -> Result<()> {
        match self.json {
            true => Ok(()),
            false => Ok(self.talk.output.note(vec![Span::line(DIM, &format!("· {text}"))])?),
        }
    }
}

/// The code and the words for what went wrong, wherever that was.
pub(super) fn fault(error: &Error) -> Fault {
    let code = match error {
        Error::Exchange(error) => return error.fault(),
        Error::Agent(ClientError::Agent(error)) => FaultCode::from_rpc(error.code),
        Error::Login(_) => FaultCode::NotAuthorized,
        Error::Agent(_) | Error::Start(_) => FaultCode::Unreachable,
        Error::NotSpoken(_) => FaultCode::UnknownKind,
        Error::Usage(_) => FaultCode::InvalidParameter,
        _ => FaultCode::Internal,
    };
    Fault::of(code, error.to_string())
}

/// What the other agent answers stays as it is; how the agent ended is what the SDK knows best.
pub(super) fn to_error(error: exchange::Error) -> Error {
    match error {
        exchange::Error::Connection(error) => Error::Agent(error.into()),
        error => Error::Exchange(error),
    }
}

fn print<P: Payload>(payload: &P) -> Result<()> {
    #[derive(Serialize)]
    struct Line<'a, P> {
        kind: Kind,
        payload: &'a P,
    }
    Ok(json_line(&mut io::stdout().lock(), &Line { kind: P::KIND, payload })?)
}

/// Words of the agent's that may be of several lines.
pub(crate) fn words(text: &str) -> String {
    Span::plain(text.trim_end()).as_str().to_owned()
}

/// Words of the agent's that stay in one line.
pub(crate) fn word(text: &str) -> String {
    Span::line(Style::new(), text).as_str().to_owned()
}

/// Data of the agent's, in one line.
pub(crate) fn data(value: &Json) -> String {
    printable_json(&serde_json::to_string(value).unwrap_or_default()).into_owned()
}

/// A time on the command line, such as `30s`.
pub(crate) fn duration(text: &str) -> std::result::Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "a time is written as 500ms, 30s or 2m".into())
}

/// A time without what nobody wants to know of it.
pub(crate) fn time(time: Duration) -> String {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    // Nothing takes no time at all.
    humantime::format_duration(Duration::from_millis(millis.max(1))).to_string()
}
