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
use crate::peer_agent::{Link, PeerAgent};
use duologue_rpc::Lock as _;

/// A message for the handler.
pub(crate) enum HandlerNotification {
    Notify(Received<Notify>),
    Result(Received<DelegationOutcome>),
    Error(Received<EnvelopeError>),
}

/// A message with its sequence number.
type Item = (u64, HandlerNotification);

const NOTIFICATIONS: usize = 0;
const RESULTS: usize = 1;

/// The notifications that wait for the handler, in two queues.
#[derive(Default)]
pub(crate) struct Inbox {
    /// The sequence number of the last message.
    last: u64,
    lanes: [Lane; 2],
}

#[derive(Default)]
struct Lane {
    sender: Option<QueueSender<Item>>,
    /// The number of messages in the queue.
    waiting: u64,
}

impl Inbox {
    /// Appends a message, or returns it if the queue has ended.
    pub(crate) fn push(&mut self, message: HandlerNotification, bytes: usize) -> Option<HandlerNotification> {
        let lane = match message {
            HandlerNotification::Notify(_) => &mut self.lanes[NOTIFICATIONS],
            HandlerNotification::Result(_) | HandlerNotification::Error(_) => &mut self.lanes[RESULTS],
        };
        let Some(sender) = &lane.sender else { return Some(message) };
        self.last += 1;
        match sender.push((self.last, message), bytes) {
            Ok(()) => {
                lane.waiting += 1;
                None
            }
            Err((_, message)) => Some(message),
        }
    }
}

/// Starts to deliver notifications to the handler, if there is one.
pub(crate) fn start(peer: &PeerAgent) {
    let Some(handler) = peer.link.envelope_handler.clone() else { return };
    let link = peer.link.clone();
    let mut reader = InboxReader {
        lanes: [NOTIFICATIONS, RESULTS].map(|which| LaneReader::open(&link, which)),
        link: link.clone(),
    };
    peer.rpc().spawn(async move {
        let grace = link.peer.limits().cancel_grace;
        let drain = async {
            while let Some(message) = std::future::poll_fn(|cx| reader.poll(cx)).await {
                call_handler(handler.clone(), message).await;
            }
        };
        let _ = with_cancel_grace(&link.envelopes.ended, grace, drain).await;
        // Messages that the handler did not receive in time.
        [NOTIFICATIONS, RESULTS].into_iter().for_each(|which| lost(&link, which));
    });
}

/// Hands a result or an error that was not read to the handler. After the connection has ended, the
/// handler runs in a task of its own.
pub(crate) fn deliver_unclaimed(link: &Link, end: HandlerNotification, bytes: usize) {
    let Some(end) = link.envelopes.inbox.lock_unpoisoned().push(end, bytes) else { return };
    let runtime = Handle::try_current().ok().filter(|_| link.peer.is_closed());
    match runtime.zip(link.envelope_handler.clone()) {
        Some((runtime, handler)) => drop(runtime.spawn(call_handler(handler, end))),
        None => count(&link.envelopes.dropped),
    }
}

async fn call_handler(handler: Arc<dyn ErasedEnvelopeHandler>, message: HandlerNotification) {
    let called = AssertUnwindSafe(async { handler.receive(message).await }).catch_unwind();
    if called.await.is_err() {
        tracing::error!("the handler of a notification panicked");
    }
}

/// Counts the messages of a queue as dropped.
fn lost(link: &Link, which: usize) {
    let lost = std::mem::take(&mut link.envelopes.inbox.lock_unpoisoned().lanes[which].waiting);
    link.envelopes.dropped.fetch_add(lost, Relaxed);
}

/// Merges the two queues in the order of arrival.
struct InboxReader {
    link: Arc<Link>,
    lanes: [LaneReader; 2],
}

/// The reading end of one queue, and the first message taken from it.
struct LaneReader {
    queue: Queue<Item>,
    head: Option<Item>,
    ended: bool,
}

impl LaneReader {
    fn open(link: &Link, which: usize) -> Self {
        let (sender, queue) = link.peer.queue();
        link.envelopes.inbox.lock_unpoisoned().lanes[which].sender = Some(sender);
        LaneReader { queue, head: None, ended: false }
    }
}

impl InboxReader {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<HandlerNotification>> {
        // A notification and a later result may both arrive between two looks, so the first queue
        // is checked again.
        [NOTIFICATIONS, RESULTS, NOTIFICATIONS].into_iter().for_each(|which| self.fill(which, cx));
        let ended = self.lanes.iter().all(|lane| lane.ended);
        let heads = self.lanes.iter_mut().map(|lane| &mut lane.head).filter(|head| head.is_some());
        match heads.min_by_key(|head| head.as_ref().map(|(number, _)| *number)) {
            Some(head) => Poll::Ready(head.take().map(|(_, message)| message)),
            None if ended => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    fn fill(&mut self, which: usize, cx: &mut Context<'_>) {
        let lane = &mut self.lanes[which];
        while lane.head.is_none() && !lane.ended {
            match Pin::new(&mut lane.queue).poll_next(cx) {
                Poll::Ready(Some(Ok(item))) => {
                    self.link.envelopes.inbox.lock_unpoisoned().lanes[which].waiting -= 1;
                    lane.head = Some(item);
                }
                Poll::Ready(Some(Err(RpcError::Stalled { bytes, .. }))) => {
                    tracing::warn!(
                        bytes,
                        "notifications were dropped because the handler does not read them"
                    );
                    lost(&self.link, which);
                    *lane = LaneReader::open(&self.link, which);
                }
                Poll::Ready(_) => lane.ended = true,
                Poll::Pending => return,
            }
        }
    }
}
