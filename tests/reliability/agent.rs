//! The agent's half: scenarios in which an agent program is under test, and the client does not behave.

mod ends;
mod flow;
mod lines;
mod memory;
mod turns;

use duologue_tests::{Failed, Result};
use serde_json::Value;

/// An answer that should have been another.
fn fails(answer: &Value) -> Result<()> {
    Failed::because(answer.to_string().chars().take(200).collect::<String>())
}
