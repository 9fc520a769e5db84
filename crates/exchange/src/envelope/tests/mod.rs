//! Random schedules: nothing is lost, told twice or told to somebody else, and no slot leaks.

mod storm;
mod table;
mod tasks;
