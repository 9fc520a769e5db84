//! The state of the server, and the description of the interface.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use duologue_store::{SeenId, SeenKey, StoreBatch, StoreChange};
use prometheus_client::encoding::prometheus_text::CONTENT_TYPE as CONTENT;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::gateway::access::{ALL_AGENTS, Action};
use crate::gateway::config::LOCAL_PRINCIPAL;
use crate::gateway::rest::messages::stopping;
use crate::gateway::rest::request::RestCaller;
use crate::gateway::rest::{RestShared, openapi_json};
use crate::gateway::{GatewayShared, Refusal, RefusalCode};

static DESCRIPTION: LazyLock<String> = LazyLock::new(openapi_json);

/// Returns `ok` while the process runs.
#[utoipa::path(
    get, path = "/health", tag = "operation", security(()),
    responses((status = 200, content_type = "text/plain", body = String, description = "The process runs.")),
)]
pub(crate) async fn get_health() -> &'static str {
    "ok"
}

/// Returns `ready` if the server accepts work and its store can be written.
#[utoipa::path(
    get, path = "/ready", tag = "operation", security(()),
    responses(
        (status = 200, content_type = "text/plain", body = String, description = "The server accepts work."),
        (status = 500, body = crate::gateway::rest::RefusalBody, description = "The store cannot be written."),
        (status = 503, body = crate::gateway::rest::RefusalBody, description = "The server is stopped."),
    ),
)]
pub(crate) async fn get_ready(State(rest): State<Arc<RestShared>>) -> Result<&'static str, Refusal> {
    if rest.gateway.is_draining() || *rest.gateway.closing.borrow() {
        return Err(stopping());
    }
    rest.probe.check(&rest.gateway).await?;
    Ok("ready")
}

/// A write that shows if the store works. Its result is kept for a moment, because the route needs no key.
#[derive(Default)]
pub(crate) struct StoreProbe {
    last: Mutex<Option<(Instant, Result<(), Refusal>)>>,
}

impl StoreProbe {
    /// The time for which a result is kept.
    const KEPT: Duration = Duration::from_secs(1);

    async fn check(&self, gateway: &GatewayShared) -> Result<(), Refusal> {
        let mut last = self.last.lock().await;
        if let Some((at, result)) = &*last
            && at.elapsed() < StoreProbe::KEPT
        {
            return result.clone();
        }
        let time = gateway.time();
        // It has expired already, so each one is written.
        let mark = SeenId::new(SeenKey::new(LOCAL_PRINCIPAL, "get_ready", "probe"), Vec::new(), time.wall);
        let batch = StoreBatch::new(time).accepted().with(StoreChange::Remember(mark));
        let result = gateway.in_store(move |store| store.apply(batch)).await.map(drop);
        *last = Some((Instant::now(), result.clone()));
        result
    }
}

/// Returns the metrics in the text format of Prometheus. It needs the action `operate` on all agents (`*`).
#[utoipa::path(
    get, path = "/metrics", tag = "operation",
    responses((status = 200, content_type = "text/plain", body = String, description = "The metrics.")),
)]
pub(crate) async fn get_metrics(caller: RestCaller) -> Result<Response, Refusal> {
    let gateway = caller.gateway();
    if gateway.permit(&caller.principal, Action::Operate, ALL_AGENTS).is_err() {
        let why = "the metrics need a rule with the action `operate` and the agents `*`";
        return Err(Refusal::new(RefusalCode::NotAuthorized, why));
    }
    Ok(([(CONTENT_TYPE, CONTENT)], gateway.metrics_text().await?).into_response())
}

/// Returns this description.
#[utoipa::path(
    get, path = "/openapi.json", tag = "operation",
    responses((status = 200, body = serde_json::Value, description = "OpenAPI 3.1.")),
)]
pub(crate) async fn get_openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], DESCRIPTION.as_str()).into_response()
}
