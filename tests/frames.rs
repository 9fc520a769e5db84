//! Frames on a wire that is as difficult as a wire may be: pipes of one page, short writes and reads,
//! interruptions, in seeded orders. Nothing is torn, nothing is lost, every task's order is kept.
#![cfg(target_os = "linux")]

#[path = "frames/full.rs"]
mod full;
#[path = "frames/pipes.rs"]
mod pipes;
#[path = "frames/replies.rs"]
mod replies;
mod support;
#[path = "frames/torn.rs"]
mod torn;
