//! Who is woken when the reader is through with what it has read.
//!
//! A read brings hundreds of lines when the peer is fast. To wake the taker at the first of them would send it to sleep
//! and wake it again for nearly each of the others, and on a runtime with several threads every one of these is a call
//! of the system.

use std::panic::AssertUnwindSafe;
use std::task::Waker;

use crate::sync::{Lock, Mutex};

/// Wakes at once, or together while the reader is at work.
#[derive(Default)]
pub(crate) struct WakeBatch {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    hold: bool,
    wakers: Vec<Waker>,
}

impl WakeBatch {
    /// Keeps those who are to be woken until what it returns is dropped. Only the reader calls this; it must not block
    /// or await while it holds it.
    pub(crate) fn hold(&self) -> WakeBatchGuard<'_> {
        self.state.lock_unpoisoned().hold = true;
        WakeBatchGuard(self)
    }

    pub(crate) fn wake(&self, waker: Waker) {
        let mut state = self.state.lock_unpoisoned();
        if state.hold {
            state.wakers.push(waker);
            return;
        }
        drop(state);
        wake(waker);
    }
}

/// While it is there, nobody is woken.
pub(crate) struct WakeBatchGuard<'a>(&'a WakeBatch);

impl Drop for WakeBatchGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock_unpoisoned();
        state.hold = false;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(wake);
    }
}

/// Wakes, whoever's waker it is: its panic is its own, and those behind it are woken too.
pub(crate) fn wake(waker: Waker) {
    if std::panic::catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        tracing::error!("the waker of a stream's taker panicked");
    }
}

#[cfg(all(test, not(any(duologue_loom, duologue_shuttle))))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Bell {
        rung: AtomicUsize,
        breaks: bool,
    }

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.rung.fetch_add(1, Relaxed);
            assert!(!self.breaks, "a broken bell");
        }
    }

    fn rung(bells: &[Arc<Bell>]) -> Vec<usize> {
        bells.iter().map(|bell| bell.rung.load(Relaxed)).collect()
    }

    #[test]
    fn the_held_are_woken_at_the_end_of_the_hold_and_once() {
        let (wakes, bells) = (WakeBatch::default(), [Arc::<Bell>::default(), Arc::default()]);
        let together = wakes.hold();
        bells.iter().for_each(|bell| wakes.wake(bell.clone().into()));
        assert_eq!(rung(&bells), [0, 0]);
        drop(together);
        assert_eq!(rung(&bells), [1, 1]);
        drop(wakes.hold());
        assert_eq!(rung(&bells), [1, 1]);
    }

    #[test]
    fn outside_a_hold_one_is_woken_at_once() {
        let (wakes, bell) = (WakeBatch::default(), Arc::<Bell>::default());
        wakes.wake(bell.clone().into());
        drop(wakes.hold());
        wakes.wake(bell.clone().into());
        assert_eq!(rung(&[bell]), [2]);
    }

    #[test]
    fn a_waker_that_panics_keeps_nobody_asleep() {
        let broken = || Arc::new(Bell { breaks: true, ..Bell::default() });
        let (wakes, bells) = (WakeBatch::default(), [broken(), Arc::default(), broken(), Arc::default()]);
        let together = wakes.hold();
        bells.iter().for_each(|bell| wakes.wake(bell.clone().into()));
        drop(together);
        assert_eq!(rung(&bells), [1; 4]);
        bells.iter().for_each(|bell| wakes.wake(bell.clone().into()));
        assert_eq!(rung(&bells), [2; 4]);
    }
}
