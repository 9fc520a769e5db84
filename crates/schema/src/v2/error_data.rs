//! The details of errors that version 2 defines.

use duologue_schema_derive::wire;
use serde::{Deserialize, Deserializer, Serialize};

use crate::wire::{Lenient, schema_of};
use crate::{Json, ProtocolVersion, SessionId};

/// The `data` of an error.
///
/// ```
/// use duologue_schema::{Error, ErrorCode, v2::ErrorData};
///
/// let error = Error::new(ErrorCode::RESOURCE_NOT_FOUND, "no such session").data(serde_json::json!({"sessionId": "s"}));
/// let data: ErrorData = error.data.unwrap().parse()?;
/// assert!(matches!(data, ErrorData::SessionNotFound(data) if data.session_id == "s"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum ErrorData {
    /// The agent does not support the version of the client.
    UnsupportedProtocolVersion(UnsupportedProtocolVersionErrorData),
    /// The session does not exist.
    SessionNotFound(SessionNotFoundErrorData),
    /// Any other value.
    Other(Json),
}

impl<'de> Deserialize<'de> for ErrorData {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(d)?;
        if let Ok(data) = json.parse() {
            return Ok(Self::UnsupportedProtocolVersion(data));
        }
        Ok(json.parse().map_or(Self::Other(json), Self::SessionNotFound))
    }
}

impl Lenient for ErrorData {}

schema_of!(ErrorData, "ErrorData", |generator| {
    let variants = [
        generator.subschema_for::<UnsupportedProtocolVersionErrorData>(),
        generator.subschema_for::<SessionNotFoundErrorData>(),
        generator.subschema_for::<Json>(),
    ];
    crate::export::any_of("The `data` of an error.", variants)
});

/// The details of an error about a version that the agent does not support.
#[wire]
pub struct UnsupportedProtocolVersionErrorData {
    /// The version of the client.
    pub requested: ProtocolVersion,
    /// The versions of the agent.
    pub supported: Vec<ProtocolVersion>,
}

/// The details of an error about a session that does not exist.
#[wire]
pub struct SessionNotFoundErrorData {
    /// The session.
    pub session_id: SessionId,
}
