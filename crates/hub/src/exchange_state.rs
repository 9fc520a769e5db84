//! The messages between agents (RFDs 0004 to 0006) that pass through a session, and the clients that they belong to.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use duologue_rpc::raw_message::{call_frame, member, member_text};
use duologue_schema::dialogue::DialogueRequest;
use duologue_schema::envelope::{
    Delegate, DelegationOutcome, Discover, Envelope, EnvelopeError, EnvelopeErrorCode, EnvelopeKind,
    EnvelopeParams, Notify, Payload as _,
};
use duologue_schema::work::WorkParams;
use duologue_schema::{Request as _, SessionId};

use crate::record::ClientKey;

/// A scheme of messages between agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExchangeScheme {
    Envelopes,
    Dialogues,
    Work,
}

impl ExchangeScheme {
    /// Returns the scheme of a method.
    pub(crate) fn of(method: &str) -> Option<Self> {
        if !method.starts_with("_session/") {
            return None;
        }
        match method {
            DialogueRequest::METHOD => Some(ExchangeScheme::Dialogues),
            WorkParams::METHOD => Some(ExchangeScheme::Work),
            method => EnvelopeKind::of_method(method).map(|_| ExchangeScheme::Envelopes),
        }
    }
}

/// Returns true for a request that an agent answers without a session. It also refuses kinds that it does not know.
pub(crate) fn needs_no_session(method: &str) -> bool {
    method.starts_with("_session/")
}

/// Returns true for a message to all clients of a session.
pub(crate) fn is_broadcast(method: &str) -> bool {
    method == Notify::METHOD
}

/// The beginning of the address of an agent of a server.
pub(crate) const AGENT_SCHEME: &str = "agent://";

/// Returns true for an envelope that is addressed to an agent of the server, or to the registry: a `discover` without an
/// address. A message of a dialogue is for an agent of the server if its recipient is `agent://ID` without a path. Every
/// recipient of a dialogue begins like this, and clients have names with a path.
pub(crate) fn is_for_agents(method: &str, params: &[u8]) -> bool {
    let text_of = |object: &str, name: &str| {
        let object = member(params, object).and_then(|object| params.get(object));
        object.and_then(|object| member_text(object, name)).unwrap_or_default()
    };
    match ExchangeScheme::of(method) {
        Some(ExchangeScheme::Envelopes) => {
            let to = text_of("envelope", "to");
            to.starts_with(AGENT_SCHEME) || (to.is_empty() && method == Discover::METHOD)
        }
        Some(ExchangeScheme::Dialogues) => text_of("message", "recipient_id")
            .strip_prefix(AGENT_SCHEME)
            .is_some_and(|agent| !agent.contains('/')),
        Some(ExchangeScheme::Work) | None => false,
    }
}

/// Returns the dialogue of a message, or nothing if it names none.
#[cfg(feature = "gateway")]
pub(crate) fn dialogue_of(params: &[u8]) -> String {
    PeerMessageIds::read(DialogueRequest::METHOD, params).own.unwrap_or_default().into_owned()
}

/// The ids in a message between agents.
#[derive(Debug, Default)]
struct PeerMessageIds<'a> {
    /// The message, or its dialogue.
    own: Option<Cow<'a, str>>,
    /// The message that it refers to, or its dialogue.
    reference: Option<Cow<'a, str>>,
    /// The time of sending.
    ts: u64,
    /// False for a delegation whose sender waits for no result.
    reports_back: bool,
}

impl<'a> PeerMessageIds<'a> {
    fn read(method: &str, params: &'a [u8]) -> Self {
        let object = |of: &'a [u8], name: &str| of.get(member(of, name)?);
        match ExchangeScheme::of(method) {
            Some(ExchangeScheme::Dialogues) => {
                let message = object(params, "message").unwrap_or_default();
                let dialogue = member_text(message, "session_id");
                PeerMessageIds { own: dialogue.clone(), reference: dialogue, ..PeerMessageIds::default() }
            }
            Some(ExchangeScheme::Envelopes) => {
                let envelope = object(params, "envelope").unwrap_or_default();
                let ts = object(envelope, "ts").and_then(|ts| std::str::from_utf8(ts).ok()?.parse().ok());
                let payload = object(envelope, "payload").unwrap_or_default();
                PeerMessageIds {
                    own: member_text(envelope, "id"),
                    reference: member_text(envelope, "ref"),
                    ts: ts.unwrap_or_default(),
                    reports_back: object(payload, "report_back") != Some(b"false"),
                }
            }
            Some(ExchangeScheme::Work) | None => PeerMessageIds::default(),
        }
    }
}

/// A delegation of a client that has no result yet.
#[derive(Clone, Debug)]
pub(crate) struct OpenDelegation {
    id: String,
    pub(crate) client: ClientKey,
    ts: u64,
    /// The number of the hub's request to the agent.
    call: u64,
}

