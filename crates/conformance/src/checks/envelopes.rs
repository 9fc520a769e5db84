//! Envelopes: what an agent that advertises them keeps to. Others are not asked.

use duologue_schema::envelope::{
    Ack, AgentId, Cancel, Capabilities, Discover, Envelope, EnvelopeError, EnvelopeErrorCode, EnvelopeId,
    EnvelopeResult, Payload, Ping, Pong, Query, VERSION,
};
use duologue_schema::{AgentCapabilities, DuologueCapabilities};
use serde::Deserialize;
use serde_json::{Value, json};

use super::bench::{Agent, Bench};
use super::finding::{Check, Finding, Outcome, check, fail, page, pass, skip};
use super::wire::{Answer, Refusal};
use crate::ui::plural;

pub(super) const CHECKS: &[Check] = &[
    check!(
        "agent-id",
        Must,
        page::ENVELOPES,
        "An agent that advertises envelopes announces its id, as `_meta.duologue.agentId`.",
        agent_id
    ),
    check!(
        "ping-answered",
        Must,
        page::ENVELOPES,
        "`_session/ping` is answered with a `pong`, whether the payload is `{}`, `null` or absent.",
        ping_answered
    ),
    check!(
        "discover-fits",
        Must,
        page::ENVELOPES,
        "`_session/discover` is answered with `capabilities` of the form they have.",
        discover_fits
    ),
    check!(
        "unknown-kind",
        Must,
        page::ENVELOPES,
        "An envelope of a kind nobody has is answered with -32601 and an `error` envelope, `unknown_kind`.",
        unknown_kind
    ),
    check!(
        "wrong-addressee",
        Must,
        page::ENVELOPES,
        "An envelope whose `to` is another agent is answered with an `error` envelope.",
        wrong_addressee
    ),
    check!(
        "kind-mismatch",
        Must,
        page::ENVELOPES,
        "A `kind` that is not its method's is answered with an `error` envelope, `kind_mismatch`.",
        kind_mismatch
    ),
    check!(
        "unsupported-version",
        Must,
        page::ENVELOPES,
        "A `v` that was not advertised is answered with an `error` envelope, `unsupported_version`.",
        unsupported_version
    ),
    check!(
        "cancel-unknown",
        Must,
        page::ENVELOPES,
        "`_session/cancel` for a delegation nobody made is answered with an `ack` that does not accept.",
        cancel_unknown
    ),
];

/// Our id.
const OWN: &str = "c0ffee";
/// An agent that is not there.
const NOBODY: &str = "00dead00";
/// A delegation that is not there.
const NO_DELEGATION: &str = "00000000-0000-4000-8000-00000000dead";
/// A version that no agent will have.
const ABSURD: u32 = 65_000;

/// The agent, and its id in envelopes, if it speaks them. One that has told no id is sent them as whoever is
/// there, with an empty `to`.
async fn speaker(bench: &mut Bench) -> Result<(&mut Agent, AgentId), Finding> {
    let agent = bench.agent().await?;
    let capabilities = AgentCapabilities::deserialize(&agent.hello["agentCapabilities"]).unwrap_or_default();
    let offers = DuologueCapabilities::of(capabilities.meta.as_ref());
    if !offers.speaks_envelopes() {
        return Err(skip(format!("it does not advertise _meta.duologue.envelope with version {VERSION}")));
    }
    Ok((agent, offers.agent_id.unwrap_or_else(|| AgentId::from(""))))
}

/// An envelope for the agent.
fn envelope<P: Payload>(agent: &mut Agent, to: &AgentId, payload: P) -> Envelope<P> {
    let id = format!("00000000-0000-4000-8000-{:0>12}", agent.new_id());
    Envelope::new(id, OWN, to.clone(), 1_767_225_600_000, payload)
}

/// The error envelope that a request has to be answered with, and the JSON-RPC error around it.
fn refused(answer: &Answer, asked: &EnvelopeId, what: &str) -> Result<(EnvelopeError, Refusal), Finding> {
    let refusal = match &answer.outcome {
        Err(refusal) => refusal,
        Ok(result) => return Err(fail(format!("{what} is answered with a result: {result}"))),
    };
    let around = &refusal.data["envelope"];
    let envelope: Envelope = Envelope::deserialize(around)
        .map_err(|error| fail(format!("{what} is answered with {refusal}, without an envelope: {error}")))?;
    if envelope.reference.as_ref() != Some(asked) {
        return Err(fail(format!(
            "the error envelope's ref is {}, not the id of what it answers",
            around["ref"]
        )));
    }
    match envelope.open::<EnvelopeError>() {
        Ok(envelope) => Ok((envelope.payload, refusal.clone())),
        Err(fault) => Err(fail(format!("{what} is answered with an envelope that is no error: {fault}"))),
    }
}

