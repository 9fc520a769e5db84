//! The parts of a request: its sender, path, query and body, and the replies that a key repeats.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, LOCATION};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use duologue_rpc::Lock as _;
use duologue_schema::TraceContext;
use duologue_store::{
    BatchOutcome, ChangeOutcome, JsonText, SeenId, SeenKey, Store, StoreBatch, StoreChange, StoreTime,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use crate::gateway::access::Principal;
use crate::gateway::rest::RestShared;
use crate::gateway::rest::query::parse_query;
use crate::gateway::rest::values::JsonObject;
use crate::gateway::{GatewayShared, Refusal, RefusalCode};

/// The header with the key of a request that runs once.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The header with the id of the last event that a client has received.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// The header with the time that the sender of a request wants to wait.
const PREFER: HeaderName = HeaderName::from_static("prefer");
/// The header with the trace context of a request.
const TRACEPARENT: HeaderName = HeaderName::from_static(TraceContext::TRACEPARENT);

/// The characters of a path segment that are not encoded.
const SEGMENT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns a path from its segments.
pub(crate) fn path_of(segments: &[&str]) -> String {
    let encoded = segments.iter().map(|segment| utf8_percent_encode(segment, &SEGMENT));
    encoded.fold(String::new(), |path, segment| format!("{path}/{segment}"))
}

/// The sender of a request, and the parts of the head that several routes use.
#[derive(Clone)]
pub(crate) struct RestCaller {
    pub(crate) principal: Principal,
    pub(crate) rest: Arc<RestShared>,
    pub(crate) headers: HeaderMap,
    /// The method, the path and the query.
    target: String,
}

impl FromRequestParts<Arc<RestShared>> for RestCaller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, rest: &Arc<RestShared>) -> Result<Self, Refusal> {
        // The check of the key comes before the routes, so this is a mistake of the server.
        let unknown = || Refusal::new(RefusalCode::Unauthenticated, "the request has no principal");
        let principal = parts.extensions.get::<Principal>().cloned().ok_or_else(unknown)?;
        let target = format!("{} {}", parts.method, parts.uri);
        Ok(RestCaller { principal, rest: rest.clone(), headers: parts.headers.clone(), target })
    }
}

impl RestCaller {
    pub(crate) fn gateway(&self) -> &Arc<GatewayShared> {
        &self.rest.gateway
    }

    /// Returns the id of the principal.
    pub(crate) fn id(&self) -> &str {
        &self.principal.id
    }

    /// Returns the name in which the principal sends: the given one if it may use it, else its own.
    pub(crate) fn sender(&self, from: Option<String>) -> Result<String, Refusal> {
        let Some(from) = from else {
            return Ok(self.principal.agent.clone().unwrap_or_else(|| self.id().to_owned()));
        };
        if self.principal.is_sender(&from) {
            return Ok(from);
        }
        let why = "`from` is neither your id nor that of your agent";
        Err(Refusal::new(RefusalCode::NotAuthorized, why))
    }

    /// Returns the seconds of `Prefer: wait=n`.
    pub(crate) fn preferred_wait(&self) -> Option<u64> {
        let lines = self.headers.get_all(PREFER).into_iter();
        let mut parts = lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split([',', ';']));
        parts.find_map(|part| part.trim().strip_prefix("wait=")?.trim_matches('"').parse().ok())
    }

    /// Returns the trace context of the request. One that is malformed or repeated is dropped.
    pub(crate) fn trace(&self) -> Option<String> {
        let mut lines = self.headers.get_all(TRACEPARENT).into_iter();
        let text = lines.next().filter(|_| lines.next().is_none())?.to_str().ok()?;
        TraceContext::new(text).map(|trace| trace.traceparent().to_owned())
    }

    /// Returns the id of the last event that the client of a stream has received, if it has received one.
    pub(crate) fn last_event_id<T>(
        &self,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        let Some(id) = self.headers.get(LAST_EVENT_ID) else { return Ok(None) };
        match id.to_str().map(|id| (id, parse(id))) {
            Ok(("", _)) => Ok(None),
            Ok((_, Some(id))) => Ok(Some(id)),
            _ => Err(Refusal::invalid("`Last-Event-ID` is not an id of these events")),
        }
    }

    /// Returns the key of a request that runs once, if its sender has given one. `operation` and the key name it, and
    /// the digest has everything that the request contains.
    ///
    /// While another request with the key runs, it is refused: its response is not known yet.
    pub(crate) fn once(&self, operation: &str, body: &[u8]) -> Result<Option<OnceKey>, Refusal> {
        let mut keys = self.headers.get_all(IDEMPOTENCY_KEY).into_iter();
        let Some(key) = keys.next() else { return Ok(None) };
        let fits =
            |key: &str| (1..=128).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
        let key = key.to_str().ok().filter(|key| fits(key) && keys.next().is_none());
        let key = key.ok_or_else(|| {
            Refusal::invalid("`Idempotency-Key` is one header with 1 to 128 visible characters of ASCII")
        })?;
        let digest = Sha256::new().chain_update(&self.target).chain_update([0]).chain_update(body).finalize();
        let lasts = self.gateway().config.limits.idempotency_seconds.saturating_mul(1_000);
        let expires = self.gateway().time().wall.saturating_add(lasts);
        let key = SeenKey::new(self.id(), operation, key);
        let running = Arc::new(self.rest.running.begin(&key)?);
        Ok(Some(OnceKey { seen: SeenId::new(key, digest.to_vec(), expires), _running: running }))
    }

    /// Returns the reply to the first request with a key, if there was one with the same content. It does not depend on an
    /// agent that is busy or gone by now.
    pub(crate) async fn repeated(&self, once: Option<&OnceKey>) -> Result<Option<RestReply>, Refusal> {
        let Some(once) = once.cloned() else { return Ok(None) };
        let time = self.gateway().time();
        self.gateway().in_store(move |store| repeated(store, Some(&once), time)).await
    }
}

