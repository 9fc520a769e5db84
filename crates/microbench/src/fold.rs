//! The fold: a message grows chunk by chunk, or is cleared and sent again.

use std::hint::black_box;

use duologue_schema::{Conversation, SessionUpdate};

use crate::{Path, Work};

const CHUNKS: u64 = 2_000;

pub(crate) const PATHS: &[Path] =
    &[Path::new("fold/append", CHUNKS, append), Path::new("fold/clear_and_push_64k", 100, clear_and_push)];

fn chunk(text: &str) -> SessionUpdate {
    SessionUpdate::agent_message(text).with_message_id("c6d3a1de-6c3f-4c4e-a8a1-5a9e36f0b7cd")
}

/// Chunks of 40 bytes, all of one message.
fn append() -> Work {
    let update = chunk("and so it is forty bytes, neither more n");
    Box::new(move || {
        let mut conversation = Conversation::default();
        for _ in 0..CHUNKS {
            conversation.apply(black_box(&update));
        }
        black_box(&conversation);
    })
}

/// A message that is cleared and pushed whole again, up to 64 KiB.
fn clear_and_push() -> Work {
    let clear =
        SessionUpdate::agent_message_clear(None).with_message_id("c6d3a1de-6c3f-4c4e-a8a1-5a9e36f0b7cd");
    let drafts: Vec<SessionUpdate> =
        (1..=100).map(|part| chunk(&"x".repeat(part * 64 * 1024 / 100))).collect();
    Box::new(move || {
        let mut conversation = Conversation::default();
        for draft in &drafts {
            conversation.apply(&clear);
            conversation.apply(black_box(draft));
        }
        black_box(&conversation);
    })
}
