//! The README's programs, compiled and run as tests.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
