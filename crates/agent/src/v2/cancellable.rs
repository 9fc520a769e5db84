//! Tool calls and terminals that the client of version 2 can cancel one by one.

use std::collections::{HashMap, HashSet};

use duologue_rpc::{CancellationToken, Lock, Responder};
use duologue_schema::{
    Error as WireError, Patch, SessionNotification, SessionUpdate, TerminalId, ToolCallId, ToolCallStatus,
    ToolCallUpdate, v2,
};

use crate::agent::Agent;
use crate::error::Result;
use crate::service::{AgentService, refuse};
use crate::session::Session;
use crate::turn::Turn;

/// The tool calls and the terminals of a session that the client can cancel.
#[derive(Debug, Default)]
pub(crate) struct Cancellable {
    calls: HashMap<ToolCallId, CancellationToken>,
    terminals: HashSet<TerminalId>,
}

/// A change of [`Cancellable`] by an update.
pub(super) enum OfferChange {
    CallEnded(ToolCallId),
    /// A terminal, and true if it can be cancelled.
    Terminal(TerminalId, bool),
}

impl Cancellable {
    /// Adds a call. Returns false if there are too many.
    pub(crate) fn add(&mut self, id: ToolCallId, cancellation: CancellationToken) -> bool {
        let has_room = self.calls.len() < Turn::OPEN_CALLS || self.calls.contains_key(&id);
        if has_room {
            self.calls.insert(id, cancellation);
        }
        has_room
    }

    /// Removes a call that has ended. Returns false if it was not cancellable.
    pub(crate) fn remove(&mut self, id: &ToolCallId) -> bool {
        self.calls.remove(id).is_some()
    }

    /// Returns true if the client can cancel a terminal.
    pub(crate) fn has_terminal(&self, id: &TerminalId) -> bool {
        self.terminals.contains(id)
    }

    /// Applies the change of an update that was sent.
    pub(super) fn apply(&mut self, change: OfferChange) {
        match change {
            OfferChange::CallEnded(id) => drop(self.calls.remove(&id)),
            OfferChange::Terminal(id, true) => drop(self.terminals.insert(id)),
            OfferChange::Terminal(id, false) => drop(self.terminals.remove(&id)),
        }
    }

    /// Returns the calls in the order of their ids.
    pub(crate) fn into_call_ids(self) -> Vec<ToolCallId> {
        let mut ids: Vec<_> = self.calls.into_keys().collect();
        ids.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        ids
    }

    /// Gives a call a token that its turn does not cancel. A call that was cancelled stays cancelled.
    fn detach(&mut self, id: &ToolCallId, cancellation: &CancellationToken) {
        if let Some(known) = self.calls.get_mut(id) {
            if known.is_cancelled() {
                cancellation.cancel();
            }
            *known = cancellation.clone();
        }
    }
}

/// A tool call that goes on after its turn, and that the client can still cancel. See
/// [`ToolCallHandle::detach_cancellable`](crate::ToolCallHandle::detach_cancellable).
///
/// Dropping it withdraws the offer, if the call is still open. A close of the session ends the call: it is reported as
/// cancelled, and nothing can be sent about it any more.
#[must_use = "dropping it withdraws the offer to cancel the call"]
#[derive(Debug)]
pub struct DetachedToolCall {
    session: Session,
    id: ToolCallId,
    cancellation: CancellationToken,
}

impl DetachedToolCall {
    pub(crate) fn new(session: Session, id: ToolCallId) -> Self {
        let cancellation = session.v2().background.child_token();
        session.v2().cancellable.lock_unpoisoned().detach(&id, &cancellation);
        DetachedToolCall { session, id, cancellation }
    }

    /// Returns the id of the tool call.
    #[must_use]
    pub fn id(&self) -> &ToolCallId {
        &self.id
    }

    /// Returns true if the client cancelled the call, or closed the session.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancellation.is_cancelled()
    }

    /// Waits until the client cancels the call, or closes the session.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn cancelled(&self) {
        self.cancellation.cancelled().await;
    }
}

impl Drop for DetachedToolCall {
    fn drop(&mut self) {
        if let Err(error) = withdraw(&self.session, &self.id, |update| self.session.send_now(&update)) {
            tracing::debug!(session = %self.session.id(), %error, "the offer to cancel a tool call was not withdrawn");
        }
    }
}

/// Withdraws the offer to cancel a tool call, if there is one.
pub(crate) fn withdraw(
    session: &Session,
    id: &ToolCallId,
    send: impl FnOnce(SessionNotification) -> Result<()>,
) -> Result<()> {
    if !session.v2().cancellable.lock_unpoisoned().remove(id) {
        return Ok(());
    }
    let mut update = ToolCallUpdate::new(id.clone());
    update.capabilities = Patch::Clear;
    send(SessionNotification::new(session.id().clone(), SessionUpdate::from(update)))
}

impl Session {
    /// Withdraws the offer to cancel an object that an update ends. Returns the change, which applies if the update is sent.
    pub(super) fn complete_offer(&self, update: &mut SessionUpdate) -> Option<OfferChange> {
        let known = || self.v2().cancellable.lock_unpoisoned();
        match update {
            SessionUpdate::ToolCall(call) if call.status.is_final() => {
                call.capabilities = None;
                Some(OfferChange::CallEnded(call.tool_call_id.clone()))
            }
            SessionUpdate::ToolCallUpdate(call)
                if call.status.as_ref().is_some_and(ToolCallStatus::is_final) =>
            {
                if known().calls.contains_key(&call.tool_call_id) {
                    call.capabilities = Patch::Clear;
                }
                Some(OfferChange::CallEnded(call.tool_call_id.clone()))
            }
            SessionUpdate::TerminalUpdate(terminal) => {
                if terminal.exit_status.value().is_some() && known().has_terminal(&terminal.terminal_id) {
                    terminal.capabilities = Patch::Clear;
                }
                let offers = terminal.capabilities.changes_to(|offered| offered.cancel.is_some())?;
                Some(OfferChange::Terminal(terminal.terminal_id.clone(), offers))
            }
            _ => None,
        }
    }
}

impl<A: Agent> AgentService<A> {
    /// Handles `tool_call/cancel`. The response precedes the end of the call.
    pub(super) fn cancel_tool_call(&self, request: &v2::CancelToolCallRequest, responder: Responder) {
        let session = match self.shared.known_session(&request.session_id) {
            Ok(session) => session,
            Err(error) => return refuse(responder, error),
        };
        let cancellable = session.v2().cancellable.lock_unpoisoned();
        let Some(cancellation) = cancellable.calls.get(&request.tool_call_id) else {
            let why = format!("the tool call {:?} cannot be cancelled", request.tool_call_id.as_str());
            return refuse(responder, WireError::invalid_params(why));
        };
        responder.respond(Ok(v2::CancelToolCallResponse::new()));
        cancellation.cancel();
    }
}
