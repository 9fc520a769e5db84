//! The queue between the reader and the handler of notifications. One task for each connection
//! delivers them in the order of arrival. Results and errors have a queue of their own, so that
//! unread notifications do not displace them.

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

/// A message for the handler.
pub(crate) enum HandlerNotification {
    Notify(Received<Notify>),
    Result(Received<DelegationOutcome>),
    Error(Received<EnvelopeError>),
}

/// A message with its sequence number.
type Item = (u64, HandlerNotification);

const NEWS: usize = 0;
const ENDS: usize = 1;

/// The notifications that wait for the handler, in two queues.
#[derive(Default)]
pub(crate) struct Inbox {
    /// The sequence number of the last message.
    last: u64,
    lines: [Lane; 2],
}

#[derive(Default)]
struct Lane {
    sender: Option<QueueSender<Item>>,
    /// The number of messages in the queue.
    waiting: u64,
}

impl Inbox {
    /// Appends a message, or returns it if the queue has ended.
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

/// Starts to deliver notifications to the handler, if there is one.
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
        // Messages that the handler did not receive in time.
        [NEWS, ENDS].into_iter().for_each(|which| lost(&link, which));
    });
}

/// Hands a result or an error that was not read to the handler. After the connection has ended, the
/// handler runs in a task of its own.
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

/// Counts the messages of a queue as dropped.
fn lost(link: &Link, which: usize) {
    let lost = std::mem::take(&mut lock(&link.envelopes.inbox).lines[which].waiting);
    link.envelopes.dropped.fetch_add(lost, Relaxed);
}

/// Merges the two queues in the order of arrival.
struct InboxReader {
    link: Arc<Link>,
    lines: [LaneReader; 2],
}

/// The reading end of one queue, and the first message taken from it.
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
        // A notification and a later result may both arrive between two looks, so the first queue
        // is checked again.
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
