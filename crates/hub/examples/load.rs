//! Measures a hub with the mock agent over its REST interface, and prints a table:
//! `cargo run --release -p duologue-hub --features client --example load -- PATH_OF_DUOLOGUE`.
//!
//! The hub is a process of its own with its default limits. Its requests have a connection each, as those of `curl` have.
//! The rates of the store alone, beside those of bare SQLite, are in the example `queue` of `duologue-store`.
#![allow(clippy::print_stdout, reason = "the figures")]

use std::future::Future;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use duologue_client::Client;
use duologue_hub::client::{ConnectOptions, HubClient};
use duologue_hub::gateway::types::{
    ClaimQuery, JsonText, RestAck, RestAgentStatus, RestNewMessage, RestNewTask, RestRegistration,
    RestSendMode, RestStateFilter, TaskFilter,
};
use tokio::task::JoinSet;

/// The requests that are open at a time.
const CONCURRENT: usize = 16;
const SYNC_MESSAGES: usize = 500;
const TASKS: usize = 1_000;
const AGENTS: usize = 1_000;
const QUEUED: usize = 10_000;
const SESSIONS: usize = 1_000;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A hub in a folder of its own, which ends with this value.
struct HubProcess {
    child: Child,
    address: String,
    token: String,
}

impl Drop for HubProcess {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl HubProcess {
    fn start(program: &Path, folder: &Path) -> Result<Self, Failure> {
        let config = format!(
            "data = \"data\"\nlisten = \"127.0.0.1:0\"\n\
             [limits]\nrequests_per_minute = 100000000\n\
             [[agents]]\nid = \"mock\"\ncommand = [{program:?}, \"mock\"]\nshared_process = true\ncwd = \"work\"\n\
             max_tasks = 8\nmax_messages = 8\nroots = [\"/\"]\n",
        );
        let file = folder.join("hub.toml");
        std::fs::write(&file, config)?;
        let mut command = Command::new(program);
        command.args(["serve", "--config"]).arg(&file).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no stdout")?).read_line(&mut line)?;
        let url = line.split_whitespace().find(|word| word.starts_with("http://")).ok_or("no address")?;
        let address = url.trim_end_matches("/acp").to_owned();
        let token = std::fs::read_to_string(folder.join("data/token"))?.trim().to_owned();
        Ok(HubProcess { child, address, token })
    }

    fn client(&self) -> Result<HubClient, Failure> {
        Ok(HubClient::new(&self.address, &self.options())?)
    }

    fn options(&self) -> ConnectOptions {
        let mut options = ConnectOptions::default();
        options.bearer_token = Some(self.token.clone());
        options
    }

    /// Returns the memory of the process in MiB.
    fn memory(&self) -> Result<f64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
        let kib: f64 = line.split_whitespace().nth(1).ok_or("no size")?.parse()?;
        Ok(kib / 1024.0)
    }
}

/// Does `work` for the numbers below `count`, several at a time. Returns how many a second.
async fn rate<F>(count: usize, work: impl Fn(usize) -> F + Clone + Send + 'static) -> Result<f64, Failure>
where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let next = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..CONCURRENT {
        let (next, work) = (next.clone(), work.clone());
        workers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok::<_, Failure>(());
                }
                work(number).await?;
            }
        });
    }
    while let Some(done) = workers.join_next().await {
        done??;
    }
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

fn text(text: &str) -> JsonText {
    JsonText::of(text).unwrap_or_default()
}

fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let place = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(place).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

async fn sync_messages(hub: &HubClient) -> Result<(f64, f64), Failure> {
    let mut message = RestNewMessage::new("query", text("hello"));
    message.mode = Some(RestSendMode::Sync);
    let mut times = Vec::new();
    for number in 0..SYNC_MESSAGES + 20 {
        let started = Instant::now();
        hub.send_message("mock", &message).await?;
        // The first ones start the process.
        if number >= 20 {
            times.push(started.elapsed());
        }
    }
    times.sort_unstable();
    Ok((percentile(&times, 50), percentile(&times, 99)))
}

