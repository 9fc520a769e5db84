//! Tests of chains between two scripted peers.

mod decisions;
mod ends;
mod floods;
mod identity;
mod ids;
mod order;
mod setup;
mod stages;

mod version_two;
