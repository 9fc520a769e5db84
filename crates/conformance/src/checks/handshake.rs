//! The first exchange.

use serde_json::{Value, json};

use super::bench::{Bench, Client, greet};
use super::finding::{Check, Outcome, check, fail, page, pass, skip};

pub(super) const CHECKS: &[Check] = &[
    check!(
        "initialize-answers",
        Must,
        page::INITIALIZATION,
        "`initialize` for version 1 is answered with the version to speak.",
        initialize_answers
    ),
    check!(
        "version-negotiated",
        Must,
        page::INITIALIZATION,
        "A version nobody has is answered with the latest the agent speaks, not echoed.",
        version_negotiated
    ),
    check!(
        "capabilities-well-formed",
        Must,
        page::SCHEMA,
        "The answer to `initialize` has the form of the schema.",
        capabilities_well_formed
    ),
    check!(
        "terminal-login-withheld",
        Should,
        page::AUTHENTICATION,
        "A login in a terminal is offered only to clients that say they can run one.",
        terminal_login_withheld
    ),
    check!(
        "unknown-fields",
        Must,
        page::EXTENSIBILITY,
        "`_meta` and fields it does not know, in `initialize` too, do not disturb the agent.",
        unknown_fields
    ),
];

/// A version that no agent will have.
const ABSURD: u32 = 65_000;

async fn initialize_answers(bench: &mut Bench) -> Outcome {
    let mut wire = bench.raw()?;
    let answer = greet(&mut wire, &Client::Files.hello(1)).await?;
    bench.retire(wire);
    match answer.outcome {
        Err(refusal) => Ok(fail(format!("answered with {refusal}"))),
        Ok(hello) => match version(&hello) {
            Some(1) => Ok(pass(format!("version 1{}", name(&hello)))),
            Some(other) => Ok(fail(format!("answered with version {other}; nothing else here speaks it"))),
            None => Ok(fail(format!("protocolVersion is {}, no number", hello["protocolVersion"]))),
        },
    }
}

async fn version_negotiated(bench: &mut Bench) -> Outcome {
    // One that cannot be greeted at all has been told so.
    bench.agent().await?;
    let mut wire = bench.raw()?;
    let answer = greet(&mut wire, &Client::Files.hello(ABSURD)).await?;
    bench.retire(wire);
    match answer.outcome.as_ref().map(version) {
        Ok(Some(version)) if version == u64::from(ABSURD) => {
            Ok(fail(format!("echoed version {ABSURD}, which it cannot speak")))
        }
        Ok(Some(version)) => Ok(pass(format!("version {ABSURD} was answered with {version}"))),
        Ok(None) => Ok(fail("the answer names no version")),
        Err(refusal) => Ok(fail(format!("answered with {refusal} instead of a version"))),
    }
}

async fn capabilities_well_formed(bench: &mut Bench) -> Outcome {
    let agent = bench.agent().await?;
    let faults = faults(&agent.hello);
    match faults.as_slice() {
        [] => Ok(pass("every capability has its type")),
        faults => Ok(fail(faults.join("; "))),
    }
}

async fn terminal_login_withheld(bench: &mut Bench) -> Outcome {
    let agent = bench.agent().await?;
    match agent.hello["authMethods"].as_array().map(Vec::as_slice) {
        None | Some([]) => Ok(skip("it offers no login")),
        Some(methods) => match methods.iter().find(|method| method["type"] == "terminal") {
            Some(method) => {
                Ok(fail(format!("{} is offered to a client without auth.terminal", method["id"])))
            }
            None => Ok(pass("no login is of type terminal")),
        },
    }
}

async fn unknown_fields(bench: &mut Bench) -> Outcome {
    bench.agent().await?;
    let mut wire = bench.raw()?;
    let mut hello = Client::Files.hello(1);
    hello["clientCapabilities"]["tomorrow"] = json!({"much": true});
    hello["clientCapabilities"]["_meta"] = json!({"duologue.dev": {"check": true}});
    hello["nextYear"] = json!([1, {"two": null}]);
    hello["_meta"] = json!({"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"});
    let answer = greet(&mut wire, &hello).await?;
    bench.retire(wire);
    if let Err(refusal) = answer.outcome {
        return Ok(fail(format!("initialize with unknown fields is answered with {refusal}")));
    }
    let (agent, _) = bench.session().await?;
    let mut params = agent.folder();
    params["tomorrow"] = json!("unheard of");
    params["_meta"] = json!({"duologue.dev": {"check": [1, 2, 3]}});
    match agent.ask("session/new", params).await?.outcome {
        Ok(_) => Ok(pass("initialize and session/new with more fields than it knows work")),
        Err(refusal) => {
            // Unless it takes no more at all.
            agent.open().await?;
            Ok(fail(format!("session/new with unknown fields is answered with {refusal}")))
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

/// What does not have the type that the schema gives it. An SDK reads such a value as absent, and
/// the agent's author wonders why nobody uses the capability.
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
