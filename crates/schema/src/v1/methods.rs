//! The one table of methods, with the types of their params and results.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::*;
use crate::fault_place::fault_place;
use crate::{Error, Notification};

/// The side that handles a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodSide {
    /// The agent handles it, and a client sends it.
    Agent,
    /// The client handles it, and an agent sends it.
    Client,
    /// Both sides handle it.
    Protocol,
}

/// One row of the table of methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MethodRow {
    /// The name on the wire.
    pub method: &'static str,
    /// The name of the variant that holds its params.
    pub name: &'static str,
    /// The type of the params.
    pub params: &'static str,
    /// The type of the result. `None` for a notification.
    pub result: Option<&'static str>,
    /// The side that handles the method.
    pub side: MethodSide,
}

/// Declares the methods that one side handles. Those in the braces after `with` have their traits from another table.
macro_rules! methods {
    (
        $side:ident, $(#[$rows_doc:meta])* $rows_vis:vis $rows:ident;
        $(#[$response_doc:meta])* $responses:ident;
        $(#[$request_doc:meta])* $requests:ident {
            $($method:literal $request:ident($params:ident) -> $result:ident,)*
        } with {
            $($other_method:literal $other_request:ident($other_params:ident) -> $other_result:ident,)*
        }
        $(#[$notification_doc:meta])* $notifications:ident {
            $($name:literal $notification:ident($event:ident),)*
        } with {
            $($other_name:literal $other_notification:ident($other_event:ident),)*
        }
    ) => {
        $(impl $crate::Request for $params {
            const METHOD: &'static str = $method;
            type Result = $result;
        })*
        $(impl $crate::Notification for $event {
            const METHOD: &'static str = $name;
        })*
        $crate::v1::methods! { @enum $(#[$request_doc])* $requests {
            $($method $request($params),)* $($other_method $other_request($other_params),)*
        } }
        $crate::v1::methods! { @enum $(#[$notification_doc])* $notifications {
            $($name $notification($event),)* $($other_name $other_notification($other_event),)*
        } }
        $crate::v1::methods! { @enum $(#[$response_doc])* $responses {
            $($method $request($result),)* $($other_method $other_request($other_result),)*
        } }
        $crate::v1::methods! { @decode $requests {
            $($method $request,)* $($other_method $other_request,)*
        } }
        $crate::v1::methods! { @decode $notifications {
            $($name $notification,)* $($other_name $other_notification,)*
        } }
        $(#[$rows_doc])*
        $rows_vis const $rows: &[$crate::MethodRow] = &[
            $($crate::v1::row($method, stringify!($request), stringify!($params), Some(stringify!($result)),
                $crate::MethodSide::$side),)*
            $($crate::v1::row($other_method, stringify!($other_request), stringify!($other_params),
                Some(stringify!($other_result)), $crate::MethodSide::$side),)*
            $($crate::v1::row($name, stringify!($notification), stringify!($event), None,
                $crate::MethodSide::$side),)*
            $($crate::v1::row($other_name, stringify!($other_notification), stringify!($other_event), None,
                $crate::MethodSide::$side),)*
        ];
    };
    (@enum $(#[$doc:meta])* $enum:ident { $($method:literal $variant:ident($params:ident),)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        #[allow(clippy::large_enum_variant, reason = "every value is matched right after decoding")]
        // Exhaustive on purpose: every match has to route a new method.
        pub enum $enum {
            $(#[doc = concat!("`", $method, "`")] $variant($params),)*
        }

        impl $enum {
            /// Reads the value of `method` from any source. Returns `None` for an unknown method.
            ///
            /// The error is that of the source and may quote its input. Show it in a local tool, but
            /// never send it to a peer.
            pub fn read<'de, D: serde::Deserializer<'de>>(
                method: &str,
                source: D,
            ) -> Option<Result<Self, D::Error>> {
                match method {
                    $($method => Some(serde::Deserialize::deserialize(source).map(Self::$variant)),)*
                    _ => None,
                }
            }

            /// The method's name on the wire.
            #[must_use]
            pub fn method(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $method,)*
                }
            }
        }

        impl serde::Serialize for $enum {
            /// Writes the value in the variant.
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$variant(params) => params.serialize(serializer),)*
                }
            }
        }

        $(impl From<$params> for $enum {
            fn from(params: $params) -> Self {
                Self::$variant(params)
            }
        })*
    };
    (@decode $enum:ident { $($method:literal $variant:ident,)* }) => {
        impl $enum {
            /// Reads the params of `method`. Returns `None` for an unknown method. Absent params and
            /// `null` read as `{}`.
            #[must_use]
            pub fn decode(
                method: &str,
                params: Option<&serde_json::value::RawValue>,
            ) -> Option<Result<Self, $crate::Error>> {
                match method {
                    $($method => Some($crate::v1::decode($method, params).map(Self::$variant)),)*
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use methods;

/// Creates a row of the table.
pub(crate) const fn row(
    method: &'static str,
    name: &'static str,
    params: &'static str,
    result: Option<&'static str>,
    side: MethodSide,
) -> MethodRow {
    MethodRow { method, name, params, result, side }
}

methods! {
    Agent, AGENT_METHODS;
    /// The result of a request to an agent.
    AgentResponse;
    /// A request that a client sends to an agent.
    ClientRequest {
        "initialize" Initialize(InitializeRequest) -> InitializeResponse,
        "authenticate" Authenticate(AuthenticateRequest) -> AuthenticateResponse,
        "logout" Logout(LogoutRequest) -> LogoutResponse,
        "session/new" NewSession(NewSessionRequest) -> NewSessionResponse,
        "session/load" LoadSession(LoadSessionRequest) -> LoadSessionResponse,
        "session/list" ListSessions(ListSessionsRequest) -> ListSessionsResponse,
        "session/delete" DeleteSession(DeleteSessionRequest) -> DeleteSessionResponse,
        "session/resume" ResumeSession(ResumeSessionRequest) -> ResumeSessionResponse,
        "session/close" CloseSession(CloseSessionRequest) -> CloseSessionResponse,
        "session/set_mode" SetSessionMode(SetSessionModeRequest) -> SetSessionModeResponse,
        "session/set_config_option"
            SetSessionConfigOption(SetSessionConfigOptionRequest) -> SetSessionConfigOptionResponse,
        "session/prompt" Prompt(PromptRequest) -> PromptResponse,
    } with {}
    /// A notification that a client sends to an agent.
    ClientNotification {
        "session/cancel" Cancel(CancelNotification),
    } with {}
}

methods! {
    Client, CLIENT_METHODS;
    /// The result of a request to a client.
    ClientResponse;
    /// A request that an agent sends to a client.
    AgentRequest {
        "fs/write_text_file" WriteTextFile(WriteTextFileRequest) -> WriteTextFileResponse,
        "fs/read_text_file" ReadTextFile(ReadTextFileRequest) -> ReadTextFileResponse,
        "session/request_permission"
            RequestPermission(RequestPermissionRequest) -> RequestPermissionResponse,
        "terminal/create" CreateTerminal(CreateTerminalRequest) -> CreateTerminalResponse,
        "terminal/output" TerminalOutput(TerminalOutputRequest) -> TerminalOutputResponse,
        "terminal/release" ReleaseTerminal(ReleaseTerminalRequest) -> ReleaseTerminalResponse,
        "terminal/wait_for_exit"
            WaitForTerminalExit(WaitForTerminalExitRequest) -> WaitForTerminalExitResponse,
        "terminal/kill" KillTerminal(KillTerminalRequest) -> KillTerminalResponse,
        "elicitation/create" CreateElicitation(CreateElicitationRequest) -> CreateElicitationResponse,
    } with {}
    /// A notification that an agent sends to a client.
    AgentNotification {
        "session/update" SessionUpdate(SessionNotification),
        "elicitation/complete" CompleteElicitation(CompleteElicitationNotification),
    } with {}
}

impl Notification for CancelRequestNotification {
    const METHOD: &'static str = "$/cancel_request";
}

const PROTOCOL_METHODS: &[MethodRow] = &[row(
    <CancelRequestNotification as Notification>::METHOD,
    "CancelRequest",
    "CancelRequestNotification",
    None,
    MethodSide::Protocol,
)];

/// Every method, by the side that handles it.
pub const METHODS: [&[MethodRow]; 3] = [AGENT_METHODS, CLIENT_METHODS, PROTOCOL_METHODS];

/// Reads the params of `method`. The error names the member and does not quote its value.
pub(crate) fn decode<T: DeserializeOwned>(method: &str, params: Option<&RawValue>) -> Result<T, Error> {
    let text = params.map_or("{}", RawValue::get);
    serde_json::from_str(text)
        .map_err(|error| Error::invalid_params(fault(method, &error, &fault_place(text, &error))))
}

/// Describes an error in the params of `method` without quoting them.
#[must_use]
pub fn params_fault(method: impl std::fmt::Display, error: &serde_json::Error) -> String {
    fault(method, error, "")
}

/// Describes an error in the params of `method` at a place, which is empty for the params as a whole.
fn fault(method: impl std::fmt::Display, error: &serde_json::Error, place: &str) -> String {
    let text = error.to_string();
    // Written for a field that must be an integer. Serde's own messages do not begin like this.
    if text.starts_with("field `") {
        return format!("{method}: {}", text.split(" at line ").next().unwrap_or_default());
    }
    // Of all messages of serde, only `missing field` quotes nothing from the peer.
    let missing = text.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    match (missing, place) {
        (Some(field), "") => format!("{method}: missing field `{field}`"),
        (Some(field), place) => format!("{method}: missing field `{field}` in `{place}`"),
        (None, "") => format!("{method}: the params do not fit"),
        (None, place) => format!("{method}: the params do not fit: `{place}` is invalid"),
    }
}
