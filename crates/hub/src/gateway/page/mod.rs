//! The page of the operator: its files, the login by a form, and requests that a cookie authenticates.
//!
//! The page reads and changes everything through the REST routes. A login has two secrets. The cookie is one that
//! scripts cannot read. The token is kept by the page and sent as a header with every request for data. Cookies are
//! shared by all ports of a machine, so the cookie alone opens the files of the page and no data.

mod logins;
mod view_module;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, LOCATION, ORIGIN, REFERRER_POLICY,
    SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use duologue_http::ServerOptions;
use duologue_rpc::SecretText;
use duologue_transcript::view::VIEW_STYLE;
use percent_encoding::percent_decode_str;
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::audit;
use crate::gateway::access::{Authenticated, Principal};
use crate::gateway::page::logins::PageLogins;
use crate::gateway::page::view_module::view_module;
use crate::gateway::rest::essence;
use crate::gateway::{API_KEY, GatewayShared, Refusal, RefusalCode};

/// The header with the token of a login.
const PAGE_TOKEN: HeaderName = HeaderName::from_static("x-duologue-page");
/// The longest body of a login, in bytes.
const LOGIN_BYTES: usize = 16 * 1024;
/// Nothing but the files and routes of this server, and no script or style within a document.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// A file of the page.
struct PageFile {
    path: &'static str,
    content_type: &'static str,
    content: fn() -> String,
    /// True if it is served without a login.
    is_open: bool,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const DOCUMENT: &str = "text/html; charset=utf-8";

impl PageFile {
    const fn new(path: &'static str, content_type: &'static str, content: fn() -> String) -> Self {
        PageFile { path, content_type, content, is_open: false }
    }

    /// Makes it a file that the login needs.
    const fn open(self) -> Self {
        PageFile { is_open: true, ..self }
    }
}

/// The files beside the page itself.
const FILES: [PageFile; 8] = [
    PageFile::new("/login", DOCUMENT, || include_str!("assets/login.html").to_owned()).open(),
    PageFile::new("/page/page.css", STYLE, || [VIEW_STYLE, include_str!("assets/page.css")].concat()).open(),
    PageFile::new("/page/login.js", SCRIPT, || include_str!("assets/login.js").to_owned()).open(),
    PageFile::new("/page/api.js", SCRIPT, || include_str!("assets/api.js").to_owned()).open(),
    PageFile::new("/page/app.js", SCRIPT, || include_str!("assets/app.js").to_owned()),
    PageFile::new("/page/list.js", SCRIPT, || include_str!("assets/list.js").to_owned()),
    PageFile::new("/page/sections.js", SCRIPT, || include_str!("assets/sections.js").to_owned()),
    PageFile::new("/page/view.js", SCRIPT, || view_module().to_owned()),
];

/// The document of the page, for a principal alone.
const PAGE: &str = include_str!("assets/page.html");

/// The picture that browsers request. There is none.
const ICON: &str = "/favicon.ico";
/// The paths with which the page itself is loaded and a login begins and ends. They have no data of the gateway.
const OWN_PATHS: [&str; 2] = ["/", "/login"];

/// The requests of the page and their checks.
pub(crate) struct PageChecks {
    logins: PageLogins,
    is_encrypted: bool,
}

/// The sender of a request that has a cookie of the page.
pub(crate) struct PageSender {
    /// The value of the cookie.
    cookie: String,
}

impl PageChecks {
    pub(crate) fn new(gateway: &GatewayShared, options: &ServerOptions) -> Self {
        #[cfg(feature = "tls")]
        let is_encrypted = options.tls.is_some();
        #[cfg(not(feature = "tls"))]
        let is_encrypted = {
            _ = options;
            false
        };
        PageChecks { logins: PageLogins::new(&gateway.config.limits), is_encrypted }
    }

    /// Returns true for a request that a document of this server has sent to its own address. It may have an `Origin`,
    /// which is foreign for other requests.
    pub(crate) fn is_own_request(&self, request: &Request, options: &ServerOptions) -> bool {
        let headers = request.headers();
        let is_of_page = PageChecks::is_open(request.uri().path()) || self.sender(headers).is_some();
        let (Some(host), Some(origin)) = (headers.get(HOST), headers.get(ORIGIN)) else { return false };
        let scheme: &[u8] = if self.is_encrypted { b"https://" } else { b"http://" };
        let is_own = origin
            .as_bytes()
            .strip_prefix(scheme)
            .is_some_and(|own| own.eq_ignore_ascii_case(host.as_bytes()));
        let mut without_origin = headers.clone();
        without_origin.remove(ORIGIN);
        let is_single = headers.get_all(ORIGIN).iter().count() == 1;
        is_of_page && is_own && is_single && options.foreign_request(&without_origin).is_none()
    }

    /// Returns true for a path that needs no principal.
    pub(crate) fn is_open(path: &str) -> bool {
        path == ICON || FILES.iter().any(|file| file.path == path && file.is_open)
    }

