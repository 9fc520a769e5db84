//! Its assertions stand in `src/exchange_params.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duologue_fuzz::exchange_params::check(input));
