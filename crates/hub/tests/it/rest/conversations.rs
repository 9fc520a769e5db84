//! Messages that share the session of their correlation id.

use std::path::Path;

use duologue_agent::{Agent, Context, History, Prompt, Server, Session, SessionSetup, StopReason, Turn};
use duologue_client::exchange::Exchange;
use duologue_hub::gateway::{GatewayConfig, WorkSessions};
use duologue_schema::{AgentCapabilities, DeleteSessionRequest, ListSessionsRequest, ListSessionsResponse};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::remote_agents::until;
use crate::rest::world::{ADMIN, ALICE, BOB, RestWorld};

const MESSAGES: &str = "/agents/writer/messages";
/// The variable with the folder of the conversations of the agent.
const FOLDER: &str = "DUOLOGUE_HUB_TEST_CONVERSATIONS";
/// The variable of an agent that restores no session.
const FORGETS: &str = "DUOLOGUE_HUB_TEST_FORGETS";

/// The agent of these tests, in a process.
#[test]
fn agent_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = Server::new(RememberingAgent(History::in_folder(folder).unwrap())).exchange(Exchange::new());
    runtime.block_on(async { server.serve_stdio().await }).unwrap();
}

/// An agent that answers with the number of the messages of its session so far.
struct RememberingAgent(History);

impl Agent for RememberingAgent {
    fn capabilities(&self) -> AgentCapabilities {
        let capabilities = AgentCapabilities::new();
        if std::env::var_os(FORGETS).is_some() { capabilities } else { History::advertise(capabilities) }
    }

    async fn new_session(&self, _: &Context, session: &Session) -> duologue_agent::Result<SessionSetup> {
        self.0.begin(session)?;
        Ok(SessionSetup::new())
    }

    async fn load_session(&self, _: &Context, session: &Session) -> duologue_agent::Result<SessionSetup> {
        self.0.load(session).await?;
        Ok(SessionSetup::new())
    }

    async fn resume_session(&self, _: &Context, session: &Session) -> duologue_agent::Result<SessionSetup> {
        self.0.resume(session)?;
        Ok(SessionSetup::new())
    }

    async fn list_sessions(
        &self,
        _: &Context,
        request: ListSessionsRequest,
    ) -> duologue_agent::Result<ListSessionsResponse> {
        self.0.list(&request).await
    }

    async fn delete_session(&self, _: &Context, request: DeleteSessionRequest) -> duologue_agent::Result<()> {
        self.0.delete(&request.session_id)
    }

    async fn prompt(&self, turn: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        let conversation = self.0.conversation(turn.id()).await?;
        turn.message().push(conversation.messages().count().to_string()).await?;
        Ok(StopReason::EndTurn)
    }
}

/// A gateway with the agent. `more` is added to its entry, and `variable` to its environment.
async fn start(more: &str, variable: &str) -> (RestWorld, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let config = format!(
        r#"
        [[agents]]
        id = "writer"
        trust = "shared"
        cwd = "work"
        sessions = "per-correlation"
        command = [{program:?}, "--exact", "rest::conversations::agent_process", "--nocapture"]
        env = {{ {FOLDER} = {:?}{variable} }}
        {more}
        "#,
        folder.path()
    );
    (RestWorld::start(&config).await, folder)
}

fn message(more: &Value) -> Value {
    let mut message = json!({"message": {"type": "say", "content": "hello"}});
    message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    message
}

/// Sends a message and waits for its answer. Returns the number of the messages that the agent knows, and the metadata.
async fn say(world: &RestWorld, key: &str, correlation: Option<&str>) -> (String, Value) {
    let sent = message(&json!({"mode": "sync", "correlationId": correlation}));
    let answer = world.post(key, MESSAGES, sent).await.expect(200);
    assert_eq!(answer["status"], "completed", "{answer}");
    (answer["response"]["content"].as_str().unwrap().to_owned(), answer["response"]["metadata"].clone())
}

async fn count(world: &RestWorld, key: &str, correlation: Option<&str>) -> String {
    let (count, metadata) = say(world, key, correlation).await;
    assert_eq!(metadata, Value::Null);
    count
}

/// Returns the number of Alice's sessions that run, and that of all.
async fn sessions(world: &RestWorld) -> (usize, usize) {
    sessions_of(world, ALICE).await
}

async fn sessions_of(world: &RestWorld, key: &str) -> (usize, usize) {
    let listed = world.get(key, "/sessions").await.expect(200);
    let sessions = listed["sessions"].as_array().unwrap();
    (sessions.iter().filter(|session| session["live"] == true).count(), sessions.len())
}

