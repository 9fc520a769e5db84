//! Routing of incoming envelopes to the [`EnvelopeHandler`](super::EnvelopeHandler) or to the
//! pending request that they belong to. The connection's reader calls all of it.

use std::sync::{Arc, Weak};

use duologue_rpc::{Closed, Error as RpcError, Incoming, Responder};
use duologue_schema::envelope::{
    DelegationOutcome, Discover, Envelope, EnvelopeError, EnvelopeErrorCode, EnvelopeId, EnvelopeKind,
    EnvelopeParams, METHODS, Notify, Payload, Ping, Pong, Query, QueryResponse, RequestPayload,
};
use tokio::time::Instant;

use super::handler::ErasedEnvelopeHandler;
use super::inbox::HandlerNotification;
use super::pending::ReplyTarget;
use super::read::{EnvelopeHead, InvalidEnvelope, read, read_unopened};
use super::state::{DelegationEnd, count};
use super::{PROGRESS, Received, task_runner};
use crate::error::{Error, to_wire};
use crate::peer_agent::PeerAgent;
use crate::service::{ExchangeService, SessionLookup};
use duologue_rpc::Lock as _;

/// Parses a request and passes it to `answer`. An invalid request is rejected here.
///
/// # Errors
///
/// Returns the responder if this side has no handler for envelopes.
fn handle_request<P: RequestPayload>(
    service: &ExchangeService,
    request: Incoming<'_>,
    responder: Responder,
    answer: impl FnOnce(&Arc<dyn ErasedEnvelopeHandler>, Received<P>, Responder),
) -> Result<(), Responder> {
    let peer = &service.peer;
    let Some(handler) = &peer.link.envelope_handler else { return Err(responder) };
    match read::<P>(peer, &service.knows, request.params) {
        Ok(received) => match received.hops.check(peer.link.max_hops) {
            Ok(()) => answer(handler, received, responder),
            Err(fault) => received.origin().respond::<P::Response>(responder, Err(fault)),
        },
        Err(unfit) => responder.respond::<()>(Err(to_wire(unfit.answer(peer)))),
    }
    Ok(())
}

pub(crate) fn ping(
    service: &ExchangeService,
    request: Incoming<'_>,
    responder: Responder,
) -> Result<(), Responder> {
    handle_request(service, request, responder, |_, ping: Received<Ping>, responder| {
        ping.origin().respond(responder, Ok(pong(&ping.peer)));
    })
}

pub(crate) fn discover(
    service: &ExchangeService,
    request: Incoming<'_>,
    responder: Responder,
) -> Result<(), Responder> {
    handle_request(service, request, responder, |handler, discover: Received<Discover>, responder| {
        let capabilities = task_runner::capabilities(&discover.peer, &**handler);
        discover.origin().respond(responder, capabilities);
    })
}

pub(crate) fn query(
    service: &ExchangeService,
    request: Incoming<'_>,
    responder: Responder,
) -> Result<(), Responder> {
    handle_request(service, request, responder, answer_query)
}

pub(crate) fn delegate(
    service: &ExchangeService,
    request: Incoming<'_>,
    responder: Responder,
) -> Result<(), Responder> {
    handle_request(service, request, responder, task_runner::delegate)
}

pub(crate) fn cancel(
    service: &ExchangeService,
    request: Incoming<'_>,
    responder: Responder,
) -> Result<(), Responder> {
    handle_request(service, request, responder, task_runner::cancel)
}

impl InvalidEnvelope {
    fn answer(self, peer: &PeerAgent) -> Envelope<EnvelopeError> {
        let mut envelope = peer.envelope(self.fault);
        envelope.reference = self.id;
        if let Some(from) = self.from {
            envelope.to = from;
        }
        envelope
    }
}

fn pong(peer: &PeerAgent) -> Pong {
    let envelopes = &peer.link.envelopes;
    let pong = envelopes.tasks.lock_unpoisoned().pong(query_limit(peer));
    pong.uptime_secs(envelopes.started.elapsed().as_secs())
}

/// Returns the maximum number of concurrent queries. It is lower than the limit for requests, which
/// leaves room for pings and cancellations.
fn query_limit(peer: &PeerAgent) -> usize {
    let in_flight = peer.rpc().limits().in_flight;
    in_flight.saturating_sub((in_flight / 16).max(1))
}

