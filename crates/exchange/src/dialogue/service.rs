//! Routing of incoming dialogue messages.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use duologue_rpc::{Incoming, Responder};
use duologue_schema::dialogue::{
    AgentUri, DialogueErrorCode as Code, DialogueMessage, DialogueRequest, DialogueResponse, ErrorContent,
    MessageType, Receipt, ReceiptStatus,
};
use duologue_schema::params_fault;
use duologue_schema::{Error as WireError, Json, Meta, Request};

use super::dialogues::Dialogues;
use super::error::Error;
use super::handler;
use super::inner::{DialogueInner, ParentDialogue, new_id, timestamp};
use super::message::VerifiedMessage;
use super::state::{Arrival, object, refused};
use super::verify::{NewMessage, VerifyOutcome};
use crate::limits::DIALOGUE_META_BYTES;
use crate::peer_agent::PeerAgent;
use crate::service::ExchangeService;
use duologue_rpc::Lock as _;

/// Handles a request that carries a dialogue message, if this side supports dialogues. The reader
/// calls it; the handler runs in a task of its own.
pub(crate) fn request(
    service: &ExchangeService,
    request: Incoming<'_>,
    responder: Responder,
) -> Result<(), Responder> {
    let ExchangeService { peer, knows, .. } = service;
    let Some(dialogues) = &peer.link.dialogue_connection.dialogues else { return Err(responder) };
    let params = request.params.map_or("null", |params| params.get());
    let DialogueRequest { session_id, message, meta, .. } = match serde_json::from_str(params) {
        Ok(params) => params,
        Err(error) => {
            responder
                .respond::<()>(Err(WireError::invalid_params(params_fault(DialogueRequest::METHOD, &error))));
            return Ok(());
        }
    };
    if !knows(&session_id) {
        responder.respond::<()>(Err(WireError::resource_not_found("there is no such session")));
        return Ok(());
    }
    let meta_bytes = meta.as_ref().map_or(0, |meta| meta.as_json().get().len());
    if meta_bytes > DIALOGUE_META_BYTES {
        let method = DialogueRequest::METHOD;
        let text =
            format!("{method}: _meta has {meta_bytes} bytes, at most {DIALOGUE_META_BYTES} are allowed");
        responder.respond::<()>(Err(WireError::invalid_params(text)));
        return Ok(());
    }
    let peer = peer.in_session(session_id);
    match dialogues.verifier.prepare(&message, &peer) {
        None => respond(dialogues, &peer, &message, meta, responder),
        Some(prepared) => {
            let dialogues = dialogues.clone();
            // A sender sends its next message after this receipt, so none overtakes another.
            peer.rpc().clone().spawn(async move {
                prepared.await;
                respond(&dialogues, &peer, &message, meta, responder);
            });
        }
    }
    Ok(())
}

/// Takes a message, and sends its receipt or the reason of its rejection.
fn respond(
    dialogues: &Arc<Dialogues>,
    peer: &PeerAgent,
    message: &Json,
    meta: Option<Meta>,
    responder: Responder,
) {
    let mut responder = Some(responder);
    let mut respond = |answer| {
        if let Some(responder) = responder.take() {
            responder.respond(Ok(answer));
        }
    };
    let taken = take(dialogues, peer, message, meta, |receipt| {
        respond(DialogueResponse::accepted(receipt));
    });
    if let Err(error) = taken {
        // The text of the error may quote the message, so only the code is logged.
        tracing::info!(code = %error.error_code, "a dialogue message was rejected");
        respond(DialogueResponse::rejected(refusal(dialogues, message, *error)));
    }
}

