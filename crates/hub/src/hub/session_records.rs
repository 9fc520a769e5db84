//! The log of a session: opening it, its first records, and reading them behind damage.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use duologue_rpc::raw_message::{call_frame, member, response_frame, splice};
use duologue_schema::{InitializeRequest, InitializeResponse, NewSessionRequest, Request as _, SessionId};
use duologue_store::{FileLog, Log as _, LogLine, LogPage, LogPosition, LogSnapshot, RebuildReport};
use duologue_transcript::{Header, Side};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until};

use super::{HubShared, LOG_RELEASED};
use crate::abilities::Abilities;
use crate::error::Error;
use crate::load::{LoadedSession, load};
use crate::open_log::OpenLog;
use crate::owner::{OwnerRestore, SessionOwner};
use crate::record::{HubEvent, LogEntry};

impl HubShared {
    /// Reads a session from its log as [`load`], when there is a place for it. The place is free when the permit is dropped.
    pub(crate) async fn load(
        &self,
        log: Arc<OpenLog>,
        session: SessionId,
        end: u64,
        abilities: Option<Abilities>,
    ) -> Result<(OwnedSemaphorePermit, LoadedSession), Error> {
        let place = {
            let _waiting = WaitingLoad::new(&self.waiting_loads);
            self.loads.clone().acquire_owned().await.map_err(|_| Error::Closed)?
        };
        let loading = move || Ok((place, load(&log, &session, end, abilities)?));
        tokio::task::spawn_blocking(loading).await.map_err(|_| Error::Closed)?
    }

    /// Returns the records of a log that is not open. It blocks.
    ///
    /// # Errors
    ///
    /// [`Error::LogLost`] if none can be read. Opening the log would begin another conversation under the id of the session.
    pub(crate) fn snapshot(&self, id: &SessionId) -> Result<LogSnapshot, Error> {
        let log = match self.logs.snapshot(id.as_str()) {
            Err(duologue_store::Error::File { error, .. }) if error.kind() == ErrorKind::NotFound => None,
            log => Some(log?),
        };
        if let Some(log) = log
            && has_records(id, &log)?
        {
            return Ok(log);
        }
        tracing::error!(session = %id, "no record of the log of a session can be read");
        Err(Error::LogLost)
    }

    /// Opens a log whose last reader may be about to release it.
    pub(super) async fn open_released_log(&self, id: &SessionId) -> Result<FileLog, Error> {
        let until = Instant::now() + LOG_RELEASED;
        loop {
            match self.open_log(id).await {
                Err(Error::Log(duologue_store::Error::InUse { .. })) if Instant::now() < until => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                opened => return opened,
            }
        }
    }

    pub(super) async fn open_log(&self, id: &SessionId) -> Result<FileLog, Error> {
        let logs = self.logs.clone();
        let header = Header::new(concat!("duologue-hub ", env!("CARGO_PKG_VERSION")));
        let name = id.clone();
        let opened = tokio::task::spawn_blocking(move || logs.open(name.as_str(), &header)).await;
        let log = opened.map_err(|_| Error::Closed)??;
        report_recovery(id, &log);
        Ok(log)
    }

    /// Waits until a client that does not read gives up the place that it has had since `begin`: its time is over, and another
    /// load waits.
    pub(crate) async fn end_of_load(&self, begin: Instant) {
        sleep_until(begin + self.settings.load_turn).await;
        let _ = self.waiting_loads.subscribe().wait_for(|waiting| *waiting > 0).await;
    }
}

/// A load that waits for a place, while it is counted.
struct WaitingLoad<'a>(&'a watch::Sender<usize>);

impl<'a> WaitingLoad<'a> {
    fn new(waiting: &'a watch::Sender<usize>) -> Self {
        waiting.send_modify(|waiting| *waiting += 1);
        WaitingLoad(waiting)
    }
}

impl Drop for WaitingLoad<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

/// Logs what was lost from a log when it was opened.
fn report_recovery(id: &SessionId, log: &FileLog) {
    let recovery = log.recovery();
    let (bytes, lines, moved) = (recovery.removed_bytes, recovery.removed_lines, recovery.moved_records);
    match &recovery.saved_to {
        Some(path) => {
            tracing::error!(session = %id, bytes, lines, moved, saved_to = %path.display(), "a part of a log was lost");
        }
        None if bytes > 0 => {
            tracing::warn!(session = %id, bytes, "a part of a record was removed from a log")
        }
        None => {}
    }
}

/// Logs the differences between the list of sessions and their folders.
pub(super) fn report_index(report: &RebuildReport) {
    let (added, removed) = (report.added, report.removed);
    if added > 0 || removed > 0 {
        tracing::warn!(added, removed, "the list of sessions differed from their folders");
    }
    for (log, reason) in &report.skipped {
        tracing::error!(log, reason, "a session is not in the list");
    }
}

/// Appends the first records of a log and syncs them. Returns the log and its end.
pub(super) async fn append(log: FileLog, lines: Vec<Vec<u8>>) -> Result<(FileLog, u64), Error> {
    let appended = tokio::task::spawn_blocking(move || {
        let lines: Vec<LogLine> = lines.into_iter().map(LogLine::new).collect::<Result<_, _>>()?;
        log.append(&lines)?;
        // The index must not name a session whose log is empty after a power cut.
        let end = log.sync()?;
        Ok::<_, duologue_store::Error>((log, end.number()))
    });
    Ok(appended.await.map_err(|_| Error::Closed)??)
}

