//! Random schedules of dialogues, altered messages, lies, and the checks of the verifier.

mod algorithms;
mod lies;
mod schedules;
mod tampering;
mod verify;
