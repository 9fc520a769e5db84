//! Envelopes between an agent and a client.

mod envelopes {
    mod asking;
    mod delegating;
    mod pair;
    mod directory;
}
