//! Work with faults at random writes. `DUOLOGUE_RUNS` sets the number of runs.

use std::ops::Range;

use duologue_test_support::{Reproduction, runs, seed};
use fastrand::Rng;

use super::endpoint_work::EndpointWork;
use super::hosted_work::HostedWork;
use super::taken_messages::TakenMessages;
use super::{Flow, full_disk, play};
use crate::faulty_store::Death;

const RUNS: u64 = 4;
/// The deaths of one run. Work that is repeated too often is given up.
const DEATHS: Range<usize> = 1..4;
/// The writes of a life until its death.
const WRITES: Range<usize> = 1..16;

/// Plays a flow with a full disk, or with deaths of which the later ones hit the recovery from the earlier ones.
async fn play_any(random: &mut Rng, flow: impl Flow, on_full_disk: impl Flow) {
    if random.u8(0..4) == 0 {
        full_disk::play(on_full_disk, random.usize(WRITES)).await;
        return;
    }
    let mut flow = flow;
    let kinds: [fn(usize) -> Death; 2] = [Death::After, Death::Before];
    let deaths: Vec<Death> =
        (0..random.usize(DEATHS)).map(|_| kinds[random.usize(0..2)](random.usize(WRITES))).collect();
    play(&mut flow, &deaths).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_outlives_any_faults() {
    let first = seed();
    for seed in (0..runs(RUNS)).map(|run| first.wrapping_add(run)) {
        let test = "-p duologue-hub --all-features --test it any_faults";
        let _again = Reproduction::of(test, seed, 1);
        let random = &mut Rng::with_seed(seed);
        match random.u8(0..4) {
            0 => play_any(random, TakenMessages::default(), TakenMessages::default()).await,
            1 => play_any(random, EndpointWork::new().await, EndpointWork::new().await).await,
            number => {
                let is_safe = number == 2;
                let on_full_disk = HostedWork::new(is_safe).await.without_restarts();
                play_any(random, HostedWork::new(is_safe).await, on_full_disk).await;
            }
        }
    }
}
