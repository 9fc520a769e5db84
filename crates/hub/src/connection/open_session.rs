//! Sessions that a client creates, loads or resumes.

use std::collections::BTreeSet;
use std::sync::Arc;

use duologue_schema::{SessionId, SessionNotification};
use duologue_store::{Log as _, LogPosition};
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::{Answer, Answered, OpenSession, SessionUse, with_meta};
use crate::asking_client::AskingClient;
use crate::error::Error;
use crate::hub::HubShared;
use crate::load::{LoadedSession, update_line};
use crate::log_reader::{LogReader, LogReaderTask, ReaderEnd, SeenFrames};
use crate::open_log::OpenLog;
use crate::output::ClientOutput;
use crate::session_task::{AttachReply, AttachingClient, LiveSession, SessionCommand};

/// The number of times that a session is opened again if it ends meanwhile.
const ATTEMPTS: usize = 3;

/// The members of a client that a session needs.
pub(super) struct ClientAttachment {
    pub(super) principal: Arc<str>,
    pub(super) from: AttachingClient,
    pub(super) output: ClientOutput,
    /// Ends the connection.
    pub(super) end: Arc<Notify>,
    /// The earlier attachment. Its reader sends the responses before this one.
    pub(super) earlier: Option<OpenSession>,
}

impl ClientAttachment {
    /// Opens a session for the client.
    async fn attach(
        &mut self,
        live: &LiveSession,
        params: Value,
        is_replayed: bool,
    ) -> Result<(SessionUse, Arc<OpenLog>, AttachReply), Error> {
        let earlier = self.earlier.as_ref().map(|open| (open.reader.end_at(), is_replayed));
        let (command, reply) = self.command(Some(params), earlier);
        let session = self.session_use(live.clone());
        live.commands.send(command).await.map_err(|_| live.end())?;
        let reply = reply.await.map_err(|_| live.end())?;
        // This attachment is in its place, so that the client has not left for a moment.
        if let Some(OpenSession { session: _, reader }) = self.earlier.take() {
            reader.finish(reply.position).await;
        }
        let log = live.log.upgrade().ok_or_else(|| live.end())?;
        Ok((session, log, reply))
    }

    /// Returns the command that attaches the client, and the receiver of its reply.
    fn command(
        &self,
        params: Option<Value>,
        earlier: Option<(ReaderEnd, bool)>,
    ) -> (SessionCommand, oneshot::Receiver<AttachReply>) {
        let (attached, reply) = oneshot::channel();
        (SessionCommand::Attach { from: self.from.clone(), params, earlier, attached }, reply)
    }

    fn session_use(&self, live: LiveSession) -> SessionUse {
        let AttachingClient { client, attachment, .. } = &self.from;
        SessionUse { live, client: client.clone(), attachment: *attachment, is_open: true }
    }

    fn reader(&self, live: LiveSession, log: Arc<OpenLog>) -> LogReader {
        let (client, output, end) = (self.from.client.clone(), self.output.clone(), self.end.clone());
        LogReader { client, abilities: self.from.abilities, live, log, output, end }
    }
}

/// Creates a session for a client.
pub(super) async fn create(
    hub: &Arc<HubShared>,
    attach: ClientAttachment,
    client: AskingClient,
    params: Value,
) -> Answered {
    let (command, reply) = attach.command(None, None);
    let (live, result) =
        hub.new_session(&attach.principal, params, &client, command, attach.from.role.is_work()).await?;
    let session = attach.session_use(live.clone());
    let log = live.log.upgrade().ok_or_else(|| live.end())?;
    let reply = reply.await.map_err(|_| live.end())?;
    let result = with_meta(&result, [("position", cursor(&log, reply.position))])?;
    let reader = LogReaderTask::spawn(attach.reader(live, log), reply.position);
    Ok(Answer::Opened(OpenSession { session, reader }, result))
}

/// The member `duologue` in the `_meta` of `session/resume`.
#[derive(serde::Deserialize)]
struct ResumeMeta {
    after: Option<SeenFrames>,
}

/// The frames that a client receives before the response that opens a session.
#[derive(Clone, Copy)]
enum Replay {
    Conversation,
    Missed(SeenFrames),
    Nothing,
}

/// Opens an existing session, and replays its conversation or what the client has missed. One that the client has open stays
/// open if that fails.
pub(super) async fn open_session(
    hub: &Arc<HubShared>,
    mut attach: ClientAttachment,
    session: SessionId,
    params: Value,
    is_load: bool,
) -> Answered {
    let is_open = attach.earlier.is_some();
    let opened = attach_and_replay(hub, &mut attach, session, params, is_load).await;
    match (opened, attach.earlier) {
        (Err(Failure(error, None)), Some(open)) => Ok(Answer::Kept(open, error)),
        (Err(Failure(error, Some(open))), _) if is_open => Ok(Answer::Kept(open, error)),
        (Err(Failure(error, _)), _) => Err(error),
        (Ok(opened), _) => Ok(opened),
    }
}

