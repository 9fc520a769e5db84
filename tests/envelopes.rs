//! Envelopes between an agent and a client.

mod envelopes {
    mod asking;
    mod directory;
}
