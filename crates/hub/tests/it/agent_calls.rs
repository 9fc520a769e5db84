//! Agents that call agents through the hub. The agents are processes of this program and know the SDK alone.

mod hostile_dialogues;
mod routed_dialogues;
mod stopped_dialogues;

use std::path::Path;
use std::time::Duration;

use duologue_agent::exchange::envelope::{Delegation, EnvelopeErrorCode};
use duologue_agent::schema::envelope::AgentId;
use duologue_agent::{Agent, Exchange, PeerAgent, Prompt, Server, StopReason, Turn, exchange};
use duologue_test_support::in_time;
use serde_json::{Value, json};

use crate::remote_agents::ended_task;
use crate::rest::world::{ADMIN, ALICE, RestWorld};

/// The variable that makes this program an agent which calls others. Its value is a folder for its files.
const FOLDER: &str = "DUOLOGUE_HUB_TEST_CALLER";

#[test]
fn agent_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = Server::new(CallingAgent { folder: folder.into() }).exchange(Exchange::new());
    runtime.block_on(async { server.serve_stdio().await }).unwrap();
}

/// An agent whose prompts are commands. The answer is the text of a turn.
struct CallingAgent {
    folder: std::path::PathBuf,
}

impl Agent for CallingAgent {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
        let text = prompt.text();
        if let Some(beginning) = text.strip_prefix("begin ") {
            turn.message().push(beginning).await?;
            return std::future::pending().await;
        }
        let peer = turn.session().peer_agent();
        let answer = self.obey(&peer, &text).await;
        let answer = answer.unwrap_or_else(|error| format!("{}: {}", error.code(), error.fault().message));
        turn.message().push(answer).await?;
        Ok(StopReason::EndTurn)
    }
}

