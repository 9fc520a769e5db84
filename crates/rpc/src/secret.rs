//! Secret text, and its comparison in constant time.

use std::fmt;

use serde::Deserialize;
use zeroize::Zeroizing;

/// A text that is a secret, such as a token or a password.
///
/// It is shown as `[redacted]`, it is compared by [`is_equal_secret`], and its memory is wiped at its end. It is not serialized.
/// [`as_str`](Self::as_str) is the only way to the text.
///
/// ```
/// use duologue_rpc::SecretText;
///
/// let token = SecretText::from("swordfish");
/// assert_eq!(format!("{token:?}"), "[redacted]");
/// assert!(token.is("swordfish") && token != SecretText::from("swordfisk"));
/// ```
#[derive(Clone, Deserialize)]
#[serde(from = "String")]
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true for the same text. The time does not depend on the place of a difference.
    #[must_use]
    pub fn is(&self, other: impl AsRef<[u8]>) -> bool {
        is_equal_secret(self.as_str(), other)
    }
}

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        SecretText(Zeroizing::new(text))
    }
}

impl From<&str> for SecretText {
    fn from(text: &str) -> Self {
        SecretText::from(text.to_owned())
    }
}

impl PartialEq for SecretText {
    fn eq(&self, other: &Self) -> bool {
        self.is(other.as_str())
    }
}

impl Eq for SecretText {}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Compares two secrets in a time that depends on their lengths alone, and not on the place of a difference.
#[must_use]
pub fn is_equal_secret(left: impl AsRef<[u8]>, right: impl AsRef<[u8]>) -> bool {
    let (left, right) = (left.as_ref(), right.as_ref());
    let differences = left.iter().zip(right).fold(0, |all, (left, right)| all | (left ^ right));
    left.len() == right.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_compared_whole() {
        for (one, other, is_same) in
            [("ab", "ab", true), ("ab", "aB", false), ("ab", "abc", false), ("ab", "", false), ("", "", true)]
        {
            assert_eq!(is_equal_secret(one, other), is_same, "{one} {other}");
            assert_eq!(SecretText::from(one) == SecretText::from(other), is_same, "{one} {other}");
        }
    }
}
