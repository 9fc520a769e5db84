//! Compaction of the context of an agent.
//!
//! Only for clients with `session.compaction`.

use duologue_schema_derive::wire;

use crate::{CompactionId, ContentBlock, Meta, Patch};

/// The state of a compaction. The first update with an id fixes its position in the conversation.
#[wire]
pub struct CompactionUpdate {
    /// The id of the compaction.
    pub compaction_id: CompactionId,
    /// The status of the compaction.
    pub status: CompactionStatus,
    /// The whole summary. It replaces the previous one.
    #[wire(skip_invalid)]
    pub summary: Patch<Vec<ContentBlock>>,
    /// The reason of a failure.
    #[wire(lenient)]
    pub error: Patch<String>,
    /// Extension data about the compaction, `_meta` on the wire.
    #[wire(lenient)]
    pub meta: Patch<Meta>,
    /// True if an agent of version 2 leaves the status as it is. Version 1 always has one.
    #[cfg(feature = "protocol-v2")]
    #[wire(local)]
    pub has_kept_status: bool,
}

impl CompactionUpdate {
    /// Returns the new status. `None` is no change, which only an agent of version 2 can send.
    #[must_use]
    pub fn new_status(&self) -> Option<&CompactionStatus> {
        #[cfg(feature = "protocol-v2")]
        if self.has_kept_status {
            return None;
        }
        Some(&self.status)
    }
}

/// The status of a compaction.
#[wire(open)]
pub enum CompactionStatus {
    /// The compaction is running.
    InProgress,
    /// The compaction is complete.
    Completed,
    /// The compaction failed, and the context is unchanged.
    Failed,
    /// The compaction was cancelled, and the context is unchanged.
    Cancelled,
}

/// A further piece of the summary of a compaction.
#[wire]
pub struct CompactionSummaryChunk {
    /// The id of the compaction.
    pub compaction_id: CompactionId,
    /// The content to append.
    pub content: ContentBlock,
}
