//! The accept loop: limits of connections, and a time limit for the head of each request.

use std::any::Any;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::http::header::AUTHORIZATION;
use axum::http::{Extensions, HeaderValue, Request, StatusCode};
use axum::serve::Listener;
use duologue_rpc::Lock as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::server::client_certificate::KnownPeer;
use crate::server::options::ServerOptions;
use crate::server::stalling_output::{StallingOutput, UpgradeMark};

/// Serves a router to the clients of a listener until the future is dropped. Open connections go on until the runtime ends.
///
/// A connection that sends no complete head within [`ServerOptions::handshake_timeout`] is closed, before the first
/// request and between two of them. One above [`ServerOptions::sockets`], [`ServerOptions::requests`] and
/// [`ServerOptions::strangers`] together is closed at once. Connections without an accepted request have at most
/// [`ServerOptions::strangers`] places; a new one takes the place of the oldest. One whose client takes nothing of a
/// response for [`ServerOptions::stall_timeout`] ends.
///
/// `credential` is the header `Authorization` of requests that have none.
pub(super) async fn serve_connections<L: Listener<Addr: Debug + 'static, Io: KnownPeer>>(
    mut listener: L,
    router: Router,
    options: &ServerOptions,
    credential: Option<HeaderValue>,
) -> Infallible {
    let limit = options.sockets.saturating_add(options.requests).saturating_add(options.strangers);
    let permits = Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS)));
    let mut strangers = Strangers { limit: options.strangers.max(1), connections: VecDeque::new() };
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(options.handshake_timeout).max_buf_size(HEAD_BYTES);
    loop {
        let (io, peer) = listener.accept().await;
        let Some((permit, standing)) = admit(&permits, &mut strangers) else {
            let remedy = "raise `ServerOptions::sockets`, `requests` or `strangers`";
            options.refusals.note_connection(peer, &format!("connection limit reached ({limit}); {remedy}"));
            continue;
        };
        let router = TowerToHyperService::new(router.clone());
        let (mut known, credential) = (Extensions::new(), credential.clone());
        io.introduce(&mut known);
        known.insert(standing.clone());
        let is_upgraded = UpgradeMark::default();
        let output = StallingOutput::new(io, options.stall_timeout, is_upgraded.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().extend(known.clone());
            let headers = request.headers_mut();
            if let Some(credential) = &credential
                && !headers.contains_key(AUTHORIZATION)
                && !headers.contains_key(API_KEY)
            {
                headers.insert(AUTHORIZATION, credential.clone());
            }
            let (response, is_upgraded) = (router.call(request), is_upgraded.clone());
            async move {
                let response = response.await?;
                if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                    is_upgraded.set();
                }
                Ok::<_, Infallible>(response)
            }
        });
        http.auto_date_header(has_date());
        let connection = http.serve_connection(TokioIo::new(output), service).with_upgrades();
        let refusals = options.refusals.clone();
        let open = OpenConnection(standing);
        tokio::spawn(async move {
            tokio::select! {
                // A WebSocket has its own permit, and the place of its user, when this ends.
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(%error, "a connection has failed");
                },
                () = open.0.0.displaced.notified() => {
                    let reason = "newer connections took its place (`ServerOptions::strangers`)";
                    refusals.note_connection(peer, reason);
                }
            }
            drop((open, permit));
        });
    }
}

/// Gives a connection a place. One without a place takes that of no stranger.
fn admit(
    permits: &Arc<Semaphore>,
    strangers: &mut Strangers,
) -> Option<(OwnedSemaphorePermit, ConnectionStanding)> {
    let permit = permits.clone().try_acquire_owned().ok()?;
    Some((permit, strangers.add()))
}

/// The longest head of a request, and the buffer for reading from a connection.
const HEAD_BYTES: usize = 32 * 1024;

/// The header of a key, which a request can have in the place of `Authorization`.
const API_KEY: &str = "x-api-key";

/// The connection of a request, as an extension of the request.
#[derive(Clone, Debug, Default)]
pub struct ConnectionStanding(Arc<Standing>);

#[derive(Debug, Default)]
struct Standing {
    is_accepted: AtomicBool,
    displaced: Notify,
    /// The user of the last allowed request, and the place of the connection among those of the user.
    place: Mutex<Option<(Arc<str>, ConnectionPlace)>>,
}

/// The place of a connection among those of its user. Dropping it gives the place back.
pub(super) type ConnectionPlace = Box<dyn Any + Send>;

impl ConnectionStanding {
    /// Notes that a request was allowed, so that no connection of a stranger takes the place of this one. `extensions` are
    /// those of the request.
    pub fn accept(extensions: &Extensions) {
        if let Some(ConnectionStanding(standing)) = extensions.get() {
            standing.is_accepted.store(true, Relaxed);
        }
    }

