//! The order rules, one test or more each, named after the rule: on a runtime of several threads,
//! with hundreds of messages, in memory and over real pipes. RFD 0002 states and argues the rules.

mod answers;
mod cancels;
mod clearing;
mod closing;
mod memory;
mod noise;
mod process;
mod reading;
mod sessions;
