//! The sessions of open requests, by which a response finds the session that it belongs to.

use std::collections::HashMap;
use std::sync::Arc;

use crate::frame_view::FrameView;

/// The most open requests that are recorded. A response to another one belongs to no session.
const MOST_REQUESTS: usize = 4096;
/// The longest id of a request, a session, a cursor or an event that is kept.
pub(crate) const ID_BYTES: usize = 1024;

/// The methods whose success ends a session.
const CLOSING: [&str; 2] = ["session/close", "session/delete"];

/// The sessions of the open requests of one side.
#[derive(Debug, Default)]
pub(crate) struct RequestSessions(HashMap<Box<[u8]>, OpenRequests>);

/// The open requests with one id, which is one request unless the other side breaks the rules.
#[derive(Debug)]
struct OpenRequests {
    session: Arc<str>,
    count: usize,
    /// True if it is one request whose success ends the session. With several it is unknown which one a response is for.
    closes: bool,
}

/// A request that was open until its response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AnsweredRequest {
    pub(crate) session: Arc<str>,
    /// True if its success ends the session.
    pub(crate) closes: bool,
}

impl RequestSessions {
    /// Records a request. `id` is the JSON text of its id.
    pub(crate) fn insert(&mut self, id: &[u8], session: &str) {
        self.insert_one(id, session, false);
    }

    fn insert_one(&mut self, id: &[u8], session: &str, closes: bool) {
        if self.0.len() < MOST_REQUESTS && id.len() <= ID_BYTES && session.len() <= ID_BYTES {
            self.0.insert(id.into(), OpenRequests { session: session.into(), count: 1, closes });
        }
    }

    /// Records a request whose id another open one may have. Responses to both belong to the session if it is the same, and
    /// neither of them ends it.
    pub(crate) fn insert_another(&mut self, view: &FrameView<'_>, session: &str) {
        let Some(id) = view.id else { return };
        match self.0.get_mut(id) {
            Some(open) if *open.session == *session => {
                open.count += 1;
                open.closes = false;
            }
            open => {
                let closes = open.is_none() && is_closing(view, session);
                self.insert_one(id, session, closes);
            }
        }
    }

    /// Records a request of the client if its success ends a session.
    pub(crate) fn insert_closing(&mut self, view: &FrameView<'_>) {
        if let (Some(id), Some(session)) = (view.id, view.params_session())
            && is_closing(view, session)
        {
            self.insert_one(id, session, true);
        }
    }

    /// Returns the session of a request.
    pub(crate) fn get(&self, id: &[u8]) -> Option<&Arc<str>> {
        self.0.get(id).map(|open| &open.session)
    }

    /// Removes one request that is answered, and returns it.
    pub(crate) fn remove(&mut self, id: &[u8]) -> Option<AnsweredRequest> {
        match self.0.get_mut(id) {
            Some(open) if open.count > 1 => {
                open.count -= 1;
                Some(AnsweredRequest { session: open.session.clone(), closes: false })
            }
            _ => self.0.remove(id).map(|open| AnsweredRequest { session: open.session, closes: open.closes }),
        }
    }

    /// Returns true if no request is open.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns true for a request that ends this session. One that ends a child session does not end that of the child.
fn is_closing(view: &FrameView<'_>, session: &str) -> bool {
    view.params_session() == Some(session)
        && view.method.as_deref().is_some_and(|method| CLOSING.contains(&method))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_open_requests_is_bounded() {
        let mut requests = RequestSessions::default();
        for id in 0..2 * MOST_REQUESTS {
            requests.insert(id.to_string().as_bytes(), "s");
        }
        assert_eq!(requests.0.len(), MOST_REQUESTS);
        assert_eq!(requests.remove(b"7").map(|request| request.session).as_deref(), Some("s"));
        assert_eq!(requests.remove(b"7"), None);
        requests.insert(&[b'1'; ID_BYTES + 1], "s");
        requests.insert(b"8000", &"s".repeat(ID_BYTES + 1));
        assert_eq!(requests.0.len(), MOST_REQUESTS - 1);
        requests.insert(b"8000", "t");
        assert_eq!(requests.get(b"8000").map(|session| &**session), Some("t"));
    }
}