impl CallingAgent {
    /// Executes `COMMAND ADDRESS TEXT`.
    async fn obey(&self, peer: &PeerAgent, text: &str) -> exchange::Result<String> {
        let mut words = text.splitn(3, ' ');
        let (command, address, rest) =
            (words.next().unwrap(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let other = || peer.addressed_to(AgentId::from(address));
        match command {
            "echo" => Ok(format!("{address} {rest}").trim().to_owned()),
            "call" => end_of(other().delegate(rest).await?).await,
            "brief" => end_of(other().delegate(rest).context([("n", 1)]).await?).await,
            // A call with an id that is repeated.
            "repeat" => {
                let first = other().delegate(rest).id("repeated").await?;
                let first = end_of(first).await?;
                let second = other().delegate(rest).id("repeated").await?;
                let second = end_of(second).await?;
                let changed = other().delegate("echo another").id("repeated").await.unwrap_err();
                Ok(format!("{first}, {second}, {}", changed.code()))
            }
            "named" => end_of(other().delegate("echo named").id(rest).await?).await,
            "cancel" => {
                let task = other().delegate(rest).await?;
                let progress = task.progress().next().await.expect("progress").expect("all of it");
                let state = task.status().await?.state;
                let ack = task.cancel("enough").await?;
                let end = task.result().await.unwrap_err();
                let again = task.cancel("enough").await?;
                let news: Value = progress.data.as_ref().unwrap().parse().unwrap();
                let refusal = again.reason.unwrap_or_default();
                Ok(format!("{news} {state} {} {} {refusal}", ack.accepted, end.code()))
            }
            // The output is read while the task runs. It is cancelled when its text ends with a `…`.
            "listen" => {
                let task = other().delegate(rest).await?;
                let (mut output, mut heard) = (task.output(), String::new());
                while let Some(chunk) = output.next().await {
                    heard.push_str(&chunk.expect("all of it").text().unwrap());
                    if heard.ends_with('…') {
                        task.cancel("enough").await?;
                    }
                }
                let end =
                    task.result().await.map_or_else(|error| error.code().to_string(), |end| end.outcome);
                Ok(format!("{heard} {} {end}", output.is_complete()))
            }
            "leave" => {
                let task = other().delegate(rest).await?;
                task.progress().next().await;
                std::process::exit(3);
            }
            // The request is dropped while it waits for its response, so that the SDK withdraws it.
            "withdraw" => {
                let call = std::future::IntoFuture::into_future(other().delegate(rest));
                tokio::select! {
                    biased;
                    task = call => return end_of(task?).await,
                    () = std::future::ready(()) => {}
                }
                std::future::pending().await
            }
            "many" => {
                let mut open = Vec::new();
                loop {
                    match other().delegate(rest).await {
                        Ok(task) => open.push(task),
                        Err(error) => {
                            for task in &open {
                                task.cancel("").await?;
                            }
                            return Ok(format!("{}: {}", open.len(), error.fault().message));
                        }
                    }
                }
            }
            "discover" => {
                let found =
                    if address.is_empty() { peer.discover().await? } else { other().discover().await? };
                Ok(serde_json::to_string(&found).unwrap())
            }
            "query" => Ok(other().query(rest).await?.summary),
            "ping" => other().ping().await.map(|pong| pong.agent_name),
            "sleep" => {
                tokio::time::sleep(Duration::from_secs(600)).await;
                Ok("slept".to_owned())
            }
            // Once a process of this agent has ended in the middle of this command, the next one completes it.
            "once" => {
                let mark = self.folder.join("once");
                if !mark.exists() {
                    std::fs::write(mark, "").unwrap();
                    tokio::time::sleep(Duration::from_secs(600)).await;
                }
                Ok(rest.to_owned())
            }
            "crash" => std::process::exit(4),
            _ => panic!("unknown command {text:?}"),
        }
    }
}

async fn end_of(task: Delegation) -> exchange::Result<String> {
    let end = task.result().await?;
    match end.fault() {
        Some(fault) => Ok(format!("failed with {}: {}", fault.code, fault.message)),
        None => Ok(end.outcome),
    }
}

/// The configuration of an agent that is a test of this program.
fn agent(id: &str, test: &str, more: &str) -> String {
    let program = std::env::current_exe().unwrap();
    format!(
        r#"
        [[agents]]
        id = "{id}"
        trust = "shared"
        cwd = "work"
        command = [{program:?}, "--exact", "agent_calls::{test}", "--nocapture"]
        {more}
        "#
    )
}

/// The configuration of agents with these ids.
fn agents(ids: &[&str], folder: &Path) -> String {
    let more = |id: &str| {
        format!(
            "capabilities = [\"{id}-work\"]\ndomains = [\"{id}.domain\"]\nenv = {{ {FOLDER} = {folder:?} }}"
        )
    };
    ids.iter().map(|id| agent(id, "agent_process", &more(id))).collect()
}

async fn world(ids: &[&str], more: &str) -> (RestWorld, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let world = RestWorld::start(&format!("{more}\n{}", agents(ids, folder.path()))).await;
    (world, folder)
}

/// Runs a task of an agent, and returns the text of its result.
async fn run(world: &RestWorld, key: &str, agent: &str, prompt: &str) -> String {
    let task = json!({"task": {"type": "test", "parameters": {"prompt": prompt}}});
    let created = world.post(key, &format!("/agents/{agent}/tasks"), &task).await.expect(202);
    let path = format!("/agents/{agent}/tasks/{}", created["taskId"].as_str().unwrap());
    let ended = ended_task(world, key, &path).await;
    ended["result"]["text"].as_str().unwrap_or_else(|| panic!("{ended}")).to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delegation_is_a_task_of_the_principal() {
    let (world, _folder) = world(&["writer", "remote"], "").await;
    let text = run(&world, ALICE, "writer", "brief agent://remote echo hello").await;
    // The context of the delegation is a part of the prompt.
    assert_eq!(text, "hello\n\nContext: {\"n\":1}");
    let tasks = world.get(ALICE, "/agents/remote/tasks").await.expect(200);
    let task = &tasks["tasks"][0];
    assert_eq!(tasks["pagination"]["total"], 1, "{tasks}");
    let members = ["from", "owner", "type", "status"].map(|name| task[name].as_str().unwrap());
    assert_eq!(members, ["writer", "alice", "delegate", "completed"]);
    // The log of the caller has the call and its end.
    let caller = world.get(ALICE, "/agents/writer/tasks").await.expect(200);
    let log = world.log_of("writer", caller["tasks"][0]["sessionId"].as_str().unwrap());
    assert!(log.contains("_session/delegate") && log.contains("_session/result"), "{log}");

    let text = run(&world, ALICE, "writer", "repeat agent://remote echo hi").await;
    assert_eq!(text, "hi, hi, conflict");
    let total = &world.get(ALICE, "/agents/remote/tasks").await.expect(200)["pagination"]["total"];
    assert_eq!(*total, 2);
    // The id is that of a task, which REST has to be able to name.
    for id in ["a\nb", ".."] {
        let text = run(&world, ALICE, "writer", &format!("named agent://remote {id}")).await;
        assert!(
            text.starts_with("invalid_parameter: ") && text.contains("`.` and `..` are no ids"),
            "{text}"
        );
    }
    // An address by ability.
    let text = run(&world, ALICE, "writer", "call agent://*?domain=remote.domain echo found").await;
    assert_eq!(text, "found");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_owner_of_the_session_decides_what_an_agent_finds() {
    let (world, _folder) = world(&["writer", "remote", "hidden"], "").await;
    let found: Value = serde_json::from_str(&run(&world, ALICE, "writer", "discover").await).unwrap();
    let addresses = |found: &Value| -> Vec<String> {
        let agents = found["agents"].as_array().unwrap().iter();
        agents.map(|agent| agent["address"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(addresses(&found), ["agent://remote"], "{found}");
    assert_eq!(found["capabilities"], json!(["remote-work"]));
    let found: Value = serde_json::from_str(&run(&world, ADMIN, "writer", "discover").await).unwrap();
    assert_eq!(addresses(&found), ["agent://hidden", "agent://remote"]);
    let card: Value =
        serde_json::from_str(&run(&world, ALICE, "writer", "discover agent://remote").await).unwrap();
    assert_eq!((&card["agent_name"], &card["domains"]), (&json!("remote"), &json!(["remote.domain"])));

    // An agent that the owner may not use is as one that does not exist.
    let refused = "not_found: no such agent, or it is not yours; check its id and your permissions";
    for agent in ["hidden", "nobody"] {
        for command in ["discover", "call"] {
            let text = run(&world, ALICE, "writer", &format!("{command} agent://{agent} echo x")).await;
            assert_eq!(text, refused, "{command} {agent}");
        }
    }
    // Messages that have no place in a chain of calls are not passed on.
    let text = run(&world, ALICE, "writer", "query agent://remote what?").await;
    assert!(text.starts_with("unknown_domain: "), "{text}");
    let text = run(&world, ALICE, "writer", "ping agent://remote").await;
    assert!(text.starts_with("unknown_kind: "), "{text}");
    let text = run(&world, ALICE, "writer", "call agent://*?color=red echo x").await;
    assert!(text.starts_with("invalid_parameter: "), "{text}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chains_of_calls_are_limited() {
    let (world, _folder) = world(&["a", "b", "c"], "limits.call_depth = 1\nlimits.open_calls = 2").await;
    assert_eq!(run(&world, ADMIN, "a", "call agent://b echo x").await, "x");
    let text = run(&world, ADMIN, "a", "call agent://b call agent://c echo x").await;
    let why = "too_many_hops: call depth reached (a > b > c: call 2, the limit is 1); call fewer agents behind each other, or raise `limits.call_depth`";
    assert_eq!(text, why);
    for (prompt, circle) in [
        ("call agent://a echo x", "the agent \"a\" waits in this chain of calls already (a)"),
        (
            "call agent://b call agent://a echo x",
            "the agent \"a\" waits in this chain of calls already (a > b)",
        ),
        (
            "call agent://b call agent://b echo x",
            "the agent \"b\" waits in this chain of calls already (a > b)",
        ),
    ] {
        let text = run(&world, ADMIN, "a", prompt).await;
        assert!(text.contains("too_many_hops") && text.contains(circle), "{prompt}: {text}");
    }
    let text = run(&world, ADMIN, "a", "many agent://b sleep").await;
    let why = "call limit reached (the session has 2 tasks of other agents); retry when one has ended, or raise `limits.open_calls`";
    assert_eq!(text, format!("2: {why}"));
    world.stop().await;
}

/// Waits until so many tasks of the agent `b` are there and all of them are cancelled.
async fn until_cancelled(world: &RestWorld, count: usize) {
    in_time(async {
        loop {
            let tasks = world.get(ADMIN, "/agents/b/tasks").await.expect(200);
            let states: Vec<_> =
                tasks["tasks"].as_array().unwrap().iter().map(|task| task["status"].clone()).collect();
            if states == vec!["cancelled"; count] {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_cancelled_by_its_agent_or_with_it() {
    let (world, _folder) = world(&["a", "b"], "").await;
    let text = run(&world, ADMIN, "a", "cancel agent://b sleep").await;
    let states = r#"{"state":"working"} working true cancelled already_finished"#;
    assert_eq!(text, states);

    // Nobody waits for the task of a process that has ended.
    let task = json!({"taskId": "left", "task": {"type": "test", "parameters": {"prompt": "leave agent://b sleep"}}});
    world.post(ADMIN, "/agents/a/tasks", &task).await.expect(202);
    let ended = ended_task(&world, ADMIN, "/agents/a/tasks/left").await;
    assert_eq!(ended["status"], "failed", "{ended}");
    until_cancelled(&world, 2).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_output_of_a_task_reaches_its_caller_while_it_runs() {
    let (world, _folder) = world(&["a", "b"], "limits.result_bytes = 1024").await;
    let text = run(&world, ADMIN, "a", "listen agent://b echo hello").await;
    assert_eq!(text, "hello true hello");
    let text = run(&world, ADMIN, "a", "listen agent://b begin Once…").await;
    assert_eq!(text, "Once… false cancelled");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_withdrawal_of_a_call_cancels_its_task() {
    let (world, _folder) = world(&["a", "b"], "").await;
    let task = json!({"taskId": "t1", "task": {"type": "test", "parameters": {"prompt": "withdraw agent://b sleep"}}});
    world.post(ADMIN, "/agents/a/tasks", &task).await.expect(202);
    until_cancelled(&world, 1).await;
    // Its process was there all the time.
    assert_eq!(world.get(ADMIN, "/agents/a/tasks/t1").await.expect(200)["status"], "processing");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_failure_of_a_called_agent_is_the_outcome() {
    let (world, _folder) = world(&["a", "b"], "").await;
    let text = run(&world, ADMIN, "a", "call agent://b leave agent://a").await;
    // The second call is a circle, so its agent goes on and ends with an error.
    assert!(text.contains("too_many_hops"), "{text}");
    let code = EnvelopeErrorCode::from("agent_failed");
    let text = run(&world, ADMIN, "a", "call agent://b crash").await;
    assert!(text.starts_with(&format!("failed with {code}: ")), "{text}");
    world.stop().await;
}
