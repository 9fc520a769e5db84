//! Routing of incoming envelopes to the [`EnvelopeHandler`](super::EnvelopeHandler) or to the
//! pending request that they belong to. The connection's reader calls all of it.

use std::sync::Arc;

use duologue_rpc::{Closed, Error as RpcError, Incoming, Responder};
use duologue_schema::envelope::{
    AgentId, Discover, Envelope, EnvelopeError, EnvelopeErrorCode, EnvelopeKind, EnvelopeParams,
    EnvelopeResult, METHODS, Payload, Ping, Query, QueryResponse, RequestPayload, TaskStatus,
};
use tokio::time::Instant;

use super::handler::ErasedEnvelopeHandler;
use super::machine::{EnvelopeActions, EnvelopeMachine};
use super::read::{EnvelopeHead, InvalidEnvelope, read, read_unopened};
use super::{Received, task_runner};
use crate::error::{Error, to_wire};
use crate::peer_agent::PeerAgent;
use crate::service::ExchangeService;

type AnswerRequest<P> = fn(&Arc<dyn ErasedEnvelopeHandler>, Received<P>, Responder);
type MachineEvent<P> = fn(&mut EnvelopeMachine, Received<P>, usize) -> EnvelopeActions;

/// Parses a request and passes it to `answer`. An invalid request is rejected here.
///
/// # Errors
///
/// Returns the responder if this side has no handler for envelopes.
pub(crate) fn request<P: RequestPayload>(
    service: &ExchangeService,
    request: Incoming<'_>,
    responder: Responder,
    answer: AnswerRequest<P>,
) -> Result<(), Responder> {
    let peer = &service.peer;
    let Some(handler) = &peer.link.envelope_handler else { return Err(responder) };
    match read::<P>(peer, &service.knows, request.params) {
        Ok(received) => match received.hops.check(peer.link.max_hops) {
            Ok(()) => answer(handler, received, responder),
            Err(fault) => received.origin().respond::<P::Response>(responder, Err(fault)),
        },
        Err(unfit) => responder.respond::<()>(Err(to_wire(unfit.answer(peer), None))),
    }
    Ok(())
}

pub(crate) fn ping(_: &Arc<dyn ErasedEnvelopeHandler>, ping: Received<Ping>, responder: Responder) {
    let (peer, limit) = (&ping.peer, query_limit(&ping.peer));
    let pong = peer.link.envelopes.with(|machine| machine.tasks.pong(limit));
    let uptime = peer.link.envelopes.started.elapsed().as_secs();
    ping.origin().respond(responder, Ok(pong.uptime_secs(uptime)));
}

pub(crate) fn discover(
    handler: &Arc<dyn ErasedEnvelopeHandler>,
    discover: Received<Discover>,
    responder: Responder,
) {
    let capabilities = task_runner::capabilities(&discover.peer, &**handler);
    discover.origin().respond(responder, capabilities);
}

impl InvalidEnvelope {
    fn answer(self, peer: &PeerAgent) -> Envelope<EnvelopeError> {
        let mut envelope = peer.envelope(self.fault);
        envelope.reference = self.head.id;
        if let Some(from) = self.head.from {
            envelope.to = from;
        }
        envelope
    }
}

/// Returns the maximum number of concurrent queries. It is lower than the limit for requests, which
/// leaves room for pings and cancellations.
fn query_limit(peer: &PeerAgent) -> usize {
    let in_flight = peer.rpc().limits().in_flight;
    in_flight.saturating_sub((in_flight / 16).max(1))
}

pub(crate) fn query(handler: &Arc<dyn ErasedEnvelopeHandler>, query: Received<Query>, responder: Responder) {
    if query.domain.as_deref() == Some(TaskStatus::DOMAIN)
        && let Some(task) = query.envelope.reference.clone()
    {
        return query.origin().respond(responder, task_runner::status(&query, task));
    }
    let (origin, limit) = (query.origin(), query_limit(&query.peer));
    if !query.peer.link.envelopes.with(|machine| machine.tasks.start_query(limit)) {
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
        self.0.link.envelopes.with(|machine| machine.tasks.finish_query());
    }
}

