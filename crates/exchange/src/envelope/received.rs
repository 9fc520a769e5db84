//! A message of the other agent, with a way back.

use std::ops::Deref;

use duologue_schema::envelope::Envelope;

use crate::peer_agent::PeerAgent;

/// An envelope of the other agent. It derefs to what it carries.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Received<P> {
    /// The envelope: who sent it, when, and what it belongs to.
    pub envelope: Envelope<P>,
    /// Who sent it, in the session it came in: to ask back.
    pub peer: PeerAgent,
}

impl<P> Received<P> {
    pub(crate) fn new(envelope: Envelope<P>, peer: PeerAgent) -> Self {
        Received { envelope, peer }
    }
}

impl<P> Deref for Received<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.envelope.payload
    }
}
