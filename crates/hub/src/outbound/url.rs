//! The addresses of requests as text.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hyper::Uri;

use crate::outbound::OutboundError;

/// The most bytes of a name, and of one of its labels.
const NAME_BYTES: usize = 253;
const LABEL_BYTES: usize = 63;

/// An `http` or `https` address that came from outside, in a form that leaves nothing to interpretation.
///
/// It has no credentials and no fragment. Its host is a name of ASCII alphanumerics, `-` and `_`, or an IP address in
/// its usual form. `2130706433`, `127.1`, `0x7f.0.0.1`, a name with a trailing dot and an address with a zone are
/// refused, since programs read them in different ways.
///
/// `Display` shows scheme, host and port: the rest of an address may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct OutboundUrl {
    pub(crate) is_secure: bool,
    pub(crate) host: OutboundHost,
    pub(crate) port: u16,
    /// Begins with a slash.
    pub(crate) path: String,
}

/// The host of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OutboundHost {
    Name(String),
    Address(IpAddr),
}

impl fmt::Display for OutboundHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutboundHost::Name(name) => formatter.write_str(name),
            OutboundHost::Address(IpAddr::V4(address)) => write!(formatter, "{address}"),
            OutboundHost::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
        }
    }
}

impl fmt::Display for OutboundUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(formatter, "{scheme}://{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for OutboundUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "OutboundUrl({self})")
    }
}

impl OutboundUrl {
    /// Reads an address of at most `limit` bytes
    /// ([`OutboundSettings::url_bytes`](crate::OutboundSettings::url_bytes)). No name is resolved.
    ///
    /// # Errors
    ///
    /// [`OutboundError::Url`] with the reason. It does not show the address.
    pub fn parse(text: &str, limit: usize) -> Result<Self, OutboundError> {
        let invalid = |reason: &str| OutboundError::Url { reason: reason.to_owned() };
        if text.len() > limit {
            let reason = format!(
                "it has {} bytes, and the limit is {limit} (`OutboundSettings::url_bytes`)",
                text.len()
            );
            return Err(OutboundError::Url { reason });
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(invalid(
                "it has spaces, control characters or characters beyond ASCII; \
                 write names as `xn--…` and other characters as `%…`",
            ));
        }
        if text.contains(['\\', '#']) {
            return Err(invalid("it has a backslash or a fragment"));
        }
        let uri: Uri = text.parse().map_err(|_| invalid("it cannot be parsed"))?;
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(invalid("it has to begin with http:// or https://")),
        };
        if is_secure && !cfg!(feature = "tls") {
            return Err(invalid("this program was built without TLS (feature `tls` of duologue-hub)"));
        }
        let authority = uri.authority().ok_or_else(|| invalid("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(invalid("it has a user or a password; use a path or a query that cannot be guessed"));
        }
        let host = host(authority.host()).map_err(invalid)?;
        let port = match authority.as_str().strip_prefix(authority.host()) {
            Some("") => {
                if is_secure {
                    443
                } else {
                    80
                }
            }
            // Digits alone: a sign or an empty port is not read by every program.
            Some(rest) => match rest.strip_prefix(':').filter(|port| is_digits(port)).map(str::parse) {
                Some(Ok(port)) => port,
                _ => return Err(invalid("its port is not a number up to 65535")),
            },
            None => return Err(invalid("its host cannot be read")),
        };
        if matches!(port, 0..=1023) && !matches!(port, 80 | 443) {
            return Err(invalid("its port belongs to another service; use 80, 443 or a port from 1024 on"));
        }
        let path = match uri.path_and_query().map_or("/", |path| path.as_str()) {
            path if path.starts_with('/') => path.to_owned(),
            path => format!("/{path}"),
        };
        Ok(OutboundUrl { is_secure, host, port, path })
    }

