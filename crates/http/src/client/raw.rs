//! Single requests and messages, for a program that tests a server. It is no part of the stable interface.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::client::dial::{RequestHeaders, StreamDialer, UpgradedStream};
use crate::client::error::Error;
use crate::client::event_parser::{EventParser, ServerEvent};
use crate::client::options::ConnectOptions;
use crate::client::whole_head::WholeHead;
use crate::wire::STREAM_ACK;

/// Opens a connection for each request, and keeps cookies. The headers of the options are sent with each.
#[derive(Clone)]
pub struct RawClient {
    dialer: Arc<StreamDialer>,
    frame_bytes: usize,
    connect_timeout: Duration,
    response_timeout: Duration,
    silence_limit: Option<Duration>,
}

impl RawClient {
    /// Creates a client for an address as that of [`connect`](crate::connect).
    ///
    /// # Errors
    ///
    /// [`Error::Address`], [`Error::Header`] and [`Error::Tls`].
    pub fn new(url: &str, options: &ConnectOptions) -> Result<Self, Error> {
        let dialer = Arc::new(StreamDialer::new(url, options)?);
        Ok(RawClient {
            dialer,
            frame_bytes: options.frame_bytes,
            connect_timeout: options.connect_timeout,
            response_timeout: options.connect_timeout,
            silence_limit: None,
        })
    }

    /// Sets the time for the head of a response, and for its body. It is `ConnectOptions::connect_timeout` by default.
    #[must_use]
    pub fn response_timeout(mut self, limit: Duration) -> Self {
        self.response_timeout = limit;
        self
    }

    /// Sets the time without an event or a comment after which a stream is lost. There is none by default, because some
    /// servers have no comments.
    #[must_use]
    pub fn silence_limit(mut self, limit: Duration) -> Self {
        self.silence_limit = Some(limit);
        self
    }

    /// Returns the path of the endpoint.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.dialer.path
    }

    /// Sends a request and returns the head of its response. `path` is that of the endpoint if absent. A header of this
    /// call replaces that of the options with its name.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached or answers with something else than HTTP.
    pub async fn send(
        &self,
        method: &str,
        path: Option<&str>,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<RawHttpResponse, Error> {
        let invalid = |error: &dyn std::fmt::Display| Error::Protocol(error.to_string());
        let method = Method::from_bytes(method.as_bytes()).map_err(|error| invalid(&error))?;
        let body = Bytes::copy_from_slice(body.as_bytes());
        let mut request = self.dialer.http_request(&method, parsed(headers)?, body)?;
        if let Some(path) = path {
            *request.uri_mut() = path.parse().map_err(|error| invalid(&error))?;
        }
        let mut sender = self.dialer.http(self.connect_timeout).await?;
        let after = self.response_timeout;
        let lost = |reason: String| Error::Lost { reason };
        let response = timeout(after, sender.send_request(request))
            .await
            .map_err(|_| Error::Timeout { address: self.dialer.address(), after })?
            .map_err(|error| lost(error.to_string()))?;
        self.dialer.keep_cookies(response.headers());
        Ok(RawHttpResponse {
            response,
            parser: EventParser::new(self.frame_bytes),
            events: VecDeque::new(),
            frame_bytes: self.frame_bytes,
            body_timeout: after,
            silence_limit: self.silence_limit,
        })
    }

    /// Opens a WebSocket, and returns the headers of the answer.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if it is answered without an upgrade, [`Error::Protocol`] for an upgrade that breaks the rules, and
    /// those of the connection.
    pub async fn upgrade(&self, headers: &[(&str, &str)]) -> Result<(RawWebSocket, RawHeaders), Error> {
        let after = self.connect_timeout;
        let opening = async {
            let mut request = self.dialer.upgrade_request()?;
            // Only messages of the published protocol are wanted.
            request.headers_mut().remove(STREAM_ACK);
            for (name, value) in parsed(headers)? {
                request.headers_mut().insert(name, value);
            }
            let stream = WholeHead::new(self.dialer.stream().await?);
            let upgraded = client_async_with_config(request, stream, Some(self.dialer.config)).await;
            let (socket, response) = upgraded.map_err(|error| self.dialer.upgrade_error(error))?;
            self.dialer.keep_cookies(response.headers());
            Ok((RawWebSocket(socket), RawHeaders(response.headers().clone())))
        };
        let timed_out = || Error::Timeout { address: self.dialer.address(), after };
        timeout(after, opening).await.unwrap_or_else(|_| Err(timed_out()))
    }
}

