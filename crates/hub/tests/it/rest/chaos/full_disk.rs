//! Gateways whose disk is full for a while, and that go on without a restart.

use std::sync::Arc;

use duologue_test_support::in_time;
use futures_util::future::join_all;

use super::endpoint_work::EndpointWork;
use super::hosted_work::HostedWork;
use super::kill_points::AT_ONCE;
use super::taken_messages::TakenMessages;
use super::{Flow, end, faulty};
use crate::faulty_store::Faults;
use crate::rest::world::RestWorld;

/// The writes that fail. What tries again at once fails again.
const FAILING: usize = 2;
const MOST_WRITES: usize = 100;

/// Plays a flow with a disk that is full after a number of writes. Returns false if there were fewer.
pub(super) async fn play(mut flow: impl Flow, after: usize) -> bool {
    let faults = Arc::new(Faults::default());
    let world = RestWorld::start_with(&flow.config(), faulty(&faults)).await;
    faults.fill(after, FAILING);
    in_time(async { while flow.drive(&world).await.is_none() {} }).await;
    let was_full = faults.was_full();
    // Without a disk that is full from now on.
    faults.fill(0, 0);
    end(&flow, world, &format!("full after {after} writes")).await;
    was_full
}

async fn fill_at_each<F: Flow>(least: usize, new: impl AsyncFn() -> F) {
    let mut fills = 0;
    for first in (0..).step_by(AT_ONCE) {
        assert!(first < MOST_WRITES, "the flow does not end");
        let plays = (first..first + AT_ONCE).map(async |after| play(new().await, after).await);
        let needed = join_all(plays).await.into_iter().filter(|was_full| *was_full).count();
        fills += needed;
        if needed < AT_ONCE {
            break;
        }
    }
    assert!(fills >= least, "{fills}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_outlive_a_full_disk() {
    fill_at_each(10, async || TakenMessages::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_at_an_endpoint_outlives_a_full_disk() {
    fill_at_each(8, EndpointWork::new).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_of_a_hosted_agent_outlives_a_full_disk() {
    fill_at_each(10, async || HostedWork::new(false).await.without_restarts()).await;
}
