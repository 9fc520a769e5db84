//! The program `duologue serve` with the mock agent, over its REST interface on loopback.
//!
//! The hub is a process of its own. Its requests have a connection each, as those of `curl` have.

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
    AgentFilter, ClaimQuery, JsonText, RestAck, RestAgentStatus, RestNewMessage, RestNewTask,
    RestRegistration, RestSendMode, RestStateFilter, TaskFilter,
};
use tokio::task::JoinSet;

use super::store::rate;
use super::{HubFailure, LoadFigures};
use crate::play::Latency;

/// The requests that are open at a time.
const CONCURRENT: usize = 16;
const SYNC_MESSAGES: usize = 500;
/// The `sync` messages that are not counted. The first one starts the agent.
const FIRST_MESSAGES: usize = 20;
const TASKS: usize = 1_000;
const AGENTS: usize = 1_000;
const QUEUED: usize = 3_000;
const SESSIONS: usize = 1_000;
/// The time after which a hub is idle: its runtime ends unused threads after 10 seconds.
const SETTLED: Duration = Duration::from_secs(15);
const IDLE: Duration = Duration::from_secs(60);
/// The resident memory.
const RESIDENT: &str = "VmRSS:";
/// The pause between two looks at the number of completed tasks.
const POLL: Duration = Duration::from_millis(50);

/// A hub in a folder of its own, which ends with this value.
#[derive(Debug)]
pub struct MeasuredHub {
    child: Child,
    folder: PathBuf,
    address: String,
    token: String,
}

impl Drop for MeasuredHub {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl MeasuredHub {
    /// Starts it in a new folder with the number of a round.
    ///
    /// # Errors
    ///
    /// If it does not start.
    pub fn start(program: &Path, parent: &Path, round: usize) -> Result<Self, HubFailure> {
        let folder = parent.join(format!("hub-{round}"));
        std::fs::create_dir(&folder)?;
        let config = format!(
            "data = \"data\"\nlisten = \"127.0.0.1:0\"\n\
             [limits]\nrequests_per_minute = 100000000\nprincipal_sessions = 2000\n\
             [[agents]]\nid = \"mock\"\ncommand = [{program:?}, \"mock\", \"--pace\", \"0\"]\nshared_process = true\ncwd = \"work\"\n\
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
        Ok(MeasuredHub { child, folder, address, token })
    }

    fn client(&self) -> Result<HubClient, HubFailure> {
        Ok(HubClient::new(&self.address, &self.options())?)
    }

    fn options(&self) -> ConnectOptions {
        let mut options = ConnectOptions::default();
        options.bearer_token = Some(self.token.as_str().into());
        options
    }

    /// Returns the memory of the process in MiB, by a name in `/proc/self/status`.
    fn memory(&self, name: &str) -> Result<f64, HubFailure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        Ok(status_number(&status, name) / 1024.0)
    }

    /// Returns the number of times that a thread has begun to wait.
    fn waits(&self) -> Result<f64, HubFailure> {
        let mut sum = 0.0;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            // A thread can end meanwhile.
            let status = std::fs::read_to_string(thread?.path().join("status")).unwrap_or_default();
            sum += status_number(&status, "voluntary_ctxt_switches:");
        }
        Ok(sum)
    }
}

/// Sends each hub its first request, and adds the memory after it.
///
/// # Errors
///
/// If a hub fails.
pub fn first_requests(hubs: &[MeasuredHub], figures: &mut LoadFigures) -> Result<(), HubFailure> {
    for hub in hubs {
        runtime()?.block_on(hub.client()?.agents(&AgentFilter::default()))?;
        figures.add("memory of an idle hub after its first request", "MiB", hub.memory(RESIDENT)?);
        figures.add("the same, without pages of its program", "MiB", hub.memory("RssAnon:")?);
    }
    Ok(())
}

/// Adds how often threads of idle hubs wake up in a minute. A hub without a wake-up has run no statement.
///
/// # Errors
///
/// If a hub has ended.
pub fn idle(hubs: &[MeasuredHub], part: usize, figures: &mut LoadFigures) -> Result<(), HubFailure> {
    let waits = || hubs.iter().map(MeasuredHub::waits).collect::<Result<Vec<_>, _>>();
    std::thread::sleep(SETTLED / part as u32);
    let before = waits()?;
    std::thread::sleep(IDLE / part as u32);
    for (before, after) in before.into_iter().zip(waits()?) {
        figures.add("wake-ups of threads of an idle hub in a minute", "number", after - before);
    }
    Ok(())
}

