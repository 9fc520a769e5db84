//! Tests of recordings through the public interface.

mod between_agents;
mod canonical;
mod damage;
mod planted;
mod recorder;
mod redact;
mod redact_properties;
mod rendering;
mod replays;
mod streamed_secrets;
mod taps;
