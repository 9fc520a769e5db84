//! The limits on the data that a peer can make this side keep, besides
//! [`DialogueLimits`](crate::dialogue::DialogueLimits). [`HOPS`] and [`ATTACHMENT_BYTES`] can be changed.

use std::time::Duration;

/// Maximum size of a dialogue message, in bytes.
pub const MESSAGE_BYTES: usize = 1024 * 1024;
/// Maximum size of the `_meta` beside a dialogue message, in bytes.
pub const DIALOGUE_META_BYTES: usize = 64 * 1024;
/// Maximum length of a message's signature, in bytes.
pub const SIGNATURE_BYTES: usize = 2048;
/// Maximum difference between a sender's clock and ours.
pub const CLOCK_SKEW: Duration = Duration::from_secs(60);
/// Number of messages of one sender in the replay cache.
pub const REPLAY_MESSAGES_PER_SENDER: usize = 4096;
/// Number of messages of all senders in the replay cache. Unsigned messages are evicted first, then
/// those of the sender with the most entries.
pub const REPLAY_MESSAGES: usize = 65_536;
/// Number of agents whose published keys are remembered. Those that were read first are forgotten.
pub const KEY_CARDS: usize = 1024;
/// Number of keys that are read from the card of an agent.
pub const CARD_KEYS: usize = 256;
/// Maximum number of missing steps before a dialogue message. The number of a step is bounded, and
/// no single message may jump to the end.
pub const STEPS_AHEAD: u64 = 1024;

/// Number of performed work orders with an id that a connection remembers, to answer repeated orders.
/// The oldest are forgotten.
pub const WORK_RESULTS: usize = 64;
/// Maximum size of the results that are kept for them, in bytes.
pub const WORK_RESULT_BYTES: usize = 8 * 1024 * 1024;

/// Default of [`Exchange::max_hops`](crate::Exchange::max_hops), the maximum number of hops of a
/// query, a delegation or a work order.
pub const HOPS: u32 = 16;
/// Default of [`Exchange::max_attachment_bytes`](crate::Exchange::max_attachment_bytes), the maximum
/// size of the attachments of an envelope together, in bytes.
pub const ATTACHMENT_BYTES: usize = 8 * 1024 * 1024;
/// Number of envelope ids in each id cache. A sender that repeats a message does so soon.
pub const ENVELOPE_IDS: usize = 4096;
/// Number of ended tasks of the other agent that are remembered. A repeated delegation is not run again
/// as long as its task is remembered.
pub const ENDED_TASKS: usize = 1024;
/// Maximum size of the remembered tasks together, in bytes. The oldest ends are dropped before a task is
/// forgotten. An end that exceeds the limit alone is not kept.
pub const ENDED_TASK_BYTES: usize = 4 * 1024 * 1024;
/// Maximum size of the unread output of a delegation, in bytes. Beyond it the oldest chunks are dropped.
pub const OUTPUT_BYTES: usize = 16 * 1024 * 1024;
/// The bytes that each chunk of output counts besides those of its message. They limit the number of
/// chunks to 16,384.
pub const OUTPUT_CHUNK_BYTES: usize = 1024;
/// Number of chunks of output that wait for a missing one.
pub const OUTPUT_AHEAD: usize = 64;
/// Number of notifications in the queue of a subscription. Beyond it the oldest are dropped.
pub const SUBSCRIPTION_MESSAGES: usize = 256;
/// Maximum size of the notifications in the queue of a subscription, in bytes.
pub const SUBSCRIPTION_BYTES: usize = 1024 * 1024;
