//! Streamed output of tasks: chunks with positions.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use duologue_schema::envelope::{Attachment, Notify, OutputChunk};
use duologue_schema::{Json, Members};
use futures::Stream;
use futures::future::BoxFuture;

use super::outgoing::{MessageOptions, message_options, with_attachments};
use super::{Received, ReceivedTask, Subscription};
use crate::error::Result;
use crate::limits::{OUTPUT_AHEAD, OUTPUT_BYTES};
use duologue_rpc::Lock as _;

/// A chunk of the output of a task before it is sent; see [`ReceivedTask::output`].
#[must_use = "the chunk is sent when it is awaited"]
#[derive(Debug)]
pub struct OutputBuilder {
    task: ReceivedTask,
    chunk: Json,
    complete: bool,
    notify: Notify,
    options: MessageOptions,
}

message_options!([] OutputBuilder);
with_attachments!([] OutputBuilder, notify);

impl OutputBuilder {
    pub(super) fn new(task: &ReceivedTask, chunk: Json) -> Self {
        let options = MessageOptions::about(task.envelope.id.clone());
        let notify = Notify::new(OutputChunk::TOPIC);
        OutputBuilder { task: task.clone(), chunk, complete: false, notify, options }
    }

    /// Marks the last chunk. Later chunks of the task are not sent.
    pub fn last(mut self) -> Self {
        self.complete = true;
        self
    }
}

impl IntoFuture for OutputBuilder {
    type Output = Result<()>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let OutputBuilder { task, chunk, complete, notify, options } = self;
        Box::pin(async move {
            let chunk = OutputChunk::new(0).chunk(chunk).complete(complete);
            task.send_report(
                |reports| {
                    if reports.complete {
                        return Ok(None);
                    }
                    let mut chunk = chunk.clone();
                    chunk.position = reports.position;
                    // A chunk is JSON already, so there is no error to handle.
                    let data = Json::new(&chunk).unwrap_or_else(|_| false.into());
                    task.peer.prepare(notify.clone().data(data), options.clone()).map(Some)
                },
                |reports| {
                    crate::envelope::events::stream_chunk(&task.envelope.id, reports.position, complete);
                    reports.position += 1;
                    reports.complete = complete;
                },
            )
            .await
        })
    }
}

/// A chunk of the output of a task.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TaskOutput {
    /// The content with its position.
    pub chunk: OutputChunk,
    /// The whole message.
    pub notification: Arc<Received<Notify>>,
}

impl TaskOutput {
    /// Returns the content if it is text.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        self.chunk.text()
    }

    /// Returns the images, sounds and documents of the chunk.
    #[must_use]
    pub fn attachments(&self) -> &[Attachment] {
        &self.notification.attachments
    }

    /// Returns the unknown members of the chunk.
    #[must_use]
    pub fn extra(&self) -> &Members {
        &self.chunk.extra
    }
}

/// Chunks of the output of a task are missing: they were lost on the way, or were not read in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{missing} chunks of the output are missing from position {position} on")]
#[non_exhaustive]
pub struct OutputGap {
    /// The position of the first missing chunk.
    pub position: u64,
    /// The number of missing chunks.
    pub missing: u64,
}

/// The output of a task in the order of its positions; see
/// [`Delegation::output`](super::Delegation::output).
///
/// Repeated chunks are dropped. A chunk that arrives too early waits for the missing ones, together
/// with at most [`OUTPUT_AHEAD`] others. The stream ends after the last chunk or with the task.
#[must_use = "the output is dropped if it is not read"]
#[derive(Debug)]
pub struct OutputStream {
    messages: Subscription,
    /// Shared by all streams of the task.
    order: Arc<Mutex<OutputOrder>>,
}

/// The chunks of a task that wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct OutputOrder {
    /// The position of the next chunk.
    next: u64,
    /// The chunks that arrived too early, each with its size in the queue.
    ahead: BTreeMap<u64, (TaskOutput, usize)>,
    ahead_bytes: usize,
    /// True after unread messages were dropped, until the gap that they leave has been passed.
    lost: bool,
    /// True once a chunk has arrived after the dropped messages.
    arrived_since: bool,
    /// True if no more messages arrive.
    ended: bool,
    complete: bool,
}

impl OutputStream {
    pub(super) fn new(messages: Subscription, order: Arc<Mutex<OutputOrder>>) -> Self {
        OutputStream { messages, order }
    }

    /// Waits for the next chunk; returns `None` at the end.
    ///
    /// # Errors
    ///
    /// [`OutputGap`] if chunks are missing. The stream continues after the gap.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Result<TaskOutput, OutputGap>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Returns true if the last chunk has been returned. It is false after an output that ended early.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.order.lock_unpoisoned().complete
    }
}

