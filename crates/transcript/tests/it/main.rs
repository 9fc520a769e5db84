//! Tests of recordings through the public interface.

mod between_agents;
mod canonical;
mod damage;
mod describe;
mod planted;
mod protocol_2;
mod record_files;
mod record_streams;
mod recorder;
mod redact;
mod redact_properties;
mod redact_rules;
mod rendering;
mod replays;
mod streamed_secrets;
mod taps;
