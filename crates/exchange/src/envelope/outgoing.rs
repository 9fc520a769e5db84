//! The members that every outgoing message may have besides its payload.

use duologue_schema::envelope::{EnvelopeId, EnvelopeParams, Payload};
use duologue_schema::{Meta, TraceContext};

use crate::error::{Error, Result};
use crate::hops::Hops;
use crate::peer_agent::PeerAgent;

/// The id, the reference and the `_meta` of a message before it is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageOptions {
    pub(crate) id: Option<EnvelopeId>,
    pub(crate) reference: Option<EnvelopeId>,
    pub(crate) meta: Option<Meta>,
    /// The trace context of the message. It takes precedence over one in `meta`.
    pub(crate) trace: Option<TraceContext>,
    /// The hops of the handler that created the message.
    pub(crate) hops: Hops,
}

impl MessageOptions {
    /// Creates the options of a message that is created here.
    pub(crate) fn here() -> Self {
        MessageOptions { hops: Hops::current(), ..MessageOptions::default() }
    }

    pub(crate) fn about(id: EnvelopeId) -> Self {
        MessageOptions { reference: Some(id), ..MessageOptions::here() }
    }
}

impl PeerAgent {
    /// Creates the params of a message: its envelope, and its `_meta` with the trace context and the
    /// hops.
    pub(crate) fn prepare<P: Payload>(
        &self,
        payload: P,
        options: MessageOptions,
    ) -> Result<EnvelopeParams<P>> {
        let MessageOptions { id, reference, meta, trace, hops } = options;
        self.check_attachments(&payload)?;
        let mut envelope = self.envelope(payload);
        if let Some(id) = id {
            envelope.id = id;
        }
        envelope.reference = reference;
        let mut params = self.carried(envelope);
        params.meta = meta;
        match &trace {
            Some(trace) => {
                params.meta = Some(params.meta.take().unwrap_or_default().with_trace_context(trace))
            }
            None => self.write_trace(&mut params.meta),
        }
        if crate::hops::are_counted(&P::KIND) {
            self.write_hops(hops, &mut params.meta)?;
        }
        Ok(params)
    }

    /// Checks the size of the attachments of an outgoing message.
    pub(crate) fn check_attachments<P: Payload>(&self, payload: &P) -> Result<()> {
        let (bytes, limit) = (attached_bytes(payload), self.link.max_attachment_bytes);
        if bytes > limit { Err(Error::AttachmentsTooLarge { bytes, limit }) } else { Ok(()) }
    }
}

/// Returns the number of bytes of the attachments of a message.
pub(crate) fn attached_bytes<P: Payload>(payload: &P) -> usize {
    payload.attached().iter().map(duologue_schema::Attachment::wire_size).sum()
}

/// Adds the methods that every builder of a message has. The builder has a field `options`.
macro_rules! message_options {
    ([$($generics:tt)*] $builder:ty) => {
        impl<$($generics)*> $builder {
            /// Sets the id of the message; a random UUID by default. Related messages carry it as
            /// `ref`. Two messages of one sender with the same id are one message that was repeated.
            pub fn id(mut self, id: impl Into<duologue_schema::envelope::EnvelopeId>) -> Self {
                self.options.id = Some(id.into());
                self
            }

            /// Sets the `_meta` beside the envelope: correlation ids, or other data that is not part of
            /// the message.
            pub fn meta(mut self, meta: impl Into<duologue_schema::Meta>) -> Self {
                self.options.meta = Some(meta.into());
                self
            }

            /// Adds a trace context to the `_meta`. A message that is sent through the `peer` of a
            /// received message has the context of that message by default.
            pub fn trace_context(
                mut self,
                context: impl Into<Option<duologue_schema::TraceContext>>,
            ) -> Self {
                self.options.trace = context.into().or(self.options.trace.take());
                self
            }
        }
    };
}

/// Adds the method that attaches images, sounds and documents. The builder has a field for the payload.
macro_rules! with_attachments {
    ([$($generics:tt)*] $builder:ty, $payload:ident) => {
        impl<$($generics)*> $builder {
            /// Adds an image, a sound or another document. The attachments of a message have at most
            /// [`Exchange::max_attachment_bytes`](crate::Exchange::max_attachment_bytes) together.
            pub fn attachment(mut self, attachment: duologue_schema::Attachment) -> Self {
                self.$payload.attachments.push(attachment);
                self
            }
        }
    };
}

pub(crate) use {message_options, with_attachments};
