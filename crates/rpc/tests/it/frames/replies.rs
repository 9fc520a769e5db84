//! R4 over real pipes: many large answers at once, through reads that are short, late and interrupted,
//! to callers that stop polling and begin again.

use std::time::Duration;

use duologue_rpc::{Incoming, Limits, PeerBuilder, Responder, Service, Transport};
use serde_json::value::RawValue;

use super::pipes::{Difficult, narrow};
use duologue_test_support::{Reproduction, in_time, measured, runs, seed};

const REPLIES: usize = 200;
const BYTES: usize = 64 * 1024;

/// Answers a number with 64 KiB that show it.
struct Large;

fn large(number: usize) -> String {
    format!("{number:08}").repeat(BYTES / 8)
}

impl Service for Large {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        let [number]: [usize; 1] =
            serde_json::from_str(request.params.map_or("", RawValue::get)).expect("a number");
        responder.spawn(async move {
            tokio::task::yield_now().await;
            Ok(large(number))
        });
    }

    fn notification(&self, _: Incoming<'_>) {}
}

async fn round(seed: u64) {
    let (there, from_here) = narrow();
    let (here, from_there) = narrow();
    let asked = PeerBuilder::new(Transport::new(Difficult::new(there, seed), from_there)).start(|_| Large);
    let here = Difficult::new(here, seed.wrapping_add(1));
    let peer = PeerBuilder::new(Transport::new(here, from_here)).start(|_| Large);
    let calls = (0..REPLIES).map(|number| {
        let peer = peer.clone();
        tokio::spawn(async move {
            let mut rng = fastrand::Rng::with_seed(seed.wrapping_add(number as u64));
            let mut call = peer.call::<_, String>("_large", &[number]);
            let reply = loop {
                // Polled, left alone, polled again.
                let patience = Duration::from_micros(rng.u64(1..5_000));
                if let Ok(reply) = tokio::time::timeout(patience, &mut call).await {
                    break reply;
                }
            };
            assert!(reply.expect("an answer") == large(number), "the answer to {number}");
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.expect("no panic");
    }
    assert_eq!(peer.pending_requests(), 0);
    assert_eq!((peer.stats().stray_responses, peer.stats().noise), (0, 0));
    assert!(peer.limits().frame_bytes == Limits::default().frame_bytes);
    peer.close();
    asked.closed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_reply_is_lost() {
    let (rounds, first) = (runs(2), seed());
    for seed in (0..rounds).map(|number| first.wrapping_add(number * 1_000)) {
        let _again = Reproduction::of("-p duologue-rpc --test it frames::replies::no_reply_is_lost", seed, 1);
        in_time(round(seed)).await;
    }
    measured(format_args!(
        "{rounds} rounds of {REPLIES} x 64 KiB, reads short, late and interrupted: 0 lost"
    ));
}
