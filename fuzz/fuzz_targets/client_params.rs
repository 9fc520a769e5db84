//! Its assertions stand in `src/client_params.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duologue_fuzz::client_params::check(input));
