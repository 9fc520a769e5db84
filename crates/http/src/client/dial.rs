//! Opens sockets and sends requests: addresses, headers, cookies, TCP, TLS and the upgrade.

use std::io;
use std::pin::Pin;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use duologue_rpc::Lock as _;
use http::header::{AUTHORIZATION, COOKIE, HOST, InvalidHeaderValue, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::client_async_with_config;
use tokio_tungstenite::tungstenite::Error as WebSocketError;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::client::driver::{Dialed, Dialer};
use crate::client::error::Error;
use crate::client::options::{ConnectOptions, ServerCheck};
use crate::client::tungstenite_socket::TungsteniteSocket;
use crate::client::whole_head::{HEAD_BYTES, WholeHead};
use crate::socket::PingLimit;
use crate::wire::{CONNECTION_ID, STREAM_ACK, authorization};

/// The bytes of a refusal that its error shows.
const SHOWN: usize = 500;
/// The most cookies that are kept.
const COOKIES: usize = 32;
/// The longest name and value of a cookie that is kept, as in browsers. All of them are in each request.
const COOKIE_BYTES: usize = 4096;
/// The buffer for writing to the socket. A frame that fills it is written at once.
const WRITE_BUFFER: usize = 16 * 1024;

/// A socket over TCP.
pub(crate) type ClientSocket = PingLimit<TungsteniteSocket<UpgradedStream>>;
/// The stream of a WebSocket.
pub(crate) type UpgradedStream = WholeHead<Pin<Box<dyn ByteStream>>>;
/// The body of a request.
pub(crate) type HttpBody = Full<Bytes>;
/// The headers of a request beside those of the options.
pub(crate) type RequestHeaders = Vec<(HeaderName, HeaderValue)>;

pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// Opens sockets over TCP, with TLS if the address says so, or over a Unix socket.
pub(crate) struct StreamDialer {
    host: String,
    port: u16,
    #[cfg(unix)]
    socket: Option<std::path::PathBuf>,
    authority: HeaderValue,
    pub(crate) path: String,
    headers: HeaderMap,
    cookies: Mutex<Vec<(String, String)>>,
    pub(crate) config: WebSocketConfig,
    waiting_pings: usize,
    check_server: Option<ServerCheck>,
    /// The header with the token of `check_server`, from the first connection. It does not change, so that a connection that
    /// is already open to another program never gets it.
    checked_token: OnceLock<Option<HeaderValue>>,
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsConnector>,
    /// Opens simulated connections instead.
    #[cfg(test)]
    pub(crate) simulated: Option<SimulatedOpener>,
}

#[cfg(test)]
pub(crate) type SimulatedOpener = Box<
    dyn Fn() -> Pin<Box<dyn Future<Output = Result<Pin<Box<dyn ByteStream>>, Error>> + Send>> + Send + Sync,
>;

impl StreamDialer {
    pub(crate) fn new(address: &str, options: &ConnectOptions) -> Result<Self, Error> {
        let target = Target::read(address)?;
        #[cfg(unix)]
        if options.socket.is_some() && target.is_secure {
            let reason = "the connection over a Unix socket is not encrypted; use http:// or ws:// with `ConnectOptions::socket`";
            return Err(Error::Address { address: address.to_owned(), reason: reason.to_owned() });
        }
        let config = WebSocketConfig::default()
            .read_buffer_size(options.read_buffer)
            .write_buffer_size(WRITE_BUFFER)
            .max_message_size(Some(options.frame_bytes))
            .max_frame_size(Some(options.frame_bytes));
        #[cfg(feature = "tls")]
        let tls = if target.is_secure { Some(crate::client::tls::connector(options)?) } else { None };
        Ok(StreamDialer {
            headers: headers(options)?,
            host: target.host,
            port: target.port,
            #[cfg(unix)]
            socket: options.socket.clone(),
            authority: target.authority,
            path: target.path,
            cookies: Mutex::default(),
            config,
            waiting_pings: options.waiting_pings,
            check_server: options.check_server.clone(),
            checked_token: OnceLock::new(),
            #[cfg(feature = "tls")]
            tls,
            #[cfg(test)]
            simulated: None,
        })
    }

    /// Returns the host and the port, or the path of the socket.
    pub(crate) fn address(&self) -> String {
        #[cfg(unix)]
        if let Some(path) = &self.socket {
            return path.display().to_string();
        }
        format!("{}:{}", self.host, self.port)
    }

    /// Creates the request of an upgrade to a WebSocket.
    pub(crate) fn upgrade_request(&self) -> Result<Request<()>, Error> {
        let mut request = Request::builder()
            // Only the path is written. The rest marks it as a WebSocket for tungstenite.
            .uri(format!("ws://{}{}", self.authority.to_str().unwrap_or_default(), self.path))
            .header(HOST, &self.authority)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", generate_key())
            .header(STREAM_ACK, "true");
        if let Some(headers) = request.headers_mut() {
            self.common_headers(headers);
        }
        request.body(()).map_err(|error| Error::Protocol(error.to_string()))
    }

    /// Adds the headers of the options and the cookies.
    fn common_headers(&self, headers: &mut HeaderMap) {
        headers.extend(self.headers.clone());
        if let Some(Some(token)) = self.checked_token.get() {
            headers.insert(AUTHORIZATION, token.clone());
        }
        let cookies: Vec<String> =
            self.cookies.lock_unpoisoned().iter().map(|(name, value)| format!("{name}={value}")).collect();
        if let Ok(cookies) = HeaderValue::try_from(cookies.join("; "))
            && !cookies.is_empty()
        {
            headers.insert(COOKIE, cookies);
        }
    }

    /// Creates a request of HTTP with SSE.
    pub(crate) fn http_request(
        &self,
        method: &Method,
        headers: RequestHeaders,
        body: Bytes,
    ) -> Result<Request<HttpBody>, Error> {
        let request = Request::builder().method(method).uri(&self.path).header(HOST, &self.authority);
        let mut request =
            request.body(Full::new(body)).map_err(|error| Error::Protocol(error.to_string()))?;
        self.common_headers(request.headers_mut());
        headers.into_iter().for_each(|(name, value)| _ = request.headers_mut().insert(name, value));
        Ok(request)
    }

    /// Opens a connection for requests.
    pub(crate) async fn http(&self, after: Duration) -> Result<SendRequest<HttpBody>, Error> {
        let address = self.address();
        let opening = async {
            let stream = hyper_util::rt::TokioIo::new(self.stream().await?);
            let handshake = hyper::client::conn::http1::handshake(stream).await;
            let (sender, connection) =
                handshake.map_err(|error| Error::Lost { reason: error.to_string() })?;
            // It ends when its sender and the body of its last response are dropped.
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "an HTTP connection has failed");
                }
            });
            Ok(sender)
        };
        timeout(after, opening).await.unwrap_or(Err(Error::Timeout { address, after }))
    }

    /// Opens a connection over TCP, with TLS if the address says so, or over the Unix socket.
    pub(crate) async fn stream(&self) -> Result<Pin<Box<dyn ByteStream>>, Error> {
        #[cfg(test)]
        if let Some(open) = &self.simulated {
            return open().await;
        }
        let unreachable = |error| Error::Unreachable { address: self.address(), error };
        #[cfg(unix)]
        if let Some(path) = &self.socket {
            let stream = tokio::net::UnixStream::connect(path).await.map_err(unreachable)?;
            crate::socket_user::check_peer(&stream).map_err(unreachable)?;
            return Ok(Box::pin(stream));
        }
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(unreachable)?;
        if let Some(check) = self.check_server.clone() {
            // It may read files.
            let checked = tokio::task::spawn_blocking(move || check()).await;
            let token = checked.map_err(io::Error::other).and_then(|checked| checked).map_err(unreachable)?;
            let token = token.as_ref().map(authorization).transpose().map_err(invalid_token)?;
            self.checked_token.get_or_init(|| token);
        }
        // Each message is flushed when it is complete.
        stream.set_nodelay(true).map_err(unreachable)?;
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let name = tokio_rustls::rustls::pki_types::ServerName::try_from(self.host.clone())
                .map_err(|error| Error::Tls(error.to_string()))?;
            let stream = tls.connect(name, stream).await.map_err(|error| match error.get_ref() {
                Some(inner) if inner.is::<tokio_rustls::rustls::Error>() => Error::Tls(error.to_string()),
                _ => unreachable(error),
            })?;
            return Ok(Box::pin(stream));
        }
        Ok(Box::pin(stream))
    }

    async fn upgrade(&self) -> Result<Dialed<ClientSocket>, Error> {
        let stream = WholeHead::new(self.stream().await?);
        let upgraded = client_async_with_config(self.upgrade_request()?, stream, Some(self.config)).await;
        let (socket, response) = upgraded.map_err(|error| self.upgrade_error(error))?;
        self.keep_cookies(response.headers());
        let connection_id = response.headers().get(CONNECTION_ID).and_then(|id| id.to_str().ok());
        Ok(Dialed {
            socket: PingLimit::new(
                TungsteniteSocket(socket),
                self.waiting_pings,
                "ConnectOptions::waiting_pings",
            ),
            connection_id: connection_id.unwrap_or_default().to_owned(),
        })
    }

    /// Returns the beginning of a text of the server for an error, unless it has the credential of the client: errors are logged.
    pub(crate) fn shown(&self, text: &[u8]) -> String {
        /// The shortest credential that is searched for. A shorter one could be any word.
        const SEARCHED_BYTES: usize = 16;
        let own =
            self.headers.get(AUTHORIZATION).into_iter().chain(self.checked_token.get().into_iter().flatten());
        let mut secrets =
            own.map(|value| value.as_bytes().rsplit(|byte| *byte == b' ').next().unwrap_or_default());
        let is_in =
            |secret: &[u8]| secret.len() >= SEARCHED_BYTES && memchr::memmem::find(text, secret).is_some();
        match secrets.any(is_in) {
            true => "its text is left out, because it has the credential of this client".to_owned(),
            false => String::from_utf8_lossy(read_beginning(text)).into_owned(),
        }
    }

    /// Returns the error of an upgrade that failed.
    pub(crate) fn upgrade_error(&self, error: WebSocketError) -> Error {
        match error {
            WebSocketError::Http(response) => {
                let mut message = self.shown(response.body().as_deref().unwrap_or_default());
                if response.status().is_redirection() {
                    let to = response.headers().get(LOCATION).map(HeaderValue::as_bytes).unwrap_or_default();
                    let to = self.shown(to);
                    message = format!("it redirects to {to:?}, and redirects are not followed");
                }
                Error::Refused { status: response.status().as_u16(), message }
            }
            WebSocketError::Io(error) => Error::Unreachable { address: self.address(), error },
            // The socket was lost in the middle of the response.
            WebSocketError::Protocol(error @ ProtocolError::HandshakeIncomplete) => Error::Unreachable {
                address: self.address(),
                error: io::Error::new(io::ErrorKind::UnexpectedEof, error),
            },
            // It calls each head over its limit an attack.
            WebSocketError::AttackAttempt => {
                Error::Protocol(format!("the head of its response has more than {HEAD_BYTES} bytes"))
            }
            error => Error::Protocol(error.to_string()),
        }
    }

    /// Keeps the cookies with which a load balancer finds the same server again.
    pub(crate) fn keep_cookies(&self, headers: &HeaderMap) {
        let mut cookies = self.cookies.lock_unpoisoned();
        for cookie in headers.get_all(SET_COOKIE) {
            let pair = cookie.to_str().ok().and_then(|cookie| cookie.split(';').next()?.split_once('='));
            let Some((name, value)) = pair else { continue };
            cookies.retain(|(known, _)| known != name.trim());
            if cookies.len() < COOKIES && name.len() + value.len() <= COOKIE_BYTES {
                cookies.push((name.trim().into(), value.trim().into()));
            }
        }
    }
}

