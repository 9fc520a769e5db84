//! The state of the foreground work of a session: running, waiting for the user, or idle.

use std::sync::Arc;

use duologue_rpc::{CancellationToken, Lock, NotificationBuffer, Responder};
use duologue_schema::{
    Error as WireError, ErrorStopReason, IdleStateUpdate, IdleStop, MessageUpdate, Meta, Patch,
    PromptResponse, RequiresActionStateUpdate, RunningStateUpdate, SessionNotification, SessionUpdate,
    StateUpdate, StopReason, ToolCallId, ToolCallStatus, ToolCallUpdate, Usage, v2,
};

use crate::agent::Prompt;
use crate::error::Result;
use crate::session::Session;
use crate::turn::{Turn, TurnState};
use crate::v2::MessageIds;

/// The foreground work of a session. Locked while a state is sent, so that the client sees the states in order.
#[derive(Debug, Default)]
pub(crate) struct Foreground {
    /// The number of turns and of work without a prompt.
    running: usize,
    /// The number of requests to the user on which a turn waits.
    waits: usize,
    /// The work in the background, if the agent reports it.
    background: Option<Vec<v2::BackgroundWork>>,
    /// The end of work that the client has not seen, because other work goes on.
    ended: Option<(IdleStop, Option<Usage>, Option<Meta>)>,
    /// Cancels the work without a prompt.
    cancellation: CancellationToken,
    /// The number of times that all work without a prompt was ended.
    generation: u64,
}

impl Foreground {
    /// Returns the state.
    fn snapshot(&mut self) -> StateUpdate {
        let background = self.background.clone();
        match (self.running, self.waits) {
            (0, _) => {
                let mut idle = IdleStateUpdate::new();
                (idle.stop, idle.usage, idle.meta) = self.ended.take().unwrap_or_default();
                idle.background = background;
                idle.into()
            }
            (_, 0) => {
                let mut running = RunningStateUpdate::new();
                running.background = background;
                running.into()
            }
            _ => {
                let mut waiting = RequiresActionStateUpdate::new();
                waiting.background = background;
                waiting.into()
            }
        }
    }

    /// Ends one work and returns the state. A cancellation is reported although other work has failed or ends later, and a
    /// failure although other work ends later.
    fn end(&mut self, stop: IdleStop, usage: Option<Usage>, meta: Option<Meta>) -> StateUpdate {
        self.running = self.running.saturating_sub(1);
        let weight = |stop: &IdleStop| match stop {
            IdleStop::NotReported => 0,
            IdleStop::Error(_) => 2,
            IdleStop::Cancelled => 3,
            _ => 1,
        };
        if self.ended.as_ref().is_none_or(|(known, ..)| weight(known) <= weight(&stop)) {
            self.ended = Some((stop, usage, meta));
        }
        self.snapshot()
    }
}

impl Session {
    /// Answers a prompt: sends the response, the message of the user, and the running state, in one step.
    pub(crate) fn report_accepted(&self, responder: Responder, prompt: &Prompt) {
        *self.v2().message_ids.lock_unpoisoned() = MessageIds::default();
        let mut foreground = self.v2().foreground.lock_unpoisoned();
        foreground.running += 1;
        let id = Turn::new_message_id();
        let mut following = NotificationBuffer::new(self.peer());
        let message = |content| {
            let mut message = MessageUpdate::new(id.clone());
            message.content = content;
            SessionUpdate::UserMessage(message)
        };
        let whole = self.append(&mut following, message(Patch::Set(prompt.blocks().to_vec())));
        if let Err(error) = whole {
            // The prompt fits into a line, but the message of the user is a little longer.
            tracing::debug!(session = %self.id(), %error, "the message of the user is reported without content");
            let _ = self.append(&mut following, message(Patch::Keep));
        }
        let _ = self.append(&mut following, foreground.snapshot().into());
        responder.respond_followed_by(Ok(v2::PromptResponse::new(id)), following);
    }

    fn append(&self, buffer: &mut NotificationBuffer, update: SessionUpdate) -> Result<()> {
        self.push_to(buffer, &SessionNotification::new(self.id().clone(), update))
    }

