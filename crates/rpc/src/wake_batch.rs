//! Batches wake-ups until the reader has processed everything from one read.
//!
//! A fast peer sends hundreds of lines in one read. A consumer that is woken at the first line takes it and sleeps
//! again, and so on for nearly every line. On a runtime with several threads each of these changes is a system call.

use std::panic::AssertUnwindSafe;
use std::task::Waker;

use crate::sync::{Lock, Mutex};

/// Wakes consumers at once, or together at the end of a batch.
#[derive(Default)]
pub(crate) struct WakeBatch {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_batching: bool,
    wakers: Vec<Waker>,
}

impl WakeBatch {
    /// Delays wake-ups until the guard is dropped. Only the reader calls this. It must not block or await before it
    /// drops the guard.
    pub(crate) fn begin(&self) -> WakeBatchGuard<'_> {
        self.state.lock_unpoisoned().is_batching = true;
        WakeBatchGuard(self)
    }

    pub(crate) fn wake(&self, waker: Waker) {
        let mut state = self.state.lock_unpoisoned();
        if state.is_batching {
            state.wakers.push(waker);
            return;
        }
        drop(state);
        wake(waker);
    }
}

/// Delays wake-ups while it exists.
pub(crate) struct WakeBatchGuard<'a>(&'a WakeBatch);

impl Drop for WakeBatchGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock_unpoisoned();
        state.is_batching = false;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(wake);
    }
}

/// Calls a waker and logs its panic, so that later wakers are called too.
pub(crate) fn wake(waker: Waker) {
    if std::panic::catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        tracing::error!("the waker of a stream's consumer panicked");
    }
}

#[cfg(all(test, not(duologue_loom)))]
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
    fn a_batch_wakes_each_waker_once_at_its_end() {
        let (wakes, bells) = (WakeBatch::default(), [Arc::<Bell>::default(), Arc::default()]);
        let batch = wakes.begin();
        bells.iter().for_each(|bell| wakes.wake(bell.clone().into()));
        assert_eq!(rung(&bells), [0, 0]);
        drop(batch);
        assert_eq!(rung(&bells), [1, 1]);
        drop(wakes.begin());
        assert_eq!(rung(&bells), [1, 1]);
    }

    #[test]
    fn outside_a_batch_a_waker_is_called_at_once() {
        let (wakes, bell) = (WakeBatch::default(), Arc::<Bell>::default());
        wakes.wake(bell.clone().into());
        drop(wakes.begin());
        wakes.wake(bell.clone().into());
        assert_eq!(rung(&[bell]), [2]);
    }

    #[test]
    fn a_waker_that_panics_does_not_stop_the_others() {
        let broken = || Arc::new(Bell { breaks: true, ..Bell::default() });
        let (wakes, bells) = (WakeBatch::default(), [broken(), Arc::default(), broken(), Arc::default()]);
        let batch = wakes.begin();
        bells.iter().for_each(|bell| wakes.wake(bell.clone().into()));
        drop(batch);
        assert_eq!(rung(&bells), [1; 4]);
        bells.iter().for_each(|bell| wakes.wake(bell.clone().into()));
        assert_eq!(rung(&bells), [2; 4]);
    }
}
