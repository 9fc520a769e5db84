//! The W3C trace context of a message.

use std::fmt;

use crate::Meta;

/// The position of a message in a distributed trace, from the root keys that ACP reserves in `_meta`.
///
/// Pass it on, so that the work of several programs appears as one trace:
///
/// ```
/// use duologue_schema::{CloseSessionRequest, Meta};
///
/// # let received = Meta::from_iter([("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]);
/// let mut request = CloseSessionRequest::new("session");
/// request.meta = received.trace_context().map(Meta::from);
/// assert_eq!(request.meta, Some(received));
/// ```
///
/// See [Extensibility](https://agentclientprotocol.com/protocol/v1/extensibility) and
/// [Trace Context](https://www.w3.org/TR/trace-context/).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    traceparent: String,
    tracestate: Option<String>,
    baggage: Option<String>,
}

impl TraceContext {
    /// The key of the trace and of the operation in it.
    pub const TRACEPARENT: &str = "traceparent";
    /// The key of the data of tracing systems.
    pub const TRACESTATE: &str = "tracestate";
    /// The key of the data of applications.
    pub const BAGGAGE: &str = "baggage";
    /// The greatest length of a `tracestate` in bytes. A longer one is dropped.
    pub const TRACESTATE_BYTES: usize = 512;
    /// The greatest length of a `baggage` in bytes. A longer one is dropped.
    pub const BAGGAGE_BYTES: usize = 8192;

    /// Creates a trace context. Returns `None` if `traceparent` is not a valid one, such as
    /// `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`.
    pub fn new(traceparent: impl Into<String>) -> Option<Self> {
        let traceparent = traceparent.into();
        is_traceparent(&traceparent).then_some(TraceContext { traceparent, tracestate: None, baggage: None })
    }

    /// Sets the `tracestate`, unless it is longer than [`TRACESTATE_BYTES`](Self::TRACESTATE_BYTES).
    #[must_use]
    pub fn with_tracestate(mut self, tracestate: impl Into<String>) -> Self {
        self.tracestate = Some(tracestate.into()).filter(|state| state.len() <= Self::TRACESTATE_BYTES);
        self
    }

    /// Sets the `baggage`, unless it is longer than [`BAGGAGE_BYTES`](Self::BAGGAGE_BYTES).
    #[must_use]
    pub fn with_baggage(mut self, baggage: impl Into<String>) -> Self {
        self.baggage = Some(baggage.into()).filter(|baggage| baggage.len() <= Self::BAGGAGE_BYTES);
        self
    }

    /// Returns the `traceparent`.
    #[must_use]
    pub fn traceparent(&self) -> &str {
        &self.traceparent
    }

    /// Returns the `tracestate`.
    #[must_use]
    pub fn tracestate(&self) -> Option<&str> {
        self.tracestate.as_deref()
    }

    /// Returns the `baggage`.
    #[must_use]
    pub fn baggage(&self) -> Option<&str> {
        self.baggage.as_deref()
    }

    /// Returns the id of the trace, 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        self.traceparent.get(3..35).unwrap_or_default()
    }

    /// Returns the id of the operation that sent the message, 16 hexadecimal digits.
    #[must_use]
    pub fn parent_id(&self) -> &str {
        self.traceparent.get(36..52).unwrap_or_default()
    }

    /// Returns true if the sender may have recorded the trace.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        let flags = self.traceparent.get(53..55).and_then(|flags| u8::from_str_radix(flags, 16).ok());
        flags.is_some_and(|flags| flags & 1 == 1)
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.traceparent)
    }
}

impl Meta {
    /// Returns the trace context, if there is a valid `traceparent`.
    #[must_use]
    pub fn trace_context(&self) -> Option<TraceContext> {
        let mut context = TraceContext::new(self.get::<String>(TraceContext::TRACEPARENT)?)?;
        if let Some(tracestate) = self.get::<String>(TraceContext::TRACESTATE) {
            context = context.with_tracestate(tracestate);
        }
        if let Some(baggage) = self.get::<String>(TraceContext::BAGGAGE) {
            context = context.with_baggage(baggage);
        }
        Some(context)
    }