fn parsed(headers: &[(&str, &str)]) -> Result<RequestHeaders, Error> {
    let one = |(name, value): &(&str, &str)| {
        let parsed = HeaderName::from_bytes(name.as_bytes()).ok();
        // Session ids can have any characters.
        let value = HeaderValue::from_bytes(value.as_bytes()).ok();
        parsed.zip(value).ok_or_else(|| Error::Header { name: (*name).to_owned() })
    };
    headers.iter().map(one).collect()
}

/// The headers of an answer.
pub struct RawHeaders(HeaderMap);

impl RawHeaders {
    /// Returns the value of a header, if it is text.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(|value| value.to_str().ok())
    }
}

/// An event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawEvent {
    /// The name, if it has one.
    pub name: Option<String>,
    /// The last id of the stream, if an event had one.
    pub id: Option<String>,
    /// The data.
    pub data: Vec<u8>,
}

/// A response whose body was not read yet. Dropping it closes its connection.
pub struct RawHttpResponse {
    response: Response<Incoming>,
    parser: EventParser,
    events: VecDeque<RawEvent>,
    frame_bytes: usize,
    body_timeout: Duration,
    silence_limit: Option<Duration>,
}

impl RawHttpResponse {
    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Returns the value of a header, if it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name).and_then(|value| value.to_str().ok())
    }

    /// Reads the body.
    ///
    /// # Errors
    ///
    /// If it is longer than `ConnectOptions::frame_bytes`, takes longer than [`RawClient::response_timeout`], or the connection
    /// is lost.
    pub async fn body(self) -> Result<Vec<u8>, Error> {
        let body = http_body_util::Limited::new(self.response.into_body(), self.frame_bytes);
        let lost =
            |error: Box<dyn std::error::Error + Send + Sync>| Error::Lost { reason: error.to_string() };
        let after = self.body_timeout;
        let late =
            |_| Error::Lost { reason: format!("the body of the response is not complete after {after:?}") };
        Ok(timeout(after, body.collect()).await.map_err(late)?.map_err(lost)?.to_bytes().into())
    }

    /// Returns the next event of a stream, or `None` at its end.
    ///
    /// # Errors
    ///
    /// If an event is longer than `ConnectOptions::frame_bytes`, the connection is lost, or nothing arrives for the time of
    /// [`RawClient::silence_limit`].
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn event(&mut self) -> Result<Option<RawEvent>, Error> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            let frame = self.response.body_mut().frame();
            let frame = match self.silence_limit {
                Some(limit) => timeout(limit, frame).await.map_err(|_| {
                    let reason = format!("nothing was received for {limit:?}");
                    Error::Lost { reason }
                })?,
                None => frame.await,
            };
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| Error::Lost { reason: error.to_string() })?;
            let Some(data) = frame.data_ref() else { continue };
            let mut events = Vec::new();
            self.parser.push(data, &mut events)?;
            let events = events.into_iter();
            self.events.extend(events.map(|ServerEvent { name, id, data }| RawEvent {
                name,
                id: id.map(|id| id.to_string()),
                data: data.into(),
            }));
        }
    }
}

/// A message of a WebSocket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawMessage {
    /// A text.
    Text(String),
    /// Binary data.
    Binary,
    /// A ping, which is answered when the next message is read.
    Ping,
    /// The answer to a ping.
    Pong(Vec<u8>),
    /// The end, with its code.
    Close(Option<u16>),
}

/// An open WebSocket.
pub struct RawWebSocket(WebSocketStream<UpgradedStream>);

impl RawWebSocket {
    /// Sends a text.
    ///
    /// # Errors
    ///
    /// If the socket is closed or lost.
    pub async fn send_text(&mut self, text: &str) -> Result<(), Error> {
        self.send(Message::text(text)).await
    }

    /// Sends binary data.
    ///
    /// # Errors
    ///
    /// As [`send_text`](Self::send_text).
    pub async fn send_binary(&mut self, data: &[u8]) -> Result<(), Error> {
        self.send(Message::binary(data.to_vec())).await
    }

    /// Sends a ping.
    ///
    /// # Errors
    ///
    /// As [`send_text`](Self::send_text).
    pub async fn send_ping(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.send(Message::Ping(payload.to_vec().into())).await
    }

    /// Sends a close.
    ///
    /// # Errors
    ///
    /// As [`send_text`](Self::send_text).
    pub async fn send_close(&mut self, code: u16) -> Result<(), Error> {
        self.send(Message::Close(Some(CloseFrame { code: code.into(), reason: "".into() }))).await
    }

    async fn send(&mut self, message: Message) -> Result<(), Error> {
        self.0.send(message).await.map_err(|error| Error::Lost { reason: error.to_string() })
    }

