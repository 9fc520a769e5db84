//! The envelope: twelve kinds of messages from agent to agent, carried by `_session/<kind>`.
//!
//! None of this is ACP's: the names start with `_`, which ACP leaves to extensions, and a peer says in
//! `initialize` whether it speaks them ([`DuologueCapabilities`](crate::DuologueCapabilities)).

mod fault;
mod payload;

use std::fmt;

use serde::de::{DeserializeOwned, MapAccess};
use serde::{Deserialize, Deserializer, Serialize};

use crate::ids::ids;
use crate::v1::methods::params_fault;
use crate::wire::{ReadFields, lenient, read_struct, required};
use crate::{Json, Meta, Notification, Request, SessionId};

pub use fault::{EnvelopeError, EnvelopeErrorCode};
#[cfg(feature = "schemars")]
pub(crate) use payload::definitions;
pub use payload::{
    Ack, AgentStatus, Cancel, Capabilities, Delegate, DelegationOutcome, Discover, EnvelopeKind, Importance,
    METHODS, Notify, OutcomeStatus, PayloadVisitor, Ping, Pong, Priority, Query, QueryResponse,
};

/// The version of envelopes that this crate speaks: their `v`.
pub const VERSION: u32 = 1;

ids! {
    /// Names an envelope; its sender picks it, a UUID.
    EnvelopeId,
    /// Names an agent: hexadecimal digits, chosen by its owner or at random.
    AgentId,
}

/// A message from one agent to another.
///
/// `P` is what it carries: one of the payloads of this module, or [`Json`] for one that is only passed on.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Envelope<P = Json> {
    /// The version of the envelope, [`VERSION`]. One that does not say has version 1.
    pub v: u32,
    /// Which message this is.
    pub id: EnvelopeId,
    /// Who sends it.
    pub from: AgentId,
    /// Whom it is for.
    pub to: AgentId,
    /// When it was sent, in milliseconds since 1970.
    pub ts: u64,
    /// What it is.
    pub kind: EnvelopeKind,
    /// The message it answers or belongs to: `ref` on the wire.
    #[serde(rename = "ref")]
    pub reference: Option<EnvelopeId>,
    /// What it carries. An absent one reads as `null`, and `null` as an empty object.
    pub payload: P,
}

impl<P: Payload> Envelope<P> {
    /// An envelope around `payload`.
    #[must_use]
    pub fn new(
        id: impl Into<EnvelopeId>,
        from: impl Into<AgentId>,
        to: impl Into<AgentId>,
        ts: u64,
        payload: P,
    ) -> Self {
        let (id, from, to) = (id.into(), from.into(), to.into());
        Envelope { v: VERSION, id, from, to, ts, kind: P::KIND, reference: None, payload }
    }

    /// Sets the message it answers or belongs to.
    #[must_use]
    pub fn reference(mut self, reference: impl Into<EnvelopeId>) -> Self {
        self.reference = Some(reference.into());
        self
    }
}

impl Envelope {
    /// The envelope with its payload read as a `P`.
    ///
    /// # Errors
    ///
    /// When it is of another kind, or what it carries does not fit.
    pub fn open<P: Payload>(self) -> Result<Envelope<P>, EnvelopeError> {
        let Envelope { v, id, from, to, ts, kind, reference, payload } = self;
        if kind != P::KIND {
            let message = format!("this is the method of {}, not of {kind}", P::KIND);
            return Err(EnvelopeError::of(EnvelopeErrorCode::KindMismatch, message));
        }
        let payload = payload.parse().map_err(|error| {
            EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, params_fault(&kind, &error))
        })?;
        Ok(Envelope { v, id, from, to, ts, kind, reference, payload })
    }
}

impl<P: DeserializeOwned> ReadFields for Envelope<P> {
    type Slots = (
        Option<Option<u32>>,
        Option<EnvelopeId>,
        Option<AgentId>,
        Option<AgentId>,
        Option<u64>,
        Option<EnvelopeKind>,
        Option<Option<EnvelopeId>>,
        Option<P>,
    );

