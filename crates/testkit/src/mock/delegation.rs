//! Scenarios that show plans by their ids, and a child session.

use duologue_agent::schema::{PlanEntry, PlanEntryPriority, PlanEntryStatus, PlanItems, PlanMarkdown};
use duologue_agent::{Error, Result, StopReason, Subagent, ToolKind};

use super::scenario_turn::ScenarioTurn;

pub(super) async fn plans(turn: &ScenarioTurn<'_>) -> Result<()> {
    let step = |text: &str, status| PlanEntry::new(text, PlanEntryPriority::Medium, status);
    for status in [PlanEntryStatus::InProgress, PlanEntryStatus::Completed] {
        let steps = vec![step("Read the code", status), step("Change it", PlanEntryStatus::Pending)];
        turn.show_plan(PlanItems::new("change", steps)).await?;
        turn.wait(turn.pace * 10).await;
    }
    turn.show_plan(PlanMarkdown::new("notes", "1. *Look* at the tests\n2. Write one")).await?;
    turn.wait(turn.pace * 10).await;
    // An update replaces the whole plan, even by one of another type.
    turn.show_plan(PlanItems::new("notes", vec![step("Write a test", PlanEntryStatus::InProgress)])).await?;
    turn.wait(turn.pace * 10).await;
    turn.remove_plan("notes").await?;
    turn.send("One plan is left.").await
}

pub(super) async fn subagents(turn: &ScenarioTurn<'_>) -> Result<()> {
    let call = turn.tool_call("Let a reviewer look at it").kind(ToolKind::Think).start().await?;
    let child = turn.subagent("Reviewer").description("Reads the change").cancellable().start().await;
    let child = match child {
        Ok(child) => child,
        Err(Error::NotSupported { .. }) => {
            call.content("The reviewer found nothing.").await?;
            call.complete().await?;
            return turn.send("The client shows no child sessions.").await;
        }
        Err(error) => return Err(error),
    };
    call.session(child.id().clone()).await?;
    let text = match review(turn, &child).await {
        Ok(()) => {
            child.finish(StopReason::EndTurn);
            "The reviewer is done."
        }
        // The user cancelled the child alone.
        Err(Error::Cancelled) if !turn.is_cancelled() => {
            child.finish(StopReason::Cancelled);
            "The reviewer was stopped."
        }
        Err(error) => return Err(error),
    };
    call.complete().await?;
    turn.send(text).await
}

async fn review(turn: &ScenarioTurn<'_>, child: &Subagent) -> Result<()> {
    let mut task = child.write_instruction();
    for piece in ["Review ", "the change."] {
        turn.pause().await;
        task.push(piece).await?;
    }
    turn.stream(&mut child.message(), "I read the change.").await?;
    let read = child.tool_call("Read src/main.rs").kind(ToolKind::Read).start().await?;
    turn.pause().await;
    read.complete().await?;
    child.report("I found nothing.").await
}
