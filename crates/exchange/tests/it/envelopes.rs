//! Envelopes between an agent and a client.

mod answers;
mod asking;
mod beside;
mod delegating;
mod directory;
mod lines;
mod load;
mod notifications;
mod pair;
mod priorities;
mod sessions;
mod task_states;
