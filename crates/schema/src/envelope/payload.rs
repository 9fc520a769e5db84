//! The payloads of the twelve envelope kinds.

use duologue_schema_derive::wire;

use super::{AgentCapability, Attachment, EnvelopeError, Pricing, Question};
use crate::{Json, Members};

/// The members beside the payload that a method requires.
#[derive(PartialEq)]
enum Need {
    Session,
    Ref,
}

/// The one list of the envelope kinds.
///
/// A line of `requests` reads: type of the payload, kind, required members, type of the response,
/// definition of the result in the JSON Schema. A line of `notifications` reads: type of the payload,
/// definition of the params in the JSON Schema, variant of the kind, kind, required members. A payload
/// with attachments names their field last.
macro_rules! kinds {
    (
        requests {
            $(
                $request:ident $request_kind:literal [$($request_need:ident)*]
                -> $response:ident $result:literal $($request_parts:ident)?,
            )*
        }
        notifications {
            $($other:ident $params:literal $variant:ident $kind:literal [$($need:ident)*] $($parts:ident)?,)*
        }
    ) => {
        /// The kind of an envelope.
        #[wire(open, definition = "Kind")]
        pub enum EnvelopeKind {
            $(#[doc = concat!("`", $request_kind, "`, a request")] $request,)*
            $(#[doc = concat!("`", $kind, "`, a notification or an answer")] $variant,)*
        }

        impl EnvelopeKind {
            /// Every kind that this crate knows.
            pub const ALL: &[Self] = &[$(Self::$request,)* $(Self::$variant,)*];

            fn needs(&self) -> &'static [Need] {
                match self {
                    $(Self::$request => &[$(Need::$request_need),*],)*
                    $(Self::$variant => &[$(Need::$need),*],)*
                    Self::Unknown(_) => &[],
                }
            }

            /// Returns the kind that answers a request of this kind, or `None` if this is no request.
            #[must_use]
            pub fn response(&self) -> Option<Self> {
                match self {
                    $(Self::$request => Some(<$response as super::Payload>::KIND),)*
                    _ => None,
                }
            }

            /// Calls `visitor` with the payload type of this kind. Returns `None` for an unknown kind.
            pub fn visit<V: PayloadVisitor>(&self, visitor: V) -> Option<V::Output> {
                Some(match self {
                    $(Self::$request => visitor.visit::<$request>(),)*
                    $(Self::$variant => visitor.visit::<$other>(),)*
                    Self::Unknown(_) => return None,
                })
            }
        }

        $(
            impl super::Payload for $request {
                const KIND: EnvelopeKind = EnvelopeKind::$request;
                const METHOD: &'static str = concat!("_session/", $request_kind);
                $(fn attached(&self) -> &[Attachment] {
                    &self.$request_parts
                })?
            }
            impl super::RequestPayload for $request {
                type Response = $response;
            }
        )*
        $(
            impl super::Payload for $other {
                const KIND: EnvelopeKind = EnvelopeKind::$variant;
                const METHOD: &'static str = concat!("_session/", $kind);
                $(fn attached(&self) -> &[Attachment] {
                    &self.$parts
                })?
            }
            impl super::NotificationPayload for $other {}
        )*

        /// The methods of envelopes. Both sides handle all of them.
        pub const METHODS: &[crate::MethodRow] = &[
            $(crate::MethodRow {
                method: <$request as super::Payload>::METHOD,
                name: stringify!($request),
                params: concat!(stringify!($request), "Params"),
                result: Some($result),
                side: crate::MethodSide::Protocol,
            },)*
            $(crate::MethodRow {
                method: <$other as super::Payload>::METHOD,
                name: stringify!($other),
                params: $params,
                result: None,
                side: crate::MethodSide::Protocol,
            },)*
        ];

        /// Lists the definitions of every kind: its payload, its envelope, its params and its result.
        #[cfg(feature = "schemars")]
        pub(crate) fn definitions() -> Vec<crate::export::Definition> {
            use super::{Envelope, EnvelopeParams, EnvelopeResult};
            crate::export::define![
                $($request, Envelope<$request>, EnvelopeParams<$request>, EnvelopeResult<$response>,)*
                $($other, Envelope<$other>, EnvelopeParams<$other>,)*
                EnvelopeResult<EnvelopeError>,
            ]
        }
    };
}

/// Code that is generic over the payload of an envelope, for [`EnvelopeKind::visit`].
pub trait PayloadVisitor {
    /// The type that a visit returns.
    type Output;

    /// Runs for the payload `P`.
    fn visit<P: super::Payload>(self) -> Self::Output;
}

kinds! {
    requests {
        Ping "ping" [] -> Pong "PongResult",
        Query "query" [Session] -> QueryResponse "ResponseResult" attachments,
        Delegate "delegate" [Session] -> Ack "AckResult" attachments,
        Cancel "cancel" [Session Ref] -> Ack "AckResult",
        Discover "discover" [] -> Capabilities "CapabilitiesResult",
    }
    notifications {
        DelegationOutcome "OutcomeParams" Result "result" [Session Ref] attachments,
        Notify "NotifyParams" Notify "notify" [Session] attachments,
        EnvelopeError "FaultParams" Error "error" [],
        Pong "PongParams" Pong "pong" [Ref],
        QueryResponse "ResponseParams" Response "response" [Ref] attachments,
        Ack "AckParams" Ack "ack" [Ref],
        Capabilities "CapabilitiesParams" Capabilities "capabilities" [Ref],
    }
}

impl EnvelopeKind {
    /// Returns the kind that `method` carries, or `None` if the method carries no envelope.
    #[must_use]
    pub fn of_method(method: &str) -> Option<Self> {
        METHODS.iter().any(|row| row.method == method).then(|| method.trim_start_matches("_session/").into())
    }

    /// Returns true if the params of `_session/<kind>` must name a session.
    #[must_use]
    pub fn needs_session(&self) -> bool {
        self.needs().contains(&Need::Session)
    }

    /// Returns true if the params of `_session/<kind>` must name the message that they refer to, in
    /// `ref`. A response that is the result of a JSON-RPC request may leave it out.
    #[must_use]
    pub fn needs_ref(&self) -> bool {
        self.needs().contains(&Need::Ref)
    }
}

/// A request to confirm that the agent responds. It has no fields.
#[wire(snake)]
pub struct Ping {}

/// The answer to `ping`.
#[wire(snake)]
pub struct Pong {
    /// The load of the agent.
    pub status: AgentStatus,
    /// The seconds since the agent started.
    #[wire(default, always, integer)]
    pub uptime_secs: u64,
    /// The number of delegations in progress.
    #[wire(default, always, integer)]
    pub active_tasks: u32,
    /// The name to show to the user.
    #[wire(default, always)]
    pub agent_name: String,
}

/// The load of an agent.
#[wire(open, definition = "Status")]
pub enum AgentStatus {
    /// No delegation and no query is in progress.
    Idle,
    /// Work is in progress, and the agent accepts more.
    Busy,
    /// The agent accepts no more work, except possibly an urgent delegation.
    Overloaded,
}

/// A question with an immediate answer.
#[wire(snake)]
pub struct Query {
    /// The question: natural language or structured data.
    pub question: Question,
    /// The domain, such as `family.calendar`.
    pub domain: Option<String>,
    /// The desired length of the answer in tokens. 0 means no limit. It is not enforced.
    #[wire(default, always, integer)]
    pub max_tokens: u64,
    /// The deadline in milliseconds. Absent means [`Query::DEADLINE_MS`].
    #[wire(integer)]
    pub deadline_ms: Option<u64>,
    /// Images, sounds and documents that belong to the question.
    #[wire(default)]
    pub attachments: Vec<Attachment>,
}

impl Query {
    /// The default deadline in milliseconds.
    pub const DEADLINE_MS: u64 = 30_000;
}

/// The answer to `query`.
#[wire(snake, definition = "Response")]
pub struct QueryResponse {
    /// The answer as data in the requested form, or `null` if there is only the summary.
    #[wire(always)]
    pub data: Option<Json>,
    /// The answer in natural language, always present.
    pub summary: String,
    /// The number of tokens spent.
    #[wire(default, always, integer)]
    pub tokens_used: u64,
    /// True if the answer is incomplete.
    #[wire(default, always)]
    pub truncated: bool,
    /// Images, sounds and documents that belong to the answer.
    #[wire(default)]
    pub attachments: Vec<Attachment>,
}

/// A task. The receiver accepts it with an `ack` and ends it later with a `result`.
#[wire(snake)]
pub struct Delegate {
    /// The task in natural language.
    pub task: String,
    /// The context of the task.
    #[wire(default, always)]
    pub context: Members,
    /// The priority. An urgent or critical task may use the slot that is reserved for such tasks.
    #[wire(default, always)]
    pub priority: Priority,
    /// False if the sender does not need the `result`; see [`wants_report`](Self::wants_report).
    pub report_back: Option<bool>,
    /// The deadline in milliseconds. Absent means no limit.
    #[wire(integer)]
    pub deadline_ms: Option<u64>,
    /// Images, sounds and documents that belong to the task.
    #[wire(default)]
    pub attachments: Vec<Attachment>,
}

impl Delegate {
    /// Returns true if the receiver must send a `result`. This is the default, because a sender that
    /// waits for a missing result would wait forever.
    #[must_use]
    pub fn wants_report(&self) -> bool {
        self.report_back.unwrap_or(true)
    }
}

/// The priority of a delegation.
#[wire(open)]
#[derive(Default)]
pub enum Priority {
    /// Level 1.
    Low,
    /// Level 4, the default. The task takes a free slot or is rejected.
    #[default]
    Normal,
    /// Level 4, another name of the default.
    Medium,
    /// Level 6.
    High,
    /// Level 8. The task may take the one slot above the limit, and interrupt other work if needed.
    Urgent,
    /// Level 9. It may do the same as an urgent task.
    Critical,
}

impl Priority {
    /// Returns the level from 0 to 9. An unknown priority counts as normal.
    #[must_use]
    pub fn level(&self) -> u8 {
        match self {
            Priority::Low => 1,
            Priority::Normal | Priority::Medium | Priority::Unknown(_) => 4,
            Priority::High => 6,
            Priority::Urgent => 8,
            Priority::Critical => 9,
        }
    }

    /// Returns true for [`Urgent`](Self::Urgent) and [`Critical`](Self::Critical). Such a task may take the
    /// slot above the limit, and interrupt other work if needed.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.level() >= Priority::Urgent.level()
    }
}