/// The keys of requests that run.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunningKeys(Arc<Mutex<HashSet<SeenKey>>>);

impl RunningKeys {
    fn begin(&self, key: &SeenKey) -> Result<RunningKey, Refusal> {
        if !self.0.lock_unpoisoned().insert(key.clone()) {
            let why = "a request with this `Idempotency-Key` still runs; retry when it has ended";
            return Err(Refusal::new(RefusalCode::KeyInUse, why));
        }
        Ok(RunningKey { all: self.clone(), key: key.clone() })
    }
}

/// The key of a request that runs. Dropping it lets another request use the key.
#[derive(Debug)]
struct RunningKey {
    all: RunningKeys,
    key: SeenKey,
}

impl Drop for RunningKey {
    fn drop(&mut self) {
        self.all.0.lock_unpoisoned().remove(&self.key);
    }
}

/// The key of a request that runs once, and its place among those that run.
#[derive(Clone, Debug)]
pub(crate) struct OnceKey {
    pub(crate) seen: SeenId,
    _running: Arc<RunningKey>,
}

/// A batch that is applied once for each key.
pub(crate) struct OnceBatch {
    batch: StoreBatch,
    once: Option<OnceKey>,
}

/// The outcome of an [`OnceBatch`].
pub(crate) struct OnceOutcome {
    /// The reply, which is that of the first request with the key.
    pub(crate) reply: RestReply,
    /// The outcome of the first change. `None` if the request was repeated, which changes nothing.
    pub(crate) first: Option<ChangeOutcome>,
}

impl OnceBatch {
    pub(crate) fn new(batch: StoreBatch, once: Option<OnceKey>) -> Self {
        OnceBatch { batch, once }
    }

    /// Returns the reply to the first request with the key, if there was one with the same content.
    pub(crate) fn repeated(&self, store: &dyn Store) -> duologue_store::Result<Option<RestReply>> {
        repeated(store, self.once.as_ref(), self.batch.time)
    }

    /// Applies the batch and remembers the reply. `other` returns the reply for an outcome of the first change that `reply`
    /// does not fit.
    pub(crate) fn apply(
        mut self,
        store: &dyn Store,
        reply: RestReply,
        other: impl FnOnce(ChangeOutcome) -> duologue_store::Result<Option<RestReply>>,
    ) -> duologue_store::Result<OnceOutcome> {
        let time = self.batch.time;
        // The key runs until the end of this function, so that no other request sees the reply that does not fit.
        let once = self.once.take();
        if let Some(OnceKey { seen, .. }) = &once {
            let seen = seen.clone().response(JsonText::of(&reply)?);
            self.batch.changes.insert(0, StoreChange::Remember(seen));
        }
        let first = match store.apply(self.batch)? {
            BatchOutcome::Applied(outcomes) => outcomes.get(usize::from(once.is_some())).copied(),
            BatchOutcome::Repeated(seen) => {
                let reply = seen.response.unwrap_or_default().parse()?;
                return Ok(OnceOutcome { reply, first: None });
            }
            // All outcomes of this version are above.
            _ => None,
        };
        let Some(reply_of_outcome) = first.map(other).transpose()?.flatten() else {
            return Ok(OnceOutcome { reply, first });
        };
        if let Some(OnceKey { seen, .. }) = once {
            let response = JsonText::of(&reply_of_outcome)?;
            let change = StoreChange::SetResponse { key: seen.key, response };
            store.apply(StoreBatch::new(time).with(change))?;
        }
        Ok(OnceOutcome { reply: reply_of_outcome, first })
    }
}

