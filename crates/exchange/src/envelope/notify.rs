//! Outgoing notifications, and results and errors without a handle.

use std::future::IntoFuture;

use duologue_schema::Json;
use duologue_schema::envelope::{
    DelegationOutcome, EnvelopeError, EnvelopeId, Importance, NotificationPayload, Notify,
};
use futures::future::BoxFuture;

use super::events;
use super::outgoing::{MessageOptions, message_options, with_attachments};
use crate::error::Result;
use crate::peer_agent::PeerAgent;

impl PeerAgent {
    /// Creates a notification, which is sent when it is awaited. It resolves to the message's id,
    /// which an error about it carries as `ref`. In a session that is still being created, it is
    /// buffered and sent after the response that names the session.
    ///
    /// ```no_run
    /// # async fn run(peer: duologue_exchange::PeerAgent) -> duologue_exchange::Result<()> {
    /// use duologue_schema::envelope::Importance;
    /// use serde_json::json;
    ///
    /// peer.notify("family.calendar", json!({ "moved": "dinner" })).importance(Importance::High).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`](crate::Error::NotSupported), [`Error::NoSession`](crate::Error::NoSession),
    /// [`Error::AttachmentsTooLarge`](crate::Error::AttachmentsTooLarge), and
    /// [`Error::Connection`](crate::Error::Connection) when the connection has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while the output is full sends nothing.
    pub fn notify(&self, topic: impl Into<String>, data: impl Into<Json>) -> NotifyBuilder {
        NotifyBuilder::new(self, Notify::new(topic).data(data))
    }

    /// Creates the result of a task, which is sent when it is awaited. Use it for a task of an earlier
    /// connection. A handler returns its result instead.
    ///
    /// # Errors
    ///
    /// The errors of [`notify`](Self::notify).
    ///
    /// # Cancel safety
    ///
    /// That of [`notify`](Self::notify).
    pub fn result(
        &self,
        task: impl Into<EnvelopeId>,
        outcome: DelegationOutcome,
    ) -> NotifyBuilder<DelegationOutcome> {
        NotifyBuilder::new(self, outcome).about(task)
    }

    /// Creates an error, which is sent when it is awaited. [`NotifyBuilder::about`] names the message
    /// that it is about, such as a task of an earlier connection. A handler returns its error instead.
    ///
    /// # Errors
    ///
    /// The errors of [`notify`](Self::notify).
    ///
    /// # Cancel safety
    ///
    /// That of [`notify`](Self::notify).
    pub fn error(&self, error: EnvelopeError) -> NotifyBuilder<EnvelopeError> {
        NotifyBuilder::new(self, error)
    }
}

/// A notification before it is sent; see [`PeerAgent::notify`], [`PeerAgent::result`] and
/// [`PeerAgent::error`].
#[must_use = "the notification is sent when it is awaited"]
#[derive(Clone, Debug)]
pub struct NotifyBuilder<P = Notify> {
    peer: PeerAgent,
    payload: P,
    options: MessageOptions,
}

message_options!([P] NotifyBuilder<P>);
with_attachments!([] NotifyBuilder<Notify>, payload);

impl<P> NotifyBuilder<P> {
    fn new(peer: &PeerAgent, payload: P) -> Self {
        NotifyBuilder { peer: peer.clone(), payload, options: MessageOptions::here() }
    }

    /// Sets the message that this one refers to: `ref` on the wire.
    pub fn about(mut self, message: impl Into<EnvelopeId>) -> Self {
        self.options.reference = Some(message.into());
        self
    }
}

impl NotifyBuilder {
    /// Sets the importance; medium by default.
    pub fn importance(mut self, importance: Importance) -> Self {
        self.payload = self.payload.importance(importance);
        self
    }
}

impl<P: NotificationPayload + Sync> IntoFuture for NotifyBuilder<P> {
    type Output = Result<EnvelopeId>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let NotifyBuilder { peer, payload, options } = self;
        Box::pin(async move {
            peer.require(P::KIND)?;
            let message = peer.prepare(payload, options)?;
            let id = message.envelope.id.clone();
            // A message to a session that is being created is sent later.
            if let Some(message) = peer.keep(message)? {
                peer.rpc().notify(&message).await?;
                events::sent(&message.envelope);
            }
            Ok(id)
        })
    }
}
