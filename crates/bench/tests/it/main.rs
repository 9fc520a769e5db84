//! Tests of the benchmark's programs and of its page.

mod asked;
mod page;
mod plays;
