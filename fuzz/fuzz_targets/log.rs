//! Its assertions stand in `src/log.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duologue_fuzz::log::check(input));
