//! Who is woken when the reader is through with what it has read.
//!
//! A read brings hundreds of lines when the peer is fast. To wake the taker at the first of them would send it to sleep
//! and wake it again for nearly each of the others, and on a runtime with several threads every one of these is a call
//! of the system.

use std::task::Waker;

use crate::sync::{Lock, Mutex};

/// Wakes at once, or together while the reader is at work.
#[derive(Default)]
pub(crate) struct Wakes {
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    hold: bool,
    wakers: Vec<Waker>,
}

impl Wakes {
    /// Keeps those who are to be woken until what it returns is dropped. One at a time, and nothing may be waited for
    /// in between.
    pub(crate) fn hold(&self) -> Together<'_> {
        self.held.lock_unpoisoned().hold = true;
        Together(self)
    }

    pub(crate) fn wake(&self, waker: Waker) {
        let mut held = self.held.lock_unpoisoned();
        if held.hold {
            held.wakers.push(waker);
            return;
        }
        drop(held);
        waker.wake();
    }
}

/// While it is there, nobody is woken.
pub(crate) struct Together<'a>(&'a Wakes);

impl Drop for Together<'_> {
    fn drop(&mut self) {
        let mut held = self.0.held.lock_unpoisoned();
        held.hold = false;
        let wakers = std::mem::take(&mut held.wakers);
        drop(held);
        wakers.into_iter().for_each(Waker::wake);
    }
}
