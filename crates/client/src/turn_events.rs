//! A queue of updates with an outcome at its end. Turns and replays use it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use duologue_rpc::{Closed, Error as RpcError, Queue};
use duologue_schema::SessionUpdate;
use futures::Stream;

use crate::error::{Error, Result};

/// An item in the queue of a turn or a replay: an update, or the outcome at the end.
#[derive(Debug)]
pub(crate) enum TurnEvent<T> {
    Update(SessionUpdate),
    Done(Result<T>),
}

/// The receiving half of such a queue.
#[derive(Debug)]
pub(crate) struct TurnEvents<T> {
    queue: Queue<TurnEvent<T>>,
    outcome: Option<Result<T>>,
}

impl<T: Clone + Send + 'static> TurnEvents<T> {
    pub(crate) fn new(queue: Queue<TurnEvent<T>>) -> Self {
        TurnEvents { queue, outcome: None }
    }

    pub(crate) async fn next(&mut self) -> Option<Result<SessionUpdate>> {
        std::future::poll_fn(|cx| self.poll_update(cx)).await
    }

    /// Skips the remaining updates and returns the outcome.
    pub(crate) async fn outcome(&mut self) -> Result<T> {
        while self.next().await.is_some() {}
        self.outcome.clone().unwrap_or(Err(Error::from(RpcError::Closed(Closed::Local))))
    }

    pub(crate) fn poll_update(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<SessionUpdate>>> {
        if self.outcome.is_some() {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(Pin::new(&mut self.queue).poll_next(cx)) {
            Some(Ok(TurnEvent::Update(update))) => Some(Ok(update)),
            Some(Ok(TurnEvent::Done(answer))) => {
                self.outcome = Some(answer);
                None
            }
            // In version 2 no response is pending that would report the end of the connection.
            Some(Err(error @ RpcError::Closed(_))) => {
                self.outcome = Some(Err(Error::from(error)));
                None
            }
            Some(Err(error)) => {
                let error = Error::from(error);
                self.outcome = Some(Err(error.clone()));
                Some(Err(error))
            }
            None => None,
        })
    }
}
