//! Tests of the benchmark's programs and of its page.

mod command_line;
mod page;
mod plays;
