//! Envelopes: the rules for an agent that advertises them. Other agents skip these checks.

use duologue_schema::envelope::{
    Ack, AgentId, Cancel, Capabilities, Discover, Envelope, EnvelopeError, EnvelopeErrorCode, EnvelopeId,
    EnvelopeResult, Payload, Ping, Pong, Query, VERSION,
};
use duologue_schema::{AgentCapabilities, DuologueCapabilities};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::finding::{Finding, Outcome, checks, fail, pass, skip};
use crate::harness::{Agent, Harness, plural};
use crate::raw_process::{ErrorFromAgent, ResponseFromAgent};

checks! { "envelopes";
    "agent-id" => agent_id, Must, ENVELOPES,
        "An agent that advertises envelopes announces its id, as `_meta.duologue.agentId`.";
    "ping-answered" => ping_answered, Must, ENVELOPES,
        "`_session/ping` is answered with a `pong`, whether the payload is `{}`, `null` or absent.";
    "discover-fits" => discover_fits, Must, ENVELOPES,
        "`_session/discover` is answered with `capabilities` of the form they have.";
    "unknown-kind" => unknown_kind, Must, ENVELOPES,
        "An envelope of an unknown kind is answered with -32601 and an `error` envelope, `unknown_kind`.";
    "wrong-addressee" => wrong_addressee, Must, ENVELOPES,
        "An envelope whose `to` is another agent is answered with an `error` envelope.";
    "kind-mismatch" => kind_mismatch, Must, ENVELOPES,
        "A `kind` that is not its method's is answered with an `error` envelope, `kind_mismatch`.";
    "unsupported-version" => unsupported_version, Must, ENVELOPES,
        "A `v` that was not advertised is answered with an `error` envelope, `unsupported_version`.";
    "payload-checked" => payload_checked, Must, ENVELOPES,
        "A `query` without a question is answered with an `error` envelope, `invalid_parameter`.";
    "cancel-unknown" => cancel_unknown, Must, ENVELOPES,
        "`_session/cancel` for an unknown delegation is answered with an `ack` that does not accept.";
}

/// The id of the client.
const OWN: &str = "c0ffee";
/// The id of an agent that does not exist.
const NOBODY: &str = "00dead00";
/// The id of a delegation that does not exist.
const NO_DELEGATION: &str = "00000000-0000-4000-8000-00000000dead";
/// A version that no agent will have.
const ABSURD: u32 = 65_000;

/// Returns the agent and its id in envelopes if it supports them. An agent without an announced id gets
/// envelopes with an empty `to`.
async fn speaker(harness: &mut Harness) -> Result<(&mut Agent, AgentId), Finding> {
    let agent = harness.agent().await?;
    let offers = offers(agent);
    if !offers.speaks_envelopes() {
        return Err(skip(format!("it does not advertise _meta.duologue.envelope with version {VERSION}")));
    }
    Ok((agent, offers.agent_id.unwrap_or_else(|| AgentId::from(""))))
}

/// Returns the support for messages between agents that the agent advertises.
pub(super) fn offers(agent: &Agent) -> DuologueCapabilities {
    let capabilities =
        AgentCapabilities::deserialize(&agent.initialized["agentCapabilities"]).unwrap_or_default();
    DuologueCapabilities::of(capabilities.meta.as_ref())
}

/// Creates an envelope for the agent.
fn envelope<P: Payload>(agent: &mut Agent, to: &AgentId, payload: P) -> Envelope<P> {
    let id = format!("00000000-0000-4000-8000-{:0>12}", agent.new_id());
    Envelope::new(id, OWN, to.clone(), 1_767_225_600_000, payload)
}

/// Returns the error envelope of a response that has to be one, and the JSON-RPC error around it.
fn refused(
    response: &ResponseFromAgent,
    request: &EnvelopeId,
    what: &str,
) -> Result<(EnvelopeError, ErrorFromAgent), Finding> {
    let error = match &response.outcome {
        Err(error) => error,
        Ok(result) => return Err(fail(format!("{what} is answered with a result: {result}"))),
    };
    let around = &error.data["envelope"];
    let envelope: Envelope = Envelope::deserialize(around)
        .map_err(|error| fail(format!("{what} is answered with {error}, without an envelope: {error}")))?;
    if envelope.reference.as_ref() != Some(request) {
        return Err(fail(format!(
            "the error envelope's ref is {}, not the id of what it answers",
            around["ref"]
        )));
    }
    match envelope.open::<EnvelopeError>() {
        Ok(envelope) => Ok((envelope.payload, error.clone())),
        Err(fault) => Err(fail(format!("{what} is answered with an envelope that is no error: {fault}"))),
    }
}

/// Returns the envelope of a response that has to hold one of type `P`.
fn replied<P: Payload>(
    response: ResponseFromAgent,
    request: &EnvelopeId,
    by: &AgentId,
) -> Result<Envelope<P>, Finding> {
    let (kind, method) = (P::KIND, P::METHOD.rsplit('/').next().unwrap_or_default());
    let result = match response.outcome {
        Ok(result) => result,
        Err(error) => return Err(fail(format!("answered with {error}, not with {method}"))),
    };
    let reply: EnvelopeResult = EnvelopeResult::deserialize(&result)
        .map_err(|error| fail(format!("the answer has no envelope that can be read: {error}")))?;
    let envelope = reply.envelope;
    let faults = [
        (envelope.v != VERSION, format!("its v is {}", envelope.v)),
        (envelope.kind != kind, format!("its kind is {}", envelope.kind)),
        (envelope.reference.as_ref() != Some(request), "its ref is not the id of what it answers".to_owned()),
        (
            !by.as_str().is_empty() && envelope.from != *by,
            format!("it is from {}, and the agent announced {by}", envelope.from),
        ),
        (envelope.to.as_str() != OWN, format!("it is to {}, and {OWN} sent the request", envelope.to)),
    ];
    if let Some((_, fault)) = faults.into_iter().find(|(wrong, _)| *wrong) {
        return Err(fail(format!("answered with an envelope that is no {kind} for us: {fault}")));
    }
    envelope.open().map_err(|fault| fail(format!("the payload does not fit: {}", fault.message)))
}

