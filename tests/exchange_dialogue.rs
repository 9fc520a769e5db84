//! Dialogues between an agent and a client, over a connection in memory.

mod exchange_dialogue {
    mod cancels;
    mod handling;
    mod negotiation;
    mod retries;
    mod speakers;
}
mod support;
