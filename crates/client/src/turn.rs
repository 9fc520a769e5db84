//! A turn as a stream: its updates in order, then its outcome.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use duologue_rpc::Queue;
use duologue_schema::{Conversation, PromptResponse, SessionUpdate, StopReason};
use futures::Stream;

use crate::connection::ConnectionInner;
use crate::error::Result;
use crate::router::{PromptTurnEvent, SessionEntry};
use crate::turn_events::TurnEvents;

/// A running turn: a stream of updates that ends with the turn.
///
/// Every update the agent sent before its answer comes out before the stream ends; then
/// [`outcome`](Turn::outcome) has the answer. Dropping a turn cancels it; [`detach`](Turn::detach)
/// lets it run on.
///
/// Updates do not say which turn they belong to. What an agent sends late, after its answer, comes out of the
/// session's next turn, or of [`Session::updates`](crate::Session::updates) while there is none.
///
/// ```no_run
/// use duologue_client::schema::printable;
///
/// # async fn run(session: duologue_client::Session) -> duologue_client::Result<()> {
/// let mut turn = session.prompt("hello").await?;
/// while let Some(update) = turn.next().await {
///     print!("{}", printable(&update?.to_string()));
/// }
/// println!("{:?}", turn.outcome().await?.stop_reason);
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping a turn cancels it"]
pub struct Turn {
    connection: Arc<ConnectionInner>,
    route: Arc<SessionEntry>,
    number: u64,
    events: TurnEvents<PromptResponse>,
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn").field("session", &self.route.id).finish_non_exhaustive()
    }
}

impl Turn {
    pub(crate) fn new(
        connection: Arc<ConnectionInner>,
        route: Arc<SessionEntry>,
        number: u64,
        queue: Queue<PromptTurnEvent>,
    ) -> Self {
        Turn { connection, route, number, events: TurnEvents::new(queue) }
    }

    /// The next update, or `None` when the turn has ended.
    ///
    /// An error is the end of the stream: its updates were not taken in time, and those in it are discarded
    /// ([`Stalled`](duologue_rpc::Error::Stalled)). A turn that fails
    /// otherwise ends the stream without one; [`outcome`](Turn::outcome) says why.
    ///
    /// A stream that has stalled ends alone: the connection goes on, and so does the agent. Drop the turn to cancel it.
    /// The session takes its next prompt when the agent has answered this one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no update.
    pub async fn next(&mut self) -> Option<Result<SessionUpdate>> {
        self.events.next().await
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
        self.events.outcome().await
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
    /// still come; the outcome is the confirmation. A second call does nothing. From elsewhere,
    /// [`Session::cancel`](crate::Session::cancel) does the same.
    ///
    /// An agent that does not end the turn within 10 seconds is given up:
    /// [`Error::CancelIgnored`](crate::Error::CancelIgnored).
    pub fn cancel(&self) {
        self.connection.cancel_turn(&self.route, self.number, false);
    }

    /// Lets the turn run on without anybody listening. What is still in its stream is discarded;
    /// later updates go where updates between turns go, see
    /// [`Session::updates`](crate::Session::updates).
    pub fn detach(self) {
        self.route.detach(self.number);
    }
}

impl Stream for Turn {
    type Item = Result<SessionUpdate>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_update(cx)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // A no-op for a turn that has ended or was detached.
        if self.route.is_attached(self.number) {
            self.connection.cancel_turn(&self.route, self.number, true);
        }
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