fn answer_query(handler: &Arc<dyn ErasedEnvelopeHandler>, query: Received<Query>, responder: Responder) {
    let (origin, limit) = (query.origin(), query_limit(&query.peer));
    if !query.peer.link.envelopes.tasks.lock_unpoisoned().start_query(limit) {
        let fault = EnvelopeError::overloaded(format!("query limit reached ({limit} running); retry later"));
        return origin.respond::<QueryResponse>(responder, Err(fault));
    }
    let (permit, handler) = (QueryPermit(query.peer.clone()), handler.clone());
    responder.spawn_with(|responder| async move {
        let grace = query.peer.rpc().limits().cancel_grace;
        let handler = query.hops.next().scope(handler.query(query));
        let answer = task_runner::guarded(responder.cancellation(), grace, handler).await;
        // Released before the response is sent: the other agent may send the next query at once.
        drop(permit);
        origin.respond(responder, answer.unwrap_or_else(Err));
    });
}

/// Counts a query that is being handled.
struct QueryPermit(PeerAgent);

impl Drop for QueryPermit {
    fn drop(&mut self) {
        self.0.link.envelopes.tasks.lock_unpoisoned().finish_query();
    }
}

/// Rejects a request that nothing else has handled if it carries an envelope.
pub(crate) fn unknown_kind(
    peer: &PeerAgent,
    request: Incoming<'_>,
    responder: Responder,
) -> Result<(), Responder> {
    match unknown_kind_error(peer, request) {
        Some(unfit) => {
            responder.respond::<()>(Err(to_wire(unfit.answer(peer))));
            Ok(())
        }
        None => Err(responder),
    }
}

/// Reports a notification that nothing else has handled if it carries an envelope.
pub(crate) fn unknown_notification(peer: &PeerAgent, notification: Incoming<'_>) {
    if let Some(unfit) = unknown_kind_error(peer, notification) {
        report_invalid(peer, *unfit);
    }
}

fn unknown_kind_error(peer: &PeerAgent, message: Incoming<'_>) -> Option<Box<InvalidEnvelope>> {
    let kind = message.method.strip_prefix("_session/")?;
    let head = EnvelopeHead::of(message.params.map_or("{}", |params| params.get()));
    if peer.link.envelope_handler.is_none() || !head.is_envelope {
        return None;
    }
    let row = METHODS.iter().find(|row| row.method == message.method);
    let fault = match row {
        // Agents handle envelopes only after `initialize`.
        Some(row) if row.result.is_some() => {
            EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, "initialize first")
        }
        Some(_) => {
            let message = format!("{kind} is not a request: send it as a notification");
            EnvelopeError::of(EnvelopeErrorCode::UnknownKind, message)
        }
        None => EnvelopeError::of(EnvelopeErrorCode::UnknownKind, "unknown kind of envelope"),
    };
    Some(head.unfit(fault))
}

/// Parses a notification with `take`; returns false for one that is left to the user's handlers. A
/// side without a handler consumes only messages about its own requests and subscriptions.
fn handle_notification(
    service: &ExchangeService,
    notification: Incoming<'_>,
    take: impl FnOnce(&IncomingNotification<'_>) -> bool,
) -> bool {
    let ExchangeService { peer, knows, .. } = service;
    if peer.link.envelope_handler.is_none() && peer.require_envelopes().is_err() {
        return false;
    }
    take(&IncomingNotification { peer, knows, notification }) || peer.link.envelope_handler.is_some()
}

pub(crate) fn notify(service: &ExchangeService, notification: Incoming<'_>) -> bool {
    handle_notification(service, notification, |incoming| incoming.take(take_notify))
}

pub(crate) fn result(service: &ExchangeService, notification: Incoming<'_>) -> bool {
    handle_notification(service, notification, |incoming| incoming.take(take_result))
}

pub(crate) fn error(service: &ExchangeService, notification: Incoming<'_>) -> bool {
    handle_notification(service, notification, |incoming| incoming.take(take_error))
}

/// Handles a response that arrives as a notification.
pub(crate) fn reply<P: Payload>(service: &ExchangeService, notification: Incoming<'_>) -> bool {
    handle_notification(service, notification, |incoming| incoming.reply::<P>())
}

/// Rejects a request that arrives as a notification.
pub(crate) fn misplaced_request(service: &ExchangeService, notification: Incoming<'_>) -> bool {
    handle_notification(service, notification, |incoming| incoming.misplaced_request())
}

/// A notification of one of the envelope methods.
struct IncomingNotification<'a> {
    peer: &'a PeerAgent,
    knows: &'a SessionLookup,
    notification: Incoming<'a>,
}

