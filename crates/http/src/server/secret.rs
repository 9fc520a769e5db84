//! Random tokens.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_and_differ() {
        let (one, two) = (random_token().unwrap(), random_token().unwrap());
        assert!(one.len() == 32 && one != two, "{one} {two}");
    }
}
