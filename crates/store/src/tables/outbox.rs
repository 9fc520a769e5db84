//! Posts to addresses outside: callbacks and chunks.

use std::time::Duration;

use serde::Serialize;

use super::values::JsonText;

/// The content of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OutboxKind {
    /// The end of a task.
    Callback,
    /// A part of the output of a task.
    Chunk,
}

/// The state of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OutboxState {
    /// It waits or is being sent.
    Pending,
    /// The receiver has accepted it.
    Delivered,
    /// It is not sent any more.
    GivenUp,
}

/// A post for the outbox.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewDelivery {
    /// The stream. Its posts are sent in order, one at a time.
    pub stream: String,
    /// The position in the stream. It exceeds that of all earlier posts of the stream.
    pub position: u64,
    /// The address.
    pub url: String,
    /// The body.
    pub body: JsonText,
    /// The content.
    pub kind: OutboxKind,
    /// The principal for which it is sent.
    pub principal: String,
    /// The trace context of the request, for a header. It is not compared with that of an earlier post.
    pub trace: Option<String>,
    /// The number of the task whose output it has. A purge leaves it while that task is open, or its last posts are due.
    pub task: Option<u64>,
}

impl NewDelivery {
    /// Creates a post.
    #[must_use]
    pub fn new(
        kind: OutboxKind,
        principal: impl Into<String>,
        stream: impl Into<String>,
        position: u64,
        url: impl Into<String>,
        body: JsonText,
    ) -> Self {
        NewDelivery {
            stream: stream.into(),
            position,
            url: url.into(),
            body,
            kind,
            principal: principal.into(),
            trace: None,
            task: None,
        }
    }
}

/// A post in the outbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct OutboxEntry {
    /// The number, which is never used again. It can be the id of the delivery.
    pub id: u64,
    /// The stream.
    pub stream: String,
    /// The position in the stream.
    pub position: u64,
    /// The address.
    pub url: String,
    /// The body. It is `null` once the post has ended.
    pub body: JsonText,
    /// The content.
    pub kind: OutboxKind,
    /// The principal for which it is sent.
    pub principal: String,
    /// The trace context of the request, for a header.
    pub trace: Option<String>,
    /// The attempts that have begun.
    pub attempts: u32,
    /// The monotonic time before which it is not sent. It is zero after a restart.
    #[serde(skip)]
    pub not_before: Duration,
    /// The state.
    pub state: OutboxState,
    /// The error of the last attempt.
    pub last_error: Option<String>,
    /// The time of its creation, in milliseconds since 1970.
    pub created: u64,
    /// The time of the last change, in milliseconds since 1970.
    pub updated: u64,
}

/// Filters of the outbox, all of which have to match, and the place of a page. Posts are ordered by their number.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OutboxQuery {
    /// A principal.
    pub principal: Option<String>,
    /// A stream.
    pub stream: Option<String>,
    /// A state.
    pub state: Option<OutboxState>,
    /// The number of entries in front of the page.
    pub offset: u64,
    /// The most entries of the page. Zero counts as 100, and
    /// [`StoreSettings::page_entries`](crate::StoreSettings::page_entries) is the most.
    pub limit: u64,
}
