//! The data of a principal: its export and its removal.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use duologue_store::{ChangeOutcome, ExportPosition, LogRecord, StoreBatch, StoreChange};
use duologue_transcript::{RecordedLine, Redaction, Redactor, Side};
use futures_util::stream::unfold;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use utoipa::{IntoParams, ToSchema};

use crate::error::Error;
use crate::gateway::config::LOCAL_PRINCIPAL;
use crate::gateway::erasure::{WatchedExport, erase};
use crate::gateway::rest::admission::RestAdmission;
use crate::gateway::rest::request::{PathOf, QueryOf, RestCaller, RestReply};
use crate::gateway::rest::response_room::ResponseRoom;
use crate::gateway::rest::session_log::{LogFollower, PAGE_BYTES, RestLogRecord};
use crate::gateway::rest::sessions::RestSession;
use crate::gateway::rest::values::RestNumber;
use crate::gateway::{GatewayShared, Refusal, RefusalCode, events};

/// The bytes of sessions that an export sends at a time. One part waits for a slow client while the next one is read.
const PART_BYTES: usize = 1 << 20;

/// The principal of a path.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Path)]
pub(crate) struct PrincipalTarget {
    /// The id of the principal.
    principal_id: String,
}

/// The records of a removal.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ErasedQuery {
    /// Removes the messages, tasks and posts alone that have ended so many seconds ago. Dead letters stay.
    ended_seconds_ago: Option<RestNumber>,
}

/// The result of a removal.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ErasedData)]
pub(crate) struct RestErased {
    /// The principal.
    principal_id: String,
    /// The number of records that were removed.
    removed: u64,
}

/// Checks that the caller may see the data of a principal: its own, or as an administrator that of all.
async fn require_data(caller: &RestCaller, principal: &str) -> Result<(), Refusal> {
    let wanted = principal.to_owned();
    let found = caller.gateway().in_store(move |store| store.principal(&wanted)).await?;
    let is_allowed = caller.id() == principal || caller.principal.is_admin();
    // The subjects of a token provider are in no table.
    let mut providers = caller.gateway().config.token_providers.iter();
    let is_subject = principal.split_once('/').is_some_and(|(name, subject)| {
        !subject.is_empty() && providers.any(|provider| provider.name == name)
    });
    let exists = found.is_some() || is_subject || caller.id() == principal || principal == LOCAL_PRINCIPAL;
    if is_allowed && exists { Ok(()) } else { Err(Refusal::not_found("principal")) }
}

/// Returns the records of a principal: one object of JSON in each line, with one member that names its kind.
///
/// A `session` is followed by the records of its log. For an administrator secrets in the logs of others are replaced.
#[utoipa::path(
    get, path = "/principals/{principalId}/data", tag = "principals", params(PrincipalTarget),
    responses(
        (status = 200, content_type = "application/x-ndjson", body = String, description = "The records. If the export fails, or an erasure of the principal begins meanwhile, the body is cut."),
        (status = 409, body = crate::gateway::rest::RefusalBody, description = "The data is being erased."),
    ),
)]
pub(crate) async fn export_data(
    caller: RestCaller,
    PathOf(PrincipalTarget { principal_id }): PathOf<PrincipalTarget>,
) -> Result<Response, Refusal> {
    require_data(&caller, &principal_id).await?;
    let mut admission = caller.admit()?;
    admission.take_room().await?;
    // From now on the client decides how long it takes.
    admission.never_ends();
    let (sender, receiver) = mpsc::channel(1);
    let gateway = caller.gateway().clone();
    let redactor = (caller.id() != principal_id).then(|| Redaction::secrets_only().start());
    let place = admission.place();
    let watched = gateway.erasures.export(&principal_id)?;
    let export = Export { admission, sender, redactor, part: Vec::new(), watched };
    tokio::spawn(async move { export.send(&gateway, &principal_id).await });
    let sent = (receiver, ResponseRoom::default(), place);
    let parts = unfold(sent, |(mut receiver, room, place)| async move {
        // The connection asks for the next part when it has sent this one.
        drop(room);
        let (part, room) = match receiver.recv().await? {
            Ok((part, room)) => (Ok(part), room),
            Err(error) => (Err(error), ResponseRoom::default()),
        };
        Some((part, (receiver, room, place)))
    });
    let mut response = Body::from_stream(parts).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}

