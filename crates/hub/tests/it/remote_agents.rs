//! Agents on other machines: a server that the gateway dials, and programs that dial the gateway.

use std::path::Path;
use std::time::Duration;

use duologue_client::Client;
use duologue_http::{ConnectOptions, connect};
use duologue_hub::gateway::{AgentAttachment, AttachmentCard, AttachmentEvent};
use duologue_hub::{Hub, ServerOptions};
use duologue_store::{JsonText, RegisteredAgent, RegistrySource, StoreChange};
use duologue_test_support::in_time;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::hub::{hub_in, settings};
use crate::rest::hosted::writer;
use crate::rest::world::{ADMIN, ALICE, BOB, REMOTE, RestWorld, write_secret};

/// A server that the gateway dials. Its runtime is its own, so that its sockets close with it.
struct FarServer {
    hub: Hub,
    runtime: Runtime,
}

impl FarServer {
    async fn start(data: &Path, address: &str) -> (Self, String) {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (data, address) = (data.to_owned(), address.to_owned());
        let started = runtime.spawn(async move {
            let listener = TcpListener::bind(address).await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let hub = hub_in(&data);
            let mut options = ServerOptions::default();
            options.token = Some("far-token".into());
            let served = hub.clone();
            tokio::spawn(async move {
                served.serve_http(listener, options, std::future::pending()).await.unwrap();
            });
            (hub, address)
        });
        let (hub, address) = started.await.unwrap();
        (FarServer { hub, runtime }, address)
    }

    /// Ends it as a killed program.
    async fn kill(self) {
        self.hub.shut_down().await;
        let runtime = self.runtime;
        let ended = move || runtime.shutdown_timeout(Duration::from_secs(10));
        tokio::task::spawn_blocking(ended).await.unwrap();
    }
}

/// Waits for the state of an agent in the registry.
pub(crate) async fn until_status(world: &RestWorld, agent: &str, status: &str) -> Value {
    until(async || {
        let found = world.get(ADMIN, &format!("/agents/{agent}")).await;
        Some(found).filter(|found| found.status == 200 && found.json()["status"] == status)
    })
    .await
    .json()
}