/// The error of a request that opens a session, and the session if it is open all the same.
struct Failure(Error, Option<OpenSession>);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure(error, None)
    }
}

async fn attach_and_replay(
    hub: &Arc<HubShared>,
    attach: &mut ClientAttachment,
    session: SessionId,
    mut params: Value,
    is_load: bool,
) -> Result<Answer, Failure> {
    let meta = params.get("_meta").and_then(|meta| meta.get("duologue"));
    let meta = meta.filter(|_| !is_load).and_then(|meta| ResumeMeta::deserialize(meta).ok());
    let replay = match meta.and_then(|meta| meta.after) {
        Some(seen) => Replay::Missed(seen),
        None if is_load => Replay::Conversation,
        None => Replay::Nothing,
    };
    if let Some(params) = params.as_object_mut() {
        params.remove("sessionId");
        if matches!(replay, Replay::Missed(_)) {
            // It is for the hub.
            params.remove("_meta");
        }
    }
    let params = hub.checked(params).await?;
    let is_replayed = !matches!(replay, Replay::Nothing);
    let mut attempts = 1..=ATTEMPTS;
    let (live, (open, log, reply)) = loop {
        attempts.next();
        let live = hub.session(&attach.principal, &session, &params).await?;
        match attach.attach(&live, params.clone(), is_replayed).await {
            Ok(attached) => break (live, attached),
            // Another client has closed it meanwhile, or its log has failed. It may be opened again.
            Err(_) if !attempts.is_empty() => {}
            Err(error) => return Err(error.into()),
        }
    };
    let position = if matches!(replay, Replay::Missed(_)) { reply.end } else { reply.position };
    let reader = attach.reader(live, log.clone());
    let response = tokio::select! {
        replayed = replayed(hub, &reader, replay, position, &reply.open_requests) => replayed,
        // The client may not read, and its reader would keep the log.
        () = log.deleted() => return Err(Error::UnknownSession.into()),
        () = attach.from.replies.closed() => {
            if hub.is_continued(&(attach.principal.clone(), attach.from.client.clone()), &attach.end) {
                open.hand_over().await;
            }
            return Err(Error::Closed.into());
        }
    };
    let response = match response {
        Ok(response) => response,
        Err(error) => {
            let reader = LogReaderTask::spawn(reader, reply.position);
            return Err(Failure(error, Some(OpenSession { session: open, reader })));
        }
    };
    let mine = [
        ("position", cursor(&log, position)),
        ("requests", json!(reply.requests)),
        ("turn", json!(reply.has_other_turn)),
    ];
    let result = with_meta(&response, mine)?;
    let reader = LogReaderTask::spawn(reader, position);
    Ok(Answer::Opened(OpenSession { session: open, reader }, result))
}

/// Returns the text of a position in this life of the log, for a client.
fn cursor(log: &OpenLog, position: u64) -> Value {
    json!(log.cursor(LogPosition::new(position)).to_string())
}

/// Sends the frames before the response that opens a session, and returns that response. A client that reads slowly does not
/// keep the conversation in memory while other loads wait: the rest of it is read again when there is space for it.
async fn replayed(
    hub: &Arc<HubShared>,
    reader: &LogReader,
    replay: Replay,
    position: u64,
    open_requests: &BTreeSet<u64>,
) -> Result<Value, Error> {
    let LogReader { live, log, abilities, output, .. } = reader;
    // Records become visible in order, so the replay ends where the client reads on.
    live.visible.clone().wait_for(|visible| *visible >= position).await.map_err(|_| live.end())?;
    let abilities = matches!(replay, Replay::Conversation).then_some(*abilities);
    let mut sent = 0;
    let response = loop {
        let (place, LoadedSession { updates, response }) =
            hub.load(log.clone(), live.id.clone(), position, abilities).await?;
        let begin = Instant::now();
        let mut is_slow = false;
        for SessionNotification { session_id, update, .. } in updates.into_iter().skip(sent) {
            let line = update_line(&session_id, update)?;
            is_slow = output.send_unless(line, hub.end_of_load(begin)).await.is_some();
            if is_slow {
                break;
            }
            sent += 1;
        }
        drop(place);
        if !is_slow {
            break response;
        }
        output.half_free().await;
    };
    if let Replay::Missed(seen) = replay {
        reader.send_missed(seen, position, open_requests).await?;
    }
    Ok(response)
}
