//! The envelope: twelve kinds of messages from agent to agent, carried by `_session/<kind>`.
//!
//! None of this is ACP's: the names start with `_`, which ACP leaves to extensions, and a peer says in
//! `initialize` whether it speaks them ([`DuologueCapabilities`](crate::DuologueCapabilities)).

mod fault;
mod payload;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::ids::ids;
use crate::v1::methods::params_fault;
use crate::{Json, Meta, Notification, Request, SessionId};

pub use fault::{Fault, FaultCode};
pub use payload::{
    Ack, Cancel, Capabilities, Delegate, Discover, Importance, Kind, METHODS, Notify, Outcome, OutcomeStatus,
    Ping, Pong, Priority, Query, Response, Status,
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
    pub kind: Kind,
    /// The message it answers or belongs to: `ref` on the wire.
    #[serde(rename = "ref")]
    pub reference: Option<EnvelopeId>,
    /// What it carries. An absent one reads as `null`, and `null` as an empty object.
    pub payload: P,
}

impl<P: Payload> Envelope<P> {
    /// An envelope around `payload`.
    #[must_use]
    pub fn new(id: impl Into<EnvelopeId>, from: impl Into<AgentId>, to: impl Into<AgentId>, ts: u64, payload: P) -> Self {
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
    pub fn open<P: Payload>(self) -> Result<Envelope<P>, Fault> {
        let Envelope { v, id, from, to, ts, kind, reference, payload } = self;
        if kind != P::KIND {
            let message = format!("this is the method of {}, not of {kind}", P::KIND);
            return Err(Fault::of(FaultCode::KindMismatch, message));
        }
        let payload = payload
            .parse()
            .map_err(|error| Fault::of(FaultCode::InvalidParameter, params_fault(&kind, &error)))?;
        Ok(Envelope { v, id, from, to, ts, kind, reference, payload })
    }
}

impl<'de, P: DeserializeOwned> Deserialize<'de> for Envelope<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Raw {
            v: Option<u32>,
            id: EnvelopeId,
            from: AgentId,
            to: AgentId,
            ts: u64,
            kind: Kind,
            #[serde(rename = "ref")]
            reference: Option<EnvelopeId>,
            payload: Option<Box<RawValue>>,
        }
        let Raw { v, id, from, to, ts, kind, reference, payload } = Raw::deserialize(deserializer)?;
        let payload = serde_json::from_str(payload.as_deref().map_or("null", RawValue::get))
            .map_err(serde::de::Error::custom)?;
        Ok(Envelope { v: v.unwrap_or(VERSION), id, from, to, ts, kind, reference, payload })
    }
}

/// What an envelope carries, and so what kind it is.
pub trait Payload: Serialize + DeserializeOwned + Send + 'static {
    /// The kind.
    const KIND: Kind;
    /// The method that carries envelopes of this kind.
    const METHOD: &'static str;
}

/// A payload that is answered.
pub trait Ask: Payload {
    /// What the answer carries.
    type Reply: Payload;
}

/// A payload that travels as a notification.
pub trait Tell: Payload {}

/// The params of `_session/<kind>`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound = "P: Serialize + DeserializeOwned")]
#[non_exhaustive]
pub struct Carried<P = Json> {
    /// The session it is sent in. `ping` and `discover` need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The message.
    pub envelope: Envelope<P>,
    /// Extension data.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl<P> Carried<P> {
    /// An envelope in a session, or in none.
    #[must_use]
    pub fn new(session_id: Option<SessionId>, envelope: Envelope<P>) -> Self {
        Carried { session_id, envelope, meta: None }
    }
}

/// The result of `_session/<kind>`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound = "P: Serialize + DeserializeOwned")]
#[non_exhaustive]
pub struct Reply<P = Json> {
    /// The answer.
    pub envelope: Envelope<P>,
    /// Extension data.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl<P> Reply<P> {
    /// An answer.
    #[must_use]
    pub fn new(envelope: Envelope<P>) -> Self {
        Reply { envelope, meta: None }
    }
}

impl<P: Ask> Request for Carried<P> {
    const METHOD: &'static str = P::METHOD;
    type Result = Reply<P::Reply>;
}

impl<P: Tell> Notification for Carried<P> {
    const METHOD: &'static str = P::METHOD;
}

/// Says what is wrong with the params of an envelope's method, without repeating any of them.
#[must_use]
pub fn fault_in(method: &str, error: &serde_json::Error) -> String {
    params_fault(&method, error)
}
