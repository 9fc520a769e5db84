//! Scenarios of protocol version 2: whole messages, work in the background, and calls that are cancelled alone.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use duologue_agent::rpc::{CancellationToken, Lock as _};
use duologue_agent::schema::v2::{BackgroundTerminal, BackgroundToolCall, TerminalExitStatus};
use duologue_agent::schema::{
    MessageUpdate, SessionUpdate, TerminalId, ToolCallContentChunk, ToolCallStatus, ToolCallUpdate,
};
use duologue_agent::{DetachedToolCall, Error, Result, Session, StopReason, TerminalWriter, ToolKind};

use super::scenario_turn::ScenarioTurn;

/// The shortest time before work begins or ends that is not part of a turn, so that the turn ends first.
const AFTER_TURN: Duration = Duration::from_millis(200);

pub(super) async fn upserts(turn: &ScenarioTurn<'_>) -> Result<()> {
    let whole = |id: &str, text: &str| MessageUpdate::new(id).content(vec![text.into()]);
    let thought = turn.message_id();
    turn.update(SessionUpdate::AgentThought(whole(&thought, "A thought in one piece."))).await?;
    turn.update(SessionUpdate::AgentThought(MessageUpdate::new(thought.as_str()).clear_content())).await?;
    let id = turn.message_id();
    turn.update(SessionUpdate::AgentMessage(whole(&id, "A draft in one piece"))).await?;
    turn.update(SessionUpdate::agent_message(", continued.").with_message_id(id.as_str())).await?;
    turn.update(SessionUpdate::AgentMessage(whole(&id, "The final message"))).await?;
    turn.update(SessionUpdate::agent_message(", continued too.").with_message_id(id.as_str())).await?;

    let call = turn.tool_call("Count").kind(ToolKind::Think).start().await?;
    for text in ["one ", "two ", "three"] {
        turn.update(SessionUpdate::from(ToolCallContentChunk::new(call.id().clone(), text))).await?;
    }
    call.update(|update| update.title("Count again").content([])).await?;
    turn.update(SessionUpdate::from(ToolCallContentChunk::new(call.id().clone(), "one"))).await?;
    call.complete().await
}

pub(super) async fn cancellable(turn: &ScenarioTurn<'_>) -> Result<()> {
    let call = turn.tool_call("Work that can be cancelled alone").kind(ToolKind::Think).cancellable();
    let call = call.start().await?;
    // Without a pace nobody waits.
    let _ = tokio::time::timeout(turn.pace * 200, call.cancelled()).await;
    match (turn.is_cancelled(), call.is_cancelled()) {
        (true, _) => call.status(ToolCallStatus::Cancelled).await,
        (false, true) => {
            call.status(ToolCallStatus::Cancelled).await?;
            turn.send("You cancelled the call, and the turn goes on.").await
        }
        (false, false) => {
            call.complete().await?;
            turn.send("The call was not cancelled.").await
        }
    }
}

pub(super) async fn unprompted(turn: &ScenarioTurn<'_>) -> Result<()> {
    let (session, id) = (turn.session().clone(), turn.message_id());
    let pause = (turn.pace * 40).max(AFTER_TURN);
    tokio::spawn(async move {
        tokio::time::sleep(pause).await;
        let work = session.begin_work();
        let text = SessionUpdate::agent_message("Nobody prompted me for this.").with_message_id(id);
        session.update(text).await?;
        work.finish(StopReason::EndTurn);
        Ok::<_, Error>(())
    });
    turn.send("I will go on after this turn.").await
}

pub(super) async fn background(turn: &ScenarioTurn<'_>) -> Result<()> {
    let call = turn.tool_call("Watch the files").kind(ToolKind::Search).cancellable();
    let call = call.start().await?.detach_cancellable()?;
    let id = turn.terminal_id();
    let stop = turn.state::<Programs>().add(id.as_str());
    let terminal = turn.display_terminal("watch tests").id(id).cancellable().start().await?;
    let work = [
        BackgroundToolCall::new(call.id().clone()).into(),
        BackgroundTerminal::new(terminal.id().clone()).into(),
    ];
    turn.background(work.to_vec());
    let session = turn.session().clone();
    tokio::spawn(watch(session, call, terminal, stop, (turn.pace * 20).max(AFTER_TURN)));
    turn.send("I watch the files and the tests in the background.").await
}

/// Goes on after the turn, until all tests have run. The client can stop the program and the call one by one.
async fn watch(
    session: Session,
    call: DetachedToolCall,
    mut terminal: TerminalWriter,
    stop: CancellationToken,
    pause: Duration,
) -> Result<()> {
    let mut status = TerminalExitStatus::new().exit_code(0);
    for test in 1..=3 {
        if tokio::time::timeout(pause, stop.cancelled()).await.is_ok() {
            status = TerminalExitStatus::new().signal("SIGTERM");
            break;
        }
        terminal.append(format!("test {test} ... ok\n")).await?;
    }
    session.state::<Programs>().remove(terminal.id());
    terminal.exit(status).await?;
    session.background(vec![BackgroundToolCall::new(call.id().clone()).into()]);
    let ended = match tokio::time::timeout(pause, call.cancelled()).await {
        Ok(()) => ToolCallStatus::Cancelled,
        Err(_) => ToolCallStatus::Completed,
    };
    session.update(ToolCallUpdate::new(call.id().clone()).status(ended)).await?;
    session.background(Vec::new());
    Ok(())
}

/// The programs of a session that the client can stop, by terminal.
#[derive(Default)]
pub(super) struct Programs(Mutex<HashMap<TerminalId, CancellationToken>>);

impl Programs {
    fn add(&self, id: &str) -> CancellationToken {
        let stop = CancellationToken::new();
        self.with(|known| known.insert(id.into(), stop.clone()));
        stop
    }

    fn remove(&self, id: &TerminalId) {
        self.with(|known| known.remove(id));
    }

    /// Stops the program of a terminal.
    pub(super) fn stop(&self, id: &TerminalId) -> Result<()> {
        let stop = self.with(|known| known.get(id).cloned());
        stop.map(|stop| stop.cancel()).ok_or_else(|| Error::invalid_params("no such program runs"))
    }

    fn with<T>(&self, work: impl FnOnce(&mut HashMap<TerminalId, CancellationToken>) -> T) -> T {
        work(&mut self.0.lock_unpoisoned())
    }
}