async fn until_live(world: &RestWorld, expected: usize) {
    until(async || (sessions(world).await.0 == expected).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_with_one_correlation_id_share_a_session() {
    let (world, _folder) = start("", "").await;
    assert_eq!(count(&world, ALICE, Some("c1")).await, "1");
    assert_eq!(count(&world, ALICE, Some("c1")).await, "3");
    for (key, correlation) in [(ALICE, Some("c2")), (BOB, Some("c1")), (ALICE, None), (ALICE, None)] {
        assert_eq!(count(&world, key, correlation).await, "1", "{correlation:?}");
    }
    assert_eq!(count(&world, ALICE, Some("c1")).await, "5");
    // The sessions of the two conversations stay open.
    until_live(&world, 2).await;
    assert_eq!(sessions(&world).await.1, 4);

    // After a restart of the server the agent restores the session.
    let world = world.restart().await;
    assert_eq!(sessions(&world).await, (0, 4));
    assert_eq!(count(&world, ALICE, Some("c1")).await, "7");
    assert_eq!(count(&world, BOB, Some("c1")).await, "3");

    world.delete(ADMIN, "/principals/alice/data").await.expect(200);
    assert_eq!(sessions(&world).await, (0, 0));
    assert_eq!(count(&world, ALICE, Some("c1")).await, "1");
    assert_eq!(count(&world, BOB, Some("c1")).await, "5");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_conversation_are_answered_in_order() {
    let (world, _folder) = start("", "").await;
    for id in ["m1", "m2", "m3"] {
        let sent = message(&json!({"messageId": id, "correlationId": "c1"}));
        world.post(ALICE, MESSAGES, sent).await.expect(202);
    }
    assert_eq!(count(&world, ALICE, Some("c1")).await, "7");
    for (id, expected) in [("m1", "1"), ("m2", "3"), ("m3", "5")] {
        let answered = world.get(ALICE, &format!("{MESSAGES}/{id}")).await.expect(200);
        assert_eq!(answered["response"]["content"], expected, "{answered}");
    }
    // Groups that the sender has chosen can overtake each other. One message is in the session at a time.
    for group in ["a", "b"] {
        let sent = message(&json!({"messageId": group, "group": group, "correlationId": "c1"}));
        world.post(ALICE, MESSAGES, sent).await.expect(202);
    }
    let mut counts = Vec::new();
    for group in ["a", "b"] {
        let answered = until(async || {
            let message = world.get(ALICE, &format!("{MESSAGES}/{group}")).await.expect(200);
            (message["status"] == "completed").then_some(message)
        });
        counts.push(answered.await["response"]["content"].as_str().unwrap().to_owned());
    }
    counts.sort();
    assert_eq!(counts, ["11", "9"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_session_ends_and_is_restored() {
    let (world, _folder) = start("idle_seconds = 0", "").await;
    assert_eq!(count(&world, ALICE, Some("c1")).await, "1");
    until_live(&world, 0).await;
    assert_eq!(count(&world, ALICE, Some("c1")).await, "3");
    assert_eq!(sessions(&world).await.1, 1);
    world.stop().await;

    // Above the limit the session is closed that is idle for the longest time.
    let (world, _folder) = start("max_idle_sessions = 1", "").await;
    for correlation in ["c1", "c2"] {
        assert_eq!(count(&world, ALICE, Some(correlation)).await, "1");
    }
    until_live(&world, 1).await;
    let listed = world.get(ALICE, "/sessions").await.expect(200);
    let created = |live: bool| {
        let mut sessions = listed["sessions"].as_array().unwrap().iter();
        sessions.find(|session| session["live"] == live).unwrap()["sessionId"].as_str().unwrap()
    };
    // The ids of sessions are in the order of their creation.
    assert!(created(true) > created(false), "{listed}");
    assert_eq!(count(&world, ALICE, Some("c1")).await, "3");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_idle_sessions_of_a_principal_do_not_close_those_of_another() {
    let (world, _folder) = start("max_idle_sessions = 2", "").await;
    assert_eq!(count(&world, ALICE, Some("c1")).await, "1");
    for correlation in ["c1", "c2", "c3"] {
        assert_eq!(count(&world, BOB, Some(correlation)).await, "1");
    }
    let live = async || (sessions_of(&world, ALICE).await.0, sessions_of(&world, BOB).await.0);
    until(async || Some(live().await).filter(|(alice, bob)| alice + bob == 2)).await;
    assert_eq!(live().await, (1, 1));
    // Those that were closed are restored.
    assert_eq!(count(&world, BOB, Some("c1")).await, "3");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_restores_nothing_begins_anew_and_says_so() {
    for more in ["", "envelopes = true"] {
        let (world, _folder) = start(more, &format!(", {FORGETS} = \"1\"")).await;
        assert_eq!(count(&world, ALICE, Some("c1")).await, "1");
        assert_eq!(count(&world, ALICE, Some("c1")).await, "3");
        let world = world.restart().await;
        let lost = ("1".to_owned(), json!({"context": "lost"}));
        assert_eq!(say(&world, ALICE, Some("c1")).await, lost, "{more}");
        assert_eq!(count(&world, ALICE, Some("c1")).await, "3", "{more}");
        world.stop().await;
    }
}

/// The example of the guide is read as it is.
#[test]
fn the_example_of_the_guide_is_read() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/hub.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let examples = guide.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let example = examples.into_iter().find(|text| text.contains("sessions = ")).expect("an example");
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("hub.toml");
    std::fs::write(&file, example).unwrap();
    let config = GatewayConfig::read(&file).unwrap();
    assert_eq!(config.agents[0].sessions, WorkSessions::PerCorrelation);
    std::fs::write(&file, example.replace("command = [\"duologue\", \"mock\"]", "rest = \"https://a\""))
        .unwrap();
    let refused = GatewayConfig::read(&file).unwrap_err().to_string();
    assert!(refused.contains("sessions of the agent"), "{refused}");
}
