//! Elicitations: an agent asks the user to fill in a form or to open a URL.
//!
//! See [Elicitation](https://agentclientprotocol.com/protocol/v1/elicitation).

use std::collections::BTreeMap;

use duologue_schema_derive::wire;
use serde::de::{Error as _, MapAccess};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize};

use crate::wire::{ReadFields, WriteFields, lenient, read_struct, schema_of};
use crate::{ElicitationId, ElicitationSchema, RequestId, SessionId, ToolCallId};

/// The params of `elicitation/create`, which asks the user for input.
#[wire]
pub struct CreateElicitationRequest {
    /// The question to show to the user.
    pub message: String,
    /// The mode of the elicitation.
    #[wire(flatten)]
    pub mode: ElicitationMode,
}

/// The mode of an elicitation. The client must have advertised it.
#[wire(tag = "mode", open)]
pub enum ElicitationMode {
    /// A form.
    Form(Box<ElicitationFormMode>),
    /// A URL.
    Url(Box<ElicitationUrlMode>),
}

impl ElicitationMode {
    /// Returns the session that the elicitation belongs to, if it belongs to one.
    #[must_use]
    pub fn session_id(&self) -> Option<&SessionId> {
        self.session_scope().map(|scope| &scope.session_id)
    }

    /// Returns the tool call that the elicitation belongs to, if it belongs to one.
    #[must_use]
    pub fn tool_call_id(&self) -> Option<&ToolCallId> {
        self.session_scope()?.tool_call_id.as_ref()
    }

    fn session_scope(&self) -> Option<&ElicitationSessionScope> {
        let scope = match self {
            Self::Form(form) => &form.scope,
            Self::Url(url) => &url.scope,
            Self::Unknown(_) => return None,
        };
        match scope {
            ElicitationScope::Session(scope) => Some(scope),
            ElicitationScope::Request(_) => None,
        }
    }
}

/// A form to fill in. Never for secrets.
#[wire(no_meta)]
pub struct ElicitationFormMode {
    /// The session or request that the elicitation belongs to.
    #[wire(flatten)]
    pub scope: ElicitationScope,
    /// The fields of the form.
    pub requested_schema: ElicitationSchema,
}

/// A URL to open after the user agreed.
#[wire(no_meta)]
pub struct ElicitationUrlMode {
    /// The session or request that the elicitation belongs to.
    #[wire(flatten)]
    pub scope: ElicitationScope,
    /// The id of the elicitation, for `elicitation/complete`.
    pub elicitation_id: ElicitationId,
    /// The URL. The client shows it in full before it opens it.
    pub url: String,
}

/// The session or request that an elicitation belongs to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ElicitationScope {
    /// A session.
    Session(ElicitationSessionScope),
    /// A request, for example before the first session.
    Request(ElicitationRequestScope),
}

/// The scope of an elicitation that belongs to a session.
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

/// If both ids are present, the scope is the session.
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

/// The fields of both scopes. `null` is a legal `RequestId`, so its slot is set even by `null`.
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

schema_of!(inline ElicitationScope, "ElicitationScope", |generator| {
    let variants = [
        generator.subschema_for::<ElicitationSessionScope>(),
        generator.subschema_for::<ElicitationRequestScope>(),
    ];
    crate::export::any_of("The session or request that an elicitation belongs to.", variants)
});

/// The answer to `elicitation/create`.
#[wire]
pub struct CreateElicitationResponse {
    /// The action of the user.
    #[wire(flatten)]
    pub action: ElicitationAction,
}

impl CreateElicitationResponse {
    /// Creates the response for a form that the user filled in.
    pub fn accept(content: impl Into<BTreeMap<String, ElicitationContentValue>>) -> Self {
        Self::new(ElicitationAcceptAction::new().content(content))
    }

    /// Creates the response for a user who declined.
    #[must_use]
    pub fn decline() -> Self {
        Self::new(ElicitationAction::Decline)
    }

    /// Creates the response for a dismissed question or a cancelled turn.
    #[must_use]
    pub fn cancel() -> Self {
        Self::new(ElicitationAction::Cancel)
    }
}

/// The action of the user.
#[wire(tag = "action", open)]
pub enum ElicitationAction {
    /// The user filled in the form, or agreed to open the URL.
    Accept(ElicitationAcceptAction),
    /// The user declined.
    Decline,
    /// The user dismissed the question.
    Cancel,
}

/// The values of a form.
#[wire(no_meta)]
pub struct ElicitationAcceptAction {
    /// A value for each field.
    pub content: Option<BTreeMap<String, ElicitationContentValue>>,
}

/// The value of a field of a form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a string, a number, a boolean or a list of strings")]
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
    /// Any other value. Only version 2 has it.
    #[cfg(feature = "protocol-v2")]
    Other(serde_json::Value),
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

schema_of!(ElicitationContentValue, "ElicitationContentValue", |generator| {
    let mut variants = vec![
        generator.subschema_for::<String>(),
        generator.subschema_for::<i64>(),
        generator.subschema_for::<f64>(),
        generator.subschema_for::<bool>(),
        generator.subschema_for::<Vec<String>>(),
    ];
    if cfg!(feature = "protocol-v2") && crate::export::has_feature("protocol-v2") {
        variants.push(schemars::json_schema!({}));
    }
    crate::export::any_of("The value of a field of a form.", variants)
});

/// The params of `elicitation/complete`: the task at the URL is complete.
#[wire]
pub struct CompleteElicitationNotification {
    /// The id of the elicitation.
    pub elicitation_id: ElicitationId,
}

impl From<ElicitationId> for CompleteElicitationNotification {
    fn from(id: ElicitationId) -> Self {
        Self::new(id)
    }
}

impl From<&str> for CompleteElicitationNotification {
    fn from(id: &str) -> Self {
        Self::new(id)
    }
}

impl From<String> for CompleteElicitationNotification {
    fn from(id: String) -> Self {
        Self::new(id)
    }
}
