//! Ids of requests: a response carries the id of its request, of whatever type.

use serde_json::json;

use crate::finding::{Outcome, checks, pass};
use crate::harness::Harness;
use crate::raw_process::request;

checks! { "ids";
    "id-string" => id_string, Must, JSON_RPC,
        "An id may be a string.";
    "id-zero" => id_zero, Must, JSON_RPC,
        "An id may be 0.";
    "id-negative" => id_negative, Must, SCHEMA,
        "An id may be a negative number.";
    // Only recommended: a number of JavaScript cannot hold it, and no client counts that far.
    "id-large" => id_large, Should, SCHEMA,
        "An id may be any integer of 64 bits, and comes back digit by digit.";
    "id-null" => id_null, Should, JSON_RPC,
        "A request whose id is null is a request, and its answer has the id null.";
}

async fn id_string(harness: &mut Harness) -> Outcome {
    echoes(harness, "\"a string, é\"").await
}

async fn id_zero(harness: &mut Harness) -> Outcome {
    echoes(harness, "0").await
}

async fn id_negative(harness: &mut Harness) -> Outcome {
    echoes(harness, "-7").await
}

async fn id_large(harness: &mut Harness) -> Outcome {
    // The first integer that a double cannot hold.
    echoes(harness, "9007199254740993").await
}

async fn id_null(harness: &mut Harness) -> Outcome {
    echoes(harness, "null").await
}

async fn echoes(harness: &mut Harness, id: &str) -> Outcome {
    let agent = harness.agent().await?;
    // Unreadable lines of earlier checks are answered with the id null, too.
    agent.expect_alive("what came before").await?;
    agent.forget_responses();
    agent.send(&request(id, "_duologue.dev/nothing", &json!({}))).await?;
    let response = agent.response(id, &format!("a request with the id {id}")).await?;
    Ok(pass(format!("the answer has the id {}", response.id)))
}
