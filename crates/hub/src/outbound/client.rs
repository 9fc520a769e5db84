//! Sends requests to checked addresses.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST, RETRY_AFTER, USER_AGENT};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};

use crate::outbound::resolver::{Lookups, SystemResolver};
use crate::outbound::url::OutboundHost;
use crate::outbound::{OutboundError, OutboundUrl, RefusedAddress, Resolver};

/// The principal of requests to servers that the configuration names. No principal has this id.
const CONFIGURED: &str = "";
/// The smallest buffer of hyper for a head.
const LEAST_HEAD: usize = 8 * 1024;

/// The settings of an [`OutboundClient`].
#[derive(Clone)]
#[non_exhaustive]
pub struct OutboundSettings {
    /// Allows `127.0.0.0/8` and `::1`, for receivers on this machine. Off by default.
    pub allow_loopback: bool,
    /// Allows every address, for requests to servers that the configuration names. Off by default.
    pub(crate) allow_all: bool,
    /// The most bytes of an address. 2 KiB.
    pub url_bytes: usize,
    /// The most addresses of a name. All of them are checked. 32.
    pub addresses: usize,
    /// The look-ups of names for one principal that run at the same time. 4.
    pub principal_lookups: usize,
    /// The look-ups for all. 64.
    pub lookups: usize,
    /// The requests that run at the same time. Further ones wait. 64.
    pub concurrent: usize,
    /// The time for the name, and again for the connection and TLS. 5 seconds.
    pub connect_timeout: Duration,
    /// The time for a request, until the head of its response is there. 30 seconds.
    pub total_timeout: Duration,
    /// The most bytes of the head of a response: at least 8 KiB, by default 16 KiB.
    pub response_head_bytes: usize,
    /// The bytes of the body of a response that are read before the connection is closed. They are dropped. 64 KiB.
    pub response_body_bytes: usize,
    /// The time in which they are read. The status counts even if it is not enough. 1 second.
    pub response_body_timeout: Duration,
    /// The configuration of TLS. By default the certificates of the system are trusted.
    #[cfg(feature = "tls")]
    pub tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
}

impl Default for OutboundSettings {
    fn default() -> Self {
        OutboundSettings {
            allow_loopback: false,
            allow_all: false,
            url_bytes: 2048,
            addresses: 32,
            principal_lookups: 4,
            lookups: 64,
            concurrent: 64,
            connect_timeout: Duration::from_secs(5),
            total_timeout: Duration::from_secs(30),
            response_head_bytes: 16 * 1024,
            response_body_bytes: 64 * 1024,
            response_body_timeout: Duration::from_secs(1),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

impl OutboundSettings {
    /// Reads an address as [`OutboundClient::check`] does.
    pub(crate) fn check(&self, url: &str) -> Result<OutboundUrl, OutboundError> {
        let url = OutboundUrl::parse(url, self.url_bytes)?;
        if let OutboundHost::Address(address) = url.host {
            self.check_address(&url, address)?;
        }
        Ok(url)
    }

    fn check_address(&self, url: &OutboundUrl, address: IpAddr) -> Result<(), OutboundError> {
        match RefusedAddress::of(address) {
            None => Ok(()),
            Some(_) if self.allow_all => Ok(()),
            Some(RefusedAddress::Loopback) if self.allow_loopback => Ok(()),
            Some(reason) => {
                tracing::warn!(%url, %address, %reason, "a request to an address from outside is refused");
                Err(OutboundError::Refused { url: url.to_string(), reason })
            }
        }
    }
}

impl fmt::Debug for OutboundSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The configuration of TLS has keys. A new setting has to be shown or left out here.
        let OutboundSettings {
            allow_loopback,
            allow_all,
            url_bytes,
            addresses,
            principal_lookups,
            lookups,
            concurrent,
            connect_timeout,
            total_timeout,
            response_head_bytes,
            response_body_bytes,
            response_body_timeout,
            #[cfg(feature = "tls")]
                tls: _,
        } = self;
        formatter
            .debug_struct("OutboundSettings")
            .field("allow_loopback", allow_loopback)
            .field("allow_all", allow_all)
            .field("url_bytes", url_bytes)
            .field("addresses", addresses)
            .field("principal_lookups", principal_lookups)
            .field("lookups", lookups)
            .field("concurrent", concurrent)
            .field("connect_timeout", connect_timeout)
            .field("total_timeout", total_timeout)
            .field("response_head_bytes", response_head_bytes)
            .field("response_body_bytes", response_body_bytes)
            .field("response_body_timeout", response_body_timeout)
            .finish_non_exhaustive()
    }
}

/// The response to a request, without its body.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OutboundResponse {
    /// The status. A redirect is not followed, so it is a status like others.
    pub status: StatusCode,
    /// The value of `Retry-After`.
    pub retry_after: Option<String>,
}

