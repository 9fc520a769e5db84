//! The commands that send one envelope to an agent and wait for its answer.
//!
//! They advertise envelopes themselves, so that the agent can send progress and discover its peer.
//! `duologue run` does not: an agent that took it for another agent would delegate tasks that no
//! handler accepts.
//!
//! With `--json` each message of the agent is a line, `{"kind":…,"payload":…}` as in its envelope. A
//! failure is a line of the kind `error`, with the code that an agent would use.

use std::io::{self, Write as _};
use std::pin::pin;
use std::time::Duration;

use anstyle::Style;
use duologue_client::exchange::envelope::{Capabilities, EnvelopeHandler, Subscription};
use duologue_client::exchange::{self, Exchange, PeerAgent};
use duologue_client::{Client, Connection, Error as ClientError, Session};
use duologue_schema::Json;
use duologue_schema::envelope::{EnvelopeError, EnvelopeErrorCode, EnvelopeKind, Payload};
use serde::Serialize;

use super::agent_session::{AgentSession, SessionEnd};
use super::output::SessionOutput;
use super::rows::Span;
use crate::commands::{AgentSessionArgs, EnvelopeArgs};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::ui::{DIM, json_line, printable_json};

/// A connected agent that speaks envelopes.
pub(crate) struct EnvelopeCommand<'a> {
    pub(super) agent_session: &'a mut AgentSession,
    args: &'a AgentSessionArgs,
    agent: &'a Connection,
    /// The session of the request, kept open until the command ends.
    session: Option<Session>,
    /// Notifications of the agent.
    pub(super) notifications: Subscription,
    json: bool,
}

/// The envelope handler of this command. It answers nothing but discovery.
struct NoHandler;

impl EnvelopeHandler for NoHandler {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("duologue")
    }
}

/// Connects to the agent and runs `command`.
pub(crate) async fn run(
    args: &EnvelopeArgs,
    command: impl AsyncFnOnce(&mut EnvelopeCommand<'_>) -> Result<Exit, SessionEnd>,
) -> Result<Exit> {
    let use_agent = async |agent_session: &mut AgentSession, agent: &Connection| {
        let spoken = agent.peer_agent().require_envelopes();
        let named = |error: &str| error.replacen("the other side", &args.session.program(), 1);
        spoken.map_err(|error| Error::NotAdvertised(named(&error.to_string())))?;
        let notifications = agent.peer_agent().subscribe("*");
        let json = args.json;
        command(&mut EnvelopeCommand {
            agent_session,
            args: &args.session,
            agent,
            session: None,
            notifications,
            json,
        })
        .await
    };
    // The agent gets nothing: no files, no programs, no permission.
    let client = |_| Ok(Client::new(()).exchange(Exchange::new().envelope_handler(NoHandler)));
    let done = AgentSession::run(&args.session, SessionOutput::words(), false, client, use_agent).await;
    if let Err(error) = &done
        && args.json
    {
        print(&fault(error))?;
    }
    done
}

impl EnvelopeCommand<'_> {
    /// Returns the agent, for envelopes that need no session.
    pub(crate) fn peer(&self) -> PeerAgent {
        self.agent.peer_agent().clone()
    }

    /// Opens a session and returns the agent in it.
    pub(crate) async fn in_session(&mut self) -> Result<PeerAgent, SessionEnd> {
        let session = self.agent_session.open(self.args, self.agent).await?;
        Ok(self.session.insert(session).peer_agent())
    }

    /// Returns the limit for steps that have no deadline of their own.
    pub(super) fn patience(&self) -> Duration {
        self.args.patience()
    }

    /// Waits for an answer that has a deadline of its own.
    pub(crate) async fn answer<T>(
        &mut self,
        work: impl Future<Output = exchange::Result<T>>,
    ) -> Result<T, SessionEnd> {
        Ok(self.agent_session.wait_for_agent(self.args, work).await?.map_err(to_error)?)
    }

    /// Waits for an answer within the limit of a step.
    pub(crate) async fn answer_in_time<T>(
        &mut self,
        kind: EnvelopeKind,
        work: impl Future<Output = exchange::Result<T>>,
    ) -> Result<T, SessionEnd> {
        let after = self.patience();
        let work = pin!(work);
        self.answer(async {
            let timeout = |_| Err(exchange::Error::Timeout { kind, after });
            tokio::time::timeout(after, work).await.unwrap_or_else(timeout)
        })
        .await
    }

    /// Prints a message of the agent: as JSON, or the given lines.
    pub(crate) fn print<P: Payload>(&self, payload: &P, words: &[String]) -> Result<()> {
        if self.json {
            return print(payload);
        }
        let mut stdout = io::stdout().lock();
        words.iter().try_for_each(|line| writeln!(stdout, "{line}"))?;
        Ok(stdout.flush()?)
    }

    /// Prints an intermediate message of the agent: as JSON, or as a note.
    pub(super) fn print_progress<P: Payload>(
        &mut self,
        payload: &P,
        words: impl FnOnce() -> String,
    ) -> Result<()> {
        if self.json { print(payload) } else { self.note(&words()) }
    }

    /// Shows a note of this program. With `--json` it prints nothing, since the messages say it all.
    pub(crate) fn note(&mut self, text: &str) -> Result<()> {
        match self.json {
            true => Ok(()),
            false => Ok(self.agent_session.output.note(vec![Span::line(DIM, &format!("· {text}"))])?),
        }
    }
}

