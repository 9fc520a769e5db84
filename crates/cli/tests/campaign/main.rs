//! Long runs of the command and of its server.

mod agents_pass;
mod car_purchase;
#[path = "../it/cut_relay.rs"]
mod cut_relay;
mod gateway_kills;
mod large_turn;
#[path = "../it/process.rs"]
#[allow(dead_code, reason = "the gate uses all of it")]
mod process;
mod remote_soak;
mod schedules;
#[path = "../it/scripted.rs"]
#[allow(dead_code, reason = "the gate uses all of it")]
mod scripted;
#[path = "../it/served.rs"]
#[allow(dead_code, reason = "the gate uses all of it")]
mod served;
mod terminal;
