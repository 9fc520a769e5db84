//! What the twelve kinds carry.

use duologue_schema_derive::wire;

use super::EnvelopeError;
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
/// definition of the params in the JSON Schema, variant of the kind, kind, required members.
macro_rules! kinds {
    (
        requests {
            $($request:ident $request_kind:literal [$($request_need:ident)*] -> $response:ident $result:literal,)*
        }
        notifications { $($other:ident $params:literal $variant:ident $kind:literal [$($need:ident)*],)* }
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
            }
            impl super::RequestPayload for $request {
                type Response = $response;
            }
        )*
        $(
            impl super::Payload for $other {
                const KIND: EnvelopeKind = EnvelopeKind::$variant;
                const METHOD: &'static str = concat!("_session/", $kind);
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
        Query "query" [Session] -> QueryResponse "ResponseResult",
        Delegate "delegate" [Session] -> Ack "AckResult",
        Cancel "cancel" [Session Ref] -> Ack "AckResult",
        Discover "discover" [] -> Capabilities "CapabilitiesResult",
    }
    notifications {
        DelegationOutcome "OutcomeParams" Result "result" [Session Ref],
        Notify "NotifyParams" Notify "notify" [Session],
        EnvelopeError "FaultParams" Error "error" [],
        Pong "PongParams" Pong "pong" [Ref],
        QueryResponse "ResponseParams" Response "response" [Ref],
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

/// Asks whether the other agent is there. It has no content.
#[wire(snake)]
pub struct Ping {}

/// The answer to `ping`.
#[wire(snake)]
pub struct Pong {
    /// How busy the agent is.
    pub status: AgentStatus,
    /// Seconds since it started.
    #[wire(default, always)]
    pub uptime_secs: u64,
    /// Delegations it works on.
    #[wire(default, always)]
    pub active_tasks: u32,
    /// Its name, for a person.
    #[wire(default, always)]
    pub agent_name: String,
}

/// How busy an agent is.
#[wire(open, definition = "Status")]
pub enum AgentStatus {
    /// It has nothing to do: no delegation, and no question to answer.
    Idle,
    /// It works, and takes more.
    Busy,
    /// It takes no more; an urgent delegation may still fit.
    Overloaded,
}

/// A question, answered while the asker waits.
#[wire(snake)]
pub struct Query {
    /// The question, in words.
    pub question: String,
    /// What it is about, such as `family.calendar`.
    pub domain: Option<String>,
    /// How long the answer should be at most, in tokens; 0 is no limit. A guideline: nobody enforces it.
    #[wire(default, always)]
    pub max_tokens: u64,
    /// How long the asker waits, in milliseconds; [`Query::DEADLINE_MS`] when absent.
    pub deadline_ms: Option<u64>,
}

impl Query {
    /// How long an asker waits that did not say so, in milliseconds.
    pub const DEADLINE_MS: u64 = 30_000;
}

/// The answer to `query`.
#[wire(snake, definition = "Response")]
pub struct QueryResponse {
    /// The answer as data, in a form the question asked for; `null` when words are all there is.
    #[wire(always)]
    pub data: Option<Json>,
    /// The answer in words, always there.
    pub summary: String,
    /// What it cost.
    #[wire(default, always)]
    pub tokens_used: u64,
    /// Whether something had to be left out.
    #[wire(default, always)]
    pub truncated: bool,
}

/// A task, taken on with an `ack` and ended later with a `result`.
#[wire(snake)]
pub struct Delegate {
    /// The task, in words.
    pub task: String,
    /// What is needed to do it.
    #[wire(default, always)]
    pub context: Members,
    /// Whether it may use the slot that is kept free for urgent tasks.
    #[wire(default, always)]
    pub priority: Priority,
    /// Whether the sender wants the `result`; see [`wants_report`](Self::wants_report).
    pub report_back: Option<bool>,
    /// How long the receiver may work on it, in milliseconds; absent, it has no limit.
    pub deadline_ms: Option<u64>,
}

impl Delegate {
    /// Whether a `result` is to be sent. One that does not say is reported: a sender that waits for nothing
    /// loses nothing by it, one that waits would wait for ever.
    #[must_use]
    pub fn wants_report(&self) -> bool {
        self.report_back.unwrap_or(true)
    }
}

/// How much a delegation hurries.
#[wire(open)]
#[derive(Default)]
pub enum Priority {
    /// It takes a free slot or is refused.
    #[default]
    Normal,
    /// It may also take the one slot above the limit.
    Urgent,
}

/// The answer to `delegate` and `cancel`: whether the receiver will do it, or try.
#[wire(snake)]
pub struct Ack {
    /// Whether it will.
    pub accepted: bool,
    /// How long it thinks it takes, in milliseconds.
    pub estimated_ms: Option<u64>,
    /// Why not, in words.
    pub reason: Option<String>,
    /// Why not, with a code.
    pub error: Option<EnvelopeError>,
}

/// The kind `result`: how a delegation ended.
#[wire(snake, definition = "Outcome")]
pub struct DelegationOutcome {
    /// How.
    pub status: OutcomeStatus,
    /// What came of it, in words.
    #[wire(default, always)]
    pub outcome: String,
    /// What came of it, as data.
    pub data: Option<Json>,
    /// What went wrong, if something did, else `null`; see [`fault`](Self::fault).
    #[wire(always)]
    pub error: Option<Json>,
}

impl DelegationOutcome {
    /// What went wrong. Read from an `error` that is an object, or only words.
    #[must_use]
    pub fn fault(&self) -> Option<EnvelopeError> {
        let error = self.error.as_ref()?;
        error.parse().ok().or_else(|| error.parse().ok().map(|words: String| EnvelopeError::internal(words)))
    }
}

/// How a delegation ended. Each of them is the end.
#[wire(open)]
pub enum OutcomeStatus {
    /// It is done.
    Completed,
    /// It is not.
    Failed,
    /// As much of it is done as will be.
    Partial,
}

/// News, for whoever listens.
#[wire(snake)]
pub struct Notify {
    /// What it is about, such as `work.build`.
    pub topic: String,
    /// The news; `null` when the topic says it all.
    #[wire(always)]
    pub data: Option<Json>,
    /// How much it matters.
    #[wire(default, always)]
    pub importance: Importance,
}

/// How much news matter.
#[wire(open)]
#[derive(Default)]
pub enum Importance {
    /// Good to know.
    Low,
    /// As good as any. What a message without importance has.
    #[default]
    Medium,
    /// Should be looked at.
    High,
}

/// Asks for the end of a delegation, the one `ref` names. The receiver tries.
#[wire(snake)]
pub struct Cancel {
    /// Why, in words.
    #[wire(default, always)]
    pub reason: String,
}

/// Asks what the other agent can do. It has no content.
#[wire(snake)]
pub struct Discover {}

/// The answer to `discover`.
#[wire(snake)]
pub struct Capabilities {
    /// The agent's name, for a person.
    pub agent_name: String,
    /// What it knows about, such as `family.calendar`. It may answer beyond them.
    #[wire(default, always)]
    pub domains: Vec<String>,
    /// The topics it sends news about.
    #[wire(default, always)]
    pub channels: Vec<String>,
    /// The names of its tools.
    #[wire(default, always)]
    pub tools: Vec<String>,
    /// How many delegations it works on at once, an urgent one above that aside.
    #[wire(default, always)]
    pub max_concurrent_tasks: u32,
    /// The language model behind it, `null` if it does not say.
    #[wire(always)]
    pub model: Option<String>,
}