/// Verifies and delivers a message, and sends its receipt.
fn take(
    dialogues: &Arc<Dialogues>,
    peer: &PeerAgent,
    json: &Json,
    meta: Option<Meta>,
    receipt: impl FnOnce(Receipt),
) -> Result<(), Box<ErrorContent>> {
    let about = |error: Box<ErrorContent>| Box::new(error.about(json));
    let verdict = dialogues
        .verifier
        .verify(json, peer.link.dialogue_connection.id, SystemTime::now())
        .map_err(|refusal| {
            tracing::warn!(%refusal, "a dialogue message failed verification");
            Box::new(refusal.content(json))
        })?;
    let verified = match verdict {
        VerifyOutcome::New(verified) => verified,
        VerifyOutcome::Duplicate(again) => {
            let key = (peer.link.dialogue_connection.id, again.session_id.clone());
            let inner = dialogues.registry.lock_unpoisoned().get(&key);
            let is_early = inner.is_some_and(|inner| inner.is_early(&again.message_id));
            receipt(if is_early { again.status(ReceiptStatus::Held) } else { again });
            return Ok(());
        }
        VerifyOutcome::Refused(error) => return Err(about(error)),
    };
    let NewMessage { mut received, replay_key } = *verified;
    received.meta = meta;
    received.ends = left(&received).and_then(|left| dialogues.now().checked_add(left));
    let taken = Receipt::new(received.message_id.clone(), received.session_id.clone());
    let receipt = |arrival: &Arrival| {
        receipt(match arrival {
            Arrival::Duplicate => taken.duplicate(true),
            Arrival::Buffered => taken.status(ReceiptStatus::Held),
            _ => taken,
        });
    };
    arrive(dialogues, peer, received, receipt).map_err(|error| {
        dialogues.verifier.forget(&replay_key);
        about(error)
    })
}

/// Returns the remaining lifetime of a message.
fn left(message: &DialogueMessage) -> Option<Duration> {
    let sent: jiff::Timestamp = message.timestamp.parse().ok()?;
    let ends = SystemTime::from(sent).checked_add(Duration::from_secs(message.metadata.ttl?))?;
    Some(ends.duration_since(SystemTime::now()).unwrap_or_default())
}

/// Passes a verified message to its dialogue.
fn arrive(
    dialogues: &Arc<Dialogues>,
    peer: &PeerAgent,
    received: VerifiedMessage,
    receipt: impl FnOnce(&Arrival),
) -> Result<(), Box<ErrorContent>> {
    dialogues.parameters.check(&received).map_err(|bad| {
        let details = object(serde_json::json!({ "task": bad.task }));
        Box::new(ErrorContent::of(Code::InvalidParameter, bad.to_string()).details(details))
    })?;
    match find(dialogues, peer, &received)?.arrive(received, receipt) {
        Arrival::Refused(error) => Err(error),
        _ => Ok(()),
    }
}

/// Returns the dialogue of a message, or creates it.
fn find(
    dialogues: &Arc<Dialogues>,
    peer: &PeerAgent,
    message: &DialogueMessage,
) -> Result<Arc<DialogueInner>, Box<ErrorContent>> {
    let key = (peer.link.dialogue_connection.id, message.session_id.clone());
    if let Some(inner) = dialogues.registry.lock_unpoisoned().get(&key) {
        return Ok(inner);
    }
    if dialogues.handler.is_none() {
        return Err(refused(Code::NotFound, "unknown dialogue, and this side accepts no new ones"));
    }
    let metadata = &message.metadata;
    let parent = metadata.parent_session_id.clone().map(|session| ParentDialogue {
        inner: None,
        session,
        message: metadata.parent_message_id.clone(),
    });
    let correlation =
        metadata.correlation_id.clone().unwrap_or_else(|| message.session_id.as_str().to_owned());
    let (id, other) = (message.session_id.clone(), message.sender_id.clone());
    let inner = DialogueInner::new(dialogues.clone(), peer.clone(), id, other, parent, correlation, true);
    inner.enter().map_err(|error| match error {
        Error::Response(error) => error,
        full => refused(Code::Overloaded, full.to_string()),
    })?;
    Ok(inner)
}

/// Creates the `error` message for a rejected message. It is not part of the dialogue, so it has
/// the step of the rejected message. It is unsigned, because any sender can provoke one about any
/// message.
fn refusal(dialogues: &Dialogues, json: &Json, error: ErrorContent) -> Json {
    #[derive(Default, serde::Deserialize)]
    struct Step {
        #[serde(default)]
        interaction_step: Option<u64>,
    }
    let step =
        json.parse::<Step>().unwrap_or_default().interaction_step.unwrap_or(1).clamp(1, u64::MAX >> 11);
    let session = error.failed_session_id.clone().unwrap_or_else(|| new_id().as_str().into());
    let sender = error.failed_sender_id.clone().unwrap_or_else(|| AgentUri::from("agent://unknown"));
    let parent = error.failed_message_id.clone();
    let own = dialogues.own().clone();
    let mut message =
        DialogueMessage::new(new_id(), session, own, sender, timestamp(), step, MessageType::Error)
            .content(error);
    message.parent_message_id = parent;
    handler::local_reply(message).raw
}
