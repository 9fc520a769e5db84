//! The car purchase of the examples at a hub: three agents that `duologue attach` brings, and a hub that is killed or stopped in the middle.
#![cfg(all(target_os = "linux", feature = "serve"))]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use duologue_hub::client::{ConnectOptions, HubClient};
use duologue_hub::gateway::types::{
    JsonText, OwnerQuery, RestAgentStatus, RestNewTask, RestTask, RestTaskStatus,
};
use duologue_test_support::in_time;
use serde_json::Value;

use crate::agents_pass::example;
use crate::process::DUOLOGUE;
use crate::served::Server;

/// The id at the hub, and the role in the example.
const AGENTS: [(&str, &str); 3] = [("buyer", "buyer"), ("seller", "seller"), ("details", "car-details")];

fn hub(data: &Path, listen: &str) -> Server {
    let file = data.join("hub.toml");
    std::fs::write(&file, "").expect("a file");
    let mut command = Command::new(DUOLOGUE);
    // The dialogues do not end during a drain.
    command
        .args(["serve", "--listen", listen, "--drain", "1", "--config"])
        .arg(&file)
        .arg("--data")
        .arg(data.join("hub"));
    Server::of(&mut command)
}

fn client(server: &Server) -> HubClient {
    let mut options = ConnectOptions::default();
    let token = std::fs::read_to_string(&server.token).expect("a token");
    options.bearer_token = Some(token.trim().into());
    HubClient::new(server.url.trim_end_matches("/acp"), &options).expect("an address")
}

/// An agent that is attached.
struct Attached {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Attached {
    fn start(data: &Path, server: &Server, (id, role): (&str, &str)) -> Self {
        let (program, keys) = (example("car-purchase"), data.join("keys.json"));
        let mut command = Command::new(DUOLOGUE);
        command.args(["attach", "--hub", server.url.trim_end_matches("/acp"), "--token-file", &server.token]);
        command.args(["--id", id, "--keys"]).arg(&keys).arg("--root").arg(data);
        command.arg("--data").arg(data.join(id)).args(["--", &program, "attached", role]).arg(&keys);
        let mut process = command.current_dir(data).stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        Attached { process, lines }
    }

    /// Waits until the hub has accepted it.
    fn until_attached(&mut self) {
        let is_attached =
            |line: &std::io::Result<String>| line.as_ref().is_ok_and(|line| line.starts_with("attached as "));
        self.lines.find(is_attached).expect("the line").expect("UTF-8");
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits for a value.
async fn until<T>(found: impl AsyncFn() -> Option<T>) -> T {
    in_time(async {
        loop {
            if let Some(found) = found().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
}

/// Waits for the end of a task.
async fn ended(hub: &HubClient, agent: &str, id: &str) -> RestTask {
    until(async || {
        let task = hub.task(agent, id, &OwnerQuery::default()).await.ok()?;
        let has_ended = !matches!(task.status, RestTaskStatus::Pending | RestTaskStatus::Processing);
        has_ended.then_some(task)
    })
    .await
}

/// Returns the logs of the sessions that an attached agent keeps itself.
fn logs(data: &Path, agent: &str) -> String {
    fn read(folder: PathBuf, text: &mut String) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => read(entry.path(), text),
                _ => text.push_str(&std::fs::read_to_string(entry.path()).unwrap_or_default()),
            }
        }
    }
    let mut text = String::new();
    read(data.join(agent).join("sessions"), &mut text);
    text
}

/// Counts the receipts of new messages that an agent has sent, by message.
fn taken(log: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in log.lines() {
        let record: Value = serde_json::from_str(line).unwrap_or_default();
        let receipt = &record["frame"]["result"]["receipt"];
        if record["from"] == "agent" && receipt.is_object() && receipt["duplicate"] != true {
            *counts.entry(receipt["message_id"].as_str().expect("an id").to_owned()).or_default() += 1;
        }
    }
    counts
}

/// Starts a hub with the three agents, and a deal that waits in its middle: a dialogue is to be nested in another, and its
/// recipient is away.
async fn half_a_deal(data: &Path) -> (Server, String, [Attached; 2]) {
    let keys = Command::new(example("car-purchase")).arg("keys").output().expect("it starts");
    std::fs::write(data.join("keys.json"), keys.stdout).expect("a file");
    let server = hub(data, "127.0.0.1:0");
    let address = server.url.trim_end_matches("/acp").split_once("//").expect("a scheme").1.to_owned();
    let mut attached = AGENTS.map(|agent| Attached::start(data, &server, agent));
    attached.iter_mut().for_each(Attached::until_attached);
    let rest = client(&server);
    for (agent, _) in AGENTS {
        until(async || rest.agent(agent).await.ok().filter(|it| it.status == RestAgentStatus::Online)).await;
    }

    // Without the agent that knows the cars the deal waits in its middle.
    let [buyer, seller, details] = attached;
    drop(details);
    until(async || rest.agent("details").await.ok().filter(|it| it.status == RestAgentStatus::Offline)).await;
    let mut task = RestNewTask::new("buy", JsonText::of("a car").expect("JSON"));
    task.task_id = Some("t1".into());
    rest.create_task("buyer", &task).await.expect("a task");
    until(async || logs(data, "seller").contains("\"session_id\":\"s2\"").then_some(())).await;
    (server, address, [buyer, seller])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_car_is_bought_although_the_hub_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let (mut server, address, [mut buyer, mut seller]) = half_a_deal(data).await;
    server.kill();
    let server = hub(data, &address);
    [&mut buyer, &mut seller].into_iter().for_each(Attached::until_attached);
    let mut details = Attached::start(data, &server, AGENTS[2]);
    details.until_attached();
    let rest = client(&server);
    for (agent, id) in [("seller", "s1"), ("details", "s2")] {
        let task = ended(&rest, agent, id).await;
        assert_eq!(task.status, RestTaskStatus::Completed, "{task:?}");
    }
    until(async || logs(data, "buyer").contains("The car is bought for $16,500.").then_some(())).await;
    for ((agent, _), count) in AGENTS.into_iter().zip([3, 5, 2]) {
        let taken = taken(&logs(data, agent));
        assert!(taken.values().all(|times| *times == 1), "{agent}: {taken:?}");
        assert_eq!(taken.len(), count, "{agent}: {taken:?}");
    }
}

/// A hub that is stopped ends the sessions of its agents elsewhere, so their dialogues cannot go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deal_ends_when_the_hub_is_stopped() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let (mut server, address, mut attached) = half_a_deal(data).await;
    server.stop();
    let server = hub(data, &address);
    attached.iter_mut().for_each(Attached::until_attached);
    let rest = client(&server);
    for (agent, id, code) in [("buyer", "t1", "restarted"), ("seller", "s1", "unreachable")] {
        let task = ended(&rest, agent, id).await;
        let error = task.error.as_ref().map(|error| error.code.as_str());
        assert_eq!((task.status, error), (RestTaskStatus::Failed, Some(code)), "{agent}: {:?}", task.error);
    }
}
