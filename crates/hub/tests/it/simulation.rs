//! Seeded schedules of clients, an agent, a log and crashes.

use duologue_test_support::{Reproduction, runs, seed};

use crate::world::World;

/// After each schedule: every prompt has one response and reached the agent at most once, every question one answer,
/// no file is written twice, the log has the agent's texts without a gap, and reads the same again.
#[test]
fn nothing_is_lost_or_doubled_in_any_schedule() {
    let first = seed();
    for run in 0..runs(3000) {
        let seed = first.wrapping_add(run);
        let test = "-p duologue-hub --test it nothing_is_lost_or_doubled_in_any_schedule";
        let _reproduction = Reproduction::of(test, seed, 1);
        let steps = fastrand::Rng::with_seed(seed).usize(10..400);
        World::new(seed).run(steps);
    }
}
