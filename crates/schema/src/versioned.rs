//! Messages that are written in the form of the protocol version of their connection.

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::*;

/// A message of the domain with a form in each protocol version.
///
/// The SDKs use it to write messages. Its serialization is that of version 1.
pub trait Versioned: Serialize {
    /// Writes the form of version 2. It equals that of version 1, unless the type says otherwise.
    ///
    /// # Errors
    ///
    /// Those of the serializer, and an error for a value without a form in version 2.
    fn serialize_v2<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.serialize(serializer)
    }
}

impl<T: Versioned> Versioned for &T {
    fn serialize_v2<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        T::serialize_v2(self, serializer)
    }
}

/// A message with the version in which it is written.
#[derive(Clone, Copy, Debug)]
pub struct InVersion<T> {
    /// The version of the connection.
    pub version: ProtocolVersion,
    /// The message.
    pub message: T,
}

impl<T: Versioned> Serialize for InVersion<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.version {
            ProtocolVersion::V1 => self.message.serialize(serializer),
            _ => self.message.serialize_v2(serializer),
        }
    }
}

/// Declares messages whose forms are equal, and messages with another type in version 2.
macro_rules! versioned {
    ($($same:ident,)* ; $($v1:ident => $v2:ident,)*) => {
        $(impl Versioned for $same {})*
        $(impl Versioned for $v1 {
            #[cfg(feature = "protocol-v2")]
            fn serialize_v2<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let message: v2::$v2 = self.clone().try_into().map_err(serde::ser::Error::custom)?;
                message.serialize(serializer)
            }
        })*
    };
}

versioned! {
    // Version 2 has no files, terminals and modes of the client. The capability checks reject them.
    ReadTextFileRequest,
    WriteTextFileRequest,
    CreateTerminalRequest,
    TerminalOutputRequest,
    WaitForTerminalExitRequest,
    KillTerminalRequest,
    ReleaseTerminalRequest,
    SetSessionModeRequest,
    SetSessionModeResponse,
    CloseSessionRequest,
    CloseSessionResponse,
    DeleteSessionRequest,
    DeleteSessionResponse,
    CompleteElicitationNotification,
    ;
    AuthenticateRequest => LoginAuthRequest,
    AuthenticateResponse => LoginAuthResponse,
    LogoutRequest => LogoutAuthRequest,
    LogoutResponse => LogoutAuthResponse,
    InitializeResponse => InitializeResponse,
    NewSessionRequest => NewSessionRequest,
    NewSessionResponse => NewSessionResponse,
    LoadSessionRequest => ResumeSessionRequest,
    LoadSessionResponse => ResumeSessionResponse,
    ResumeSessionRequest => ResumeSessionRequest,
    ResumeSessionResponse => ResumeSessionResponse,
    ListSessionsRequest => ListSessionsRequest,
    ListSessionsResponse => ListSessionsResponse,
    SetSessionConfigOptionRequest => SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse => SetSessionConfigOptionResponse,
    PromptRequest => PromptRequest,
    SessionNotification => UpdateSessionNotification,
    RequestPermissionRequest => RequestPermissionRequest,
    CreateElicitationRequest => CreateElicitationRequest,
}

#[cfg(feature = "protocol-v2")]
impl Versioned for v2::CancelTerminalResponse {}

/// A request of the client with a form in each protocol version.
pub trait VersionedRequest: Request + Versioned {
    /// The name of the method in version 2.
    const METHOD_V2: &'static str = Self::METHOD;

    /// Reads a result of version 2.
    ///
    /// # Errors
    ///
    /// The result does not fit the method.
    fn read_result_v2(result: &RawValue) -> Result<Self::Result, serde_json::Error> {
        serde_json::from_str(result.get())
    }
}

/// Declares requests whose results are equal, and requests with another result in version 2.
macro_rules! versioned_requests {
    ($($same:ident,)* ; $($v1:ident($method:literal) => $v2:ident,)*) => {
        $(impl VersionedRequest for $same {})*
        $(impl VersionedRequest for $v1 {
            const METHOD_V2: &'static str = $method;

            #[cfg(feature = "protocol-v2")]
            fn read_result_v2(result: &RawValue) -> Result<Self::Result, serde_json::Error> {
                serde_json::from_str::<v2::$v2>(result.get()).map(Into::into)
            }
        })*
    };
}

versioned_requests! {
    SetSessionModeRequest,
    CloseSessionRequest,
    DeleteSessionRequest,
    ;
    AuthenticateRequest("auth/login") => LoginAuthResponse,
    LogoutRequest("auth/logout") => LogoutAuthResponse,
    NewSessionRequest("session/new") => NewSessionResponse,
    LoadSessionRequest("session/resume") => ResumeSessionResponse,
    ResumeSessionRequest("session/resume") => ResumeSessionResponse,
    ListSessionsRequest("session/list") => ListSessionsResponse,
    SetSessionConfigOptionRequest("session/set_config_option") => SetSessionConfigOptionResponse,
}
