//! Addresses by ability: the choice of an agent, its limit, and the fallback.

use serde_json::{Value, json};

use super::world::{ADMIN, ALICE, BOB, Call, RestWorld};

/// The agents of the tests. They take their tasks over REST, so tasks stay open.
async fn world() -> RestWorld {
    let world = RestWorld::start("").await;
    for (agent, most) in [("remote", 2), ("absent", 1), ("hidden", 9)] {
        let card = json!({
            "capabilities": ["plan"], "domains": ["travel"], "metadata": {"maxConcurrentTasks": most},
        });
        world.put(ADMIN, &format!("/registry/agents/{agent}"), card).await.expect(201);
    }
    world
}

/// `agent://*?domain=travel`, percent-encoded.
const TRAVEL: &str = "/agents/agent%3A%2F%2F*%3Fdomain%3Dtravel";

fn task(id: &str) -> Value {
    json!({"taskId": id, "task": {"type": "plan", "parameters": {"prompt": "x"}}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_with_the_fewest_tasks_gets_the_next_one() {
    let world = world().await;
    let mut chosen = Vec::new();
    for id in ["a", "b", "c"] {
        let created = world.post(ALICE, &format!("{TRAVEL}/tasks"), task(id)).await.expect(202);
        chosen.push(created["agentId"].as_str().unwrap().to_owned());
    }
    // Alice cannot find `hidden`, whose limit is the highest.
    chosen.sort();
    assert_eq!(chosen, ["absent", "remote", "remote"]);
    let full = world.post(ALICE, &format!("{TRAVEL}/tasks"), task("d")).await;
    assert!(full.refused(429, "overloaded").contains("max_tasks"));
    // They take no place from a principal that has none.
    let other = world.post(BOB, &format!("{TRAVEL}/tasks"), task("a")).await.expect(202);
    assert!(["absent", "remote"].contains(&other["agentId"].as_str().unwrap()), "{other}");
    // The same task again is not given to another agent.
    let again = world.post(ALICE, &format!("{TRAVEL}/tasks"), task("a")).await.expect(200);
    assert_eq!(again["taskId"], "a");
    let other = world.post(ADMIN, &format!("{TRAVEL}/tasks"), task("a")).await.expect(202);
    assert_eq!(other["agentId"], "hidden");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_an_agent_of_the_address_has_is_given_to_no_other_one() {
    let world = world().await;
    // It fits neither address.
    world.put(ADMIN, "/registry/agents/zeta", "{}").await.expect(201);
    let message = json!({"messageId": "w", "message": {"type": "query", "content": "?"}});
    for (kind, work) in [("tasks", &task("w")), ("messages", &message)] {
        let give = async |address: &str| world.post(ADMIN, &format!("{address}/{kind}"), work).await;
        give("/agents/zeta").await.expect(202);
        let first = give(TRAVEL).await.expect(202);
        for _ in 0..3 {
            assert_eq!(give(TRAVEL).await.expect(200)["agentId"], first["agentId"], "{kind}");
        }
        give("/agents/agent%3A%2F%2F*%3Fcapability%3Dnothing").await.refused(503, "unreachable");
        // Also while the agent is away.
        let agent = first["agentId"].as_str().unwrap();
        let heartbeat = format!("/registry/agents/{agent}/heartbeat");
        world.post(ADMIN, &heartbeat, r#"{"status": "offline"}"#).await.expect(200);
        assert_eq!(give(TRAVEL).await.expect(200)["agentId"], first["agentId"], "{kind}");
        world.post(ADMIN, &heartbeat, "{}").await.expect(200);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_with_one_id_at_the_same_time_reach_one_agent() {
    let world = world().await;
    for round in 0..24 {
        let (path, work) = (format!("{TRAVEL}/tasks"), task(&format!("t-{round}")));
        let give = || world.post(ADMIN, &path, &work);
        let given = tokio::join!(give(), give(), give(), give(), give(), give(), give(), give());
        let (a, b, c, d, e, f, g, h) = given;
        let given = [a, b, c, d, e, f, g, h];
        let new: Vec<_> = given.iter().filter(|response| response.status == 202).collect();
        assert_eq!(new.len(), 1, "round {round}: {given:?}");
        let agent = new[0].json()["agentId"].clone();
        assert!(given.iter().all(|response| response.json()["agentId"] == agent), "round {round}: {given:?}");
        let ended = format!("/agents/{}/tasks/t-{round}/cancel", agent.as_str().unwrap());
        world.post_empty(ADMIN, &ended).await.expect(200);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fallback_gets_what_no_agent_can_take() {
    let world = world().await;
    let nobody = "/agents/agent%3A%2F%2F*%3Fdomain%3Dcooking";
    let query = json!({"message": {"type": "query", "content": "?"}});
    world.post(ALICE, &format!("{nobody}/messages"), &query).await.refused(503, "unreachable");
    world
        .post(ALICE, "/agents/agent%3A%2F%2F*%3Fcolor%3Dred/messages", &query)
        .await
        .refused(400, "invalid_parameter");
    let with = |fallback: &str| {
        let mut query = query.clone();
        query["fallback"] = json!(fallback);
        query
    };
    let sent = world.post(ALICE, &format!("{nobody}/messages"), with("remote")).await.expect(202);
    assert_eq!(sent["agentId"], "remote");
    // A fallback that she cannot find does not exist.
    world.post(ALICE, &format!("{nobody}/messages"), with("hidden")).await.refused(404, "not_found");
    let sent = world.post(ALICE, &format!("{nobody}/messages"), with("operator")).await.expect(202);
    assert_eq!(sent["agentId"], "operator");
    // A program that embeds the gateway works on the tasks of others, and on none of the operator.
    let mut work = task("t-1");
    work["fallback"] = json!("operator");
    let refused = world.post(ALICE, &format!("{nobody}/tasks"), work).await;
    assert!(refused.refused(409, "conflict").contains("inbox of an administrator"));
    // The operator is nobody's agent without a fallback.
    world.post(ALICE, "/agents/operator/messages", &query).await.refused(404, "not_found");
    world.put(ADMIN, "/registry/agents/operator", "{}").await.expect(201);
    let claimed =
        world.send(&Call::new("POST", "/agents/operator/messages/claim").key(ADMIN)).await.expect(200);
    assert_eq!(claimed["messages"][0]["messageId"], sent["messageId"], "{claimed}");

    // An instance of an agent that has several.
    let sent = world.post(ALICE, "/agents/agent%3A%2F%2Frem*/messages", &query).await.expect(202);
    assert_eq!(sent["agentId"], "remote");
    // A fallback also helps if the named agent is not there.
    let sent = world.post(ALICE, "/agents/writer/messages", with("remote")).await.expect(202);
    assert_eq!(sent["agentId"], "remote");
    world.stop().await;
}
