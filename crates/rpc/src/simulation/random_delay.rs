//! Random delays of the parts of a schedule.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Sleep;

/// Decides at each poll to continue now, at the next poll, or some milliseconds later.
pub(super) struct RandomDelay {
    rng: Rng,
    /// One poll in this many is delayed.
    rarely: u8,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl RandomDelay {
    pub(super) fn new(mut rng: Rng) -> Self {
        let rarely = *rng.choice(&[2, 4, 16, 50, 200]).unwrap_or(&2);
        RandomDelay { rng, rarely, sleep: None }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.sleep.is_none() {
            if self.rng.u8(0..self.rarely) > 0 {
                return Poll::Ready(());
            }
            if self.rng.u8(0..4) > 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let pause = Duration::from_millis(self.rng.u64(0..30));
            self.sleep = Some(Box::pin(tokio::time::sleep(pause)));
        }
        if let Some(sleep) = &mut self.sleep {
            ready!(sleep.as_mut().poll(cx));
            self.sleep = None;
        }
        Poll::Ready(())
    }

    pub(super) async fn rest(&mut self) {
        poll_fn(|cx| self.poll(cx)).await;
    }

    pub(super) fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }
}

/// Waits for up to `most` random delays.
pub(super) async fn random_delays(rng: Rng, most: usize) {
    let mut whim = RandomDelay::new(rng);
    for _ in 0..whim.rng().usize(0..=most) {
        whim.rest().await;
    }
}
