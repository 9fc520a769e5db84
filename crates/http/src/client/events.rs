//! Moves frames between a transport and a server over HTTP with SSE: a POST for each frame of the client, one after the
//! other, and a GET for each stream of the server.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use duologue_rpc::{SecretText, Transport};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use crate::client::client_core::value;
use crate::client::dial::{HttpBody, RequestHeaders, StreamDialer};
use crate::client::error::Error;
use crate::client::event_parser::{EventParser, ServerEvent};
use crate::client::events_core::{EventsCore, StreamChange, StreamState, fits_header, is_initialize};
use crate::client::link::{
    LAST_WORDS, LinkShared, LinkStatus, Outage, RemoteLink, ReportedOutage, start_link,
};
use crate::client::options::ConnectOptions;
use crate::frame_view::FrameView;
use crate::request_sessions::ID_BYTES;
use crate::wire::{
    CONNECTION_ID, FRAME_NUMBER, INTERNAL_ERROR, LAST_EVENT_ID, RESUME_SECRET, SESSION_ID, StreamId,
};

/// The time for which a connection without a request is used again. Servers close them after 5 s and more.
const IDLE_CONNECTION: Duration = Duration::from_secs(2);

/// The most responses of a stream in a row that end at once without an event.
const EMPTY_RESPONSES: u32 = 20;

/// The answer to a message whose session cannot be named in a header.
const UNFIT_SESSION: &[u8] = br#"{"error":{"code":-32602,"message":"the id of the session has a control character, which no header can have; use a WebSocket"}}"#;

/// A request for which another attempt may succeed, with the reason.
struct Lost(String);

/// Returns an error for a response that has no events, such as the page of another server.
fn check_is_stream(headers: &HeaderMap) -> Result<(), Error> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let name = kind.split(';').next().unwrap_or_default().trim();
    if name.eq_ignore_ascii_case("text/event-stream") {
        return Ok(());
    }
    Err(Error::Protocol(format!("a stream has the content type {kind:?}, not text/event-stream")))
}

/// Returns true for the refusal of a server whose agent has failed. A proxy in front of it has no such error.
fn is_of_agent(body: &[u8]) -> bool {
    value::<i64>(body, &["error", "code"]) == Some(INTERNAL_ERROR)
}

/// The outcome of one attempt.
enum Attempt<T> {
    Done(T),
    Lost(Lost),
}

/// The end of a stream.
enum StreamEnd {
    /// There will be no more frames.
    Ended,
    /// The server does not know the session yet.
    Deferred,
}

/// Starts the task of a connection and returns its transport. `first` is for the first request.
pub(crate) fn start(
    dialer: StreamDialer,
    first: SendRequest<HttpBody>,
    options: Arc<ConnectOptions>,
) -> (Transport, RemoteLink) {
    let shared = Arc::new(LinkShared::new(EventsCore::new(options.unacknowledged_bytes.max(1)), &options));
    let (status, remote) = LinkStatus::new();
    let link = Arc::new(EventsLink {
        dialer,
        options: options.clone(),
        shared: shared.clone(),
        status: status.clone(),
        streams_changed: Notify::new(),
        stream_settled: Notify::new(),
        is_deleting: AtomicBool::new(false),
    });
    (start_link(shared, status, &options, link.run(first)), remote)
}

/// The task of a connection and those of its streams.
struct EventsLink {
    dialer: StreamDialer,
    options: Arc<ConnectOptions>,
    shared: Arc<LinkShared<EventsCore>>,
    status: Arc<LinkStatus>,
    /// There may be a change of streams.
    streams_changed: Notify,
    /// A stream may have been opened.
    stream_settled: Notify,
    /// The client has ended the connection, so the server may not know it any more.
    is_deleting: AtomicBool,
}

/// An open connection for POST requests.
struct PostConnection {
    /// Absent after a request without an answer.
    sender: Option<SendRequest<HttpBody>>,
    used_at: Instant,
}

