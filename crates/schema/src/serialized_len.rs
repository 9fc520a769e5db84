//! The length of a value as JSON.

use serde::Serialize;

/// Returns the length of a value as JSON, or `None` if it exceeds `limit`. The text is not built: it
/// may be as long as a frame.
pub fn serialized_len(value: &impl Serialize, limit: usize) -> Option<usize> {
    struct Remaining(usize);
    impl std::io::Write for Remaining {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::FileTooLarge)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut remaining = Remaining(limit);
    serde_json::to_writer(&mut remaining, value).ok().map(|()| limit - remaining.0)
}

#[cfg(test)]
mod tests {
    use crate::{ToolCall, ToolCallUpdate};

    use super::*;

    #[test]
    fn a_call_is_as_long_as_its_text() {
        let call = ToolCallUpdate::from(ToolCall::new("a", "\"quoted\" \u{1f600}\n"));
        let length = serde_json::to_string(&call).expect("text").len();
        assert_eq!(serialized_len(&call, usize::MAX), Some(length));
        assert_eq!(serialized_len(&call, length), Some(length));
        assert_eq!(serialized_len(&call, length - 1), None);
    }
}
