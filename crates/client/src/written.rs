//! How long something is as text.

use serde::Serialize;

/// How long a value is as JSON, which is not made: it may be as large as a line may be.
pub(crate) fn written(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).map_or(usize::MAX, |()| count.0)
}

#[cfg(test)]
mod tests {
    use duologue_schema::{ToolCall, ToolCallUpdate};

    use super::*;

    #[test]
    fn a_call_is_as_long_as_its_text() {
        let call = ToolCallUpdate::from(ToolCall::new("a", "\"quoted\" \u{1f600}\n"));
        assert_eq!(written(&call), serde_json::to_string(&call).expect("text").len());
    }
}
