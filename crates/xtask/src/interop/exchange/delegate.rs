//! Delegations of our side, and their ends.

use super::walkthrough::{fault, same};
use crate::interop::Result;
use duologue_agent::PeerAgent;
use duologue_agent::exchange::Error;
use duologue_agent::exchange::envelope::{DelegateBuilder, EnvelopeErrorCode, OutcomeStatus};
use duologue_schema::Members;
use serde_json::{Value, json};

fn task(peer: &PeerAgent, task: &str) -> DelegateBuilder {
    let context: Members = [("room", json!(7))].into_iter().collect();
    peer.delegate(task).context(context)
}

/// Accepts and finishes a task. The order and the number of its messages make no difference.
pub(super) async fn finished(peer: &PeerAgent, named: &str) -> Result<()> {
    let delegation = task(peer, named).await?;
    // With a result that comes first nobody waits for the ack.
    if named != "early" {
        same(delegation.estimated().map(|estimated| estimated.as_millis()), Some(20))?;
    }
    let outcome = delegation.result().await?;
    same((&outcome.status, outcome.outcome.as_str()), (&OutcomeStatus::Completed, named))?;
    if let Some(data) = &outcome.data {
        same(data.parse::<Value>()?, json!({"context": {"room": 7}}))?;
    }
    same(outcome.fault().is_none(), true)?;
    // A second request gets the same response.
    same(delegation.result().await?.status, OutcomeStatus::Completed)
}

pub(super) async fn failed(peer: &PeerAgent) -> Result<()> {
    let outcome = task(peer, "fail").await?.result().await?;
    same(outcome.status.clone(), OutcomeStatus::Failed)?;
    same(outcome.fault().map(|fault| fault.code), Some(EnvelopeErrorCode::NotAuthorized))
}

pub(super) async fn partial(peer: &PeerAgent) -> Result<()> {
    same(task(peer, "partial").await?.result().await?.status, OutcomeStatus::Partial)
}

pub(super) async fn broken(peer: &PeerAgent) -> Result<()> {
    fault(task(peer, "break").await?.result().await, EnvelopeErrorCode::Internal, "broke", true)
}

/// Checks the notifications of a task until it is done.
pub(super) async fn notified(peer: &PeerAgent) -> Result<()> {
    let delegation = task(peer, "progress").await?;
    let mut progress = delegation.progress();
    let news = progress.next().await.ok_or("no progress")??;
    same(news.data.as_ref().map(|data| data.get()), Some(r#""half""#))?;
    same(progress.next().await.is_none(), true)?;
    same(delegation.result().await?.status, OutcomeStatus::Completed)
}

pub(super) async fn refused(peer: &PeerAgent) -> Result<()> {
    match task(peer, "refuse").await {
        Err(Error::Declined(fault)) => same(
            (fault.code.clone(), fault.message.as_str(), fault.retryable),
            (EnvelopeErrorCode::NotAuthorized, "not for you", false),
        ),
        other => Err(format!("{other:?} is no refusal").into()),
    }
}

pub(super) async fn unreported(peer: &PeerAgent) -> Result<()> {
    match task(peer, "finish").report_back(false).await?.result().await {
        Err(Error::NoReport) => Ok(()),
        other => Err(format!("{other:?} was not asked for").into()),
    }
}

pub(super) async fn cancelled(peer: &PeerAgent) -> Result<()> {
    let delegation = task(peer, "wait").await?;
    same(delegation.cancel("enough").await?.accepted, true)?;
    fault(delegation.result().await, EnvelopeErrorCode::Cancelled, "as you wish", false)?;
    same(delegation.cancel("enough").await?.accepted, false)
}

/// Accepts two tasks, and an urgent one beyond them.
pub(super) async fn overloaded(peer: &PeerAgent) -> Result<()> {
    let mut waiting = vec![task(peer, "wait").await?, task(peer, "wait").await?];
    same(peer.ping().await?.active_tasks, 2)?;
    fault(task(peer, "finish").await, EnvelopeErrorCode::Overloaded, "no room", true)?;
    waiting.push(task(peer, "wait").urgent().await?);
    fault(task(peer, "finish").urgent().await, EnvelopeErrorCode::Overloaded, "no room", true)?;
    for delegation in &waiting {
        same(delegation.cancel("enough").await?.accepted, true)?;
    }
    for delegation in &waiting {
        fault(delegation.result().await, EnvelopeErrorCode::Cancelled, "as you wish", false)?;
    }
    same(peer.ping().await?.active_tasks, 0)
}
