//! What a dialogue may take up.

use std::time::Duration;

/// Bounds on time and memory. The defaults suit agents that talk to a handful of others. With them, a peer that does
/// its worst makes one connection keep about 100 MiB, and what its handlers hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DialogueLimits {
    /// How many messages that came early wait for those before them, in one dialogue. 64 by default.
    pub window: usize,
    /// How long they wait. After that they are delivered all the same, with a gap before them. 5 seconds by
    /// default.
    pub patience: Duration,
    /// How many messages wait for the handler of one dialogue. More are refused with `OVERLOADED`, which
    /// their sender retries; an answer that somebody waits for is taken all the same. 64 by default.
    pub inbox: usize,
    /// How many bytes of messages wait, for those before them or for handlers to be done with them, in all dialogues
    /// of one connection. More are refused in the same way, but each of the [`dialogues`](Self::dialogues) there may be
    /// has its share in any case. 16 MiB by default.
    pub waiting_bytes: usize,
    /// How many messages of one dialogue can be looked up by their id. 256 by default.
    ///
    /// Of four times as many it is remembered what they were, so that they can be answered and their
    /// duplicates are known. A message older than that can still be referred to, not answered.
    pub messages: usize,
    /// How many bytes those messages may have, and so may those that came early. A longer one cannot be looked up.
    /// 256 KiB by default.
    pub message_bytes: usize,
    /// How many dialogues there may be at once over one connection. Those that have ended are forgotten to
    /// make room; if none has, another is refused with `OVERLOADED`. 128 by default.
    pub dialogues: usize,
    /// How long a sender waits for the receipt of a message before it tries again. 30 seconds by default.
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
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        DialogueLimits::default()
    }

    /// Of how many messages it is remembered what they were.
    pub(crate) fn summaries(&self) -> usize {
        self.messages.max(1).saturating_mul(4)
    }
}
