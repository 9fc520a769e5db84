//! The responses of the mock agent to envelopes of another agent.
//!
//! The first word of a query or a task selects the response, as the first word of a prompt selects a scenario. A
//! word that is the code of an error, such as `not_authorized`, ends it with that error.

use std::time::Duration;

use duologue_agent::PeerAgent;
use duologue_agent::exchange::envelope::{
    Ack, Cancel, Capabilities, DelegationOutcome, EnvelopeError, EnvelopeErrorCode, EnvelopeHandler,
    OutcomeStatus, Pattern, Query, QueryResponse, Received, ReceivedTask,
};
use duologue_agent::exchange::work::{Artifact, Recommendation, WorkOrder, WorkOutput};
use serde_json::{Value, json};

use super::edge_cases::{ATTACK, Crash};

/// The domains of the queries that it answers, with their subdomains.
const DOMAINS: [&str; 2] = ["family.calendar", "work.build"];
/// The steps of every task.
const STEPS: [&str; 3] = ["looked around", "changed something", "tidied up"];
/// The chunks of the output of the task `stream`. They have the positions 0 to 2, and the last one is `complete`.
const OUTPUT: [&str; 3] = ["The kitchen ", "is painted ", "now."];
/// The longest time that a task waits for its cancel.
const LONG: Duration = Duration::from_secs(60);

/// Answers the envelopes of the client.
pub(super) struct EnvelopeResponder {
    pub(super) pace: Duration,
    pub(super) crash: Crash,
}

impl EnvelopeResponder {
    /// The id in envelopes: `mock`, in hexadecimal digits.
    pub(super) const ID: &str = "6d6f636b";
    /// The name in dialogues.
    pub(super) const URI: &str = "agent://duologue.dev/mock";
}

impl EnvelopeHandler for EnvelopeResponder {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("duologue-mock")
            .domains(DOMAINS.map(str::to_owned))
            .topics(["work.build".to_owned()])
            .tools(["echo".to_owned()])
            .max_concurrent_tasks(2_u32)
            .model("none")
    }

    async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        if let Some(domain) = query.domain.as_deref().filter(|domain| !is_known_domain(domain)) {
            return Err(EnvelopeError::unknown_domain(domain));
        }
        match first_word(query.question.as_str()) {
            "slow" => {
                let deadline = query.deadline_ms.unwrap_or(Query::DEADLINE_MS);
                tokio::time::sleep(Duration::from_millis(deadline.saturating_add(1_000))).await;
            }
            "crash" => self.crash.happen(query.peer.rpc()).await,
            "hostile" => {
                let attack = format!("An answer with {ATTACK} in it.");
                return Ok(QueryResponse::new(attack).data(Value::from(ATTACK)));
            }
            word => requested_error(word)?,
        }
        Ok(answer(&query))
    }

    async fn accept(&self, task: &ReceivedTask) -> Result<Ack, EnvelopeError> {
        match first_word(&task.task) {
            "refuse" => Err(EnvelopeError::not_authorized("the mock does not do that")),
            "overloaded" => Err(EnvelopeError::overloaded("the mock has enough to do")),
            _ => Ok(Ack::new(true).estimated_ms(millis(self.step() * 3))),
        }
    }

    async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
        let word = first_word(&task.task);
        match word {
            "slow" => {
                send_progress(&task, "working until it is cancelled".into()).await?;
                if tokio::time::timeout(LONG, task.cancelled()).await.is_ok() {
                    return Err(EnvelopeError::of(
                        EnvelopeErrorCode::Cancelled,
                        "the mock stopped as it was told",
                    ));
                }
            }
            "stubborn" => {
                send_progress(&task, "working, whatever anybody says".into()).await?;
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
            "colleague" => {
                for line in contact(&task.peer).await {
                    send_progress(&task, line.into()).await?;
                }
            }
            "stream" => {
                for (index, text) in OUTPUT.into_iter().enumerate() {
                    tokio::time::sleep(self.step()).await;
                    let chunk = task.output(text);
                    let chunk = if index + 1 == OUTPUT.len() { chunk.last() } else { chunk };
                    chunk.await.map_err(|error| error.fault())?;
                }
            }
            "hostile" => send_progress(&task, format!("News with {ATTACK} in it.").into()).await?,
            "refuse" | "overloaded" | "crash" | "fail" | "partial" => {}
            word => requested_error(word)?,
        }
        for (number, step) in (1..).zip(STEPS) {
            let stopped = tokio::time::timeout(self.step(), task.cancelled()).await.is_ok();
            if stopped {
                return Err(EnvelopeError::of(
                    EnvelopeErrorCode::Cancelled,
                    "the mock stopped between two steps",
                ));
            }
            match (word, number) {
                ("crash", 2) => {
                    // The progress has to arrive before the process ends.
                    let _ = task.peer.rpc().flush().await;
                    self.crash.happen(task.peer.rpc()).await;
                }
                ("fail", 2) => {
                    let fault = EnvelopeError::internal("the mock was asked to fail");
                    return Ok(DelegationOutcome::new(OutcomeStatus::Failed)
                        .outcome(format!("Nothing came of it: {}", task.task))
                        .error(json!({ "code": fault.code, "message": fault.message, "retryable": false })));
                }
                ("partial", 3) => {
                    return Ok(DelegationOutcome::new(OutcomeStatus::Partial)
                        .outcome(format!("Two of three steps are done: {}", task.task))
                        .data(json!({ "steps": 2 })));
                }
                _ => send_progress(&task, format!("{number} of 3: {step}").into()).await?,
            }
        }
        let outcome = match word {
            "hostile" => format!("A result with {ATTACK} in it."),
            _ => format!("Done: {}", task.task),
        };
        let data = json!({ "steps": 3, "urgent": task.is_urgent(), "context": task.context });
        Ok(DelegationOutcome::new(OutcomeStatus::Completed).outcome(outcome).data(data))
    }

    async fn cancel(&self, _: Received<Cancel>, task: &ReceivedTask) -> Result<(), EnvelopeError> {
        match first_word(&task.task) {
            "stubborn" => Err(EnvelopeError::not_authorized("the mock ends what it began")),
            _ => Ok(()),
        }
    }
}

