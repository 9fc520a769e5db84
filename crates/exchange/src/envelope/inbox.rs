//! Notifications on their way to the handler: one task a connection hands them over in the order of
//! the wire. Ends have a queue of their own, so that news that nobody takes do not push them out.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use duologue_rpc::{Error as RpcError, Queue, QueueSender, with_cancel_grace};
use duologue_schema::envelope::{DelegationOutcome, EnvelopeError, Notify};
use futures::{FutureExt as _, Stream as _};
use tokio::runtime::Handle;

use super::Received;
use super::handler::ErasedEnvelopeHandler;
use super::state::count;
use crate::lock::lock;
use crate::peer_agent::{Link, PeerAgent};

/// What is waiting for the handler.
pub(crate) enum HandlerNotification {
    Notify(Received<Notify>),
    Result(Received<DelegationOutcome>),
    Error(Received<EnvelopeError>),
}

/// With the number of what came.
type Item = (u64, HandlerNotification);

const NEWS: usize = 0;
const ENDS: usize = 1;

/// Where it waits.
#[derive(Default)]
pub(crate) struct Inbox {
    /// How much has come.
    last: u64,
    lines: [Lane; 2],
}

#[derive(Default)]
struct Lane {
    sender: Option<QueueSender<Item>>,
    /// How many are in it.
    waiting: u64,
}

impl Inbox {
    /// Puts something behind what waits, or gives it back if nobody takes it.
    pub(crate) fn push(&mut self, news: HandlerNotification, bytes: usize) -> Option<HandlerNotification> {
        let line = match news {
            HandlerNotification::Notify(_) => &mut self.lines[NEWS],
            HandlerNotification::Result(_) | HandlerNotification::Error(_) => &mut self.lines[ENDS],
        };
        let Some(sender) = &line.sender else { return Some(news) };
        self.last += 1;
        match sender.push((self.last, news), bytes) {
            Ok(()) => {
                line.waiting += 1;
                None
            }
            Err((_, news)) => Some(news),
        }
    }
}

/// Begins to hand notifications to the handler, if there is one.
pub(crate) fn start(peer: &PeerAgent) {
    let Some(handler) = peer.link.envelope_handler.clone() else { return };
    let link = peer.link.clone();
    let mut taker =
        InboxReader { lines: [NEWS, ENDS].map(|which| LaneReader::open(&link, which)), link: link.clone() };
    peer.rpc().spawn(async move {
        let grace = link.peer.limits().cancel_grace;
        let drain = async {
            while let Some(news) = std::future::poll_fn(|cx| taker.poll(cx)).await {
                hear(handler.clone(), news).await;
            }
        };
        let _ = with_cancel_grace(&link.envelopes.over, grace, drain).await;
        // What it does not hear in time.
        [NEWS, ENDS].into_iter().for_each(|which| lost(&link, which));
    });
}

/// Hands on the end of a task that nobody has looked at: directly when the connection has ended, and nothing
/// is waited for any more.
pub(crate) fn hand_on(link: &Link, end: HandlerNotification, bytes: usize) {
    let Some(end) = lock(&link.envelopes.inbox).push(end, bytes) else { return };
    let runtime = Handle::try_current().ok().filter(|_| link.peer.is_closed());
    match runtime.zip(link.envelope_handler.clone()) {
        Some((runtime, handler)) => drop(runtime.spawn(hear(handler, end))),
        None => count(&link.envelopes.dropped),
    }
}

async fn hear(handler: Arc<dyn ErasedEnvelopeHandler>, news: HandlerNotification) {
    let heard = AssertUnwindSafe(async { handler.hear(news).await }).catch_unwind();
    if heard.await.is_err() {
        tracing::error!("the handler panicked over a notification");
    }
}

/// Counts what is in a queue as dropped.
fn lost(link: &Link, which: usize) {
    let lost = std::mem::take(&mut lock(&link.envelopes.inbox).lines[which].waiting);
    link.envelopes.dropped.fetch_add(lost, Relaxed);
}

/// Takes what waits, in the order it came.
struct InboxReader {
    link: Arc<Link>,
    lines: [LaneReader; 2],
}

/// One of the queues, and the first of what was in it.
struct LaneReader {
    queue: Queue<Item>,
    head: Option<Item>,
    over: bool,
}

impl LaneReader {
    fn open(link: &Link, which: usize) -> Self {
        let (sender, queue) = link.peer.queue();
        lock(&link.envelopes.inbox).lines[which].sender = Some(sender);
        LaneReader { queue, head: None, over: false }
    }
}

impl InboxReader {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<HandlerNotification>> {
        // HandlerNotification may come, and an end after them, between the first look and the second.
        [NEWS, ENDS, NEWS].into_iter().for_each(|which| self.look(which, cx));
        let over = self.lines.iter().all(|line| line.over);
        let heads = self.lines.iter_mut().map(|line| &mut line.head).filter(|head| head.is_some());
        match heads.min_by_key(|head| head.as_ref().map(|(number, _)| *number)) {
            Some(head) => Poll::Ready(head.take().map(|(_, news)| news)),
            None if over => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    fn look(&mut self, which: usize, cx: &mut Context<'_>) {
        let line = &mut self.lines[which];
        while line.head.is_none() && !line.over {
            match Pin::new(&mut line.queue).poll_next(cx) {
                Poll::Ready(Some(Ok(item))) => {
                    lock(&self.link.envelopes.inbox).lines[which].waiting -= 1;
                    line.head = Some(item);
                }
                Poll::Ready(Some(Err(RpcError::Stalled { bytes, .. }))) => {
                    tracing::warn!(bytes, "notifications were lost: the handler does not take them");
                    lost(&self.link, which);
                    *line = LaneReader::open(&self.link, which);
                }
                Poll::Ready(_) => line.over = true,
                Poll::Pending => return,
            }
        }
    }
}
