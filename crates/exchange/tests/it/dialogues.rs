//! Dialogues between an agent and a client, mostly over a connection in memory.

mod cancels;
mod handling;
mod identity;
mod limits;
mod negotiation;
mod retries;
mod speakers;
