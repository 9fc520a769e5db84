//! Handlers for methods beyond the protocol.

use std::collections::HashMap;
use std::sync::Arc;

use duologue_schema::{Error as WireError, Notification, Request};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::peer::Peer;
use crate::service::{Incoming, NotificationContext, RequestContext, Responder, meta_of};

#[cfg(feature = "jsonrpsee")]
mod jsonrpsee;

type OnRequest = Arc<dyn Fn(Option<&RawValue>, Responder) + Send + Sync>;
type OnNotification = Arc<dyn Fn(Option<&RawValue>, &Peer) + Send + Sync>;

/// Handlers for extension methods, whose names start with `_`.
///
/// A handler of a request runs in a task of its own. A handler of a notification runs on the reader,
/// in the order of the wire. Methods of the protocol are never passed to these handlers.
///
/// ```
/// use duologue_rpc::Extensions;
/// use duologue_schema::Request;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Add {
///     a: i64,
///     b: i64,
/// }
///
/// impl Request for Add {
///     const METHOD: &'static str = "_example/add";
///     type Result = i64;
/// }
///
/// let extensions = Extensions::new().on_request(async |_, add: Add| Ok(add.a + add.b));
/// # let _ = extensions;
/// ```
///
/// [`on_request_with`](Self::on_request_with) passes state to a handler:
///
/// ```
/// # use std::sync::Arc;
/// # use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
/// # use duologue_rpc::Extensions;
/// # use duologue_schema::Request;
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Add { a: i64 }
/// # impl Request for Add {
/// #     const METHOD: &'static str = "_example/add";
/// #     type Result = i64;
/// # }
/// let sum = Arc::new(AtomicI64::new(0));
/// let extensions = Extensions::new()
///     .on_request_with(sum, async |sum, _, add: Add| Ok(sum.fetch_add(add.a, Relaxed) + add.a));
/// # let _ = extensions;
/// ```
///
/// With the feature `jsonrpsee`, `Extensions::merge` adds the methods of a jsonrpsee module.
#[derive(Clone, Default)]
pub struct Extensions {
    requests: HashMap<&'static str, OnRequest>,
    notifications: HashMap<&'static str, OnNotification>,
    #[cfg(feature = "jsonrpsee")]
    modules: ::jsonrpsee::Methods,
}

impl std::fmt::Debug for Extensions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut list = f.debug_list();
        list.entries(self.requests.keys()).entries(self.notifications.keys());
        #[cfg(feature = "jsonrpsee")]
        list.entries(self.modules.method_names());
        list.finish()
    }
}

impl Extensions {
    /// Creates a table without handlers.
    #[must_use]
    pub fn new() -> Self {
        Extensions::default()
    }

    /// Answers each request of type `R` with the output of `handler`. The [`RequestContext`] has the peer that
    /// sent the request, its `_meta` and its cancellation. An `async` closure that captures variables does not compile
    /// here; see [`on_request_with`](Self::on_request_with).
    ///
    /// Requests whose params do not match `R` are answered with `-32602` (invalid params). A handler
    /// replaces an earlier one for the same method, also one from `merge`.
    #[must_use]
    pub fn on_request<R, F, Answer>(mut self, handler: F) -> Self
    where
        R: Request,
        F: Fn(RequestContext, R) -> Answer + Send + Sync + 'static,
        Answer: Future<Output = Result<R::Result, WireError>> + Send + 'static,
    {
        self.requests.insert(
            R::METHOD,
            Arc::new(move |params, responder| match params_of(params) {
                Ok(request) => {
                    let answer = handler(responder.context(R::METHOD, meta_of(params)), request);
                    responder.spawn(answer);
                }
                Err(error) => {
                    let message = format!("the params do not match {}: {error}", R::METHOD);
                    responder.respond::<()>(Err(WireError::invalid_params(message)));
                }
            }),
        );
        self
    }

