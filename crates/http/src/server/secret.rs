//! Random tokens, and their comparison in constant time.

use std::fmt::Write as _;

/// Returns 128 random bits as hexadecimal digits.
pub(crate) fn random_token() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    let mut token = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(token, "{byte:02x}");
    }
    Ok(token)
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
    fn tokens_differ_and_are_compared_whole() {
        let (one, two) = (random_token().unwrap(), random_token().unwrap());
        assert_eq!(one.len(), 32);
        assert!(is_equal_secret(&one, &one) && !is_equal_secret(&one, &two));
        assert!(!is_equal_secret(&one, "") && !is_equal_secret("ab", "abc") && is_equal_secret("", ""));
    }
}
