//! The REST interface: routes, their checks and their description.
//!
//! The routes read and change the store alone. Workers give its tasks and messages to the agents, so a route that waits
//! for an agent watches the store.

mod admission;
mod agents;
mod dead_letters;
mod document;
mod inbox;
mod limits;
mod links;
mod messages;
mod operations;
mod principals;
mod query;
mod registry;
pub(crate) mod request;
mod response_room;
mod sent_reply;
mod session_input;
pub(crate) mod session_log;
mod session_view;
mod sessions;
mod task_events;
mod task_input;
pub(crate) mod tasks;
mod values;
mod visibility;

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use duologue_store::Store;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::gateway::access::Principal;
use crate::gateway::rest::limits::RequestRates;
use crate::gateway::rest::operations::StoreProbe;
use crate::gateway::rest::request::RunningKeys;
use crate::gateway::rest::response_room::{ResponseRoom, ResponseRooms};
use crate::gateway::rest::session_view::SessionViews;
use crate::gateway::{GatewayShared, Refusal, RefusalCode};
use crate::place_counts::PlaceCounts;

pub use document::openapi_json;
pub(crate) use messages::kept_content;
#[cfg(feature = "page")]
pub(crate) use request::essence;
pub(crate) use request::path_of;
#[cfg(feature = "client")]
pub(crate) use task_events::KEEP_ALIVE;
pub(crate) use values::{ID_RULE, RefusalBody, is_id};

/// The bodies and queries of the REST interface.
pub mod types {
    pub use duologue_store::JsonText;

    pub use super::agents::{
        AgentFilter, RestAgent, RestAgentCapabilities, RestAgentList, RestAgentMetadata, RestAgentStatus,
        RestCapability, RestCapabilityDetails, RestPricing, RestPricingModel,
    };
    pub use super::dead_letters::{DeadFilter, DeadQuery, RestDeadKind, RestDeadLetters};
    pub use super::inbox::{
        ClaimMax, ClaimQuery, MessageFilter, RestAck, RestAcknowledged, RestClaimedMessages,
        RestInboxMessage, RestMessageList, RestNack,
    };
    pub use super::messages::{
        RestContent, RestMessageStatus, RestNewMessage, RestSendMode, RestSentMessage,
    };
    pub use super::registry::{RestHeartbeat, RestRegistration};
    pub use super::session_input::{RestSessionAnswered, RestSessionInput};
    pub use super::session_log::{LogFilter, RestLogPage, RestLogRecord};
    pub use super::session_view::{RestSessionLine, RestSessionLines, RestSessionView, SessionViewFilter};
    pub use super::sessions::{RestSession, RestSessionList, SessionFilter};
    pub use super::task_events::{RestTaskProgress, RestTaskUpdate};
    pub use super::task_input::{RestAnswer, RestAnswered, RestQuestion, RestQuestionState, RestTaskInput};
    pub use super::tasks::{
        RestAcceptance, RestCreatedTask, RestNewTask, RestStateFilter, RestTask, RestTaskList,
        RestTaskStatus, RestWork, TaskFilter,
    };
    pub use super::values::{
        OwnerQuery, PageLimit, PageOffset, Pagination, RefusalBody, RestFailure, RestId, RestMetadata,
        RestNumber, RestPriority, RestUrl, SenderQuery,
    };
}

/// The header with the version of the interface.
pub(crate) const API_VERSION: HeaderName = HeaderName::from_static("x-acp-version");

/// The state of the routes.
pub(crate) struct RestShared {
    pub(crate) gateway: Arc<GatewayShared>,
    /// One permit for each request that waits or streams, or reads a page.
    open: Arc<Semaphore>,
    open_of: PlaceCounts<Arc<str>>,
    rooms: ResponseRooms,
    /// The room of a list that is read from the store, which has all of it.
    lists: ResponseRooms,
    rates: RequestRates,
    /// The keys of requests that run.
    pub(crate) running: RunningKeys,
    pub(crate) probe: StoreProbe,
    pub(crate) views: SessionViews,
}

impl RestShared {
    /// Reads a list from the store when it is the principal's turn: each has one list there at once.
    ///
    /// The list has the turn until it is read, also if the client has left.
    pub(crate) async fn read_list<T: Send + 'static>(
        &self,
        principal: &Arc<str>,
        read: impl FnOnce(&dyn Store) -> duologue_store::Result<T> + Send + 'static,
    ) -> Result<T, Refusal> {
        let turn = self.list_turn(principal).await;
        let read = move |store: &dyn Store| {
            let _turn = turn;
            read(store)
        };
        self.gateway.in_store(read).await
    }

    /// Waits for the turn of a principal to read a list from the store.
    pub(crate) async fn list_turn(&self, principal: &Arc<str>) -> ResponseRoom {
        self.lists.take(principal, 1).await
    }
}

/// Creates the router of the interface. The caller has checked the key of a request and puts the [`Principal`] into
/// its extensions.
pub(crate) fn router(gateway: &Arc<GatewayShared>) -> Router {
    let limits = &gateway.config.limits;
    let rest = Arc::new(RestShared {
        gateway: gateway.clone(),
        open: Arc::new(Semaphore::new(limits.open_requests.min(Semaphore::MAX_PERMITS))),
        open_of: PlaceCounts::default(),
        rooms: ResponseRooms::new(limits.principal_response_bytes),
        lists: ResponseRooms::new(1),
        rates: RequestRates::new(limits.requests_per_minute),
        running: RunningKeys::default(),
        probe: StoreProbe::default(),
        views: SessionViews::default(),
    });
    let (router, _) = all_routes().split_for_parts();
    let router = router.layer(from_fn_with_state(rest.clone(), check_limits));
    router.layer(from_fn_with_state(rest.clone(), measure)).with_state(rest)
}

