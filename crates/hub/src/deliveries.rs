//! The worker that sends the posts of the outbox: callbacks and chunks.
//!
//! The store leases posts: one of a stream is out at a time, in order. The worker signs and sends them, and records
//! the result. A post whose result cannot be recorded, because the process has died, is sent again with the same id.

mod policy;
mod slots;
mod worker;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use duologue_store::{OutboxEntry, Store};
use hyper::HeaderMap;

pub(crate) use policy::honoured_wait;

use crate::clock::HubClock;
use crate::outbound::{OutboundClient, OutboundError, OutboundResponse};

/// The settings of [`Deliveries`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeliverySettings {
    /// The longest pause after the first attempt, 100 ms. It doubles with each further one. A pause is a random part of it.
    pub first_delay: Duration,
    /// The longest pause, 5 minutes.
    pub max_delay: Duration,
    /// The most attempts, 1,000. Then a callback is given up, and a stream of chunks ends.
    pub attempts: u32,
    /// The age with which a post is given up, 24 hours. It counts from the eighth attempt on.
    pub age: Duration,
    /// The longest `Retry-After` that is honoured, 1 hour. A longer one counts as this.
    pub retry_after: Duration,
    /// The posts that run at the same time, 64. One principal has at most as many of these places as it leaves to others: 32 if
    /// it is alone. So its slow receivers do not delay the posts of others.
    pub concurrent: usize,
    /// The posts to one host and port that run at the same time, 8. One principal has at most as many of these places
    /// as it leaves to others: 4 if it is alone.
    pub per_host: usize,
    /// The posts that wait in memory for a place, 1,024. Then no more are taken from the store.
    pub waiting: usize,
    /// The same for one principal, 64. Further ones return to the store for a random pause, as after an attempt.
    pub waiting_per_principal: usize,
    /// The time for which a post is taken from the store, 5 minutes. An attempt may take half of it.
    pub lease: Duration,
    /// The time for running posts when the worker stops, 5 seconds. What is not finished then is sent again later.
    pub stop_grace: Duration,
}

impl Default for DeliverySettings {
    fn default() -> Self {
        DeliverySettings {
            first_delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(5 * 60),
            attempts: 1000,
            age: Duration::from_secs(24 * 60 * 60),
            retry_after: Duration::from_secs(60 * 60),
            concurrent: 64,
            per_host: 8,
            waiting: 1024,
            waiting_per_principal: 64,
            lease: Duration::from_secs(5 * 60),
            stop_grace: Duration::from_secs(5),
        }
    }
}

/// The future of [`OutboundPost::post`].
pub type PostFuture<'a> = Pin<Box<dyn Future<Output = Result<OutboundResponse, OutboundError>> + Send + 'a>>;

/// Sends the posts of [`Deliveries`]: an [`OutboundClient`], or a receiver that a test plays.
pub trait OutboundPost: Send + Sync + 'static {
    /// Sends a POST and returns the status of the response.
    fn post<'a>(&'a self, request: PostRequest<'a>) -> PostFuture<'a>;
}

/// A POST of [`Deliveries`].
#[derive(Debug, Clone)]
pub struct PostRequest<'a> {
    /// The principal whose work is reported.
    pub principal: &'a str,
    /// The address.
    pub url: &'a str,
    /// The headers, with the id and the signature of the post.
    pub headers: HeaderMap,
    /// The body, which is JSON.
    pub body: Bytes,
}

impl OutboundPost for OutboundClient {
    fn post<'a>(&'a self, request: PostRequest<'a>) -> PostFuture<'a> {
        let PostRequest { principal, url, headers, body } = request;
        Box::pin(OutboundClient::post(self, principal, url, headers, body))
    }
}

/// The worker that sends the posts of the outbox. A store has one.
///
/// | response | consequence |
/// | --- | --- |
/// | 2xx | delivered |
/// | 410 | the post and all waiting ones of its stream are given up |
/// | other 4xx, but not 408, 425 and 429 | the post is given up; with a chunk, the rest of its stream too |
/// | an address that is refused | the same |
/// | none, because the principal is disabled | the post and all waiting ones of its stream are given up |
/// | anything else, or none | again after a random pause, until `attempts` or `age` is reached |
///
/// A chunk after a given-up one of its stream is given up without being sent, because positions have no holes.
///
/// Each attempt is signed with the webhook secret of the principal (see [`WebhookSecret`](crate::WebhookSecret)); the
/// secret's UTF-8 text is the key. Without a secret there is no signature.
pub struct Deliveries {
    store: Arc<dyn Store>,
    post: Arc<dyn OutboundPost>,
    clock: HubClock,
    settings: DeliverySettings,
}

impl Deliveries {
    /// Creates a worker. The clock is the one of all calls of the store.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        post: impl OutboundPost,
        clock: HubClock,
        settings: DeliverySettings,
    ) -> Self {
        Deliveries { store, post: Arc::new(post), clock, settings }
    }

    /// Sends posts until `stop` resolves. Then it waits for running ones, at most
    /// [`stop_grace`](DeliverySettings::stop_grace), and returns the others to the store.
    ///
    /// If this future is dropped, running posts end, and are sent again after their lease.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        worker::run(self, stop).await;
    }

    /// Returns the id of a post for its receiver, which is the same in all attempts. It contains the time of creation, because
    /// another store, or a restored one, numbers its posts anew.
    #[must_use]
    pub fn delivery_id(entry: &OutboxEntry) -> String {
        format!("{:x}-{:x}", entry.created, entry.id)
    }
}

impl std::fmt::Debug for Deliveries {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Deliveries").field("settings", &self.settings).finish_non_exhaustive()
    }
}
