//! A replacement for `tokio::sync::Notify` with the documented behaviour, on locks of loom.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use loom::sync::Mutex;

use crate::sync::Lock;

pub(crate) struct ModelNotify(Mutex<State>);

struct State {
    /// True if `notify_one` found no waiter.
    permit: bool,
    /// The number of calls of `notify_waiters`.
    rounds: u64,
    last: u64,
    waiters: VecDeque<Waiter>,
}

struct Waiter {
    number: u64,
    waker: Option<Waker>,
    woken: Option<WakeKind>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WakeKind {
    One,
    All,
}

impl ModelNotify {
    pub(crate) fn new() -> Self {
        ModelNotify(Mutex::new(State { permit: false, rounds: 0, last: 0, waiters: VecDeque::new() }))
    }

    pub(crate) fn notify_one(&self) {
        let mut state = self.0.lock_unpoisoned();
        let waker = match state.waiters.iter_mut().find(|waiter| waiter.woken.is_none()) {
            Some(waiter) => {
                waiter.woken = Some(WakeKind::One);
                waiter.waker.take()
            }
            None => {
                state.permit = true;
                None
            }
        };
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn notify_waiters(&self) {
        let mut state = self.0.lock_unpoisoned();
        state.rounds += 1;
        let mut wakers = Vec::new();
        for waiter in state.waiters.iter_mut().filter(|waiter| waiter.woken.is_none()) {
            waiter.woken = Some(WakeKind::All);
            wakers.extend(waiter.waker.take());
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn notified(&self) -> Notified<'_> {
        Notified { notify: self, round: self.0.lock_unpoisoned().rounds, waiter: None, done: false }
    }
}

pub(crate) struct Notified<'a> {
    notify: &'a ModelNotify,
    round: u64,
    waiter: Option<u64>,
    done: bool,
}

impl Notified<'_> {
    pub(crate) fn enable(mut self: Pin<&mut Self>) -> bool {
        self.look(None).is_ready()
    }

    fn look(&mut self, waker: Option<&Waker>) -> Poll<()> {
        if self.done {
            return Poll::Ready(());
        }
        let mut state = self.notify.0.lock_unpoisoned();
        match self.waiter {
            None if state.rounds != self.round => self.done = true,
            None if state.permit => {
                state.permit = false;
                self.done = true;
            }
            None => {
                state.last += 1;
                let number = state.last;
                state.waiters.push_back(Waiter { number, waker: waker.cloned(), woken: None });
                self.waiter = Some(number);
            }
            Some(number) => {
                let index = state.waiters.iter().position(|waiter| waiter.number == number);
                let index = index.expect("a waiter of its own");
                if state.waiters[index].woken.is_some() {
                    state.waiters.remove(index);
                    (self.waiter, self.done) = (None, true);
                } else if let Some(waker) = waker {
                    state.waiters[index].waker = Some(waker.clone());
                }
            }
        }
        if self.done { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.look(Some(cx.waker()))
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        let Some(number) = self.waiter else { return };
        let mut state = self.notify.0.lock_unpoisoned();
        let index = state.waiters.iter().position(|waiter| waiter.number == number);
        let waiter = index.and_then(|index| state.waiters.remove(index));
        drop(state);
        // A waiter that was woken and dropped passes the wake-up to the next one.
        if waiter.is_some_and(|waiter| waiter.woken == Some(WakeKind::One)) {
            self.notify.notify_one();
        }
    }
}
