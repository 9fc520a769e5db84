//! Classification of recorded lines: the method and session of each, and the request that it answers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use duologue_rpc::{Malformed, ResponseOutcome, RpcMessage};
use duologue_schema::{
    CancelRequestNotification, InitializeRequest, NewSessionRequest, Notification as _, PromptRequest,
    ProtocolVersion, Request as _, RequestId, SessionId, SessionNotification,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::format::{Record, RecordedLine, Side};

/// A recorded line with its place in the conversation.
#[derive(Debug)]
#[non_exhaustive]
pub struct TranscriptEntry<'a> {
    /// The index of its record.
    pub record: usize,
    /// The time at which it was written.
    pub at: Duration,
    /// The line itself.
    pub line: &'a RecordedLine,
    /// The session that the line belongs to; `None` if it concerns the whole connection.
    /// A `session/new` or `session/fork` belongs to the session that it creates. A `$/cancel_request` belongs to
    /// the session of its request.
    pub session: Option<SessionId>,
    /// The entry of the request that a `$/cancel_request` cancels: the last one of the same side with that id.
    /// The request may already have been answered.
    pub withdraws: Option<usize>,
    /// The version of the connection: that of the last response to `initialize`, or 1 before the first one.
    pub protocol: ProtocolVersion,
    /// The parsed content of the line.
    pub parsed: ParsedLine<'a>,
}

impl TranscriptEntry<'_> {
    /// Returns the side that wrote the line.
    #[must_use]
    pub fn from(&self) -> Side {
        self.line.from
    }

    /// Returns the method of a request or notification, or of the request that a response answers.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        match &self.parsed {
            ParsedLine::Request { method, .. } | ParsedLine::Notification { method, .. } => Some(method),
            ParsedLine::Response { method, .. } => method.as_deref(),
            ParsedLine::Noise(_) | ParsedLine::Blank => None,
        }
    }

    /// Returns true if the connection has version 2.
    #[must_use]
    pub fn is_v2(&self) -> bool {
        self.protocol == ProtocolVersion::V2
    }

    /// Returns true for the line with which the work on a prompt ends: the response to `session/prompt`, or in
    /// version 2 the state `idle`.
    #[must_use]
    pub fn ends_turn(&self) -> bool {
        match &self.parsed {
            ParsedLine::Notification { method, params } => {
                self.is_v2() && self.from() == Side::Agent && is_idle(method, *params)
            }
            ParsedLine::Response { outcome, .. } => {
                let accepts = self.is_v2() && matches!(outcome, ResponseOutcome::Result(_));
                self.method() == Some(PromptRequest::METHOD) && !accepts
            }
            _ => false,
        }
    }

    /// Returns true for a request without a response so far.
    fn is_open(&self) -> bool {
        matches!(self.parsed, ParsedLine::Request { answer: None, .. })
    }
}

/// The parsed content of a line.
#[derive(Debug)]
#[non_exhaustive]
pub enum ParsedLine<'a> {
    /// A request.
    #[non_exhaustive]
    Request {
        /// The id of the request.
        id: RequestId,
        /// The method.
        method: Cow<'a, str>,
        /// The params.
        params: Option<&'a RawValue>,
        /// The entry of the response, if there is one.
        answer: Option<usize>,
    },
    /// A notification.
    #[non_exhaustive]
    Notification {
        /// The method.
        method: Cow<'a, str>,
        /// The params.
        params: Option<&'a RawValue>,
    },
    /// A response.
    #[non_exhaustive]
    Response {
        /// The id in the response.
        id: &'a RawValue,
        /// The method of the request that it answers, if there is one.
        method: Option<String>,
        /// The entry of that request.
        request: Option<usize>,
        /// The result or error.
        outcome: ResponseOutcome<'a>,
    },
    /// A line that is not a message.
    Noise(Malformed),
    /// A blank line.
    Blank,
}

