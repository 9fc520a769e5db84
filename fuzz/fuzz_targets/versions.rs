//! Its assertions stand in `src/versions.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duologue_fuzz::versions::check(input));
