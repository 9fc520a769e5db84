//! Tests of the peer through its public interface.

mod calls;
mod ends;
mod frames;
mod irregular;
mod json_decisions;
mod limits;
mod reads;
mod wire;
