//! Its assertions stand in `src/paths.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duologue_fuzz::paths::check(input));
