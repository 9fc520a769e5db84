//! The state of the connection, for the log, for the client, and for the lines that wait for it.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_http::{ConnectOptions, LinkState, RemoteLink, RetryNotice};
use duologue_rpc::Lock as _;
use duologue_rpc::raw_message::call_frame;
use duologue_schema::{
    Notice, NoticeSeverity, Notification as _, SessionId, SessionNotification, SessionUpdate,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::{Book, log};
use crate::server_args::explained;

/// The time after the loss of the connection until the client gets a notice of it.
const NOTICE_DELAY: Duration = Duration::from_secs(5);

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

/// Logs each loss of the connection, and its end. The client gets notices of a longer one, for which `noticed` is notified.
pub(super) async fn report(mut link: RemoteLink, book: &Mutex<Book>, noticed: &Notify) -> Infallible {
    let (mut is_lost, mut is_silent, mut notice_at) = (false, false, None);
    let note = |is_away| {
        book.lock_unpoisoned().is_away = is_away;
        noticed.notify_one();
    };
    loop {
        let state = tokio::select! {
            state = link.changed() => state,
            () = sleep_until(notice_at.unwrap_or_else(Instant::now)), if notice_at.is_some() => {
                notice_at = None;
                note(true);
                continue;
            }
        };
        match state {
            LinkState::Resuming { .. } if !is_lost => {
                is_lost = true;
                notice_at = Some(Instant::now() + NOTICE_DELAY);
                log(format_args!("the connection to the server was lost; trying again"));
            }
            LinkState::Silent if !is_silent => {
                is_silent = true;
                log(format_args!("nothing arrives from the server; waiting"));
                note(true);
            }
            LinkState::Connected if is_lost || is_silent => {
                let text = if is_lost {
                    "the connection to the server was resumed"
                } else {
                    "the server answers again"
                };
                (is_lost, is_silent, notice_at) = (false, false, None);
                log(format_args!("{text}"));
                note(false);
            }
            LinkState::Ended => std::future::pending().await,
            _ => {}
        }
    }
}

impl Book {
    /// Returns the notices that the server is away, or that it is back, for the sessions of a client that shows notices. There are
    /// none if the last notice was the same. All of them have to be sent.
    pub(super) fn link_notices(&mut self) -> Vec<Vec<u8>> {
        let is_away = self.is_away;
        let has_notices = self.initialize["clientCapabilities"]["session"]["notices"].is_object();
        if !has_notices || std::mem::replace(&mut self.is_noticed_away, is_away) == is_away {
            return Vec::new();
        }
        let notice = match is_away {
            true => Notice::new(NoticeSeverity::Warning, "The server does not answer; waiting for it"),
            false => Notice::new(NoticeSeverity::Info, "The server answers again"),
        };
        let line = |id: &String| {
            let update = SessionUpdate::Notice(notice.clone());
            let notice = SessionNotification::new(SessionId::from(id.as_str()), update);
            call_frame(None, SessionNotification::METHOD, &notice).ok()
        };
        self.sessions.keys().filter_map(line).collect()
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
