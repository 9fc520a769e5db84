//! Parsing of incoming envelopes. The id of an invalid envelope is extracted where possible, so
//! that the error can refer to it.

use duologue_schema::envelope::{
    AgentId, Envelope, EnvelopeError, EnvelopeErrorCode, EnvelopeId, EnvelopeKind, EnvelopeParams, Payload,
    VERSION,
};
use duologue_schema::params_fault;
use duologue_schema::{Json, Meta, SessionId};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::Received;
use super::events;
use super::outgoing::attached_bytes;
use crate::hops::{Hops, are_counted};
use crate::peer_agent::PeerAgent;
use crate::service::SessionLookup;

/// A message that cannot be handled, and the parts of it that could be parsed.
#[derive(Debug)]
pub(crate) struct InvalidEnvelope {
    pub(crate) head: EnvelopeHead,
    pub(crate) fault: EnvelopeError,
}

/// Parses the params of a method and makes the checks that apply to every kind.
pub(crate) fn read<P: Payload>(
    peer: &PeerAgent,
    knows: &SessionLookup,
    params: Option<&RawValue>,
) -> Result<Received<P>, Box<InvalidEnvelope>> {
    let Received { envelope, peer, hops, meta } = read_unopened::<P>(peer, knows, params)?;
    let head = EnvelopeHead::valid(&envelope);
    let opened = envelope.open().and_then(|envelope| {
        check_attachments(&peer, &envelope)?;
        Ok(envelope)
    });
    match opened {
        Ok(envelope) => {
            events::received(&envelope);
            Ok(Received { envelope, peer, hops, meta })
        }
        Err(fault) => Err(EnvelopeHead { session: peer.session().cloned(), ..head }.unfit(fault)),
    }
}

/// Parses an envelope without its payload. The caller that waits for a response parses the payload.
pub(crate) fn read_unopened<P: Payload>(
    peer: &PeerAgent,
    knows: &SessionLookup,
    params: Option<&RawValue>,
) -> Result<Received<Json>, Box<InvalidEnvelope>> {
    let EnvelopeParams { session_id: session, envelope, meta, .. } = parse(P::METHOD, params)?;
    let checked = check(peer, &envelope)
        .and_then(|()| check_session(&P::KIND, session.as_ref(), knows))
        .and_then(|()| check_reference(&P::KIND, &envelope))
        .and_then(|()| are_counted(&P::KIND).then(|| Hops::of(meta.as_ref())).transpose());
    let hops = match checked {
        Ok(hops) => hops,
        Err(fault) => return Err(EnvelopeHead { session, ..EnvelopeHead::valid(&envelope) }.unfit(fault)),
    };
    let sender = match session {
        Some(session) => peer.in_session(session),
        None => peer.clone(),
    };
    let sender = sender.in_trace(meta.as_ref().and_then(Meta::trace_context));
    let sender = match hops {
        Some(hops) => sender.for_handler(hops),
        None => sender,
    };
    Ok(Received::new(envelope, sender, hops.unwrap_or_default(), meta))
}

fn parse(method: &str, params: Option<&RawValue>) -> Result<EnvelopeParams, Box<InvalidEnvelope>> {
    let text = params.map_or("{}", RawValue::get);
    serde_json::from_str(text).map_err(|error| {
        let head = EnvelopeHead::of(text);
        let fault = match &head.version {
            // Another version may have another form, so the version is reported instead of the
            // mismatch.
            Some(version) if version.parse() != Ok(f64::from(VERSION)) => unsupported(),
            _ => EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, params_fault(method, &error)),
        };
        head.unfit(fault)
    })
}

/// Checks the version and the addressee of an envelope.
pub(crate) fn check(peer: &PeerAgent, envelope: &Envelope) -> Result<(), EnvelopeError> {
    if envelope.v != VERSION {
        return Err(unsupported());
    }
    if !envelope.to.as_str().is_empty() && envelope.to != *peer.own_id() {
        let message = format!("`to` names another agent; this one is {}", peer.own_id());
        return Err(EnvelopeError::of(EnvelopeErrorCode::NotFound, message));
    }
    Ok(())
}

