//! Envelopes between an agent and a client.

mod answers;
mod asking;
mod delegating;
mod directory;
mod lines;
mod load;
mod news;
mod pair;
mod processes;
mod walkthrough;
