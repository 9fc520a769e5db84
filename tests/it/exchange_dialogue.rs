//! Dialogues between two processes.

mod processes;
mod walkthrough;
