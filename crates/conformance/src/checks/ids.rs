//! Ids of requests: an answer carries the id of its request, whatever it is.

use serde_json::json;

use super::bench::Bench;
use super::finding::{Check, Outcome, check, page, pass};
use super::wire::request;

pub(super) const CHECKS: &[Check] = &[
    check!("id-string", Must, page::JSON_RPC, "An id may be a string.", id_string),
    check!("id-zero", Must, page::JSON_RPC, "An id may be 0.", id_zero),
    check!("id-negative", Must, page::SCHEMA, "An id may be a negative number.", id_negative),
    check!(
        "id-large",
        // JavaScript's numbers cannot hold it, and no client counts that far.
        Should,
        page::SCHEMA,
        "An id may be any integer of 64 bits, and comes back digit by digit.",
        id_large
    ),
    check!(
        "id-null",
        Should,
        page::JSON_RPC,
        "A request whose id is null is a request, and its answer has the id null.",
        id_null
    ),
];

async fn id_string(bench: &mut Bench) -> Outcome {
    echoes(bench, "\"a string, é\"").await
}

async fn id_zero(bench: &mut Bench) -> Outcome {
    echoes(bench, "0").await
}

async fn id_negative(bench: &mut Bench) -> Outcome {
    echoes(bench, "-7").await
}

async fn id_large(bench: &mut Bench) -> Outcome {
    // One more than a double can tell from its neighbour.
    echoes(bench, "9007199254740993").await
}

async fn id_null(bench: &mut Bench) -> Outcome {
    echoes(bench, "null").await
}

async fn echoes(bench: &mut Bench, id: &str) -> Outcome {
    let agent = bench.agent().await?;
    // Lines that could not be read are answered with the id null, too.
    agent.still_there("what came before").await?;
    agent.forget_answers();
    agent.send(&request(id, "_duologue.dev/nothing", &json!({}))).await?;
    let answer = agent.answer(id, &format!("a request with the id {id}")).await?;
    Ok(pass(format!("the answer has the id {}", answer.id)))
}
