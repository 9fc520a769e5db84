//! A message of the other agent, with a way back.

use std::ops::Deref;

use duologue_rpc::Responder;
use duologue_schema::envelope::{AgentId, Envelope, EnvelopeError, EnvelopeId, EnvelopeResult, Payload};

use crate::error::to_wire;
use crate::hops::Hops;
use crate::peer_agent::PeerAgent;

/// An envelope of the other agent. It derefs to what it carries.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Received<P> {
    /// The envelope: who sent it, when, and what it belongs to.
    pub envelope: Envelope<P>,
    /// Who sent it, in the session it came in: to ask back.
    pub peer: PeerAgent,
    pub(crate) hops: Hops,
}

impl<P> Received<P> {
    pub(crate) fn new(envelope: Envelope<P>, peer: PeerAgent, hops: Hops) -> Self {
        Received { envelope, peer, hops }
    }

    /// Returns how many handlers it has come through, if it is a query or a delegation.
    #[must_use]
    pub fn hops(&self) -> Hops {
        self.hops
    }

    pub(crate) fn origin(&self) -> ReplyAddress {
        ReplyAddress::of(&self.envelope, &self.peer)
    }
}

impl<P> Deref for Received<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.envelope.payload
    }
}

/// The way back to a message, without what it carried.
#[derive(Clone)]
pub(crate) struct ReplyAddress {
    peer: PeerAgent,
    id: EnvelopeId,
    from: AgentId,
}

impl ReplyAddress {
    pub(crate) fn of<P>(envelope: &Envelope<P>, peer: &PeerAgent) -> Self {
        ReplyAddress { peer: peer.clone(), id: envelope.id.clone(), from: envelope.from.clone() }
    }

    /// A new envelope that belongs to the message, to whoever sent it.
    pub(crate) fn reply<P: Payload>(&self, payload: P) -> Envelope<P> {
        let mut envelope = self.peer.envelope(payload).reference(&self.id);
        envelope.to = self.from.clone();
        envelope
    }

    /// Answers the message. An answer that is too large becomes a fault, in an envelope like any other.
    pub(crate) fn respond<R: Payload>(&self, responder: Responder, answer: Result<R, EnvelopeError>) {
        let answer = match answer {
            Ok(payload) => Ok(EnvelopeResult::new(self.reply(payload))),
            Err(fault) => Err(to_wire(self.reply(fault))),
        };
        responder.respond_or(answer, |why| to_wire(self.reply(EnvelopeError::internal(why))));
    }
}
