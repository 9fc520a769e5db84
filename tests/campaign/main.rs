//! Long runs of processes on both sides of the conversation.

mod processes;
