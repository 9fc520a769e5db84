//! Its assertions stand in `src/framer.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duologue_fuzz::framer::check(input));
