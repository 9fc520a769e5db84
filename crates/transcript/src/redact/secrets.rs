//! Taking secrets out of one line, before the disk sees it.

use std::borrow::Cow;
use std::ops::Range;

use regex::bytes::Regex;
use serde::Deserialize;

use super::scan::{Edits, Frame, Quoted, Spelled, Visitor, scan};
use super::shapes::{self, SECRET};
use crate::error::{Error, Result};

/// What is secret: keys by their shape, values by the name of their member or header, the environment
/// and headers of MCP servers, the parameters of `authenticate`, and patterns of one's own.
///
/// Each becomes `[secret]`, and all else stays byte for byte. Found are also secrets that JSON
/// escapes (`\u0073k-…`), and in lines that are no JSON. Numbers, ids, hashes and images stay. What
/// has neither a known shape nor a telling name is not found: name it with a [`pattern`](Self::pattern).
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
    /// What this pattern matches is secret too: its group `secret`, or all of it. It is matched
    /// against what strings say and against each line of what is no JSON.
    ///
    /// # Errors
    ///
    /// [`Error::Pattern`] when it is no regular expression, or matches the empty text.
    pub fn pattern(mut self, pattern: &str) -> Result<Self> {
        let bad = |reason| Error::Pattern { pattern: pattern.into(), reason };
        let regex = Regex::new(pattern).map_err(|error| bad(error.to_string()))?;
        if regex.is_match(b"") {
            return Err(bad("it matches the empty text".into()));
        }
        self.custom.push(regex);
        Ok(self)
    }

    /// The line without its secrets. JSON stays JSON; a line without secrets is not copied.
    #[must_use]
    pub fn redact<'a>(&self, line: &'a [u8]) -> Cow<'a, [u8]> {
        // What is left can look like a secret once its neighbour is gone.
        let mut redacted = Cow::Borrowed(line);
        while let Some(next) = self.once(&redacted) {
            redacted = Cow::Owned(next);
        }
        redacted
    }

    /// A text without its secrets, such as a line of stderr.
    #[must_use]
    pub fn redact_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.redact(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(redacted) => Cow::Owned(String::from_utf8_lossy(&redacted).into_owned()),
        }
    }

    fn once(&self, line: &[u8]) -> Option<Vec<u8>> {
        if self.custom.is_empty() && !shapes::suspicious(line) {
            return None;
        }
        let mut edits = Edits::default();
        self.search(line, &mut edits);
        (!edits.is_empty()).then(|| edits.apply(line))
    }

    /// Looks for secrets in a line, JSON or not.
    pub(crate) fn search(&self, line: &[u8], edits: &mut Edits) {
        let json = std::str::from_utf8(line).is_ok_and(|text| {
            let login = is_login(text);
            scan(text, &mut Search { secrets: self, edits: &mut *edits, open: Vec::new(), login })
        });
        if !json {
            self.find(line, |span| edits.replace(span, SECRET));
        }
    }

    /// Shows each secret in a text that is no JSON, or in what a string says. They may overlap.
    pub(crate) fn find(&self, text: &[u8], mut found: impl FnMut(Range<usize>)) {
        shapes::find(text, &mut found);
        for captures in self.custom.iter().flat_map(|pattern| pattern.captures_iter(text)) {
            if let Some(secret) = captures.name("secret").or_else(|| captures.get(0))
                && !secret.is_empty()
                && secret.as_bytes() != SECRET.as_bytes()
            {
                found(secret.range());
            }
        }
    }
}

/// Whether the line logs in: all it says but the method of logging in is secret.
fn is_login(line: &str) -> bool {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        method: Cow<'a, str>,
    }
    serde_json::from_str::<Named<'_>>(line).is_ok_and(|named| named.method == "authenticate")
}

/// Looks at the strings of one line.
struct Search<'s> {
    secrets: &'s Secrets,
    edits: &'s mut Edits,
    open: Vec<Open>,
    login: bool,
}

/// An object or array that is open.
#[derive(Default)]
struct Open {
    /// A list of variables or headers of a program that is to be started, or such a variable.
    private: bool,
    /// The last string was an option of a command that takes a secret.
    option: bool,
    /// `{name, value}`: the name says that the value is secret.
    named: bool,
    /// The value, until its name is known.
    value: Option<Range<usize>>,
}

