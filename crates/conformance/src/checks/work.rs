//! Work orders: the rules for an agent that advertises them. Other agents skip these checks.

use duologue_schema::Request as _;
use duologue_schema::work::{WorkParams, WorkResult};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::envelopes::offers;
use crate::finding::{Finding, Outcome, checks, fail, pass, skip};
use crate::harness::{Agent, Harness};

checks! { "work";
    "work-answered" => work_answered, Must, WORK,
        "A work order without a session is answered with an output, or with an error that has a code in its data.";
    "work-missing-member" => missing_member, Must, WORK,
        "A work order without a required member is answered with -32602, and the error names the member.";
    "work-session" => unknown_session, Must, WORK,
        "A work order for an unknown session is answered with -32002.";
}

/// Returns the agent, if it supports work orders.
async fn worker(harness: &mut Harness) -> Result<&mut Agent, Finding> {
    let agent = harness.agent().await?;
    if !offers(agent).work {
        return Err(skip("it does not advertise _meta.duologue.work"));
    }
    Ok(agent)
}

/// Returns an order for an action that no agent has.
fn order() -> Value {
    json!({"input": {
        "context": {"feature_id": "check", "workflow": "check", "iteration": 1},
        "paths": {"feature_root": "check"},
        "task": {"action": "_duologue.dev/no_such_action", "params": {}},
        "prior_context": [],
    }})
}

async fn work_answered(harness: &mut Harness) -> Outcome {
    let agent = worker(harness).await?;
    match agent.request(WorkParams::METHOD, order()).await?.outcome {
        Ok(result) => match WorkResult::deserialize(&result) {
            Ok(result) => Ok(pass(result.output.recommendation.to_string())),
            Err(error) => Ok(fail(format!("the output has another form: {error}"))),
        },
        Err(error) => match (error.data["code"].as_str(), &error.data["retryable"]) {
            (Some(code), Value::Bool(_)) => Ok(pass(format!("{}, {code}", error.code))),
            _ => Ok(fail(format!("answered with {error}, without data.code and data.retryable"))),
        },
    }
}

async fn missing_member(harness: &mut Harness) -> Outcome {
    let agent = worker(harness).await?;
    for (within, member) in
        [("", "context"), ("", "paths"), ("", "task"), ("/context", "iteration"), ("/task", "params")]
    {
        let mut order = order();
        let object = order.pointer_mut(&format!("/input{within}")).and_then(Value::as_object_mut);
        object.and_then(|object| object.remove(member));
        match agent.request(WorkParams::METHOD, order).await?.outcome {
            Ok(_) => return Ok(fail(format!("an order without {member} is answered with an output"))),
            Err(error) if error.code != -32602 => {
                return Ok(fail(format!("an order without {member} is answered with {error}")));
            }
            // The standard text of the code names no member, but contains `params`.
            Err(error)
                if !format!("{}{}", error.message.replace("Invalid params", ""), error.data)
                    .contains(member) =>
            {
                return Ok(fail(format!(
                    "the error for an order without {member} does not name it: {error}"
                )));
            }
            Err(_) => {}
        }
    }
    Ok(pass("-32602, and each is named"))
}

async fn unknown_session(harness: &mut Harness) -> Outcome {
    let agent = worker(harness).await?;
    let mut order = order();
    order["sessionId"] = json!("no-such-session");
    match agent.request(WorkParams::METHOD, order).await?.outcome {
        Err(error) if error.code == -32002 => Ok(pass("-32002")),
        Err(error) => Ok(fail(format!("answered with {error}"))),
        Ok(_) => Ok(fail("answered with an output")),
    }
}
