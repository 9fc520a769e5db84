//! What threads can do to each other.
//!
//! [`loom`] plays every interleaving of the pieces where threads meet, with up to three preemptions;
//! [`shuttle`] plays random ones of two whole connections. `cargo xtask loom` runs both. They live
//! behind `--cfg duologue_loom` and `--cfg duologue_shuttle`, since `--cfg loom` means something to
//! tokio; `sync.rs` is where they come in.
//!
//! Seen from inside: the locks, atomics and notices of the pending table, the outbox, the queues, their
//! budget, the wakers held back and the requests in flight. Not seen: what happens within `oneshot`, `watch`,
//! `CancellationToken` and `TaskTracker`, each call of which is one step here. loom reads relaxed atomics
//! as weakly as a processor may, shuttle does not.

#[cfg(duologue_loom)]
mod loom;
#[cfg(duologue_loom)]
pub(crate) use loom::notify;
#[cfg(duologue_shuttle)]
mod shuttle;
