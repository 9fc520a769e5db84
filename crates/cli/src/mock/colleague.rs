//! The mock as a colleague: what it says when it is spoken to as one agent speaks to another.
//!
//! The first word of a question chooses what goes wrong, as the first word of a prompt chooses a scenario.

use std::time::Duration;

use duologue_agent::exchange::envelope::{
    Capabilities, Correspondent, Fault, FaultCode, Pattern, Query, Received, Response,
};
use serde_json::json;

use super::odd::{self, ATTACK};

/// What it knows about: any question of these domains.
const DOMAINS: [&str; 2] = ["family.calendar", "work.build"];

/// Answers the envelopes of the client.
pub(super) struct Colleague;

impl Colleague {
    /// Its id in envelopes: `mock`, in hexadecimal digits.
    pub(super) const ID: &str = "6d6f636b";
}

impl Correspondent for Colleague {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("duologue-mock")
            .domains(DOMAINS.map(str::to_owned).to_vec())
            .tools(vec!["echo".to_owned()])
            .max_concurrent_tasks(2_u32)
            .model("none")
    }

    async fn query(&self, query: Received<Query>) -> Result<Response, Fault> {
        if let Some(domain) = query.domain.as_deref().filter(|domain| !knows(domain)) {
            return Err(Fault::unknown_domain(domain));
        }
        match first_word(&query.question) {
            "slow" => {
                let deadline = query.deadline_ms.unwrap_or(Query::DEADLINE_MS);
                tokio::time::sleep(Duration::from_millis(deadline.saturating_add(1_000))).await;
            }
            "crash" => odd::end(),
            "hostile" => {
                return Ok(Response::new(format!("An answer with {ATTACK} in it.")).data(json!(ATTACK)));
            }
            word => {
                if let Some(code) = fault_code(word) {
                    return Err(Fault::of(code, "the mock was asked for this error"));
                }
            }
        }
        Ok(answer(&query))
    }
}

/// Says the question back, cut to as many words as tokens were allowed.
fn answer(query: &Query) -> Response {
    let about = query.domain.as_ref().map(|domain| format!(" about {domain}")).unwrap_or_default();
    let whole = format!("You asked{about}: {}", query.question);
    let words: Vec<&str> = whole.split_whitespace().collect();
    let room = usize::try_from(query.max_tokens).unwrap_or(usize::MAX);
    let kept = if room == 0 { words.len() } else { words.len().min(room) };
    Response::new(words[..kept].join(" "))
        .data(json!({ "question": query.question, "domain": query.domain, "words": words.len() }))
        .tokens_used(kept as u64)
        .truncated(kept < words.len())
}

fn knows(domain: &str) -> bool {
    let within = |known: &str| Pattern::from(format!("{known}.*")).matches(domain);
    DOMAINS.iter().any(|known| domain == *known || within(known))
}

pub(super) fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

/// The code of this name, if there is one.
pub(super) fn fault_code(word: &str) -> Option<FaultCode> {
    let code = FaultCode::from(word);
    (!matches!(code, FaultCode::Unknown(_))).then_some(code)
}
