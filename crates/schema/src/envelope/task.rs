//! The state of a task, and its streamed output.

use duologue_schema_derive::wire;

use super::{EnvelopeError, EnvelopeId};
use crate::Json;

/// The state of a task: the `data` of the response to a query about it.
///
/// The query has the domain [`TaskStatus::DOMAIN`], and the id of the delegation as `ref`.
#[wire(snake)]
pub struct TaskStatus {
    /// The id of the delegation.
    pub task: EnvelopeId,
    /// The state.
    pub state: TaskState,
    /// The time of the last change, in milliseconds since 1970.
    #[wire(integer)]
    pub updated_ms: Option<u64>,
    /// The error that ended the task.
    pub error: Option<EnvelopeError>,
}

impl TaskStatus {
    /// The domain of a query about the state of a task.
    pub const DOMAIN: &str = "meta.task";
}

/// The states of a task. The last five are final.
#[wire(open)]
pub enum TaskState {
    /// The receiver has not decided yet if it accepts the task.
    Submitted,
    /// The task is in progress.
    Working,
    /// The task waits for an answer of the agent that delegated it.
    InputRequired,
    /// A cancellation was accepted, and the task has not ended yet.
    Cancelling,
    /// The task is complete, or partly complete.
    Completed,
    /// The task failed.
    Failed,
    /// The task was cancelled.
    Cancelled,
    /// The receiver did not accept the task.
    Rejected,
    /// The deadline of the task has passed.
    Expired,
}

impl TaskState {
    /// Returns true if the task has ended. An unknown state does not count as an end.
    #[must_use]
    pub fn is_final(&self) -> bool {
        use TaskState::{Cancelled, Completed, Expired, Failed, Rejected};
        matches!(self, Completed | Failed | Cancelled | Rejected | Expired)
    }
}

/// A piece of the output of a task: the `data` of a notification with the topic [`OutputChunk::TOPIC`], whose
/// `ref` is the id of the delegation.
#[wire(snake)]
pub struct OutputChunk {
    /// The content: text or any JSON. It is `null` if the attachments of the notification are the content.
    #[wire(always)]
    pub chunk: Option<Json>,
    /// The position of the chunk in the output. The first one is 0, and each chunk adds 1.
    #[wire(integer)]
    pub position: u64,
    /// True for the last chunk.
    #[wire(default, always)]
    pub complete: bool,
}

impl OutputChunk {
    /// The topic of the notifications that carry chunks.
    pub const TOPIC: &str = "task.output";

    /// Returns the content if it is text.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        self.chunk.as_ref()?.parse().ok()
    }
}
