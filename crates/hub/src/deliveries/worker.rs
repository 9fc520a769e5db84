//! The loop of the worker, and one attempt.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use duologue_rpc::Lock as _;
use duologue_schema::TraceContext;
use duologue_store::{
    Claim, Claimed, Error as StoreError, LeaseToken, Leased, OutboxEntry, OutboxKind, OutboxQuery,
    OutboxState, Store, StoreBatch, StoreChange, StoreTopic,
};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use tokio::sync::watch;
use tokio::task::{Id, JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep_until, timeout};

use crate::clock::HubClock;
use crate::deliveries::policy::{DeliveryFailure, DeliveryVerdict, decide, jitter};
use crate::deliveries::slots::{DeliverySlots, SlotKey, WaitingPost};
use crate::deliveries::{Deliveries, DeliverySettings, OutboundPost, PostRequest};
use crate::outbound::{OutboundResponse, OutboundUrl};
use crate::webhook::{DELIVERY_ID, DELIVERY_TIMESTAMP, WebhookSecret};

/// The most posts of one claim, whose bodies are in memory together.
const CLAIMED: usize = 16;
/// The name of the worker in lists of the store.
const WORKER: &str = "deliveries";
/// The error of a post without a place.
const BUSY: &str = "too many posts of this principal wait; raise `DeliverySettings::waiting_per_principal`";
/// The error of a post that a stop has interrupted.
const STOPPED: &str = "the server stopped before there was a response";
/// The least pause before a due time, against a loop.
const LEAST_PAUSE: Duration = Duration::from_millis(1);
/// The pause after an error of the store.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// The parts that attempts share.
struct Shared {
    store: Arc<dyn Store>,
    post: Arc<dyn OutboundPost>,
    clock: HubClock,
    settings: DeliverySettings,
    /// True from the moment on in which running posts are not waited for any more.
    is_stopping: watch::Sender<bool>,
    /// The posts that were delivered, although the store could not record it. They are not sent again in this life.
    acknowledged: Mutex<HashSet<u64>>,
}

/// The state of the loop.
struct Worker {
    shared: Arc<Shared>,
    slots: DeliverySlots,
    tasks: JoinSet<()>,
    running: HashMap<Id, SlotKey>,
}

pub(super) async fn run(deliveries: Deliveries, stop: impl Future<Output = ()> + Send) {
    let Deliveries { store, post, clock, settings } = deliveries;
    let mut changes = store.watch(&StoreTopic::Outbox);
    let (is_stopping, _) = watch::channel(false);
    let shared =
        Arc::new(Shared { store, post, clock, settings, is_stopping, acknowledged: Mutex::default() });
    let mut worker =
        Worker { shared, slots: DeliverySlots::default(), tasks: JoinSet::new(), running: HashMap::new() };
    let mut stop = pin!(stop);
    loop {
        // A change after this is seen below.
        changes.take_changed();
        // It is never dropped half-way, because its posts are leased then.
        let due = worker.claim().await;
        let has_room = worker.slots.room(&worker.shared.settings) > 0;
        let timer = sleep_until(due.unwrap_or_else(Instant::now));
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(ended) = worker.tasks.join_next_with_id() => worker.ended(&ended),
            // Changes matter only if there is room for posts.
            () = changes.changed(), if has_room => {}
            () = timer, if due.is_some() => {}
        }
    }
    worker.stop().await;
}

