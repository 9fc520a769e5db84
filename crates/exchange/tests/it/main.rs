//! Tests of the exchange through its public interface.

mod artifacts;
mod callbacks;
mod dialogue_verification;
mod dialogues;
mod envelopes;
mod foreign;
mod hops;
mod work_orders;
mod workflow;