    /// Returns the next message, or `None` if the socket ends without a close.
    ///
    /// # Errors
    ///
    /// If the server breaks the rules of WebSocket.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn next(&mut self) -> Result<Option<RawMessage>, Error> {
        use tokio_tungstenite::tungstenite::Error as Failure;

        Ok(match self.0.next().await {
            Some(Ok(Message::Text(text))) => Some(RawMessage::Text(text.as_str().to_owned())),
            Some(Ok(Message::Binary(_) | Message::Frame(_))) => Some(RawMessage::Binary),
            Some(Ok(Message::Ping(_))) => Some(RawMessage::Ping),
            Some(Ok(Message::Pong(payload))) => Some(RawMessage::Pong(payload.to_vec())),
            Some(Ok(Message::Close(close))) => Some(RawMessage::Close(close.map(|close| close.code.into()))),
            Some(Err(Failure::Protocol(
                error @ tokio_tungstenite::tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
            ))) => {
                tracing::debug!(%error, "the socket ends without a close");
                None
            }
            Some(Err(error @ (Failure::Protocol(_) | Failure::Utf8(_) | Failure::Capacity(_)))) => {
                return Err(Error::Protocol(error.to_string()));
            }
            Some(Err(_)) | None => None,
        })
    }
}

/// Returns the IP address and the port of a URL, or `None` for a name.
#[must_use]
pub fn literal_address(url: &str) -> Option<std::net::SocketAddr> {
    crate::client::dial::literal_address(url)
}

/// Returns true if the host of an address is this machine.
#[must_use]
pub fn is_loopback(url: &str) -> bool {
    let authority = url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(host, _)| host),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_address = host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    !authority.contains('@') && (is_address || host.eq_ignore_ascii_case("localhost"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::{Arc, ConnectOptions, RawClient, StreamDialer, is_loopback, literal_address, timeout};

    /// The server sends the beginning of a response, and then nothing.
    #[tokio::test(start_paused = true)]
    async fn a_response_that_stalls_is_given_up() {
        let mut dialer = StreamDialer::new("http://host", &ConnectOptions::default()).unwrap();
        dialer.simulated = Some(Box::new(|| {
            Box::pin(async {
                let (ours, mut theirs) = tokio::io::duplex(1024);
                tokio::spawn(async move {
                    theirs.read_u8().await.unwrap();
                    theirs.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n:\n").await.unwrap();
                    std::future::pending::<()>().await
                });
                Ok(Box::pin(ours) as _)
            })
        }));
        let mut client = RawClient::new("http://host", &ConnectOptions::default()).unwrap();
        client.dialer = Arc::new(dialer);
        let client = client.response_timeout(Duration::from_secs(5)).silence_limit(Duration::from_secs(7));
        let hour = Duration::from_hours(1);
        let send = || client.send("GET", None, &[], "");
        let body = timeout(hour, send().await.unwrap().body()).await.expect("it ends");
        assert!(body.unwrap_err().to_string().contains("not complete after 5s"));
        let mut events = send().await.unwrap();
        let event = timeout(hour, events.event()).await.expect("it ends");
        assert!(event.unwrap_err().to_string().contains("nothing was received for 7s"));
    }

    #[test]
    fn loopback_addresses_are_those_of_this_machine() {
        for url in ["http://127.0.0.1:8931/acp", "ws://localhost", "wss://[::1]:1/acp", "http://127.1.2.3?x"]
        {
            assert!(is_loopback(url), "{url}");
        }
        for url in [
            "http://example.com/acp",
            "http://127.0.0.1.example.com/",
            "http://127.0.0.1@example.com/",
            "http://localhost:x@example.com/",
            "https://example.com/?127.0.0.1",
            "wss://[2001:db8::1]/",
            "127.0.0.1",
        ] {
            assert!(!is_loopback(url), "{url}");
        }
    }

    #[test]
    fn names_are_no_literal_addresses() {
        let address = |url| literal_address(url).map(|address| address.to_string());
        assert_eq!(address("http://127.0.0.1:8931/acp").as_deref(), Some("127.0.0.1:8931"));
        assert_eq!(address("ws://[::1]:1").as_deref(), Some("[::1]:1"));
        for url in [
            "http://localhost:8931/acp",
            "http://127.0.0.1@example.com:8931/",
            "http://127.0.0.1.example.com:8931/",
            "http://0x7f.1:8931/",
            "127.0.0.1:8931",
        ] {
            assert_eq!(address(url), None, "{url}");
        }
    }
}