impl OutboundResponse {
    /// Creates a response, for an [`OutboundPost`](crate::OutboundPost) of a test.
    #[must_use]
    pub fn new(status: StatusCode) -> Self {
        OutboundResponse { status, retry_after: None }
    }

    fn of(response: &Response<Incoming>) -> Self {
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        OutboundResponse { status: response.status(), retry_after: retry_after.map(Into::into) }
    }
}

/// The HTTP client for addresses that came from outside.
///
/// Each request has a connection of its own. All addresses of the host are checked, and the connection is opened to one of
/// them, so a name that changes its address in between gains nothing. A host with one refused address is refused whole.
/// [`RefusedAddress`] has the reasons. Variables with proxies are ignored.
///
/// Clones share the limits.
#[derive(Clone)]
pub struct OutboundClient {
    inner: Arc<Inner>,
}

struct Inner {
    settings: OutboundSettings,
    resolver: Arc<dyn Resolver>,
    lookups: Lookups,
    requests: Semaphore,
    #[cfg(feature = "tls")]
    tls: std::sync::OnceLock<Arc<tokio_rustls::rustls::ClientConfig>>,
}

impl fmt::Debug for OutboundClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("OutboundClient")
            .field("settings", &self.inner.settings)
            .finish_non_exhaustive()
    }
}

trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

impl OutboundClient {
    /// Creates a client that resolves names as the system does.
    #[must_use]
    pub fn new(settings: OutboundSettings) -> Self {
        OutboundClient::with_resolver(settings, SystemResolver)
    }

