//! Programs to read first.
