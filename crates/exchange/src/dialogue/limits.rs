//! Limits of dialogues.

use std::time::Duration;

/// Limits on time and memory. The defaults suit an agent with a few peers. With them, a hostile
/// peer makes one connection keep about 100 MiB, besides the memory of its handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DialogueLimits {
    /// Number of early messages that one dialogue buffers while earlier ones are missing. 64 by
    /// default.
    pub window: usize,
    /// Time for which early messages are buffered. After that they are delivered with a gap before
    /// them. 5 seconds by default.
    pub patience: Duration,
    /// Number of messages that wait for the handler of one dialogue. More are rejected with
    /// `OVERLOADED`, and the sender retries. Answers that a call waits for are always accepted. 64
    /// by default.
    pub inbox: usize,
    /// Size of the messages that are buffered or wait for handlers, in all dialogues of one
    /// connection. More are rejected with `OVERLOADED`, but each of the possible
    /// [`dialogues`](Self::dialogues) always has its share. 16 MiB by default.
    pub waiting_bytes: usize,
    /// Number of messages of one dialogue that can be looked up by id. 256 by default.
    ///
    /// For four times as many, a summary is kept, which is enough to answer them and to detect
    /// duplicates. Older messages can be referred to but not answered.
    pub messages: usize,
    /// Size of those messages, and of the early messages. A longer message cannot be looked up. 256
    /// KiB by default.
    pub message_bytes: usize,
    /// Number of dialogues on one connection. Ended ones are evicted to make room. If there are
    /// none, a new dialogue is rejected with `OVERLOADED`. 128 by default.
    pub dialogues: usize,
    /// Timeout for the receipt of a message, after which it is sent again. 30 seconds by default.
    pub receipt: Duration,
}

impl Default for DialogueLimits {
    fn default() -> Self {
        DialogueLimits {
            window: 64,
            patience: Duration::from_secs(5),
            inbox: 64,
            waiting_bytes: 16 << 20,
            messages: 256,
            message_bytes: 256 << 10,
            dialogues: 128,
            receipt: Duration::from_secs(30),
        }
    }
}

impl DialogueLimits {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Self {
        DialogueLimits::default()
    }

    /// Returns the number of messages for which a summary is kept.
    pub(crate) fn summaries(&self) -> usize {
        self.messages.max(1).saturating_mul(4)
    }
}
