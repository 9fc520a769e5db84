//! The lines of the client that are not sent to the server, and their answers.

use duologue_rpc::raw_message::{member, response_frame, text};
use duologue_rpc::{JsonScanner, JsonTokenKind, Limits, Malformed};
use duologue_schema::{Error as RpcError, RequestId};

use super::ID_BYTES;
use super::paths::RefusedMessage;

/// The mark that some programs write before a text. A message has none.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A line of the client that is not sent, because it is not exactly one message or has a path outside of the mapped folders.
#[derive(Debug)]
pub(super) struct RefusedLine {
    /// The response for the client.
    pub(super) answer: Option<Vec<u8>>,
    pub(super) reason: String,
}

impl RefusedLine {
    /// Creates the refusal of a line that is never answered.
    pub(super) fn silent(reason: String) -> Self {
        RefusedLine { answer: None, reason }
    }

    /// Creates the refusal of a request that is not valid.
    pub(super) fn request(id: &RequestId, reason: String) -> Self {
        let answer = error_line(id, &RpcError::invalid_request(reason.clone()));
        RefusedLine { answer, reason }
    }

    /// Creates the refusal of a line, with the answer of an agent: to a request by its id, and to a line that is no
    /// message without one.
    pub(super) fn malformed(malformed: &Malformed) -> Self {
        let answer = match malformed {
            Malformed::Request(id, error) => error_line(id, error),
            Malformed::Noise(error) => error_line(&RequestId::null(), error),
            _ => None,
        };
        RefusedLine { answer, reason: malformed.to_string() }
    }

    /// Creates the refusal of a message that cannot be mapped.
    pub(super) fn unmapped(refused: &RefusedMessage) -> Self {
        let RefusedMessage { id, error } = refused;
        RefusedLine { answer: id.as_ref().and_then(|id| error_line(id, error)), reason: error.to_string() }
    }
}

/// A line of the client above the limit, of which the beginning is known.
#[derive(Debug, PartialEq)]
pub(super) enum LongLine {
    /// A request, with the error for the client.
    Request(Vec<u8>),
    /// A response, with the error that the agent gets in its place.
    Response(Vec<u8>),
    /// A notification, or a message whose id is not in the beginning.
    Unanswered,
}

impl LongLine {
    pub(super) fn read(beginning: &[u8], limit: usize) -> Self {
        Self::of(beginning, limit).unwrap_or(LongLine::Unanswered)
    }

    fn of(beginning: &[u8], limit: usize) -> Option<Self> {
        // The last value may be cut.
        let complete = |name| member(beginning, name).filter(|value| value.end < beginning.len());
        let id = std::str::from_utf8(beginning.get(complete("id")?)?).ok()?;
        let id = RequestId::from_token(id).filter(|_| id.len() <= ID_BYTES)?;
        if complete("method").is_some() {
            let reason = format!("the message is longer than the limit of {limit} bytes, and was not sent");
            return error_line(&id, &RpcError::invalid_request(reason)).map(LongLine::Request);
        }
        let has = |name| has_member(beginning, name);
        if has("method") || !(has("result") || has("error")) {
            return None;
        }
        let reason = format!(
            "the answer of the client is longer than the limit of {limit} bytes, and was not sent; answer with less"
        );
        error_line(&id, &RpcError::internal(reason).coded("limit_reached", false)).map(LongLine::Response)
    }

    /// Returns the consequence for the log.
    pub(super) fn consequence(&self) -> &'static str {
        match self {
            LongLine::Request(_) => "its request fails",
            LongLine::Response(_) => "the agent gets an error in its place",
            LongLine::Unanswered => "it has no answer",
        }
    }
}

/// Returns a line that was written anew. One that has become too long is refused, except for a response: the agent gets an
/// error in its place.
pub(super) fn measured(line: Vec<u8>) -> Result<Vec<u8>, RefusedLine> {
    let limit = Limits::default().frame_bytes;
    if line.len() <= limit {
        return Ok(line);
    }
    let reason = format!("it is longer than {limit} bytes in the form for the server");
    match LongLine::read(&line, limit) {
        LongLine::Response(error) => Ok(error),
        LongLine::Request(error) => Err(RefusedLine { answer: Some(error), reason }),
        LongLine::Unanswered => Err(RefusedLine::silent(reason)),
    }
}

/// Returns true if the beginning of an object has a member, whose value may be cut.
fn has_member(beginning: &[u8], name: &str) -> bool {
    let mut scanner = JsonScanner::new(beginning);
    while let Some(token) = scanner.next() {
        if token.kind == JsonTokenKind::Key
            && scanner.depth() == 1
            && beginning.get(token.span).and_then(text).as_deref() == Some(name)
        {
            return true;
        }
    }
    false
}

fn error_line(id: &RequestId, error: &RpcError) -> Option<Vec<u8>> {
    response_frame(id.token(), Err(error)).ok()
}
