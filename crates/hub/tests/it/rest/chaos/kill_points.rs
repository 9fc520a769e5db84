//! Gateways whose store dies at each write of a flow, and whose successors go on with it.

use futures_util::future::join_all;

use super::endpoint_work::EndpointWork;
use super::hosted_work::HostedWork;
use super::taken_messages::TakenMessages;
use super::{Flow, play};
use crate::faulty_store::Death;

/// The worlds that run at the same time.
pub(super) const AT_ONCE: usize = 4;
/// The most writes of a flow. One with more does not end.
const MOST_WRITES: usize = 100;

/// Plays a flow with a death at each of its writes, until it needs none. It has `least` writes or more.
async fn die_at_each<F: Flow>(least: usize, kinds: &[fn(usize) -> Death], new: impl AsyncFn() -> F) {
    for kind in kinds {
        let mut deaths = 0;
        for first in (1..).step_by(AT_ONCE) {
            assert!(first < MOST_WRITES, "the flow does not end");
            let plays =
                (first..first + AT_ONCE).map(async |number| play(&mut new().await, &[kind(number)]).await);
            let needed: usize = join_all(plays).await.into_iter().sum();
            deaths += needed;
            if needed < AT_ONCE {
                break;
            }
        }
        assert!(deaths >= least, "{:?}: {deaths} deaths", kind(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_outlive_a_death_at_each_write() {
    // The agent, three messages, four claims, a return and three ends.
    die_at_each(12, &[Death::After, Death::Before], async || TakenMessages::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_at_an_endpoint_outlives_a_death_at_each_write() {
    // A task with its claim, begin, hand-over, progress and end, and a message with its claim, hand-over and end.
    die_at_each(10, &[Death::After, Death::Before], EndpointWork::new).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_of_a_hosted_agent_outlives_a_death_at_each_write() {
    // A task with its claim, begin, question, answer, return to work and end, its callback with a claim and an end, and a
    // message with its claim, begin and end.
    die_at_each(13, &[Death::After, Death::Before], async || HostedWork::new(false).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_may_run_again_outlives_a_death_at_each_write() {
    // The message has no begin.
    die_at_each(12, &[Death::After, Death::Before], async || HostedWork::new(true).await).await;
}
