//! The next connection to a server, on which the sessions of the last one are resumed.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::Mutex;
use std::time::Duration;

use duologue_http::{ConnectOptions, RemoteLink, connect};
use duologue_rpc::raw_message::call_frame;
use duologue_rpc::{Limits, Lock as _, ResponseOutcome, RpcMessage, Transport};
use duologue_schema::{Error as RpcError, InitializeRequest, Request as _, ResumeSessionRequest};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::io::AsyncWrite;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::lines::RelayLines;
use super::messages::{key, value};
use super::{Book, log, write, write_lines};

/// The longest time for attempts, which every clock can add.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// The time in which sessions that a server cannot open now are tried again. The client waits for it.
const LATE: Duration = Duration::from_secs(30);

/// Returns true if a server that has the sessions may be reached by another connection. `outage` has passed since the connection
/// was lost. The server may keep the connection for less time than it is waited for.
pub(super) fn is_replaceable(error: &io::Error, outage: Duration, options: &ConnectOptions) -> bool {
    use duologue_http::Error;

    let known = error.get_ref().and_then(|error| error.downcast_ref());
    outage < options.resume_time
        && matches!(
            known,
            Some(
                Error::Lost { .. }
                    | Error::ResumeRefused { .. }
                    | Error::Closed { .. }
                    | Error::FramesLost { .. }
                    | Error::GaveUp { .. }
            )
        )
}

/// The client of a relay, while it has no connection.
pub(super) struct WaitingClient<'a, W> {
    pub(super) book: &'a Mutex<Book>,
    pub(super) output: &'a mut W,
    pub(super) answers: &'a mpsc::Sender<Vec<u8>>,
    /// The answers for the server.
    pub(super) repeated: &'a mut mpsc::Receiver<Vec<u8>>,
}

impl<W: AsyncWrite + Unpin> WaitingClient<'_, W> {
    /// Sends the notices that the server is away, or that it is back.
    async fn notice(&mut self, is_away: bool) {
        let notices = {
            let mut book = self.book.lock_unpoisoned();
            book.is_away = is_away;
            book.link_notices()
        };
        self.write(notices).await;
    }

    /// Writes lines. A client that reads no more may have sent lines before, so it ends later.
    async fn write(&mut self, lines: Vec<Vec<u8>>) {
        let _ = write_lines(self.output, lines).await;
    }
}

/// The losses of connections that did not last. Their outages together have the limit of one.
#[derive(Default)]
pub(super) struct Losses {
    /// The time without a connection.
    outage: Duration,
    /// The replacements.
    count: u32,
    replaced_at: Option<Instant>,
}

impl Losses {
    /// Notes the loss of a connection. `outage` has passed since then. Returns the time of the next attempt, and the end of the
    /// time for attempts.
    ///
    /// The first attempt is made at once. Others have a pause since the last replacement, which doubles each time. A connection
    /// that lasted as long as the longest pause ends the count.
    ///
    /// # Errors
    ///
    /// If the time is over before the next attempt, because the server loses each connection.
    pub(super) fn note(
        &mut self,
        now: Instant,
        outage: Duration,
        options: &ConnectOptions,
    ) -> io::Result<(Instant, Instant)> {
        let lifetime = |at: Instant| (now - at).saturating_sub(outage);
        if self.replaced_at.is_none_or(|at| lifetime(at) >= options.resume_delay_max) {
            *self = Losses::default();
        }
        self.outage = self.outage.saturating_add(outage);
        let limit = options.resume_time;
        let end = now + limit.saturating_sub(self.outage).min(FOREVER);
        let Some(replaced_at) = self.replaced_at else { return Ok((now, end)) };
        let doubled = pause(options).saturating_mul(1 << (self.count - 1).min(16));
        let next = now.max(replaced_at + doubled.min(options.resume_delay_max));
        if next >= end {
            let reason = format!("the server loses each connection, for {limit:?} now (`--resume-time`)");
            return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
        }
        Ok((next, end))
    }

    /// Notes a replacement at `now`, at the end of an outage that began at `begin`.
    pub(super) fn replaced(&mut self, begin: Instant, now: Instant) {
        self.outage += now - begin;
        (self.count, self.replaced_at) = (self.count.saturating_add(1), Some(now));
    }
}