impl OpenDelegation {
    /// Returns the notification that the delegation has failed because its agent has ended.
    pub(crate) fn failure(
        &self,
        session: &SessionId,
        position: u64,
        reason: &str,
    ) -> serde_json::Result<Vec<u8>> {
        let error = EnvelopeError::of(EnvelopeErrorCode::Unreachable, reason);
        let envelope = Envelope::new(format!("{session}:{position}"), "", "", self.ts, error);
        let params = EnvelopeParams::new(Some(session.clone()), envelope.reference(self.id.as_str()));
        call_frame(None, EnvelopeError::METHOD, &params)
    }
}

/// The part of a session's state that routes messages between agents. The log determines it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExchangeState {
    /// The clients of messages and dialogues, by their ids.
    clients: HashMap<String, ClientKey>,
    order: VecDeque<String>,
    delegations: VecDeque<OpenDelegation>,
}

impl ExchangeState {
    /// Limit on the ids whose clients are known. An answer to an older one goes to the host.
    const KNOWN: usize = 1024;
    /// Limit on an id in bytes.
    const ID_BYTES: usize = 256;
    /// Limit on the delegations that are known to run. If the agent ends, the client of an older one receives no error.
    const DELEGATIONS: usize = 256;

    /// Notes a request of a client, with the number of the call to the agent.
    pub(crate) fn requested(&mut self, method: &str, params: &[u8], client: &ClientKey, call: u64) {
        let ids = PeerMessageIds::read(method, params);
        let Some(id) = ids.own.filter(|id| id.len() <= Self::ID_BYTES) else { return };
        if method == Delegate::METHOD && ids.reports_back {
            let (id, client) = (id.clone().into_owned(), client.clone());
            self.delegations.push_back(OpenDelegation { id, client, ts: ids.ts, call });
            if self.delegations.len() > Self::DELEGATIONS {
                self.delegations.pop_front();
            }
        }
        self.belongs_to(id.into_owned(), client);
    }

    /// Notes a request of the agent to a client.
    pub(crate) fn sent(&mut self, method: &str, params: &[u8], client: &ClientKey) {
        let id = PeerMessageIds::read(method, params).own;
        if let Some(id) = id.filter(|id| id.len() <= Self::ID_BYTES) {
            self.belongs_to(id.into_owned(), client);
        }
    }

    fn belongs_to(&mut self, id: String, client: &ClientKey) {
        if self.clients.insert(id.clone(), client.clone()).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() > Self::KNOWN
            && let Some(oldest) = self.order.pop_front()
        {
            self.clients.remove(&oldest);
        }
    }

    /// Notes the response to a call, or its absence.
    pub(crate) fn answered(&mut self, call: u64, response: Option<&[u8]>) {
        let Some(index) = self.delegations.iter().position(|open| open.call == call) else { return };
        if !response.is_some_and(is_accepted) {
            self.delegations.remove(index);
        }
    }

    /// Notes a notification of the agent.
    pub(crate) fn notified(&mut self, method: &str, params: &[u8]) {
        if method == DelegationOutcome::METHOD || method == EnvelopeError::METHOD {
            let ended = PeerMessageIds::read(method, params).reference;
            self.delegations.retain(|open| ended.as_deref() != Some(open.id.as_str()));
        }
    }

    /// Returns the client of the message that a message refers to.
    pub(crate) fn client_of_reference(&self, method: &str, params: &[u8]) -> Option<&ClientKey> {
        let reference = PeerMessageIds::read(method, params).reference?;
        self.clients.get(&*reference)
    }

    /// Returns the newest running delegation, as the number of its call and its client.
    pub(crate) fn newest(&self) -> Option<(u64, &ClientKey)> {
        self.delegations.back().map(|open| (open.call, &open.client))
    }

    /// Returns the running delegations.
    pub(crate) fn delegations(&self) -> impl Iterator<Item = &OpenDelegation> {
        self.delegations.iter()
    }
}

/// Returns true for the `ack` of a delegation that was accepted.
fn is_accepted(response: &[u8]) -> bool {
    let payload = ["result", "envelope", "payload"]
        .iter()
        .try_fold(response, |object, name| object.get(member(object, name)?));
    let accepted = payload.and_then(|payload| payload.get(member(payload, "accepted")?));
    accepted == Some(b"true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_ids_are_not_kept() {
        for (bytes, is_kept) in [(ExchangeState::ID_BYTES, true), (ExchangeState::ID_BYTES + 1, false)] {
            let (id, client) = ("x".repeat(bytes), ClientKey::new("a client".to_owned()));
            let own = format!(r#"{{"envelope":{{"id":"{id}","payload":{{}}}}}}"#);
            let reference = format!(r#"{{"envelope":{{"ref":"{id}"}}}}"#);
            let (mut sent, mut requested) = (ExchangeState::default(), ExchangeState::default());
            sent.sent(Delegate::METHOD, own.as_bytes(), &client);
            requested.requested(Delegate::METHOD, own.as_bytes(), &client, 7);
            for state in [&sent, &requested] {
                let known = state.client_of_reference(DelegationOutcome::METHOD, reference.as_bytes());
                assert_eq!(known.is_some(), is_kept, "{bytes}");
            }
            assert_eq!(requested.newest().is_some(), is_kept, "{bytes}");
        }
    }
}
