//! Frames on a wire that is as difficult as a wire may be: pipes of one page, short writes and reads,
//! interruptions, in seeded orders. Nothing is torn, nothing is lost, every task's order is kept.
#![cfg(target_os = "linux")]

mod full;
mod pipes;
mod replies;
mod torn;
