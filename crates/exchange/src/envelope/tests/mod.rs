//! Random schedules: nothing is lost, told twice or told to somebody else, and no slot leaks.

mod pending;
mod storm;
mod task_slots;
