//! The resolution of names.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use duologue_rpc::Lock as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The future of [`Resolver::resolve`].
pub type ResolveFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Finds the addresses of a name.
pub trait Resolver: Send + Sync + 'static {
    /// Returns all addresses of a name. The caller checks them, and limits the time.
    fn resolve<'a>(&'a self, name: &'a str) -> ResolveFuture<'a>;
}

/// The resolver of the system. A look-up occupies a thread until the system gives up.
pub(crate) struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> ResolveFuture<'a> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// The places of look-ups. Each principal has some of its own, so names that are slow delay its own requests.
pub(crate) struct Lookups {
    limit: usize,
    principals: Mutex<HashMap<String, Arc<Semaphore>>>,
    all: Arc<Semaphore>,
}

/// The place of a look-up.
pub(crate) type LookupPlace = [Option<OwnedSemaphorePermit>; 2];

impl Lookups {
    pub(crate) fn new(for_one: usize, for_all: usize) -> Self {
        let limit = for_one.clamp(1, Semaphore::MAX_PERMITS);
        let all = Arc::new(Semaphore::new(for_all.clamp(1, Semaphore::MAX_PERMITS)));
        Lookups { limit, principals: Mutex::default(), all }
    }

    /// Waits for a place of a principal.
    pub(crate) async fn place(&self, principal: &str) -> LookupPlace {
        let own = {
            let mut principals = self.principals.lock_unpoisoned();
            // A principal without a look-up has all its places.
            principals.retain(|_, own| Arc::strong_count(own) > 1);
            let own = principals.entry(principal.to_owned());
            own.or_insert_with(|| Arc::new(Semaphore::new(self.limit))).clone()
        };
        // The semaphores are never closed.
        [own.acquire_owned().await.ok(), self.all.clone().acquire_owned().await.ok()]
    }
}
