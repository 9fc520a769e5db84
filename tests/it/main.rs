//! Tests of two sides, of processes, and of the workspace itself, in one executable.

mod clocks;
mod document_rows;
mod envelopes;
mod exchange_dialogue;
mod fault_map;
mod hostile_lines;
mod layering;
mod links;
mod order_rules;
mod security_page;
mod simulation;
#[cfg(target_os = "linux")]
mod type_names;
mod workspace;