impl Dialer for StreamDialer {
    type Socket = ClientSocket;

    async fn dial(&mut self, after: Duration) -> Result<Dialed<Self::Socket>, Error> {
        let address = self.address();
        let upgraded = timeout(after, self.upgrade()).await;
        upgraded.unwrap_or(Err(Error::Timeout { address, after }))
    }
}

/// Returns the part of a response that an error shows.
pub(crate) fn read_beginning(body: &[u8]) -> &[u8] {
    body.get(..SHOWN.min(body.len())).unwrap_or_default()
}

/// The parts of an address.
#[derive(Debug, PartialEq)]
struct Target {
    is_secure: bool,
    host: String,
    port: u16,
    authority: HeaderValue,
    path: String,
}

impl Target {
    fn read(address: &str) -> Result<Self, Error> {
        // A user and a password are credentials, and errors are logged.
        let shown = match address.rsplit_once('@') {
            Some((start, rest)) => format!("{}://…@{rest}", start.split("://").next().unwrap_or_default()),
            None => address.to_owned(),
        };
        let invalid = |reason: &str| Error::Address { address: shown.clone(), reason: reason.into() };
        let uri: Uri = address.parse().map_err(|_| invalid("it is not a URL"))?;
        let is_secure = match uri.scheme_str() {
            Some("ws" | "http") => false,
            Some("wss" | "https") => true,
            _ => return Err(invalid("it has to begin with ws://, wss://, http:// or https://")),
        };
        if is_secure && !cfg!(feature = "tls") {
            return Err(invalid("this program was built without TLS (feature `tls` of duologue-http)"));
        }
        let authority = uri.authority().ok_or_else(|| invalid("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(invalid(
                "credentials belong into ConnectOptions::bearer_token, not into the address",
            ));
        }
        let path = match uri.path_and_query().map_or("", |path| path.as_str()) {
            "" | "/" => "/acp".to_owned(),
            path if path.starts_with("/?") => format!("/acp{}", path.trim_start_matches('/')),
            path => path.to_owned(),
        };
        Ok(Target {
            is_secure,
            host: authority.host().trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: authority.port_u16().unwrap_or(if is_secure { 443 } else { 80 }),
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| invalid("invalid host"))?,
            path,
        })
    }
}

