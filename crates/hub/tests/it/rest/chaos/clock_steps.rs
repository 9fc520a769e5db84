//! A time of day that is set while work runs.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use duologue_hub::HubClock;
use serde_json::json;

use super::hosted_work::HostedWork;
use super::{Flow, end};
use crate::remote_agents::until;
use crate::rest::world::{ALICE, REMOTE, RestWorld};

const DAY: i64 = 24 * 60 * 60 * 1000;
const MESSAGES: &str = "/agents/remote/messages";

/// The error of the clock in ms.
static STEP: AtomicI64 = AtomicI64::new(0);

fn wall() -> u64 {
    HubClock::system().now().wall.saturating_add_signed(STEP.load(SeqCst))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_ends_no_lease_and_loses_no_work() {
    for step in [DAY, -DAY] {
        STEP.store(0, SeqCst);
        let mut flow = HostedWork::new(false).await.without_restarts();
        let world = RestWorld::start_with(&flow.config(), |settings| {
            settings.clock = HubClock::with_wall(wall);
        })
        .await;
        world.put(REMOTE, "/registry/agents/remote", "{}").await.expect(201);
        for (id, ttl) in [("m1", None), ("m2", Some(3_600_000))] {
            let content = json!({"type": "query", "content": id});
            let mut message = json!({"messageId": id, "message": content});
            if let Some(ttl) = ttl {
                message["ttl"] = json!(ttl);
            }
            world.post(ALICE, MESSAGES, message).await.expect(202);
        }
        let claim = format!("{MESSAGES}/claim");
        let claimed = world.post_empty(REMOTE, &claim).await.expect(200);
        assert_eq!(claimed["messages"][0]["messageId"], "m1", "{claimed}");
        // The task of the flow asks its question before the step, and gets the answer after it.
        flow.begin(&world).await;

        STEP.store(step, SeqCst);
        world.gateway.store().sweep(world.gateway.store_time()).unwrap();
        let again = world.post_empty(REMOTE, &claim).await.expect(200);
        let found = again["messages"].as_array().unwrap();
        assert!(found.iter().all(|message| message["messageId"] == "m2"), "{again}");
        // Its time is over, or is not.
        assert_eq!(found.len(), usize::from(step < 0), "{again}");
        for (id, lease) in [("m1", &claimed), ("m2", &again)].into_iter().take(1 + found.len()) {
            let body = json!({"lease": lease["messages"][0]["lease"]});
            world.post(REMOTE, &format!("{MESSAGES}/{id}/ack"), body).await.expect(200);
        }
        let expected = if step > 0 { "error" } else { "completed" };
        until(async || {
            let found = world.get(ALICE, &format!("{MESSAGES}/m2")).await.expect(200);
            (found["status"] == expected).then_some(())
        })
        .await;
        flow.drive(&world).await.expect("a store without faults");
        end(&flow, world, &format!("a step of {step}")).await;
    }
}