/// Classifies the lines among `records`.
#[must_use]
pub fn entries(records: &[Record]) -> Vec<TranscriptEntry<'_>> {
    let mut entries: Vec<TranscriptEntry<'_>> = Vec::new();
    // The last request by sender and id. An id may be used again once its request is answered.
    let mut requests: HashMap<(Side, String), usize> = HashMap::new();
    let mut protocol = ProtocolVersion::V1;
    for (record, line) in records.iter().enumerate().filter_map(|(at, record)| Some((at, record.line()?))) {
        let place = entries.len();
        let mut withdraws = None;
        let (session, parsed) = match line.message() {
            None => (None, ParsedLine::Blank),
            Some(Err(malformed)) => (None, ParsedLine::Noise(malformed)),
            Some(Ok(RpcMessage::Request { id, method, params })) => {
                requests.insert((line.from, id_key(id.token())), place);
                (params.and_then(session_of), ParsedLine::Request { id, method, params, answer: None })
            }
            Some(Ok(RpcMessage::Notification { method, params })) => {
                if method == CancelRequestNotification::METHOD {
                    withdraws = request_of(params).and_then(|id| requests.get(&(line.from, id)).copied());
                }
                (params.and_then(session_of), ParsedLine::Notification { method, params })
            }
            Some(Ok(RpcMessage::Response { id, outcome })) => {
                let request = requests.get(&(line.from.other(), id_key(id.get()))).copied();
                let request = request.filter(|at| entries.get(*at).is_some_and(TranscriptEntry::is_open));
                let (mut session, mut method) = (None, None);
                if let Some(request) = request.and_then(|at| entries.get_mut(at)) {
                    if let ResponseOutcome::Result(result) = &outcome
                        && (request.session.is_none() || request.method() == Some(FORK))
                    {
                        request.session = session_of(result).or(request.session.take());
                    }
                    session = request.session.clone();
                    method = request.method().map(str::to_owned);
                    if let ParsedLine::Request { answer, .. } = &mut request.parsed {
                        *answer = Some(place);
                    }
                }
                if let (Some(InitializeRequest::METHOD), ResponseOutcome::Result(result)) =
                    (method.as_deref(), &outcome)
                {
                    protocol = version_of(result).unwrap_or(protocol);
                }
                (session, ParsedLine::Response { id, method, request, outcome })
            }
            // A kind of message that this version of the peer does not know.
            Some(Ok(_)) => (None, ParsedLine::Blank),
        };
        let at = records.get(record).map(|record| record.at).unwrap_or_default();
        entries.push(TranscriptEntry { record, at, line, session, withdraws, protocol, parsed });
    }
    // The session that a request creates is known only from its response.
    for place in 0..entries.len() {
        let Some(request) = entries.get(place).and_then(|entry| entry.withdraws) else { continue };
        let session = entries.get(request).and_then(|request| request.session.clone());
        if let Some(entry) = entries.get_mut(place) {
            entry.session = session;
        }
    }
    entries
}

/// The draft method whose params name a session that is not the one it creates.
const FORK: &str = "session/fork";

/// Returns true for the methods whose response names the session that they create.
pub(crate) fn creates_session(method: &str) -> bool {
    method == NewSessionRequest::METHOD || method == FORK
}

/// Returns the version that a response to `initialize` chooses. Some agents of version 1 repeat any version; version 2
/// requires `info`.
fn version_of(result: &RawValue) -> Option<ProtocolVersion> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Chosen {
        protocol_version: ProtocolVersion,
        info: Option<IgnoredAny>,
    }
    let chosen: Chosen = serde_json::from_str(result.get()).ok()?;
    let is_v1 = chosen.protocol_version == ProtocolVersion::V2 && chosen.info.is_none();
    Some(if is_v1 { ProtocolVersion::V1 } else { chosen.protocol_version })
}