    /// Sets the trace context and keeps all other keys.
    #[must_use]
    pub fn with_trace_context(mut self, context: &TraceContext) -> Self {
        self.remove(TraceContext::TRACESTATE).remove(TraceContext::BAGGAGE);
        self.insert(TraceContext::TRACEPARENT, context.traceparent());
        if let Some(tracestate) = context.tracestate() {
            self.insert(TraceContext::TRACESTATE, tracestate);
        }
        if let Some(baggage) = context.baggage() {
            self.insert(TraceContext::BAGGAGE, baggage);
        }
        self
    }
}

impl From<TraceContext> for Meta {
    fn from(context: TraceContext) -> Self {
        Meta::new().with_trace_context(&context)
    }
}

/// Returns true for a `traceparent` of version 0, and for one of a later version that begins the same way.
fn is_traceparent(text: &str) -> bool {
    let bytes = text.as_bytes();
    let hex = |from: usize, to: usize| {
        bytes.get(from..to).filter(|field| field.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
    };
    let id = |from, to| hex(from, to).is_some_and(|id| id.iter().any(|digit| *digit != b'0'));
    let dash = |at: usize| bytes.get(at) == Some(&b'-');
    let version = hex(0, 2).filter(|version| *version != b"ff");
    let fields = dash(2) && id(3, 35) && dash(35) && id(36, 52) && dash(52) && hex(53, 55).is_some();
    let end = bytes.len() == 55 || version != Some(b"00".as_slice()) && dash(55);
    // The limit is that of the other members, so that a context stays small.
    version.is_some() && fields && end && bytes.len() <= TraceContext::TRACESTATE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    /// Returns [`PARENT`] with another version.
    fn parent_of_version(version: &str) -> String {
        PARENT.replacen("00", version, 1)
    }

    #[test]
    fn the_fields_of_a_traceparent_are_read() {
        let context = TraceContext::new(PARENT).expect("a valid context");
        assert_eq!(context.trace_id(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(context.parent_id(), "b7ad6b7169203331");
        assert!(context.is_sampled());
        assert!(!TraceContext::new(PARENT.replace("-01", "-02")).expect("valid").is_sampled());
        let later = TraceContext::new(parent_of_version("cc") + "-more").expect("a later version");
        assert_eq!(later.trace_id(), context.trace_id());
    }

    #[test]
    fn an_invalid_traceparent_is_no_context() {
        for invalid in [
            String::new(),
            parent_of_version("ff"),
            PARENT.to_owned() + "-more",
            parent_of_version("01") + "more",
            parent_of_version("01") + "-" + &"x".repeat(512),
            PARENT.to_uppercase(),
            PARENT.replace('-', "_"),
            PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            PARENT.replace("b7ad6b7169203331", &"0".repeat(16)),
            PARENT.replace("-01", "-0g"),
            PARENT.trim_end_matches('1').to_owned(),
            "é".repeat(28),
        ] {
            assert_eq!(TraceContext::new(&*invalid), None, "{invalid}");
            // It stays in the object as it is.
            let meta = Meta::from_iter([(TraceContext::TRACEPARENT, invalid.as_str())]);
            assert_eq!(meta.trace_context(), None);
            assert_eq!(meta.get::<String>(TraceContext::TRACEPARENT), Some(invalid));
        }
        assert_eq!(Meta::from_iter([(TraceContext::TRACEPARENT, 1_u32)]).trace_context(), None);
    }

    #[test]
    fn a_context_replaces_an_earlier_one_and_nothing_else() {
        let mut meta = Meta::from_iter([("own", "1"), ("tracestate", "old=1"), ("baggage", "old=1")]);
        let context = TraceContext::new(PARENT).expect("valid").with_tracestate("vendor=1");
        meta = meta.with_trace_context(&context);
        assert_eq!(meta.trace_context(), Some(context.clone()));
        assert_eq!(meta.keys().collect::<Vec<_>>(), ["own", "traceparent", "tracestate"]);
        let context = context.with_baggage("user=1");
        meta = meta.with_trace_context(&context);
        assert_eq!((meta.trace_context(), context.baggage()), (Some(context.clone()), Some("user=1")));
    }

    #[test]
    fn long_members_are_dropped() {
        for (tracestate, baggage) in [(512, 8192), (513, 8193)] {
            let context = TraceContext::new(PARENT)
                .expect("valid")
                .with_tracestate("s".repeat(tracestate))
                .with_baggage("b".repeat(baggage));
            let kept = tracestate == 512;
            assert_eq!((context.tracestate().is_some(), context.baggage().is_some()), (kept, kept));
        }
    }
}