/// The answer to a POST.
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl EventsLink {
    async fn run(self: Arc<Self>, first: SendRequest<HttpBody>) -> Result<(), Error> {
        let mut streams: JoinSet<(StreamId, Result<StreamEnd, Error>)> = JoinSet::new();
        let mut handles: HashMap<StreamId, AbortHandle> = HashMap::new();
        let mut posting =
            pin!(self.post_frames(PostConnection { sender: Some(first), used_at: Instant::now() }));
        let mut has_ended = false;
        loop {
            while let Some(change) = self.shared.with(EventsCore::next_change) {
                match change {
                    StreamChange::Open(stream) => {
                        let handle = streams.spawn(self.clone().run_stream(stream.clone()));
                        handles.insert(stream, handle);
                    }
                    StreamChange::Close(stream) => {
                        if let Some(handle) = handles.remove(&stream) {
                            handle.abort();
                        }
                    }
                }
            }
            if has_ended && streams.is_empty() {
                return Ok(());
            }
            tokio::select! {
                posted = &mut posting => return posted,
                Some(stream) = streams.join_next() => match stream {
                    Ok((stream, ended)) => {
                        handles.remove(&stream);
                        if let StreamEnd::Ended = ended? {
                            self.shared.with(|core| core.set_stream(&stream, None));
                            // The last frames of the sessions are on their way.
                            has_ended |= stream == StreamId::Connection;
                        }
                    }
                    Err(error) if error.is_cancelled() => {}
                    Err(error) => return Err(Error::Protocol(error.to_string())),
                },
                () = self.streams_changed.notified() => {}
                () = sleep(self.options.close_timeout), if has_ended => return Ok(()),
            }
        }
    }

    /// Sends the frames of the client in their order until it ends, and then ends the connection.
    async fn post_frames(&self, mut connection: PostConnection) -> Result<(), Error> {
        let mut is_connected = false;
        loop {
            let Some((number, frame)) = self.shared.with(|core| core.next_frame()) else {
                if self.shared.with(|core| core.is_sent()) {
                    if is_connected {
                        self.delete(&mut connection).await;
                    }
                    return Ok(());
                }
                self.shared.outgoing.notified().await;
                continue;
            };
            if !is_connected {
                if !is_initialize(&frame) {
                    return Err(Error::Protocol("the first message has to be `initialize`".into()));
                }
                is_connected = self.initialize(&mut connection, frame).await?;
            } else {
                let mut outage = None;
                let posted = self.post_frame(&mut connection, number, frame, &mut outage).await;
                posted.inspect_err(|_| self.status.end())?;
            }
            self.shared.with(|core| core.answered());
            self.shared.room.notify_one();
            self.shared.gone.notify_one();
        }
    }

    /// Begins the connection. Returns false if the agent has answered with an error.
    async fn initialize(&self, connection: &mut PostConnection, frame: Bytes) -> Result<bool, Error> {
        let mut outage = ReportedOutage::begin(&self.status);
        let answer = loop {
            // An agent may take long to start. The server has a limit for that.
            let limit = self.options.initialize_timeout;
            let dial = outage.attempt_time(self.options.connect_timeout, self.options.open_time);
            let posted = self.post(connection, Vec::new(), frame.clone(), (dial, limit)).await;
            let posted = posted.inspect_err(|_| self.status.end())?;
            let (error, is_temporary) = match posted {
                Attempt::Done(answer) if answer.status == 200 => break answer,
                Attempt::Done(Answer { status, body, .. }) => {
                    let message = self.dialer.shown(&body);
                    let refused = Error::Refused { status, message };
                    let is_temporary = refused.is_temporary() && !is_of_agent(&body);
                    (refused, is_temporary)
                }
                Attempt::Lost(Lost(reason)) => (Error::Lost { reason }, true),
            };
            tracing::debug!(%error, is_temporary, "a connection has not begun");
            if !is_temporary || !outage.pause_before_begin(&self.options).await {
                self.status.end();
                return Err(error);
            }
        };
        drop(outage);
        if FrameView::read(&answer.body).id.is_none() {
            let shown = self.dialer.shown(&answer.body);
            return Err(Error::Protocol(format!("the response to `initialize` is no message: {shown}")));
        }
        let id = answer.headers.get(CONNECTION_ID).and_then(|id| id.to_str().ok());
        let id = id.filter(|id| id.len() <= ID_BYTES);
        let is_success = self.shared.with(|core| core.initialized(answer.body));
        if is_success {
            let id = id.ok_or_else(|| {
                Error::Protocol(format!("the server gave no `Acp-Connection-Id` of at most {ID_BYTES} bytes"))
            })?;
            self.status.set_connection_id(id);
            self.shared.with(|core| core.want_stream(StreamId::Connection));
            self.streams_changed.notify_one();
            self.stream_settled(&StreamId::Connection).await;
        }
        self.shared.received();
        Ok(is_success)
    }

    /// Sends one frame, and again if the server may not have it and takes each number only once.
    async fn post_frame(
        &self,
        connection: &mut PostConnection,
        number: u64,
        frame: Bytes,
        outage: &mut Option<ReportedOutage>,
    ) -> Result<(), Error> {
        let session = self.shared.with(|core| core.session_of(&frame));
        if session.as_deref().is_some_and(|session| !fits_header(session)) {
            self.shared.with(|core| core.refused(&frame, 400, UNFIT_SESSION));
            self.shared.received();
            return Ok(());
        }
        if let Some(session) = &session {
            self.stream_settled(&StreamId::Session(session.clone())).await;
        }
        let is_numbered = self.shared.with(|core| core.grant().1);
        let mut names_session = session.is_some();
        loop {
            let mut headers = self.headers(session.as_deref().filter(|_| names_session));
            if is_numbered {
                headers.push((HeaderName::from_static(FRAME_NUMBER), number.into()));
            }
            let limits = [self.options.connect_timeout, self.options.dead_after()];
            let [dial, answer] = limits.map(|longest| self.attempt_time(outage.as_ref(), longest));
            let reason = match self.post(connection, headers, frame.clone(), (dial, answer)).await? {
                Attempt::Done(Answer { status: 200..300, .. }) => {
                    if outage.is_some() {
                        self.status.count_resume();
                    }
                    return Ok(());
                }
                // The server has not taken it.
                Attempt::Done(Answer { status: status @ (408 | 425 | 429 | 502..=504), body, .. }) => {
                    format!("status {status}: {}", self.dialer.shown(&body))
                }
                // Some servers do not know a session before it was loaded.
                Attempt::Done(Answer { status: 404, .. }) if names_session => {
                    names_session = false;
                    continue;
                }
                Attempt::Done(Answer { status: 404, body, .. })
                    if self.shared.with(|core| core.can_resume()) =>
                {
                    // A stream may know that the connection has ended regularly.
                    sleep(LAST_WORDS).await;
                    let reason = self.dialer.shown(&body);
                    return Err(Error::ResumeRefused { reason });
                }
                Attempt::Done(Answer { status: status @ (401 | 403), body, .. }) => {
                    let message = self.dialer.shown(&body);
                    return Err(Error::Refused { status, message });
                }
                Attempt::Done(Answer { status, body, .. }) => {
                    self.shared.with(|core| core.refused(&frame, status, &body));
                    self.shared.received();
                    return Ok(());
                }
                Attempt::Lost(Lost(reason)) if !is_numbered => return Err(Error::Lost { reason }),
                Attempt::Lost(Lost(reason)) => reason,
            };
            let outage = outage.get_or_insert_with(|| ReportedOutage::begin(&self.status));
            outage.pause(&self.options, self.shared.resume_limit(&self.options), &reason).await?;
        }
    }

    async fn delete(&self, connection: &mut PostConnection) {
        self.is_deleting.store(true, Relaxed);
        let deleting = async {
            let mut outage = Outage::begin();
            loop {
                let request = self.dialer.http_request(&Method::DELETE, self.headers(None), Bytes::new());
                let Ok(request) = request else { return };
                let lost = match self.sender(connection, self.options.connect_timeout).await {
                    Ok(mut sender) => match sender.send_request(request).await {
                        Ok(_) => return,
                        Err(error) => error.to_string(),
                    },
                    Err(error) => error.to_string(),
                };
                let Ok((_, pause)) = outage.next_resume(&self.options, self.options.resume_time, &lost)
                else {
                    return;
                };
                sleep(pause).await;
            }
        };
        let _ = timeout(self.options.close_timeout, deleting).await;
    }

    /// Returns the headers with the ids of the connection and the session, and with the secret of the connection. From the
    /// first stream with it on, our server accepts no request without it.
    fn headers(&self, session: Option<&str>) -> RequestHeaders {
        let id = self.status.connection_id();
        let secret = self.shared.with(|core| core.grant().0.cloned());
        let secret = secret.as_ref().map(SecretText::as_str);
        let values = [(CONNECTION_ID, Some(id)), (SESSION_ID, session), (RESUME_SECRET, secret)];
        let header = |(name, value): (&'static str, Option<&str>)| {
            let mut value = HeaderValue::from_bytes(value?.as_bytes()).ok()?;
            value.set_sensitive(name == RESUME_SECRET);
            Some((HeaderName::from_static(name), value))
        };
        values.into_iter().filter_map(header).collect()
    }

    /// Returns the time for an attempt, at most `longest`. In an outage it ends with the time for attempts.
    fn attempt_time(&self, outage: Option<&ReportedOutage>, longest: Duration) -> Duration {
        let limit = self.shared.resume_limit(&self.options);
        outage.map_or(longest, |outage| outage.attempt_time(longest, limit))
    }

    /// Returns a connection for a request: the last one, or a new one if the server may have closed it.
    async fn sender(
        &self,
        connection: &mut PostConnection,
        within: Duration,
    ) -> Result<SendRequest<HttpBody>, Error> {
        if let Some(mut sender) = connection.sender.take()
            && connection.used_at.elapsed() < IDLE_CONNECTION
            && timeout(within, sender.ready()).await.is_ok_and(|ready| ready.is_ok())
        {
            return Ok(sender);
        }
        self.dialer.http(within).await
    }

    /// Sends one request and reads its answer. `dial` is the time for a connection, and `limit` that for the answer.
    async fn post(
        &self,
        connection: &mut PostConnection,
        mut headers: RequestHeaders,
        body: Bytes,
        (dial, limit): (Duration, Duration),
    ) -> Result<Attempt<Answer>, Error> {
        headers.push((CONTENT_TYPE, HeaderValue::from_static("application/json")));
        headers.push((ACCEPT, HeaderValue::from_static("application/json, text/event-stream")));
        let request = self.dialer.http_request(&Method::POST, headers, body)?;
        let mut sender = match self.sender(connection, dial).await {
            Ok(sender) => sender,
            Err(error) if error.is_temporary() => return Ok(Attempt::Lost(Lost(error.to_string()))),
            Err(error) => return Err(error),
        };
        let answering = async {
            let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
            let (parts, body) = response.into_parts();
            let body = http_body_util::Limited::new(body, self.options.frame_bytes);
            let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
            Ok::<_, String>(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
        };
        Ok(match timeout(limit, answering).await {
            Ok(Ok(answer)) => {
                self.dialer.keep_cookies(&answer.headers);
                *connection = PostConnection { sender: Some(sender), used_at: Instant::now() };
                Attempt::Done(answer)
            }
            Ok(Err(reason)) => Attempt::Lost(Lost(reason)),
            Err(_) => Attempt::Lost(Lost(format!("no answer within {limit:?}"))),
        })
    }

    /// Waits until a stream is open, or the server has refused it until its session is known.
    async fn stream_settled(&self, stream: &StreamId) {
        loop {
            let mut settled = pin!(self.stream_settled.notified());
            settled.as_mut().enable();
            if self.shared.with(|core| core.want_stream(stream.clone())) != StreamState::Opening {
                return;
            }
            self.streams_changed.notify_one();
            settled.await;
        }
    }

    fn settle(&self, stream: &StreamId, state: StreamState) {
        self.shared.with(|core| core.set_stream(stream, Some(state)));
        self.stream_settled.notify_waiters();
    }

    /// Reads a stream to its end, over one response after the other.
    async fn run_stream(self: Arc<Self>, stream: StreamId) -> (StreamId, Result<StreamEnd, Error>) {
        let mut outage = None;
        let ended = self.read_stream(&stream, &mut outage).await.inspect_err(|_| self.status.end());
        (stream, ended)
    }

    async fn read_stream(
        &self,
        stream: &StreamId,
        outage: &mut Option<ReportedOutage>,
    ) -> Result<StreamEnd, Error> {
        let mut cursor: Option<Arc<str>> = None;
        let (mut was_open, mut is_complete) = (false, false);
        // The complete responses in a row that were short, and those of them without an event.
        let (mut short_responses, mut empty_responses) = (0, 0);
        loop {
            let reason = match self.open_stream(stream, cursor.as_deref(), outage.as_ref()).await? {
                Attempt::Done(response) if response.status() == 200 => {
                    check_is_stream(response.headers())?;
                    if std::mem::replace(&mut was_open, true) {
                        self.status.count_resume();
                    }
                    *outage = None;
                    self.settle(stream, StreamState::Open);
                    let opened_at = Instant::now();
                    let (count, read) = self.read_events(stream, response, &mut cursor).await?;
                    is_complete = matches!(read, Attempt::Done(()));
                    let reason = match read {
                        Attempt::Done(()) => "the response has ended".to_owned(),
                        Attempt::Lost(Lost(reason)) => reason,
                    };
                    let can_resume = self.shared.with(|core| core.can_resume());
                    if !can_resume && is_complete {
                        // The server has ended the stream, so the next use of the session opens it again.
                        return Ok(StreamEnd::Ended);
                    }
                    if !can_resume || self.options.resume_time.is_zero() {
                        return Err(Error::Lost { reason });
                    }
                    let is_short = count == 0 || opened_at.elapsed() < self.options.resume_delay;
                    short_responses = if is_complete && is_short { short_responses + 1 } else { 0 };
                    empty_responses = if is_complete && count == 0 { empty_responses + 1 } else { 0 };
                    if empty_responses > EMPTY_RESPONSES {
                        return Err(Error::Lost { reason });
                    }
                    if is_complete {
                        // The answer to the next request shows if the connection has ended. A server that sends
                        // something is slowed down only.
                        if short_responses > 1 {
                            sleep(self.options.pause(empty_responses)).await;
                        }
                        continue;
                    }
                    reason
                }
                Attempt::Done(response) => {
                    let status = response.status().as_u16();
                    if status == 404 && (is_complete || self.is_deleting.load(Relaxed)) {
                        return Ok(StreamEnd::Ended);
                    }
                    // Some servers answer 403 for a session that no client has loaded yet.
                    if matches!(status, 403 | 404) && !was_open && *stream != StreamId::Connection {
                        self.settle(stream, StreamState::Deferred);
                        return Ok(StreamEnd::Deferred);
                    }
                    let body = http_body_util::Limited::new(response.into_body(), self.options.frame_bytes);
                    let body = timeout(self.options.connect_timeout, body.collect()).await;
                    let body = body.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
                    let message = self.dialer.shown(&body);
                    let refused = Error::Refused { status, message };
                    if !refused.is_temporary() {
                        return Err(match refused {
                            Error::Refused { status: 400 | 404 | 409, message } if was_open => {
                                Error::ResumeRefused { reason: message }
                            }
                            refused => refused,
                        });
                    }
                    refused.to_string()
                }
                Attempt::Lost(Lost(reason)) => reason,
            };
            tracing::debug!(?stream, reason, "a stream is lost; it is continued");
            let outage = outage.get_or_insert_with(|| ReportedOutage::begin(&self.status));
            outage.pause(&self.options, self.shared.resume_limit(&self.options), &reason).await?;
        }
    }

    async fn open_stream(
        &self,
        stream: &StreamId,
        cursor: Option<&str>,
        outage: Option<&ReportedOutage>,
    ) -> Result<Attempt<Response<Incoming>>, Error> {
        let session = match stream {
            StreamId::Connection => None,
            StreamId::Session(session) => Some(&**session),
        };
        let mut headers = self.headers(session);
        headers.push((ACCEPT, HeaderValue::from_static("text/event-stream")));
        let cursor = cursor.and_then(|cursor| HeaderValue::try_from(cursor).ok());
        headers.extend(cursor.map(|cursor| (HeaderName::from_static(LAST_EVENT_ID), cursor)));
        let request = self.dialer.http_request(&Method::GET, headers, Bytes::new())?;
        let limit = self.attempt_time(outage, self.options.connect_timeout);
        let opening = async {
            let mut sender = self.dialer.http(limit).await?;
            let lost = |error: hyper::Error| Error::Lost { reason: error.to_string() };
            sender.send_request(request).await.map_err(lost)
        };
        match timeout(limit, opening).await {
            Ok(Ok(response)) => {
                self.dialer.keep_cookies(response.headers());
                Ok(Attempt::Done(response))
            }
            Ok(Err(Error::Lost { reason })) => Ok(Attempt::Lost(Lost(reason))),
            Ok(Err(error)) if error.is_temporary() => Ok(Attempt::Lost(Lost(error.to_string()))),
            Ok(Err(error)) => Err(error),
            Err(_) => Ok(Attempt::Lost(Lost(format!("no answer within {limit:?}")))),
        }
    }

    /// Reads the events of one response, and counts them. It is done if the response was complete.
    ///
    /// Each event is delivered when it is read. Events of different streams have no order.
    async fn read_events(
        &self,
        stream: &StreamId,
        response: Response<Incoming>,
        cursor: &mut Option<Arc<str>>,
    ) -> Result<(u64, Attempt<()>), Error> {
        let mut parser = EventParser::new(self.options.frame_bytes);
        let mut body = response.into_body();
        let mut events: Vec<ServerEvent> = Vec::new();
        let mut count = 0;
        // A server of another kind may have no comments.
        let can_resume = self.shared.with(|core| core.can_resume());
        loop {
            let frame = match can_resume {
                true => self.status.observe(&self.options, body.frame()).await,
                false => Some(body.frame().await),
            };
            let frame = match frame {
                Some(Some(Ok(frame))) => frame,
                Some(Some(Err(error))) => return Ok((count, Attempt::Lost(Lost(error.to_string())))),
                Some(None) => return Ok((count, Attempt::Done(()))),
                None => {
                    let reason = format!("nothing was received for {:?}", self.options.dead_after());
                    return Ok((count, Attempt::Lost(Lost(reason))));
                }
            };
            let Ok(bytes) = frame.into_data() else { continue };
            parser.push(&bytes, &mut events)?;
            for ServerEvent { id, data, .. } in events.drain(..) {
                self.shared.inbox_room().await;
                count += 1;
                if std::str::from_utf8(&data).is_err() {
                    tracing::warn!(?stream, bytes = data.len(), "an event that is not UTF-8 is dropped");
                } else if data.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{') {
                    self.shared.with(|core| core.receive(data, stream));
                    self.shared.received();
                } else {
                    tracing::debug!(?stream, "an event without a message is ignored");
                }
                // There is no point between a frame and its cursor at which the task can be aborted.
                *cursor = id.or(cursor.take());
            }
            self.streams_changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_no_stream() {
        for (kind, is_stream) in [
            (Some("text/event-stream"), true),
            (Some("Text/Event-Stream; charset=utf-8"), true),
            (Some("text/html"), false),
            (None, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.extend(kind.map(|kind| (CONTENT_TYPE, HeaderValue::from_static(kind))));
            assert_eq!(check_is_stream(&headers).is_ok(), is_stream, "{kind:?}");
        }
    }
}
