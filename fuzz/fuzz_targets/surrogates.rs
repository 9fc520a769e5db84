//! Its assertions stand in `src/surrogates.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duologue_fuzz::surrogates::check(input));
