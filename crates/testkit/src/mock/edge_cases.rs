//! Scenarios of edge cases: unknown updates, hostile text, errors and a crash.

use std::io::Write as _;

use duologue_agent::rpc::Peer;
use duologue_agent::schema::{
    Error as WireError, Json, PlanEntry, PlanEntryPriority, PlanEntryStatus, RequestPermissionOutcome,
    SessionInfoUpdate,
};
use duologue_agent::{Error, PermissionOption, PermissionOptionKind, Result, ToolKind};
use serde_json::{Value, json};

use super::scenario_turn::ScenarioTurn;

pub(super) async fn unknown(turn: &ScenarioTurn<'_>) -> Result<()> {
    let id = turn.message_id();
    let updates = [
        json!({ "sessionUpdate": "duologue_mock_sparkle", "brightness": 11 }),
        json!({ "sessionUpdate": "agent_message_chunk", "messageId": id, "futureField": [1, 2],
                "content": { "type": "text", "text": "Known text with unknown fields. ", "futureField": {} } }),
        json!({ "sessionUpdate": "agent_message_chunk", "messageId": id,
                "content": { "type": "hologram", "data": "…" } }),
        json!({ "sessionUpdate": "tool_call", "toolCallId": "call-of-the-future", "title": "Teleport",
                "kind": "teleport", "status": "half_there",
                "content": [{ "type": "smell", "note": "ozone" }] }),
        json!({ "sessionUpdate": "plan", "entries": [
                { "content": "Arrive", "priority": "cosmic", "status": "entangled" }] }),
        json!({ "sessionUpdate": "agent_message", "messageId": id,
                "content": [{ "type": "text", "text": "A whole message, as draft version 2 sends it." }] }),
    ];
    for update in updates {
        turn.pause().await;
        raw(turn, update).await?;
    }
    Ok(())
}

/// Sends an update that the types of the schema cannot express.
async fn raw(turn: &ScenarioTurn<'_>, update: Value) -> Result<()> {
    let params = json!({ "sessionId": turn.id(), "update": update, "futureField": true });
    Ok(turn.client().peer().notify_raw("session/update", &params).await?)
}

/// Text that erases the screen, sets the window's title, moves the cursor, and reverses and hides text.
pub(super) const ATTACK: &str =
    "\u{1b}[2J\u{1b}[1;1H\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}desrever\u{2066}\u{200b}\u{8}\r!";

pub(super) async fn hostile(turn: &ScenarioTurn<'_>) -> Result<()> {
    turn.send_thought(&format!("A thought with {ATTACK} in it.")).await?;
    turn.send(&format!("Words with {ATTACK} in them.")).await?;
    let entry = PlanEntry::new(format!("Plan {ATTACK}"), PlanEntryPriority::High, PlanEntryStatus::Pending);
    turn.set_plan(vec![entry]).await?;
    turn.set_info(SessionInfoUpdate::new().title(format!("Title {ATTACK}"))).await?;
    turn.mode_changed(format!("mode-{ATTACK}")).await?;

    let path = turn.cwd().join(format!("path-{ATTACK}"));
    let call =
        turn.tool_call(&format!("Tool {ATTACK}")).kind(ToolKind::Edit).location(&path).announce().await?;
    call.diff(&path, Some(format!("old {ATTACK}\n")), format!("new {ATTACK}\n")).await?;
    let options = vec![
        PermissionOption::new("yes", format!("Yes {ATTACK}"), PermissionOptionKind::AllowOnce),
        PermissionOption::new("no", format!("No {ATTACK}"), PermissionOptionKind::RejectOnce),
    ];
    match call.request_permission(options).await? {
        RequestPermissionOutcome::Selected(chosen) if chosen.option_id == "yes" => call.complete().await?,
        _ => call.fail(format!("Refused {ATTACK}")).await?,
    }
    turn.send("That is all the harm I can do.").await
}

pub(super) async fn cancel(turn: &ScenarioTurn<'_>) -> Result<()> {
    let call = turn.tool_call("Work until cancelled").kind(ToolKind::Think).start().await?;
    turn.send("Cancel me.").await?;
    turn.wait(std::time::Duration::from_secs(60)).await;
    if turn.is_cancelled() { call.fail("It was cancelled.").await } else { call.complete().await }
}

pub(super) async fn error(turn: &ScenarioTurn<'_>) -> Result<()> {
    turn.send("This will not end well.").await?;
    let mut error = WireError::internal("the mock was asked to fail");
    error.data = Some(Json::from(json!({ "scenario": "error" })));
    Err(Error::Response(error))
}

pub(super) async fn stderr(turn: &ScenarioTurn<'_>) -> Result<()> {
    let _ = writeln!(std::io::stderr(), "mock: a line on stderr\nmock: and \u{1b}[31manother\u{1b}[0m");
    turn.send("I wrote to stderr.").await
}

pub(super) async fn crash(turn: &ScenarioTurn<'_>) -> Result<()> {
    turn.send("Something is about to happen.").await?;
    // The message has to arrive before the process ends.
    turn.client().peer().flush().await?;
    turn.crash.happen(turn.client().peer()).await;
    Ok(())
}

/// The effect of a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crash {
    /// Closes the connection.
    Disconnect,
    /// Ends the process with exit code 7.
    Exit,
}

impl Crash {
    /// Ends the agent. It does not return.
    pub(super) async fn happen(self, peer: &Peer) {
        if self == Crash::Exit {
            let _ = writeln!(std::io::stderr(), "mock: crashing as asked");
            std::process::exit(7);
        }
        // The end of the output comes first, since closing answers the open requests.
        peer.finish();
        peer.close();
        std::future::pending().await
    }
}
