//! The owner of a session, in simulated schedules and in single scenarios.

mod hub;
mod scenarios;
mod simulation;
mod world;
