//! The bridge to jsonrpsee: modules as handlers of extension requests, and client traits over a peer.
//!
//! RFD 0002 says why jsonrpsee handles requests only: it has no ordered notifications and no requests
//! from a server to its client.

use duologue_schema::Error as WireError;
use jsonrpsee::ConnectionId;
use jsonrpsee::core::client::{BatchResponse, ClientT, Error as ClientError};
use jsonrpsee::core::params::BatchRequestBuilder;
use jsonrpsee::core::server::{MethodCallback, MethodResponse, Methods};
use jsonrpsee::core::traits::ToRpcParams;
use jsonrpsee::types::{ErrorObjectOwned, Id, Params};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::Extensions;
use crate::error::Error;
use crate::peer::Peer;
use crate::service::{Incoming, Responder};

/// Sends a request to the module that has its method.
///
/// # Errors
///
/// Returns the responder if no module has the method.
pub(super) fn request(
    methods: &Methods,
    request: Incoming<'_>,
    responder: Responder,
) -> Result<(), Responder> {
    let params = request.params.map(|raw| raw.get().to_owned());
    let params = move || Params::new(params.as_deref()).into_owned();
    let mut context = jsonrpsee::Extensions::new();
    context.insert(responder.peer());
    let limit = responder.peer().limits().frame_bytes;
    match methods.method(request.method) {
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
        Some(MethodCallback::Subscription(_) | MethodCallback::Unsubscription(_)) | None => Err(responder),
    }
}

impl Extensions {
    /// Adds all methods of a jsonrpsee [`RpcModule`](jsonrpsee::RpcModule) or `#[rpc(server)]` trait.
    ///
    /// The peer that sent the request is in the handler's [`Extensions`](jsonrpsee::Extensions).
    /// Subscriptions cannot be called over this peer.
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
    ///
    /// # Errors
    ///
    /// Returns [`Error::MethodTaken`] if one of the methods has a handler already. A module is meant to be complete, so
    /// it replaces nothing. To replace one of its methods, call [`on_request`](Self::on_request) afterwards.
    pub fn merge(mut self, module: impl Into<Methods>) -> Result<Self, Error> {
        let module = module.into();
        if let Some(method) = module.method_names().find(|method| self.requests.contains_key(method)) {
            return Err(Error::MethodTaken { reason: format!("{method} has a handler already") });
        }
        self.modules.merge(module).map_err(|error| Error::MethodTaken { reason: error.to_string() })?;
        Ok(self)
    }
}

/// Takes the result or the error out of a whole response. The responder writes the id that the peer chose.
fn answer(response: &MethodResponse) -> Result<Box<RawValue>, WireError> {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow, default)]
        result: Option<&'a RawValue>,
        #[serde(default)]
        error: Option<WireError>,
    }
    let broken =
        |error| WireError::internal(format!("jsonrpsee returned a response that is not JSON-RPC: {error}"));
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

    /// Returns an error: ACP has no batches.
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