/// A record of the log of a session.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExportedRecord<'a> {
    session_id: &'a str,
    #[serde(flatten)]
    record: RestLogRecord,
}

/// A part of an export, with the room that it needs until it was sent.
type ExportPart = (Bytes, ResponseRoom);

/// An export. Its body ends early, as an incomplete one, after a failure.
struct Export {
    /// It has the room of the part that is being read.
    admission: RestAdmission,
    sender: mpsc::Sender<Result<ExportPart, Error>>,
    /// Replaces secrets for a reader who is no party of the sessions.
    redactor: Option<Redactor>,
    /// The lines that were not sent.
    part: Vec<u8>,
    watched: WatchedExport,
}

/// The reason for which an export ends early.
enum ExportEnd {
    /// The client has left, or has read nothing for `ServerOptions::stall_timeout`.
    Closed,
    /// An erasure has removed records of it.
    Erased,
    Failed(Error),
}

impl From<Error> for ExportEnd {
    fn from(error: Error) -> Self {
        ExportEnd::Failed(error)
    }
}

impl Export {
    async fn send(mut self, gateway: &GatewayShared, principal: &str) {
        let sent = async {
            self.send_records(gateway, principal).await?;
            self.send_sessions(gateway, principal).await?;
            self.flush(0).await?;
            self.require_whole()
        };
        let ended = sent.await;
        match ended {
            Ok(()) | Err(ExportEnd::Closed) => return,
            Err(ExportEnd::Erased) => tracing::info!("the data of an export was erased meanwhile"),
            Err(ExportEnd::Failed(error)) => tracing::error!(%error, "an export has ended early"),
        }
        let _ = self.sender.send(Err(Error::Closed)).await;
    }

    /// Sends the records of the store. No thread waits while the client does not read.
    async fn send_records(&mut self, gateway: &GatewayShared, principal: &str) -> Result<(), ExportEnd> {
        let mut next = Some(ExportPosition::default());
        while let Some(position) = next {
            self.take_room().await?;
            let (store, owner) = (gateway.store.clone(), principal.to_owned());
            let turn = self.admission.list_turn().await;
            let read = move || {
                let _turn = turn;
                let page = store.export(&owner, &position)?;
                let lines: String = page.records.iter().map(|record| format!("{record}\n")).collect();
                Ok::<_, Error>((lines, page.next))
            };
            let (lines, position) = tokio::task::spawn_blocking(read).await.map_err(|_| Error::Closed)??;
            self.part.extend_from_slice(lines.as_bytes());
            self.flush(PART_BYTES / 2).await?;
            next = position;
        }
        Ok(())
    }

