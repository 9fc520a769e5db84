//! Its assertions stand in `src/cursors.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duologue_fuzz::cursors::check(input));
