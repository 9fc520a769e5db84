//! The state of the connection, for the log and for the lines that wait for it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use duologue_http::{ConnectOptions, LinkState, RemoteLink, RetryNotice};

use super::log;
use crate::server_args::explained;

/// Returns a notice that logs the first attempt to reach a server that fails.
pub(crate) fn first_failure(options: &ConnectOptions) -> RetryNotice {
    let (options, is_logged) = (options.clone(), AtomicBool::new(false));
    Arc::new(move |error| {
        if !is_logged.swap(true, Relaxed) {
            let (error, seconds) = (explained(error, &options), options.open_time.as_secs());
            log(format_args!("{error}; trying again for {seconds} s (`--wait`)"));
        }
    })
}

/// Logs each loss of the connection, and its end.
pub(super) async fn report(mut link: RemoteLink) -> Infallible {
    let (mut is_lost, mut is_silent) = (false, false);
    loop {
        match link.changed().await {
            LinkState::Resuming { .. } if !is_lost => {
                is_lost = true;
                log(format_args!("the connection to the server was lost; trying again"));
            }
            LinkState::Connected if is_lost => {
                (is_lost, is_silent) = (false, false);
                log(format_args!("the connection to the server was resumed"));
            }
            LinkState::Silent if !is_silent => {
                is_silent = true;
                log(format_args!("nothing arrives from the server; waiting"));
            }
            LinkState::Connected if is_silent => {
                is_silent = false;
                log(format_args!("the server answers again"));
            }
            LinkState::Ended => std::future::pending().await,
            _ => {}
        }
    }
}

/// Waits until the connection has a socket. After its end it waits for ever.
pub(super) async fn connected(link: &RemoteLink) {
    let mut link = link.clone();
    let mut state = link.state();
    while state != LinkState::Connected {
        if state == LinkState::Ended {
            std::future::pending::<Infallible>().await;
        }
        state = link.changed().await;
    }
}