impl EnvelopeResponder {
    /// Returns the time that a step of a task takes.
    fn step(&self) -> Duration {
        self.pace * 10
    }
}

async fn send_progress(task: &ReceivedTask, progress: Value) -> Result<(), EnvelopeError> {
    task.progress(progress).await.map_err(|error| error.fault())
}

/// Repeats the question, cut to one word for each allowed token.
fn answer(query: &Query) -> QueryResponse {
    let about = query.domain.as_ref().map(|domain| format!(" about {domain}")).unwrap_or_default();
    let whole = format!("You asked{about}: {}", query.question);
    let words: Vec<&str> = whole.split_whitespace().collect();
    let room = usize::try_from(query.max_tokens).unwrap_or(usize::MAX);
    let kept = if room == 0 { words.len() } else { words.len().min(room) };
    QueryResponse::new(words[..kept].join(" "))
        .data(json!({ "question": query.question, "domain": query.domain, "words": words.len() }))
        .tokens_used(kept as u64)
        .truncated(kept < words.len())
}

/// Sends one request of each kind to the client as a peer agent, and returns a sentence on each result.
pub(super) async fn contact(peer: &PeerAgent) -> Vec<String> {
    let pong = match peer.ping().await {
        Ok(pong) => format!("You are {}.", pong.status),
        Err(error) => format!("You do not say how you are: {error}."),
    };
    let discovered = match peer.discover().await {
        Ok(capabilities) => format!("Your name is {:?}.", capabilities.agent_name),
        Err(error) => format!("You do not say what you can do: {error}."),
    };
    let notified = match peer.notify("work.build", json!({ "build": "green" })).await {
        Ok(_) => "I sent you news of work.build.".to_owned(),
        Err(error) => format!("I have news you cannot get: {error}."),
    };
    let question = "What should an agent know about you?";
    let answered = match peer.query(question).deadline(Duration::from_secs(10)).await {
        Ok(answer) => format!("You answered: {}", answer.summary),
        Err(error) => format!("You do not answer questions: {error}."),
    };
    vec![pong, discovered, notified, answered]
}

/// Completes the work order `specify`. Other work orders fail or are escalated.
pub(super) async fn work(input: WorkOrder) -> Result<WorkOutput, EnvelopeError> {
    let feature = &input.context.feature_id;
    let done = |success, summary: &str, recommendation| WorkOutput::new(success, summary, [], recommendation);
    match input.task.action.as_str() {
        "specify" => {
            let spec = format!("# {feature}\n\nIt does what its name says.\n");
            let artifact = Artifact::create("spec.md", spec);
            let summary = "Wrote a specification.";
            Ok(WorkOutput::new(true, summary, [artifact], Recommendation::Proceed))
        }
        "fail" => Ok(done(false, "The mock was asked to fail.", Recommendation::Retry)),
        "escalate" => Ok(done(false, "A person has to decide.", Recommendation::Escalate)),
        _ => Err(EnvelopeError::of(
            EnvelopeErrorCode::InvalidParameter,
            "the mock does specify, fail and escalate",
        )),
    }
}

fn is_known_domain(domain: &str) -> bool {
    let within = |known: &str| Pattern::from(format!("{known}.*")).matches(domain);
    DOMAINS.iter().any(|known| domain == *known || within(known))
}

fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

/// Returns an error if the word is the code of one.
fn requested_error(word: &str) -> Result<(), EnvelopeError> {
    match EnvelopeErrorCode::from(word) {
        EnvelopeErrorCode::Unknown(_) => Ok(()),
        code => Err(EnvelopeError::of(code, "the mock was asked for this error")),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
