//! Its assertions stand in `src/agent_params.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duologue_fuzz::agent_params::check(input));
