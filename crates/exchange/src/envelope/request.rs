//! Outgoing requests: `ping`, `query`, and the wait for a response.

use std::future::IntoFuture;
use std::time::Duration;

use duologue_rpc::RequestHandle;
use duologue_schema::Request;
use duologue_schema::envelope::{
    Envelope, EnvelopeError, EnvelopeErrorCode, EnvelopeId, EnvelopeKind, EnvelopeParams, EnvelopeResult,
    Payload, Ping, Pong, Query, QueryResponse, Question, RequestPayload, TaskStatus,
};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::events::{self, EventClock};
use super::machine::EnvelopeReply;
use super::outgoing::{MessageOptions, message_options, with_attachments};
use super::{Received, ReceivedTask, read};
use crate::error::{AnswerError, Error, Result};
use crate::hops::Hops;
use crate::peer_agent::PeerAgent;

/// Timeout of `ping` and `discover`.
pub(super) const SHORT: Duration = Duration::from_secs(10);

impl PeerAgent {
    /// Checks that the other agent responds, and returns its load.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`], [`Error::Timeout`] after 10 seconds, and the error that the other
    /// agent returns.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the request.
    pub async fn ping(&self) -> Result<Pong> {
        let message = self.prepare(Ping::new(), MessageOptions::here())?;
        self.ask(message, SHORT).await.map(|reply| reply.envelope.payload)
    }

    /// Creates a query, which is sent when it is awaited. Dropping the future withdraws it. The
    /// question is a text, or structured data: `peer.query(json!({ "free_on": "Friday" }))`.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/pair.in"));
    /// # use duologue_exchange::envelope::*;
    /// struct Calendar;
    ///
    /// impl EnvelopeHandler for Calendar {
    ///     async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
    ///         match query.domain.as_deref() {
    ///             Some("family.calendar") => Ok(QueryResponse::new("Both are free on Friday")),
    ///             other => Err(EnvelopeError::unknown_domain(other.unwrap_or("anything"))),
    ///         }
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> duologue_exchange::Result<()> {
    /// # let peer = agent_that_answers_with(Calendar);
    /// let answer = peer.query("Who is free on Friday?").domain("family.calendar").max_tokens(200).await?;
    /// assert_eq!(answer.summary, "Both are free on Friday");
    /// let error = peer.query("What is for dinner?").domain("family.dinner").await.unwrap_err();
    /// assert_eq!(error.code(), EnvelopeErrorCode::UnknownDomain);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`], [`Error::NoSession`] and, in a handler, [`Error::TooManyHops`]
    /// before anything is sent. [`Error::Timeout`] at the deadline, [`Error::Response`] if the other
    /// agent returns an error, [`Error::Answer`] if the response is invalid, and
    /// [`Error::Connection`] if the connection ends.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the query. A response that arrives later is dropped and
    /// counted.
    pub fn query(&self, question: impl Into<Question>) -> QueryBuilder {
        QueryBuilder {
            peer: self.clone(),
            query: Query::new(question),
            options: MessageOptions::here(),
            task: None,
        }
    }

    /// Returns the state of a task that was delegated to the other agent, by the id of the delegation. The
    /// task may be one of an earlier handle. An agent remembers its running tasks, and about a thousand
    /// ended ones of the connection.
    ///
    /// The request is a query with the domain [`TaskStatus::DOMAIN`].
    ///
    /// # Errors
    ///
    /// [`Error::Response`] with the code `not_found` if the other agent does not remember such a task of
    /// ours. [`Error::Answer`] if it answers the query without a state. Else the errors of
    /// [`query`](Self::query).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the request.
    pub async fn task_status(&self, task: impl Into<EnvelopeId>) -> Result<TaskStatus> {
        let query = self.query("What is the state of this task?").domain(TaskStatus::DOMAIN);
        let answer = query.about(task).await?;
        let status = answer.data.as_ref().and_then(|data| data.parse().ok());
        status.ok_or_else(|| {
            let message = "the response has no state of a task";
            let fault = EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, message);
            Error::Answer { kind: EnvelopeKind::Query, fault }
        })
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn ask<P: RequestPayload>(
        &self,
        message: EnvelopeParams<P>,
        within: Duration,
    ) -> Result<EnvelopeResult<P::Response>> {
        self.require(P::KIND)?;
        self.post(message)?.answer::<P>(within).await
    }

    /// Registers a request and sends it at once.
    pub(crate) fn post<P: RequestPayload>(&self, message: EnvelopeParams<P>) -> Result<EnvelopeRequest> {
        let id = message.envelope.id.clone();
        let clock = EventClock::start();
        let (sender, answer) = oneshot::channel();
        // Registered before the request is sent, so that no response can be too early.
        let envelopes = &self.link.envelopes;
        if !envelopes.with(|machine| machine.pending.add_request(id.clone(), P::Response::KIND, sender)) {
            return Err(Error::IdInUse { id });
        }
        let deliver = {
            let (link, id) = (self.link.clone(), id.clone());
            move |reply: Result<EnvelopeResult, duologue_rpc::Error>| {
                let reply = reply.map_err(|error| Error::of_call(P::KIND, error));
                link.envelopes.handle(|machine| machine.response(&id, reply));
            }
        };
        let message = Posted(message);
        let request = match self.rpc().request_into(&message, None, deliver) {
            Ok(request) => request,
            Err(error) => {
                self.link.envelopes.with(|machine| machine.pending.take_response(&id));
                return Err(error.into());
            }
        };
        events::sent(&message.0.envelope);
        Ok(EnvelopeRequest { peer: self.clone(), id, answer, request, clock })
    }
}

/// A request as it is sent. The response is parsed later, by the caller that waits for it.
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "P: Payload")]
struct Posted<P>(EnvelopeParams<P>);

