//! Tests of two sides, of processes, and of the workspace itself, in one executable.

mod arrows;
mod dialogue_gate;
mod envelopes;
mod exchange_dialogue;
mod fault_map;
mod frames;
mod hostile_lines;
mod json_decisions;
mod local_host;
mod order_rules;
mod processes;
mod recorder;
mod regressions;
mod replays;
mod security_page;
mod simulation;
mod support;
mod work_orders;
