//! Every number that bounds what a peer can make of us beside [`DialogueLimits`](crate::dialogue::DialogueLimits).
//! None of them can be changed, but for [`HOPS`].

use std::time::Duration;

/// Largest message of a dialogue that is taken, in bytes.
pub const MESSAGE_BYTES: usize = 1024 * 1024;
/// Longest signature of a message, in bytes.
pub const SIGNATURE_BYTES: usize = 2048;
/// How much the clock of a sender may differ from ours.
pub const CLOCK_SKEW: Duration = Duration::from_secs(60);
/// How many messages of one sender are remembered, so that none is taken twice.
pub const REPLAY_MESSAGES_PER_SENDER: usize = 4096;
/// How many messages of all senders are remembered. Those that are not signed are forgotten first, then those of who
/// sent the most.
pub const REPLAY_MESSAGES: usize = 65_536;
/// How many steps of a dialogue may be missing before a message. Steps end somewhere, and nobody is to take us there
/// at once.
pub const STEPS_AHEAD: u64 = 1024;

/// The most handlers that a query, a delegation or a work order may have come through, unless
/// [`Exchange::max_hops`](crate::Exchange::max_hops) says otherwise.
pub const HOPS: u32 = 16;
/// How many ids of envelopes are remembered. A sender that repeats a message does so soon.
pub const ENVELOPE_IDS: usize = 4096;
/// How many messages wait for a subscriber before the oldest are lost.
pub const SUBSCRIPTION_MESSAGES: usize = 256;
/// How many bytes of them.
pub const SUBSCRIPTION_BYTES: usize = 1024 * 1024;