impl<P: RequestPayload> Request for Posted<P> {
    const METHOD: &'static str = P::METHOD;
    type Result = EnvelopeResult;
}

/// A request that waits for its response. Dropping it withdraws the request.
pub(crate) struct EnvelopeRequest {
    peer: PeerAgent,
    id: EnvelopeId,
    answer: oneshot::Receiver<EnvelopeReply>,
    request: RequestHandle,
    clock: EventClock,
}

impl EnvelopeRequest {
    pub(crate) async fn answer<P: RequestPayload>(
        mut self,
        within: Duration,
    ) -> Result<EnvelopeResult<P::Response>> {
        let answer = self.wait::<P>(within).await;
        if let Ok(answer) = &answer {
            events::received(&answer.envelope);
        }
        events::answered::<P, _>(&self.id, self.clock, &answer);
        answer
    }

    async fn wait<P: RequestPayload>(&mut self, within: Duration) -> Result<EnvelopeResult<P::Response>> {
        let unfit = |fault| Error::Answer { kind: P::KIND, fault };
        let EnvelopeResult { envelope: answer, meta, .. } =
            match tokio::time::timeout(within, &mut self.answer).await {
                Ok(Ok(Err(Error::Answer { fault, .. }))) => return Err(unfit(fault)),
                Ok(Ok(answer)) => answer?,
                // The sender stays in the table until it is used, the connection ends, or a result
                // arrives instead.
                Ok(Err(_)) => return Err(Error::Cancelled),
                Err(_) => return Err(Error::Timeout { kind: P::KIND, after: within }),
            };
        self.fits(&answer).map_err(unfit)?;
        if answer.kind == EnvelopeKind::Error {
            // Some peers cannot respond with an error in another way.
            let fault = answer.open::<EnvelopeError>().map_err(unfit)?.payload;
            return Err(Error::Response(AnswerError::new(fault, meta)));
        }
        let answer = answer.open().map_err(unfit)?;
        read::check_attachments(&self.peer, &answer).map_err(unfit)?;
        let mut result = EnvelopeResult::new(answer);
        result.meta = meta;
        Ok(result)
    }

    /// Checks that a response belongs to the request. A JSON-RPC response may have no `ref`.
    fn fits(&self, answer: &Envelope) -> Result<(), EnvelopeError> {
        read::check(&self.peer, answer)?;
        match &answer.reference {
            Some(id) if *id != self.id => {
                Err(EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, "its `ref` names another message"))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for EnvelopeRequest {
    fn drop(&mut self) {
        let waiter = self.peer.link.envelopes.with(|machine| machine.pending.take_response(&self.id));
        if waiter.is_some() {
            self.request.cancel();
        }
        self.request.forget();
    }
}

/// A query before it is sent; see [`PeerAgent::query`].
#[must_use = "the query is sent when it is awaited"]
#[derive(Debug)]
pub struct QueryBuilder {
    peer: PeerAgent,
    query: Query,
    options: MessageOptions,
    /// The task that waits for the answer.
    task: Option<ReceivedTask>,
}

message_options!([] QueryBuilder);
with_attachments!([] QueryBuilder, query);

impl QueryBuilder {
    /// Makes this a question about a task.
    pub(super) fn for_task(mut self, task: ReceivedTask) -> Self {
        self.options.reference = Some(task.envelope.id.clone());
        self.task = Some(task);
        self
    }

    /// Sets the message that this one refers to: `ref` on the wire.
    pub fn about(mut self, message: impl Into<EnvelopeId>) -> Self {
        self.options.reference = Some(message.into());
        self
    }

    /// Sets the domain, such as `family.calendar`.
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.query = self.query.domain(domain);
        self
    }

    /// Sets the desired maximum length of the answer in tokens. 0, the default, means no limit. It
    /// is not enforced.
    pub fn max_tokens(mut self, max_tokens: u64) -> Self {
        self.query = self.query.max_tokens(max_tokens);
        self
    }

    /// Sets the timeout for the response; 30 seconds by default.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.query = self.query.deadline_ms(millis(deadline));
        self
    }
}

impl QueryBuilder {
    /// Sends the query, and returns the whole answer with its `_meta`.
    ///
    /// # Errors
    ///
    /// Those of [`PeerAgent::query`].
    ///
    /// # Cancel safety
    ///
    /// That of [`PeerAgent::query`].
    pub async fn received(self) -> Result<Received<QueryResponse>> {
        let QueryBuilder { peer, query, options, task } = self;
        let _open = task.map(ReceivedTask::open_question);
        let deadline = Duration::from_millis(query.deadline_ms.unwrap_or(Query::DEADLINE_MS));
        let message = peer.prepare(query, options)?;
        let EnvelopeResult { envelope, meta, .. } = peer.ask(message, deadline).await?;
        Ok(Received::new(envelope, peer, Hops::default(), meta))
    }
}

impl IntoFuture for QueryBuilder {
    type Output = Result<QueryResponse>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.received().await.map(|response| response.envelope.payload) })
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
