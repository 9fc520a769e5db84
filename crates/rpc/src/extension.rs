//! Methods beyond the protocol: jsonrpsee's method table for requests, our own for notifications.
//!
//! jsonrpsee answers requests well and in any order, which is right for requests. It has no
//! ordered notifications and no server-to-client requests, so those stay with the peer; RFD 0002
//! has the measurements.

use std::collections::HashMap;
use std::sync::Arc;

use duologue_schema::Error as WireError;
use duologue_schema::Notification;
use jsonrpsee::ConnectionId;
use jsonrpsee::core::client::{BatchResponse, ClientT, Error as ClientError};
use jsonrpsee::core::params::BatchRequestBuilder;
use jsonrpsee::core::server::{MethodCallback, MethodResponse, Methods};
use jsonrpsee::core::traits::ToRpcParams;
use jsonrpsee::types::{ErrorObjectOwned, Id, Params};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::Error;
use crate::peer::Peer;
use crate::service::{Incoming, Responder};

type OnNotification = Arc<dyn Fn(Option<&RawValue>, &Peer) + Send + Sync>;

/// Handlers for extension methods, whose names start with `_`. Methods of the protocol never get
/// here, even if one of them is registered.
///
/// Requests come from a jsonrpsee [`RpcModule`](jsonrpsee::RpcModule) or a `#[rpc(server)]` trait;
/// each runs in a task of its own. Notifications are registered here and run on the reader, in the
/// order of the wire. The peer that asked is in the handler's
/// [`Extensions`](jsonrpsee::Extensions).
///
/// ```
/// use duologue_rpc::{Extensions, jsonrpsee::RpcModule};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut module = RpcModule::new(());
/// module.register_method("_example/add", |params, _, _| {
///     let [a, b]: [i64; 2] = params.parse()?;
///     Ok::<_, duologue_rpc::jsonrpsee::types::ErrorObjectOwned>(a + b)
/// })?;
/// let extensions = Extensions::new().merge(module)?;
/// # let _ = extensions;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Extensions {
    methods: Methods,
    notifications: HashMap<&'static str, OnNotification>,
}

impl std::fmt::Debug for Extensions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.methods.method_names()).entries(self.notifications.keys()).finish()
    }
}

impl Extensions {
    /// No extensions.
    #[must_use]
    pub fn new() -> Self {
        Extensions::default()
    }

    /// Adds all methods of a jsonrpsee module. Subscriptions are not callable over this peer.
    ///
    /// # Errors
    ///
    /// [`Error::MethodTaken`] when a method of that name is there already.
    pub fn merge(mut self, module: impl Into<Methods>) -> Result<Self, Error> {
        self.methods.merge(module).map_err(|error| Error::MethodTaken { reason: error.to_string() })?;
        Ok(self)
    }

    /// Calls `handler` for each notification of type `N`, on the reader: it must not block.
    /// Notifications whose params do not fit are dropped. A second handler of one name takes the
    /// place of the first.
    #[must_use]
    pub fn on_notification<N: Notification>(
        mut self,
        handler: impl Fn(N, &Peer) + Send + Sync + 'static,
    ) -> Self {
        self.notifications.insert(
            N::METHOD,
            Arc::new(move |params, peer| {
                let params = params.map_or("{}", RawValue::get);
                match serde_json::from_str(params) {
                    Ok(params) => handler(params, peer),
                    Err(error) => tracing::debug!(method = N::METHOD, %error, "dropped a notification"),
                }
            }),
        );
        self
    }

    /// Answers a request if its method is registered, else gives the responder back.
    ///
    /// # Errors
    ///
    /// The responder, when nobody here handles the method.
    pub fn request(&self, request: Incoming<'_>, responder: Responder) -> Result<(), Responder> {
        let params = request.params.map(|raw| raw.get().to_owned());
        let params = move || Params::new(params.as_deref()).into_owned();
        let mut context = jsonrpsee::Extensions::new();
        context.insert(responder.peer());
        let limit = responder.peer().limits().frame_bytes;
        match self.methods.method(request.method) {
            Some(MethodCallback::Sync(callback)) => {
                let callback = callback.clone();
                responder.spawn(async move { answer(&callback(Id::Number(0), params(), limit, context)) });
                Ok(())
            }
            Some(MethodCallback::Async(callback)) => {
                let callback = callback.clone();
                responder.spawn(async move {
                    let connection = ConnectionId(0);
                    answer(&callback(Id::Number(0), params(), connection, limit, context).await)
                });
                Ok(())
            }
            Some(MethodCallback::Subscription(_) | MethodCallback::Unsubscription(_)) | None => {
                Err(responder)
            }
        }
    }

    /// Runs the handler of a notification if there is one; tells whether there was.
    pub fn notification(&self, notification: Incoming<'_>, peer: &Peer) -> bool {
        match self.notifications.get(notification.method) {
            Some(handler) => {
                handler(notification.params, peer);
                true
            }
            None => false,
        }
    }
}

/// jsonrpsee hands out whole responses; ours is written with the id the peer chose.
fn answer(response: &MethodResponse) -> Result<Box<RawValue>, WireError> {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow, default)]
        result: Option<&'a RawValue>,
        #[serde(default)]
        error: Option<WireError>,
    }
    let broken =
        |error| WireError::internal(format!("jsonrpsee made an answer that is not JSON-RPC: {error}"));
    let body: Body<'_> = serde_json::from_str(response.as_ref()).map_err(broken)?;
    match body.error {
        Some(error) => Err(error),
        // serde reads a `null` result as absent.
        None => Ok(body.result.unwrap_or(RawValue::NULL).to_owned()),
    }
}

/// Calls over this peer through `#[rpc(client)]` traits.
impl ClientT for Peer {
    async fn notification<P: ToRpcParams + Send>(&self, method: &str, params: P) -> Result<(), ClientError> {
        let sent = match params.to_rpc_params()? {
            Some(params) => self.notify_raw(method, &params).await,
            None => self.notify_raw(method, &serde_json::Map::new()).await,
        };
        sent.map_err(client_error)
    }

    async fn request<R: DeserializeOwned, P: ToRpcParams + Send>(
        &self,
        method: &str,
        params: P,
    ) -> Result<R, ClientError> {
        let params = params.to_rpc_params()?;
        let answer = self.request_raw(method, params.as_deref()).await.map_err(client_error)?;
        Ok(serde_json::from_str(answer.get())?)
    }

    /// Always refused: ACP peers do not take batches.
    async fn batch_request<'a, R: DeserializeOwned + std::fmt::Debug + 'a>(
        &self,
        _: BatchRequestBuilder<'a>,
    ) -> Result<BatchResponse<'a, R>, ClientError> {
        Err(ClientError::Custom("batches are not part of ACP: send the requests one by one".into()))
    }
}

fn client_error(error: Error) -> ClientError {
    match error {
        Error::Response(error) => {
            let data = error.data.map(duologue_schema::Json::into_raw);
            ClientError::Call(ErrorObjectOwned::owned(error.code.0, error.message, data))
        }
        Error::Timeout { .. } => ClientError::RequestTimeout,
        other => ClientError::Transport(other.into()),
    }
}
