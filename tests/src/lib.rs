//! Everything that needs two sides, or a peer somebody else wrote.
