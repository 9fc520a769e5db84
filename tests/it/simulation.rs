//! The two SDKs joined in memory: seeded schedules of sessions, prompts, permissions, cancellations,
//! drops and ends, on a clock that moves only when nobody can go on.
#![allow(unreachable_pub, reason = "as in support")]

mod actors;
/// The scheduler, the delays and the wire of the core's simulation.
#[path = "../../crates/rpc/src/simulation/campaign.rs"]
mod campaign;
#[path = "../../crates/rpc/src/simulation/random_delay.rs"]
mod random_delay;
mod story;
#[path = "../../crates/rpc/src/simulation/wire.rs"]
#[allow(dead_code, reason = "shared with the core's own simulation")]
mod wire;

use campaign::{Campaign, EventCounts, play};
use duologue_rpc::Transport;
