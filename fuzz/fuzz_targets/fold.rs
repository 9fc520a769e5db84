//! Its assertions stand in `src/fold.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duologue_fuzz::fold::check(input));
