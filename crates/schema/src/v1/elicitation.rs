//! Questions an agent puts to the person: a form, or something to do at a URL.
//!
//! See [Elicitation](https://agentclientprotocol.com/protocol/v1/elicitation).

use std::collections::BTreeMap;
use std::fmt;

use duologue_schema_derive::wire;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize};

use crate::wire::{ReadFields, WriteFields, lenient, read_struct};
use crate::{ElicitationId, ElicitationSchema, RequestId, SessionId, ToolCallId};

/// `elicitation/create`: asks the person something.
#[wire]
pub struct CreateElicitationRequest {
    /// What is asked, for the person.
    pub message: String,
    /// How it is asked.
    #[wire(flatten)]
    pub mode: ElicitationMode,
}

/// How something is asked. A client must have said that it supports the mode.
#[wire(tag = "mode", open)]
pub enum ElicitationMode {
    /// By a form.
    Form(Box<ElicitationFormMode>),
    /// At a URL.
    Url(Box<ElicitationUrlMode>),
}

/// A form to fill in. Never for secrets.
#[wire(no_meta)]
pub struct ElicitationFormMode {
    /// What the question belongs to.
    #[wire(flatten)]
    pub scope: ElicitationScope,
    /// The fields of the form.
    pub requested_schema: ElicitationSchema,
}

/// A URL to open, after the person agreed.
#[wire(no_meta)]
pub struct ElicitationUrlMode {
    /// What the question belongs to.
    #[wire(flatten)]
    pub scope: ElicitationScope,
    /// Which elicitation, for `elicitation/complete`.
    pub elicitation_id: ElicitationId,
    /// The URL, to be shown in full before it is opened.
    pub url: String,
}

/// What a question belongs to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ElicitationScope {
    /// A session.
    Session(ElicitationSessionScope),
    /// A request, such as one before there are sessions.
    Request(ElicitationRequestScope),
}

/// A question that belongs to a session.
#[wire(no_meta)]
pub struct ElicitationSessionScope {
    /// The session.
    pub session_id: SessionId,
    /// The tool call, if it belongs to one.
    #[wire(lenient)]
    pub tool_call_id: Option<ToolCallId>,
}

/// A question that belongs to a request of the client.
#[wire(no_meta)]
pub struct ElicitationRequestScope {
    /// The request.
    pub request_id: RequestId,
}

impl From<ElicitationSessionScope> for ElicitationScope {
    fn from(scope: ElicitationSessionScope) -> Self {
        Self::Session(scope)
    }
}

impl From<ElicitationRequestScope> for ElicitationScope {
    fn from(scope: ElicitationRequestScope) -> Self {
        Self::Request(scope)
    }
}

impl From<SessionId> for ElicitationScope {
    fn from(session_id: SessionId) -> Self {
        Self::Session(ElicitationSessionScope::new(session_id))
    }
}

impl WriteFields for ElicitationScope {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        match self {
            Self::Session(scope) => scope.write(map),
            Self::Request(scope) => scope.write(map),
        }
    }
}

/// With both ids there, the session's counts.
impl<'de> Deserialize<'de> for ElicitationScope {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let Ids { session_id, tool_call_id, request_id } = read_struct(d)?;
        match (session_id, request_id) {
            (Some(session_id), _) => Ok(ElicitationSessionScope { session_id, tool_call_id }.into()),
            (None, Some(request_id)) => Ok(ElicitationRequestScope { request_id }.into()),
            (None, None) => Err(D::Error::missing_field("sessionId")),
        }
    }
}

/// Both scopes at once. `RequestId` has a `null` of its own, so an `Option` of it will not do.
#[derive(Default)]
struct Ids {
    session_id: Option<SessionId>,
    tool_call_id: Option<ToolCallId>,
    request_id: Option<RequestId>,
}

impl ReadFields for Ids {
    type Slots = Ids;

    fn read<'de, A: MapAccess<'de>>(slots: &mut Ids, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "sessionId" => slots.session_id = map.next_value()?,
            "toolCallId" => slots.tool_call_id = lenient(map)?.ok(),
            "requestId" => slots.request_id = Some(map.next_value()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn finish<E: serde::de::Error>(slots: Ids) -> Result<Self, E> {
        Ok(slots)
    }
}

#[cfg(feature = "schemars")]
impl schemars::JsonSchema for ElicitationScope {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ElicitationScope".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let variants = [
            generator.subschema_for::<ElicitationSessionScope>(),
            generator.subschema_for::<ElicitationRequestScope>(),
        ];
        crate::export::any_of("What a question belongs to.", variants)
    }
}

/// The answer to `elicitation/create`.
#[wire]
pub struct CreateElicitationResponse {
    /// What the person did.
    #[wire(flatten)]
    pub action: ElicitationAction,
}

impl CreateElicitationResponse {
    /// The person filled in the form.
    pub fn accept(content: impl Into<BTreeMap<String, ElicitationContentValue>>) -> Self {
        Self::new(ElicitationAcceptAction::new().content(content))
    }

    /// The person said no.
    #[must_use]
    pub fn decline() -> Self {
        Self::new(ElicitationAction::Decline)
    }

    /// The person closed the question, or the turn was cancelled.
    #[must_use]
    pub fn cancel() -> Self {
        Self::new(ElicitationAction::Cancel)
    }
}

/// What the person did.
#[wire(tag = "action", open)]
pub enum ElicitationAction {
    /// Filled in the form, or agreed to open the URL.
    Accept(ElicitationAcceptAction),
    /// Said no.
    Decline,
    /// Closed the question.
    Cancel,
}

/// The form as filled in.
#[wire(no_meta)]
pub struct ElicitationAcceptAction {
    /// A value for each field.
    pub content: Option<BTreeMap<String, ElicitationContentValue>>,
}

/// What a field of a form was filled with.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum ElicitationContentValue {
    /// Text.
    String(String),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// Yes or no.
    Boolean(bool),
    /// Several of the choices.
    StringArray(Vec<String>),
}

impl<'de> Deserialize<'de> for ElicitationContentValue {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct ValueVisitor;
        impl<'de> Visitor<'de> for ValueVisitor {
            type Value = ElicitationContentValue;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a number, a boolean or a list of strings")
            }
            fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
                Ok(value.into())
            }
            fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
                Ok(value.into())
            }
            fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
                Ok(value.into())
            }
            #[allow(clippy::cast_precision_loss)]
            fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
                Ok(i64::try_from(value).map_or_else(|_| (value as f64).into(), Into::into))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
                Ok(value.into())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = seq.next_element()? {
                    texts.push(text);
                }
                Ok(ElicitationContentValue::StringArray(texts))
            }
        }
        d.deserialize_any(ValueVisitor)
    }
}

macro_rules! values {
    ($($from:ty => $variant:ident,)*) => {$(
        impl From<$from> for ElicitationContentValue {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        }
    )*};
}

values! {
    &str => String,
    String => String,
    i64 => Integer,
    f64 => Number,
    bool => Boolean,
    Vec<String> => StringArray,
}

#[cfg(feature = "schemars")]
impl schemars::JsonSchema for ElicitationContentValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ElicitationContentValue".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let variants = [
            generator.subschema_for::<String>(),
            generator.subschema_for::<i64>(),
            generator.subschema_for::<f64>(),
            generator.subschema_for::<bool>(),
            generator.subschema_for::<Vec<String>>(),
        ];
        crate::export::any_of("What a field of a form was filled with.", variants)
    }
}

/// `elicitation/complete`: what was to be done at the URL is done.
#[wire]
pub struct CompleteElicitationNotification {
    /// Which elicitation.
    pub elicitation_id: ElicitationId,
}
