//! Its assertions stand in `src/dialogue.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duologue_fuzz::dialogue::check(input));
