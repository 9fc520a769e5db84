//! Dialogue messages: signed, in order, with moves that are checked.