/// Returns true for a `session/update` with the state `idle`.
pub(crate) fn is_idle(method: &str, params: Option<&RawValue>) -> bool {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        update: Update<'a>,
    }
    #[derive(Deserialize)]
    struct Update<'a> {
        #[serde(borrow, rename = "sessionUpdate")]
        kind: Cow<'a, str>,
        #[serde(borrow)]
        state: Cow<'a, str>,
    }
    method == SessionNotification::METHOD
        && params
            .and_then(|params| serde_json::from_str::<Params<'_>>(params.get()).ok())
            .is_some_and(|Params { update }| update.kind == "state_update" && update.state == "idle")
}

/// Returns the session that params or a result name.
pub(crate) fn session_of(json: &RawValue) -> Option<SessionId> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Named {
        session_id: SessionId,
    }
    let named = serde_json::from_str::<Named>(json.get()).ok()?;
    (!named.session_id.as_str().is_empty()).then_some(named.session_id)
}

/// Returns the id of the request that `$/cancel_request` names.
pub(crate) fn request_of(params: Option<&RawValue>) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Named<'a> {
        #[serde(borrow)]
        request_id: &'a RawValue,
    }
    serde_json::from_str::<Named<'_>>(params?.get()).ok().map(|named| id_key(named.request_id.get()))
}

/// Returns the form by which the ids of JSON-RPC are compared in a recording: `"a\/b"` and `"a/b"` are the same id,
/// `1` and `1.0` are not. `token` is the id as it is spelled.
#[must_use]
pub fn id_key(token: &str) -> String {
    let text = token.starts_with('"').then(|| serde_json::from_str::<String>(token));
    text.and_then(Result::ok)
        .map_or_else(|| token.to_owned(), |text| serde_json::Value::from(text).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::RecordEvent;

    #[test]
    fn an_id_is_the_same_however_it_is_spelled() {
        let record = |from, text: &str| {
            Record::new(Duration::ZERO, RecordEvent::Line(RecordedLine::new(from, text.as_bytes())))
        };
        let records = [
            record(Side::Client, r#"{"jsonrpc":"2.0","id":"a\/b","method":"_x","params":{"sessionId":"s"}}"#),
            record(
                Side::Client,
                r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"a\u002fb"}}"#,
            ),
            record(Side::Agent, r#"{"jsonrpc":"2.0","id":"a/b","result":{}}"#),
        ];
        let entries = entries(&records);
        let sessions: Vec<_> =
            entries.iter().map(|entry| entry.session.as_ref().map(SessionId::as_str)).collect();
        assert_eq!(sessions, [Some("s"); 3]);
        assert_eq!(entries.last().and_then(TranscriptEntry::method), Some("_x"));
    }

    #[test]
    fn lines_belong_to_a_session_before_it_has_an_id() {
        use Side::{Agent, Client};
        let records: Vec<_> = [
            (Client, r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/a"}}"#),
            (Agent, r#"{"jsonrpc":"2.0","id":1,"method":"_x","params":{"requestId":1}}"#),
            (Client, r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}"#),
            (Agent, r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}"#),
            (Client, r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}"#),
            (Agent, r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}"#),
            (Client, r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":7}}"#),
            (
                Client,
                r#"{"jsonrpc":"2.0","id":1,"method":"session/fork","params":{"sessionId":"s","cwd":"/a"}}"#,
            ),
            (Agent, r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"t"}}"#),
            (Agent, r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"t"}}"#),
        ]
        .into_iter()
        .map(|(from, text)| {
            Record::new(Duration::ZERO, RecordEvent::Line(RecordedLine::new(from, text.as_bytes())))
        })
        .collect();
        let entries = entries(&records);
        let session = |entry: &TranscriptEntry<'_>| entry.session.as_ref().map(|id| id.as_str().to_owned());
        let belongs: Vec<_> = entries.iter().map(|entry| (session(entry), entry.withdraws)).collect();
        let (s, t) = (Some("s".to_owned()), Some("t".to_owned()));
        assert_eq!(
            belongs,
            [
                (s.clone(), None),
                (None, None),
                (s.clone(), Some(0)),
                (s.clone(), None),
                (s, Some(0)),
                (None, Some(1)),
                (None, None),
                (t.clone(), None),
                (t, None),
                (None, None),
            ]
        );
    }
}