    /// Creates a client with a resolver of its own.
    #[must_use]
    pub fn with_resolver(settings: OutboundSettings, resolver: impl Resolver) -> Self {
        let requests = Semaphore::new(settings.concurrent.clamp(1, Semaphore::MAX_PERMITS));
        let inner = Inner {
            lookups: Lookups::new(settings.principal_lookups, settings.lookups),
            settings,
            resolver: Arc::new(resolver),
            requests,
            #[cfg(feature = "tls")]
            tls: std::sync::OnceLock::new(),
        };
        OutboundClient { inner: Arc::new(inner) }
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &OutboundSettings {
        &self.inner.settings
    }

    /// Reads an address without connecting, to reject an invalid one early. An IP address is checked too.
    ///
    /// # Errors
    ///
    /// [`OutboundError::Url`] and [`OutboundError::Refused`].
    pub fn check(&self, url: &str) -> Result<OutboundUrl, OutboundError> {
        self.inner.settings.check(url)
    }

    /// Sends a POST for a principal and returns the status of the response, whatever it is.
    ///
    /// Cancel safe in the sense that a dropped request closes its connection. The server may have received it.
    ///
    /// # Errors
    ///
    /// [`OutboundError`] if the address is refused or there is no response.
    pub async fn post(
        &self,
        principal: &str,
        url: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<OutboundResponse, OutboundError> {
        let url = self.check(url)?;
        let settings = &self.inner.settings;
        // The semaphore is never closed.
        let _permit = self.inner.requests.acquire().await.ok();
        // The connection ends with this set.
        let mut connections = JoinSet::new();
        let response =
            self.send(principal, &url, request(Method::POST, &url, headers, body)?, &mut connections).await?;
        let answered = OutboundResponse::of(&response);
        let drained = drain(response.into_body(), settings.response_body_bytes);
        // Without this a server that writes its response would see a broken connection.
        let _ = timeout(settings.response_body_timeout, drained).await;
        Ok(answered)
    }

    /// Sends a GET and returns the body of the response, for a server that the configuration names.
    ///
    /// # Errors
    ///
    /// As [`post`](Self::post). [`OutboundError::Status`] for a status other than 200, and [`OutboundError::BodyTooLarge`] for
    /// a body over `max_bytes`.
    #[cfg(feature = "tokens")]
    pub(crate) async fn get(&self, url: &str, max_bytes: usize) -> Result<Bytes, OutboundError> {
        match self.fetch(Method::GET, url, HeaderMap::new(), Bytes::new(), max_bytes).await? {
            (OutboundResponse { status: StatusCode::OK, .. }, body) => Ok(body),
            (OutboundResponse { status, .. }, _) => {
                let url = self.check(url)?.to_string();
                Err(OutboundError::Status { url, status: status.as_u16() })
            }
        }
    }

    /// Sends a request to a server that the configuration names, and returns the response with its body. It has the
    /// same time for the body as for the head.
    ///
    /// # Errors
    ///
    /// As [`post`](Self::post), and [`OutboundError::BodyTooLarge`] for a body over `max_bytes`.
    pub(crate) async fn fetch(
        &self,
        method: Method,
        url: &str,
        headers: HeaderMap,
        body: Bytes,
        max_bytes: usize,
    ) -> Result<(OutboundResponse, Bytes), OutboundError> {
        let url = self.check(url)?;
        let settings = &self.inner.settings;
        let _permit = self.inner.requests.acquire().await.ok();
        let mut connections = JoinSet::new();
        let request = request(method, &url, headers, body)?;
        let response = self.send(CONFIGURED, &url, request, &mut connections).await?;
        let answered = OutboundResponse::of(&response);
        let body = http_body_util::Limited::new(response.into_body(), max_bytes).collect();
        let Ok(body) = timeout(settings.total_timeout, body).await else {
            let (url, limit) = (url.to_string(), settings.total_timeout);
            return Err(OutboundError::Timeout { url, limit, setting: "total_timeout" });
        };
        let body = body.map(http_body_util::Collected::to_bytes);
        body.map(|body| (answered, body)).map_err(|error| {
            let url = url.to_string();
            match error.is::<http_body_util::LengthLimitError>() {
                true => OutboundError::BodyTooLarge { url, limit: max_bytes },
                false => OutboundError::Protocol { url, error },
            }
        })
    }

    /// Sends a request, and waits for the head of its response.
    async fn send(
        &self,
        principal: &str,
        url: &OutboundUrl,
        request: Request<Full<Bytes>>,
        connections: &mut JoinSet<()>,
    ) -> Result<Response<Incoming>, OutboundError> {
        let limit = self.inner.settings.total_timeout;
        let exchange = self.exchange(principal, url, request, connections);
        timeout(limit, exchange).await.unwrap_or_else(|_| {
            Err(OutboundError::Timeout { url: url.to_string(), limit, setting: "total_timeout" })
        })
    }

    async fn exchange(
        &self,
        principal: &str,
        url: &OutboundUrl,
        request: Request<Full<Bytes>>,
        connections: &mut JoinSet<()>,
    ) -> Result<Response<Incoming>, OutboundError> {
        let settings = &self.inner.settings;
        let too_late = |_| {
            let (url, limit) = (url.to_string(), settings.connect_timeout);
            OutboundError::Timeout { url, limit, setting: "connect_timeout" }
        };
        let addresses = self.addresses(principal, url, too_late).await?;
        let stream = timeout(settings.connect_timeout, self.open(url, &addresses)).await.map_err(too_late)?;
        let head = settings.response_head_bytes.max(LEAST_HEAD);
        let failed = |error: hyper::Error| {
            let url = url.to_string();
            if error.is_parse_too_large() {
                return OutboundError::HeadTooLarge { url, limit: head };
            }
            OutboundError::Protocol { url, error: error.into() }
        };
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(head)
            .handshake(TokioIo::new(stream?))
            .await
            .map_err(failed)?;
        connections.spawn(async move { drop(connection.await) });
        sender.send_request(request).await.map_err(failed)
    }

    /// Opens a connection to one of the checked addresses.
    async fn open(
        &self,
        url: &OutboundUrl,
        addresses: &[IpAddr],
    ) -> Result<Pin<Box<dyn Socket>>, OutboundError> {
        let start = Instant::now();
        let mut failure = io::Error::from(io::ErrorKind::TimedOut);
        for (tried, address) in addresses.iter().enumerate() {
            // An address that does not answer leaves time for those behind it.
            let left = self.inner.settings.connect_timeout.saturating_sub(start.elapsed());
            let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
            let opened = match timeout(share, TcpStream::connect(SocketAddr::new(*address, url.port))).await {
                Ok(Ok(stream)) => stream.set_nodelay(true).map(|()| stream),
                Ok(Err(error)) => Err(error),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            };
            match opened {
                Ok(stream) => return self.secure(url, stream).await,
                Err(error) => failure = error,
            }
        }
        Err(OutboundError::Connect { url: url.to_string(), error: failure })
    }

    /// Returns the checked addresses of a host. The time begins when the principal has a place for its look-up.
    async fn addresses(
        &self,
        principal: &str,
        url: &OutboundUrl,
        too_late: impl FnOnce(Elapsed) -> OutboundError,
    ) -> Result<Vec<IpAddr>, OutboundError> {
        let name = match &url.host {
            // `check` has seen it.
            OutboundHost::Address(address) => return Ok(vec![*address]),
            OutboundHost::Name(name) => name,
        };
        let unknown = |error| OutboundError::Resolve { url: url.to_string(), error };
        let place = self.inner.lookups.place(principal).await;
        let (resolver, name) = (self.inner.resolver.clone(), name.clone());
        // A look-up goes on until the resolver gives up, also if nobody waits for it any more.
        let lookup = tokio::spawn(async move {
            let found = resolver.resolve(&name).await;
            drop(place);
            found
        });
        let found = timeout(self.inner.settings.connect_timeout, lookup).await.map_err(too_late)?;
        let found = found.map_err(io::Error::other).and_then(|found| found);
        let found = found.map_err(|error| unknown(Some(error)))?;
        if found.is_empty() {
            return Err(unknown(None));
        }
        let limit = self.inner.settings.addresses;
        if found.len() > limit {
            return Err(OutboundError::Addresses { url: url.to_string(), count: found.len(), limit });
        }
        found.iter().try_for_each(|address| self.inner.settings.check_address(url, *address))?;
        Ok(found)
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_async, reason = "the other one awaits")]
    async fn secure(
        &self,
        _url: &OutboundUrl,
        stream: TcpStream,
    ) -> Result<Pin<Box<dyn Socket>>, OutboundError> {
        Ok(Box::pin(stream))
    }

    #[cfg(feature = "tls")]
    async fn secure(
        &self,
        url: &OutboundUrl,
        stream: TcpStream,
    ) -> Result<Pin<Box<dyn Socket>>, OutboundError> {
        use tokio_rustls::rustls::pki_types::ServerName;
        if !url.is_secure {
            return Ok(Box::pin(stream));
        }
        let config = self.tls_config().map_err(|error| tls_error(url, error))?;
        let name = match &url.host {
            OutboundHost::Name(name) => {
                ServerName::try_from(name.clone()).map_err(|error| tls_error(url, error))?
            }
            OutboundHost::Address(address) => ServerName::from(*address),
        };
        let connecting = tokio_rustls::TlsConnector::from(config).connect(name, stream);
        let stream = connecting.await.map_err(|error| tls_error(url, error))?;
        Ok(Box::pin(stream))
    }

    #[cfg(feature = "tls")]
    fn tls_config(&self) -> Result<Arc<tokio_rustls::rustls::ClientConfig>, duologue_http::Error> {
        if let Some(config) = self.inner.settings.tls.as_ref().or_else(|| self.inner.tls.get()) {
            return Ok(config.clone());
        }
        let config = duologue_http::system_tls()?;
        Ok(self.inner.tls.get_or_init(|| config).clone())
    }
}

#[cfg(feature = "tls")]
fn tls_error(url: &OutboundUrl, error: impl std::error::Error + Send + Sync + 'static) -> OutboundError {
    OutboundError::Tls { url: url.to_string(), error: error.into() }
}

fn request(
    method: Method,
    url: &OutboundUrl,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Request<Full<Bytes>>, OutboundError> {
    let request = Request::builder()
        .method(method)
        .uri(&url.path)
        .header(HOST, url.host_header())
        .header(CONNECTION, "close")
        .header(USER_AGENT, concat!("duologue-hub/", env!("CARGO_PKG_VERSION")));
    let mut request = request
        .body(Full::new(body))
        .map_err(|_| OutboundError::Url { reason: "its path or its query cannot be sent".to_owned() })?;
    for (name, value) in &headers {
        if *name != HOST && *name != CONNECTION {
            request.headers_mut().append(name, value.clone());
        }
    }
    Ok(request)
}

/// Reads at most `limit` bytes of a body.
async fn drain(mut body: Incoming, limit: usize) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, Bytes::len);
        if read >= limit {
            return;
        }
    }
}
