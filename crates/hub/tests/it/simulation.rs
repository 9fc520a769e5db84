//! Seeded schedules of clients, an agent, a log and crashes.

#[path = "../../../rpc/src/simulation/campaign.rs"]
#[allow(dead_code, reason = "shared with the simulation of the peer")]
mod campaign;
mod logins;

use campaign::{Campaign, EventCounts};

use crate::world::World;

/// At most half of the usual counts in a hundred schedules.
const CAMPAIGN: Campaign = Campaign {
    test: "duologue-hub --test it nothing_is_lost_or_doubled_in_any_schedule",
    schedules: 600,
    minimum: &[
        ("crashes of the agent", 15),
        ("kills", 15),
        ("power cuts", 15),
        ("losses of a client", 100),
        ("repeated prompts", 50),
        ("prompts", 500),
        ("questions", 200),
        ("questions that nobody answers", 3),
        ("pictures of an agent", 40),
        ("turns of others", 100),
        ("late lines", 40),
        ("moves to the place of another client", 5),
    ],
    shown: "",
};

/// After each schedule: every prompt has one response and reached the agent at most once, every question one answer,
/// no file is written twice, the log has the agent's texts without a gap, and reads the same again. Each process is in the place
/// of the client whose prompt needed it, and nothing that a former one wrote late has an effect.
#[test]
fn nothing_is_lost_or_doubled_in_any_schedule() {
    CAMPAIGN.play(schedule);
}

fn schedule(seed: u64, steps: usize) -> Result<EventCounts, String> {
    let steps = fastrand::Rng::with_seed(seed).usize(10..400).min(steps);
    let mut counts = EventCounts::default();
    World::new(seed).run(steps).into_iter().for_each(|event| counts.add(event, 1));
    Ok(counts)
}
