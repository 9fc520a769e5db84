//! What each line of a recording is: its method, its session, the request it answers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use duologue_rpc::{Malformed, Message, Outcome};
use duologue_schema::{RequestId, SessionId};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::format::{Line, Record, Side};

/// A line, and what it is in its conversation.
#[derive(Debug)]
#[non_exhaustive]
pub struct Entry<'a> {
    /// Which record it comes from.
    pub record: usize,
    /// When it was written.
    pub at: Duration,
    /// The line itself.
    pub line: &'a Line,
    /// The session it belongs to; none for what concerns the whole connection. A `session/new` and
    /// its like belong to the session they make.
    pub session: Option<SessionId>,
    /// What it says.
    pub said: Said<'a>,
}

impl Entry<'_> {
    /// Who wrote it.
    #[must_use]
    pub fn from(&self) -> Side {
        self.line.from
    }

    /// The method of a request or notification, or of the request that is answered.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        match &self.said {
            Said::Request { method, .. } | Said::Notification { method, .. } => Some(method),
            Said::Response { method, .. } => method.as_deref(),
            Said::Noise(_) | Said::Blank => None,
        }
    }
}

/// What a line says.
#[derive(Debug)]
#[non_exhaustive]
pub enum Said<'a> {
    /// A question.
    Request {
        /// Names it.
        id: RequestId,
        /// What is asked.
        method: Cow<'a, str>,
        /// About what.
        params: Option<&'a RawValue>,
        /// The entry that answers it, if one does.
        answer: Option<usize>,
    },
    /// Something told.
    Notification {
        /// What is told.
        method: Cow<'a, str>,
        /// About what.
        params: Option<&'a RawValue>,
    },
    /// An answer.
    Response {
        /// The id it gives.
        id: &'a RawValue,
        /// The method of the request it answers, if there was one.
        method: Option<String>,
        /// The entry of that request.
        request: Option<usize>,
        /// What it says.
        outcome: Outcome<'a>,
    },
    /// No message.
    Noise(Malformed),
    /// Nothing at all.
    Blank,
}

/// The lines among `records`, each as what it is.
#[must_use]
pub fn entries(records: &[Record]) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    // Requests by who asked and the id; an id may be used again once it is answered.
    let mut open: HashMap<(Side, String), usize> = HashMap::new();
    for (record, line) in records.iter().enumerate().filter_map(|(at, record)| Some((at, record.line()?))) {
        let place = entries.len();
        let (mut session, said) = match line.message() {
            None => (None, Said::Blank),
            Some(Err(malformed)) => (None, Said::Noise(malformed)),
            Some(Ok(Message::Request { id, method, params })) => {
                open.insert((line.from, id_key(id.token())), place);
                (session_of(params), Said::Request { id, method, params, answer: None })
            }
            Some(Ok(Message::Notification { method, params })) => {
                let withdrawn = request_of(params)
                    .and_then(|id| open.get(&(line.from, id)))
                    .and_then(|asked| entries.get(*asked)?.session.clone());
                (session_of(params).or(withdrawn), Said::Notification { method, params })
            }
            Some(Ok(Message::Response { id, outcome })) => {
                let request = open.remove(&(line.from.other(), id_key(id.get())));
                let asked = request.and_then(|request| entries.get_mut(request));
                let (mut session, mut method) = (None, None);
                if let Some(asked) = asked {
                    if let (None, Outcome::Result(result)) = (&asked.session, &outcome) {
                        asked.session = session_of(Some(result));
                    }
                    session = asked.session.clone();
                    method = asked.method().map(str::to_owned);
                    if let Said::Request { answer, .. } = &mut asked.said {
                        *answer = Some(place);
                    }
                }
                (session, Said::Response { id, method, request, outcome })
            }
            // The message of a later version of the peer.
            Some(Ok(_)) => (None, Said::Blank),
        };
        if session.as_ref().is_some_and(|id| id.as_str().is_empty()) {
            session = None;
        }
        let at = records.get(record).map(|record| record.at).unwrap_or_default();
        entries.push(Entry { record, at, line, session, said });
    }
    entries
}

/// The session that params or a result name.
fn session_of(json: Option<&RawValue>) -> Option<SessionId> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Named {
        session_id: SessionId,
    }
    serde_json::from_str::<Named>(json?.get()).ok().map(|named| named.session_id)
}

/// The request that `$/cancel_request` names.
pub(crate) fn request_of(params: Option<&RawValue>) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Named<'a> {
        #[serde(borrow)]
        request_id: &'a RawValue,
    }
    serde_json::from_str::<Named<'_>>(params?.get()).ok().map(|named| id_key(named.request_id.get()))
}

/// What ids are compared by: one spelling for each, since `"a\/b"` and `"a/b"` are the same id.
pub(crate) fn id_key(token: &str) -> String {
    let text = token.starts_with('"').then(|| serde_json::from_str::<String>(token));
    text.and_then(Result::ok)
        .map_or_else(|| token.to_owned(), |text| serde_json::Value::from(text).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Event;

    #[test]
    fn an_id_is_the_same_however_it_is_spelled() {
        let record =
            |from, text: &str| Record::new(Duration::ZERO, Event::Line(Line::new(from, text.as_bytes())));
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
        assert_eq!(entries.last().and_then(Entry::method), Some("_x"));
    }
}
