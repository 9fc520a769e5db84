//! Replies whose requests keep their places and their room until they have been sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};

use crate::gateway::rest::admission::RestAdmission;
use crate::gateway::rest::request::RestReply;

/// The bytes of a body that the connection takes at a time. It takes more when it has written these.
const PIECE_BYTES: usize = 64 * 1024;

/// A reply with the place and the room of its request.
pub(crate) struct SentReply {
    reply: RestReply,
    admission: RestAdmission,
}

impl RestAdmission {
    /// Keeps the place, and the room that a reply needs, until it has been sent.
    pub(crate) fn until_sent(mut self, reply: RestReply) -> SentReply {
        self.shrink_room(reply.body().as_str().len());
        SentReply { reply, admission: self }
    }
}

impl IntoResponse for SentReply {
    fn into_response(self) -> Response {
        let SentReply { reply, admission } = self;
        let mut response = reply.head();
        *response.body_mut() = Body::new(SentBody { rest: reply.into_bytes(), _admission: admission });
        response
    }
}

/// A body that is sent in pieces.
struct SentBody {
    rest: Bytes,
    _admission: RestAdmission,
}

impl HttpBody for SentBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let length = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(length);
        Poll::Ready((length > 0).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