    /// Reports the end of a turn.
    pub(crate) fn report_end(&self, outcome: Result<PromptResponse, WireError>) {
        *self.v2().message_ids.lock_unpoisoned() = MessageIds::default();
        self.change_foreground(|foreground| {
            foreground.waits = 0;
            let (stop, usage, meta) = match outcome {
                Ok(response) => (IdleStop::from(response.stop_reason), response.usage, response.meta),
                Err(error) => (IdleStop::Error(Box::new(ErrorStopReason::new().error(error))), None, None),
            };
            Some(foreground.end(stop, usage, meta))
        });
    }

    /// Reports the state of a restored session. Has no effect in version 1.
    pub(crate) fn report_state(&self) {
        if self.client().is_v2() {
            self.change_foreground(|foreground| Some(foreground.snapshot()));
        }
    }

    /// Reports the end of a replay. Has no effect in version 1.
    pub(crate) fn report_replayed(&self) {
        if self.client().is_v2() {
            self.report(v2::ReplayComplete::new());
        }
    }

    /// Returns the state of the foreground work.
    pub(crate) fn state_of_work(&self) -> StateUpdate {
        self.v2().foreground.lock_unpoisoned().snapshot()
    }

    /// Changes the foreground work, and reports the state that `change` returns.
    fn change_foreground(&self, change: impl FnOnce(&mut Foreground) -> Option<StateUpdate>) {
        let mut foreground = self.v2().foreground.lock_unpoisoned();
        if let Some(state) = change(&mut foreground) {
            self.report(state);
        }
    }

    /// Sends a state or the end of a replay. Call it for a state with the lock of the foreground work.
    fn report(&self, update: impl Into<SessionUpdate>) {
        let update = SessionNotification::new(self.id().clone(), update.into());
        if let Err(error) = self.send_now(&update) {
            tracing::debug!(session = %self.id(), %error, "an update of the SDK could not be sent");
        }
    }

    /// Cancels the work without a prompt.
    pub(crate) fn cancel_work(&self) {
        let mut foreground = self.v2().foreground.lock_unpoisoned();
        std::mem::take(&mut foreground.cancellation).cancel();
    }

    /// Ends the work without a prompt and cancels the work in the background, before the session is closed or archived.
    /// Reports that, the end of the tool calls that the client could cancel, and that of the children. Nothing of the session
    /// follows.
    pub(crate) fn end_session(&self) {
        self.cancel_work();
        self.v2().background.cancel();
        self.client().children().end_children(self.id());
        let calls = std::mem::take(&mut *self.v2().cancellable.lock_unpoisoned());
        for call in calls.into_call_ids() {
            let mut update = ToolCallUpdate::new(call).status(ToolCallStatus::Cancelled);
            update.capabilities = Patch::Clear;
            let update = SessionNotification::new(self.id().clone(), SessionUpdate::from(update));
            if let Err(error) = self.send_now(&update) {
                tracing::debug!(session = %self.id(), %error, "the end of a tool call could not be reported");
            }
        }
        let mut foreground = self.v2().foreground.lock_unpoisoned();
        foreground.generation += 1;
        if std::mem::take(&mut foreground.running) > 0 {
            self.report(foreground.end(IdleStop::Cancelled, None, None));
        }
        // Under the lock, so that no work begins after the last state.
        self.end_updates();
    }

    /// Reports that the turn waits for the user, until the guard is dropped. Returns `None` outside of turns, in version 1,
    /// and for a request about a tool call in the background.
    pub(crate) fn wait_for_user(&self, call: Option<&ToolCallId>) -> Option<UserWait> {
        let (turn, cancellation) = self.client().is_v2().then(|| self.running_turn()).flatten()?;
        let (is_accepted, has_background, is_background) = {
            let foreground = self.v2().foreground.lock_unpoisoned();
            let background = foreground.background.as_deref().unwrap_or_default();
            let is_call = |work: &v2::BackgroundWork| matches!(work, v2::BackgroundWork::ToolCall(work) if Some(&work.tool_call_id) == call);
            // The prompt may still wait in the queue of its session.
            (foreground.running > 0, !background.is_empty(), background.iter().any(is_call))
        };
        if !is_accepted || is_background {
            return None;
        }
        // A request without a tool call may belong to any of the work in the background, which the end of the turn leaves.
        let cancellation = (call.is_some() || !has_background).then_some(cancellation);
        let wait = UserWait { session: self.clone(), turn, cancellation };
        wait.change(|waits| waits + 1);
        Some(wait)
    }

