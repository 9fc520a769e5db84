//! Work orders with a peer that has none of our code: those that our side receives, and those that it sends.

use super::walkthrough::same;
use crate::interop::Result;
use duologue_agent::PeerAgent;
use duologue_agent::exchange::envelope::EnvelopeError;
use duologue_agent::exchange::work::{
    Artifact, Recommendation, WorkContext, WorkInput, WorkNote, WorkOrder, WorkOutput, WorkTask,
    apply_artifacts,
};
use duologue_schema::Members;
use std::path::Path;

/// Completes an order as the other side does.
pub(super) async fn work(input: WorkOrder) -> Result<WorkOutput, EnvelopeError> {
    if input.task.action == "fail" {
        return Ok(WorkOutput::new(false, "not done", [], Recommendation::Retry));
    }
    let root = input.paths.feature_root().unwrap_or(".");
    let spec = Artifact::create(format!("{root}/spec.md"), "é世界 😀\n");
    let notes = input.input.prior_context.into_iter().chain([WorkNote::from("one more")]).collect::<Vec<_>>();
    Ok(WorkOutput::new(true, "done", [spec], Recommendation::Proceed).notes(notes))
}

fn order(action: &str) -> WorkInput {
    let context = WorkContext::new("login", "feature", 1_u32);
    WorkInput::new(context, [("feature_root", "features/login")], WorkTask::new(action, Members::new()))
}

pub(super) async fn done(peer: &PeerAgent) -> Result<()> {
    let input = order("specify").prior_context(vec![WorkNote::from("a note")]);
    let output = peer.work(input.clone()).await?;
    same((output.success, output.recommendation.clone()), (true, Recommendation::Proceed))?;
    same(output.notes.clone(), vec![WorkNote::from("a note"), WorkNote::from("one more")])?;
    let project = Path::new(&std::env::var("INTEROP_CWD")?).join(peer.own_id().as_str());
    std::fs::create_dir(&project)?;
    apply_artifacts(&project, &input, &output)?;
    same(std::fs::read_to_string(project.join("features/login/spec.md"))?.as_str(), "é世界 😀\n")
}

pub(super) async fn not_done(peer: &PeerAgent) -> Result<()> {
    let output = peer.work(order("fail")).await?;
    same((output.success, output.recommendation), (false, Recommendation::Retry))
}

pub(super) async fn unknown_recommendation(peer: &PeerAgent) -> Result<()> {
    same(peer.work(order("puzzle")).await?.recommendation.escalates(), true)
}
