//! Its assertions stand in `src/events.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duologue_fuzz::events::check(input));
