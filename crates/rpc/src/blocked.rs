//! Handlers that block their thread, on which the connection may have to go on.

use std::pin::pin;
use std::time::{Duration, Instant};

/// The time after which a handler that has not come back to the runtime is logged.
const BLOCKED: Duration = Duration::from_secs(1);

/// Runs a handler, and logs each time that it has blocked its thread for a second or longer. Tasks that the handler spawns are not
/// seen, and `block_in_place`, which harms nobody, counts as blocking.
pub(crate) async fn logged_if_blocked<F: Future>(handler: F) -> F::Output {
    watched(handler, Instant::now, |blocked| {
        tracing::warn!(
            ?blocked,
            "a handler has blocked its thread, so that other sessions and cancellations may wait; use `tokio::task::spawn_blocking`"
        );
    })
    .await
}

async fn watched<F: Future>(handler: F, now: impl Fn() -> Instant, report: impl Fn(Duration)) -> F::Output {
    let mut handler = pin!(handler);
    std::future::poll_fn(|cx| {
        let begin = now();
        let polled = handler.as_mut().poll(cx);
        let blocked = now() - begin;
        if blocked >= BLOCKED {
            report(blocked);
        }
        polled
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_handler_that_blocks_its_thread_is_reported() {
        let (begin, passed) = (tokio::time::Instant::now().into_std(), Cell::new(Duration::ZERO));
        let reported = RefCell::new(Vec::new());
        let block = |millis| passed.set(passed.get() + Duration::from_millis(millis));
        let handler = async {
            block(999);
            tokio::task::yield_now().await;
            block(1000);
            tokio::task::yield_now().await;
            block(2500);
            7
        };
        let output = watched(handler, || begin + passed.get(), |blocked| reported.borrow_mut().push(blocked));
        assert_eq!(output.await, 7);
        assert_eq!(reported.into_inner(), [Duration::from_secs(1), Duration::from_millis(2500)]);
    }
}
