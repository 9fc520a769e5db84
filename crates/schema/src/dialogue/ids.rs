//! The ids of dialogues, messages and agents.
//!
//! Decoding accepts any text, so that a message with an invalid id can still be answered.
//! [`DialogueMessage::check`](super::DialogueMessage::check) rejects such an id.

use std::borrow::Cow;
use std::fmt;

use super::InvalidField;
use crate::ids::ids;
use crate::printable;

/// The greatest length of the id of a message or dialogue, in characters.
pub const ID_CHARS: usize = 128;
/// The greatest length of an [`AgentUri`], in bytes.
pub const URI_BYTES: usize = 512;

ids! {
    /// The id of a dialogue, its `session_id`. It is unrelated to ACP sessions. 1 to 128 characters.
    DialogueId,
    /// The id of a message of a dialogue. 1 to 128 characters.
    DialogueMessageId,
    /// The URI of an agent: `agent://domain/name/resource`. Only the domain is required.
    AgentUri,
}

/// Returns true if `text` has 1 to [`ID_CHARS`] characters.
pub(super) fn is_id(text: &str) -> bool {
    !text.is_empty() && text.chars().nth(ID_CHARS).is_none()
}

impl DialogueId {
    /// Checks the length of the id. The error names the field `field`.
    ///
    /// # Errors
    ///
    /// If the id does not have 1 to [`ID_CHARS`] characters.
    pub fn check(&self, field: &'static str) -> Result<(), InvalidField> {
        if is_id(self.as_str()) { Ok(()) } else { Err(InvalidField::id(field)) }
    }
}

impl AgentUri {
    /// Parses a URI.
    ///
    /// Two URIs name the same agent when their texts are equal; nothing is normalised. Invisible
    /// characters are rejected. Visible ones that look alike, as in different scripts, are not.
    ///
    /// ```
    /// use duologue_schema::dialogue::{AgentUri, AgentUriError};
    ///
    /// let uri = AgentUri::parse("agent://cars.example/seller/camry/2023")?;
    /// assert_eq!(uri.domain(), "cars.example");
    /// assert_eq!(uri.name(), Some("seller"));
    /// assert_eq!(uri.resource(), Some("camry/2023"));
    ///
    /// assert_eq!(AgentUri::parse("agent://buyer")?.name(), None);
    /// assert_eq!(AgentUri::parse("agent:///buyer"), Err(AgentUriError::NoDomain));
    /// # Ok::<(), AgentUriError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If `text` is not of that form.
    pub fn parse(text: &str) -> Result<Self, AgentUriError> {
        let uri = AgentUri::from(text);
        uri.check()?;
        Ok(uri)
    }

    /// Checks a URI that was decoded without a check.
    ///
    /// # Errors
    ///
    /// If the text is not of the form that [`parse`](Self::parse) accepts.
    pub fn check(&self) -> Result<(), AgentUriError> {
        let text = self.as_str();
        let Some(rest) = text.strip_prefix(SCHEME) else { return Err(AgentUriError::Scheme) };
        if text.len() > URI_BYTES {
            return Err(AgentUriError::TooLong);
        }
        let odd = |c: &char| is_hidden(*c) || c.is_whitespace() || ['?', '#', '\\'].contains(c);
        if let Some(c) = rest.chars().find(odd) {
            return Err(AgentUriError::Character(c));
        }
        if self.domain().is_empty() { Err(AgentUriError::NoDomain) } else { Ok(()) }
    }

    /// Returns the domain, or an empty text if the URI is invalid.
    #[must_use]
    pub fn domain(&self) -> &str {
        self.parts().next().unwrap_or_default()
    }

    /// Returns the name within the domain.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.parts().nth(1).filter(|name| !name.is_empty())
    }

    /// Returns the resource, including all slashes in it.
    #[must_use]
    pub fn resource(&self) -> Option<&str> {
        self.parts().nth(2).filter(|resource| !resource.is_empty())
    }

    fn parts(&self) -> impl Iterator<Item = &str> {
        self.as_str().strip_prefix(SCHEME).unwrap_or_default().splitn(3, '/')
    }
}

/// Returns true for characters that are not visible. With them two different names look the same.
fn is_hidden(c: char) -> bool {
    // `printable` keeps the joiners and the two selectors of a character's look, which emoji and some
    // scripts need. A name does not.
    let is_kept = matches!(c, '\u{200C}' | '\u{200D}' | '\u{FE0E}' | '\u{FE0F}');
    is_kept || c.is_control() || matches!(printable(c.encode_utf8(&mut [0; 4])), Cow::Owned(_))
}

const SCHEME: &str = "agent://";

/// The error of an invalid [`AgentUri`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AgentUriError {
    /// The text does not start with `agent://`.
    Scheme,
    /// The domain is missing.
    NoDomain,
    /// The text contains a character that is not allowed.
    Character(char),
    /// The text is longer than [`URI_BYTES`].
    TooLong,
}

impl fmt::Display for AgentUriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme => f.write_str("must start with agent://"),
            Self::NoDomain => f.write_str("must name a domain: agent://domain/name/resource"),
            Self::Character(c) => write!(f, "must not contain {c:?}"),
            Self::TooLong => write!(f, "is longer than {URI_BYTES} bytes"),
        }
    }
}

impl std::error::Error for AgentUriError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_uris_are_rejected() {
        let long = format!("agent://{}", "a".repeat(URI_BYTES));
        for (text, fault) in [
            ("", AgentUriError::Scheme),
            ("buyer", AgentUriError::Scheme),
            ("AGENT://buyer", AgentUriError::Scheme),
            ("https://buyer", AgentUriError::Scheme),
            ("agent://", AgentUriError::NoDomain),
            ("agent:///name", AgentUriError::NoDomain),
            ("agent://a b", AgentUriError::Character(' ')),
            ("agent://a/b\n", AgentUriError::Character('\n')),
            ("agent://a/b?c", AgentUriError::Character('?')),
            ("agent://a\u{200b}", AgentUriError::Character('\u{200b}')),
            ("agent://a/\u{202e}b", AgentUriError::Character('\u{202e}')),
            ("agent://a/b\u{200d}", AgentUriError::Character('\u{200d}')),
            ("agent://a/b\u{fe0e}", AgentUriError::Character('\u{fe0e}')),
            ("agent://a/b\u{fe0f}", AgentUriError::Character('\u{fe0f}')),
            ("agent://a/b\u{feff}", AgentUriError::Character('\u{feff}')),
            (&long, AgentUriError::TooLong),
        ] {
            assert_eq!(AgentUri::parse(text), Err(fault), "{text}");
        }
    }

    #[test]
    fn only_the_domain_is_required() {
        let parts = |text| {
            let uri = AgentUri::parse(text).unwrap();
            [Some(uri.domain()), uri.name(), uri.resource()].map(|part| part.map(str::to_owned))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(parts("agent://a"), [some("a"), None, None]);
        assert_eq!(parts("agent://a/"), [some("a"), None, None]);
        assert_eq!(parts("agent://a/b"), [some("a"), some("b"), None]);
        assert_eq!(parts("agent://a:1/b/c/d/"), [some("a:1"), some("b"), some("c/d/")]);
    }

    #[test]
    fn ids_are_counted_in_characters() {
        assert!(!is_id("") && is_id("a"));
        assert!(is_id(&"é".repeat(ID_CHARS)) && !is_id(&"é".repeat(ID_CHARS + 1)));
    }
}
