//! What agents say to each other, which is not ACP's: a document for each scheme.

use serde_json::{Map, Value, json};

use super::registry::{Definition, define, round_trip};
use super::{generated, references};
use crate::envelope::{
    self, Ack, AgentId, Cancel, Capabilities, Carried, Delegate, Discover, Envelope, EnvelopeId, Fault,
    FaultCode, Importance, Kind, Notify, Outcome, OutcomeStatus, Ping, Pong, Priority, Query, Reply,
    Response, Status,
};
use crate::{Json, MethodRow, SessionId};

/// A scheme of messages between agents.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Scheme {
    /// Its name, that of the module with its types.
    pub name: &'static str,
    /// Its methods.
    pub methods: &'static [MethodRow],
    title: &'static str,
    definitions: fn() -> Vec<Definition>,
}

/// The schemes.
#[must_use]
pub fn schemes() -> [Scheme; 1] {
    [Scheme {
        name: "envelope",
        methods: envelope::METHODS,
        title: "Envelopes of Duologue, version 1: what `_session/<kind>` carries",
        definitions: envelopes,
    }]
}

impl Scheme {
    /// Every definition of the scheme.
    #[must_use]
    pub fn definitions(&self) -> Vec<Definition> {
        (self.definitions)()
    }

    /// The whole schema: at its root what its methods take and answer.
    #[must_use]
    pub fn document(&self) -> Value {
        let all = generated(&self.definitions(), self.methods.iter());
        let mut names: Vec<&str> = Vec::new();
        for name in self.methods.iter().flat_map(|row| std::iter::once(row.params).chain(row.result)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": self.title,
            "anyOf": references(names.into_iter()),
            "$defs": all,
        })
    }

    /// The methods by their names, requests and notifications. Either side may send each.
    #[must_use]
    pub fn meta(&self) -> Value {
        let (requests, notifications): (Vec<_>, Vec<_>) =
            self.methods.iter().partition(|row| row.result.is_some());
        let by_name = |rows: Vec<&MethodRow>| -> Map<String, Value> {
            rows.into_iter()
                .map(|row| (row.method.trim_start_matches("_session/").to_owned(), row.method.into()))
                .collect()
        };
        json!({ "requests": by_name(requests), "notifications": by_name(notifications) })
    }
}

fn envelopes() -> Vec<Definition> {
    define! {
        Ack, AgentId, Cancel, Capabilities, Delegate, Discover, EnvelopeId, Fault, FaultCode, Importance, Kind,
        Notify, Outcome, OutcomeStatus, Ping, Pong, Priority, Query, Response, SessionId, Status,
        Envelope as "Envelope" of Json,
        Envelope as "AckEnvelope" of Ack,
        Envelope as "CancelEnvelope" of Cancel,
        Envelope as "CapabilitiesEnvelope" of Capabilities,
        Envelope as "DelegateEnvelope" of Delegate,
        Envelope as "DiscoverEnvelope" of Discover,
        Envelope as "FaultEnvelope" of Fault,
        Envelope as "NotifyEnvelope" of Notify,
        Envelope as "OutcomeEnvelope" of Outcome,
        Envelope as "PingEnvelope" of Ping,
        Envelope as "PongEnvelope" of Pong,
        Envelope as "QueryEnvelope" of Query,
        Envelope as "ResponseEnvelope" of Response,
        Carried as "AckParams" of Ack,
        Carried as "CancelParams" of Cancel,
        Carried as "CapabilitiesParams" of Capabilities,
        Carried as "DelegateParams" of Delegate,
        Carried as "DiscoverParams" of Discover,
        Carried as "FaultParams" of Fault,
        Carried as "NotifyParams" of Notify,
        Carried as "OutcomeParams" of Outcome,
        Carried as "PingParams" of Ping,
        Carried as "PongParams" of Pong,
        Carried as "QueryParams" of Query,
        Carried as "ResponseParams" of Response,
        Reply as "AckResult" of Ack,
        Reply as "CapabilitiesResult" of Capabilities,
        Reply as "FaultResult" of Fault,
        Reply as "PongResult" of Pong,
        Reply as "ResponseResult" of Response,
    }
    .into()
}
