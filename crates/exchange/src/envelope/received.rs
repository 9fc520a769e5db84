//! A received envelope and the address for a reply.

use std::ops::Deref;
use std::sync::{Arc, Mutex};

use duologue_rpc::{Lock as _, Responder};
use duologue_schema::envelope::{AgentId, Envelope, EnvelopeError, EnvelopeId, EnvelopeResult, Payload};
use duologue_schema::{Meta, SessionId, TraceContext};

use super::events;
use crate::error::to_wire;
use crate::hops::Hops;
use crate::peer_agent::PeerAgent;

/// An envelope from the other agent. It derefs to its payload.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Received<P> {
    /// The envelope.
    pub envelope: Envelope<P>,
    /// A handle on the sender, in the session of the message. Calls through it are counted as calls
    /// of this handler, in every task. See [`Hops`]. They carry the trace context of the message,
    /// unless they set another one.
    pub peer: PeerAgent,
    pub(crate) hops: Hops,
    pub(crate) beside: MetaBeside,
}

/// The `_meta` beside a message, and the one for its answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct MetaBeside {
    pub(crate) received: Option<Meta>,
    answer: Arc<Mutex<Option<Meta>>>,
}

impl MetaBeside {
    pub(crate) fn of(received: Option<Meta>) -> Self {
        MetaBeside { received, answer: Arc::default() }
    }

    pub(crate) fn trace_context(&self) -> Option<TraceContext> {
        self.received.as_ref()?.trace_context()
    }

    pub(crate) fn set_answer(&self, meta: Meta) {
        *self.answer.lock_unpoisoned() = Some(meta);
    }

    /// Takes the `_meta` of the next answer.
    pub(crate) fn take_answer(&self) -> Option<Meta> {
        self.answer.lock_unpoisoned().take()
    }
}

impl<P> Received<P> {
    pub(crate) fn new(envelope: Envelope<P>, peer: PeerAgent, hops: Hops, meta: Option<Meta>) -> Self {
        Received { envelope, peer, hops, beside: MetaBeside::of(meta) }
    }

    /// Returns the number of handlers that a query or a delegation has passed through.
    #[must_use]
    pub fn hops(&self) -> Hops {
        self.hops
    }

    /// Returns the `_meta` beside the envelope.
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        self.beside.received.as_ref()
    }

    /// Returns the trace context in the `_meta`. A call to a third agent passes it on in one line:
    ///
    /// ```no_run
    /// # use duologue_exchange::{PeerAgent, envelope::{Query, Received}};
    /// # async fn run(query: Received<Query>, other: PeerAgent) -> duologue_exchange::Result<()> {
    /// let answer = other.query(query.question.clone()).trace_context(query.trace_context()).await?;
    /// # drop(answer);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn trace_context(&self) -> Option<TraceContext> {
        self.beside.trace_context()
    }

    /// Returns the session of the message, if it has one.
    #[must_use]
    pub fn session_id(&self) -> Option<&SessionId> {
        self.peer.session()
    }

    /// Sets the `_meta` beside the answer of this handler, which may be an error. The other side's
    /// [`Error`](crate::Error) has no `_meta`. It has no effect on a message without an answer.
    pub fn set_answer_meta(&self, meta: impl Into<Meta>) {
        self.beside.set_answer(meta.into());
    }

    pub(crate) fn origin(&self) -> ReplyAddress {
        ReplyAddress::of(&self.envelope, &self.peer, &self.beside)
    }
}

impl<P> Deref for Received<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.envelope.payload
    }
}

/// The address for a reply to a message, without its payload.
#[derive(Clone)]
pub(crate) struct ReplyAddress {
    peer: PeerAgent,
    id: EnvelopeId,
    from: AgentId,
    beside: MetaBeside,
}

impl ReplyAddress {
    pub(crate) fn of<P>(envelope: &Envelope<P>, peer: &PeerAgent, beside: &MetaBeside) -> Self {
        let beside = MetaBeside { received: None, answer: beside.answer.clone() };
        ReplyAddress { peer: peer.clone(), id: envelope.id.clone(), from: envelope.from.clone(), beside }
    }

    /// Creates an envelope that refers to the message and is addressed to its sender.
    pub(crate) fn reply<P: Payload>(&self, payload: P) -> Envelope<P> {
        let mut envelope = self.peer.envelope(payload).reference(&self.id);
        envelope.to = self.from.clone();
        envelope
    }

    /// Sends the response. A response that is too large is replaced by an error envelope.
    pub(crate) fn respond<R: Payload>(&self, responder: Responder, answer: Result<R, EnvelopeError>) {
        let answer = answer.and_then(|payload| match self.peer.check_attachments(&payload) {
            Ok(()) => Ok(payload),
            Err(error) => Err(EnvelopeError::internal(error.to_string()).retryable(false)),
        });
        let meta = self.beside.take_answer();
        let answer = match answer {
            Ok(payload) => {
                let mut result = EnvelopeResult::new(self.reply(payload));
                events::sent(&result.envelope);
                result.meta = meta;
                Ok(result)
            }
            Err(fault) => {
                let error = self.reply(fault);
                events::sent(&error);
                Err(to_wire(error, meta))
            }
        };
        responder.respond_or(answer, |why| to_wire(self.reply(EnvelopeError::internal(why)), None));
    }
}
