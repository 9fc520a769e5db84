//! A received envelope and the address for a reply.

use std::ops::Deref;

use duologue_rpc::Responder;
use duologue_schema::envelope::{AgentId, Envelope, EnvelopeError, EnvelopeId, EnvelopeResult, Payload};

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
    /// of this handler, in every task. See [`Hops`].
    pub peer: PeerAgent,
    pub(crate) hops: Hops,
}

impl<P> Received<P> {
    pub(crate) fn new(envelope: Envelope<P>, peer: PeerAgent, hops: Hops) -> Self {
        Received { envelope, peer, hops }
    }

    /// Returns the number of handlers that a query or a delegation has passed through.
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

/// The address for a reply to a message, without its payload.
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

    /// Creates an envelope that refers to the message and is addressed to its sender.
    pub(crate) fn reply<P: Payload>(&self, payload: P) -> Envelope<P> {
        let mut envelope = self.peer.envelope(payload).reference(&self.id);
        envelope.to = self.from.clone();
        envelope
    }

    /// Sends the response. A response that is too large is replaced by an error envelope.
    pub(crate) fn respond<R: Payload>(&self, responder: Responder, answer: Result<R, EnvelopeError>) {
        let answer = match answer {
            Ok(payload) => Ok(EnvelopeResult::new(self.reply(payload))),
            Err(fault) => Err(to_wire(self.reply(fault))),
        };
        responder.respond_or(answer, |why| to_wire(self.reply(EnvelopeError::internal(why))));
    }
}
