//! The first request, `initialize`.

use duologue_schema::{NewSessionRequest, Request as _};
use serde_json::{Value, json};

use crate::finding::{Outcome, checks, fail, pass, skip};
use crate::harness::{Harness, TestClient, initialize};

checks! { "handshake";
    "initialize-answers" => initialize_answers, Must, INITIALIZATION,
        "`initialize` for version 1 is answered with the version to speak.";
    "version-negotiated" => version_negotiated, Must, INITIALIZATION,
        "An unknown version is answered with the latest the agent speaks, not echoed.";
    "capabilities-well-formed" => capabilities_well_formed, Must, SCHEMA,
        "The answer to `initialize` has the form of the schema.";
    "terminal-login-withheld" => terminal_login_withheld, Should, AUTHENTICATION,
        "A login in a terminal is offered only to clients that say they can run one.";
    "unknown-fields" => unknown_fields, Must, EXTENSIBILITY,
        "`_meta` and fields it does not know, in `initialize` too, do not disturb the agent.";
}

/// A version that no agent will have.
const ABSURD: u32 = 65_000;

async fn initialize_answers(harness: &mut Harness) -> Outcome {
    let mut process = harness.raw()?;
    let response = initialize(&mut process, &TestClient::Files.initialize_params(1)).await?;
    harness.retire(process);
    match response.outcome {
        Err(error) => Ok(fail(format!("answered with {error}"))),
        Ok(hello) => match version(&hello) {
            Some(1) => Ok(pass(format!("version 1{}", name(&hello)))),
            Some(other) => Ok(fail(format!("answered with version {other}; nothing else here speaks it"))),
            None => Ok(fail(format!("protocolVersion is {}, no number", hello["protocolVersion"]))),
        },
    }
}

async fn version_negotiated(harness: &mut Harness) -> Outcome {
    // An agent that does not answer `initialize` at all is reported by another check.
    harness.agent().await?;
    let mut process = harness.raw()?;
    let response = initialize(&mut process, &TestClient::Files.initialize_params(ABSURD)).await?;
    harness.retire(process);
    match response.outcome.as_ref().map(version) {
        Ok(Some(version)) if version == u64::from(ABSURD) => {
            Ok(fail(format!("echoed version {ABSURD}, which it cannot speak")))
        }
        Ok(Some(version)) => Ok(pass(format!("version {ABSURD} was answered with {version}"))),
        Ok(None) => Ok(fail("the answer names no version")),
        Err(error) => Ok(fail(format!("answered with {error} instead of a version"))),
    }
}

async fn capabilities_well_formed(harness: &mut Harness) -> Outcome {
    let agent = harness.agent().await?;
    let faults = faults(&agent.initialized);
    match faults.as_slice() {
        [] => Ok(pass("every capability has its type")),
        faults => Ok(fail(faults.join("; "))),
    }
}

async fn terminal_login_withheld(harness: &mut Harness) -> Outcome {
    let agent = harness.agent().await?;
    match agent.initialized["authMethods"].as_array().map(Vec::as_slice) {
        None | Some([]) => Ok(skip("it offers no login")),
        Some(methods) => match methods.iter().find(|method| method["type"] == "terminal") {
            Some(method) => {
                Ok(fail(format!("{} is offered to a client without auth.terminal", method["id"])))
            }
            None => Ok(pass("no login is of type terminal")),
        },
    }
}

async fn unknown_fields(harness: &mut Harness) -> Outcome {
    harness.agent().await?;
    let mut process = harness.raw()?;
    let mut hello = TestClient::Files.initialize_params(1);
    hello["clientCapabilities"]["tomorrow"] = json!({"much": true});
    hello["clientCapabilities"]["_meta"] = json!({"duologue.dev": {"check": true}});
    hello["nextYear"] = json!([1, {"two": null}]);
    hello["_meta"] = json!({"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"});
    let response = initialize(&mut process, &hello).await?;
    harness.retire(process);
    if let Err(error) = response.outcome {
        return Ok(fail(format!("initialize with unknown fields is answered with {error}")));
    }
    let (agent, _) = harness.session().await?;
    let mut params = agent.new_session_params();
    params["tomorrow"] = json!("unheard of");
    params["_meta"] = json!({"duologue.dev": {"check": [1, 2, 3]}});
    match agent.request(NewSessionRequest::METHOD, params).await?.outcome {
        Ok(_) => Ok(pass("initialize and session/new with more fields than it knows work")),
        Err(error) => {
            // It may only be out of sessions.
            agent.open().await?;
            Ok(fail(format!("session/new with unknown fields is answered with {error}")))
        }
    }
}

fn version(hello: &Value) -> Option<u64> {
    hello["protocolVersion"].as_u64()
}

fn name(hello: &Value) -> String {
    match (hello["agentInfo"]["name"].as_str(), hello["agentInfo"]["version"].as_str()) {
        (Some(name), Some(version)) => format!(", {name} {version}"),
        _ => String::new(),
    }
}

/// Returns the members that have not the type of the schema. An SDK reads such a member as absent, so the
/// capability is never used.
fn faults(hello: &Value) -> Vec<String> {
    const BOOLEANS: [&str; 6] = [
        "/agentCapabilities/loadSession",
        "/agentCapabilities/promptCapabilities/image",
        "/agentCapabilities/promptCapabilities/audio",
        "/agentCapabilities/promptCapabilities/embeddedContext",
        "/agentCapabilities/mcpCapabilities/http",
        "/agentCapabilities/mcpCapabilities/sse",
    ];
    const OBJECTS: [&str; 11] = [
        "/agentCapabilities",
        "/agentCapabilities/promptCapabilities",
        "/agentCapabilities/mcpCapabilities",
        "/agentCapabilities/sessionCapabilities",
        "/agentCapabilities/sessionCapabilities/list",
        "/agentCapabilities/sessionCapabilities/delete",
        "/agentCapabilities/sessionCapabilities/resume",
        "/agentCapabilities/sessionCapabilities/close",
        "/agentCapabilities/sessionCapabilities/additionalDirectories",
        "/agentCapabilities/auth",
        "/agentCapabilities/auth/logout",
    ];
    let mut faults = Vec::new();
    let mut expect = |path: &str, kind: &str, fits: fn(&Value) -> bool| {
        if let Some(value) = hello.pointer(path).filter(|value| !value.is_null() && !fits(value)) {
            let path = path.trim_start_matches('/').replace('/', ".");
            faults.push(format!("{path} is {value}, not {kind}"));
        }
    };
    for path in BOOLEANS {
        expect(path, "true or false", Value::is_boolean);
    }
    for path in OBJECTS {
        expect(path, "an object", Value::is_object);
    }
    expect("/authMethods", "a list", Value::is_array);
    expect("/agentInfo", "an object", Value::is_object);
    if hello["agentInfo"].is_object() {
        for member in ["name", "version"] {
            if !hello["agentInfo"][member].is_string() {
                faults.push(format!("agentInfo has no {member}"));
            }
        }
    }
    for method in hello["authMethods"].as_array().into_iter().flatten() {
        if !(method["id"].is_string() && method["name"].is_string()) {
            faults.push(format!("{method} in authMethods lacks an id or a name"));
        }
    }
    faults
}
