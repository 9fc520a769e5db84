//! The queue between the reader and the handler of notifications. One task for each connection
//! delivers them in the order of arrival. Results and errors have a queue of their own, so that
//! unread notifications do not displace them.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use duologue_rpc::{Error as RpcError, Queue, QueueSender, with_cancel_grace};
use duologue_schema::envelope::{DelegationOutcome, EnvelopeError, Notify};
use futures::{FutureExt as _, Stream as _};
use tokio::runtime::Handle;

use super::Received;
use super::handler::ErasedEnvelopeHandler;
use crate::peer_agent::{Link, PeerAgent};

/// A message for the handler.
pub(crate) enum HandlerNotification {
    Notify(Received<Notify>),
    Result(Received<DelegationOutcome>),
    Error(Received<EnvelopeError>),
}

impl HandlerNotification {
    /// Returns the handle on the sender.
    fn peer(&self) -> &PeerAgent {
        match self {
            HandlerNotification::Notify(notification) => &notification.peer,
            HandlerNotification::Result(result) => &result.peer,
            HandlerNotification::Error(error) => &error.peer,
        }
    }
}

/// A message in a queue. It counts itself as dropped if the queue discards it.
pub(crate) struct QueuedNotification {
    number: u64,
    message: Option<HandlerNotification>,
}

impl QueuedNotification {
    fn take(mut self) -> Option<HandlerNotification> {
        self.message.take()
    }
}

impl Drop for QueuedNotification {
    fn drop(&mut self) {
        if let Some(message) = &self.message {
            message.peer().link.envelopes.count_dropped();
        }
    }
}

const NOTIFICATIONS: usize = 0;
const RESULTS: usize = 1;

/// The notifications that wait for the handler, in two queues.
#[derive(Default)]
pub(crate) struct Inbox {
    /// The sequence number of the last message.
    last: u64,
    /// `None` if this side has no handler.
    lanes: [Option<QueueSender<QueuedNotification>>; 2],
}

impl Inbox {
    /// Chooses the queue and the sequence number of a message. Without a handler it is dropped.
    pub(crate) fn number(&mut self, message: HandlerNotification, bytes: usize) -> Option<InboxDelivery> {
        let lane = match message {
            HandlerNotification::Notify(_) => NOTIFICATIONS,
            HandlerNotification::Result(_) | HandlerNotification::Error(_) => RESULTS,
        };
        let sender = self.lanes[lane].clone()?;
        self.last += 1;
        Some(InboxDelivery { sender, number: self.last, message, bytes })
    }
}

/// A message with its place in a queue.
pub(crate) struct InboxDelivery {
    sender: QueueSender<QueuedNotification>,
    number: u64,
    message: HandlerNotification,
    bytes: usize,
}

impl InboxDelivery {
    /// Appends the message to its queue, or returns it if the queue has ended.
    pub(crate) fn push(self) -> Option<HandlerNotification> {
        let queued = QueuedNotification { number: self.number, message: Some(self.message) };
        self.sender.push(queued, self.bytes).err().and_then(QueuedNotification::take)
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
        // Messages that the handler does not receive in time are dropped with the queues.
        let _ = with_cancel_grace(&link.envelopes.ended, grace, drain).await;
    });
}

/// Hands a result or an error that was not read to the handler. After the connection has ended, the
/// handler runs in a task of its own.
pub(crate) fn deliver_unclaimed(link: &Link, end: HandlerNotification, bytes: usize) {
    let Some(delivery) = link.envelopes.with(|machine| machine.inbox.number(end, bytes)) else {
        return link.envelopes.count_dropped();
    };
    let Some(end) = delivery.push() else { return };
    let runtime = Handle::try_current().ok().filter(|_| link.peer.is_closing());
    match runtime.zip(link.envelope_handler.clone()) {
        Some((runtime, handler)) => drop(runtime.spawn(call_handler(handler, end))),
        None => link.envelopes.count_dropped(),
    }
}

async fn call_handler(handler: Arc<dyn ErasedEnvelopeHandler>, message: HandlerNotification) {
    let called = AssertUnwindSafe(async { handler.receive(message).await }).catch_unwind();
    if called.await.is_err() {
        tracing::error!("the handler of a notification panicked");
    }
}

/// Merges the two queues in the order of arrival.
struct InboxReader {
    link: Arc<Link>,
    lanes: [LaneReader; 2],
}

/// The reading end of one queue, and the first message taken from it.
struct LaneReader {
    queue: Queue<QueuedNotification>,
    head: Option<QueuedNotification>,
    ended: bool,
}

impl LaneReader {
    fn open(link: &Link, which: usize) -> Self {
        let (sender, queue) = link.peer.queue();
        let _old = link.envelopes.with(|machine| machine.inbox.lanes[which].replace(sender));
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
        match heads.min_by_key(|head| head.as_ref().map(|head| head.number)) {
            Some(head) => Poll::Ready(head.take().and_then(QueuedNotification::take)),
            None if ended => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    fn fill(&mut self, which: usize, cx: &mut Context<'_>) {
        let lane = &mut self.lanes[which];
        while lane.head.is_none() && !lane.ended {
            match Pin::new(&mut lane.queue).poll_next(cx) {
                Poll::Ready(Some(Ok(queued))) => lane.head = Some(queued),
                Poll::Ready(Some(Err(RpcError::Stalled { bytes, .. }))) => {
                    tracing::warn!(
                        bytes,
                        "notifications were dropped because the handler does not read them"
                    );
                    *lane = LaneReader::open(&self.link, which);
                }
                Poll::Ready(_) => lane.ended = true,
                Poll::Pending => return,
            }
        }
    }
}
