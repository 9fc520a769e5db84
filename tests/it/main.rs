//! Tests of two sides, of processes, and of the workspace itself, in one executable.

mod dialogue_verification;
mod envelopes;
mod exchange_dialogue;
mod fault_map;
mod frames;
mod hostile_lines;
mod json_decisions;
mod layering;
mod links;
mod local_host;
mod order_rules;
mod processes;
mod recorder;
mod regressions;
mod replays;
mod security_page;
mod simulation;
mod support;
mod type_names;
mod work_orders;
