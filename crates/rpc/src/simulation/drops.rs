//! Drops futures before their response. The table must stay empty, and the peer is notified once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fastrand::Rng;

use super::caller::{CallerAction, RunningCall, ask};
use super::side::{HandlerAction, SimulatedSide};
use super::{measured, number, play, replayable, seed};
use crate::connection::PeerBuilder;
use crate::limits::Limits;
use crate::transport::Transport;

#[test]
fn a_dropped_future_leaves_nothing_and_withdraws_once() {
    let drops = number("DUOLOGUE_RUNS").unwrap_or(3000);
    let seed = seed();
    let (withdrawn, answered) = replayable("drops", seed, drops, || play(dropping(seed, drops)));
    measured(format_args!(
        "{drops} futures dropped, 0 left in the table, {withdrawn} unanswered and withdrawn once each, \
         {answered} answered and not withdrawn"
    ));
}

async fn dropping(seed: u64, drops: u64) -> Result<(usize, usize), String> {
    let mut rng = Rng::with_seed(seed);
    let (left, right) = Transport::memory();
    let ending = Arc::new(AtomicBool::new(false));
    let limits = || Limits { in_flight: usize::MAX, ..Limits::default() };
    let asker = SimulatedSide::start(PeerBuilder::new(left).limits(limits()), &mut rng, ending.clone());
    let asked = SimulatedSide::start(PeerBuilder::new(right).limits(limits()), &mut rng, ending);
    let mut busy: VecDeque<RunningCall> = VecDeque::new();
    let mut dropped = 0;
    while dropped < drops || !busy.is_empty() {
        if dropped < drops {
            dropped += 1;
            let how = *rng
                .choice(&[
                    HandlerAction::Now,
                    HandlerAction::Later,
                    HandlerAction::Never,
                    HandlerAction::Dropped,
                ])
                .unwrap_or(&HandlerAction::Now);
            let policy = *rng
                .choice(&[CallerAction::Drops, CallerAction::CancelsAndDrops])
                .unwrap_or(&CallerAction::Drops);
            busy.push_back(ask(&asker, &asked.ledger, how, policy, &mut rng));
        }
        if (busy.len() > 50 || dropped == drops)
            && let Some(asking) = busy.pop_front()
        {
            asking.task.await.map_err(|error| error.to_string())??;
        }
    }
    if asker.peer.pending_requests() != 0 {
        return Err(format!("{} requests are left in the table", asker.peer.pending_requests()));
    }
    // Each withdrawal was checked at the drop.
    asker.ledger.books(|books| match books.withdrawn.iter().find(|(_, times)| **times != 1) {
        Some((id, times)) => Err(format!("request {id} was withdrawn {times} times")),
        None => {
            let (withdrawn, all) = (books.withdrawn.len(), drops as usize);
            let answered = all - withdrawn;
            // Nine of ten are withdrawn and one is answered.
            if drops >= 1000 && (withdrawn < all / 2 || answered < all / 40) {
                return Err(format!("of {all} futures {withdrawn} were withdrawn and {answered} answered"));
            }
            Ok((withdrawn, answered))
        }
    })
}
