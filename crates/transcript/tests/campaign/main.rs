//! Measurements of recordings.

mod cost;
