//! Tests of the peer through its public interface.

mod frames;
mod json_decisions;
mod wire;
