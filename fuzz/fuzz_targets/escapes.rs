//! Its assertions stand in `src/escapes.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duologue_fuzz::escapes::check(input));
