//! The recorder as a tap of a connection.

use std::future::Future;
use std::pin::Pin;

use duologue_rpc::{Direction, Tap, TappedFrame};

use crate::format::{LineEnd, Side};
use crate::record::queue::QueuedEvent;
use crate::record::recorder::Recorder;

/// Records the lines of one side of a connection.
pub(super) struct RecorderTap {
    pub(super) recorder: Recorder,
    pub(super) ours: Side,
}

impl Tap for RecorderTap {
    fn frame(&self, frame: TappedFrame<'_>) {
        let from = match frame.direction {
            Direction::Outgoing => self.ours,
            Direction::Incoming => self.ours.other(),
        };
        // A message is a JSON object, perhaps with white space or a byte order mark around it.
        let object = frame.is_message && frame.bytes.starts_with(b"{") && frame.bytes.ends_with(b"}");
        self.recorder.push_at(frame.at, QueuedEvent::Line { from, end: LineEnd::Lf, object }, frame.bytes);
    }

    fn wait(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        self.recorder.is_full().then(|| Box::pin(self.recorder.room()) as _)
    }
}
