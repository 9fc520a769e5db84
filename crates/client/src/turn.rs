//! A turn as a stream: its updates in order, then its outcome.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use duologue_rpc::{Error as RpcError, Queue, SentRequest};
use duologue_schema::{Conversation, PromptResponse, SessionUpdate, StopReason};
use futures::Stream;
use tokio::time::Sleep;

use crate::connection::Inner;
use crate::error::{Error, Result};
use crate::router::{Event, PromptEvent, Route, cancel_turn};

/// How long an agent may take to end a cancelled turn.
pub(crate) const CANCEL_PATIENCE: Duration = Duration::from_secs(10);

/// A running turn: a stream of updates that ends with the turn.
///
/// Every update the agent sent before its answer comes out before the stream ends; then
/// [`outcome`](Turn::outcome) has the answer. Dropping a turn cancels it; [`detach`](Turn::detach)
/// lets it run on.
///
/// ```no_run
/// # async fn run(session: duologue_client::Session) -> duologue_client::Result<()> {
/// let mut turn = session.prompt("hello").await?;
/// while let Some(update) = turn.next().await {
///     print!("{}", update?);
/// }
/// println!("{:?}", turn.outcome().await?.stop_reason);
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping a turn cancels it"]
pub struct Turn {
    connection: Arc<Inner>,
    route: Arc<Route>,
    number: u64,
    queue: Queue<PromptEvent>,
    request: SentRequest,
    outcome: Option<Result<PromptResponse>>,
    patience: Option<Pin<Box<Sleep>>>,
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn").field("session", &self.route.id).finish_non_exhaustive()
    }
}

impl Turn {
    pub(crate) fn new(
        connection: Arc<Inner>,
        route: Arc<Route>,
        number: u64,
        queue: Queue<PromptEvent>,
        request: SentRequest,
    ) -> Self {
        Turn { connection, route, number, queue, request, outcome: None, patience: None }
    }

    /// The next update, or `None` when the turn has ended.
    ///
    /// An error is the end of the stream: it was not taken in time, or a cancellation was ignored.
    /// A turn that fails ends the stream without one; [`outcome`](Turn::outcome) says why.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no update.
    pub async fn next(&mut self) -> Option<Result<SessionUpdate>> {
        std::future::poll_fn(|cx| self.poll_update(cx)).await
    }

    /// Waits for the end of the turn and tells how it ended. Updates that were not taken are
    /// skipped.
    ///
    /// # Errors
    ///
    /// What the agent answered, or why there is no answer: the connection, the process, the memory
    /// limit.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses updates, never the outcome.
    pub async fn outcome(&mut self) -> Result<PromptResponse> {
        while let Some(update) = self.next().await {
            if let Err(error) = update {
                self.outcome.get_or_insert(Err(error));
            }
        }
        self.outcome.clone().unwrap_or(Err(Error::from(RpcError::Closed(duologue_rpc::Closed::Local))))
    }

    /// Takes all updates and gathers what the agent said.
    ///
    /// # Errors
    ///
    /// As [`outcome`](Turn::outcome).
    pub async fn finish(mut self) -> Result<Reply> {
        let mut conversation = Conversation::default();
        while let Some(update) = self.next().await {
            conversation.apply(&update?);
        }
        let response = self.outcome().await?;
        Ok(Reply { text: conversation.agent_text(), conversation, response })
    }

    /// Asks the agent to stop, and answers its open permission questions `cancelled`. Updates may
    /// still come; the outcome is the confirmation. A second call does nothing.
    ///
    /// An agent that does not end the turn within 10 seconds is given up:
    /// [`Error::CancelIgnored`].
    pub fn cancel(&mut self) {
        if self.outcome.is_none() && self.route.is_running(self.number) {
            cancel_turn(self.connection.peer(), &self.route, self.number, false);
            self.patience.get_or_insert_with(|| Box::pin(tokio::time::sleep(CANCEL_PATIENCE)));
        }
    }

    /// Asks the agent to stop from elsewhere, while this turn is being read.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller { connection: self.connection.clone(), route: self.route.clone(), number: self.number }
    }

    /// Withdraws the prompt request itself with `$/cancel_request`, for agents that know that one
    /// only. [`cancel`](Turn::cancel) is the protocol's way.
    pub fn withdraw(&self) {
        self.request.cancel();
    }

    /// Lets the turn run on without anybody listening. Its updates go where updates between turns
    /// go, see [`Session::updates`](crate::Session::updates).
    pub fn detach(self) {
        self.route.detach(self.number);
    }

    fn poll_update(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<SessionUpdate>>> {
        if self.outcome.is_some() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(event) = Pin::new(&mut self.queue).poll_next(cx) {
            return Poll::Ready(match event {
                Some(Ok(Event::Update(update))) => Some(Ok(update)),
                Some(Ok(Event::Done(answer))) => {
                    self.outcome = Some(answer.map_err(Error::from));
                    None
                }
                Some(Err(error)) => self.fail(Error::from(error)),
                None => None,
            });
        }
        if let Some(patience) = &mut self.patience
            && patience.as_mut().poll(cx).is_ready()
        {
            self.route.abandon(self.number);
            return Poll::Ready(self.fail(Error::CancelIgnored { after: CANCEL_PATIENCE }));
        }
        Poll::Pending
    }

    fn fail(&mut self, error: Error) -> Option<Result<SessionUpdate>> {
        self.outcome = Some(Err(error.clone()));
        Some(Err(error))
    }
}

impl Stream for Turn {
    type Item = Result<SessionUpdate>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_update(cx)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // A no-op for a turn that has ended or was detached.
        if self.route.is_attached(self.number) {
            cancel_turn(self.connection.peer(), &self.route, self.number, true);
        }
    }
}

/// Cancels a turn from another task: a stop button.
#[derive(Clone)]
pub struct Canceller {
    connection: Arc<Inner>,
    route: Arc<Route>,
    number: u64,
}

impl Canceller {
    /// As [`Turn::cancel`], without its time limit.
    pub fn cancel(&self) {
        cancel_turn(self.connection.peer(), &self.route, self.number, false);
    }
}

impl std::fmt::Debug for Canceller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Canceller").field("session", &self.route.id).finish_non_exhaustive()
    }
}

/// A whole turn, taken at once.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Reply {
    /// What the agent said in the end, cleared drafts left out.
    pub text: String,
    /// Everything that happened in the turn.
    pub conversation: Conversation,
    /// The agent's answer.
    pub response: PromptResponse,
}

impl Reply {
    /// Why the agent stopped.
    #[must_use]
    pub fn stop_reason(&self) -> &StopReason {
        &self.response.stop_reason
    }
}
