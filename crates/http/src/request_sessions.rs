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
}

impl RequestSessions {
    /// Records a request. `id` is the JSON text of its id.
    pub(crate) fn insert(&mut self, id: &[u8], session: &str) {
        if self.0.len() < MOST_REQUESTS && id.len() <= ID_BYTES && session.len() <= ID_BYTES {
            self.0.insert(id.into(), OpenRequests { session: session.into(), count: 1 });
        }
    }

    /// Records a request whose id another open one may have. Responses to both belong to the session if it is the same.
    pub(crate) fn insert_another(&mut self, id: &[u8], session: &str) {
        match self.0.get_mut(id).filter(|open| *open.session == *session) {
            Some(open) => open.count += 1,
            None => self.insert(id, session),
        }
    }

    /// Records a request of the client that ends a session if it succeeds.
    pub(crate) fn insert_closing(&mut self, view: &FrameView<'_>, session: Option<&str>) {
        if let (Some(id), Some(method), Some(session)) = (view.id, view.method.as_deref(), session)
            && CLOSING.contains(&method)
        {
            self.insert(id, session);
        }
    }

    /// Returns the session of a request.
    pub(crate) fn get(&self, id: &[u8]) -> Option<&Arc<str>> {
        self.0.get(id).map(|open| &open.session)
    }

    /// Removes one request that is answered, and returns its session.
    pub(crate) fn remove(&mut self, id: &[u8]) -> Option<Arc<str>> {
        match self.0.get_mut(id) {
            Some(open) if open.count > 1 => {
                open.count -= 1;
                Some(open.session.clone())
            }
            _ => self.0.remove(id).map(|open| open.session),
        }
    }

    /// Returns true if no request is open.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
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
        assert_eq!(requests.remove(b"7").as_deref(), Some("s"));
        assert_eq!(requests.remove(b"7"), None);
        requests.insert(&[b'1'; ID_BYTES + 1], "s");
        requests.insert(b"8000", &"s".repeat(ID_BYTES + 1));
        assert_eq!(requests.0.len(), MOST_REQUESTS - 1);
        requests.insert(b"8000", "t");
        assert_eq!(requests.get(b"8000").map(|session| &**session), Some("t"));
    }
}
