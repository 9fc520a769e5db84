//! Envelopes: twelve kinds of messages between agents, sent as `_session/<kind>`.
//!
//! Envelopes are not part of ACP. Their methods start with `_`, which ACP reserves for extensions. A
//! peer advertises envelopes in `initialize`, with [`DuologueCapabilities`](crate::DuologueCapabilities).

mod card;
mod fault;
mod payload;
mod question;
mod task;

use std::fmt;

use serde::de::{DeserializeOwned, MapAccess};
use serde::{Deserialize, Deserializer, Serialize};

use crate::ids::ids;
use crate::wire::{ReadFields, first, integer, lenient, optional_integer, read_struct, required};
pub use crate::{Attachment, AttachmentError};
use crate::{Json, Meta, Notification, Request, SessionId};

pub use card::{AgentCapability, DescribedCapability, Pricing, PricingModel};
pub use fault::{EnvelopeError, EnvelopeErrorCode};
#[cfg(feature = "schemars")]
pub(crate) use payload::definitions;
pub use payload::{
    Ack, AgentStatus, Cancel, Capabilities, Delegate, DelegationOutcome, Discover, EnvelopeKind, Importance,
    METHODS, Notify, OutcomeStatus, PayloadVisitor, Ping, Pong, Priority, Query, QueryResponse,
};
pub use question::Question;
pub use task::{OutputChunk, TaskState, TaskStatus};

/// The version of envelopes that this crate supports: the member `v`.
pub const VERSION: u32 = 1;

ids! {
    /// The id of an envelope, unique for its sender. This crate creates UUIDs, and others may use any text.
    EnvelopeId,
    /// The id of an agent: hexadecimal digits, configured or random.
    AgentId,
}

/// A message from one agent to another.
///
/// `P` is the payload: a type of this module, or [`Json`] for a message that is only forwarded.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Envelope<P = Json> {
    /// The version, [`VERSION`]. An absent version means 1.
    pub v: u32,
    /// The id of the message.
    pub id: EnvelopeId,
    /// The sender.
    pub from: AgentId,
    /// The recipient.
    pub to: AgentId,
    /// The time of sending, in milliseconds since 1970.
    pub ts: u64,
    /// The kind of the payload.
    pub kind: EnvelopeKind,
    /// The message that this one answers or refers to: `ref` on the wire.
    #[serde(rename = "ref")]
    pub reference: Option<EnvelopeId>,
    /// The payload. An absent payload reads as `null`, and `null` as an empty object.
    pub payload: P,
}

impl<P: Payload> Envelope<P> {
    /// Creates an envelope with a payload.
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

    /// Sets the message that this one answers or refers to.
    #[must_use]
    pub fn reference(mut self, reference: impl Into<EnvelopeId>) -> Self {
        self.reference = Some(reference.into());
        self
    }
}

impl Envelope {
    /// Decodes the payload as a `P`.
    ///
    /// # Errors
    ///
    /// If the kind is not that of `P`, or the payload is invalid.
    pub fn open<P: Payload>(self) -> Result<Envelope<P>, EnvelopeError> {
        let Envelope { v, id, from, to, ts, kind, reference, payload } = self;
        if kind != P::KIND {
            let message = format!("this is the method of {}, not of {kind}", P::KIND);
            return Err(EnvelopeError::of(EnvelopeErrorCode::KindMismatch, message));
        }
        let payload = payload.parse().map_err(|error| {
            EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, crate::params_fault(&kind, &error))
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
            "v" => {
                first(&slots.0, "v")?;
                slots.0 = Some(optional_integer(map, "v")?)
            }
            "id" => {
                first(&slots.1, "id")?;
                slots.1 = Some(map.next_value()?)
            }
            "from" => {
                first(&slots.2, "from")?;
                slots.2 = Some(map.next_value()?)
            }
            "to" => {
                first(&slots.3, "to")?;
                slots.3 = Some(map.next_value()?)
            }
            "ts" => {
                first(&slots.4, "ts")?;
                slots.4 = Some(integer(map, "ts")?)
            }
            "kind" => {
                first(&slots.5, "kind")?;
                slots.5 = Some(map.next_value()?)
            }
            "ref" => {
                first(&slots.6, "ref")?;
                slots.6 = Some(map.next_value()?)
            }
            "payload" => {
                first(&slots.7, "payload")?;
                slots.7 = Some(map.next_value()?)
            }
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

/// The payload of an envelope. It determines the kind.
pub trait Payload: Serialize + DeserializeOwned + PartialEq + fmt::Debug + Send + 'static {
    /// The kind of the envelope.
    const KIND: EnvelopeKind;
    /// The method that carries envelopes of this kind.
    const METHOD: &'static str;

    /// Returns the attachments. Some kinds have none.
    fn attached(&self) -> &[Attachment] {
        &[]
    }
}

/// A payload of a request.
pub trait RequestPayload: Payload {
    /// The payload of the response.
    type Response: Payload;
}

/// A payload of a notification.
pub trait NotificationPayload: Payload {}

/// The params of `_session/<kind>`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct EnvelopeParams<P = Json> {
    /// The session. `ping` and `discover` need none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The message.
    pub envelope: Envelope<P>,
    /// Extension data.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl<P> EnvelopeParams<P> {
    /// Creates params with or without a session.
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
            "sessionId" => {
                first(&slots.0, "sessionId")?;
                slots.0 = Some(map.next_value()?)
            }
            "envelope" => {
                first(&slots.1, "envelope")?;
                slots.1 = Some(map.next_value()?)
            }
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
    /// Creates a result.
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
            "envelope" => {
                first(&slots.0, "envelope")?;
                slots.0 = Some(map.next_value()?)
            }
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