/// Rejects a request that nothing else has handled if it carries an envelope.
pub(crate) fn unknown_kind(
    peer: &PeerAgent,
    request: Incoming<'_>,
    responder: Responder,
) -> Result<(), Responder> {
    let Some(unfit) = unknown_kind_error(peer, request) else { return Err(responder) };
    responder.respond::<()>(Err(to_wire(unfit.answer(peer), None)));
    Ok(())
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

/// Returns true if a notification may belong to this side. A side without a handler consumes only
/// messages about its own requests and subscriptions.
fn takes_notifications(peer: &PeerAgent) -> bool {
    peer.link.envelope_handler.is_some() || peer.require_envelopes().is_ok()
}

/// Parses a notification and passes it to the state machine; returns false for one that is left to
/// the user's handlers.
pub(crate) fn notification<P: Payload>(
    service: &ExchangeService,
    notification: Incoming<'_>,
    event: MachineEvent<P>,
) -> bool {
    let ExchangeService { peer, knows, .. } = service;
    if !takes_notifications(peer) {
        return false;
    }
    let received = read::<P>(peer, knows, notification.params);
    handled::<P>(
        peer,
        received.map(|received| {
            peer.link.envelopes.handle(|machine| event(machine, received, notification.wire_bytes))
        }),
    )
}

/// Handles a response that arrives as a notification.
pub(crate) fn reply<P: Payload>(service: &ExchangeService, notification: Incoming<'_>) -> bool {
    let ExchangeService { peer, knows, .. } = service;
    if !takes_notifications(peer) {
        return false;
    }
    let received = read_unopened::<P>(peer, knows, notification.params);
    handled::<P>(
        peer,
        received.map(|Received { envelope, meta, .. }| {
            let mut reply = EnvelopeResult::new(envelope);
            reply.meta = meta.received().cloned();
            peer.link.envelopes.handle(|machine| machine.reply_notification(&P::KIND, reply))
        }),
    )
}

/// Reports an invalid notification to its sender. Invalid errors are not reported, because errors
/// are never answered.
fn handled<P: Payload>(peer: &PeerAgent, handled: Result<bool, Box<InvalidEnvelope>>) -> bool {
    let has_handler = peer.link.envelope_handler.is_some();
    let unfit = match handled {
        Ok(handled) => return handled || has_handler,
        Err(unfit) => unfit,
    };
    let envelopes = &peer.link.envelopes;
    let from = unfit.head.from.clone().unwrap_or_else(|| AgentId::from(""));
    let end = |of| envelopes.handle(|machine| machine.invalid(&P::KIND, &from, of, &unfit.fault));
    let ours = unfit.head.reference.as_ref().is_some_and(end);
    match P::KIND {
        // The message may be valid for the user's own handlers.
        _ if !ours && !has_handler => {}
        EnvelopeKind::Error => {
            log_dropped(&unfit.fault);
            envelopes.count_dropped();
        }
        _ => report_invalid(peer, *unfit),
    }
    ours || has_handler
}

/// Rejects a request that arrives as a notification.
pub(crate) fn misplaced_request(service: &ExchangeService, notification: Incoming<'_>) -> bool {
    let has_handler = service.peer.link.envelope_handler.is_some();
    if has_handler {
        let head = EnvelopeHead::of(notification.params.map_or("{}", |params| params.get()));
        let message = format!("{} is a request: give it a JSON-RPC id", notification.method);
        let fault = EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, message);
        report_invalid(&service.peer, *head.unfit(fault));
    }
    has_handler
}

fn log_dropped(fault: &EnvelopeError) {
    tracing::debug!(%fault, "dropped a notification");
}

/// Reports an invalid notification to its sender if its id and sender are known, at a limited rate.
fn report_invalid(peer: &PeerAgent, unfit: InvalidEnvelope) {
    log_dropped(&unfit.fault);
    let has_address = unfit.head.id.is_some() && unfit.head.from.is_some();
    let now = has_address.then(Instant::now);
    if peer.link.envelopes.with(|machine| machine.count_invalid(now)) {
        let session = unfit.head.session.clone();
        let _ = peer.rpc().try_notify(&EnvelopeParams::new(session, unfit.answer(peer)));
    }
}

/// Ends everything that waits for the connection.
pub(crate) fn closed(peer: &PeerAgent, reason: &Closed) {
    let envelopes = &peer.link.envelopes;
    envelopes.ended.cancel();
    let error = Error::from(RpcError::Closed(reason.clone()));
    envelopes.handle(|machine| machine.close(&error));
}