/// Reads the whole log of a session, and returns its owner with the id of the session at the agent.
pub(super) fn restore(
    hub: &HubShared,
    id: SessionId,
    log: Arc<OpenLog>,
) -> Result<(SessionOwner, Arc<OpenLog>, String), Error> {
    let mut restore = OwnerRestore::new(id.clone());
    let mut agent_session = String::new();
    let end = log.end().number();
    for_each_record(&log, &id, end, |position, entry| {
        if let Some(HubEvent::AgentSession { id }) = &entry.event {
            agent_session.clone_from(id);
        }
        restore.apply(position, entry);
    })?;
    Ok((restore.finish(id, hub.settings.owner.clone(), end), log, agent_session))
}

/// Reads the records of a log up to a position. Damaged ones are left out, and their number is returned.
///
/// # Errors
///
/// [`Error::UnknownSession`] if the session is deleted meanwhile.
pub(crate) fn for_each_record(
    log: &OpenLog,
    session: &SessionId,
    end: u64,
    mut each: impl FnMut(u64, &LogEntry<'_>),
) -> Result<u64, Error> {
    /// The size of a page in bytes.
    const PAGE: usize = 1 << 20;
    let (mut position, mut damaged) = (LogPosition::START, 0);
    while position.number() < end {
        if log.is_deleted() {
            return Err(Error::UnknownSession);
        }
        let page = match log.read(position, PAGE) {
            Ok(page) => page,
            Err(error) => {
                let last = behind_damage(session, error)?;
                damaged += last.number().min(end) - position.number();
                position = last;
                continue;
            }
        };
        let Some(last) = page.last() else { break };
        for record in page.records.iter().filter(|record| record.position.number() <= end) {
            match LogEntry::read(&record.line) {
                Ok(entry) => each(record.position.number(), &entry),
                Err(error) => {
                    leave_out(session, record.position.number(), &error);
                    damaged += 1;
                }
            }
        }
        position = last;
    }
    Ok(damaged)
}

/// Reports a record that is JSON and none of the hub's. It is damaged too.
pub(crate) fn leave_out(session: &SessionId, position: u64, error: &crate::InvalidRecord) {
    tracing::error!(%session, position, %error, "a record of a session is left out");
}

/// Returns true if a record of a log can be read. Those that begin a life of the log do not count.
fn has_records(session: &SessionId, log: &LogSnapshot) -> Result<bool, duologue_store::Error> {
    /// The size of a page in bytes.
    const PAGE: usize = 64 << 10;
    let is_record = |line: &[u8]| match LogEntry::read(line) {
        Ok(entry) => entry.frame.is_some() || !matches!(entry.event, None | Some(HubEvent::Opened { .. })),
        Err(_) => false,
    };
    let mut after = LogPosition::START;
    while after < log.end() {
        let page = read_behind_damage(session, after.number(), |after| log.read(after, PAGE))?;
        if page.records.iter().any(|record| is_record(&record.line)) {
            return Ok(true);
        }
        let Some(last) = page.last() else { break };
        after = last;
    }
    Ok(false)
}

/// Reads a page with a function, and skips damaged records.
pub(crate) fn read_behind_damage(
    session: &SessionId,
    after: u64,
    read: impl Fn(LogPosition) -> Result<LogPage, duologue_store::Error>,
) -> Result<LogPage, duologue_store::Error> {
    let mut after = LogPosition::new(after);
    loop {
        match read(after) {
            Ok(page) => return Ok(page),
            Err(error) => after = behind_damage(session, error)?,
        }
    }
}

/// Returns the position of the last damaged record, if that is why a log could not be read.
pub(crate) fn behind_damage(
    session: &SessionId,
    error: duologue_store::Error,
) -> Result<LogPosition, duologue_store::Error> {
    match error {
        duologue_store::Error::Damaged { last, .. } => {
            tracing::error!(%session, %error, "records of a session are left out");
            Ok(last)
        }
        error => Err(error),
    }
}

/// Returns the records that open a log: the exchange that began the session, under the hub's id.
pub(super) fn opening_records(
    at: u64,
    introduction: &InitializeResponse,
    params: &Value,
    result: &RawValue,
    agent_session: &str,
) -> serde_json::Result<Vec<Vec<u8>>> {
    let initialize = json!({"protocolVersion": 1, "clientCapabilities": {}});
    let mut params = params.clone();
    // Credentials are not written.
    params["mcpServers"] = json!([]);
    let (first, second) = (to_raw_value(&"hub:initialize")?, to_raw_value(&"hub:session/new")?);
    let introduction = to_raw_value(introduction)?;
    let frames = [
        (Side::Client, call_frame(Some(&first), InitializeRequest::METHOD, &initialize)?),
        (Side::Agent, response_frame(first.get(), Ok(&introduction))?),
        (Side::Client, call_frame(Some(&second), NewSessionRequest::METHOD, &params)?),
        (Side::Agent, response_frame(second.get(), Ok(result))?),
    ];
    let write = |entry: LogEntry<'_>| entry.write().map_err(|crate::InvalidRecord(error)| error);
    let mut records = Vec::new();
    for (side, frame) in &frames {
        let frame: &RawValue = serde_json::from_slice(frame)?;
        records.push(write(LogEntry { at, frame: Some((*side, frame)), event: None })?);
    }
    let event = HubEvent::AgentSession { id: agent_session.to_owned() };
    records.push(write(LogEntry { at, frame: None, event: Some(event) })?);
    Ok(records)
}

/// Returns a result with another `sessionId`.
pub(super) fn with_id(result: &RawValue, id: &SessionId) -> Option<Box<RawValue>> {
    let bytes = result.get().as_bytes();
    let replaced = splice(bytes, member(bytes, "sessionId")?, json!(id).to_string().as_bytes())?;
    RawValue::from_string(String::from_utf8(replaced).ok()?).ok()
}