/// Returns the IP address and the port of a URL, if its host is an address and no name.
pub(crate) fn literal_address(url: &str) -> Option<std::net::SocketAddr> {
    let target = Target::read(url).ok()?;
    Some((target.host.parse::<std::net::IpAddr>().ok()?, target.port).into())
}

fn headers(options: &ConnectOptions) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    for (name, value) in &options.headers {
        let invalid = || Error::Header { name: name.clone() };
        let parsed: HeaderName = name.parse().map_err(|_| invalid())?;
        headers.append(parsed, HeaderValue::from_str(value).map_err(|_| invalid())?);
    }
    if let Some(token) = &options.bearer_token {
        headers.insert(AUTHORIZATION, authorization(token).map_err(invalid_token)?);
    }
    Ok(headers)
}

fn invalid_token(_: InvalidHeaderValue) -> Error {
    Error::Header { name: AUTHORIZATION.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let read = |address| Target::read(address).map(|target| (target.host, target.port, target.path));
        let is = |host: &str, port, path: &str| Some((host.to_owned(), port, path.to_owned()));
        assert_eq!(read("ws://localhost:1/acp").ok(), is("localhost", 1, "/acp"));
        assert_eq!(read("http://localhost").ok(), is("localhost", 80, "/acp"));
        assert_eq!(read("ws://[::1]:9/?a=b").ok(), is("::1", 9, "/acp?a=b"));
        assert_eq!(read("ws://host/agents/1?a=b").ok(), is("host", 80, "/agents/1?a=b"));
        assert_eq!(read("wss://host").is_ok(), cfg!(feature = "tls"));
        for address in ["", "host", "ftp://host", "ws://", "/acp", "ws://a b"] {
            assert!(matches!(read(address), Err(Error::Address { .. })), "{address}");
        }
    }

    #[test]
    fn errors_do_not_show_credentials() {
        let error = Target::read("ws://user:secret@host/acp").unwrap_err().to_string();
        assert!(!error.contains("secret") && error.contains("bearer_token"), "{error}");
        let options = ConnectOptions { bearer_token: Some("secret\n".into()), ..ConnectOptions::default() };
        let error = StreamDialer::new("ws://host", &options).err().expect("an error").to_string();
        assert!(!error.contains("secret"), "{error}");
        let shown = format!("{options:?}");
        assert!(shown.contains("[redacted]") && !shown.contains("secret"), "{shown}");
    }

    #[cfg(all(unix, feature = "tls"))]
    #[test]
    fn a_socket_has_no_encrypted_address() {
        let options = ConnectOptions { socket: Some("/tmp/socket".into()), ..ConnectOptions::default() };
        for address in ["https://host/acp", "wss://host"] {
            let error = StreamDialer::new(address, &options).err().expect("an error").to_string();
            assert!(error.contains("not encrypted"), "{error}");
        }
        assert!(StreamDialer::new("http://host/acp", &options).is_ok());
    }

    #[tokio::test]
    async fn each_connection_is_checked_before_something_is_sent() {
        use tokio::io::AsyncReadExt as _;

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let is_there = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
        let seen = is_there.clone();
        let check = move || match seen.load(std::sync::atomic::Ordering::Relaxed) {
            true => Ok(Some("its own".into())),
            false => Err(io::Error::other("the server is gone")),
        };
        let options = ConnectOptions {
            bearer_token: Some("secret".into()),
            check_server: Some(std::sync::Arc::new(check)),
            ..ConnectOptions::default()
        };
        let address = format!("http://{}", listener.local_addr().unwrap());
        let dialer = StreamDialer::new(&address, &options).unwrap();
        assert!(dialer.stream().await.is_ok());
        assert_eq!(dialer.upgrade_request().unwrap().headers()[AUTHORIZATION], "Bearer its own");
        drop(listener.accept().await.unwrap());
        is_there.store(false, std::sync::atomic::Ordering::Relaxed);
        let error = dialer.upgrade().await.err().expect("an error");
        assert!(error.is_temporary() && error.to_string().contains("the server is gone"), "{error}");
        let (mut other, _) = listener.accept().await.unwrap();
        assert_eq!(other.read(&mut [0; 16]).await.unwrap(), 0, "nothing was sent");
    }

    #[tokio::test]
    async fn a_head_without_end_is_an_error_that_names_the_limit() {
        use tokio::io::AsyncWriteExt as _;

        let mut dialer = StreamDialer::new("ws://host", &ConnectOptions::default()).unwrap();
        dialer.simulated = Some(Box::new(|| {
            let (client, mut server) = tokio::io::duplex(1024);
            tokio::spawn(async move {
                let head = format!("HTTP/1.1 101 Switching Protocols\r\nlong: {}", "x".repeat(HEAD_BYTES));
                let _ = server.write_all(head.as_bytes()).await;
                std::future::pending::<()>().await;
            });
            Box::pin(async { Ok(Box::pin(client) as Pin<Box<dyn ByteStream>>) })
        }));
        let error = dialer.upgrade().await.err().expect("an error");
        assert!(!error.is_temporary() && error.to_string().contains("more than 65536 bytes"), "{error}");
    }

    #[test]
    fn cookies_are_sent_back() {
        let dialer = StreamDialer::new("ws://host", &ConnectOptions::default()).unwrap();
        let mut headers = HeaderMap::new();
        headers.append(SET_COOKIE, "route=a; Path=/; HttpOnly".parse().unwrap());
        headers.append(SET_COOKIE, "other=1".parse().unwrap());
        dialer.keep_cookies(&headers);
        headers.clear();
        headers.append(SET_COOKIE, "route=b".parse().unwrap());
        dialer.keep_cookies(&headers);
        assert_eq!(dialer.upgrade_request().unwrap().headers()[COOKIE], "other=1; route=b");
    }

    #[test]
    fn the_text_of_a_refusal_has_no_credential() {
        let bearer_token = Some("swordfish-swordfish".into());
        let options = ConnectOptions { bearer_token, ..ConnectOptions::default() };
        let dialer = StreamDialer::new("http://localhost", &options).unwrap();
        assert!(!dialer.shown(b"you sent Bearer swordfish-swordfish").contains("swordfish"));
        assert_eq!(dialer.shown(b"no swordfish"), "no swordfish");
    }
}