    /// As [`accept`](Self::accept), for a request of a user who has a number of places. `take` takes one of them, unless the
    /// connection has one of this user. It is dropped with the connection or its WebSocket, or when the connection has
    /// an allowed request of another user. Returns false if `take` has no place; then nothing is noted.
    pub fn accept_of<P: Send + 'static>(
        extensions: &Extensions,
        user: &Arc<str>,
        take: impl FnOnce() -> Option<P>,
    ) -> bool {
        let Some(ConnectionStanding(standing)) = extensions.get() else { return true };
        let mut held = standing.place.lock_unpoisoned();
        if held.as_ref().is_none_or(|(owner, _)| owner != user) {
            let Some(place) = take() else { return false };
            *held = Some((user.clone(), Box::new(place)));
        }
        standing.is_accepted.store(true, Relaxed);
        true
    }

    /// Takes the place of the connection out, for the WebSocket that goes on when the connection has ended.
    pub(super) fn take_place(extensions: &Extensions) -> Option<ConnectionPlace> {
        let ConnectionStanding(standing) = extensions.get()?;
        Some(standing.place.lock_unpoisoned().take()?.1)
    }
}

/// A connection that is open. Requests of it can last longer, so its end gives its place back.
struct OpenConnection(ConnectionStanding);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.0.place.lock_unpoisoned().take();
    }
}

/// The connections without an accepted request, the oldest first.
struct Strangers {
    limit: usize,
    connections: VecDeque<Weak<Standing>>,
}

impl Strangers {
    /// Adds a connection. At the limit the oldest one is closed.
    fn add(&mut self) -> ConnectionStanding {
        if self.connections.len() >= self.limit {
            let is_stranger = |standing: &Weak<Standing>| {
                standing.upgrade().is_some_and(|one| !one.is_accepted.load(Relaxed))
            };
            self.connections.retain(is_stranger);
        }
        if self.connections.len() >= self.limit
            && let Some(oldest) = self.connections.pop_front().and_then(|oldest| oldest.upgrade())
        {
            oldest.displaced.notify_one();
        }
        let standing = ConnectionStanding::default();
        self.connections.push_back(Arc::downgrade(&standing.0));
        standing
    }
}

/// The seconds from 1970 to the year 10000.
const LAST_DATE: Duration = Duration::from_secs(253_402_300_800);

/// Returns true if the clock has a time that the header `Date` can state. hyper panics for another one.
fn has_date() -> bool {
    is_date(SystemTime::now())
}

fn is_date(time: SystemTime) -> bool {
    time.duration_since(UNIX_EPOCH).is_ok_and(|since| since < LAST_DATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_displaced(one: &ConnectionStanding) -> bool {
        let mut notified = Box::pin(one.0.displaced.notified());
        futures_util::FutureExt::now_or_never(notified.as_mut()).is_some()
    }

    #[test]
    fn a_connection_has_one_place_of_its_last_user() {
        let standing = ConnectionStanding::default();
        let mut extensions = Extensions::new();
        extensions.insert(standing.clone());
        let (alice, bob) = (Arc::<str>::from("alice"), Arc::<str>::from("bob"));
        let accept = |user: &Arc<str>, place: Option<&Arc<()>>| {
            ConnectionStanding::accept_of(&extensions, user, || place.cloned())
        };
        let (of_alice, of_bob) = (Arc::new(()), Arc::new(()));
        let counts = || (Arc::strong_count(&of_alice) - 1, Arc::strong_count(&of_bob) - 1);
        assert!(!accept(&alice, None) && !standing.0.is_accepted.load(Relaxed));
        assert!(accept(&alice, Some(&of_alice)) && accept(&alice, Some(&of_alice)));
        assert_eq!(counts(), (1, 0));
        assert!(!accept(&bob, None));
        assert_eq!(counts(), (1, 0));
        assert!(accept(&bob, Some(&of_bob)));
        assert_eq!(counts(), (0, 1));
        let socket = ConnectionStanding::take_place(&extensions);
        drop(OpenConnection(standing.clone()));
        assert_eq!(counts(), (0, 1), "the WebSocket has it");
        drop(socket);
        assert_eq!(counts(), (0, 0));
        assert!(accept(&alice, Some(&of_alice)));
        drop(OpenConnection(standing));
        assert_eq!(counts(), (0, 0), "a request can last longer");
    }

    #[test]
    fn a_connection_without_a_place_displaces_no_stranger() {
        let permits = Arc::new(Semaphore::new(1));
        let mut strangers = Strangers { limit: 1, connections: VecDeque::new() };
        let (permit, first) = admit(&permits, &mut strangers).expect("a place");
        assert!(admit(&permits, &mut strangers).is_none());
        assert!(!is_displaced(&first));
        drop(permit);
        assert!(admit(&permits, &mut strangers).is_some());
        assert!(is_displaced(&first));
    }

    #[test]
    fn a_stranger_takes_the_place_of_the_oldest_stranger() {
        let mut strangers = Strangers { limit: 2, connections: VecDeque::new() };
        let (known, silent) = (strangers.add(), strangers.add());
        let mut extensions = Extensions::new();
        extensions.insert(known.clone());
        ConnectionStanding::accept(&extensions);
        let (other, third) = (strangers.add(), strangers.add());
        assert!(is_displaced(&silent) && !is_displaced(&known) && !is_displaced(&other));
        drop(third);
        let _fourth = strangers.add();
        assert!(!is_displaced(&other));
    }

    #[test]
    fn dates_are_between_1970_and_9999() {
        assert!(has_date() && is_date(UNIX_EPOCH));
        assert!(!is_date(UNIX_EPOCH - Duration::from_secs(1)) && !is_date(UNIX_EPOCH + LAST_DATE));
    }
}
