//! The description of the interface, in OpenAPI 3.1.

use utoipa::OpenApi as _;
use utoipa::openapi::path::{Operation, Parameter, PathItem};
use utoipa::openapi::schema::{Schema, SchemaType, Type};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, OpenApi, Ref, RefOr, ResponseBuilder};

use crate::gateway::rest::links::add_links;
use crate::gateway::rest::{RefusalBody, described_routes};
use crate::gateway::{API_KEY, RefusalCode};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Duologue hub",
        description = "Agents, their messages and tasks, and the sessions of a hub. Requests need a key. A client may \
                       send `X-ACP-Version: 1.x`; another version is refused.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    components(schemas(RefusalBody)),
    security(("apiKey" = []), ("bearer" = [])),
    tags(
        (name = "agents", description = "Finding agents."),
        (name = "registry", description = "Registering agents."),
        (name = "messages", description = "Messages to agents, and their inboxes."),
        (name = "tasks", description = "Tasks of agents."),
        (name = "dead letters", description = "Messages and tasks that have failed."),
        (name = "sessions", description = "Sessions over ACP."),
        (name = "principals", description = "The data of a user or program."),
        (name = "operation", description = "The server itself."),
    ),
)]
struct Head;

/// The refusals that every route with a key can have.
const COMMON: [RefusalCode; 6] = [
    RefusalCode::InvalidParameter,
    RefusalCode::Unauthenticated,
    RefusalCode::NotAuthorized,
    RefusalCode::Overloaded,
    RefusalCode::Internal,
    RefusalCode::Unreachable,
];
/// The refusals of routes that name something in their path.
const OF_PATH: [RefusalCode; 1] = [RefusalCode::NotFound];
/// The refusals of routes with a body.
const OF_BODY: [RefusalCode; 3] =
    [RefusalCode::TooLarge, RefusalCode::UnsupportedMediaType, RefusalCode::Timeout];

/// Returns the parts of the description that no route has.
pub(crate) fn head() -> OpenApi {
    let mut head = Head::openapi();
    let components = head.components.get_or_insert_default();
    let key = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key")));
    debug_assert!(API_KEY.eq_ignore_ascii_case("X-API-Key"));
    components.add_security_scheme("apiKey", key);
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    head
}

/// Returns the description of the interface as the text of `schema/hub.openapi.json`.
#[must_use]
pub fn openapi_json() -> String {
    let mut document = described_routes();
    for (path, item) in &mut document.paths.paths {
        let has_target = path.contains('{');
        for (_, operation) in operations(item) {
            add_refusals(operation, has_target);
            operation.parameters.iter_mut().flatten().for_each(make_not_null);
        }
    }
    add_links(&mut document);
    let mut text = document.to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// Returns the operations of a path, with their methods.
pub(crate) fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let PathItem { get, put, post, delete, .. } = item;
    let all = [("GET", get), ("PUT", put), ("POST", post), ("DELETE", delete)];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// Removes `null` from the types of a parameter, which has no way to send it. The macros add it to optional headers.
fn make_not_null(parameter: &mut RefOr<Parameter>) {
    if let RefOr::T(Parameter { schema: Some(RefOr::T(Schema::Object(object))), .. }) = parameter
        && let SchemaType::Array(types) = &mut object.schema_type
    {
        types.retain(|kind| *kind != Type::Null);
        if let [kind] = &types[..] {
            object.schema_type = SchemaType::Type(kind.clone());
        }
    }
}

fn add_refusals(operation: &mut Operation, has_target: bool) {
    // Routes without a key say so.
    if operation.security.is_some() {
        add(operation, RefusalCode::InvalidParameter);
        add(operation, RefusalCode::NotAuthorized);
        return;
    }
    let has_body = operation.request_body.is_some();
    let codes = COMMON.iter();
    let codes = codes.chain(OF_PATH.iter().filter(|_| has_target));
    for code in codes.chain(OF_BODY.iter().filter(|_| has_body)) {
        add(operation, *code);
    }
}

/// Adds the response of a refusal, unless the route describes that status itself.
fn add(operation: &mut Operation, code: RefusalCode) {
    let description = match code {
        RefusalCode::InvalidParameter => "A part of the request is missing or has a wrong form.",
        RefusalCode::Unauthenticated => "The key is missing or not valid.",
        RefusalCode::NotAuthorized => {
            "The caller may not do this, or the request comes from a page of another origin."
        }
        RefusalCode::NotFound => "It does not exist, or the caller may not know of it.",
        RefusalCode::Overloaded => {
            "A limit is reached. `Retry-After` has the seconds if it is the rate of requests."
        }
        RefusalCode::TooLarge => "The body is too long.",
        RefusalCode::UnsupportedMediaType => "The type of the body is not accepted, or it is compressed.",
        RefusalCode::Timeout => "The body did not arrive in time.",
        RefusalCode::Unreachable => "The server is stopped.",
        _ => "The server has failed.",
    };
    let schema = RefOr::Ref(Ref::from_schema_name("Refusal"));
    let response = ResponseBuilder::new()
        .description(description)
        .content("application/json", Content::new(Some(schema)))
        .build();
    let responses = &mut operation.responses.responses;
    responses.entry(code.status().to_string()).or_insert(RefOr::T(response));
}