    /// Answers each request of type `R`, as [`on_request`](Self::on_request), and passes a clone of `state` to the
    /// handler: an `Arc`, the sender of a channel, or a tuple of several.
    #[must_use]
    pub fn on_request_with<S, R, F, Answer>(self, state: S, handler: F) -> Self
    where
        S: Clone + Send + Sync + 'static,
        R: Request,
        F: Fn(S, RequestContext, R) -> Answer + Send + Sync + 'static,
        Answer: Future<Output = Result<R::Result, WireError>> + Send + 'static,
    {
        self.on_request(move |context, request| handler(state.clone(), context, request))
    }

    /// Calls `handler` for each notification of type `N`, on the reader: it must not block. The [`NotificationContext`]
    /// has the peer that sent the notification, and its `_meta`.
    ///
    /// Notifications whose params do not match `N` are dropped and logged. A second handler for the same
    /// method replaces the first.
    #[must_use]
    pub fn on_notification<N: Notification>(
        mut self,
        handler: impl Fn(NotificationContext, N) + Send + Sync + 'static,
    ) -> Self {
        self.notifications.insert(
            N::METHOD,
            Arc::new(move |params, peer| match params_of(params) {
                Ok(notification) => {
                    handler(NotificationContext::new(peer.clone(), N::METHOD, meta_of(params)), notification);
                }
                Err(error) => tracing::debug!(method = N::METHOD, %error, "dropped a notification"),
            }),
        );
        self
    }

    /// Answers a request if its method has a handler.
    ///
    /// # Errors
    ///
    /// Returns the responder if no handler has the method.
    pub fn request(&self, request: Incoming<'_>, responder: Responder) -> Result<(), Responder> {
        if let Some(handler) = self.requests.get(request.method) {
            handler(request.params, responder);
            return Ok(());
        }
        #[cfg(feature = "jsonrpsee")]
        return jsonrpsee::request(&self.modules, request, responder);
        #[cfg(not(feature = "jsonrpsee"))]
        Err(responder)
    }

    /// Calls the handler of a notification. Returns true if there is one.
    pub fn notification(&self, notification: Incoming<'_>, peer: &Peer) -> bool {
        let handler = self.notifications.get(notification.method);
        if let Some(handler) = handler {
            handler(notification.params, peer);
        }
        handler.is_some()
    }
}

