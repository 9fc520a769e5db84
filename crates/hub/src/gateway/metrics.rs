//! The numbers for an operator, in the text format of Prometheus.
//!
//! The labels have bounded sets of values: agents of the configuration, states, bands, codes and operations. Nothing of
//! a session, a principal or a request is a label.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use duologue_schema::envelope::TaskState;
use duologue_store::{BatchObserver, OutboxState, QueueDepth, StoreStatistics, StoreTime};
use prometheus_client::encoding::prometheus_text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::sync::Mutex;

use crate::deliveries::{OutboundPost, PostFuture, PostRequest};
use crate::gateway::{GatewayShared, Refusal, RefusalCode};
use crate::hub::{ProcessEvent, ProcessObserver};

/// The label of agents that are not in the configuration.
const OTHER: &str = "other";
/// The bounds of the buckets of times, in seconds.
const SECONDS: [f64; 12] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

type OneLabel = [(&'static str, &'static str); 1];
type AgentLabel = [(&'static str, String); 1];
type AgentLabels = [(&'static str, String); 2];
type QueueLabels = [(&'static str, String); 3];

fn times() -> Histogram {
    Histogram::new(SECONDS)
}

/// The metrics of a gateway.
pub(crate) struct GatewayMetrics {
    registry: Registry,
    refusals: Family<OneLabel, Counter>,
    requests: Family<OneLabel, Histogram, fn() -> Histogram>,
    deliveries: Family<OneLabel, Counter>,
    batches: Histogram,
    processes: Family<AgentLabel, Gauge>,
    /// Those that are read from the store and the hubs for each response. One response at a time sets them.
    read: Mutex<ReadGauges>,
}

#[derive(Default)]
struct ReadGauges {
    sessions: Family<AgentLabel, Gauge>,
    connections: Family<AgentLabel, Gauge>,
    log_bytes: Family<AgentLabel, Gauge>,
    tasks: Family<AgentLabels, Gauge>,
    queue_entries: Family<QueueLabels, Gauge>,
    queue_oldest: Family<QueueLabels, Gauge>,
    outbox: Family<OneLabel, Gauge>,
    outbox_oldest: Gauge,
    draining: Gauge,
}

impl GatewayMetrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("duologue");
        let read = ReadGauges::default();
        let refusals = Family::default();
        let requests = Family::new_with_constructor(times as fn() -> Histogram);
        let (deliveries, batches, processes) = (Family::default(), times(), Family::default());
        let add = &mut registry;
        add.register("sessions", "Sessions that are open", read.sessions.clone());
        add.register("connections", "Clients of sessions that are connected", read.connections.clone());
        add.register("processes", "Processes of agents that run", processes.clone());
        add.register("log_bytes", "Bytes of the logs of sessions on the disk", read.log_bytes.clone());
        add.register("tasks", "Tasks in the store", read.tasks.clone());
        add.register(
            "queue_entries",
            "Messages and tasks that wait for their agent",
            read.queue_entries.clone(),
        );
        add.register("queue_oldest_seconds", "Age of the oldest one of these", read.queue_oldest.clone());
        add.register("outbox_posts", "Callbacks and chunks in the store", read.outbox.clone());
        add.register(
            "outbox_oldest_seconds",
            "Age of the oldest one that was not sent",
            read.outbox_oldest.clone(),
        );
        add.register("draining", "1 while the server is being stopped", read.draining.clone());
        add.register("deliveries", "Attempts to send a callback or chunk", deliveries.clone());
        add.register("refusals", "Requests that were refused", refusals.clone());
        add.register("request_seconds", "Time of requests, streams until their first byte", requests.clone());
        add.register("store_batch_seconds", "Time of changes of the store", batches.clone());
        GatewayMetrics {
            registry,
            refusals,
            requests,
            deliveries,
            batches,
            processes,
            read: Mutex::new(read),
        }
    }

    /// Counts a refused request.
    pub(crate) fn refused(&self, code: RefusalCode) {
        self.refusals.get_or_create(&[("code", code.as_str())]).inc();
    }

    /// Counts a request. `operation` is an operation of the description.
    pub(crate) fn requested(&self, operation: &'static str, took: Duration) {
        self.requests.get_or_create(&[("operation", operation)]).observe(took.as_secs_f64());
    }

    /// Returns the receiver of the times of batches.
    pub(crate) fn batch_observer(&self) -> BatchObserver {
        let batches = self.batches.clone();
        BatchObserver::new(move |took| batches.observe(took.as_secs_f64()))
    }

    /// Returns a receiver of the processes of an agent, which passes them on.
    pub(crate) fn process_observer(&self, agent: &str, next: Option<ProcessObserver>) -> ProcessObserver {
        let running = self.processes.get_or_create_owned(&[("agent", agent.to_owned())]);
        ProcessObserver::new(move |event| {
            match event {
                ProcessEvent::Started(_) => running.inc(),
                ProcessEvent::Ended(_) => running.dec(),
            };
            if let Some(next) = &next {
                next.report(event);
            }
        })
    }

    /// Returns a sender of posts that counts its attempts.
    pub(crate) fn counted_posts(&self, inner: impl OutboundPost) -> CountedPosts {
        CountedPosts { inner: Arc::new(inner), attempts: self.deliveries.clone() }
    }
}

/// A sender of posts that counts them by their result.
pub(crate) struct CountedPosts {
    inner: Arc<dyn OutboundPost>,
    attempts: Family<OneLabel, Counter>,
}

impl OutboundPost for CountedPosts {
    fn post<'a>(&'a self, request: PostRequest<'a>) -> PostFuture<'a> {
        Box::pin(async move {
            let result = self.inner.post(request).await;
            let outcome = match &result {
                Ok(response) if response.status.is_success() => "accepted",
                Ok(_) => "rejected",
                Err(_) => "failed",
            };
            self.attempts.get_or_create(&[("outcome", outcome)]).inc();
            result
        })
    }
}

impl GatewayShared {
    /// Returns all metrics as text.
    pub(crate) async fn metrics_text(self: &Arc<Self>) -> Result<String, Refusal> {
        let statistics = self.in_store(|store| store.statistics()).await?;
        let gateway = self.clone();
        // The files are read on a thread for blocking work.
        let log_bytes = tokio::task::spawn_blocking(move || gateway.log_bytes()).await;
        let read = self.metrics.read.lock().await;
        read.set_store(self, &statistics, self.time());
        for gauge in [&read.sessions, &read.connections, &read.log_bytes] {
            gauge.clear();
        }
        for (agent, entry) in self.all_hosted() {
            let label = [("agent", self.agent_label(&agent))];
            let (sessions, connections) = entry.hub.counts();
            read.sessions.get_or_create(&label).inc_by(int(sessions as u64));
            read.connections.get_or_create(&label).inc_by(int(connections as u64));
        }
        for (agent, bytes) in log_bytes.unwrap_or_default() {
            read.log_bytes.get_or_create(&[("agent", self.agent_label(&agent))]).inc_by(int(bytes));
        }
        read.draining.set(i64::from(self.is_draining()));
        let mut text = String::new();
        let written = encode(&mut text, &self.metrics.registry);
        drop(read);
        written.map_err(|_| Refusal::new(RefusalCode::Internal, "the metrics could not be written"))?;
        Ok(text)
    }

    fn log_bytes(&self) -> Vec<(String, u64)> {
        let sizes = self.all_hosted().into_iter().map(|(agent, entry)| {
            let bytes = entry.hub.log_bytes().inspect_err(|error| {
                tracing::error!(%error, agent = agent.as_str(), "the size of the logs cannot be read");
            });
            (agent, bytes.unwrap_or_default())
        });
        sizes.collect()
    }

    /// Returns the label of an agent. Those that others have registered share one.
    fn agent_label(&self, agent: &str) -> String {
        let is_configured = self.config.agents.iter().any(|entry| entry.id == agent);
        if is_configured { agent.to_owned() } else { OTHER.to_owned() }
    }
}

impl ReadGauges {
    fn set_store(&self, gateway: &GatewayShared, statistics: &StoreStatistics, time: StoreTime) {
        // Labels without a record any more are not reported.
        self.tasks.clear();
        self.queue_entries.clear();
        self.queue_oldest.clear();
        self.outbox.clear();
        for task in &statistics.tasks {
            let state = match &task.state {
                TaskState::Unknown(_) => OTHER,
                state => state.as_str(),
            };
            let labels = [("agent", gateway.agent_label(&task.agent)), ("state", state.to_owned())];
            self.tasks.get_or_create(&labels).inc_by(int(task.count));
        }
        let waiting = [("tasks", &statistics.waiting_tasks), ("messages", &statistics.waiting_messages)];
        for (queue, depths) in waiting {
            for (labels, (count, age)) in depths_by_label(gateway, queue, depths, time) {
                self.queue_entries.get_or_create(&labels).set(int(count));
                self.queue_oldest.get_or_create(&labels).set(int(age));
            }
        }
        self.outbox_oldest.set(0);
        for posts in &statistics.outbox {
            let state = match posts.state {
                OutboxState::Pending => "pending",
                OutboxState::Delivered => "delivered",
                _ => "given_up",
            };
            self.outbox.get_or_create(&[("state", state)]).set(int(posts.count));
            if posts.state == OutboxState::Pending {
                self.outbox_oldest.set(int(age(posts.oldest, time)));
            }
        }
    }
}

/// Returns the number of entries and the greatest age in seconds.
fn depths_by_label(
    gateway: &GatewayShared,
    queue: &str,
    depths: &[QueueDepth],
    time: StoreTime,
) -> HashMap<QueueLabels, (u64, u64)> {
    let mut found: HashMap<QueueLabels, (u64, u64)> = HashMap::new();
    for depth in depths {
        let agent = gateway.agent_label(&depth.agent);
        let labels = [("queue", queue.to_owned()), ("agent", agent), ("band", depth.band.to_string())];
        let (count, oldest) = found.entry(labels).or_default();
        *count += depth.count;
        *oldest = (*oldest).max(age(depth.oldest, time));
    }
    found
}

fn age(created: u64, time: StoreTime) -> u64 {
    time.wall.saturating_sub(created) / 1_000
}

fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