/// Returns the tasks that are created a second, and those that are completed a second from the first one on.
async fn tasks(hub: &HubClient) -> Result<(f64, f64), Failure> {
    let started = Instant::now();
    let creator = hub.clone();
    let created = rate(TASKS, move |_| {
        let hub = creator.clone();
        async move {
            hub.create_task("mock", &RestNewTask::new("write", text("hello"))).await?;
            Ok(())
        }
    })
    .await?;
    let mut filter = TaskFilter::default();
    filter.state = Some(RestStateFilter::Completed);
    while hub.tasks("mock", &filter).await?.pagination.total < TASKS as u64 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok((created, TASKS as f64 / started.elapsed().as_secs_f64()))
}

async fn agents(hub: &HubClient) -> Result<(f64, f64), Failure> {
    let one = hub.clone();
    let registered = rate(AGENTS, move |number| {
        let hub = one.clone();
        async move {
            hub.register(&format!("agent-{number}"), &RestRegistration::default()).await?;
            Ok(())
        }
    })
    .await?;
    let one = hub.clone();
    let heartbeats = rate(AGENTS, move |number| {
        let hub = one.clone();
        async move {
            hub.heartbeat(&format!("agent-{number}"), RestAgentStatus::Online).await?;
            Ok(())
        }
    })
    .await?;
    Ok((registered, heartbeats))
}

/// Returns the messages that are queued a second, and those that are claimed and acknowledged a second.
async fn queue(hub: &HubClient) -> Result<(f64, f64), Failure> {
    let sender = hub.clone();
    let queued = rate(QUEUED, move |_| {
        let hub = sender.clone();
        async move {
            hub.send_message("agent-0", &RestNewMessage::new("note", text("hello"))).await?;
            Ok(())
        }
    })
    .await?;
    let taker = hub.clone();
    let taken = rate(QUEUED, move |_| {
        let hub = taker.clone();
        async move {
            let claimed = hub.claim("agent-0", &ClaimQuery::default()).await?;
            for message in claimed.messages {
                let lease = message.lease.ok_or("no lease")?;
                hub.ack("agent-0", &message.message_id, &RestAck::new(lease)).await?;
            }
            Ok(())
        }
    })
    .await?;
    Ok((queued, taken))
}

/// Returns the memory of the hub for each session in KiB.
async fn sessions(hub: &HubProcess, folder: &Path) -> Result<f64, Failure> {
    let before = hub.memory()?;
    let url = format!("{}/acp/mock", hub.address);
    let client = Client::new(()).connect_url(&url, hub.options()).await?;
    let mut open = Vec::new();
    for _ in 0..SESSIONS {
        open.push(client.new_session(folder).await?);
    }
    Ok((hub.memory()? - before) * 1024.0 / SESSIONS as f64)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let program = std::env::args_os().nth(1).ok_or("the path of the program `duologue` is missing")?;
    let program = std::path::absolute(PathBuf::from(program))?;
    let folder = tempfile::tempdir()?;
    let process = HubProcess::start(&program, folder.path())?;
    let hub = process.client()?;
    hub.agents(&duologue_hub::gateway::types::AgentFilter::default()).await?;
    let idle = process.memory()?;
    println!("| figure | value |\n| --- | --- |");
    println!("| memory after the first request | {idle:.1} MiB |");
    let (p50, p99) = sync_messages(&hub).await?;
    println!("| `sync` message to the mock, p50 / p99 | {p50:.2} / {p99:.2} ms |");
    let (created, completed) = tasks(&hub).await?;
    println!("| tasks created a second | {created:.0} |");
    println!("| of {TASKS} tasks, completed a second from the first request on | {completed:.0} |");
    let (registered, heartbeats) = agents(&hub).await?;
    println!("| registrations a second, of {AGENTS} agents | {registered:.0} |");
    println!("| heartbeats a second | {heartbeats:.0} |");
    let before = process.memory()?;
    let (queued, taken) = queue(&hub).await?;
    println!("| messages queued a second, up to {QUEUED} in one inbox | {queued:.0} |");
    println!("| claimed and acknowledged a second, one by one | {taken:.0} |");
    println!("| memory that the queue added | {:.1} MiB |", process.memory()? - before);
    let each = sessions(&process, folder.path()).await?;
    println!("| memory of one of {SESSIONS} idle sessions | {each:.1} KiB |");
    Ok(())
}