    /// Returns the sender of a request that has the cookie and no key.
    pub(crate) fn sender(&self, headers: &HeaderMap) -> Option<PageSender> {
        if headers.contains_key(API_KEY) || headers.contains_key(axum::http::header::AUTHORIZATION) {
            return None;
        }
        let lines = headers.get_all(COOKIE).into_iter().filter_map(|line| line.to_str().ok());
        let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let cookie = pairs.find(|(name, _)| *name == self.cookie_name())?.1.to_owned();
        Some(PageSender { cookie })
    }

    /// Returns the principal of a request with a cookie. Every request for data needs the token of the login too.
    pub(crate) fn authenticate(&self, sender: &PageSender, request: &Request) -> Result<Principal, Refusal> {
        let login = self.logins.find(&sender.cookie).ok_or_else(|| {
            Refusal::new(RefusalCode::Unauthenticated, "the login of the page has ended; log in again")
        })?;
        let path = request.uri().path();
        let is_file = OWN_PATHS.contains(&path) || FILES.iter().any(|file| file.path == path);
        let reads_file = is_file && [Method::GET, Method::HEAD].contains(request.method());
        let token = request.headers().get(PAGE_TOKEN);
        if reads_file || token.is_some_and(|token| login.is_token(token.as_bytes())) {
            return Ok(login.principal);
        }
        let why = "a request with the cookie of the page needs its token: `X-Duologue-Page: TOKEN`";
        Err(Refusal::new(RefusalCode::NotAuthorized, why))
    }

    /// Returns the name of the cookie. A browser accepts the prefix for this host and path alone.
    fn cookie_name(&self) -> &'static str {
        if self.is_encrypted { "__Host-duologue_page" } else { "duologue_page" }
    }

    /// Returns the header that sets the cookie. An empty value removes it.
    fn set_cookie(&self, value: &str, lasts: Duration) -> String {
        let (name, secure) = (self.cookie_name(), if self.is_encrypted { "; Secure" } else { "" });
        let seconds = lasts.as_secs();
        format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}")
    }
}

/// The state of the routes.
struct PageShared {
    gateway: Arc<GatewayShared>,
    checks: Arc<PageChecks>,
    /// The key of the local user.
    token: Option<SecretText>,
}

/// Creates the router of the page.
pub(crate) fn router(
    gateway: &Arc<GatewayShared>,
    checks: &Arc<PageChecks>,
    token: Option<SecretText>,
) -> Router {
    let shared = PageShared { gateway: gateway.clone(), checks: checks.clone(), token };
    let mut router = Router::new().route("/", get(show_page));
    for file in FILES {
        router = router
            .route(file.path, get(move || async move { document(file.content_type, (file.content)()) }));
    }
    router
        .route(ICON, get(|| async { StatusCode::NO_CONTENT }))
        .route("/login", post(log_in))
        .route("/logout", post(log_out))
        .route("/page/login", get(show_login))
        .with_state(Arc::new(shared))
}

/// Returns a file of the page with the headers that keep other code away from it.
fn document(content_type: &'static str, content: impl Into<Body>) -> Response {
    let mut response = Response::new(content.into());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    protect(headers);
    response
}

/// Adds the headers that every response to the page has.
pub(crate) fn protect(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Without a referrer the origin of a form would be `null`.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
}

/// Returns the page, or the way to the login without a principal.
async fn show_page(request: Request) -> Response {
    if request.extensions().get::<Principal>().is_some() {
        return document(DOCUMENT, PAGE);
    }
    let mut response = document(DOCUMENT, "");
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/login"));
    response
}

/// Opens a login for the key of a form.
async fn log_in(State(page): State<Arc<PageShared>>, request: Request) -> Result<Response, Refusal> {
    let key = form_key(&page.gateway, request).await?;
    let mut headers = HeaderMap::new();
    let given = HeaderValue::try_from(key.trim()).ok().filter(|key| !key.is_empty());
    headers.extend(given.map(|key| (HeaderName::from_static(API_KEY), key)));
    let Authenticated { principal, expires } = page.gateway.authenticate(&headers, page.token.as_ref())?;
    let lifetime = page.checks.logins.lifetime();
    // A login ends with the key or the token that it was opened with.
    let left = expires.map(|expires| expires.saturating_sub(page.gateway.time().wall));
    let lasts = left.map_or(lifetime, |left| lifetime.min(Duration::from_millis(left)));
    let id = principal.id.clone();
    let secrets = page.checks.logins.open(principal, lasts)?;
    audit::logged_in(&id);
    let body = json!({"principal": &*id, "token": secrets.token, "expiresIn": lasts.as_secs()});
    let mut response = document("application/json", body.to_string());
    if let Ok(cookie) = HeaderValue::try_from(page.checks.set_cookie(&secrets.cookie, lasts)) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    Ok(response)
}

