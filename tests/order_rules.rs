//! The order rules, one test or more each, named after the rule: on a runtime of several threads,
//! with hundreds of messages, in memory and over real pipes. RFD 0002 states and argues the rules.

#[path = "order_rules/agent_conformance.rs"]
mod agent_conformance;
#[path = "order_rules/answers.rs"]
mod answers;
#[path = "order_rules/cancels.rs"]
mod cancels;
#[path = "order_rules/clearing.rs"]
mod clearing;
#[path = "order_rules/closing.rs"]
mod closing;
#[path = "order_rules/manners.rs"]
mod manners;
#[path = "order_rules/memory.rs"]
mod memory;
#[path = "order_rules/noise.rs"]
mod noise;
#[path = "order_rules/process.rs"]
mod process;
#[path = "order_rules/reading.rs"]
mod reading;
#[path = "order_rules/sessions.rs"]
mod sessions;
mod support;
