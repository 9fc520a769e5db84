//! The context of a request of the client.

use duologue_rpc::{CancellationToken, RequestContext};
use duologue_schema::{Meta, RequestId, TraceContext};

use crate::client::ClientHandle;

/// The context of a request, for the method of the [`Agent`](crate::Agent) that handles it: the client that sent it,
/// its id, its `_meta` and its cancellation.
///
/// For a prompt it is [`Turn::context`](crate::Turn::context). Cheap to clone. Clones set the same `_meta` of the response.
#[derive(Clone, Debug)]
pub struct Context {
    client: ClientHandle,
    request: RequestContext,
}

impl Context {
    pub(crate) fn new(client: ClientHandle, request: RequestContext) -> Self {
        Context { client, request }
    }

    /// Returns the client.
    #[must_use]
    pub fn client(&self) -> &ClientHandle {
        &self.client
    }

    /// Returns the JSON-RPC id of the request, for example as the scope of an elicitation.
    #[must_use]
    pub fn request_id(&self) -> &RequestId {
        self.request.id()
    }

    /// Returns the `_meta` of the request. Some clients send keys and addresses of gateways in it.
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        self.request.meta()
    }

    /// Returns the trace context of the request, to pass it on in the `_meta` of another message.
    #[must_use]
    pub fn trace_context(&self) -> Option<TraceContext> {
        self.request.trace_context()
    }

    /// Returns true if the client withdrew the request or the connection ends.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.request.is_cancelled()
    }

    /// Waits until the client withdraws the request or the connection ends. If the method does not return within
    /// [`cancel_grace`](duologue_rpc::Limits::cancel_grace) after it, it is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn cancelled(&self) {
        self.request.cancelled().await;
    }

    /// Returns a token that is cancelled with the request.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.request.cancellation()
    }

    /// Sets the `_meta` of the response. An error has none.
    pub fn set_answer_meta(&self, meta: impl Into<Meta>) {
        self.request.message_meta().set_answer(meta);
    }

    /// Replaces the token that cancels the work of the request.
    pub(crate) fn with_cancellation(self, cancellation: CancellationToken) -> Self {
        Context { request: self.request.with_cancellation(cancellation), ..self }
    }

    pub(crate) fn answer_meta(&self) -> Option<Meta> {
        self.request.message_meta().take_answer()
    }
}
