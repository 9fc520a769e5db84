//! Its assertions stand in `src/envelope.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duologue_fuzz::envelope::check(input));