/// The envelope that a request has to be answered with.
fn replied<P: Payload>(answer: Answer, asked: &EnvelopeId, by: &AgentId) -> Result<Envelope<P>, Finding> {
    let (kind, method) = (P::KIND, P::METHOD.rsplit('/').next().unwrap_or_default());
    let result = match answer.outcome {
        Ok(result) => result,
        Err(refusal) => return Err(fail(format!("answered with {refusal}, not with {method}"))),
    };
    let reply: EnvelopeResult = EnvelopeResult::deserialize(&result)
        .map_err(|error| fail(format!("the answer has no envelope that can be read: {error}")))?;
    let envelope = reply.envelope;
    let faults = [
        (envelope.v != VERSION, format!("its v is {}", envelope.v)),
        (envelope.kind != kind, format!("its kind is {}", envelope.kind)),
        (envelope.reference.as_ref() != Some(asked), "its ref is not the id of what it answers".to_owned()),
        (
            !by.as_str().is_empty() && envelope.from != *by,
            format!("it is from {}, and the agent announced {by}", envelope.from),
        ),
        (envelope.to.as_str() != OWN, format!("it is to {}, and {OWN} asked", envelope.to)),
    ];
    if let Some((_, fault)) = faults.into_iter().find(|(wrong, _)| *wrong) {
        return Err(fail(format!("answered with an envelope that is no {kind} for us: {fault}")));
    }
    envelope.open().map_err(|fault| fail(format!("the payload does not fit: {}", fault.message)))
}

async fn agent_id(bench: &mut Bench) -> Outcome {
    let (_, id) = speaker(bench).await?;
    Ok(match id.as_str() {
        "" => fail("it advertises envelopes and no _meta.duologue.agentId"),
        id => pass(id),
    })
}

async fn ping_answered(bench: &mut Bench) -> Outcome {
    let (agent, id) = speaker(bench).await?;
    let mut saw = String::new();
    for payload in [Some(json!({})), Some(Value::Null), None] {
        let ping = envelope(agent, &id, Ping::new());
        let mut params = json!({ "envelope": ping });
        match payload {
            Some(payload) => params["envelope"]["payload"] = payload,
            None => drop(params["envelope"].as_object_mut().and_then(|ping| ping.remove("payload"))),
        }
        let answer = agent.ask(Ping::METHOD, params).await?;
        let pong = replied::<Pong>(answer, &ping.id, &id)?.payload;
        saw = format!("{}, {}", pong.agent_name, pong.status);
    }
    Ok(pass(saw))
}

async fn discover_fits(bench: &mut Bench) -> Outcome {
    let (agent, id) = speaker(bench).await?;
    let discover = envelope(agent, &id, Discover::new());
    let answer = agent.ask(Discover::METHOD, json!({ "envelope": discover })).await?;
    let told = replied::<Capabilities>(answer, &discover.id, &id)?.payload;
    let tasks = usize::try_from(told.max_concurrent_tasks).unwrap_or(usize::MAX);
    Ok(pass(format!("{}, {} at once", plural(told.domains.len(), "domain"), plural(tasks, "task"))))
}

async fn unknown_kind(bench: &mut Bench) -> Outcome {
    let (agent, id) = speaker(bench).await?;
    let ping = envelope(agent, &id, Ping::new());
    let mut params = json!({ "envelope": ping });
    params["envelope"]["kind"] = json!("no_such_kind");
    let answer = agent.ask("_session/no_such_kind", params).await?;
    let (fault, refusal) = refused(&answer, &ping.id, "_session/no_such_kind")?;
    Ok(match (fault.code, refusal.code) {
        (EnvelopeErrorCode::UnknownKind, -32601) => pass("-32601, unknown_kind"),
        (code, number) => fail(format!("answered with {number} and the code {code}")),
    })
}

async fn wrong_addressee(bench: &mut Bench) -> Outcome {
    let (agent, _) = speaker(bench).await?;
    let ping = envelope(agent, &AgentId::from(NOBODY), Ping::new());
    let answer = agent.ask(Ping::METHOD, json!({ "envelope": ping })).await?;
    let (fault, _) = refused(&answer, &ping.id, "a ping to another agent")?;
    Ok(pass(fault.code.to_string()))
}

async fn kind_mismatch(bench: &mut Bench) -> Outcome {
    let (agent, id) = speaker(bench).await?;
    let query = envelope(agent, &id, Query::new("Is this a ping?"));
    let answer = agent.ask(Ping::METHOD, json!({ "envelope": query })).await?;
    has_code(&answer, &query.id, "a query sent as _session/ping", EnvelopeErrorCode::KindMismatch)
}

async fn unsupported_version(bench: &mut Bench) -> Outcome {
    let (agent, id) = speaker(bench).await?;
    let mut ping = envelope(agent, &id, Ping::new());
    ping.v = ABSURD;
    let answer = agent.ask(Ping::METHOD, json!({ "envelope": ping })).await?;
    has_code(&answer, &ping.id, "an envelope of version 65000", EnvelopeErrorCode::UnsupportedVersion)
}

fn has_code(answer: &Answer, asked: &EnvelopeId, what: &str, expected: EnvelopeErrorCode) -> Outcome {
    let (fault, _) = refused(answer, asked, what)?;
    Ok(match fault.code == expected {
        true => pass(expected.to_string()),
        false => fail(format!("{what} is answered with the code {}", fault.code)),
    })
}

async fn cancel_unknown(bench: &mut Bench) -> Outcome {
    speaker(bench).await?;
    let session = bench.session().await?.1.id;
    let (agent, id) = speaker(bench).await?;
    let cancel = envelope(agent, &id, Cancel::new().reason("a check")).reference(NO_DELEGATION);
    let params = json!({ "sessionId": session, "envelope": cancel });
    let answer = agent.ask(Cancel::METHOD, params).await?;
    let ack = replied::<Ack>(answer, &cancel.id, &id)?.payload;
    Ok(match ack.accepted {
        true => fail("it accepts to cancel what it has never heard of"),
        false => pass(ack.reason.unwrap_or_else(|| "not accepted".into())),
    })
}