/// Measures a hub. Sizes are divided by `part`.
///
/// # Errors
///
/// If a request fails.
pub fn measure(process: &MeasuredHub, part: usize, figures: &mut LoadFigures) -> Result<(), HubFailure> {
    runtime()?.block_on(async {
        let hub = process.client()?;
        let took = sync_messages(&hub, SYNC_MESSAGES / part).await?;
        figures.add("REST: `sync` message to the mock agent, p50", "ms", took.p50 / 1e6);
        figures.add("REST: `sync` message to the mock agent, p99", "ms", took.p99 / 1e6);
        let (created, completed) = tasks(&hub, TASKS / part).await?;
        figures.add("REST: tasks created", "/s", created);
        figures.add("REST: tasks completed by the mock agent, from the first creation on", "/s", completed);
        let (registered, heartbeats) = agents(&hub, AGENTS / part).await?;
        figures.add("REST: registrations", "/s", registered);
        figures.add("REST: heartbeats", "/s", heartbeats);
        let (queued, taken) = queue(&hub, QUEUED / part).await?;
        figures.add("REST: messages queued", "/s", queued);
        figures.add("REST: messages claimed and acknowledged, one by one", "/s", taken);
        let each = sessions(process, SESSIONS / part).await?;
        figures.add("memory of the hub for each idle session", "KiB", each);
        Ok(())
    })
}

fn runtime() -> Result<tokio::runtime::Runtime, HubFailure> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Returns a number of a file like `/proc/self/status`, or zero.
fn status_number(status: &str, name: &str) -> f64 {
    let rest = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    rest.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// Does `work` for the numbers below `count`, several at a time. Returns how many a second.
async fn requests<F>(
    count: usize,
    work: impl Fn(usize) -> F + Clone + Send + 'static,
) -> Result<f64, HubFailure>
where
    F: Future<Output = Result<(), HubFailure>> + Send + 'static,
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
                    return Ok::<_, HubFailure>(());
                }
                work(number).await?;
            }
        });
    }
    while let Some(done) = workers.join_next().await {
        done??;
    }
    Ok(rate(count, started.elapsed()))
}

fn text(text: &str) -> JsonText {
    JsonText::of(text).unwrap_or_default()
}

async fn sync_messages(hub: &HubClient, count: usize) -> Result<Latency, HubFailure> {
    let mut message = RestNewMessage::new("query", text("hello"));
    message.mode = Some(RestSendMode::Sync);
    let mut took = Vec::new();
    for number in 0..count + FIRST_MESSAGES {
        let started = Instant::now();
        hub.send_message("mock", &message).await?;
        if number >= FIRST_MESSAGES {
            took.push(started.elapsed());
        }
    }
    Ok(Latency::of(took))
}

/// Returns the tasks that are created a second, and those that are completed a second from the first one on.
async fn tasks(hub: &HubClient, count: usize) -> Result<(f64, f64), HubFailure> {
    let started = Instant::now();
    let creator = hub.clone();
    let created = requests(count, move |_| {
        let hub = creator.clone();
        async move {
            hub.create_task("mock", &RestNewTask::new("write", text("hello"))).await?;
            Ok(())
        }
    })
    .await?;
    let mut filter = TaskFilter::default();
    filter.state = Some(RestStateFilter::Completed);
    while hub.tasks("mock", &filter).await?.pagination.total < count as u64 {
        tokio::time::sleep(POLL).await;
    }
    Ok((created, rate(count, started.elapsed())))
}

async fn agents(hub: &HubClient, count: usize) -> Result<(f64, f64), HubFailure> {
    let one = hub.clone();
    let registered = requests(count, move |number| {
        let hub = one.clone();
        async move {
            hub.register(&format!("agent-{number}"), &RestRegistration::default()).await?;
            Ok(())
        }
    })
    .await?;
    let one = hub.clone();
    let heartbeats = requests(count, move |number| {
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
async fn queue(hub: &HubClient, count: usize) -> Result<(f64, f64), HubFailure> {
    let sender = hub.clone();
    let queued = requests(count, move |_| {
        let hub = sender.clone();
        async move {
            hub.send_message("agent-0", &RestNewMessage::new("note", text("hello"))).await?;
            Ok(())
        }
    })
    .await?;
    let taker = hub.clone();
    let taken = requests(count, move |_| {
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
async fn sessions(hub: &MeasuredHub, count: usize) -> Result<f64, HubFailure> {
    let before = hub.memory(RESIDENT)?;
    let url = format!("{}/acp/mock", hub.address);
    let client = Client::new(()).connect_url(&url, hub.options()).await?;
    let mut open = Vec::new();
    for _ in 0..count {
        open.push(client.new_session(&hub.folder).await?);
    }
    Ok((hub.memory(RESIDENT)? - before) * 1024.0 / count as f64)
}
