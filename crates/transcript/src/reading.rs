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
    // Requests by who asked and the id as it stands; an id may be used again once it is answered.
    let mut open: HashMap<(Side, String), usize> = HashMap::new();
    for (record, line) in records.iter().enumerate().filter_map(|(at, record)| Some((at, record.line()?))) {
        let place = entries.len();
        let (mut session, said) = match line.message() {
            None => (None, Said::Blank),
            Some(Err(malformed)) => (None, Said::Noise(malformed)),
            Some(Ok(Message::Request { id, method, params })) => {
                open.insert((line.from, id.to_string()), place);
                (session_of(params), Said::Request { id, method, params, answer: None })
            }
            Some(Ok(Message::Notification { method, params })) => {
                let withdrawn = request_of(params)
                    .and_then(|id| open.get(&(line.from, id)))
                    .and_then(|asked| entries.get(*asked)?.session.clone());
                (session_of(params).or(withdrawn), Said::Notification { method, params })
            }
            Some(Ok(Message::Response { id, outcome })) => {
                let request = open.remove(&(line.from.other(), id.get().to_owned()));
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

/// The request that `$/cancel_request` names, as its id stands in the text.
fn request_of(params: Option<&RawValue>) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Named<'a> {
        #[serde(borrow)]
        request_id: &'a RawValue,
    }
    serde_json::from_str::<Named<'_>>(params?.get()).ok().map(|named| named.request_id.get().to_owned())
}