impl IncomingNotification<'_> {
    /// Parses a notification and passes it on.
    fn take<P: Payload>(&self, take: impl FnOnce(&PeerAgent, Received<P>, usize) -> bool) -> bool {
        let received = read::<P>(self.peer, self.knows, self.notification.params);
        self.taken::<P>(received.map(|received| take(self.peer, received, self.notification.wire_bytes)))
    }

    /// Delivers a response that arrives as a notification.
    fn reply<P: Payload>(&self) -> bool {
        let received = read_unopened::<P>(self.peer, self.knows, self.notification.params);
        self.taken::<P>(received.map(|Received { envelope, .. }| {
            let envelopes = &self.peer.link.envelopes;
            let to = envelope.reference.as_ref();
            let waiter = to.and_then(|to| envelopes.pending.lock_unpoisoned().take_reply(to, &P::KIND));
            let awaited = waiter.is_some_and(|waiter| waiter.send(Ok(envelope)).is_ok());
            if !awaited {
                count(&envelopes.late);
            }
            awaited
        }))
    }

    /// Reports an invalid notification to its sender. Invalid errors are not reported, because
    /// errors are never answered.
    fn taken<P: Payload>(&self, taken: Result<bool, Box<InvalidEnvelope>>) -> bool {
        let unfit = match taken {
            Ok(taken) => return taken,
            Err(unfit) => unfit,
        };
        let ours = unfit.reference.as_ref();
        let ours = ours.is_some_and(|of| end_invalid(self.peer, &P::KIND, of, &unfit.fault));
        match P::KIND {
            // The message may be valid for the user's own handlers.
            _ if !ours && self.peer.link.envelope_handler.is_none() => {}
            EnvelopeKind::Error => count_dropped(self.peer, &unfit.fault),
            _ => report_invalid(self.peer, *unfit),
        }
        ours
    }

    /// Reports a request that arrives as a notification.
    fn misplaced_request(&self) -> bool {
        if self.peer.link.envelope_handler.is_none() {
            return false;
        }
        let head = EnvelopeHead::of(self.notification.params.map_or("{}", |params| params.get()));
        let message = format!("{} is a request: give it a JSON-RPC id", self.notification.method);
        report_invalid(
            self.peer,
            *head.unfit(EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, message)),
        );
        true
    }
}

/// Ends the pending request that an invalid message refers to, because a valid one may never
/// arrive. Returns false if there is none.
fn end_invalid(peer: &PeerAgent, kind: &EnvelopeKind, of: &EnvelopeId, fault: &EnvelopeError) -> bool {
    let unfit = |kind| Error::Answer { kind, fault: fault.clone() };
    let mut pending = peer.link.envelopes.pending.lock_unpoisoned();
    let whose = match kind {
        EnvelopeKind::Result if pending.delegation(of).is_some() => pending.result(of),
        EnvelopeKind::Error if pending.awaits(of) => pending.error(of),
        EnvelopeKind::Pong | EnvelopeKind::Response | EnvelopeKind::Ack | EnvelopeKind::Capabilities => {
            pending.take_reply(of, kind).map_or(ReplyTarget::Unknown, ReplyTarget::Request)
        }
        _ => ReplyTarget::Unknown,
    };
    match whose {
        // The error names the kind of the delegation, not that of the message.
        ReplyTarget::Request(waiter) => drop(waiter.send(Err(unfit(kind.clone())))),
        ReplyTarget::Delegation(task) => task.end(DelegationEnd::Lost(unfit(EnvelopeKind::Delegate))),
        ReplyTarget::Repeated | ReplyTarget::Unknown => return false,
    }
    true
}

/// Queues a message for the handler; returns false if there is no handler.
fn deliver(peer: &PeerAgent, notification: HandlerNotification, bytes: usize) -> bool {
    let answers = peer.link.envelope_handler.is_some();
    if answers {
        peer.link.envelopes.deliver(notification, bytes);
    }
    answers
}

