//! Streamed output of tasks: chunks with positions.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use duologue_schema::envelope::{Attachment, Notify, OutputChunk};
use duologue_schema::{Json, Members};
use futures::Stream;
use futures::future::BoxFuture;

use super::outgoing::{MessageOptions, attached_bytes, message_options, with_attachments};
use super::{Received, ReceivedTask, Subscription};
use crate::error::Result;
use crate::limits::{OUTPUT_AHEAD, OUTPUT_BYTES};

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
    /// The position of the next chunk.
    next: u64,
    /// The chunks that arrived too early, and their size together.
    ahead: BTreeMap<u64, TaskOutput>,
    ahead_bytes: usize,
    /// True if no more messages arrive.
    ended: bool,
    complete: bool,
}

impl OutputStream {
    pub(super) fn new(messages: Subscription) -> Self {
        let (ahead, ahead_bytes) = (BTreeMap::new(), 0);
        OutputStream { messages, next: 0, ahead, ahead_bytes, ended: false, complete: false }
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
        self.complete
    }

    /// Keeps a chunk until it is its turn. A repeated one is dropped, and so is one that is no chunk.
    fn arrive(&mut self, notification: Arc<Received<Notify>>) {
        let chunk = notification.data.as_ref().and_then(|data| data.parse::<OutputChunk>().ok());
        let Some(chunk) = chunk else {
            return tracing::debug!("dropped output of a task that is no chunk");
        };
        if chunk.position >= self.next && !self.ahead.contains_key(&chunk.position) {
            let output = TaskOutput { chunk, notification };
            self.ahead_bytes += output.bytes();
            self.ahead.insert(output.chunk.position, output);
        }
    }

    /// Returns the chunk whose turn it is, or the gap before the chunks that arrived.
    fn take(&mut self) -> Option<Result<TaskOutput, OutputGap>> {
        if let Some(output) = self.ahead.remove(&self.next) {
            self.ahead_bytes -= output.bytes();
            self.next = self.next.saturating_add(1);
            self.complete = output.chunk.complete;
            return Some(Ok(output));
        }
        let full = self.ahead.len() > OUTPUT_AHEAD || self.ahead_bytes > OUTPUT_BYTES;
        let (first, _) = self.ahead.first_key_value().filter(|_| full || self.ended)?;
        let gap = OutputGap { position: self.next, missing: first - self.next };
        self.next = *first;
        Some(Err(gap))
    }
}

impl TaskOutput {
    fn bytes(&self) -> usize {
        let data = self.notification.data.as_ref().map_or(0, |data| data.get().len());
        data + attached_bytes(&self.notification.envelope.payload)
    }
}

impl Stream for OutputStream {
    type Item = Result<TaskOutput, OutputGap>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
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
            match Pin::new(&mut self.messages).poll_next(cx) {
                Poll::Ready(Some(Ok(notification))) => self.arrive(notification),
                // The positions show the gap.
                Poll::Ready(Some(Err(_))) => {}
                Poll::Ready(None) => self.ended = true,
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