impl OutputOrder {
    /// Keeps a chunk of `bytes` until it is its turn. A repeated one is dropped, and so is one that is
    /// no chunk.
    fn arrive(&mut self, notification: Arc<Received<Notify>>, bytes: usize) {
        let chunk = notification.data.as_ref().and_then(|data| data.parse::<OutputChunk>().ok());
        let Some(chunk) = chunk else {
            return tracing::debug!("dropped output of a task that is no chunk");
        };
        self.arrived_since = true;
        let position = chunk.position;
        if position >= self.next && !self.ahead.contains_key(&position) {
            self.ahead_bytes += bytes;
            self.ahead.insert(position, (TaskOutput { chunk, notification }, bytes));
        }
    }

    /// Records that unread messages were dropped.
    fn lose(&mut self) {
        (self.lost, self.arrived_since) = (true, false);
    }

    /// Returns the chunk whose turn it is, or the gap before the chunks that arrived.
    fn take(&mut self) -> Option<Result<TaskOutput, OutputGap>> {
        let full = self.ahead.len() > OUTPUT_AHEAD || self.ahead_bytes > OUTPUT_BYTES;
        let item = if let Some((output, bytes)) = self.ahead.remove(&self.next) {
            self.ahead_bytes -= bytes;
            self.next = self.next.saturating_add(1);
            self.complete = output.chunk.complete;
            Ok(output)
        } else {
            let (first, _) = self.ahead.first_key_value().filter(|_| full || self.lost || self.ended)?;
            let gap = OutputGap { position: self.next, missing: first - self.next };
            self.next = *first;
            Err(gap)
        };
        self.lost &= !self.arrived_since;
        Some(item)
    }

    fn poll(
        &mut self,
        messages: &Subscription,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<TaskOutput, OutputGap>>> {
        loop {
            if self.complete {
                return Poll::Ready(None);
            }
            if let Some(item) = self.take() {
                return Poll::Ready(Some(item));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match messages.poll(cx) {
                Poll::Ready(Some(Ok((notification, bytes)))) => self.arrive(notification, bytes),
                // The positions show the gap.
                Poll::Ready(Some(Err(_))) => self.lose(),
                Poll::Ready(None) => self.ended = true,
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Stream for OutputStream {
    type Item = Result<TaskOutput, OutputGap>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut order = self.order.lock_unpoisoned();
        let item = order.poll(&self.messages, cx);
        // Another stream may wait for a message, although this one has made a chunk ready.
        let others = item.is_ready() && (order.complete || order.ahead.contains_key(&order.next));
        drop(order);
        if others {
            self.messages.wake_all();
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::task::Waker;

    use super::super::subscription::SubscriptionQueue;
    use super::*;
    use crate::{Exchange, Hops, PeerAgent};

    fn chunk(peer: &PeerAgent, position: u64) -> Arc<Received<Notify>> {
        let chunk = Json::new(&OutputChunk::new(position).chunk("x")).unwrap();
        let envelope = peer.envelope(Notify::new(OutputChunk::TOPIC).data(chunk));
        Arc::new(Received::new(envelope, peer.clone(), Hops::default(), None))
    }

    fn peer() -> PeerAgent {
        Exchange::new().in_memory(Exchange::new()).0
    }

    /// The parts of a message besides its data count too.
    #[tokio::test]
    async fn early_chunks_are_bounded_by_the_size_of_their_messages() {
        let (peer, mut order) = (peer(), OutputOrder::default());
        order.arrive(chunk(&peer, 1), OUTPUT_BYTES / 2);
        assert!(order.take().is_none());
        order.arrive(chunk(&peer, 2), OUTPUT_BYTES);
        assert_eq!(order.take().unwrap().unwrap_err(), OutputGap { position: 0, missing: 1 });
        assert!(order.take().unwrap().is_ok() && order.take().unwrap().is_ok() && order.take().is_none());
        assert_eq!(order.ahead_bytes, 0);
    }

    #[tokio::test]
    async fn the_gap_of_dropped_chunks_is_reported_at_once() {
        let (peer, queue) = (peer(), SubscriptionQueue::for_output());
        let mut output = OutputStream::new(Subscription::new(queue.clone(), None), Arc::default());
        queue.push(chunk(&peer, 1), 1);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(std::pin::pin!(output.next()).poll(&mut cx).is_pending());
        for position in 2..=4 {
            queue.push(chunk(&peer, position), OUTPUT_BYTES / 2);
        }
        let mut missing = Vec::new();
        for _ in 0..4 {
            missing.push(
                output.next().await.unwrap().map(|output| output.chunk.position).map_err(|gap| gap.missing),
            );
        }
        assert_eq!(missing, [Err(1), Ok(1), Err(2), Ok(4)]);
        // A chunk that is too early waits again.
        queue.push(chunk(&peer, 6), 1);
        assert!(std::pin::pin!(output.next()).poll(&mut cx).is_pending());
    }
}
