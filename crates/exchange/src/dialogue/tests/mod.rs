//! Random schedules of dialogues, altered messages, and the checks of the verifier.

mod algorithms;
mod schedules;
mod tampering;
mod verify;