/// The answer to `delegate` and `cancel`.
#[wire(snake)]
pub struct Ack {
    /// True if the receiver accepts the request.
    pub accepted: bool,
    /// The estimated duration in milliseconds.
    #[wire(integer)]
    pub estimated_ms: Option<u64>,
    /// The reason of a rejection in natural language.
    pub reason: Option<String>,
    /// The error that is the reason of a rejection.
    pub error: Option<EnvelopeError>,
}

/// The payload of the kind `result`, the end of a delegation.
#[wire(snake, definition = "Outcome")]
pub struct DelegationOutcome {
    /// The status at the end.
    pub status: OutcomeStatus,
    /// The outcome in natural language.
    #[wire(default, always)]
    pub outcome: String,
    /// The outcome as data.
    pub data: Option<Json>,
    /// The error, or `null`; see [`fault`](Self::fault).
    #[wire(always)]
    pub error: Option<Json>,
    /// Images, sounds and documents that the task produced.
    #[wire(default)]
    pub attachments: Vec<Attachment>,
}

impl DelegationOutcome {
    /// Reads the error from an `error` that is an object or a text.
    #[must_use]
    pub fn fault(&self) -> Option<EnvelopeError> {
        let error = self.error.as_ref()?;
        error.parse().ok().or_else(|| error.parse().ok().map(|words: String| EnvelopeError::internal(words)))
    }
}

