//! Principals that the configuration does not name any more.

use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::IntoResponse as _;
use duologue_store::{OutboxQuery, OutboxState, RegisteredAgent, RegistrySource, StoreChange};
use serde_json::json;

use crate::receiver::{Received, Receiver, accept};
use crate::remote_agents::{ended_task, until, until_status};
use crate::rest::endpoints::behind;
use crate::rest::world::{ADMIN, ALICE, BOB, REMOTE, RestWorld, json_text};

const TASKS: &str = "/agents/writer/tasks";
const MESSAGES: &str = "/agents/writer/messages";
/// The part of the configuration from which on alice has a secret.
const NAME: &str = "id = \"alice\"";

/// Returns the configuration without alice.
fn without_alice(config: &str) -> String {
    let parts = config.split("[[principals]]").filter(|part| !part.contains(NAME));
    parts.collect::<Vec<_>>().join("[[principals]]")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_work_of_a_principal_that_was_removed_ends() {
    let receiver = Receiver::start(accept).await;
    // Work waits for an hour, or until a restart.
    let agent = Receiver::start(|_, call| match call.body.is_empty() || call.path.ends_with("/cancel") {
        true => "{}".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "3600")]).into_response(),
    })
    .await;
    let works = || -> Vec<Received> {
        let all = agent.received().into_iter();
        all.filter(|call| !call.body.is_empty() && !call.path.ends_with("/cancel")).collect()
    };
    let world = RestWorld::start(&behind(agent.address, "")).await;
    let secret = "a secret of 32 characters or more";
    let named = format!("{NAME}\nwebhook_secret = {secret:?}");
    let world = world.restart_with(|config| config.replace(NAME, &named)).await;
    until_status(&world, "writer", "online").await;
    let task = json!({
        "taskId": "t1", "task": {"type": "write"}, "metadata": {"retry": "safe"},
        "callback": receiver.url("/callback"),
    });
    let message = json!({"messageId": "m1", "message": {"type": "query", "content": "c"}});
    world.post(ALICE, TASKS, &task).await.expect(202);
    world.post(ALICE, MESSAGES, &message).await.expect(202);
    until(async || Some(()).filter(|()| works().len() == 2)).await;

    let mut before = String::new();
    let world = world
        .restart_with(|config| {
            before = config.to_owned();
            without_alice(config)
        })
        .await;
    world.get(ALICE, "/agents").await.refused(401, "unauthenticated");
    let ended = ended_task(&world, ADMIN, &format!("{TASKS}/t1?owner=alice")).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("principal_removed")));
    let dead = world.get(ADMIN, &format!("{MESSAGES}/m1?sender=alice")).await.expect(200);
    assert_eq!(dead["error"]["code"], "principal_removed", "{dead}");
    let resend = "/agents/writer/dead-letters/m1/resend?sender=alice";
    world.post_empty(ADMIN, resend).await.refused(409, "conflict");
    let store = world.gateway.store();
    let alice = store.principal("alice").unwrap().unwrap();
    assert!(alice.disabled && alice.key_hash.is_none() && alice.webhook_secret.is_none(), "{alice:?}");
    let mut given_up = OutboxQuery::default();
    given_up.state = Some(OutboxState::GivenUp);
    let post = until(async || store.deliveries(&given_up).unwrap().items.pop()).await;
    assert_eq!(post.last_error.as_deref(), Some("the principal \"alice\" is disabled"));
    // The agent learns of the end of the task. Newer work is tried, and that of alice would have been before it.
    until(async || agent.received().into_iter().find(|call| call.path.ends_with("/cancel"))).await;
    until_status(&world, "writer", "online").await;
    for (path, body) in [(TASKS, &task), (MESSAGES, &message)] {
        let mut body = body.clone();
        body.as_object_mut().unwrap().remove("callback");
        world.post(BOB, path, body).await.expect(202);
    }
    until(async || Some(()).filter(|()| works().len() >= 4)).await;
    assert_eq!(works().len(), 4, "{:?}", works());

    // She comes back, reads what there is, and gives work again.
    let world = world.restart_with(|_| before).await;
    let alice = world.gateway.store().principal("alice").unwrap().unwrap();
    assert!(!alice.disabled && alice.webhook_secret == Some(secret.into()), "{alice:?}");
    let found = world.get(ALICE, &format!("{TASKS}/t1")).await.expect(200);
    assert_eq!(found["error"], ended["error"]);
    world.post_empty(ALICE, "/agents/writer/dead-letters/m1/resend").await.expect(204);
    assert!(receiver.received().is_empty());
    world.stop().await;
}

#[tokio::test]
async fn an_agent_whose_principal_may_not_act_for_it_any_more_leaves_its_id_to_others() {
    let world = RestWorld::start("").await;
    let entries = [("remote", RegistrySource::Attached), ("absent", RegistrySource::Rest)];
    for (id, source) in entries {
        let mut entry = RegisteredAgent::new(id, format!("{id}-owner"), source, format!("/acp/{id}"));
        entry.card = json_text(&json!({"maxConcurrentTasks": 1}));
        world.apply(StoreChange::PutAgent(entry)).await;
    }
    // A restart alone, and a key that has expired, remove nothing.
    let expired = "id = \"remote-owner\"\nkey_expires = \"2020-01-01T00:00:00Z\"";
    let world = world.restart_with(|config| config.replace("id = \"remote-owner\"", expired)).await;
    for (id, _) in entries {
        world
            .post(ALICE, &format!("/agents/{id}/tasks"), r#"{"taskId": "t1", "task": {"type": "a"}}"#)
            .await
            .expect(202);
    }

    // One principal has left the file, and one is another agent.
    let world = world
        .restart_with(|config| config.replace(expired, "id = \"another\"").replace("\"absent\"", "\"moved\""))
        .await;
    for (id, _) in entries {
        world.get(ADMIN, &format!("/agents/{id}")).await.refused(404, "not_found");
        let task = ended_task(&world, ADMIN, &format!("/agents/{id}/tasks/t1?owner=alice")).await;
        assert_eq!(task["error"]["code"], "agent_removed", "{task}");
    }
    world.put(REMOTE, "/registry/agents/remote", "{}").await.expect(201);

    // The configuration takes the id.
    let agent = "[[agents]]\nid = \"remote\"\ncommand = [\"false\"]\ntrust = \"shared\"\n";
    let world = world.restart_with(|config| format!("{config}\n{agent}")).await;
    world.put(REMOTE, "/registry/agents/remote", "{}").await.refused(409, "conflict");
    world.stop().await;
}

#[tokio::test]
async fn the_work_of_a_principal_whose_key_has_expired_goes_on() {
    let world = RestWorld::with_remote("").await;
    let message = json!({"messageId": "m1", "message": {"type": "query", "content": "c"}});
    world.post(ALICE, "/agents/remote/messages", &message).await.expect(202);
    let expired = format!("{NAME}\nkey_expires = \"2020-01-01T00:00:00Z\"");
    let world = world.restart_with(|config| config.replace(NAME, &expired)).await;
    world.get(ALICE, "/agents").await.refused(401, "unauthenticated");
    let claimed = world.post_empty(REMOTE, "/agents/remote/messages/claim").await.expect(200);
    assert_eq!(claimed["messages"][0]["messageId"], "m1", "{claimed}");
    world.stop().await;
}
