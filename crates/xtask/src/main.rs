//! Chores of this repository: schema export and interop.

fn main() {}
