//! A received envelope and the address for a reply.

use std::ops::Deref;

use duologue_rpc::{MessageMeta, Responder};
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
    pub(crate) meta: MessageMeta,
}

impl<P> Received<P> {
    pub(crate) fn new(envelope: Envelope<P>, peer: PeerAgent, hops: Hops, meta: Option<Meta>) -> Self {
        Received { envelope, peer, hops, meta: meta.into() }
    }

    /// Returns the number of handlers that a query or a delegation has passed through.
    #[must_use]
    pub fn hops(&self) -> Hops {
        self.hops
    }

    /// Returns the `_meta` beside the envelope.
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        self.meta.received()
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
        self.meta.trace_context()
    }

    /// Returns the session of the message, if it has one.
    #[must_use]
    pub fn session_id(&self) -> Option<&SessionId> {
        self.peer.session()
    }

    /// Sets the `_meta` beside the answer of this handler. The other side reads that of an error with
    /// [`Error::meta`](crate::Error::meta). It has no effect on a message without an answer.
    pub fn set_answer_meta(&self, meta: impl Into<Meta>) {
        self.meta.set_answer(meta);
    }

    pub(crate) fn origin(&self) -> ReplyAddress {
        ReplyAddress::of(&self.envelope, &self.peer, &self.meta)
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
    meta: MessageMeta,
}

impl ReplyAddress {
    pub(crate) fn of<P>(envelope: &Envelope<P>, peer: &PeerAgent, meta: &MessageMeta) -> Self {
        let (id, from) = (envelope.id.clone(), envelope.from.clone());
        ReplyAddress { peer: peer.clone(), id, from, meta: meta.without_received() }
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
        let meta = self.meta.take_answer();
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