    /// Returns the host and the port, to which limits apply.
    #[must_use]
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns the value of the header `Host`, without a port that the scheme implies.
    pub(crate) fn host_header(&self) -> String {
        let usual = if self.is_secure { 443 } else { 80 };
        if self.port == usual { self.host.to_string() } else { self.authority() }
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn host(text: &str) -> Result<OutboundHost, &'static str> {
    if let Some(address) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        let address: Ipv6Addr = address.parse().map_err(|_| "its IPv6 address is invalid or has a zone")?;
        return Ok(OutboundHost::Address(address.into()));
    }
    let labels = || text.split('.');
    let is_name = text.len() <= NAME_BYTES
        && labels().all(|label| {
            (1..=LABEL_BYTES).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        });
    if !is_name {
        return Err("its host is not a name of letters, digits, `-` and `_`, without a dot at its end");
    }
    // A name that ends with a number is an address for `inet_aton`, in octal, decimal or hexadecimal parts.
    let last = labels().next_back().unwrap_or_default().to_ascii_lowercase();
    if is_digits(&last) || last.starts_with("0x") {
        let address: Ipv4Addr =
            text.parse().map_err(|_| "its IPv4 address does not have four decimal parts")?;
        return Ok(OutboundHost::Address(address.into()));
    }
    Ok(OutboundHost::Name(text.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(String, String), OutboundError> {
        OutboundUrl::parse(text, 2048).map(|url| (url.to_string(), url.path))
    }

    #[test]
    fn usual_addresses_are_read() {
        for (text, shown, path) in [
            ("http://example.com", "http://example.com:80", "/"),
            ("http://Example.COM:8080/a/b?c=d&e", "http://example.com:8080", "/a/b?c=d&e"),
            ("http://example.com?x", "http://example.com:80", "/?x"),
            ("http://xn--bcher-kva.example/%C3%BC", "http://xn--bcher-kva.example:80", "/%C3%BC"),
            ("http://1.2.3.4/", "http://1.2.3.4:80", "/"),
            ("http://[2606:4700::1111]:9000/", "http://[2606:4700::1111]:9000", "/"),
            ("http://my_host:65535/", "http://my_host:65535", "/"),
        ] {
            assert_eq!(read(text).unwrap(), (shown.to_owned(), path.to_owned()), "{text}");
        }
        let url = |text| OutboundUrl::parse(text, 2048).unwrap().host_header();
        assert_eq!(url("http://example.com:80/"), "example.com");
        assert_eq!(url("http://example.com:443/"), "example.com:443");
        assert_eq!(read("https://example.com").is_ok(), cfg!(feature = "tls"));
    }

    #[test]
    fn forms_that_programs_read_differently_are_refused() {
        for text in [
            "",
            "example.com",
            "//example.com/",
            "/path",
            "*",
            "ftp://example.com/",
            "file:///etc/passwd",
            "gopher://example.com/",
            "ws://example.com/",
            "http://",
            "http:///path",
            "http://user@example.com/",
            "http://user:secret@example.com/",
            "http://example.com@127.0.0.1/",
            "http://2130706433/",
            "http://127.1/",
            "http://0x7f000001/",
            "http://0x7f.0.0.1/",
            "http://0177.0.0.1/",
            "http://127.0.0.01/",
            "http://127.0.0.1./",
            "http://1.2.3.4.5/",
            "http://example.com./",
            "http://example..com/",
            "http://.example.com/",
            "http://-a.example/",
            "http://ex%61mple.com/",
            "http://bücher.example/",
            "http://127。0。0。1/",
            "http://exa mple.com/",
            "http://example.com\\@127.0.0.1/",
            "http://example.com#@127.0.0.1/",
            "http://example.com/a\r\nX: y",
            "http://[fe80::1%25eth0]/",
            "http://[::1/",
            "http://[v1.x]/",
            "http://example.com:0/",
            "http://example.com:22/",
            "http://example.com:25/",
            "http://example.com:/",
            "http://example.com:+80/",
            "http://example.com:65536/",
            "http://example.com:80:80/",
        ] {
            let error = read(text).expect_err(text);
            assert!(matches!(error, OutboundError::Url { .. }), "{text}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        assert!(read(&format!("http://{}.example/", "a".repeat(64))).is_err());
        let of_length = |bytes: usize| format!("{:a<bytes$}", "http://example.com/");
        assert!(read(&of_length(2048)).is_ok());
        assert!(read(&of_length(2049)).unwrap_err().to_string().contains("url_bytes"));
    }

    #[test]
    fn paths_are_not_shown() {
        let url = OutboundUrl::parse("http://example.com/secret?token=1", 2048).unwrap();
        assert!(!format!("{url} {url:?}").contains("secret"));
    }
}