/// Decodes the params of an extension method. Absent params are read as an empty object.
fn params_of<P: DeserializeOwned>(params: Option<&RawValue>) -> serde_json::Result<P> {
    serde_json::from_str(params.map_or("{}", RawValue::get))
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use serde_json::{Value, json};

    use super::*;
    #[cfg(feature = "jsonrpsee")]
    use crate::Error;
    use crate::{PeerBuilder, Service, Transport};

    #[derive(Serialize, Deserialize)]
    struct Add {
        a: i64,
        b: i64,
    }

    impl Request for Add {
        const METHOD: &'static str = "_test/add";
        type Result = i64;
    }

    struct Extended(Extensions, Peer);

    impl Service for Extended {
        fn request(&self, request: Incoming<'_>, responder: Responder) {
            let method = request.method.to_owned();
            if let Err(responder) = self.0.request(request, responder) {
                responder.method_not_found(&method);
            }
        }

        fn notification(&self, notification: Incoming<'_>) {
            self.0.notification(notification, &self.1);
        }
    }

    fn connected(extensions: Extensions) -> Peer {
        let (ours, theirs) = Transport::memory();
        drop(PeerBuilder::new(theirs).start(|peer| Extended(extensions, peer.clone())));
        PeerBuilder::new(ours).start(|peer| Extended(Extensions::new(), peer.clone()))
    }

    #[tokio::test]
    async fn a_request_is_answered_with_the_output_of_its_handler() {
        let calls = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let count = async |counted: Arc<std::sync::atomic::AtomicU32>, _, add: Add| {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(add.a + add.b)
        };
        let peer = connected(Extensions::new().on_request_with(calls.clone(), count));
        assert_eq!(peer.call::<_, i64>("_test/add", &json!({"a": 2, "b": 3})).await.unwrap(), 5);
        let invalid = peer.call::<_, Value>("_test/add", &json!({"a": "2"})).await.unwrap_err();
        assert_eq!(invalid.as_response().unwrap().code.0, -32602);
        let unknown = peer.call::<_, Value>("_test/sub", &json!({})).await.unwrap_err();
        assert_eq!(unknown.as_response().unwrap().code.0, -32601);
        assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_handler_has_the_context_of_its_request() {
        let (sender, mut contexts) = tokio::sync::mpsc::unbounded_channel();
        let peer = connected(Extensions::new().on_request(move |context, _: Add| {
            let sender = sender.clone();
            async move {
                let _ = sender.send(context.clone());
                context.cancelled().await;
                Ok(0)
            }
        }));
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        for (params, trace) in [
            (json!({"a": 1, "b": 2, "_meta": {"traceparent": parent}}), Some(parent)),
            (json!({"a": 1, "b": 2, "_meta": 3}), None),
            (json!({"a": 1, "b": 2, "note": {"_meta": {"traceparent": parent}}}), None),
        ] {
            let call = peer.call::<_, i64>("_test/add", &params);
            let context = contexts.recv().await.unwrap();
            assert_eq!((context.method(), context.is_cancelled()), ("_test/add", false));
            assert_eq!(Some(context.id().token()), call.id().map(|id| id.to_string()).as_deref());
            assert_eq!(context.trace_context().map(|trace| trace.traceparent().to_owned()).as_deref(), trace);
            let token = context.cancellation();
            call.cancel();
            assert_eq!(call.await.unwrap(), 0);
            assert!(context.is_cancelled() && token.is_cancelled());
        }
    }

    #[derive(Serialize, Deserialize)]
    struct Note {
        text: String,
    }

    impl Notification for Note {
        const METHOD: &'static str = "_test/note";
    }

    #[tokio::test]
    async fn a_handler_of_a_notification_has_its_context_first() {
        let (sender, mut notes) = tokio::sync::mpsc::unbounded_channel();
        let peer = connected(Extensions::new().on_notification(move |context, note: Note| {
            let _ = sender.send((context, note.text));
        }));
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        for (params, trace) in [
            (json!({"text": "a", "_meta": {"traceparent": parent}}), Some(parent)),
            (json!({"text": "a", "_meta": 3}), None),
            (json!({"text": "a"}), None),
        ] {
            peer.notify_raw("_test/note", &params).await.unwrap();
            let (context, text) = notes.recv().await.unwrap();
            assert_eq!((text.as_str(), context.method()), ("a", "_test/note"));
            assert_eq!(context.trace_context().map(|trace| trace.traceparent().to_owned()).as_deref(), trace);
            assert_eq!(context.meta().is_some(), trace.is_some());
            assert!(!context.peer().is_closing());
        }
    }

    #[cfg(feature = "jsonrpsee")]
    #[test]
    fn a_module_cannot_take_a_method_that_has_a_handler() {
        let mut module = ::jsonrpsee::RpcModule::new(());
        module.register_method("_test/add", |_, (), _| 0).unwrap();
        let error = Extensions::new().on_request(async |_, add: Add| Ok(add.a)).merge(module);
        assert!(matches!(error, Err(Error::MethodTaken { .. })));
    }

    #[cfg(feature = "jsonrpsee")]
    #[tokio::test]
    async fn a_later_handler_replaces_a_method_of_a_module() {
        let mut module = ::jsonrpsee::RpcModule::new(());
        module.register_method("_test/add", |_, (), _| 0).unwrap();
        let extensions = Extensions::new().merge(module).unwrap();
        let peer = connected(extensions.on_request(async |_, add: Add| Ok(add.a + add.b)));
        assert_eq!(peer.call::<_, i64>("_test/add", &json!({"a": 2, "b": 3})).await.unwrap(), 5);
    }
}
