//! Tests of the `duologue` command, as a process.

mod attach;
mod certificates;
mod check;
mod colleague;
mod consent;
mod cut_relay;
mod diff;
mod errand;
mod faults;
mod gateway;
mod guide;
mod hub_requests;
mod limits;
mod mock;
mod peer;
mod process;
mod proxy;
mod readme;
mod record;
mod replay;
mod run;
mod run_scripts;
mod schema;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "the tests in a terminal use the rest"))]
mod scripted;
mod serve;
mod serve_faults;
mod served;
mod served_agents;
mod served_children;
mod served_logs;
mod served_outages;
mod served_restarts;
mod show;
mod terminal;
mod validate;
