//! The README's programs, compiled and run as tests.
#![doc = include_str!("../README.md")]
