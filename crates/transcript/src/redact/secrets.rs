//! Removal of secrets from a line, before it is written.

use std::borrow::Cow;
use std::ops::Range;

use duologue_schema::{AuthenticateRequest, Request as _, v2};
use regex::bytes::Regex;
use serde::Deserialize;

use super::json_scan::{
    DecodedString, Edits, JsonVisitor, PathStep, QuotedString, member, outer_member, scan,
};
use super::secret_patterns::{self, SECRET, Secrecy};
use crate::error::{Error, Result};
use crate::terminal_text;

/// The limit of passes over a line. Two passes are nearly always enough.
const ROUNDS: usize = 16;

/// The secrets to remove: keys with a known form, and values with a telling name of a member, variable or header.
/// Such a name covers all values within an object or list. Where a line may contain a secret and is nested too deeply
/// for a message, the deepest object or list is secret as a whole. The environment and headers of MCP servers, the
/// parameters of `authenticate` and `auth/login`, and matches of custom patterns are secret too.
///
/// Each secret becomes `[secret]`; all other bytes stay. Secrets with JSON escapes (`\u0073k-…`) are found, as are
/// those in lines that are not JSON. Ids, hashes, images and possible counts are kept. A secret with neither a
/// known form nor a telling name is not found: add a [`pattern`](Self::pattern).
///
/// ```
/// use duologue_transcript::Secrets;
///
/// let secrets = Secrets::default().pattern(r"ACME-\d+")?;
/// let line = br#"{"headers":[{"name":"Authorization","value":"Bearer abcdef123456"}],"id":"ACME-42"}"#;
/// assert_eq!(
///     secrets.redact(line).as_ref(),
///     br#"{"headers":[{"name":"Authorization","value":"Bearer [secret]"}],"id":"[secret]"}"#,
/// );
/// # duologue_transcript::Result::Ok(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    custom: Vec<Regex>,
}

impl Secrets {
    /// Adds a pattern whose matches are secret: its group `secret`, or the whole match. It is applied to decoded strings
    /// and to each line that is not JSON. After its matches are replaced, it should not match again.
    ///
    /// # Errors
    ///
    /// [`Error::Pattern`] if it is not a regular expression, or matches the empty text.
    pub fn pattern(mut self, pattern: &str) -> Result<Self> {
        let regex = Regex::new(pattern).map_err(|error| Error::pattern(pattern, error))?;
        if regex.is_match(b"") {
            return Err(Error::pattern(pattern, "it matches the empty text"));
        }
        self.custom.push(regex);
        Ok(self)
    }