/// The final status of a delegation.
#[wire(open)]
pub enum OutcomeStatus {
    /// The task is complete.
    Completed,
    /// The task failed.
    Failed,
    /// The task is partly complete, and the receiver has stopped.
    Partial,
}

/// A notification for subscribers.
#[wire(snake)]
pub struct Notify {
    /// The topic, such as `work.build`.
    pub topic: String,
    /// The data, or `null` if the topic alone is enough.
    #[wire(always)]
    pub data: Option<Json>,
    /// The importance.
    #[wire(default, always)]
    pub importance: Importance,
    /// Images, sounds and documents that belong to the notification.
    #[wire(default)]
    pub attachments: Vec<Attachment>,
}

/// The importance of a notification.
#[wire(open)]
#[derive(Default)]
pub enum Importance {
    /// Information.
    Low,
    /// Ordinary. The default.
    #[default]
    Medium,
    /// The notification needs attention.
    High,
}

/// A request to cancel the delegation that `ref` names. The receiver may be unable to stop it.
#[wire(snake)]
pub struct Cancel {
    /// The reason in natural language.
    #[wire(default, always)]
    pub reason: String,
}

/// A request for the capabilities of the agent. It has no fields.
#[wire(snake)]
pub struct Discover {}

/// The answer to `discover`.
///
/// The members from `topics` on describe the agent. Other programs use these names for other shapes. Such
/// a value reads as absent, and is kept in `extra`.
#[wire(snake)]
pub struct Capabilities {
    /// The name to show to the user.
    pub agent_name: String,
    /// The domains of the agent, such as `family.calendar`. It may answer queries about others.
    #[wire(default, always)]
    pub domains: Vec<String>,
    /// The media through which the agent can reach people, such as `imessage`.
    #[wire(default, always)]
    pub channels: Vec<String>,
    /// The names of the tools of the agent.
    #[wire(default, always)]
    pub tools: Vec<String>,
    /// The greatest number of concurrent delegations, not counting one urgent delegation.
    #[wire(default, always, integer)]
    pub max_concurrent_tasks: u32,
    /// The language model, or `null` if the agent does not tell.
    #[wire(always)]
    pub model: Option<String>,
    /// The topics of the notifications that the agent sends, such as `work.build`.
    #[wire(default, keep_invalid)]
    pub topics: Vec<String>,
    /// The capabilities of the agent.
    #[wire(default, keep_invalid)]
    pub capabilities: Vec<AgentCapability>,
    /// The provider of the agent, such as a company.
    #[wire(keep_invalid)]
    pub provider: Option<String>,
    /// The version of the agent.
    #[wire(keep_invalid)]
    pub version: Option<String>,
    /// The MIME types that the agent can handle.
    #[wire(default, keep_invalid)]
    pub mime_types: Vec<String>,
    /// The average time of a response in milliseconds.
    #[wire(integer, keep_invalid)]
    pub average_response_ms: Option<u64>,
    /// The price of the agent's work.
    #[wire(keep_invalid)]
    pub pricing: Option<Pricing>,
}