/// Waits for a value.
pub(crate) async fn until<T>(found: impl AsyncFn() -> Option<T>) -> T {
    in_time(async {
        loop {
            if let Some(found) = found().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

/// Waits for a state that wakes nobody.
pub(crate) async fn until_true(reached: impl AsyncFn() -> bool) {
    until(async || reached().await.then_some(())).await;
}

/// Waits for the end of a task.
pub(crate) async fn ended_task(world: &RestWorld, key: &str, path: &str) -> Value {
    until(async || {
        Some(world.get(key, path).await.expect(200)).filter(|task| task["completedAt"].is_number())
    })
    .await
}

/// Sends a prompt over `/acp/{agent}`.
async fn prompt(world: &RestWorld, key: &str, agent: &str) -> duologue_client::Result<String> {
    let mut options = ConnectOptions::default();
    options.bearer_token = Some(key.into());
    let url = format!("ws://{}/acp/{agent}", world.address);
    let (transport, _link) = connect(&url, options).await.unwrap();
    let connection = Client::new(()).connect(transport).await?;
    let session = connection.new_session("/tmp").await?;
    let text = session.prompt("plan").await?.finish().await?.text;
    session.close().await?;
    Ok(text)
}

const QUERY: &str = r#"{"message": {"type": "query", "content": "plan"}, "mode": "sync"}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_has_the_address_of_another_server() {
    let data = tempfile::tempdir().unwrap();
    let (far, address) = FarServer::start(data.path(), "127.0.0.1:0").await;
    let token = data.path().join("far.token");
    write_secret(&token, "far-token\n");
    let config = format!(
        r#"
        [[agents]]
        id = "writer"
        url = "ws://{address}/acp"
        auth = {{ file = {token:?} }}
        cwd = "/tmp"
        trust = "shared"
        "#
    );
    let world = RestWorld::start(&config).await;
    until_status(&world, "writer", "online").await;
    let text = in_time(prompt(&world, ALICE, "writer")).await.unwrap();
    assert!(!text.is_empty());
    let answered = world.post(ALICE, "/agents/writer/messages", QUERY).await.expect(200);
    assert_eq!(
        (&answered["status"], &answered["response"]["type"]),
        (&json!("completed"), &json!("response"))
    );
    let task = r#"{"taskId": "t1", "task": {"type": "write", "parameters": {"prompt": "plan"}}}"#;
    world.post(ALICE, "/agents/writer/tasks", task).await.expect(202);
    let ended = ended_task(&world, ALICE, "/agents/writer/tasks/t1").await;
    assert_eq!(ended["status"], "completed", "{ended}");

    far.kill().await;
    let offline = until_status(&world, "writer", "offline").await;
    assert!(offline["lastSeen"].is_number());
    world.post(ALICE, "/agents/writer/messages", QUERY).await.refused(503, "unreachable");
    let refused = in_time(prompt(&world, ALICE, "writer")).await.unwrap_err();
    assert!(format!("{refused:?}").contains("agent_unavailable"), "{refused:?}");
    // Work that was accepted waits.
    let task = task.replace("t1", "t2");
    world.post(ALICE, "/agents/writer/tasks", task).await.expect(202);

    let (far, _) = FarServer::start(data.path(), &address).await;
    until_status(&world, "writer", "online").await;
    let ended = ended_task(&world, ALICE, "/agents/writer/tasks/t2").await;
    assert_eq!(ended["status"], "completed", "{ended}");
    world.stop().await;
    far.kill().await;
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_a_server_refuses_is_read_again() {
    let data = tempfile::tempdir().unwrap();
    let (far, address) = FarServer::start(data.path(), "127.0.0.1:0").await;
    let token = data.path().join("far.token");
    std::fs::write(&token, "stale-token").unwrap();
    let script = format!("cat {0}; printf far-token > {0}", token.display());
    let config = format!(
        r#"
        [[agents]]
        id = "writer"
        url = "ws://{address}/acp"
        auth = {{ command = ["sh", "-c", {script:?}] }}
        cwd = "/tmp"
        trust = "shared"
        "#
    );
    let world = RestWorld::start(&config).await;
    until_status(&world, "writer", "online").await;
    world.stop().await;
    far.kill().await;
}

/// A program that has dialled the gateway.
pub(crate) struct Program {
    hub: Hub,
    running: JoinHandle<()>,
    events: mpsc::UnboundedReceiver<AttachmentEvent>,
}

impl Program {
    /// Dials the gateway, as an agent of this name or as that of the key.
    pub(crate) fn start(world: &RestWorld, key: &str, agent: Option<&str>, data: &Path, pace: u64) -> Self {
        Program::start_with(world, key, agent, data, pace, |_| {})
    }

    /// As [`start`](Self::start), with another card.
    fn start_with(
        world: &RestWorld,
        key: &str,
        agent: Option<&str>,
        data: &Path,
        pace: u64,
        change: impl FnOnce(&mut AttachmentCard),
    ) -> Self {
        let hub = Hub::open(settings(data, pace)).unwrap();
        let mut options = ConnectOptions::default();
        options.bearer_token = Some(key.into());
        let mut attachment = AgentAttachment::new(format!("ws://{}", world.address), options);
        attachment.agent = agent.map(str::to_owned);
        attachment.card.capabilities = vec!["plan".to_owned()];
        attachment.card.cwd = Some("/tmp".into());
        change(&mut attachment.card);
        let (sender, events) = mpsc::unbounded_channel();
        let attached = hub.clone();
        let running = tokio::spawn(async move {
            let report = |event| _ = sender.send(event);
            if let Err(error) = attached.attach(&attachment, report).await {
                let (reason, pause) = (error.to_string(), Duration::MAX);
                _ = sender.send(AttachmentEvent::Lost { reason, pause });
            }
        });
        Program { hub, running, events }
    }

    async fn event(&mut self) -> AttachmentEvent {
        in_time(self.events.recv()).await.expect("an event")
    }

    /// Waits until the gateway refuses it, and returns the reason.
    pub(crate) async fn refused(mut self) -> String {
        match self.event().await {
            AttachmentEvent::Lost { reason, .. } => reason,
            other => panic!("{other:?}"),
        }
    }

    /// Ends it as a killed program.
    async fn kill(self) {
        self.running.abort();
        _ = self.running.await;
        self.hub.shut_down().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_attaches_and_works() {
    let (data, again) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let world = RestWorld::start("[limits]\nattachment_seconds = 1").await;
    // Its key belongs to the agent.
    let mut program = Program::start(&world, REMOTE, None, data.path(), 0);
    assert!(matches!(program.event().await, AttachmentEvent::Attached(agent) if agent == "remote"));
    // It counts from its entry on, before it is online.
    let erased = world.delete(ADMIN, "/principals/remote-owner/data").await.refused(409, "conflict");
    assert!(erased.contains("\"remote\" of the principal is attached"), "{erased}");
    let card = until_status(&world, "remote", "online").await;
    assert_eq!(card["capabilities"], json!(["plan"]));
    let text = in_time(prompt(&world, ALICE, "remote")).await.unwrap();
    assert!(!text.is_empty());
    let answered = world.post(ALICE, "/agents/remote/messages", QUERY).await.expect(200);
    assert_eq!(answered["status"], "completed", "{answered}");

    // The task runs until it is cancelled.
    let task = r#"{"taskId": "t1", "task": {"type": "write", "parameters": {"prompt": "cancel"}}}"#;
    world.post(ALICE, "/agents/remote/tasks", task).await.expect(202);
    until(async || {
        let task = world.get(ALICE, "/agents/remote/tasks/t1").await.expect(200);
        Some(()).filter(|()| task["sessionId"].is_string())
    })
    .await;
    program.kill().await;
    let offline = until_status(&world, "remote", "offline").await;
    assert!(offline["lastSeen"].is_number());
    let ended = ended_task(&world, ALICE, "/agents/remote/tasks/t1").await;
    assert_eq!(
        (&ended["status"], &ended["error"]["code"]),
        (&json!("failed"), &json!("worker_lost")),
        "{ended}"
    );
    world.post(ALICE, "/agents/remote/messages", QUERY).await.refused(503, "unreachable");

    let mut program = Program::start(&world, REMOTE, Some("remote"), again.path(), 0);
    assert!(matches!(program.event().await, AttachmentEvent::Attached(_)));
    until_status(&world, "remote", "online").await;
    let answered = world.post(ALICE, "/agents/remote/messages", QUERY).await.expect(200);
    assert_eq!(answered["status"], "completed", "{answered}");
    world.stop().await;
    program.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_entry_of_an_attached_agent_follows_its_connection_alone() {
    let data = tempfile::tempdir().unwrap();
    let limits = "[limits]\nattachment_seconds = 1";
    let world = RestWorld::start_with(limits, |settings| settings.has_task_workers = false).await;
    let mut program = Program::start(&world, REMOTE, None, data.path(), 0);
    assert!(matches!(program.event().await, AttachmentEvent::Attached(_)));
    until_status(&world, "remote", "online").await;
    program.kill().await;
    until_status(&world, "remote", "offline").await;

    let entry = "/registry/agents/remote";
    for key in [REMOTE, ADMIN] {
        world.put(key, entry, "{}").await.refused(409, "conflict");
        let beat = world.post(key, &format!("{entry}/heartbeat"), r#"{"status": "online"}"#).await;
        assert!(beat.refused(409, "conflict").contains("remove the entry first"));
    }
    let task = r#"{"taskId": "t1", "task": {"type": "write", "parameters": {"prompt": "plan"}}}"#;
    let by_ability = "/agents/agent%3A%2F%2F*%3Fcapability%3Dplan/tasks";
    world.post(ALICE, by_ability, task).await.refused(503, "unreachable");

    // Registered over REST it takes messages alone, as if it had never been attached.
    world.delete(REMOTE, entry).await.expect(204);
    world.put(REMOTE, entry, r#"{"capabilities": ["plan"]}"#).await.expect(201);
    let refused = world.post(ALICE, "/agents/remote/tasks", task).await;
    assert!(refused.refused(409, "conflict").contains("takes messages alone"));
    world.post(ALICE, by_ability, task).await.refused(503, "unreachable");
    let message = json!({"messageId": "m1", "message": {"type": "notify", "content": "a"}});
    world.post(ALICE, "/agents/remote/messages", message).await.expect(202);
    let claimed = world.post_empty(REMOTE, "/agents/remote/messages/claim").await.expect(200);
    assert_eq!(claimed["messages"][0]["messageId"], "m1", "{claimed}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_has_the_hub_as_its_worker_or_a_program_that_claims_it() {
    let data = tempfile::tempdir().unwrap();
    // The SHA-256 of `writer-key`.
    let owner = r#"
        [[principals]]
        id = "writer-owner"
        agent = "writer"
        key_sha256 = "3aec1946afb01344ae0065f3b123820a2144e455c13e5816dbd439e6634f7f26"
    "#;
    let world = RestWorld::start(&(writer() + owner)).await;
    let mut program = Program::start(&world, REMOTE, None, data.path(), 0);
    assert!(matches!(program.event().await, AttachmentEvent::Attached(_)));
    until_status(&world, "remote", "online").await;
    for (key, agent) in [("writer-key", "writer"), (ADMIN, "writer"), (REMOTE, "remote"), (ADMIN, "remote")] {
        let claimed = world.post_empty(key, &format!("/agents/{agent}/messages/claim")).await;
        assert!(claimed.refused(409, "conflict").contains("registered over REST"), "{key}");
    }
    // The program is connected, and the entry is not its own any more.
    world.apply(StoreChange::RemoveAgent { agent: "remote".to_owned() }).await;
    world.put(REMOTE, "/registry/agents/remote", "{}").await.expect(201);
    for id in ["m1", "m2", "m3"] {
        let message = json!({"messageId": id, "message": {"type": "query", "content": "plan"}});
        world.post(ALICE, "/agents/remote/messages", message).await.expect(202);
    }
    let claimed = world.post_empty(REMOTE, "/agents/remote/messages/claim?max=3").await.expect(200);
    assert_eq!(claimed["messages"].as_array().unwrap().len(), 3, "{claimed}");
    world.stop().await;
    program.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attached_agent_has_as_many_asking_tasks_as_it_says() {
    let data = tempfile::tempdir().unwrap();
    let world = RestWorld::start("").await;
    // Half of the places is for other principals.
    let card = |card: &mut AttachmentCard| {
        (card.max_tasks, card.max_asking_tasks, card.max_messages) = (Some(1), Some(6), Some(0));
    };
    let mut program = Program::start_with(&world, REMOTE, None, data.path(), 0, card);
    assert!(matches!(program.event().await, AttachmentEvent::Attached(_)));
    let tasks = "/agents/remote/tasks";
    for (id, prompt) in [("t1", "permission"), ("t2", "permission"), ("t3", "permission"), ("t4", "plan")] {
        let task = json!({"taskId": id, "task": {"type": "write", "parameters": {"prompt": prompt}}});
        world.post(ALICE, tasks, task).await.expect(202);
    }
    let ended = ended_task(&world, ALICE, &format!("{tasks}/t4")).await;
    assert_eq!(ended["status"], "completed", "{ended}");
    for id in ["t1", "t2", "t3"] {
        assert_eq!(world.get(ALICE, &format!("{tasks}/{id}")).await.expect(200)["state"], "input_required");
    }
    // One message at a time is the least.
    let message = json!({"mode": "sync", "message": {"type": "query", "content": "plan"}});
    world.post(ALICE, "/agents/remote/messages", &message).await.expect(200);
    world.stop().await;
    program.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_program_attaches_as_the_operator() {
    let data = tempfile::tempdir().unwrap();
    let world = RestWorld::start("").await;
    let reason = Program::start(&world, ADMIN, Some("operator"), data.path(), 0).refused().await;
    assert!(reason.contains("400") && reason.contains("inbox of an administrator"), "{reason}");
    // One that has attached to an earlier version is gone.
    let mut entry = RegisteredAgent::new("operator", "local", RegistrySource::Attached, "/acp/operator");
    entry.card = JsonText::of(&json!({"maxConcurrentTasks": 1})).unwrap();
    world.apply(StoreChange::PutAgent(entry)).await;
    let world = world.restart().await;
    world.get(ADMIN, "/agents/operator").await.refused(404, "not_found");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_principal_does_not_take_over_an_agent() {
    let [data, one, two, three] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let world = RestWorld::start("").await;
    let mut program = Program::start(&world, REMOTE, None, data.path(), 0);
    assert!(matches!(program.event().await, AttachmentEvent::Attached(_)));
    until_status(&world, "remote", "online").await;
    // The registry has what the gateway knows while it is connected.
    world.put(REMOTE, "/registry/agents/remote", "{}").await.refused(409, "conflict");
    world.delete(REMOTE, "/registry/agents/remote").await.refused(409, "conflict");
    // Bob may use the agent and is not the agent. An absent agent looks the same.
    for agent in ["remote", "absent"] {
        let reason = Program::start(&world, BOB, Some(agent), one.path(), 0).refused().await;
        assert!(reason.contains("404") && reason.contains("not_found"), "{reason}");
    }
    // An administrator may be any agent, but not that of another principal.
    let reason = Program::start(&world, ADMIN, Some("remote"), two.path(), 0).refused().await;
    assert!(reason.contains("409") && reason.contains("conflict"), "{reason}");
    // Another program of the same principal has no secret of the open connection.
    let reason = Program::start(&world, REMOTE, None, three.path(), 0).refused().await;
    assert!(reason.contains("attached already"), "{reason}");
    let answered = world.post(ALICE, "/agents/remote/messages", QUERY).await.expect(200);
    assert_eq!(answered["status"], "completed", "{answered}");
    world.stop().await;
    program.kill().await;
}