    /// Sends an update in the form of version 2. `send` returns true if it has sent the update. An update without such a
    /// form is dropped.
    pub(crate) fn send_in_v2(
        &self,
        update: &SessionNotification,
        send: impl FnOnce(&v2::UpdateSessionNotification) -> Result<bool>,
    ) -> Result<bool> {
        let mut update = update.clone();
        let mut known = self.v2().message_ids.lock_unpoisoned();
        // An update that is not sent changes nothing.
        let mut ids = known.clone();
        ids.complete(&mut update.update);
        let offer = self.complete_offer(&mut update.update);
        let sent = match v2::UpdateSessionNotification::try_from(update) {
            Ok(update) => send(&update)?,
            Err(error) => {
                tracing::debug!(session = %self.id(), %error, "an update has no form in version 2");
                true
            }
        };
        if sent {
            *known = ids;
            if let Some(offer) = offer {
                self.v2().cancellable.lock_unpoisoned().apply(offer);
            }
        }
        Ok(sent)
    }

    /// Begins foreground work without a prompt, for example on the result of a task in the background. The client shows
    /// the session as working until the work is dropped or finished. Has no effect in version 1.
    #[must_use = "dropping the work ends it"]
    pub fn begin_work(&self) -> ForegroundWork {
        let mut work =
            ForegroundWork { session: None, cancellation: CancellationToken::new(), generation: 0 };
        if self.client().is_v2() {
            self.change_foreground(|foreground| {
                work.cancellation = foreground.cancellation.child_token();
                work.generation = foreground.generation;
                foreground.running += 1;
                Some(foreground.snapshot())
            });
            work.session = Some(self.clone());
        }
        work
    }

    /// Reports all work that runs in the background, independently of turns. An agent that calls this reports every
    /// change, and announces each item by an update first. Has no effect in version 1.
    pub fn background(&self, work: Vec<v2::BackgroundWork>) {
        if self.client().is_v2() {
            self.change_foreground(|foreground| {
                foreground.background = Some(work);
                Some(foreground.snapshot())
            });
        }
    }
}

/// Foreground work without a prompt, see [`Session::begin_work`].
#[derive(Debug)]
pub struct ForegroundWork {
    /// `None` after the end, and in version 1.
    session: Option<Session>,
    cancellation: CancellationToken,
    generation: u64,
}

impl ForegroundWork {
    /// Returns true if the client cancelled the work of the session, or closed it.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancellation.is_cancelled()
    }

    /// Waits until the client cancels the work of the session, or closes it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn cancelled(&self) {
        self.cancellation.cancelled().await;
    }

    /// Ends the work with a stop reason. Work that was cancelled ends as cancelled.
    pub fn finish(mut self, reason: StopReason) {
        self.end(reason.into());
    }

    fn end(&mut self, stop: IdleStop) {
        let Some(session) = self.session.take() else { return };
        let stop = if self.is_cancelled() { IdleStop::Cancelled } else { stop };
        session.change_foreground(|foreground| {
            (foreground.generation == self.generation).then(|| foreground.end(stop, None, None))
        });
    }
}

impl Drop for ForegroundWork {
    fn drop(&mut self) {
        self.end(IdleStop::NotReported);
    }
}

/// A request to the user on which the turn waits.
pub(crate) struct UserWait {
    session: Session,
    turn: Arc<TurnState>,
    /// The cancellation of the turn, if the request is known to belong to it.
    cancellation: Option<CancellationToken>,
}

impl UserWait {
    /// Waits until the client cancels the turn that the request belongs to. An agent of version 2 does not wait for the answer
    /// then, which the client may send after `$/cancel_request` alone.
    pub(crate) async fn cancelled(&self) {
        match &self.cancellation {
            Some(cancellation) => cancellation.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Changes the number of requests on which the turn waits, and reports the state if it changes. A turn that has ended
    /// reports nothing more.
    fn change(&self, change: impl FnOnce(usize) -> usize) {
        self.turn.if_running(|| {
            self.session.change_foreground(|foreground| {
                let waited = foreground.waits > 0;
                foreground.waits = change(foreground.waits);
                (waited != (foreground.waits > 0)).then(|| foreground.snapshot())
            });
        });
    }
}

impl Drop for UserWait {
    fn drop(&mut self) {
        self.change(|waits| waits.saturating_sub(1));
    }
}