    /// Removes the secrets from a line. JSON stays valid; a line without secrets is not copied.
    #[must_use]
    pub fn redact<'a>(&self, line: &'a [u8]) -> Cow<'a, [u8]> {
        // The rest can look like a secret once its neighbour is replaced.
        let mut redacted = Cow::Borrowed(line);
        for _ in 0..ROUNDS {
            let Some(next) = self.once(&redacted) else { break };
            redacted = Cow::Owned(next);
        }
        redacted
    }

    /// Removes the secrets from a text, such as a line of stderr.
    #[must_use]
    pub fn redact_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.redact(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(redacted) => Cow::Owned(String::from_utf8_lossy(&redacted).into_owned()),
        }
    }

    /// Removes the secrets from the words of a command. Some are known only by the option before them.
    pub(crate) fn redact_words(&self, words: &[String]) -> Vec<String> {
        let before = std::iter::once("").chain(words.iter().map(String::as_str));
        let clean = |(before, word): (&str, &String)| {
            let secret = takes_secret(before, || false).and_then(|secrecy| secret_part(word, secrecy));
            match secret.and_then(|secret| word.get(..secret.start)) {
                Some(scheme) => format!("{scheme}{SECRET}"),
                None => self.redact_text(word).into_owned(),
            }
        };
        before.zip(words).map(clean).collect()
    }

    /// Returns true if there are custom patterns, which may match anything.
    pub(super) fn has_own(&self) -> bool {
        !self.custom.is_empty()
    }

    fn once(&self, line: &[u8]) -> Option<Vec<u8>> {
        if !self.has_own() && !secret_patterns::suspicious(line) && !terminal_text::is_in(line) {
            return None;
        }
        let mut edits = Edits::default();
        self.search(line, &mut edits);
        (!edits.is_empty()).then(|| edits.apply(line))
    }

    /// Adds replacements of the secrets in a line, JSON or not.
    pub(crate) fn search(&self, line: &[u8], edits: &mut Edits) {
        let json = std::str::from_utf8(line).is_ok_and(|text| {
            let login = is_login(text);
            scan(text, &mut SecretSearch { secrets: self, edits: &mut *edits, open: Vec::new(), login })
        });
        if !json {
            self.find(line, |span| edits.replace(span, SECRET));
        }
    }

    /// Calls `found` with each secret in a decoded string or a text that is not JSON. They may overlap.
    ///
    /// Placeholders of secrets are never searched: a match within one is ignored, and a match that reaches beyond
    /// one covers all of it. So each pass finds less.
    pub(crate) fn find(&self, text: &[u8], mut found: impl FnMut(Range<usize>)) {
        let known: Vec<_> = memchr::memmem::find_iter(text, SECRET).map(|at| at..at + SECRET.len()).collect();
        // The first placeholder that ends after a place. It may start before it.
        let near = |at: usize| known.get(known.partition_point(|known| known.end <= at));
        let around = |at: usize| near(at).filter(|known| known.start < at);
        let mut found = |span: Range<usize>| {
            if near(span.start).is_some_and(|known| known.start <= span.start && span.end <= known.end) {
                return;
            }
            let start = around(span.start).map_or(span.start, |known| known.start);
            let end = around(span.end).map_or(span.end, |known| known.end);
            found(start..end);
        };
        secret_patterns::find(text, &mut found);
        for captures in self.custom.iter().flat_map(|pattern| pattern.captures_iter(text)) {
            if let Some(secret) = captures.name("secret").or_else(|| captures.get(0))
                && !secret.is_empty()
            {
                found(secret.range());
            }
        }
    }

    /// Calls `found` with each placeholder of a streamed text that follows the start of its secret, together with
    /// that start. A recorder writes each piece before it knows the next one, so it leaves the start of a secret.
    /// `starts` are the starts of the pieces.
    pub(crate) fn find_starts(
        &self,
        text: &[u8],
        starts: impl Iterator<Item = usize>,
        mut found: impl FnMut(Range<usize>),
    ) {
        if memchr::memmem::find(text, SECRET.as_bytes()).is_none() {
            return;
        }
        secret_patterns::find_starts(text, &mut found);
        for (before, after) in starts.filter_map(|start| text.split_at_checked(start)) {
            let start = before.len();
            if self.has_own() && after.starts_with(SECRET.as_bytes()) {
                // The start of a secret with a custom pattern has no known form.
                let word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
                let run = before.iter().rev().take_while(|byte| word(byte)).count();
                if run > 0 {
                    found(start - run..start + SECRET.len());
                }
            }
        }
    }
}

/// Returns true for a request to log in: all its params except the method of authentication are secret.
fn is_login(line: &str) -> bool {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        method: Cow<'a, str>,
    }
    serde_json::from_str::<Named<'_>>(line).is_ok_and(|named| {
        matches!(&*named.method, AuthenticateRequest::METHOD | v2::LoginAuthRequest::METHOD)
    })
}

/// Collects the secrets in the values of a line.
struct SecretSearch<'s, 'a> {
    secrets: &'s Secrets,
    edits: &'s mut Edits,
    open: Vec<OpenContainer<'a>>,
    login: bool,
}

/// An open object or array.
#[derive(Default)]
struct OpenContainer<'a> {
    /// True for the variables or headers of an MCP server: all values are secret.
    private: bool,
    /// True for headers.
    headers: bool,
    /// The secrecy that an outer name gives all values in here.
    secrecy: Option<Secrecy>,
    /// The secrecy of the next element, after an option of a command or the name of a header.
    next: Option<Secrecy>,
    /// The secrecy that the name in `{name, value}` gives the value.
    named: Option<Secrecy>,
    /// The value, until its name is known.
    value: Option<DecodedString<'a>>,
}

