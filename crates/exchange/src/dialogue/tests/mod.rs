//! Random schedules of dialogues, altered messages, and the checks of the verifier.

mod schedules;
mod tampering;
mod verify;
