//! `tokio::sync::Notify` as its documentation has it, on locks that loom sees.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use loom::sync::Mutex;

use crate::sync::Lock;

pub(crate) struct Notify(Mutex<State>);

struct State {
    /// `notify_one` found nobody.
    permit: bool,
    /// How often everybody was told.
    rounds: u64,
    last: u64,
    waiting: VecDeque<Place>,
}

struct Place {
    number: u64,
    waker: Option<Waker>,
    told: Option<Told>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Alone,
    WithAll,
}

impl Notify {
    pub(crate) fn new() -> Self {
        Notify(Mutex::new(State { permit: false, rounds: 0, last: 0, waiting: VecDeque::new() }))
    }

    pub(crate) fn notify_one(&self) {
        let mut state = self.0.lock_unpoisoned();
        let waker = match state.waiting.iter_mut().find(|place| place.told.is_none()) {
            Some(place) => {
                place.told = Some(Told::Alone);
                place.waker.take()
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
        for place in state.waiting.iter_mut().filter(|place| place.told.is_none()) {
            place.told = Some(Told::WithAll);
            wakers.extend(place.waker.take());
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn notified(&self) -> Notified<'_> {
        Notified { notify: self, round: self.0.lock_unpoisoned().rounds, place: None, done: false }
    }
}

pub(crate) struct Notified<'a> {
    notify: &'a Notify,
    round: u64,
    place: Option<u64>,
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
        match self.place {
            None if state.rounds != self.round => self.done = true,
            None if state.permit => {
                state.permit = false;
                self.done = true;
            }
            None => {
                state.last += 1;
                let number = state.last;
                state.waiting.push_back(Place { number, waker: waker.cloned(), told: None });
                self.place = Some(number);
            }
            Some(number) => {
                let index = state.waiting.iter().position(|place| place.number == number);
                let index = index.expect("a place of its own");
                if state.waiting[index].told.is_some() {
                    state.waiting.remove(index);
                    (self.place, self.done) = (None, true);
                } else if let Some(waker) = waker {
                    state.waiting[index].waker = Some(waker.clone());
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
        let Some(number) = self.place else { return };
        let mut state = self.notify.0.lock_unpoisoned();
        let index = state.waiting.iter().position(|place| place.number == number);
        let place = index.and_then(|index| state.waiting.remove(index));
        drop(state);
        // Told and not listening: the next one is told instead.
        if place.is_some_and(|place| place.told == Some(Told::Alone)) {
            self.notify.notify_one();
        }
    }
}
