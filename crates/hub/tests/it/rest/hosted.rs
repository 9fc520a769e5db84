//! The interface with an agent that the gateway starts.

use duologue_hub::gateway::GatewaySettings;
use serde_json::json;

use crate::hub::AGENT;
use crate::remote_agents::ended_task;
use crate::rest::world::{ADMIN, ALICE, BOB, Call, RestWorld, STRANGER, events};

/// Returns the configuration of the agent of most tests.
pub(crate) fn writer() -> String {
    hosted("writer", "write")
}

/// Returns the configuration of an agent with a capability.
pub(crate) fn hosted(id: &str, capability: &str) -> String {
    let program = std::env::current_exe().unwrap();
    format!(
        r#"
        [[agents]]
        id = {id:?}
        trust = "shared"
        cwd = "work"
        capabilities = [{capability:?}]
        command = [{program:?}, "--exact", "hub::agent_process", "--nocapture"]
        env = {{ {AGENT} = "0" }}
        "#
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_and_messages_run_in_its_sessions() {
    let world = RestWorld::start(&writer()).await;
    let listed = world.get(ALICE, "/agents?capability=write").await.expect(200);
    assert_eq!(listed["agents"][0]["endpoint"], "/acp/writer");
    for call in [
        Call::new("DELETE", "/registry/agents/writer"),
        Call::new("PUT", "/registry/agents/writer").json("{}"),
    ] {
        world.send(&call.key(ADMIN)).await.refused(409, "conflict");
    }
    let message = json!({"mode": "sync", "message": {"type": "query", "content": "hello"}});
    let answer = world.post(ALICE, "/agents/writer/messages", &message).await.expect(200);
    assert_eq!(answer["status"], "completed", "{answer}");
    assert!(!answer["response"]["content"].as_str().unwrap().is_empty());

    let task = json!({"taskId": "t1", "task": {"type": "write", "parameters": {"prompt": "plan"}}});
    world.post(ALICE, "/agents/writer/tasks", &task).await.expect(202);
    let call = Call::new("GET", "/agents/writer/tasks/t1/events").key(ALICE);
    let events = events(&world.open(&call).await.end().await);
    let (name, _, end) = events.last().unwrap();
    assert_eq!((name.as_str(), &end["status"]), ("end", &json!("completed")), "{events:?}");

    // The sessions of the work belong to its owner.
    let sessions = world.get(ALICE, "/sessions").await.expect(200);
    assert!(sessions["pagination"]["total"].as_u64() >= Some(1), "{sessions}");
    assert_eq!(sessions["sessions"][0]["agentId"], "writer");
    assert_eq!(world.get(BOB, "/sessions").await.expect(200)["pagination"]["total"], 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_may_be_named_by_their_parents() {
    let with_cwd = writer().replace("\"work\"", "\"data/../work\"");
    for config in [writer(), with_cwd] {
        let through_parent = |settings: &mut GatewaySettings| settings.data = settings.data.join("../data");
        let world = RestWorld::start_with(&config, through_parent).await;
        let task = json!({"taskId": "t1", "task": {"type": "a", "parameters": {"prompt": "plan"}}});
        world.post(ALICE, "/agents/writer/tasks", task).await.expect(202);
        let ended = ended_task(&world, ALICE, "/agents/writer/tasks/t1").await;
        assert_eq!(ended["status"], "completed", "{ended}");
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_needs_a_folder() {
    let world = RestWorld::start(&writer().replace("cwd = \"work\"", "")).await;
    let task = json!({"task": {"type": "write", "parameters": {"prompt": "plan"}}});
    let message = json!({"message": {"type": "query", "content": "hello"}});
    for (path, body) in [("tasks", &task), ("messages", &message)] {
        let refused = world.post(ALICE, &format!("/agents/writer/{path}"), body).await;
        let why = refused.refused(409, "not_configured");
        assert!(why.contains("\"writer\"") && why.contains("`agents.cwd`"), "{why}");
        let by_ability = world.post(ALICE, &format!("/agents/agent%3A%2F%2F*/{path}"), body).await;
        by_ability.refused(503, "unreachable");
        // One that the caller may not use is still absent.
        world.post(STRANGER, &format!("/agents/writer/{path}"), body).await.refused(404, "not_found");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_answers_the_questions_of_work() {
    for (rule, answer) in [("reject", "I left it as it was."), ("allow", "You allowed it.")] {
        let world = RestWorld::start(&format!("{}questions = {rule:?}\n", writer())).await;
        let task = json!({"taskId": "t1", "task": {"type": "ask", "parameters": {"prompt": "permission"}}});
        world.post(ALICE, "/agents/writer/tasks", &task).await.expect(202);
        let ended = ended_task(&world, ALICE, "/agents/writer/tasks/t1").await;
        assert!(ended["result"]["text"].as_str().unwrap().contains(answer), "{rule}: {ended}");
        let message = json!({"mode": "sync", "message": {"type": "ask", "content": "permission"}});
        let answered = world.post(ALICE, "/agents/writer/messages", &message).await.expect(200);
        assert!(answered["response"]["content"].as_str().unwrap().contains(answer), "{rule}: {answered}");
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_of_an_agent_that_cannot_begin_names_the_cause() {
    let login = r#"read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}'
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:session/new","error":{"code":-32000,"message":"no key"}}'
        read -r line"#;
    let agent = |command: &str| {
        format!("[[agents]]\nid = \"writer\"\ntrust = \"shared\"\ncwd = \"work\"\ncommand = {command}\n")
    };
    for (command, code, retryable, parts) in [
        (format!("[\"sh\", \"-c\", {login:?}]"), "login_required", false, ["no key", "`agents.env`"]),
        (r#"["/absent/agent"]"#.to_owned(), "unreachable", true, ["cannot start /absent/agent", "installed"]),
    ] {
        let world = RestWorld::start(&agent(&command)).await;
        let task = json!({"taskId": "t1", "task": {"type": "write", "parameters": {"prompt": "plan"}}});
        world.post(ALICE, "/agents/writer/tasks", &task).await.expect(202);
        let message = json!({"mode": "sync", "message": {"type": "query", "content": "hello"}});
        let ended = ended_task(&world, ALICE, "/agents/writer/tasks/t1").await;
        let answered = world.post(ALICE, "/agents/writer/messages", &message).await.expect(200);
        assert_eq!(ended["error"]["retryable"], retryable, "{ended}");
        for error in [&ended["error"], &answered["error"]] {
            assert_eq!(error["code"], code, "{error}");
            let why = error["message"].as_str().unwrap();
            assert!(parts.iter().all(|part| why.contains(part)), "{why}");
            assert!(!why.contains("responded with an error") && !why.contains("-32"), "{why}");
        }
        world.stop().await;
    }
    // The time of a task is that of its session too.
    let silent = r#"read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}'
        read -r line; read -r line"#;
    let world = RestWorld::start(&agent(&format!("[\"sh\", \"-c\", {silent:?}]"))).await;
    let task = json!({"taskId": "t1", "task": {"type": "a"}, "timeout": 300});
    world.post(ALICE, "/agents/writer/tasks", &task).await.expect(202);
    let ended = ended_task(&world, ALICE, "/agents/writer/tasks/t1").await;
    assert_eq!(ended["error"]["code"], "timeout", "{ended}");
    world.stop().await;
    // Another version is another protocol.
    let world =
        RestWorld::start(&agent(&format!("[\"sh\", \"-c\", {:?}]", silent.replace(":1}}", ":9}}")))).await;
    world
        .post(ALICE, "/agents/writer/tasks", json!({"taskId": "t1", "task": {"type": "a"}}))
        .await
        .expect(202);
    let error = ended_task(&world, ALICE, "/agents/writer/tasks/t1").await["error"].clone();
    assert!(error["code"] == "unreachable" && error["message"].as_str().unwrap().contains('9'), "{error}");
    world.stop().await;
}
