//! Its assertions stand in `src/output.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duologue_fuzz::output::check(input));
