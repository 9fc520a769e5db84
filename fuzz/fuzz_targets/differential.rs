//! Its assertions stand in `src/differential.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duologue_fuzz::differential::check(input));