/// Returns the code and the message for an error.
pub(super) fn fault(error: &Error) -> EnvelopeError {
    let code = match error {
        Error::Exchange(error) => return error.fault(),
        Error::Agent(ClientError::Response(error)) => EnvelopeErrorCode::from_rpc(error.code),
        Error::Login(_) => EnvelopeErrorCode::NotAuthorized,
        Error::Agent(_) | Error::Start(_) => EnvelopeErrorCode::Unreachable,
        Error::NotAdvertised(_) => EnvelopeErrorCode::UnknownKind,
        Error::Usage(_) => EnvelopeErrorCode::InvalidParameter,
        _ => EnvelopeErrorCode::Internal,
    };
    EnvelopeError::of(code, error.to_string())
}

/// Keeps an error of the peer as it is. The end of the connection becomes an error of the agent.
pub(super) fn to_error(error: exchange::Error) -> Error {
    match error {
        exchange::Error::Connection(error) => Error::Agent(error.into()),
        error => Error::Exchange(error),
    }
}

fn print<P: Payload>(payload: &P) -> Result<()> {
    #[derive(Serialize)]
    struct PrintedPayload<'a, P> {
        kind: EnvelopeKind,
        payload: &'a P,
    }
    Ok(json_line(&mut io::stdout().lock(), &PrintedPayload { kind: P::KIND, payload })?)
}

/// Returns printable text of the agent, with its line breaks.
pub(crate) fn multi_line(text: &str) -> String {
    Span::plain(text.trim_end()).as_str().to_owned()
}

/// Returns printable text of the agent in one line.
pub(crate) fn one_line(text: &str) -> String {
    Span::line(Style::new(), text).as_str().to_owned()
}

/// Returns data of the agent as printable JSON in one line.
pub(crate) fn data(value: &Json) -> String {
    printable_json(&serde_json::to_string(value).unwrap_or_default()).into_owned()
}

/// Parses a time on the command line, such as `30s`.
pub(crate) fn parse_duration(text: &str) -> std::result::Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "a time is written as 500ms, 30s or 2m".into())
}

/// Formats a time in milliseconds or longer units.
pub(crate) fn format_duration(time: Duration) -> String {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    // Shows at least one millisecond.
    humantime::format_duration(Duration::from_millis(millis.max(1))).to_string()
}
