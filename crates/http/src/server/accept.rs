//! The accept loop: a limit of connections, and a time limit for the head of each request.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;

use crate::server::options::ServerOptions;

/// Serves a router to the clients of a listener until the future is dropped. Open connections go on until the runtime ends.
///
/// A connection above [`ServerOptions::sockets`] and [`ServerOptions::requests`] together is closed at once. One that
/// sends no complete head within [`ServerOptions::handshake_timeout`] is closed, before the first request and between
/// two of them.
pub(super) async fn serve_connections<L: Listener>(
    mut listener: L,
    router: Router,
    options: &ServerOptions,
) -> std::convert::Infallible {
    let limit = options.sockets.saturating_add(options.requests).min(Semaphore::MAX_PERMITS);
    let permits = Arc::new(Semaphore::new(limit));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(options.handshake_timeout);
    loop {
        let (io, _) = listener.accept().await;
        let Ok(permit) = permits.clone().try_acquire_owned() else {
            tracing::debug!(limit, "connection closed; raise `ServerOptions::sockets` or `requests`");
            continue;
        };
        let service = TowerToHyperService::new(router.clone());
        http.auto_date_header(has_date());
        let connection = http.serve_connection(TokioIo::new(io), service).with_upgrades();
        tokio::spawn(async move {
            // A WebSocket has its own permit when this ends.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection has failed");
            }
            drop(permit);
        });
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

    #[test]
    fn dates_are_between_1970_and_9999() {
        assert!(has_date() && is_date(UNIX_EPOCH));
        assert!(!is_date(UNIX_EPOCH - Duration::from_secs(1)) && !is_date(UNIX_EPOCH + LAST_DATE));
    }
}