    async fn send_sessions(&mut self, gateway: &GatewayShared, principal: &str) -> Result<(), ExportEnd> {
        for (_, agent) in gateway.all_hosted() {
            for session in agent.hub.sessions_of(&principal.into()).await? {
                let mut follower = LogFollower {
                    hub: agent.hub.clone(),
                    owner: session.owner.clone(),
                    session: session.id.clone(),
                    position: 0,
                };
                self.line("session", &RestSession::of(&agent.hub, session)).await?;
                loop {
                    self.take_room().await?;
                    let Some(records) = next(&mut follower).await? else { break };
                    for record in records {
                        let Some(record) = RestLogRecord::read(&self.redacted(record)) else { continue };
                        let session_id = &follower.session;
                        self.line("sessionRecord", &ExportedRecord { session_id, record }).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends the export if an erasure has begun.
    fn require_whole(&self) -> Result<(), ExportEnd> {
        if self.watched.is_incomplete() { Err(ExportEnd::Erased) } else { Ok(()) }
    }

    fn redacted(&mut self, mut record: LogRecord) -> LogRecord {
        if let Some(redactor) = &mut self.redactor {
            let line = RecordedLine::new(Side::Agent, record.line.to_vec());
            record.line = Bytes::copy_from_slice(redactor.line(&line).bytes());
        }
        record
    }

    /// Adds an object with one member.
    async fn line(&mut self, kind: &str, value: &impl Serialize) -> Result<(), ExportEnd> {
        self.take_room().await?;
        let Ok(text) = serde_json::to_string(value) else { return Ok(()) };
        self.part.extend_from_slice(format!("{{\"{kind}\":{text}}}\n").as_bytes());
        self.flush(PART_BYTES).await
    }

    /// Sends the lines if they have more than `least` bytes.
    async fn flush(&mut self, least: usize) -> Result<(), ExportEnd> {
        if self.part.len() <= least {
            return Ok(());
        }
        let part = Bytes::from(std::mem::take(&mut self.part));
        let room = self.admission.split_room(part.len());
        self.sender.send(Ok((part, room))).await.map_err(|_| ExportEnd::Closed)
    }

    /// Takes room for the next part. The parts before can have all of it until the client reads them.
    async fn take_room(&mut self) -> Result<(), ExportEnd> {
        self.require_whole()?;
        tokio::select! {
            taken = self.admission.take_room() => taken.map_err(|_| ExportEnd::Failed(Error::Closed)),
            () = self.sender.closed() => Err(ExportEnd::Closed),
        }
    }
}

/// Returns the next records of a log, and `None` at its end now.
async fn next(follower: &mut LogFollower) -> Result<Option<Vec<LogRecord>>, Error> {
    match follower.next(Duration::ZERO, PAGE_BYTES).await {
        Ok(records) => Ok(records.filter(|records| !records.is_empty())),
        // It was erased meanwhile.
        Err(Error::UnknownSession) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes the records of a principal: its agents with their inboxes, its messages, its tasks and its sessions. The tasks of
/// others at its agents fail with `agent_removed`.
///
/// With `endedSecondsAgo` everything else stays.
#[utoipa::path(
    delete, path = "/principals/{principalId}/data", tag = "principals", params(PrincipalTarget, ErasedQuery),
    responses(
        (status = 200, body = RestErased, description = "The records were removed."),
        (status = 409, body = crate::gateway::rest::RefusalBody, description = "An agent of the principal is attached, or its data is being erased already."),
    ),
)]
pub(crate) async fn erase_data(
    caller: RestCaller,
    PathOf(PrincipalTarget { principal_id }): PathOf<PrincipalTarget>,
    QueryOf(ErasedQuery { ended_seconds_ago }): QueryOf<ErasedQuery>,
) -> Result<RestReply, Refusal> {
    require_data(&caller, &principal_id).await?;
    if let Some(RestNumber(seconds)) = ended_seconds_ago {
        let removed = remove_ended(caller.gateway(), &principal_id, seconds).await?;
        return RestReply::ok(&RestErased { principal_id, removed });
    }
    let turn = caller.gateway().erasures.erase(&principal_id)?;
    // It goes on if the client leaves.
    let erasing = tokio::spawn(async move {
        let erased = erase(caller.gateway(), turn).await;
        caller.rest.views.forget(&principal_id, None);
        let removed = erased?;
        events::principal_erased(caller.id(), &principal_id, removed);
        RestReply::ok(&RestErased { principal_id, removed })
    });
    let panicked = |_| Refusal::new(RefusalCode::Internal, "the erasure could not be finished");
    erasing.await.map_err(panicked)?
}

/// Removes what has ended of a principal so many seconds ago. A client that leaves stops it, between two parts.
async fn remove_ended(gateway: &GatewayShared, principal: &str, seconds: u64) -> Result<u64, Refusal> {
    let (time, mut removed) = (gateway.time(), 0);
    // Work that ends in this millisecond has ended too.
    let ended_before = time.wall.saturating_sub(seconds.saturating_mul(1_000)).saturating_add(1);
    loop {
        let purge = StoreChange::Purge { ended_before, principal: Some(principal.to_owned()) };
        let part = gateway.in_store(move |store| store.apply(StoreBatch::new(time).with(purge))).await?;
        match part.of(0) {
            Some(ChangeOutcome::Count(count @ 1..)) => removed += count,
            _ => return Ok(removed),
        }
    }
}
