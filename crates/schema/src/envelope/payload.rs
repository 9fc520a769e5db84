//! What the twelve kinds carry.

use duologue_schema_derive::wire;

use super::EnvelopeError;
use crate::{Json, Members};

/// What a kind may need beside its payload.
#[derive(PartialEq)]
enum Need {
    Session,
    Ref,
}

/// The kinds, once each: the payload, the name, what else its method needs, and for a request what answers it.
macro_rules! kinds {
    (
        requests { $($ask:ident $ask_kind:literal [$($ask_need:ident)*] -> $reply:ident $result:literal,)* }
        notifications { $($tell:ident $params:literal $variant:ident $tell_kind:literal [$($tell_need:ident)*],)* }
    ) => {
        /// The kind of an envelope.
        #[wire(open, definition = "Kind")]
        pub enum EnvelopeKind {
            $(#[doc = concat!("`", $ask_kind, "`, a request")] $ask,)*
            $(#[doc = concat!("`", $tell_kind, "`, a notification or an answer")] $variant,)*
        }

        impl EnvelopeKind {
            fn needs(&self) -> &'static [Need] {
                match self {
                    $(Self::$ask => &[$(Need::$ask_need),*],)*
                    $(Self::$variant => &[$(Need::$tell_need),*],)*
                    Self::Unknown(_) => &[],
                }
            }
        }

        $(
            impl super::Payload for $ask {
                const KIND: EnvelopeKind = EnvelopeKind::$ask;
                const METHOD: &'static str = concat!("_session/", $ask_kind);
            }
            impl super::RequestPayload for $ask {
                type Reply = $reply;
            }
        )*
        $(
            impl super::Payload for $tell {
                const KIND: EnvelopeKind = EnvelopeKind::$variant;
                const METHOD: &'static str = concat!("_session/", $tell_kind);
            }
            impl super::NotificationPayload for $tell {}
        )*

        /// The methods of envelopes, all of them for both sides.
        pub const METHODS: &[crate::MethodRow] = &[
            $(crate::MethodRow {
                method: <$ask as super::Payload>::METHOD,
                name: stringify!($ask),
                params: concat!(stringify!($ask), "Params"),
                result: Some($result),
                side: crate::MethodSide::Protocol,
            },)*
            $(crate::MethodRow {
                method: <$tell as super::Payload>::METHOD,
                name: stringify!($tell),
                params: $params,
                result: None,
                side: crate::MethodSide::Protocol,
            },)*
        ];
    };
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
    /// Whether `_session/<kind>` has to say in which session it is sent.
    #[must_use]
    pub fn needs_session(&self) -> bool {
        self.needs().contains(&Need::Session)
    }

    /// Whether what `_session/<kind>` carries has to say which message it is about, by its `ref`. An answer that comes
    /// back as the result of a request may leave it out.
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
