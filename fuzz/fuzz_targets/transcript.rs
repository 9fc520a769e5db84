//! What it asserts stands in `src/transcript.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duologue_fuzz::transcript::check(input));
