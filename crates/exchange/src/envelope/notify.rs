//! Outgoing notifications.

use std::future::IntoFuture;

use duologue_schema::Json;
use duologue_schema::envelope::{EnvelopeId, EnvelopeKind, Importance, Notify};
use futures::future::BoxFuture;

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
    /// and [`Error::Connection`](crate::Error::Connection) when the connection has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while the output is full sends nothing.
    pub fn notify(&self, topic: impl Into<String>, data: impl Into<Json>) -> NotifyBuilder {
        NotifyBuilder { peer: self.clone(), notify: Notify::new(topic).data(data) }
    }
}

/// A notification before it is sent; see [`PeerAgent::notify`].
#[must_use = "the notification is sent when it is awaited"]
#[derive(Debug)]
pub struct NotifyBuilder {
    peer: PeerAgent,
    notify: Notify,
}

impl NotifyBuilder {
    /// Sets the importance; medium by default.
    pub fn importance(mut self, importance: Importance) -> Self {
        self.notify = self.notify.importance(importance);
        self
    }
}

impl IntoFuture for NotifyBuilder {
    type Output = Result<EnvelopeId>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let NotifyBuilder { peer, notify } = self;
        Box::pin(async move {
            peer.require(EnvelopeKind::Notify)?;
            let envelope = peer.envelope(notify);
            let id = envelope.id.clone();
            // A message to a session that is being created is sent later.
            if let Some(message) = peer.keep(peer.carried(envelope))? {
                peer.rpc().notify(&message).await?;
            }
            Ok(id)
        })
    }
}
