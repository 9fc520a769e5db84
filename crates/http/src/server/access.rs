//! Checks where a request comes from: the headers `Host`, `Origin` and `Authorization`.

use std::net::IpAddr;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode};

use crate::server::options::{AllowedHosts, ServerOptions};

/// Returns the status and the reason for which a request is refused.
pub(crate) fn refusal(headers: &HeaderMap, options: &ServerOptions) -> Option<(StatusCode, String)> {
    if let Some(reason) = foreign(headers, options) {
        return Some((StatusCode::FORBIDDEN, reason));
    }
    let token = options.token.as_ref()?;
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let given = match (given.next(), given.next()) {
        (Some(value), None) => bearer_token(value.as_bytes()),
        _ => None,
    };
    let reason = "send the token of the server once: Authorization: Bearer TOKEN";
    (!given.is_some_and(|given| token.is(given))).then(|| (StatusCode::UNAUTHORIZED, reason.to_owned()))
}

/// Returns the token of a header `Authorization`. The name of the scheme has no case.
#[must_use]
pub fn bearer_token(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

impl ServerOptions {
    /// Returns the reason for which a request is refused because of its headers `Host` or `Origin`. It is for a program
    /// that serves other paths beside an endpoint.
    #[must_use]
    pub fn foreign_request(&self, headers: &HeaderMap) -> Option<String> {
        foreign(headers, self)
    }
}

/// Returns the reason for which a request is refused because of its `Host` or `Origin`.
fn foreign(headers: &HeaderMap, options: &ServerOptions) -> Option<String> {
    if !is_host_allowed(headers, &options.hosts) {
        let host = headers.get(HOST).map_or("".into(), |host| String::from_utf8_lossy(host.as_bytes()));
        return Some(format!("host {host:?} is not allowed (`ServerOptions::hosts`)"));
    }
    let origin = headers.get(ORIGIN)?;
    let is_allowed = origin.to_str().is_ok_and(|origin| {
        options.origins.iter().any(|allowed| allowed.trim_end_matches('/').eq_ignore_ascii_case(origin))
    });
    let origin = String::from_utf8_lossy(origin.as_bytes());
    (!is_allowed).then(|| format!("origin {origin:?} is not allowed (`ServerOptions::origins`)"))
}

fn is_host_allowed(headers: &HeaderMap, hosts: &AllowedHosts) -> bool {
    let names = match hosts {
        AllowedHosts::Any => return true,
        AllowedHosts::Loopback => &[][..],
        AllowedHosts::Names(names) => names,
    };
    let mut given = headers.get_all(HOST).iter();
    let (Some(host), None) = (given.next(), given.next()) else { return false };
    let Some(authority) = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()) else {
        return false;
    };
    // No program writes a user into the header.
    if authority.as_str().contains('@') {
        return false;
    }
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.is_loopback())
        || names.iter().any(|name| name.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_compared_whole() {
        let options = ServerOptions { token: Some("a token".into()), ..Default::default() };
        for (given, is_right) in [
            (None, false),
            (Some("Bearer a token"), true),
            (Some("bearer a token"), true),
            (Some("BEARER a token"), true),
            (Some("Bearer A token"), false),
            (Some("Bearer a toker"), false),
            (Some("Bearer a toke"), false),
            (Some("Bearer a token "), false),
            (Some("Bearer "), false),
            (Some("a token"), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "localhost".parse().expect("a value"));
            headers.extend(given.map(|given| (AUTHORIZATION, given.parse().expect("a value"))));
            let status = refusal(&headers, &options).map(|(status, _)| status);
            assert_eq!(status, (!is_right).then_some(StatusCode::UNAUTHORIZED), "{given:?}");
        }
    }

    #[test]
    fn two_headers_with_a_token_are_refused() {
        let options = ServerOptions { token: Some("a token".into()), ..Default::default() };
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "localhost".parse().expect("a value"));
        for refused in [false, true] {
            headers.append(AUTHORIZATION, "Bearer a token".parse().expect("a value"));
            assert_eq!(refusal(&headers, &options).is_some(), refused);
        }
    }

    fn is_refused(host: &str, origin: Option<&str>, options: &ServerOptions) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().expect("a value"));
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().expect("a value"));
        }
        refusal(&headers, options).is_some()
    }

    #[test]
    fn only_loopback_names_are_hosts_by_default() {
        let options = ServerOptions::default();
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:8931", "127.1.2.3", "[::1]:80"] {
            assert!(!is_refused(host, None, &options), "{host}");
        }
        for host in [
            "example.com",
            "evil@localhost",
            "a:b@127.0.0.1",
            "localhost.example.com",
            "127.0.0.1.example.com:80",
            "10.0.0.1",
            "",
            "a b",
        ] {
            assert!(is_refused(host, None, &options), "{host}");
        }
        assert!(refusal(&HeaderMap::new(), &options).is_some());
        let named =
            ServerOptions { hosts: AllowedHosts::Names(vec!["example.com".into()]), ..options.clone() };
        assert!(!is_refused("Example.com:443", None, &named) && is_refused("example.org", None, &named));
        let any = ServerOptions { hosts: AllowedHosts::Any, ..options };
        assert!(refusal(&HeaderMap::new(), &any).is_none());
    }

    #[test]
    fn an_origin_has_to_be_listed() {
        let options =
            ServerOptions { origins: vec!["https://example.com/".into()], ..ServerOptions::default() };
        for (origin, refused) in [
            (None, false),
            (Some("https://example.com"), false),
            (Some("https://example.com:444"), true),
            (Some("http://example.com"), true),
            (Some("http://localhost"), true),
            (Some("null"), true),
        ] {
            assert_eq!(is_refused("localhost", origin, &options), refused, "{origin:?}");
        }
    }
}