/// Reads the field `key` of a form.
async fn form_key(gateway: &GatewayShared, request: Request) -> Result<String, Refusal> {
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if content_type.map(essence).as_deref() != Some("application/x-www-form-urlencoded") {
        let why = "a login is a form; send `Content-Type: application/x-www-form-urlencoded`";
        return Err(Refusal::new(RefusalCode::UnsupportedMediaType, why));
    }
    let seconds = gateway.config.limits.body_seconds;
    let body = timeout(Duration::from_secs(seconds), to_bytes(request.into_body(), LOGIN_BYTES)).await;
    let late = format!("the body did not arrive in {seconds} seconds; raise `limits.body_seconds`");
    let body = body.map_err(|_| Refusal::new(RefusalCode::Timeout, late))?;
    let too_large = format!("the body of a login is longer than {LOGIN_BYTES} bytes, or has ended early");
    let body = body.map_err(|_| Refusal::new(RefusalCode::TooLarge, too_large))?;
    let text = std::str::from_utf8(&body).unwrap_or_default();
    let mut fields = text.split('&').filter_map(|field| field.split_once('='));
    let key = fields.find(|(name, _)| *name == "key").map(|(_, value)| value.replace('+', " "));
    let missing = || Refusal::invalid("the form has no field `key`");
    Ok(percent_decode_str(&key.ok_or_else(missing)?).decode_utf8_lossy().into_owned())
}

/// Ends the login of a request.
async fn log_out(State(page): State<Arc<PageShared>>, request: Request) -> Response {
    if let Some(sender) = page.checks.sender(request.headers()) {
        page.checks.logins.close(&sender.cookie);
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Ok(cookie) = HeaderValue::try_from(page.checks.set_cookie("", Duration::ZERO)) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    protect(response.headers_mut());
    response
}

/// Returns the principal of a login and the seconds for which it lasts.
async fn show_login(State(page): State<Arc<PageShared>>, request: Request) -> Result<Response, Refusal> {
    let sender = page.checks.sender(request.headers());
    let login = sender.and_then(|sender| page.checks.logins.find(&sender.cookie));
    let login = login.ok_or_else(|| Refusal::not_found("login"))?;
    let lasts = login.expires.saturating_duration_since(Instant::now()).as_secs();
    let body = json!({"principal": &*login.principal.id, "expiresIn": lasts});
    Ok(document("application/json", body.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::config::GatewayLimits;

    fn checks(is_encrypted: bool) -> PageChecks {
        PageChecks { logins: PageLogins::new(&GatewayLimits::default()), is_encrypted }
    }

    #[test]
    fn an_encrypted_cookie_is_for_this_host_and_never_sent_in_the_clear() {
        let cookie = checks(true).set_cookie("secret", Duration::from_secs(60));
        assert!(cookie.starts_with("__Host-duologue_page=secret; Path=/; HttpOnly; SameSite=Strict; "));
        assert!(cookie.ends_with("; Secure"), "{cookie}");
        assert!(!checks(false).set_cookie("secret", Duration::ZERO).contains("Secure"));
    }

    #[test]
    fn the_own_origin_has_the_scheme_of_the_server() {
        let is_own = |is_encrypted: bool, path: &str, origin: &str, cookie: &str| {
            let request = Request::builder().uri(path).header(HOST, "localhost:1").header(ORIGIN, origin);
            let request = request.header(COOKIE, cookie).body(Body::empty()).unwrap();
            checks(is_encrypted).is_own_request(&request, &ServerOptions::default())
        };
        assert!(is_own(false, "/login", "http://localhost:1", "a=b"));
        assert!(is_own(true, "/login", "https://localhost:1", "a=b"));
        assert!(!is_own(true, "/login", "http://localhost:1", "a=b"));
        assert!(!is_own(false, "/login", "http://localhost:2", "a=b"));
        assert!(!is_own(false, "/agents", "http://localhost:1", "a=b"), "no cookie of the page");
        assert!(is_own(false, "/agents", "http://localhost:1", "duologue_page=c"));
        assert!(!is_own(true, "/agents", "https://localhost:1", "duologue_page=c"), "a cookie in the clear");
        assert!(is_own(true, "/agents", "https://localhost:1", "__Host-duologue_page=c"));
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let sender = |cookie: &'static str| {
            let headers = [(COOKIE, HeaderValue::from_static(cookie))].into_iter().collect();
            checks(false).sender(&headers).map(|sender| sender.cookie)
        };
        assert_eq!(sender("a=b; duologue_page=c; d=e").as_deref(), Some("c"));
        assert_eq!(sender("xduologue_page=c"), None);
        assert_eq!(sender("duologue_page"), None);
        let two: HeaderMap = [(COOKIE, "duologue_page=c"), (HeaderName::from_static(API_KEY), "key")]
            .into_iter()
            .map(|(name, value)| (name, HeaderValue::from_static(value)))
            .collect();
        assert!(checks(false).sender(&two).is_none(), "a key counts more");
    }

    #[test]
    fn the_page_hides_no_characters_that_the_command_shows() {
        let module = view_module();
        assert!(module.contains("function itemView(") && module.contains("\\u{202a}-\\u{202e}"), "{module}");
        assert!(module.trim_end().ends_with("};"));
    }
}
