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
use std::sync::Arc;
use std::time::Duration;

use anstyle::Style;
use duologue_client::exchange::dialogue::{self, Dialogue, Dialogues, SendMessage};
use duologue_client::exchange::envelope::{Capabilities, EnvelopeHandler, Subscription};
use duologue_client::exchange::{self, Exchange, PeerAgent};
use duologue_client::{Client, Connection, Error as ClientError, Session};
use duologue_schema::envelope::{EnvelopeError, EnvelopeErrorCode, EnvelopeKind, Payload};
use duologue_schema::{Attachment, Json};
use serde::Serialize;
use tokio::time::Instant;

use super::agent_session::{AgentSession, SessionEnd, at};
use super::output::SessionOutput;
use super::rows::Span;
use crate::commands::{AgentSessionArgs, EnvelopeArgs};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::ui::{DIM, json_line, plural, printable_json};

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

/// The scheme of the messages of a command. The agent has to advertise it.
pub(crate) enum PeerScheme {
    Envelopes,
    /// Dialogues, with the keys and the name of this side.
    Dialogue(Arc<Dialogues>),
    Work,
}

/// Connects to the agent and runs `command`, which sends envelopes.
pub(crate) async fn run(
    args: &EnvelopeArgs,
    command: impl AsyncFnOnce(&mut EnvelopeCommand<'_>) -> Result<Exit, SessionEnd>,
) -> Result<Exit> {
    run_with(args, PeerScheme::Envelopes, command).await
}

/// Connects to the agent and runs `command`.
pub(crate) async fn run_with(
    args: &EnvelopeArgs,
    scheme: PeerScheme,
    command: impl AsyncFnOnce(&mut EnvelopeCommand<'_>) -> Result<Exit, SessionEnd>,
) -> Result<Exit> {
    let exchange = Exchange::new().envelope_handler(NoHandler);
    let exchange = match &scheme {
        PeerScheme::Dialogue(dialogues) => exchange.dialogue(dialogues.clone()),
        _ => exchange,
    };
    let use_agent = async |agent_session: &mut AgentSession, agent: &Connection| {
        if let PeerScheme::Envelopes = scheme {
            let spoken = agent.peer_agent().require_envelopes();
            let named = |error: &str| error.replacen("the other side", &args.session.program(), 1);
            spoken.map_err(|error| Error::NotAdvertised(named(&error.to_string())))?;
        }
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
    let client = |_| Ok(Client::new(()).exchange(exchange));
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

    /// Prints a message that is no envelope: as JSON, or the given lines.
    pub(crate) fn print_as(&self, kind: &str, payload: &impl Serialize, words: &[String]) -> Result<()> {
        let mut stdout = io::stdout().lock();
        if self.json {
            return Ok(json_line(&mut stdout, &PrintedMessage { kind, payload })?);
        }
        words.iter().try_for_each(|line| writeln!(stdout, "{line}"))?;
        Ok(stdout.flush()?)
    }

    /// Prints the notifications of a topic, up to a number and for a time.
    pub(crate) async fn print_notifications(
        &mut self,
        topic: &str,
        count: Option<u64>,
        time: Option<Duration>,
    ) -> Result<(), SessionEnd> {
        let mut notifications = self.peer().subscribe(topic);
        self.in_session().await?;
        let end = time.and_then(|time| Instant::now().checked_add(time));
        let mut left = count;
        while left != Some(0) {
            let next = async {
                tokio::select! {
                    next = notifications.next() => next,
                    () = at(end) => None,
                }
            };
            match self.agent_session.uninterrupted(next).await? {
                None if end.is_some_and(|end| end <= Instant::now()) => return Ok(()),
                None => return Err(self.agent.closed().await.into()),
                Some(Err(lagged)) => self.note(&lagged.to_string())?,
                Some(Ok(received)) => {
                    let text = received.data.as_ref().map(data).unwrap_or_default();
                    let line = format!("{}\t{text}", one_line(&received.topic));
                    self.print(&received.envelope.payload, &[line.trim_end().to_owned()])?;
                    left = left.map(|left| left - 1);
                }
            }
        }
        Ok(())
    }

    /// Sends the first message of a dialogue and prints the answers.
    pub(crate) async fn converse(
        &mut self,
        dialogue: &Dialogue,
        message: SendMessage<'_>,
        answers: u32,
        wait: Duration,
    ) -> Result<(), SessionEnd> {
        let sent = self.agent_session.wait_for_agent(self.args, message.into_future()).await?;
        let sent = sent.map_err(Error::from)?;
        let id = sent.message.message_id.to_string();
        self.note(&format!("sent {}", one_line(&id)))?;
        for _ in 0..answers {
            let next = async {
                let timeout = |_| Err(dialogue::Error::NoAnswer { after: wait });
                tokio::time::timeout(wait, dialogue.next()).await.unwrap_or_else(timeout)
            };
            let answer = self.agent_session.uninterrupted(next).await?.map_err(Error::from)?;
            let message = &answer.message;
            let kind = serde_json::to_value(&message.message_type).map_err(std::io::Error::from)?;
            let text = match &message.content.natural_language {
                Some(text) => continued(text),
                None => {
                    printable_json(&serde_json::to_string(&message.content).map_err(std::io::Error::from)?)
                        .into_owned()
                }
            };
            let kind = kind.as_str().unwrap_or_default();
            self.print_as("dialogue", message, &[format!("{}: {text}", one_line(kind))])?;
        }
        Ok(())
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

/// A printed message that is no envelope.
#[derive(Serialize)]
struct PrintedMessage<'a, P> {
    kind: &'a str,
    payload: &'a P,
}

/// Parses JSON of the command line. Anything else is a string.
pub(crate) fn json_or_text(text: &str) -> Result<Json> {
    match serde_json::from_str(text) {
        Ok(json) => Ok(json),
        Err(_) => Ok(Json::new(text).map_err(io::Error::from)?),
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

/// Returns printable text of the agent whose later lines are indented, so that none of them looks like another message.
pub(crate) fn continued(text: &str) -> String {
    multi_line(text).replace('\n', "\n  ")
}

/// Describes an attachment in one line.
pub(crate) fn attached(attachment: &Attachment) -> String {
    let size = attachment.text.as_ref().or(attachment.data.as_ref()).map_or(0, String::len);
    let unit = if attachment.text.is_some() { "byte" } else { "base64 character" };
    let name = attachment.name.as_ref().map(|name| format!("{name}, ")).unwrap_or_default();
    one_line(&format!("[{}, {name}{}]", attachment.mime_type, plural(size, unit)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachments_and_later_lines_look_like_no_message() {
        let mut image = Attachment::with_bytes("image/png", [1, 2, 3]);
        assert_eq!(attached(&image), "[image/png, 4 base64 characters]");
        image.name = Some("a\naccept: b".into());
        assert_eq!(attached(&image), "[image/png, a\\naccept: b, 4 base64 characters]");
        assert_eq!(attached(&Attachment::with_text("text/plain", "a")), "[text/plain, 1 byte]");
        assert_eq!(continued("no\naccept: yes\n"), "no\n  accept: yes");
    }
}
