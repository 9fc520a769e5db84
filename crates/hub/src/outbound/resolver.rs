//! The resolution of names.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::Semaphore;

/// The future of [`Resolver::resolve`].
pub type ResolveFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Finds the addresses of a name.
pub trait Resolver: Send + Sync + 'static {
    /// Returns all addresses of a name. The caller checks them, and limits the time.
    fn resolve<'a>(&'a self, name: &'a str) -> ResolveFuture<'a>;
}

/// The resolver of the system.
///
/// A look-up occupies a thread until the system gives up, also if nobody waits for it any more. So their number is
/// limited.
pub(crate) struct SystemResolver {
    lookups: Arc<Semaphore>,
}

impl SystemResolver {
    pub(crate) fn new(lookups: usize) -> Self {
        SystemResolver { lookups: Arc::new(Semaphore::new(lookups.clamp(1, Semaphore::MAX_PERMITS))) }
    }
}

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> ResolveFuture<'a> {
        Box::pin(async move {
            let permit = self.lookups.clone().acquire_owned().await.map_err(io::Error::other)?;
            let name = name.to_owned();
            let lookup = tokio::spawn(async move {
                let found = tokio::net::lookup_host((name, 0)).await;
                drop(permit);
                found.map(|found| found.map(|address| address.ip()).collect())
            });
            lookup.await.map_err(io::Error::other)?
        })
    }
}