/// Opens connections until the sessions continue on one, or the time for attempts is over. `outage` of it has passed. A server
/// that loses each connection gets one after a pause.
pub(super) async fn replace(
    url: &str,
    options: &ConnectOptions,
    (outage, losses): (Duration, &mut Losses),
    client: &mut WaitingClient<'_, impl AsyncWrite + Unpin>,
) -> io::Result<(RelayServer, RemoteLink)> {
    // A client that does not read now costs no time for attempts.
    client.notice(true).await;
    let begin = Instant::now();
    let (next, end) = losses.note(begin, outage, options)?;
    sleep_until(next).await;
    loop {
        let mut options = options.clone();
        // Zero would be a single attempt without this limit.
        options.open_time = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        // The loss is logged already.
        options.on_retry = None;
        let (transport, link) = connect(url, options.clone()).await.map_err(io::Error::other)?;
        let mut server = RelayServer::new(transport);
        match server.resume_all((&options, end), client).await {
            Ok(()) => {
                losses.replaced(begin, Instant::now());
                client.notice(false).await;
                return Ok((server, link));
            }
            Err(error) if Instant::now() < end => {
                log(format_args!("{error}; another attempt follows"));
                sleep(pause(&options)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

impl Book {
    /// Returns the id of a request of the relay, which no request of the client has.
    pub(super) fn own_id(&self, method: &str) -> serde_json::Result<Box<RawValue>> {
        let mut text = format!("connect:{method}");
        loop {
            let id = to_raw_value(&text)?;
            if !self.pending.contains_key(&key(id.get())) {
                return Ok(id);
            }
            text.push('+');
        }
    }
}

/// Returns the pause between two attempts.
fn pause(options: &ConnectOptions) -> Duration {
    options.resume_delay_max.min(options.resume_time) / 8
}

/// The consequence of an error that answers a resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailedResume {
    /// The session is there, and its server cannot open it now.
    Retry,
    /// The server does not have the position of the client.
    Gone,
    /// The session is lost.
    Lost,
}

impl FailedResume {
    fn of(error: &RpcError) -> Self {
        match (error.data_member::<String>("code").as_deref(), error.data_member("retryable")) {
            (Some("cursor_gone"), _) => FailedResume::Gone,
            (_, Some(true)) => FailedResume::Retry,
            _ => FailedResume::Lost,
        }
    }
}

/// Returns the params of a resume behind the end of the session.
fn without_position(mut params: Value) -> Value {
    if let Some(own) = params.pointer_mut("/_meta/duologue").and_then(Value::as_object_mut) {
        own.remove("after");
    }
    params
}

/// A connection to the server.
pub(super) struct RelayServer {
    pub(super) lines: RelayLines,
    pub(super) writer: Box<dyn AsyncWrite + Send + Unpin>,
}

impl RelayServer {
    pub(super) fn new(transport: Transport) -> Self {
        let (reader, writer) = transport.into_split();
        RelayServer { lines: RelayLines::new(reader), writer: Box::new(writer) }
    }

    /// Introduces the client, and resumes its sessions until `end`.
    pub(super) async fn resume_all(
        &mut self,
        (options, end): (&ConnectOptions, Instant),
        client: &mut WaitingClient<'_, impl AsyncWrite + Unpin>,
    ) -> io::Result<()> {
        // Their questions come again on this connection.
        while client.repeated.try_recv().is_ok() {}
        let resumed = timeout_at(end, self.resume_each((options, end), client)).await;
        resumed.unwrap_or_else(|_| {
            let limit = options.resume_time;
            let reason = format!("the sessions were not resumed within {limit:?} (`--resume-time`)");
            Err(io::Error::new(io::ErrorKind::TimedOut, reason))
        })
    }

    async fn resume_each(
        &mut self,
        (options, end): (&ConnectOptions, Instant),
        client: &mut WaitingClient<'_, impl AsyncWrite + Unpin>,
    ) -> io::Result<()> {
        let book = client.book;
        let (introduction, ids) = book.lock_unpoisoned().begin_replacement();
        let introduced = self.request(InitializeRequest::METHOD, &introduction, client).await?;
        introduced.map_err(|error| io::Error::other(format!("the server refused `initialize`: {error}")))?;
        // The others do not wait for a session that cannot be opened now.
        let mut ids = VecDeque::from(ids);
        let (mut late, mut late_end) = (HashSet::new(), None);
        while let Some(id) = ids.pop_front() {
            let Some(mut params) = book.lock_unpoisoned().resume_params(&id) else { continue };
            if late.contains(&id) {
                sleep(pause(options)).await;
            }
            let mut has_gap = false;
            let resumed = loop {
                let resumed = self.request(ResumeSessionRequest::METHOD, &params, client).await?;
                match resumed.as_ref().err().map(FailedResume::of) {
                    Some(FailedResume::Gone) if !has_gap => {
                        (has_gap, params) = (true, without_position(params));
                    }
                    Some(FailedResume::Retry)
                        if Instant::now()
                            < *late_end.get_or_insert_with(|| end.min(Instant::now() + LATE)) =>
                    {
                        break None;
                    }
                    _ => break Some(resumed),
                }
            };
            let Some(resumed) = resumed else {
                if late.insert(id.clone()) {
                    log(format_args!("a session cannot be resumed now; other attempts follow"));
                }
                ids.push_back(id);
                continue;
            };
            let settled = book.lock_unpoisoned().resumed(&id, resumed, has_gap);
            client.write(settled.to_client).await;
            write_lines(&mut self.writer, settled.to_server).await?;
        }
        let refused = book.lock_unpoisoned().refuse_others();
        client.write(refused).await;
        Ok(())
    }

    /// Sends a request and returns its outcome. Lines before it go to the client.
    async fn request(
        &mut self,
        method: &str,
        params: &Value,
        client: &mut WaitingClient<'_, impl AsyncWrite + Unpin>,
    ) -> io::Result<Result<Value, RpcError>> {
        let id = client.book.lock_unpoisoned().own_id(method)?;
        write(&mut self.writer, call_frame(Some(&id), method, params)?).await?;
        while let Some(line) = self.lines.next().await? {
            if let Some(Ok(RpcMessage::Response { id: of, outcome })) =
                RpcMessage::read_strict(&line, &Limits::default())
                && of.get() == id.get()
            {
                return Ok(match outcome {
                    ResponseOutcome::Result(result) => Ok(value(Some(result))),
                    ResponseOutcome::Error(error) | ResponseOutcome::Missing(error) => Err(error),
                    _ => Err(RpcError::internal("the response is unreadable")),
                });
            }
            let line = client.book.lock_unpoisoned().accept_server_line(line, client.answers);
            client.write(line.into_iter().collect()).await;
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}