/// Checks the size of the attachments of an incoming message.
pub(crate) fn check_attachments<P: Payload>(
    peer: &PeerAgent,
    envelope: &Envelope<P>,
) -> Result<(), EnvelopeError> {
    let (bytes, limit) = (attached_bytes(&envelope.payload), peer.link.max_attachment_bytes);
    if bytes <= limit {
        return Ok(());
    }
    let message = format!(
        "the attachments of the {} have {bytes} bytes, more than Exchange::max_attachment_bytes = {limit}",
        P::KIND
    );
    Err(EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, message))
}

/// Checks the session. Responses and errors are matched by `ref`, and a result may arrive after its
/// session has ended.
fn check_session(
    kind: &EnvelopeKind,
    session: Option<&SessionId>,
    knows: impl Fn(&SessionId) -> bool,
) -> Result<(), EnvelopeError> {
    match (kind, session) {
        (kind, None) if kind.needs_session() => {
            let message = format!("_session/{kind}: missing field `sessionId`");
            Err(EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, message))
        }
        (kind, Some(session))
            if (kind.response().is_some() || *kind == EnvelopeKind::Notify) && !knows(session) =>
        {
            Err(EnvelopeError::of(EnvelopeErrorCode::NotFound, "unknown session"))
        }
        _ => Ok(()),
    }
}

/// Checks that a message about another one has a `ref`.
fn check_reference(kind: &EnvelopeKind, envelope: &Envelope) -> Result<(), EnvelopeError> {
    if kind.needs_ref() && envelope.reference.is_none() {
        let message = format!("_session/{kind}: missing field `ref`");
        return Err(EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, message));
    }
    Ok(())
}

fn unsupported() -> EnvelopeError {
    let message = format!("unsupported envelope version; supported: {VERSION}");
    EnvelopeError::of(EnvelopeErrorCode::UnsupportedVersion, message)
}

/// The parts of an invalid message that an error about it needs.
#[derive(Debug, Default)]
pub(crate) struct EnvelopeHead {
    /// True if the params contain an object named `envelope`.
    pub(crate) is_envelope: bool,
    version: Option<String>,
    pub(crate) id: Option<EnvelopeId>,
    pub(crate) from: Option<AgentId>,
    pub(crate) session: Option<SessionId>,
    pub(crate) reference: Option<EnvelopeId>,
}

impl EnvelopeHead {
    pub(crate) fn unfit(self, fault: EnvelopeError) -> Box<InvalidEnvelope> {
        Box::new(InvalidEnvelope { head: self, fault })
    }

    /// Returns the parts of an envelope that was parsed. The session is beside it.
    fn valid(envelope: &Envelope) -> Self {
        EnvelopeHead {
            is_envelope: true,
            id: Some(envelope.id.clone()),
            from: Some(envelope.from.clone()),
            reference: envelope.reference.clone(),
            ..EnvelopeHead::default()
        }
    }

    /// Parses each part by itself.
    pub(crate) fn of(params: &str) -> Self {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow, rename = "sessionId")]
            session: Option<&'a RawValue>,
            #[serde(borrow)]
            envelope: Option<&'a RawValue>,
        }
        #[derive(Default, Deserialize)]
        struct Parts<'a> {
            #[serde(borrow)]
            v: Option<&'a RawValue>,
            #[serde(borrow)]
            id: Option<&'a RawValue>,
            #[serde(borrow)]
            from: Option<&'a RawValue>,
            #[serde(borrow, rename = "ref")]
            reference: Option<&'a RawValue>,
        }
        let Ok(params) = serde_json::from_str::<Params<'_>>(params) else { return EnvelopeHead::default() };
        let envelope = params.envelope.filter(|envelope| envelope.get().starts_with('{'));
        let parts = envelope.and_then(|envelope| serde_json::from_str::<Parts<'_>>(envelope.get()).ok());
        let parts = parts.unwrap_or_default();
        EnvelopeHead {
            is_envelope: envelope.is_some(),
            version: parts.v.map(|v| v.get().to_owned()),
            id: part(parts.id),
            from: part(parts.from),
            session: part(params.session),
            reference: part(parts.reference),
        }
    }
}

fn part<T: DeserializeOwned>(raw: Option<&RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}