impl<'a> Visitor<'a> for Search<'_> {
    fn open(&mut self, frames: &[Frame<'a>], _: usize) {
        let parent = self.open.last();
        let private = match frames.iter().rev().nth(1).and_then(|frame| frame.member.as_deref()) {
            // Headers elsewhere are told from each other by their names.
            Some("headers" | "httpHeaders" | "http_headers") => {
                frames.iter().any(|frame| frame.member.as_deref() == Some("mcpServers"))
            }
            Some(name) => name == "env",
            // The element of a list.
            None => parent.is_some_and(|parent| parent.private),
        };
        self.open.push(Open { private, ..Open::default() });
    }

    fn close(&mut self, _: &[Frame<'a>], _: usize) {
        if let Some(Open { named: true, value: Some(value), .. }) = self.open.pop() {
            self.edits.replace(value, SECRET);
        }
    }

    fn name(&mut self, _: &[Frame<'a>], name: &Spelled<'a>) {
        self.secrets.find(name.text.as_bytes(), |part| self.edits.replace(name.span(part), SECRET));
    }

    fn string(&mut self, frames: &[Frame<'a>], string: Quoted<'a>) {
        let string = string.read();
        let text = string.text.as_ref();
        self.secrets.find(text.as_bytes(), |part| self.edits.replace(string.span(part), SECRET));
        // JSON inside a string has names too. Each level doubles the backslashes, so there are few.
        if text.starts_with(['{', '[']) && shapes::suspicious(text.as_bytes()) {
            let mut inner = Edits::default();
            self.secrets.search(text.as_bytes(), &mut inner);
            inner.merged().into_iter().for_each(|(part, with)| self.edits.replace(string.span(part), with));
        }
        // The value of `name`, or an element of the list that is.
        let member = frames.iter().rev().take(2).find_map(|frame| frame.member.as_deref());
        let element = frames.last().is_some_and(|frame| frame.member.is_none());
        let place = match member {
            Some(name) if self.login => login_secret(frames, name),
            Some(name) => shapes::names_secret(name),
            None => false,
        };
        let Some(open) = self.open.last_mut() else { return };
        let given = std::mem::replace(&mut open.option, element && takes_secret(text));
        let Some(secret) = secret_part(text).map(|part| string.span(part)) else { return };
        match member {
            _ if place || (given && element) => self.edits.replace(secret, SECRET),
            Some("name" | "key" | "configId") if !element && !open.private => {
                // What is written for people has spaces.
                open.named = !text.contains(' ') && shapes::names_secret(text);
            }
            // {"name": "NAME", "value": "…"} or {"NAME": "…"}.
            Some(name) if !element && open.private && name != "name" => self.edits.replace(secret, SECRET),
            Some("value") if !element => open.value = Some(secret),
            _ => {}
        }
    }
}

/// What is secret of a value that is: all of it, but for the scheme of a header.
fn secret_part(text: &str) -> Option<Range<usize>> {
    let scheme = ["bearer ", "basic ", "token ", "digest ", "apikey "]
        .into_iter()
        .find(|scheme| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    let start = scheme.map_or(0, str::len);
    shapes::value(text.get(start..)?.as_bytes()).then_some(start..text.len())
}

/// Whether the place in a line that logs in is secret: all in `params` but the method of logging in.
fn login_secret(frames: &[Frame<'_>], name: &str) -> bool {
    let in_params = frames.first().and_then(|frame| frame.member.as_deref()) == Some("params");
    in_params && !(frames.len() == 2 && name == "methodId")
}

/// Whether this argument of a command says that the next is a secret.
fn takes_secret(argument: &str) -> bool {
    argument.starts_with("--") && !argument.contains('=') && shapes::names_secret(argument)
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
            r#"{"env":[{"name":"CI","value":"yes"}],"headers":[{"value":"v","name":"X-Api-Key"},{"name":"Accept","value":"all"}]}"#,
            r#"{"env":[{"name":"CI","value":"[secret]"}],"headers":[{"value":"[secret]","name":"X-Api-Key"},{"name":"Accept","value":"all"}]}"#,
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
    fn what_is_no_secret_stays_and_costs_no_copy() {
        for line in [
            r#"{"usage":{"inputTokens":1234567,"totalTokens":18,"token_count":{"input_tokens":20}}}"#,
            r#"{"sessionId":"8724c388-e3c6-4303-927d-e8674b0d4afa","messageId":"msg_1fdc7afcf001tM1QPNF3s03nEb"}"#,
            r#"{"text":"The token is checked: basic understanding of Bearer authentication, sk-learn and task-12345678901234567890"}"#,
            r#"{"text":"let token = parser.next_token(); password: String, secret = os.environ['X'] commit 9fceb02d0ae598e95dc970b74767f19372d61af8"}"#,
            r#"{"authMethods":[{"id":"gemini-api-key","name":"Gemini API key","_meta":{"api-key":{"provider":"google"}}}]}"#,
            r#"{"nextPageToken":"abcdef0123456789","progressToken":"7","command":"echo $OPENAI_API_KEY","OPENAI_API_KEY":"${OPENAI_API_KEY}"}"#,
            r#"{"text":"never pass `--openai-api-key=sk-...` on a command line, nor Authorization: Basic <credentials>"}"#,
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
