//! The client on our SDK, counting its allocations. It is slower for it, so nothing else is measured with it.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> std::process::ExitCode {
    duologue_bench::run(duologue_bench::client::main(|| {
        let stats = ALLOCATOR.stats();
        Some(stats.allocations + stats.reallocations)
    }))
}