fn count_dropped(peer: &PeerAgent, fault: &EnvelopeError) {
    tracing::debug!(%fault, "dropped a notification");
    count(&peer.link.envelopes.dropped);
}

/// Reports an invalid notification to its sender if its id and sender are known, at a limited rate.
fn report_invalid(peer: &PeerAgent, unfit: InvalidEnvelope) {
    count_dropped(peer, &unfit.fault);
    let has_address = unfit.id.is_some() && unfit.from.is_some();
    if has_address && peer.link.envelopes.error_rate.lock_unpoisoned().allow(Instant::now()) {
        let session = unfit.session.clone();
        let _ = peer.rpc().try_notify(&EnvelopeParams::new(session, unfit.answer(peer)));
    }
}

fn take_notify(peer: &PeerAgent, notification: Received<Notify>, bytes: usize) -> bool {
    let envelopes = &peer.link.envelopes;
    if !envelopes.seen.lock_unpoisoned().insert(notification.envelope.id.as_str()) {
        count(&envelopes.repeated);
        return true;
    }
    let mut listening: Vec<_> =
        envelopes.listeners.lock_unpoisoned().iter().filter_map(Weak::upgrade).collect();
    listening.retain(|listener| listener.wants(&notification));
    let task = match &notification.envelope.reference {
        Some(task) if notification.topic == PROGRESS => {
            envelopes.pending.lock_unpoisoned().delegation(task).cloned()
        }
        _ => None,
    };
    if !listening.is_empty() || task.is_some() {
        let shared = Arc::new(notification.clone());
        listening.iter().for_each(|listener| listener.push(shared.clone(), bytes));
        if let Some(task) = task {
            task.progress.push(shared, bytes);
            return true;
        }
    }
    deliver(peer, HandlerNotification::Notify(notification), bytes) || !listening.is_empty()
}

fn take_result(peer: &PeerAgent, result: Received<DelegationOutcome>, bytes: usize) -> bool {
    let envelopes = &peer.link.envelopes;
    // The lock is kept until the end is stored, so that a concurrent drop of the handle sees it.
    let mut pending = envelopes.pending.lock_unpoisoned();
    match result.envelope.reference.as_ref().map_or(ReplyTarget::Unknown, |of| pending.result(of)) {
        ReplyTarget::Delegation(task) => task.end(DelegationEnd::Result(result.envelope, bytes)),
        ReplyTarget::Repeated => count(&envelopes.repeated),
        ReplyTarget::Unknown | ReplyTarget::Request(_) => {
            return deliver(peer, HandlerNotification::Result(result), bytes);
        }
    }
    true
}

fn take_error(peer: &PeerAgent, error: Received<EnvelopeError>, bytes: usize) -> bool {
    let envelopes = &peer.link.envelopes;
    let mut pending = envelopes.pending.lock_unpoisoned();
    let whose = match &error.envelope.reference {
        Some(about) => pending.error(about),
        None if envelopes.seen.lock_unpoisoned().insert(error.envelope.id.as_str()) => ReplyTarget::Unknown,
        None => ReplyTarget::Repeated,
    };
    match whose {
        ReplyTarget::Request(waiter) => {
            if waiter.send(Err(Error::Response(error.envelope.payload))).is_err() {
                count(&envelopes.late);
            }
        }
        ReplyTarget::Delegation(task) => task.end(DelegationEnd::Error(error.envelope, bytes)),
        ReplyTarget::Repeated => count(&envelopes.repeated),
        ReplyTarget::Unknown => return deliver(peer, HandlerNotification::Error(error), bytes),
    }
    true
}

/// Ends everything that waits for the connection.
pub(crate) fn closed(peer: &PeerAgent, reason: &Closed) {
    let envelopes = &peer.link.envelopes;
    envelopes.ended.cancel();
    let lost = || Error::from(RpcError::Closed(reason.clone()));
    let (requests, delegations) = envelopes.pending.lock_unpoisoned().close();
    for waiter in requests {
        let _ = waiter.send(Err(lost()));
    }
    delegations.iter().for_each(|task| task.end(DelegationEnd::Lost(lost())));
    for listener in envelopes.listeners.lock_unpoisoned().drain(..) {
        if let Some(listener) = listener.upgrade() {
            listener.close();
        }
    }
}
