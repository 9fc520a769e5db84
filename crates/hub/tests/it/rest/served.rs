//! A gateway for other programs: checkers of its interface, and clients that were generated from its description.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use crate::rest::attacks::encoded;
use crate::rest::hosted::hosted;
use crate::rest::world::{ADMIN, ALICE, REMOTE, RestWorld};

/// The variable with the name of a file. The test writes its address there and serves until the file is removed.
const ADDRESS_FILE: &str = "DUOLOGUE_REST_ADDRESS_FILE";

/// The entry of the agent that takes its messages over REST.
const CARD: &str = r#"{"capabilities": ["translate"], "domains": ["travel"], "tags": ["fast"], "metadata": {"provider": "Example"}}"#;

/// The tenths of a second for which an agent that a checker has removed stays absent, as the checker expects.
const ABSENT: u32 = 30;

/// Adds objects that requests alone seldom make: a dead letter, and the question of a task. A checker may have removed
/// everything that they need.
async fn add_rare_objects(world: &RestWorld, round: u32) {
    for key in [ADMIN, ALICE] {
        let message =
            json!({"messageId": format!("dead-{round}"), "message": {"type": "notify", "content": "a"}});
        world.post(key, "/agents/remote/messages", &message).await;
        let task = json!({"taskId": format!("question-{round}"), "task": {"type": "review", "parameters": {"prompt": "permission"}}});
        let tasks = world.get(key, "/agents/reviewer/tasks?state=input_required").await;
        if tasks.status == 200 && tasks.json()["pagination"]["total"] == 0 {
            world.post(key, "/agents/reviewer/tasks", &task).await;
        }
    }
    let claimed = world.post_empty(REMOTE, "/agents/remote/messages/claim?max=2").await;
    let messages = if claimed.status == 200 { claimed.json()["messages"].clone() } else { json!([]) };
    for message in messages.as_array().into_iter().flatten() {
        let id = message["messageId"].as_str().unwrap_or_default();
        let nack = json!({"lease": message["lease"], "requeue": false});
        world.post(REMOTE, &format!("/agents/remote/messages/{}/nack", encoded(id)), &nack).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_while_its_file_exists() {
    let Some(file) = std::env::var_os(ADDRESS_FILE).map(PathBuf::from) else { return };
    let limits = "[limits]\nrequests_per_minute = 1_000_000\nsync_seconds = 1";
    let agents = [hosted("writer", "write"), hosted("reviewer", "review")].concat();
    let world = RestWorld::start(&format!("{agents}\n{limits}")).await;
    world.put(REMOTE, "/registry/agents/remote", CARD).await.expect(201);
    // The whole address is there at once.
    let draft = file.with_extension("draft");
    std::fs::write(&draft, format!("http://{}", world.address)).unwrap();
    std::fs::rename(&draft, &file).unwrap();
    let (mut round, mut absent) = (0, 0);
    while file.exists() {
        let found = world.get(ADMIN, "/agents/remote").await;
        let is_changed = found.status == 200 && found.json()["tags"] != json!(["fast"]);
        absent = if found.status == 404 { absent + 1 } else { 0 };
        if is_changed || absent > ABSENT {
            world.put(REMOTE, "/registry/agents/remote", CARD).await;
        }
        if round % 5 == 0 {
            add_rare_objects(&world, round).await;
        }
        round += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    world.stop().await;
}
