//! Compaction: an agent that makes its context shorter.
//!
//! Only for clients with `session.compaction`.

use duologue_schema_derive::wire;

use crate::{CompactionId, ContentBlock, Meta, Patch};

/// A compaction as it is now. The first one about an id fixes its place in the conversation.
#[wire]
pub struct CompactionUpdate {
    /// Which compaction.
    pub compaction_id: CompactionId,
    /// How far it is.
    pub status: CompactionStatus,
    /// The whole summary, in place of the old.
    #[wire(skip_invalid)]
    pub summary: Patch<Vec<ContentBlock>>,
    /// Why it failed.
    #[wire(lenient)]
    pub error: Patch<String>,
    /// Extension data about the compaction, `_meta` on the wire.
    #[wire(lenient)]
    pub meta: Patch<Meta>,
}

/// How far a compaction is.
#[wire(open)]
pub enum CompactionStatus {
    /// Under way.
    InProgress,
    /// Done.
    Completed,
    /// Failed; the context is as before.
    Failed,
    /// Cancelled; the context is as before.
    Cancelled,
}

/// More of the summary of a compaction.
#[wire]
pub struct CompactionSummaryChunk {
    /// Which compaction.
    pub compaction_id: CompactionId,
    /// What comes next.
    pub content: ContentBlock,
}
