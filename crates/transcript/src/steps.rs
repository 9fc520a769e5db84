//! Counts the steps of inner loops, so that tests can compare the cost of `n` and `2n` without a clock.

use std::cell::Cell;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Counts one step.
pub(crate) fn count() {
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

/// Returns the number of steps that `run` takes.
fn steps_of(run: impl FnOnce()) -> u64 {
    let before = STEPS.with(Cell::get);
    run();
    STEPS.with(Cell::get) - before
}

/// Asserts that `run` takes about twice as many steps for twice as much.
///
/// # Panics
///
/// If it takes more, or none at all.
pub(crate) fn assert_linear(n: usize, run: impl Fn(usize)) {
    let (one, two) = (steps_of(|| run(n)), steps_of(|| run(2 * n)));
    assert!(one >= n as u64, "{one} steps for {n}: the loop is not counted");
    assert!(two * 10 <= one * 25, "{one} steps for {n}, but {two} for {}", 2 * n);
}

mod tests;