/// Returns the reply to the first request with a key, if there was one with the same content.
pub(crate) fn repeated(
    store: &dyn Store,
    once: Option<&OnceKey>,
    time: StoreTime,
) -> duologue_store::Result<Option<RestReply>> {
    let Some(OnceKey { seen, .. }) = once else { return Ok(None) };
    let known = store.remembered(&seen.key, time)?.filter(|known| known.digest == seen.digest);
    known.and_then(|known| known.response).map(|response| response.parse()).transpose()
}

/// Refuses a key that a request with another content has used. The store does so too, behind what a request has done elsewhere.
pub(crate) fn require_unused(
    store: &dyn Store,
    once: Option<&OnceKey>,
    time: StoreTime,
) -> duologue_store::Result<()> {
    let Some(OnceKey { seen, .. }) = once else { return Ok(()) };
    match store.remembered(&seen.key, time)? {
        Some(known) if known.digest != seen.digest => {
            Err(duologue_store::Error::KeyReused { key: seen.key.key.clone() })
        }
        _ => Ok(()),
    }
}

/// A response of JSON that can be remembered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RestReply {
    status: u16,
    #[serde(default)]
    location: Option<String>,
    body: JsonText,
}

impl RestReply {
    pub(crate) fn new(status: StatusCode, body: &impl Serialize) -> Result<Self, Refusal> {
        Ok(RestReply::kept(status, body)?)
    }

    /// Creates a reply in a job of the store.
    pub(crate) fn kept(status: StatusCode, body: &impl Serialize) -> duologue_store::Result<Self> {
        Ok(RestReply { status: status.as_u16(), location: None, body: JsonText::of(body)? })
    }

    pub(crate) fn ok(body: &impl Serialize) -> Result<Self, Refusal> {
        RestReply::new(StatusCode::OK, body)
    }

    /// Sets the path of what was created, from its segments.
    pub(crate) fn at(mut self, segments: &[&str]) -> Self {
        self.location = Some(path_of(segments));
        self
    }

    /// Returns the body.
    pub(crate) fn body(&self) -> &JsonText {
        &self.body
    }

    /// Returns the bytes of the body.
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from(self.body.into_string())
    }

    /// Creates the response without its body.
    pub(crate) fn head(&self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::OK);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(location) = self.location.as_ref().and_then(|path| HeaderValue::try_from(path).ok()) {
            headers.insert(LOCATION, location);
        }
        response
    }
}

impl IntoResponse for RestReply {
    fn into_response(self) -> Response {
        let mut response = self.head();
        *response.body_mut() = Body::from(self.into_bytes());
        response
    }
}

/// The parameters of a path.
pub(crate) struct PathOf<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<RestShared>> for PathOf<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, rest: &Arc<RestShared>) -> Result<Self, Refusal> {
        let Path(path) = Path::from_request_parts(parts, rest)
            .await
            .map_err(|rejection| Refusal::invalid(format!("path: {}", rejection.body_text())))?;
        Ok(PathOf(path))
    }
}

/// The parameters of a query.
pub(crate) struct QueryOf<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<RestShared>> for QueryOf<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<RestShared>) -> Result<Self, Refusal> {
        let query = parts.uri.query().unwrap_or_default();
        parse_query(query).map(QueryOf).map_err(|error| Refusal::invalid(format!("query: {error}")))
    }
}

/// A body of JSON.
pub(crate) struct JsonBody<T> {
    pub(crate) value: T,
    pub(crate) bytes: Bytes,
}

impl<T: DeserializeOwned> FromRequest<Arc<RestShared>> for JsonBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, rest: &Arc<RestShared>) -> Result<Self, Refusal> {
        let media_type = media_type(request.headers());
        if !media_type.as_deref().is_some_and(is_json) {
            return Err(not_json(media_type.as_deref()));
        }
        let bytes = read_body(request, rest).await?;
        let JsonObject(value) = parse_json(&bytes)?;
        Ok(JsonBody { value, bytes })
    }
}

/// A body of JSON that may be left out.
pub(crate) struct OptionalBody<T>(pub(crate) T);

impl<T: DeserializeOwned + Default> FromRequest<Arc<RestShared>> for OptionalBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, rest: &Arc<RestShared>) -> Result<Self, Refusal> {
        let media_type = media_type(request.headers());
        let bytes = read_body(request, rest).await?;
        let value = match media_type.as_deref() {
            None if bytes.is_empty() => T::default(),
            Some(media_type) if is_json(media_type) => parse_json::<Option<JsonObject<T>>>(&bytes)?
                .map(|JsonObject(value)| value)
                .unwrap_or_default(),
            other => return Err(not_json(other)),
        };
        Ok(OptionalBody(value))
    }
}

/// A body of any type.
pub(crate) struct AnyBody {
    /// The type with its parameters.
    pub(crate) content_type: String,
    pub(crate) bytes: Bytes,
}

