//! Erasures whose server dies at each of their writes, and that go on without another request.

use std::sync::Arc;

use duologue_hub::HubClock;
use duologue_hub::gateway::GatewaySettings;
use serde_json::json;

use super::faulty;
use crate::faulty_store::{Death, Faults};
use crate::remote_agents::until;
use crate::rest::hosted::writer;
use crate::rest::world::{ALICE, RestWorld};

const DATA: &str = "/principals/alice/data";
const SESSIONS: u64 = 2;

async fn sessions(world: &RestWorld) -> u64 {
    world.get(ALICE, "/sessions").await.expect(200)["pagination"]["total"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erasure_outlives_a_death_at_each_write() {
    // The writes are that of the records, and that of the end.
    for (death, is_erased) in [
        (Death::Before(1), false),
        (Death::After(1), true),
        (Death::Before(2), true),
        (Death::After(2), true),
    ] {
        let faults = Arc::new(Faults::default());
        let world = RestWorld::start_with(&writer(), faulty(&faults)).await;
        for number in 0..SESSIONS {
            let content = json!({"type": "query", "content": "c"});
            let message = json!({"messageId": number.to_string(), "mode": "sync", "message": content});
            world.post(ALICE, "/agents/writer/messages", &message).await.expect(200);
        }
        faults.die(death);
        world.delete(ALICE, DATA).await.refused(500, "internal");
        // A clock that was set back meanwhile keeps no session.
        let set_back = |settings: &mut GatewaySettings| settings.clock = HubClock::with_wall(|| 1);
        let world = world.kill_and_start_with(set_back).await;
        let open = || world.gateway.store().erasures().unwrap();
        until(async || Some(()).filter(|()| open().is_empty())).await;
        let expected = if is_erased { 0 } else { SESSIONS };
        assert_eq!(sessions(&world).await, expected, "{death:?}");
        for number in 0..SESSIONS {
            let found = world.get(ALICE, &format!("/agents/writer/messages/{number}")).await;
            assert_eq!(found.status, if is_erased { 404 } else { 200 }, "{death:?}");
        }
        world.stop().await;
    }
}