    fn read<'de, A: MapAccess<'de>>(
        slots: &mut Self::Slots,
        key: &str,
        map: &mut A,
    ) -> Result<bool, A::Error> {
        match key {
            "v" => slots.0 = Some(map.next_value()?),
            "id" => slots.1 = Some(map.next_value()?),
            "from" => slots.2 = Some(map.next_value()?),
            "to" => slots.3 = Some(map.next_value()?),
            "ts" => slots.4 = Some(map.next_value()?),
            "kind" => slots.5 = Some(map.next_value()?),
            "ref" => slots.6 = Some(map.next_value()?),
            "payload" => slots.7 = Some(map.next_value()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn finish<E: serde::de::Error>(
        (v, id, from, to, ts, kind, reference, payload): Self::Slots,
    ) -> Result<Self, E> {
        Ok(Envelope {
            v: v.flatten().unwrap_or(VERSION),
            id: required(id, "id")?,
            from: required(from, "from")?,
            to: required(to, "to")?,
            ts: required(ts, "ts")?,
            kind: required(kind, "kind")?,
            reference: reference.flatten(),
            payload: payload.map_or_else(|| serde_json::from_str("null"), Ok).map_err(E::custom)?,
        })
    }
}

impl<'de, P: DeserializeOwned> Deserialize<'de> for Envelope<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_struct(deserializer)
    }
}

/// What an envelope carries, and so what kind it is.
pub trait Payload: Serialize + DeserializeOwned + PartialEq + fmt::Debug + Send + 'static {
    /// The kind.
    const KIND: EnvelopeKind;
    /// The method that carries envelopes of this kind.
    const METHOD: &'static str;
}

/// A payload that is answered.
pub trait RequestPayload: Payload {
    /// The payload of the response.
    type Response: Payload;
}

/// A payload that travels as a notification.
pub trait NotificationPayload: Payload {}

/// The params of `_session/<kind>`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct EnvelopeParams<P = Json> {
    /// The session it is sent in. `ping` and `discover` need none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The message.
    pub envelope: Envelope<P>,
    /// Extension data.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl<P> EnvelopeParams<P> {
    /// An envelope in a session, or in none.
    #[must_use]
    pub fn new(session_id: Option<SessionId>, envelope: Envelope<P>) -> Self {
        EnvelopeParams { session_id, envelope, meta: None }
    }
}

impl<P: DeserializeOwned> ReadFields for EnvelopeParams<P> {
    type Slots = (Option<Option<SessionId>>, Option<Envelope<P>>, Option<Meta>);

    fn read<'de, A: MapAccess<'de>>(
        slots: &mut Self::Slots,
        key: &str,
        map: &mut A,
    ) -> Result<bool, A::Error> {
        match key {
            "sessionId" => slots.0 = Some(map.next_value()?),
            "envelope" => slots.1 = Some(map.next_value()?),
            "_meta" => slots.2 = lenient(map)?.ok(),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn finish<E: serde::de::Error>((session_id, envelope, meta): Self::Slots) -> Result<Self, E> {
        Ok(EnvelopeParams {
            session_id: session_id.flatten(),
            envelope: required(envelope, "envelope")?,
            meta,
        })
    }
}

impl<'de, P: DeserializeOwned> Deserialize<'de> for EnvelopeParams<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_struct(deserializer)
    }
}

/// The result of `_session/<kind>`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct EnvelopeResult<P = Json> {
    /// The answer.
    pub envelope: Envelope<P>,
    /// Extension data.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl<P> EnvelopeResult<P> {
    /// An answer.
    #[must_use]
    pub fn new(envelope: Envelope<P>) -> Self {
        EnvelopeResult { envelope, meta: None }
    }
}

impl<P: DeserializeOwned> ReadFields for EnvelopeResult<P> {
    type Slots = (Option<Envelope<P>>, Option<Meta>);

    fn read<'de, A: MapAccess<'de>>(
        slots: &mut Self::Slots,
        key: &str,
        map: &mut A,
    ) -> Result<bool, A::Error> {
        match key {
            "envelope" => slots.0 = Some(map.next_value()?),
            "_meta" => slots.1 = lenient(map)?.ok(),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn finish<E: serde::de::Error>((envelope, meta): Self::Slots) -> Result<Self, E> {
        Ok(EnvelopeResult { envelope: required(envelope, "envelope")?, meta })
    }
}

impl<'de, P: DeserializeOwned> Deserialize<'de> for EnvelopeResult<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_struct(deserializer)
    }
}

impl<P: RequestPayload> Request for EnvelopeParams<P> {
    const METHOD: &'static str = P::METHOD;
    type Result = EnvelopeResult<P::Response>;
}

impl<P: NotificationPayload> Notification for EnvelopeParams<P> {
    const METHOD: &'static str = P::METHOD;
}

/// Says what is wrong with the params of an envelope's method, without repeating any of them.
#[must_use]
pub fn fault_in(method: &str, error: &serde_json::Error) -> String {
    params_fault(&method, error)
}
