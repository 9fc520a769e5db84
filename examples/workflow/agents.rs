//! The two agents. They keep nothing between orders, look things up where the order says they are, and
//! propose files instead of writing them. A language model would sit where these make up their text.

use std::path::Path;

use duologue_agent::exchange::envelope::{EnvelopeError, EnvelopeErrorCode};
use duologue_agent::exchange::work::{Artifact, Recommendation, WorkInput, WorkOrder, WorkOutput};
use duologue_agent::schema::Implementation;
use duologue_agent::{Agent, Prompt, StopReason, Turn};

/// The prefix of a note that names a missing case.
const MISSING: &str = "missing: ";

/// Writes the specification anew, with a section for each case that somebody missed.
pub(crate) async fn specify(input: WorkOrder) -> Result<WorkOutput, EnvelopeError> {
    let request = read(&input, "request").await?;
    let mut spec = format!("# {}\n\n{request}", input.context.feature_id);
    let mut notes = Vec::new();
    for note in input.prior_context.iter().filter_map(|note| note.text()) {
        if let Some(case) = note.strip_prefix(MISSING) {
            spec += &format!("\n## What if: {case}\n\nThe person is told, and nothing is lost.\n");
            notes.push(format!("added: {case}").into());
        }
    }
    // The order says how often it was tried, the disk whether the file is there.
    let path = path(&input, "spec")?;
    let artifact = match Path::new(path).exists() {
        true => Artifact::update(path, spec),
        false => Artifact::create(path, spec),
    };
    Ok(WorkOutput::new(true, "Wrote the specification.", [artifact], Recommendation::Proceed).notes(notes))
}

/// Reads the specification, and sends it back while cases are missing.
pub(crate) async fn validate(input: WorkOrder) -> Result<WorkOutput, EnvelopeError> {
    let spec = read(&input, "spec").await?;
    let cases: Vec<String> = input.task.params.get("must_cover").unwrap_or_default();
    let missing: Vec<_> = cases.iter().filter(|case| !spec.contains(*case)).collect();
    if missing.is_empty() {
        let report = Artifact::create("validation.md", format!("All {} cases are covered.\n", cases.len()));
        return Ok(WorkOutput::new(
            true,
            "The specification is complete.",
            [report],
            Recommendation::Proceed,
        ));
    }
    let notes: Vec<_> = missing.iter().map(|case| format!("{MISSING}{case}").into()).collect();
    let summary = format!("The specification leaves out {} of {} cases.", missing.len(), cases.len());
    Ok(WorkOutput::new(true, summary, [], Recommendation::Retry).notes(notes))
}

fn path<'a>(input: &'a WorkInput, name: &str) -> Result<&'a str, EnvelopeError> {
    let missing = || {
        EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, format!("missing field `input.paths.{name}`"))
    };
    input.paths.get(name).ok_or_else(missing)
}

async fn read(input: &WorkInput, name: &str) -> Result<String, EnvelopeError> {
    let path = path(input, name)?;
    let text = tokio::fs::read_to_string(path).await;
    text.map_err(|error| EnvelopeError::of(EnvelopeErrorCode::NotFound, format!("{path}: {error}")))
}

/// The ACP side of both agents, which rejects prompts of users.
pub(crate) struct OnlyOrders;

impl Agent for OnlyOrders {
    fn info(&self) -> Option<Implementation> {
        Some(Implementation::new("workflow-agent", env!("CARGO_PKG_VERSION")).title("Workflow"))
    }

    async fn prompt(&self, turn: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        turn.message().push("I only take work orders.").await?;
        Ok(StopReason::EndTurn)
    }
}
