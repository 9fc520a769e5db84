//! Random schedules: no message is lost, delivered twice or misrouted, and no slot leaks.

mod answers;
mod machine;
mod pending;
mod storm;
mod task_slots;
