//! Tests of the exchange through its public interface.

mod artifacts;
mod callbacks;
mod hops;
mod workflow;
