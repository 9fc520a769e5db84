//! Models of the interleavings of threads.
//!
//! [`loom`] explores every interleaving of small models with up to three preemptions. `cargo xtask loom` runs them. They
//! need `--cfg duologue_loom`, because `--cfg loom` has a meaning for tokio. `sync.rs` replaces the primitives.
//!
//! The models cover the locks, atomics and notifications of the pending table, the outbox, the queues, their
//! budget, the batched wake-ups and the requests in flight. Each call of `oneshot`, `watch`,
//! `CancellationToken` and `TaskTracker` is a single step. Relaxed atomics are as weak as a processor may make them.

mod loom;
pub(crate) use loom::notify;