/// An operation of the description.
struct OperationPath {
    method: &'static str,
    segments: Vec<String>,
    id: String,
}

/// The operations. Those with fewer parameters in their paths come first, as the router prefers them.
static OPERATIONS: LazyLock<Vec<OperationPath>> = LazyLock::new(|| {
    let mut operations = Vec::new();
    for (path, mut item) in described_routes().paths.paths {
        let segments: Vec<String> = path.split('/').map(str::to_owned).collect();
        for (method, operation) in document::operations(&mut item) {
            let Some(id) = operation.operation_id.take() else { continue };
            operations.push(OperationPath { method, segments: segments.clone(), id });
        }
    }
    operations.sort_by_key(|operation| operation.segments.iter().filter(|it| it.starts_with('{')).count());
    operations
});

/// Returns the operation of a request.
fn operation_of(method: &str, path: &str) -> Option<&'static str> {
    let segments: Vec<&str> = path.split('/').collect();
    let found = OPERATIONS.iter().find(|operation| {
        let mut parts = operation.segments.iter().zip(&segments);
        operation.method == method
            && operation.segments.len() == segments.len()
            && parts.all(|(part, segment)| part.starts_with('{') || part == segment)
    });
    found.map(|operation| operation.id.as_str())
}

/// Records the time of a request.
async fn measure(State(rest): State<Arc<RestShared>>, request: Request, next: Next) -> Response {
    let operation = operation_of(request.method().as_str(), request.uri().path());
    let began = Instant::now();
    let response = next.run(request).await;
    if let Some(operation) = operation {
        rest.gateway.metrics.requested(operation, began.elapsed());
    }
    response
}

/// Returns the description of all routes, without the parts that they share.
fn described_routes() -> OpenApi {
    all_routes().split_for_parts().1
}

/// Registers the routes. A handler without a description cannot be registered here.
fn all_routes() -> OpenApiRouter<Arc<RestShared>> {
    OpenApiRouter::with_openapi(document::head())
        .routes(routes!(agents::list_agents))
        .routes(routes!(agents::get_agent))
        .routes(routes!(agents::get_capabilities))
        .routes(routes!(registry::list_registry))
        .routes(routes!(registry::put_agent, registry::remove_agent))
        .routes(routes!(registry::send_heartbeat))
        .routes(routes!(inbox::list_messages, messages::send_message))
        .routes(routes!(inbox::claim_messages))
        .routes(routes!(inbox::get_message))
        .routes(routes!(inbox::ack_message))
        .routes(routes!(inbox::nack_message))
        .routes(routes!(tasks::list_tasks, tasks::create_task))
        .routes(routes!(tasks::get_task))
        .routes(routes!(tasks::cancel_task))
        .routes(routes!(task_events::watch_task))
        .routes(routes!(task_input::get_input, task_input::answer_input))
        .routes(routes!(dead_letters::list_dead_letters))
        .routes(routes!(dead_letters::drop_dead_letter))
        .routes(routes!(dead_letters::resend_dead_letter))
        .routes(routes!(sessions::list_sessions))
        .routes(routes!(sessions::get_session, sessions::erase_session))
        .routes(routes!(session_input::get_session_input, session_input::answer_session_input))
        .routes(routes!(session_log::get_session_log))
        .routes(routes!(session_view::get_session_view))
        .routes(routes!(session_view::get_session_lines))
        .routes(routes!(principals::export_data, principals::erase_data))
        .routes(routes!(operations::get_health))
        .routes(routes!(operations::get_ready))
        .routes(routes!(operations::get_metrics))
        .routes(routes!(operations::get_openapi))
}

/// Checks the version of the interface and the rate of a principal.
async fn check_limits(State(rest): State<Arc<RestShared>>, request: Request, next: Next) -> Response {
    if let Err(refusal) = check_version(request.headers()) {
        return refusal.into_response();
    }
    // A path that needs no key has no principal.
    if let Some(principal) = request.extensions().get::<Principal>()
        && let Err(pause) = rest.rates.count(&principal.id)
    {
        let limit = rest.gateway.config.limits.requests_per_minute;
        let why = format!(
            "more than {limit} requests in a minute; retry later, or raise `limits.requests_per_minute`"
        );
        let mut response = Refusal::new(RefusalCode::Overloaded, why).into_response();
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(pause.as_secs() + 1));
        return response;
    }
    next.run(request).await
}

fn check_version(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(version) = headers.get(API_VERSION) else { return Ok(()) };
    let is_supported = |text: &str| {
        let minor = text.strip_prefix("1.").or_else(|| (text == "1").then_some("0"));
        minor.is_some_and(|minor| !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit()))
    };
    if version.to_str().is_ok_and(is_supported) {
        return Ok(());
    }
    let why = "this version of the interface is not supported; supported versions: 1.x";
    Err(Refusal::new(RefusalCode::UnsupportedVersion, why))
}