impl FromRequest<Arc<RestShared>> for AnyBody {
    type Rejection = Refusal;

    async fn from_request(request: Request, rest: &Arc<RestShared>) -> Result<Self, Refusal> {
        let unsupported = |why| Refusal::new(RefusalCode::UnsupportedMediaType, why);
        let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.map(str::to_owned).ok_or_else(|| {
            unsupported(
                "the body has no type; send `Content-Type: application/json`, or the type of the content",
            )
        })?;
        match media_type(request.headers()).as_deref() {
            // The default of curl, whose user rather has JSON.
            Some("application/x-www-form-urlencoded") => {
                Err(unsupported("forms are not accepted; send `Content-Type: application/json`"))
            }
            Some(media_type)
                if media_type
                    .split_once('/')
                    .is_some_and(|(kind, sub)| !kind.is_empty() && !sub.is_empty()) =>
            {
                Ok(AnyBody { content_type, bytes: read_body(request, rest).await? })
            }
            _ => Err(unsupported("`Content-Type` is not of the form `type/subtype`")),
        }
    }
}

impl AnyBody {
    /// Returns the type without its parameters, in lower case.
    pub(crate) fn media_type(&self) -> String {
        essence(&self.content_type)
    }
}

async fn read_body(request: Request, rest: &Arc<RestShared>) -> Result<Bytes, Refusal> {
    // A few compressed bytes can be gigabytes.
    let mut encodings = request.headers().get_all(CONTENT_ENCODING).iter();
    if encodings.any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        let why = "compressed bodies are not accepted; send it without `Content-Encoding`";
        return Err(Refusal::new(RefusalCode::UnsupportedMediaType, why));
    }
    let seconds = rest.gateway.config.limits.body_seconds;
    let reading = timeout(Duration::from_secs(seconds), read_bytes(request, rest));
    reading.await.unwrap_or_else(|_| {
        let why = format!("the body did not arrive in {seconds} seconds; raise `limits.body_seconds`");
        Err(Refusal::new(RefusalCode::Timeout, why))
    })
}

async fn read_bytes(request: Request, rest: &Arc<RestShared>) -> Result<Bytes, Refusal> {
    let limit = rest.gateway.config.limits.body_bytes;
    let too_large = || {
        let why = format!("the body is longer than {limit} bytes; raise `limits.body_bytes`");
        Refusal::new(RefusalCode::TooLarge, why)
    };
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: usize| length > limit) {
        return Err(too_large());
    }
    to_bytes(request.into_body(), limit).await.map_err(|error| {
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            if cause.is::<http_body_util::LengthLimitError>() {
                return too_large();
            }
            source = cause.source();
        }
        Refusal::invalid("the body has ended early")
    })
}

/// The most arrays and objects inside each other. It is the limit of the parser, which does not apply it to values that
/// are kept as text.
const DEPTH: usize = 127;

/// Returns true if a text has more arrays and objects inside each other than [`DEPTH`].
fn is_too_deep(bytes: &[u8]) -> bool {
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'[' | b'{' if !is_text => depth += 1,
            b']' | b'}' if !is_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH {
            return true;
        }
    }
    false
}

/// Parses JSON. An error has its place.
pub(crate) fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    if is_too_deep(bytes) {
        return Err(Refusal::invalid(format!(
            "body: more than {DEPTH} arrays and objects are inside each other"
        )));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let place = known_path(error.path()).unwrap_or_else(|| "body".to_owned());
        Refusal::invalid(format!("{place}: {}", error.inner()))
    })?;
    deserializer.end().map_err(|error| Refusal::invalid(format!("body: {error}")))?;
    Ok(value)
}

/// Returns the place of an error in a text. In one that cannot be parsed the member is not always known, and its parent
/// counts. `None` is the whole text.
pub(crate) fn known_path(path: &serde_path_to_error::Path) -> Option<String> {
    let path = path.to_string();
    // An unknown member is shown as `?`, and the whole as `.`.
    let known = path.strip_suffix('?').unwrap_or(&path).trim_end_matches('.');
    (!known.is_empty()).then(|| known.to_owned())
}

fn media_type(headers: &HeaderMap) -> Option<String> {
    Some(essence(headers.get(CONTENT_TYPE)?.to_str().ok()?))
}

/// Returns a type without its parameters, in lower case.
pub(crate) fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

pub(crate) fn is_json(media_type: &str) -> bool {
    media_type == "application/json"
}

fn not_json(media_type: Option<&str>) -> Refusal {
    let given = media_type.map_or_else(|| "no type".to_owned(), |given| format!("the type {given:?}"));
    let why = format!("the body has {given}; send `Content-Type: application/json`");
    Refusal::new(RefusalCode::UnsupportedMediaType, why)
}
