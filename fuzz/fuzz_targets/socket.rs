//! Its assertions stand in `src/socket.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duologue_fuzz::socket::check(input));
