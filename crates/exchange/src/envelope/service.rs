//! Routing of envelopes: from a line of the other side to the [`Correspondent`](super::Correspondent).

use std::sync::Arc;

use duologue_rpc::{Closed, Incoming, Responder};
use duologue_schema::envelope::{
    Ask, Carried, Discover, Envelope, EnvelopeId, Fault, FaultCode, Payload, Ping, Pong, Query, Reply,
    Status, VERSION,
};
use serde_json::value::RawValue;

use super::Received;
use super::correspondent::Erased;
use crate::error::to_wire;
use crate::peer_agent::PeerAgent;
use crate::service::Knows;

/// Answers a request if it carries an envelope of a kind that is asked for.
pub(crate) fn request(
    peer: &PeerAgent,
    knows: &Knows,
    request: Incoming<'_>,
    responder: Responder,
) -> Result<(), Responder> {
    let Some(correspondent) = &peer.link.correspondent else { return Err(responder) };
    match request.method {
        Ping::METHOD => {
            answer(
                peer,
                knows,
                request,
                responder,
                |_: Received<Ping>| async move { Ok(Pong::new(Status::Idle)) },
            )
        }
        Discover::METHOD => {
            let capabilities = correspondent.capabilities();
            answer(peer, knows, request, responder, |_: Received<Discover>| async move { Ok(capabilities) });
        }
        Query::METHOD => {
            let correspondent = correspondent.clone();
            answer(peer, knows, request, responder, |query| Erased::query(correspondent, query));
        }
        _ => return Err(responder),
    }
    Ok(())
}

fn answer<P: Ask, F>(
    peer: &PeerAgent,
    knows: &Knows,
    request: Incoming<'_>,
    responder: Responder,
    handler: impl FnOnce(Received<P>) -> F,
) where
    F: Future<Output = Result<P::Reply, Fault>> + Send + 'static,
{
    match read::<P>(peer, knows, request.params) {
        Ok(received) => {
            let peer = received.peer.clone();
            let asked = received.envelope.id.clone();
            let work = handler(received);
            responder.spawn(async move {
                match work.await {
                    Ok(payload) => Ok(Reply::new(peer.envelope(payload).reference(asked))),
                    Err(fault) => Err(to_wire(peer.envelope(fault).reference(asked))),
                }
            });
        }
        Err((asked, fault)) => {
            let mut envelope = peer.envelope(fault);
            envelope.reference = asked;
            responder.respond::<()>(Err(to_wire(envelope)));
        }
    }
}

/// Reads what a request carries and checks whatever can be checked of every kind.
fn read<P: Payload>(
    peer: &PeerAgent,
    knows: &Knows,
    params: Option<&RawValue>,
) -> Result<Received<P>, (Option<EnvelopeId>, Fault)> {
    let invalid = |message: String| Fault::of(FaultCode::InvalidParameter, message);
    let Carried { session_id, envelope, .. } =
        serde_json::from_str::<Carried>(params.map_or("{}", RawValue::get))
            .map_err(|error| (None, invalid(duologue_schema::envelope::fault_in(P::METHOD, &error))))?;
    let id = Some(envelope.id.clone());
    check(peer, &envelope).map_err(|fault| (id.clone(), fault))?;
    let sender = match session_id {
        Some(session) if !knows(&session) => {
            return Err((id, Fault::of(FaultCode::NotFound, "unknown session")));
        }
        Some(session) => peer.in_session(session),
        None if matches!(
            P::KIND,
            duologue_schema::envelope::Kind::Ping | duologue_schema::envelope::Kind::Discover
        ) =>
        {
            peer.clone()
        }
        None => return Err((id, invalid(format!("{}: missing field `sessionId`", P::METHOD)))),
    };
    let envelope = envelope.open::<P>().map_err(|fault| (id, fault))?;
    Ok(Received::new(envelope, sender))
}

fn check(peer: &PeerAgent, envelope: &Envelope) -> Result<(), Fault> {
    if envelope.v != VERSION {
        let message = format!("version {} of envelopes is not spoken here, version {VERSION} is", envelope.v);
        return Err(Fault::of(FaultCode::UnsupportedVersion, message));
    }
    if !envelope.to.as_str().is_empty() && envelope.to != *peer.own_id() {
        return Err(Fault::of(FaultCode::NotFound, format!("no agent {} here: `to` is wrong", envelope.to)));
    }
    Ok(())
}

/// Answers a request that carries an envelope of a kind that does not exist.
pub(crate) fn unknown_kind(
    peer: &PeerAgent,
    request: Incoming<'_>,
    responder: Responder,
) -> Result<(), Responder> {
    let _ = (peer, request);
    Err(responder)
}

/// Takes a notification that carries an envelope; tells whether it was one.
pub(crate) fn notification(peer: &PeerAgent, knows: &Knows, notification: Incoming<'_>) -> bool {
    let _ = (peer, knows, notification);
    false
}

/// The connection has ended.
pub(crate) fn closed(peer: &PeerAgent, reason: &Closed) {
    let _ = (peer, reason, Arc::strong_count(&peer.link));
}
