//! Dialogues between an agent and a client, over a connection in memory.

mod exchange_dialogue {
    mod negotiation;
    mod speakers;
}
mod support;
