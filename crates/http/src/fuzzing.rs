//! Access of the fuzz targets to private parts. Published crates have none of it.

use bytes::Bytes;

use crate::client::event_parser::EventParser;
use crate::frame_view::FrameView;
use crate::server::sent_ring::{RingLimits, SentRing};
use crate::wire::StreamPosition;

/// An event: the last id of the stream, and its data.
pub type ParsedEvent = (Option<String>, Vec<u8>);

/// Reads the events of a response that arrives in pieces. The error has those before it.
pub fn events<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    limit: usize,
) -> Result<Vec<ParsedEvent>, Vec<ParsedEvent>> {
    let (mut parser, mut events) = (EventParser::new(limit), Vec::new());
    let is_read = pieces.into_iter().all(|piece| parser.push(piece, &mut events).is_ok());
    let events =
        events.into_iter().map(|event| (event.id.map(|id| id.to_string()), event.data.into())).collect();
    if is_read { Ok(events) } else { Err(events) }
}

/// Returns the cursor that a client finds in a message.
#[must_use]
pub fn cursor_of(message: &[u8]) -> Option<String> {
    FrameView::read(message).cursor.map(Into::into)
}

/// The frames of a connection that were sent to its client.
pub struct SentFrames(SentRing);

impl SentFrames {
    /// Sends frames, all of which are kept.
    #[must_use]
    pub fn new<'a>(frames: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let limits = RingLimits { bytes: usize::MAX, frames: usize::MAX, confirmed_bytes: usize::MAX };
        let mut ring = SentRing::new(limits);
        frames.into_iter().for_each(|frame| ring.push(Bytes::copy_from_slice(frame)));
        SentFrames(ring)
    }

    /// Returns the frames that the client has not received, with their cursors.
    pub fn take_all(&mut self) -> Vec<(Vec<u8>, Option<String>)> {
        let frames = std::iter::from_fn(|| self.0.take());
        frames.map(|frame| (frame.text.into(), frame.cursor.map(|cursor| cursor.to_string()))).collect()
    }

    /// Moves back to the position of a client. Returns false if it is refused.
    pub fn resume(&mut self, positions: &[StreamPosition]) -> bool {
        self.0.resume(positions).is_ok()
    }
}