async fn agent_id(harness: &mut Harness) -> Outcome {
    let (_, id) = speaker(harness).await?;
    Ok(match id.as_str() {
        "" => fail("it advertises envelopes and no _meta.duologue.agentId"),
        id => pass(id),
    })
}

async fn ping_answered(harness: &mut Harness) -> Outcome {
    let (agent, id) = speaker(harness).await?;
    let mut saw = String::new();
    for payload in [Some(json!({})), Some(Value::Null), None] {
        let ping = envelope(agent, &id, Ping::new());
        let mut params = json!({ "envelope": ping });
        match payload {
            Some(payload) => params["envelope"]["payload"] = payload,
            None => drop(params["envelope"].as_object_mut().and_then(|ping| ping.remove("payload"))),
        }
        let response = agent.request(Ping::METHOD, params).await?;
        let pong = replied::<Pong>(response, &ping.id, &id)?.payload;
        saw = format!("{}, {}", pong.agent_name, pong.status);
    }
    Ok(pass(saw))
}

async fn discover_fits(harness: &mut Harness) -> Outcome {
    let (agent, id) = speaker(harness).await?;
    let discover = envelope(agent, &id, Discover::new());
    let response = agent.request(Discover::METHOD, json!({ "envelope": discover })).await?;
    let update = replied::<Capabilities>(response, &discover.id, &id)?.payload;
    let tasks = usize::try_from(update.max_concurrent_tasks).unwrap_or(usize::MAX);
    Ok(pass(format!("{}, {} at once", plural(update.domains.len(), "domain"), plural(tasks, "task"))))
}

async fn unknown_kind(harness: &mut Harness) -> Outcome {
    let (agent, id) = speaker(harness).await?;
    let ping = envelope(agent, &id, Ping::new());
    let mut params = json!({ "envelope": ping });
    params["envelope"]["kind"] = json!("no_such_kind");
    let response = agent.request("_session/no_such_kind", params).await?;
    let (fault, error) = refused(&response, &ping.id, "_session/no_such_kind")?;
    Ok(match (fault.code, error.code) {
        (EnvelopeErrorCode::UnknownKind, -32601) => pass("-32601, unknown_kind"),
        (code, number) => fail(format!("answered with {number} and the code {code}")),
    })
}

async fn wrong_addressee(harness: &mut Harness) -> Outcome {
    let (agent, _) = speaker(harness).await?;
    let ping = envelope(agent, &AgentId::from(NOBODY), Ping::new());
    let response = agent.request(Ping::METHOD, json!({ "envelope": ping })).await?;
    let (fault, _) = refused(&response, &ping.id, "a ping to another agent")?;
    Ok(pass(fault.code.to_string()))
}

async fn kind_mismatch(harness: &mut Harness) -> Outcome {
    let (agent, id) = speaker(harness).await?;
    let query = envelope(agent, &id, Query::new("Is this a ping?"));
    let response = agent.request(Ping::METHOD, json!({ "envelope": query })).await?;
    has_code(&response, &query.id, "a query sent as _session/ping", EnvelopeErrorCode::KindMismatch)
}

async fn unsupported_version(harness: &mut Harness) -> Outcome {
    let (agent, id) = speaker(harness).await?;
    let mut ping = envelope(agent, &id, Ping::new());
    ping.v = ABSURD;
    let response = agent.request(Ping::METHOD, json!({ "envelope": ping })).await?;
    has_code(&response, &ping.id, "an envelope of version 65000", EnvelopeErrorCode::UnsupportedVersion)
}

fn has_code(
    response: &ResponseFromAgent,
    request: &EnvelopeId,
    what: &str,
    expected: EnvelopeErrorCode,
) -> Outcome {
    let (fault, _) = refused(response, request, what)?;
    Ok(match fault.code == expected {
        true => pass(expected.to_string()),
        false => fail(format!("{what} is answered with the code {}", fault.code)),
    })
}

async fn payload_checked(harness: &mut Harness) -> Outcome {
    speaker(harness).await?;
    let session = harness.session().await?.1.id;
    let (agent, id) = speaker(harness).await?;
    let query = envelope(agent, &id, Query::new("Is this a question?"));
    let mut params = json!({ "sessionId": session, "envelope": query });
    params["envelope"]["payload"] = json!({});
    let response = agent.request(Query::METHOD, params).await?;
    has_code(&response, &query.id, "a query without a question", EnvelopeErrorCode::InvalidParameter)
}

async fn cancel_unknown(harness: &mut Harness) -> Outcome {
    speaker(harness).await?;
    let session = harness.session().await?.1.id;
    let (agent, id) = speaker(harness).await?;
    let cancel = envelope(agent, &id, Cancel::new().reason("a check")).reference(NO_DELEGATION);
    let params = json!({ "sessionId": session, "envelope": cancel });
    let response = agent.request(Cancel::METHOD, params).await?;
    let ack = replied::<Ack>(response, &cancel.id, &id)?.payload;
    Ok(match ack.accepted {
        true => fail("it accepts the cancel of an unknown delegation"),
        false => pass(ack.reason.unwrap_or_else(|| "not accepted".into())),
    })
}
