//! Its assertions stand in `src/transcript.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duologue_fuzz::transcript::check(input));
