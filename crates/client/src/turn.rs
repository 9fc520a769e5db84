//! Turns as streams of updates.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use duologue_rpc::Queue;
use duologue_schema::{Conversation, PromptResponse, SessionUpdate, SteerOutcome, StopReason};
use futures::Stream;

use crate::connection::ConnectionInner;
use crate::error::Result;
use crate::prompt::PromptBuilder;
use crate::router::{PromptTurnEvent, SessionEntry};
use crate::turn_events::TurnEvents;

/// A running turn: a stream of updates that ends with the turn.
///
/// The stream returns every update of the agent before the end of the turn. Then
/// [`outcome`](Turn::outcome) returns the stop reason. The end is the response of the agent in version 1, and the
/// state `idle` in version 2. Dropping a turn cancels it;
/// [`detach`](Turn::detach) lets it continue.
///
/// Updates do not name their turn. An update that the agent sends after the end is part of the session's next turn,
/// or of [`Session::updates`](crate::Session::updates) if there is none.
/// [`Updates::next_before`](crate::Updates::next_before) tells both apart in the order of the wire.
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
    entry: Arc<SessionEntry>,
    number: u64,
    /// The number of updates between turns before this turn.
    between: u64,
    events: TurnEvents<PromptResponse>,
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn").field("session", &self.entry.id).finish_non_exhaustive()
    }
}

impl Turn {
    pub(crate) fn new(
        connection: Arc<ConnectionInner>,
        entry: Arc<SessionEntry>,
        number: u64,
        between: u64,
        queue: Queue<PromptTurnEvent>,
    ) -> Self {
        Turn { connection, entry, number, between, events: TurnEvents::new(queue) }
    }

    /// Returns true if an update between turns of the session, behind `count` others, arrived before this turn.
    pub(crate) fn is_behind(&self, session: &Arc<SessionEntry>, count: u64) -> bool {
        Arc::ptr_eq(&self.entry, session) && count < self.between
    }

    /// Returns the next update, or `None` at the end of the turn.
    ///
    /// An error ends the stream: its updates were not taken in time and are discarded
    /// ([`Stalled`](duologue_rpc::Error::Stalled)). Other failures end the stream with `None`, and
    /// [`outcome`](Turn::outcome) returns them.
    ///
    /// After a stall the connection and the agent continue. Drop the turn to cancel it. The session accepts the next
    /// prompt when the agent has ended this one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no update.
    pub async fn next(&mut self) -> Option<Result<SessionUpdate>> {
        self.events.next().await
    }

    /// Waits for the end of the turn and returns the response. Skips the remaining updates.
    ///
    /// # Errors
    ///
    /// The error with which the agent responded, or the reason why there is no response: the end of the
    /// connection or the process, or the memory limit.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future can lose updates, but not the outcome.
    pub async fn outcome(&mut self) -> Result<PromptResponse> {
        self.events.outcome().await
    }

    /// Takes all updates and returns them as a conversation with the response.
    ///
    /// # Errors
    ///
    /// As [`outcome`](Turn::outcome).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the turn.
    pub async fn finish(mut self) -> Result<Reply> {
        let mut conversation = Conversation::default();
        while let Some(update) = self.next().await {
            conversation.apply(&update?);
        }
        let response = self.outcome().await?;
        Ok(Reply { text: conversation.all_agent_text(), conversation, response })
    }

    /// Asks the agent to stop, and responds to its open permission requests with `cancelled`, in version 2 except those that
    /// may belong to work in the background. Updates can still arrive until the outcome. A second call has no effect.
    /// [`Session::cancel`](crate::Session::cancel) does the same without the turn.
    ///
    /// If the agent does not end the turn within 10 seconds, the outcome is
    /// [`Error::CancelIgnored`](crate::Error::CancelIgnored).
    pub fn cancel(&self) {
        self.connection.cancel_turn(&self.entry, self.number, false);
    }

    /// Sends a message of the user for this turn, see [`Session::steer`](crate::Session::steer).
    ///
    /// # Errors
    ///
    /// As [`Session::steer`](crate::Session::steer).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request, but the agent may have used the message already.
    pub async fn steer(&self, message: impl Into<PromptBuilder>) -> Result<SteerOutcome> {
        self.connection.steer(&self.entry, message.into()).await
    }

    /// Lets the turn continue without its stream, whose updates are discarded. Later updates are treated as
    /// updates between turns, see [`Session::updates`](crate::Session::updates).
    pub fn detach(self) {
        self.entry.detach(self.number);
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
        // A turn that has ended or was detached is not cancelled.
        if self.entry.is_attached(self.number) {
            self.connection.cancel_turn(&self.entry, self.number, true);
        }
    }
}

/// A finished turn.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Reply {
    /// The text of the agent's messages, without cleared drafts.
    pub text: String,
    /// All updates of the turn.
    pub conversation: Conversation,
    /// The response of the agent.
    pub response: PromptResponse,
}

impl Reply {
    /// Returns the stop reason.
    #[must_use]
    pub fn stop_reason(&self) -> &StopReason {
        &self.response.stop_reason
    }
}
