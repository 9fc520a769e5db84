//! Models of the interleavings of threads.
//!
//! [`loom`] explores every interleaving of small models with up to three preemptions. [`shuttle`] explores
//! random interleavings of two whole connections. `cargo xtask loom` runs both. They need
//! `--cfg duologue_loom` and `--cfg duologue_shuttle`, because `--cfg loom` has a meaning for tokio.
//! `sync.rs` replaces the primitives.
//!
//! The models cover the locks, atomics and notifications of the pending table, the outbox, the queues, their
//! budget, the batched wake-ups and the requests in flight. Each call of `oneshot`, `watch`,
//! `CancellationToken` and `TaskTracker` is a single step. loom models relaxed atomics as weakly as a
//! processor may behave, shuttle does not.

#[cfg(duologue_loom)]
mod loom;
#[cfg(duologue_loom)]
pub(crate) use loom::notify;
#[cfg(duologue_shuttle)]
mod shuttle;
