//! Gateways with faults around them: stores that die or are full, a wrong clock, agents that lie, and receivers that are away.
//!
//! Everything that was accepted is there and ends. It has one result, and nothing runs twice that may not.

mod any_faults;
mod clock_steps;
mod endpoint_work;
mod erasures;
mod full_disk;
mod hosted_work;
mod kill_points;
mod lies;
mod taken_messages;

use std::sync::Arc;

use duologue_hub::gateway::GatewaySettings;
use duologue_store::{MessageQuery, MessageState, OutboxQuery, OutboxState, TaskQuery};
use duologue_test_support::in_time;

use crate::faulty_store::{Death, Faults, FaultyStore};
use crate::remote_agents::until;
use crate::rest::world::RestWorld;

/// Work that a client gives a gateway, and that it drives to its end over the deaths of the gateway.
trait Flow {
    /// Returns the configuration of the gateway.
    fn config(&self) -> String;

    /// Drives the work to its end. Returns `None` when a request has failed.
    async fn drive(&mut self, world: &RestWorld) -> Option<()>;

    /// Checks the end.
    async fn check(&self, world: &RestWorld, what: &str);
}

/// Lets a gateway have a store with faults.
fn faulty(faults: &Arc<Faults>) -> impl FnOnce(&mut GatewaySettings) {
    let faults = faults.clone();
    move |settings| {
        std::fs::create_dir_all(&settings.data).unwrap();
        let store = FaultyStore::open(&settings.data.join("store.sqlite"), faults);
        settings.backend = Some(Arc::new(store));
    }
}

/// Plays a flow whose gateway has these deaths, one in each of its lives. Returns the number of those that were needed.
async fn play(flow: &mut impl Flow, deaths: &[Death]) -> usize {
    let what = format!("{deaths:?}");
    let mut world = None;
    for (number, death) in deaths.iter().enumerate() {
        let faults = Arc::new(Faults::default());
        let life = match world.take() {
            None => RestWorld::start_with(&flow.config(), faulty(&faults)).await,
            Some(world) => RestWorld::kill_and_start_with(world, faulty(&faults)).await,
        };
        faults.die(*death);
        let has_ended = in_time(flow.drive(&life)).await.is_some();
        if !faults.survives() {
            world = Some(life);
            continue;
        }
        assert!(has_ended, "{what}: a request has failed, and the store works");
        end(flow, life, &what).await;
        return number;
    }
    let world = world.expect("a death").kill_and_start().await;
    in_time(flow.drive(&world)).await.expect("a store without faults");
    end(flow, world, &what).await;
    deaths.len()
}

async fn end(flow: &impl Flow, world: RestWorld, what: &str) {
    nothing_is_open(&world, what).await;
    flow.check(&world, what).await;
    world.stop().await;
}

/// Waits until everything has ended, and no worker has a lease.
async fn nothing_is_open(world: &RestWorld, what: &str) {
    let store = world.gateway.store();
    let count = |state| {
        let mut query = MessageQuery::default();
        query.state = Some(state);
        store.messages(&query).unwrap().total
    };
    let mut tasks = TaskQuery::default();
    tasks.ended = Some(false);
    let mut posts = OutboxQuery::default();
    posts.state = Some(OutboxState::Pending);
    until(async || {
        let messages = [MessageState::Ready, MessageState::Leased].map(count);
        let open = (messages, store.tasks(&tasks).unwrap().total, store.deliveries(&posts).unwrap().total);
        (open == ([0, 0], 0, 0)).then_some(())
    })
    .await;
    let mut due = TaskQuery::default();
    due.callback_due = true;
    assert_eq!(store.tasks(&due).unwrap().total, 0, "{what}: a callback is missing");
}