impl<'a> SecretSearch<'_, 'a> {
    /// Returns the secrecy that a member's name gives its value.
    fn named(&self, frames: &[PathStep<'_>], name: &str) -> Option<Secrecy> {
        if self.login {
            return login_secret(frames, name).then_some(Secrecy::Always);
        }
        let outer = self.open.last().and_then(|open| open.secrecy);
        if outer.is_some() && describes(name) {
            return None;
        }
        let own = match name {
            "auth" if outer_member(frames) == Some("_meta") => Some(Secrecy::Surely),
            _ => self.header_or_other(name),
        };
        own.max(outer)
    }

    /// Returns the secrecy of a name. Tokens and cookies in headers are never parts of a text.
    fn header_or_other(&self, name: &str) -> Option<Secrecy> {
        let secrecy = secret_patterns::names_secret(name);
        let in_headers = self.open.last().is_some_and(|open| open.headers);
        if in_headers { secrecy.max(secrecy.map(|_| Secrecy::Surely)) } else { secrecy }
    }
}

impl<'a> JsonVisitor<'a> for SecretSearch<'_, 'a> {
    fn open(&mut self, frames: &[PathStep<'a>], _: usize) {
        let Some((_, frames)) = frames.split_last() else {
            return self.open.push(OpenContainer::default());
        };
        let open = match member(frames) {
            Some(name) => {
                let headers = matches!(name, "headers" | "httpHeaders" | "http_headers");
                let private = (headers || matches!(name, "env" | "environment")) && of_mcp_server(frames);
                // The schema of a password contains no password.
                let in_schema = outer_member(frames) == Some("properties");
                let secrecy = self.named(frames, name).filter(|_| !in_schema);
                OpenContainer { private, headers, secrecy, ..OpenContainer::default() }
            }
            // An element of a list.
            None => self.open.last().map_or_else(OpenContainer::default, |list| OpenContainer {
                private: list.private,
                headers: list.headers,
                secrecy: list.secrecy.max(list.next),
                ..OpenContainer::default()
            }),
        };
        self.open.push(open);
    }

    fn close(&mut self, _: &[PathStep<'a>], _: usize) {
        let Some(OpenContainer { named: Some(secrecy), value: Some(value), .. }) = self.open.pop() else {
            return;
        };
        if let Some(secret) = secret_part(&value.text, secrecy) {
            self.edits.replace(value.span(secret), SECRET);
        }
    }

    fn name(&mut self, _: &[PathStep<'a>], name: &DecodedString<'a>) {
        self.secrets.find(name.text.as_bytes(), |part| self.edits.replace(name.span(part), SECRET));
    }

    fn string(&mut self, frames: &[PathStep<'a>], string: QuotedString<'a>) {
        let string = string.read();
        let text = string.text.as_ref();
        self.secrets.find(text.as_bytes(), |part| self.edits.replace(string.span(part), SECRET));
        let output = terminal_text::redacted(frames, text, |output, edits| {
            self.secrets.find(output, |part| edits.replace(part, SECRET));
        });
        if let Some(output) = output {
            self.edits.replace(string.whole(), output);
        }
        // JSON within a string has names too. Each level doubles the backslashes, so there are few levels.
        if text.starts_with(['{', '[']) && secret_patterns::suspicious(text.as_bytes()) {
            let mut inner = Edits::default();
            self.secrets.search(text.as_bytes(), &mut inner);
            inner.merged().into_iter().for_each(|(part, with)| self.edits.replace(string.span(part), with));
        }
        let secret = |secrecy| secret_part(text, secrecy).map(|part| string.span(part));
        match frames.last().map(|frame| (frame, frame.member.as_deref())) {
            Some((_, Some(name))) => {
                let secrecy = self.named(frames, name);
                let described = self.header_or_other(text).filter(|_| !text.contains(' '));
                let Some(open) = self.open.last_mut() else { return };
                let is_name = matches!(name, "name" | "key" | "header" | "configId");
                if let Some(secret) = secrecy.and_then(secret) {
                    self.edits.replace(secret, SECRET);
                } else if is_name && !open.private {
                    // Text for users contains spaces.
                    open.named = described;
                } else if open.private && !matches!(name, "name" | "header") {
                    // {"name": "NAME", "value": "…"} or {"NAME": "…"}.
                    if let Some(secret) = secret(Secrecy::Surely) {
                        self.edits.replace(secret, SECRET);
                    }
                } else if name == "value" {
                    open.value = Some(string);
                }
            }
            Some((frame, None)) => {
                let mut next = takes_secret(text, || of_mcp_server(frames));
                if self.open.last().is_some_and(|open| open.headers) && frame.index == 0 {
                    // ["Authorization", "…"]
                    next = self.header_or_other(text);
                }
                // An element of a list in a list: ["NAME", "…"]. Otherwise one of a list of "NAME=…" or "Name: …".
                let is_pair = frames.iter().rev().nth(1).is_some_and(|outer| outer.member.is_none());
                let place = if self.login { login_secret(frames, "") } else { false };
                let Some(open) = self.open.last_mut() else { return };
                let mut secrecy = open.secrecy.max(std::mem::replace(&mut open.next, next));
                if place || (open.private && is_pair && frame.index > 0) {
                    secrecy = Some(Secrecy::Always);
                }
                if let Some(secret) = secrecy.and_then(secret) {
                    self.edits.replace(secret, SECRET);
                } else if open.private
                    && !is_pair
                    && let Some((name, value)) = text.split_once(['=', ':'])
                    && let Some(secret) = secret_part(value, Secrecy::Surely)
                {
                    let start = name.len() + 1;
                    self.edits.replace(string.span(start + secret.start..start + secret.end), SECRET);
                }
            }
            None => {}
        }
    }

    fn scalar(&mut self, frames: &[PathStep<'a>], token: &'a str, span: Range<usize>) {
        if !token.starts_with(|char: char| char == '-' || char.is_ascii_digit()) {
            return;
        }
        let secrecy = match member(frames) {
            Some(name) => self.named(frames, name),
            None if self.login => login_secret(frames, "").then_some(Secrecy::Always),
            None => self.open.last().and_then(|open| open.secrecy.max(open.next)),
        };
        if secrecy == Some(Secrecy::Always) {
            self.edits.replace(span, format!("\"{SECRET}\""));
        }
    }

    fn too_deep(&mut self, span: Range<usize>) {
        self.edits.replace(span, format!("\"{SECRET}\""));
    }
}

/// Returns true within the description of an MCP server.
fn of_mcp_server(frames: &[PathStep<'_>]) -> bool {
    frames.iter().any(|frame| frame.member.as_deref() == Some("mcpServers"))
}

/// Returns true for a member that describes a secret without containing it.
fn describes(name: &str) -> bool {
    const NAMES: &str = "type kind name title label description provider format scheme method methodId \
        algorithm scope scopes source status url uri count";
    NAMES.split(' ').any(|word| word == name)
        || ["expire", "created", "issued", "updated"].iter().any(|start| name.starts_with(start))
}

/// Returns the secret part of a value: all of it except the scheme of a header.
fn secret_part(text: &str, secrecy: Secrecy) -> Option<Range<usize>> {
    let scheme = ["bearer ", "basic ", "token ", "digest ", "apikey "]
        .into_iter()
        .find(|scheme| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    let start = scheme.map_or(0, str::len);
    let value = text.get(start..)?.as_bytes();
    let is_secret = match secrecy {
        Secrecy::Perhaps => secret_patterns::machine_made(value),
        Secrecy::Cookie => secret_patterns::machine_made(value) || secret_patterns::is_cookie(value),
        Secrecy::Surely | Secrecy::Always => secret_patterns::value(value),
    };
    is_secret.then_some(start..text.len())
}

/// Returns true for a secret value in an `authenticate` request: all in `params` except the method.
fn login_secret(frames: &[PathStep<'_>], name: &str) -> bool {
    let in_params = frames.first().and_then(|frame| frame.member.as_deref()) == Some("params");
    in_params && !(frames.len() == 2 && name == "methodId")
}

/// Returns the secrecy that an argument of a command gives the next one.
fn takes_secret(argument: &str, of_mcp_server: impl FnOnce() -> bool) -> Option<Secrecy> {
    match argument {
        "-k" | "-p" | "-t" => of_mcp_server().then_some(Secrecy::Perhaps),
        _ if argument.starts_with("--") && !argument.contains('=') => {
            let secrecy = secret_patterns::names_secret(argument)?;
            // A key may be the path of a file.
            Some(if argument.ends_with("key") { secrecy } else { secrecy.max(Secrecy::Surely) })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redact(line: &str) -> String {
        String::from_utf8(Secrets::default().redact(line.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn a_secret_goes_and_all_else_stays() {
        let check = |line: &str, expect: &str| assert_eq!(redact(line), expect);
        check(r#"{"a" : "sk-abcdefghijklmnop1234" , "b":1.50}"#, r#"{"a" : "[secret]" , "b":1.50}"#);
        check(r#"{"a":"x\n\u0073k-abcdefghijklmnop1234\t"}"#, r#"{"a":"x\n[secret]\t"}"#);
        check(r#"{"a\u0070i_key":"hello"}"#, r#"{"a\u0070i_key":"[secret]"}"#);
        check(r#"{"url":"https:\/\/me:hunter2@host\/x"}"#, r#"{"url":"https:\/\/me:[secret]@host\/x"}"#);
        check(r#"{"Authorization":"Bearer abc"}"#, r#"{"Authorization":"Bearer [secret]"}"#);
        check(
            r#"{"env":[{"name":"CI","value":"yes"},{"name":"DB_PASS","value":"yes"}],"headers":[{"value":"v","name":"X-Api-Key"},{"name":"Accept","value":"all"}]}"#,
            r#"{"env":[{"name":"CI","value":"yes"},{"name":"DB_PASS","value":"[secret]"}],"headers":[{"value":"[secret]","name":"X-Api-Key"},{"name":"Accept","value":"all"}]}"#,
        );
        check(
            r#"{"mcpServers":[{"headers":[{"name":"Accept","value":"all"}],"env":{"A":"b"},"args":["--token","xyzzy","--verbose","yes"]}]}"#,
            r#"{"mcpServers":[{"headers":[{"name":"Accept","value":"[secret]"}],"env":{"A":"[secret]"},"args":["--token","[secret]","--verbose","yes"]}]}"#,
        );
        check(
            r#"{"jsonrpc":"2.0","id":1,"params":{"_meta":{"code":"xyz"},"methodId":"key"},"method":"authenticate"}"#,
            r#"{"jsonrpc":"2.0","id":1,"params":{"_meta":{"code":"[secret]"},"methodId":"key"},"method":"authenticate"}"#,
        );
        check("WARN token=ghp_abcdefghijklmnop0123, retrying", "WARN token=[secret], retrying");
    }

    #[test]
    fn known_by_names_around_it() {
        for line in [
            r#"{"apiKeys":{"openai":"{}"}}"#,
            r#"{"accessToken":{"value":"{}"}}"#,
            r#"{"secrets":{"a":{"b":["{}"]}}}"#,
            r#"{"passwords":["{}"],"n":1}"#,
            r#"{"_meta":{"auth":"{}"}}"#,
            r#"{"_meta":{"auth":{"type":"key","key":"{}"}}}"#,
            r#"{"bearer":"{}"}"#,
            r#"{"DB_PASS":"{}"}"#,
            r#"{"updatedPassword":"{}"}"#,
            r#"{"env":[{"name":"REDIS_PASS","value":"{}"}]}"#,
            r#"{"header":"Authorization","value":"{}"}"#,
            r#"{"headers":[["Cookie","{}"],["Accept","all"]]}"#,
            r#"{"headers":{"Cookie":"{}"}}"#,
            r#"{"mcpServers":[{"env":["FOO={}"]}]}"#,
            r#"{"mcpServers":{"m":{"environment":{"FOO":"{}"}}}}"#,
            r#"{"mcpServers":[{"headers":[["X-Mode","{}"]]}]}"#,
            r#"{"mcpServers":[{"httpHeaders":{"X-Mode":"{}"}}]}"#,
            r#"{"mcpServers":[{"http_headers":{"X-Mode":"{}"}}]}"#,
            r#"{"mcpServers":[{"env":{"key":"{}"}}]}"#,
            r#"{"passwords":[["{}"],[["{}"]]]}"#,
            r#"{"args":["--password",["{}"]]}"#,
            r#"{"method":"authenticate","params":["{}"]}"#,
            r#"{"method":"auth/login","params":{"methodId":"m","_meta":{"code":"{}"}}}"#,
            r#"{"method":"auth\/login","params":{"methodId":"m","_meta":{"code":"{}"}}}"#,
            r#"{"method":"authenticate","params":{"a":{"methodId":"{}"}}}"#,
            r#"{"method":"authenticate","params":{"properties":{"x":["{}"]}}}"#,
        ] {
            let expect = line.replace("{}", SECRET);
            assert_eq!(redact(&line.replace("{}", "hunter two")), expect);
        }
        for line in [
            r#"{"tokens":["{}","the"]}"#,
            r#"{"openaiKey":"{}"}"#,
            r#"{"mcpServers":[{"args":["-k","{}","-v"]}]}"#,
            r#"{"headers":[["Authorization","{}"]]}"#,
        ] {
            assert_eq!(redact(&line.replace("{}", "s3cr3tvalue123")), line.replace("{}", SECRET));
        }
        // These names and options say nothing about the value.
        for line in [
            r#"{"params":{"auth":"{}"}}"#,
            r#"{"key":"","args":["-k","s3cr3tvalue123","-v"]}"#,
            r#"{"args":["--ssh-key","/home/me/id_1"]}"#,
            r#"{"headers":[["X-Note","authorization","{}"]]}"#,
            r#"{"args":["--mode=password","{}"]}"#,
            r#"{"args":["--key","/home/me/{}"]}"#,
            r#"{"properties":{"password":{"title":"{}"}}}"#,
        ] {
            assert_eq!(redact(&line.replace("{}", "hunter two")), line.replace("{}", "hunter two"));
        }
        assert_eq!(
            redact(r#"{"passwords":[12345678],"pins":[1]}"#),
            r#"{"passwords":["[secret]"],"pins":[1]}"#
        );
        assert_eq!(
            redact(r#"{"method":"authenticate","params":{"properties":{"x":[4711]}}}"#),
            r#"{"method":"authenticate","params":{"properties":{"x":["[secret]"]}}}"#
        );
        assert_eq!(redact(r#"{"password":12345678,"pin":-1}"#), r#"{"password":"[secret]","pin":-1}"#);
        assert_eq!(
            redact(r#"{"method":"authenticate","params":{"methodId":"m","code":4711,"list":[1]}}"#),
            r#"{"method":"authenticate","params":{"methodId":"m","code":"[secret]","list":["[secret]"]}}"#
        );
    }

    #[test]
    fn a_pattern_of_ones_own_has_a_group_or_is_secret_as_a_whole() {
        for empty in ["a*", "", "(?P<secret>x)?", "("] {
            assert!(Secrets::default().pattern(empty).is_err(), "{empty}");
        }
        let secrets =
            Secrets::default().pattern(r"card (?P<secret>\d+)").and_then(|it| it.pattern(r"ACME-\d+"));
        let secrets = secrets.expect("valid patterns");
        assert_eq!(secrets.redact_text("card 42, ACME-42"), "card [secret], [secret]");
    }

    #[test]
    fn what_is_nested_too_deeply_is_secret() {
        // Searching the whole path of each word would take minutes.
        let (depth, words) = (200_000, r#""-k","x","#.repeat(100_000));
        let nested = |depth: usize, inner: &str| {
            let (open, close) = ("[".repeat(depth), "]".repeat(depth));
            format!(r#"{{"key":"","mcpServers":{open}{inner}{close}}}"#)
        };
        let redacted = redact(&nested(depth, &format!(r#"{words}"hunter2""#)));
        assert_eq!(redacted, nested(duologue_rpc::Limits::default().depth - 1, r#""[secret]""#));
    }

    #[test]
    fn known_by_the_text_around_it() {
        for text in [
            "docker run -e PGPASSWORD={} x",
            "DB_PASS={}",
            "REDIS_PASS={} PASS={}",
            "MYAPIKEY={}",
            "curl -s -u me:{} https://example.com",
            "curl --user 'me:{}' https://example.com",
            "sshpass -p {} ssh host",
            "machine example.com login me password {}",
            "machine example.com\nlogin me\npassword {}\n",
            "password = {}",
            "https://me%3A{}@example.com",
        ] {
            let line = serde_json::json!({ "a": text.replace("{}", "hunter2") }).to_string();
            assert_eq!(redact(&line), serde_json::json!({ "a": text.replace("{}", SECRET) }).to_string());
            let expect = text.lines().map(|line| line.replace("{}", SECRET));
            if !text.contains('\n') {
                assert_eq!(redact(&text.replace("{}", "hunter2")), expect.collect::<String>());
            }
        }
        assert_eq!(redact("https://user:p@ss1word@host/x@y"), "https://user:[secret]@host/x@y");
        assert_eq!(redact("a sk%2Dproj%2Dabcdef0123456789 b"), "a [secret] b");
        assert_eq!(redact("CACHE_KEY=users SIGNING_KEY=a1b2c3d4"), "CACHE_KEY=users SIGNING_KEY=[secret]");
        // A value that looks like a path is secret if its name says so.
        assert_eq!(
            redact(r#"{"tokens":["API_KEY=/a1b2c3d4","DB_PASS=/a1b2c3d4","X=a1b2c3d4","PWD=/a1b2c3d4"]}"#),
            r#"{"tokens":["API_KEY=[secret]","DB_PASS=[secret]","[secret]","PWD=/a1b2c3d4"]}"#
        );
    }

    #[test]
    fn placeholders_of_secrets_are_not_searched() {
        let check = |pattern: &str, text: &str, expect: &str| {
            let secrets = Secrets::default().pattern(pattern).unwrap();
            let redacted = secrets.redact_text(text);
            assert_eq!(redacted, expect);
            assert_eq!(
                matches!(redacted, Cow::Borrowed(_)),
                text == expect,
                "nothing is copied without need"
            );
        };
        check("(?i)secret", "a Secret in [secret]", "a [secret] in [secret]");
        check("[a-z]", "[secret]", "[secret]");
        check("cret] pin.*", "x [secret] pin 1234", "x [secret]");
        check("pin.*", "pin [secret] 1234", "[secret]");
        check("pin....", "pin [secret] 1234", "[secret] 1234");
        // The rest may match again.
        check(r"a|\]b", "ab", "[secret]");
        check(r"\[", "[[", "[secret][secret]");
    }

    /// A recorder leaves the start of a secret in the piece before. With a pattern of one's own it may be any word.
    #[test]
    fn the_word_before_a_placeholder_is_the_start_of_a_secret() {
        let own = Secrets::default().pattern(r"room \d+").unwrap();
        let starts = |secrets: &Secrets, text: &str, start: usize| {
            let mut found = Vec::new();
            secrets.find_starts(text.as_bytes(), [0, start].into_iter(), |span| found.push(span));
            found
        };
        assert_eq!(starts(&own, "in room 12[secret], up", 10), std::slice::from_ref(&(8..18)));
        for (secrets, text, start) in [
            (&Secrets::default(), "in room 12[secret], up", 10),
            (&own, "in room 12[secret], up", 8),
            (&own, "in room: [secret], up", 9),
            (&own, "in room 12, up", 10),
        ] {
            assert!(starts(secrets, text, start).is_empty(), "{text}");
        }
    }

    #[test]
    fn the_words_of_a_command() {
        let words =
            ["agent", "--api-key", "hunter2hunter2", "--verbose", "--token=abcdefgh1", "TOKEN=abcdefgh1"];
        let words: Vec<_> = words.into_iter().map(str::to_owned).collect();
        assert_eq!(
            Secrets::default().redact_words(&words),
            ["agent", "--api-key", "[secret]", "--verbose", "--token=[secret]", "TOKEN=[secret]"]
        );
    }

    #[test]
    fn many_keys_that_never_end_take_no_time() {
        let line = format!("{{\"a\":\"{}\"}}", "-----BEGIN PRIVATE KEY-----|".repeat(5000));
        let start = std::time::Instant::now();
        assert_eq!(redact(&line), format!("{{\"a\":\"{}\"}}", "[secret]|".repeat(5000)));
        // Searching for the end of each of them would take half a minute.
        assert!(start.elapsed() < std::time::Duration::from_secs(10));
    }

    #[test]
    fn lines_without_secrets_are_not_copied() {
        for line in [
            r#"{"usage":{"inputTokens":1234567,"totalTokens":18,"token_count":{"input_tokens":20}}}"#,
            r#"{"sessionId":"8724c388-e3c6-4303-927d-e8674b0d4afa","messageId":"msg_1fdc7afcf001tM1QPNF3s03nEb"}"#,
            r#"{"text":"The token is checked: basic understanding of Bearer authentication, sk-learn and task-12345678901234567890"}"#,
            r#"{"text":"let token = parser.next_token(); password: String, secret = os.environ['X'] commit 9fceb02d0ae598e95dc970b74767f19372d61af8"}"#,
            r#"{"authMethods":[{"id":"gemini-api-key","name":"Gemini API key","_meta":{"api-key":{"provider":"google"}}}]}"#,
            r#"{"nextPageToken":"abcdef0123456789","progressToken":"7","command":"echo $OPENAI_API_KEY","OPENAI_API_KEY":"${OPENAI_API_KEY}"}"#,
            r#"{"text":"never pass `--openai-api-key=sk-...` on a command line, nor Authorization: Basic <credentials>"}"#,
            r#"{"usage":{"tokens_used":5,"inputTokens":6,"tokens":7,"token":8,"maxTokens":9,"tokens_":{"cached":10}},"tests":{"pass":11}}"#,
            r#"{"text":"Cookie: a cookie recipe = flour","cookie":"chocolate chip","token":"punctuation","tokens":["the","word42"]}"#,
            r#"{"text":"token: identifier42, password := "changeme" and PWD=/home/me/x1y2z3","sortKey":"a1b2c3d4e5f6","public_key":"a1b2c3d4e5f6"}"#,
            r#"{"command":"cargo","env":[{"name":"PATH","value":"/usr/bin"},{"name":"CI","value":"1"},{"name":"RUST_BACKTRACE","value":"full"},{"name":"PWD","value":"/home/me1/x2"}]}"#,
            r#"{"requestedSchema":{"properties":{"password":{"type":"string","title":"Password","minLength":8,"default":"none yet"}}}}"#,
            // A variable in a list of tokens or keys is neither a cookie nor generated.
            r#"{"inputTokens":"PWD=/home/me1/x2y3","keys":["PWD=/home/me1/x2y3"]}"#,
            r#"{"inputTokens":["PATH=/usr/bin"],"keys":["PATH=/usr/bin"],"token":"PATH=/usr/bin"}"#,
            r#"{"options":[{"value":"api-key","name":"Use an API key"}],"url":"https://example.com:8080/@scope/pkg?key=home"}"#,
        ] {
            assert!(
                matches!(Secrets::default().redact(line.as_bytes()), Cow::Borrowed(_)),
                "{}",
                redact(line)
            );
        }
    }
}
