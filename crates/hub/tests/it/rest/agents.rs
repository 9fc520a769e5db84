//! Finding and registering agents.

use serde_json::{Value, json};

use crate::rest::world::{ADMIN, ALICE, BOB, REMOTE, RestWorld, STRANGER};

#[tokio::test]
async fn an_agent_registers_and_is_found() {
    let world = RestWorld::start("").await;
    let entry = json!({
        "endpoint": "https://remote.example/acp",
        "capabilities": ["translate", {"name": "summarise", "description": "Makes texts short."}],
        "domains": ["travel"], "tags": ["fast"],
        "metadata": {
            "version": "2.1", "provider": "Example", "supportedMimeTypes": ["text/plain"], "maxConcurrentTasks": 3, "averageResponseTime": 250.5,
            "pricing": {"model": "per_request", "rate": 0.5, "currency": "EUR"}, "contact": "a@example.com",
        },
    });
    let created = world.put(REMOTE, "/registry/agents/remote", &entry).await;
    assert_eq!(created.header("location"), Some("/agents/remote"));
    let created = created.expect(201);
    for member in ["endpoint", "capabilities", "domains", "tags", "metadata"] {
        assert_eq!(created[member], entry[member], "{member}");
    }
    assert_eq!((&created["agentId"], &created["status"]), (&json!("remote"), &json!("online")));
    world.put(REMOTE, "/registry/agents/remote", &entry).await.expect(200);

    let found = world.get(ALICE, "/agents/remote").await.expect(200);
    assert_eq!(found["metadata"], entry["metadata"]);
    let card = world.get(ALICE, "/agents/remote/capabilities").await.expect(200);
    assert_eq!((&card["capabilities"], &card["metadata"]), (&entry["capabilities"], &entry["metadata"]));
    for (query, total) in [
        ("", 1),
        ("?capability=summarise", 1),
        ("?capability=cook", 0),
        ("?domain=travel&tag=fast&provider=Example&status=online", 1),
        ("?status=busy", 0),
        ("?offset=1", 1),
        ("?limit=1", 1),
    ] {
        let page = world.get(ALICE, &format!("/agents{query}")).await.expect(200);
        assert_eq!(page["pagination"]["total"], total, "{query}");
        let shown = if query == "?offset=1" { 0 } else { total };
        assert_eq!(page["agents"].as_array().unwrap().len(), shown, "{query}");
    }
    assert_eq!(world.get(STRANGER, "/agents").await.expect(200)["pagination"]["total"], 0);
    let foreign = world.get(STRANGER, "/agents/remote").await;
    foreign.refused(404, "not_found");
    assert_eq!(foreign.text, world.get(ALICE, "/agents/absent").await.text);

    // An agent that is offline is in the registry alone.
    world.post(REMOTE, "/registry/agents/remote/heartbeat", json!({"status": "offline"})).await.expect(200);
    assert_eq!(world.get(ALICE, "/agents").await.expect(200)["pagination"]["total"], 0);
    assert_eq!(world.get(ALICE, "/agents?status=offline").await.expect(200)["pagination"]["total"], 1);
    let listed = world.get(ALICE, "/registry/agents").await.expect(200);
    assert!(listed["agents"][0]["lastSeen"].is_u64(), "{listed}");
    let seen = world.post_empty(REMOTE, "/registry/agents/remote/heartbeat").await.expect(200);
    assert_eq!(seen["status"], "online");

    world.delete(REMOTE, "/registry/agents/remote").await.expect(204);
    world.delete(REMOTE, "/registry/agents/remote").await.refused(404, "not_found");
    world.get(ALICE, "/agents/remote").await.refused(404, "not_found");
    world.stop().await;
}

#[tokio::test]
async fn an_entry_belongs_to_its_agent() {
    let world = RestWorld::with_remote("").await;
    for key in [ALICE, BOB, STRANGER] {
        world.put(key, "/registry/agents/remote", "{}").await.refused(404, "not_found");
        world.delete(key, "/registry/agents/remote").await.refused(404, "not_found");
        world.post_empty(key, "/registry/agents/remote/heartbeat").await.refused(404, "not_found");
    }
    world.put(REMOTE, "/registry/agents/other", "{}").await.refused(404, "not_found");
    world.put(ADMIN, "/registry/agents/a%20b", "{}").await.refused(400, "invalid_parameter");
    // An administrator changes the entry, which stays that of the agent.
    world.put(ADMIN, "/registry/agents/remote", r#"{"tags": ["x"]}"#).await.expect(200);
    world.post_empty(REMOTE, "/registry/agents/remote/heartbeat").await.expect(200);
    world.stop().await;
}

#[tokio::test]
async fn a_card_publishes_keys_without_secrets() {
    let world = RestWorld::start("").await;
    let register = async |key: Value| {
        world.put(REMOTE, "/registry/agents/remote", &json!({"metadata": {"keys": [key]}})).await
    };
    let public = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    let key =
        json!({"id": "k1", "algorithm": "EdDSA", "public_key": public, "not_after": "2027-01-31T00:00:00Z"});
    register(key.clone()).await.expect(201);
    let shown = world.get(ALICE, "/agents/remote").await.expect(200);
    assert_eq!(shown["metadata"]["keys"], json!([key]));
    world.get(STRANGER, "/agents/remote").await.refused(404, "not_found");
    for (key, expected) in [
        (json!({"id": "k1", "algorithm": "HS256", "secret": "s3cret"}), "unknown field `secret`"),
        (json!({"id": "k1", "algorithm": "HS256", "public_key": "s3cret"}), "has no public key"),
        (json!({"id": "k1", "algorithm": "EdDSA", "public_key": "s3cret"}), "32 bytes"),
        (json!({"id": "k1", "algorithm": "EdDSA"}), "32 bytes"),
        (json!({"id": "k1", "algorithm": "HS256", "not_after": "tomorrow"}), "are times"),
        (json!("s3cret"), "invalid type"),
    ] {
        let text = register(key).await.refused(400, "invalid_parameter");
        assert!(text.starts_with("metadata.keys") && text.contains(expected), "{text}");
    }
    assert_eq!(world.get(ALICE, "/agents/remote").await.expect(200)["metadata"]["keys"], json!([key]));
    world.stop().await;
}
