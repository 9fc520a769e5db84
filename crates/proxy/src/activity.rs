//! The activity of a relayed agent, and the responses that it owes.

use std::collections::HashSet;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use duologue_rpc::Lock;
use duologue_transcript::Side;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::io::{AsyncRead, ReadBuf};

/// The bytes after which a line is not examined as a message.
const MAX_LINE: usize = 16 << 20;

/// The activity of the agent of a relay. A relay ends an agent whose client has left once it is silent and owes no
/// response.
#[derive(Debug, Default)]
pub struct RelayActivity {
    reads: AtomicU64,
    /// Set while the relay waits for the agent, and not for the client or the disk.
    waits: AtomicBool,
    /// The ids of the unanswered requests.
    open_requests: Mutex<HashSet<String>>,
}

impl RelayActivity {
    /// Observes the output of a side.
    pub fn observe<R>(self: &Arc<Self>, from: Side, inner: R) -> ObservedReader<R> {
        ObservedReader { from, inner, activity: self.clone(), line: Vec::new() }
    }

    /// Waits until the agent was silent for this time.
    pub async fn wait_for_silence(&self, long: Duration) {
        loop {
            let before = self.reads.load(Relaxed);
            tokio::time::sleep(long).await;
            if self.waits.load(Relaxed) && self.reads.load(Relaxed) == before {
                return;
            }
        }
    }

    /// Waits until the agent was silent for this time and owes no response, or `is_unread` returns true.
    pub async fn wait_until_idle(&self, long: Duration, is_unread: impl Fn() -> bool) {
        loop {
            self.wait_for_silence(long).await;
            if self.open_requests.lock_unpoisoned().is_empty() || is_unread() {
                return;
            }
        }
    }

    fn line(&self, from: Side, line: &[u8]) {
        // Most lines are updates, which are neither requests nor responses.
        if memchr::memmem::find(line, b"\"id\"").is_none() {
            return;
        }
        let Ok(MessageHead { id: Some(id), method }) = serde_json::from_slice(line) else { return };
        let mut open = self.open_requests.lock_unpoisoned();
        match (from, method) {
            (Side::Client, Some(_)) => {
                open.insert(id.to_string());
            }
            (Side::Agent, None) => {
                open.remove(&id.to_string());
            }
            _ => {}
        }
    }
}

/// The members that distinguish requests, responses and notifications.
#[derive(Deserialize)]
struct MessageHead {
    id: Option<serde_json::Value>,
    method: Option<IgnoredAny>,
}

/// The output of a side, observed line by line.
#[derive(Debug)]
pub struct ObservedReader<R> {
    from: Side,
    inner: R,
    activity: Arc<RelayActivity>,
    /// The beginning of the current line.
    line: Vec<u8>,
}

impl<R> ObservedReader<R> {
    fn observe(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_whole = piece.ends_with(b"\n");
            if is_whole && self.line.is_empty() {
                self.activity.line(self.from, piece);
                continue;
            }
            if self.line.len() <= MAX_LINE {
                self.line.extend_from_slice(piece);
            }
            if is_whole {
                self.activity.line(self.from, &self.line);
                self.line.clear();
            }
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for ObservedReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if self.from == Side::Agent {
            self.activity.waits.store(read.is_pending(), Relaxed);
            // A poll without a result is no sign of life.
            self.activity.reads.fetch_add(u64::from(read.is_ready()), Relaxed);
        }
        self.observe(buf.filled().get(before..).unwrap_or_default());
        read
    }
}