impl Worker {
    /// Takes posts from the store and begins those that have a place. Returns the time of the next claim, if it does
    /// not depend on a change of the store or the end of an attempt.
    async fn claim(&mut self) -> Option<Instant> {
        let room = self.slots.room(&self.shared.settings).min(CLAIMED);
        if room == 0 {
            return None;
        }
        let claimed = match self.shared.blocking(move |shared| shared.claim(room)).await {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::error!(%error, "the outbox cannot be read; retrying");
                return Some(Instant::now() + STORE_PAUSE);
            }
        };
        let is_full = claimed.entries.len() >= room;
        let busy: Vec<_> = claimed.entries.into_iter().filter_map(|leased| self.place(leased)).collect();
        if !busy.is_empty() {
            self.shared.blocking(move |shared| shared.put_back(&busy)).await;
        }
        if is_full {
            return Some(Instant::now());
        }
        let due = self.shared.clock.instant(claimed.next_due?)?;
        Some(due.max(Instant::now() + LEAST_PAUSE))
    }

    /// Begins a post, lets it wait, or returns it.
    fn place(&mut self, leased: Leased<OutboxEntry>) -> Option<WaitingPost> {
        let host = OutboundUrl::parse(&leased.entry.url, usize::MAX);
        let key = SlotKey {
            host: host.map(|url| url.authority()).unwrap_or_default(),
            principal: leased.entry.principal.clone(),
        };
        let is_free = self.slots.take(&key, &self.shared.settings);
        let Leased { entry, lease } = leased;
        let post = WaitingPost { id: entry.id, attempts: entry.attempts, lease, key };
        if is_free {
            self.begin(post, Some(entry));
            return None;
        }
        self.slots.wait(post, &self.shared.settings)
    }

    /// Starts the task of a post, which has its place.
    fn begin(&mut self, post: WaitingPost, entry: Option<OutboxEntry>) {
        let WaitingPost { id, lease, key, .. } = post;
        let shared = self.shared.clone();
        let task = self.tasks.spawn(async move { shared.attempt(id, lease, entry).await });
        self.running.insert(task.id(), key);
    }

    /// Releases the place of an attempt and begins waiting posts.
    fn ended(&mut self, ended: &Result<(Id, ()), tokio::task::JoinError>) {
        let id = match ended {
            Ok((id, ())) => *id,
            Err(error) => {
                tracing::error!(%error, "an attempt to deliver has failed; it is repeated after its lease");
                error.id()
            }
        };
        if let Some(key) = self.running.remove(&id) {
            self.slots.release(&key);
        }
        while let Some(post) = self.slots.next(&self.shared.settings) {
            self.begin(post, None);
        }
    }

    /// Returns waiting posts to the store, and waits for running ones. Those that take too long return too.
    async fn stop(mut self) {
        let waiting: Vec<_> = self.slots.drain().collect();
        self.shared.blocking(move |shared| waiting.iter().for_each(|post| shared.stopped(post.lease))).await;
        let grace = self.shared.settings.stop_grace;
        let tasks = &mut self.tasks;
        let _ = timeout(grace, async { while tasks.join_next().await.is_some() {} }).await;
        self.shared.is_stopping.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

/// An attempt that can be made.
struct Prepared {
    entry: OutboxEntry,
    headers: HeaderMap,
}

impl Shared {
    /// Runs a call of the store on a thread for blocking work.
    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        call: impl FnOnce(&Shared) -> T + Send + 'static,
    ) -> T {
        let shared = self.clone();
        match spawn_blocking(move || call(&shared)).await {
            Ok(value) => value,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime shuts down, and so does this task.
                Err(_) => std::future::pending().await,
            },
        }
    }

    fn claim(&self, max: usize) -> Result<Claimed<OutboxEntry>, StoreError> {
        let claim = Claim::new(self.clock.now(), self.settings.lease, WORKER).max(max);
        self.store.claim_deliveries(&claim)
    }

    /// Returns posts without a place to the store. Their pauses grow, so that many of them are no load.
    fn put_back(&self, posts: &[WaitingPost]) {
        let mut batch = StoreBatch::new(self.clock.now()).accepted();
        for post in posts {
            let delay = jitter(post.attempts, &self.settings, random);
            let error = BUSY.to_owned();
            batch.push(StoreChange::DeliveryFailed { lease: post.lease, delay, error });
        }
        if let Err(error) = self.store.apply(batch) {
            tracing::debug!(%error, "leases are left to their end");
        }
    }

    /// Returns a post that was not begun to the store.
    fn stopped(&self, lease: LeaseToken) {
        self.apply_now(StoreChange::DeliveryFailed {
            lease,
            delay: Duration::ZERO,
            error: STOPPED.to_owned(),
        });
    }

    /// Makes an attempt and records its result. A post that has waited is read again.
    async fn attempt(self: Arc<Self>, id: u64, lease: LeaseToken, entry: Option<OutboxEntry>) {
        let prepared = self.blocking(move |shared| shared.prepare(id, lease, entry)).await;
        let verdict = match prepared {
            Ok(Some(prepared)) => self.send(prepared).await,
            Ok(None) => return,
            Err(verdict) => verdict,
        };
        if verdict == DeliveryVerdict::Delivered {
            self.acknowledged.lock_unpoisoned().insert(id);
        }
        let change = match verdict {
            DeliveryVerdict::Delivered => StoreChange::Delivered { lease },
            DeliveryVerdict::Retry { delay, error } => {
                tracing::debug!(id, ?delay, error, "a delivery is repeated");
                StoreChange::DeliveryFailed { lease, delay, error }
            }
            DeliveryVerdict::GiveUp { error, whole_stream } => {
                tracing::warn!(id, error, whole_stream, "a delivery is given up");
                StoreChange::GiveUpDelivery { lease, error, whole_stream }
            }
        };
        let is_delivery = matches!(change, StoreChange::Delivered { .. });
        while let Err(error) = {
            let change = change.clone();
            self.blocking(move |shared| shared.apply(change)).await
        } {
            if matches!(error, StoreError::LeaseLost { .. } | StoreError::NoRecord { .. }) {
                tracing::warn!(id, %error, "the result of a delivery came too late");
                return;
            }
            tracing::error!(id, %error, "the result of a delivery cannot be recorded; retrying");
            let mut stopping = self.is_stopping.subscribe();
            if timeout(STORE_PAUSE, stopping.wait_for(|is_stopping| *is_stopping)).await.is_ok() {
                return;
            }
        }
        if is_delivery {
            self.acknowledged.lock_unpoisoned().remove(&id);
        }
    }

    /// Returns the parts of an attempt, `None` if another worker has the post, or the result without an attempt.
    fn prepare(
        &self,
        id: u64,
        lease: LeaseToken,
        entry: Option<OutboxEntry>,
    ) -> Result<Option<Prepared>, DeliveryVerdict> {
        if self.acknowledged.lock_unpoisoned().contains(&id) {
            return Err(DeliveryVerdict::Delivered);
        }
        let entry = match entry {
            Some(entry) => entry,
            // It has waited.
            None => {
                let lasts = self.settings.lease;
                if !self.apply_now(StoreChange::RenewLease { lease, lasts }) {
                    return Ok(None);
                }
                match self.store.delivery(id) {
                    Ok(Some(entry)) => entry,
                    Ok(None) => return Ok(None),
                    Err(error) => return Err(self.later(error)),
                }
            }
        };
        if entry.kind == OutboxKind::Chunk && entry.position > 0 {
            let mut query = OutboxQuery::default();
            query.stream = Some(entry.stream.clone());
            query.state = Some(OutboxState::GivenUp);
            query.limit = 1;
            let stopped = self.store.deliveries(&query).map_err(|error| self.later(error))?;
            if stopped.total > 0 {
                let error = "an earlier chunk of the stream was given up".to_owned();
                return Err(DeliveryVerdict::GiveUp { error, whole_stream: true });
            }
        }
        let headers = self.headers(&entry)?;
        Ok(Some(Prepared { entry, headers }))
    }

    fn headers(&self, entry: &OutboxEntry) -> Result<HeaderMap, DeliveryVerdict> {
        let principal = self.store.principal(&entry.principal).map_err(|error| self.later(error))?;
        if principal.as_ref().is_some_and(|principal| principal.disabled) {
            let error = format!("the principal {:?} is disabled", entry.principal);
            return Err(DeliveryVerdict::GiveUp { error, whole_stream: true });
        }
        let (id, wall) = (Deliveries::delivery_id(entry), self.clock.now().wall);
        let mut headers = match principal.and_then(|principal| principal.webhook_secret) {
            Some(secret) => {
                let signed = WebhookSecret::new(secret.as_str())
                    .and_then(|secret| secret.sign(wall, &id, entry.body.as_str().as_bytes()));
                signed.map_err(|error| self.failed(entry, error.to_string()))?
            }
            None => {
                let mut headers = HeaderMap::new();
                headers.insert(DELIVERY_TIMESTAMP, HeaderValue::from(wall));
                if let Ok(id) = HeaderValue::from_str(&id) {
                    headers.insert(DELIVERY_ID, id);
                }
                headers
            }
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(trace) = entry.trace.as_deref().and_then(|trace| HeaderValue::from_str(trace).ok()) {
            headers.insert(TraceContext::TRACEPARENT, trace);
        }
        Ok(headers)
    }

    /// Returns the result of an attempt that the store prevents.
    fn later(&self, error: StoreError) -> DeliveryVerdict {
        DeliveryVerdict::Retry { delay: self.settings.first_delay, error: error.to_string() }
    }

    /// Returns the result of an attempt that fails for a reason that may pass.
    fn failed(&self, entry: &OutboxEntry, error: String) -> DeliveryVerdict {
        self.decide(entry, Err(DeliveryFailure { error, is_permanent: false }))
    }

    fn decide(
        &self,
        entry: &OutboxEntry,
        result: Result<OutboundResponse, DeliveryFailure>,
    ) -> DeliveryVerdict {
        decide(entry, result, &self.settings, self.clock.now().wall, random)
    }

    async fn send(&self, prepared: Prepared) -> DeliveryVerdict {
        let Prepared { entry, headers } = prepared;
        let body = Bytes::from(entry.body.as_str().to_owned());
        let request = PostRequest { principal: &entry.principal, url: &entry.url, headers, body };
        let mut stopping = self.is_stopping.subscribe();
        // A longer attempt would outlive its lease.
        let limit = self.settings.lease / 2;
        tokio::select! {
            biased;
            result = timeout(limit, self.post.post(request)) => match result {
                Ok(result) => self.decide(&entry, result.map_err(DeliveryFailure::from)),
                Err(_) => self.failed(&entry, format!("no response within {limit:?} (`DeliverySettings::lease`)")),
            },
            _ = stopping.wait_for(|is_stopping| *is_stopping) => {
                DeliveryVerdict::Retry { delay: Duration::ZERO, error: STOPPED.to_owned() }
            }
        }
    }

    /// Applies a change that survives the end of the process.
    fn apply(&self, change: StoreChange) -> Result<(), StoreError> {
        self.store.apply(StoreBatch::new(self.clock.now()).accepted().with(change)).map(drop)
    }

    /// Applies a change once, and returns false if that fails. The lease ends by itself then.
    fn apply_now(&self, change: StoreChange) -> bool {
        self.apply(change).inspect_err(|error| tracing::debug!(%error, "a lease is left to its end")).is_ok()
    }
}

/// Returns a random number up to another one.
fn random(most: u64) -> u64 {
    fastrand::u64(0..=most)
}
