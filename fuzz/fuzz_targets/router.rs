//! Its assertions stand in `src/router.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duologue_fuzz::router::check(input));
