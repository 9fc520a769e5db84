//! The agent's half: scenarios in which an agent program is under test, and the client does not behave.

pub(super) mod ends;
pub(super) mod flow;
pub(super) mod lines;
pub(super) mod memory;
pub(super) mod raw_client;
pub(super) mod turns;

pub(crate) use ends::doomed;
use serde_json::Value;

use super::harness::Failed;
use crate::interop::Result;

/// An answer that should have been another.
fn fails(answer: &Value) -> Result<()> {
    Failed::because(answer.to_string().chars().take(200).collect::<String>())
}
