//! A receiver of posts in memory, for paused time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_hub::{DELIVERY_ID, OutboundError, OutboundPost, OutboundResponse, PostFuture, PostRequest};
use duologue_rpc::Lock as _;
use hyper::StatusCode;
use tokio::time::{Instant, sleep};

/// A post that has begun.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) at: Instant,
    pub(crate) url: String,
    pub(crate) id: String,
    pub(crate) body: String,
    /// The status, once there is one.
    pub(crate) status: Option<u16>,
}

/// The answer to a post: a status after a time. Zero is a lost connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Played {
    pub(crate) status: u16,
    pub(crate) after: Duration,
    pub(crate) retry_after: Option<&'static str>,
}

impl Played {
    pub(crate) fn status(status: u16) -> Self {
        Played { status, after: Duration::ZERO, retry_after: None }
    }

    pub(crate) fn after(mut self, after: Duration) -> Self {
        self.after = after;
        self
    }
}

type Script = Box<dyn FnMut(&Attempt) -> Played + Send>;

struct Inner {
    script: Mutex<Script>,
    attempts: Mutex<Vec<Attempt>>,
    /// The running posts by URL, and the most of them.
    running: Mutex<HashMap<String, usize>>,
    most: Mutex<HashMap<String, usize>>,
}

/// Answers posts by a script.
#[derive(Clone)]
pub(crate) struct PlayedPost(Arc<Inner>);

struct RunningPost<'a>(&'a Inner, &'a str);

impl Drop for RunningPost<'_> {
    fn drop(&mut self) {
        for name in [self.1, "all"] {
            *self.0.running.lock_unpoisoned().entry(name.to_owned()).or_default() -= 1;
        }
    }
}

impl PlayedPost {
    pub(crate) fn new(script: impl FnMut(&Attempt) -> Played + Send + 'static) -> Self {
        PlayedPost(Arc::new(Inner {
            script: Mutex::new(Box::new(script)),
            attempts: Mutex::default(),
            running: Mutex::default(),
            most: Mutex::default(),
        }))
    }

    pub(crate) fn attempts(&self) -> Vec<Attempt> {
        self.0.attempts.lock_unpoisoned().clone()
    }

    /// Returns the most posts that ran at the same time, to a URL or to `all`.
    pub(crate) fn most(&self, name: &str) -> usize {
        self.0.most.lock_unpoisoned().get(name).copied().unwrap_or_default()
    }
}

impl OutboundPost for PlayedPost {
    fn post<'a>(&'a self, request: PostRequest<'a>) -> PostFuture<'a> {
        let PostRequest { url, headers, body, .. } = request;
        Box::pin(async move {
            for name in [url, "all"] {
                let now = {
                    let mut running = self.0.running.lock_unpoisoned();
                    let now = running.entry(name.to_owned()).or_default();
                    *now += 1;
                    *now
                };
                let mut most = self.0.most.lock_unpoisoned();
                let most = most.entry(name.to_owned()).or_default();
                *most = now.max(*most);
            }
            let _running = RunningPost(&self.0, url);
            let attempt = Attempt {
                at: Instant::now(),
                url: url.to_owned(),
                id: headers[DELIVERY_ID].to_str().expect("an id").to_owned(),
                body: String::from_utf8(body.to_vec()).expect("JSON"),
                status: None,
            };
            let played = (self.0.script.lock_unpoisoned())(&attempt);
            let number = {
                let mut attempts = self.0.attempts.lock_unpoisoned();
                attempts.push(attempt);
                attempts.len() - 1
            };
            sleep(played.after).await;
            if played.status == 0 {
                let error = std::io::ErrorKind::ConnectionReset.into();
                return Err(OutboundError::Connect { url: url.to_owned(), error });
            }
            self.0.attempts.lock_unpoisoned()[number].status = Some(played.status);
            let mut response = OutboundResponse::new(StatusCode::from_u16(played.status).expect("a status"));
            response.retry_after = played.retry_after.map(Into::into);
            Ok(response)
        })
    }
}
