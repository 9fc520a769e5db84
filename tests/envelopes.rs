//! Envelopes between an agent and a client.

mod support;

mod envelopes {
    mod asking;
    mod delegating;
    mod lines;
    mod pair;
    mod directory;
}
