//! Notifications on their way to the correspondent: one queue and one task a connection, so that they
//! arrive in the order of the wire.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use duologue_rpc::{Error as RpcError, Queue, until_dropped};
use duologue_schema::envelope::{Fault, Notify, Outcome};
use futures::FutureExt as _;

use super::Received;
use super::correspondent::Erased;
use super::letters::{count, lock};
use crate::peer_agent::{Link, PeerAgent};

/// What is waiting for the correspondent.
pub(crate) enum News {
    Notify(Received<Notify>),
    Result(Received<Outcome>),
    Error(Received<Fault>),
}

/// Begins to hand notifications to the correspondent, if there is one.
pub(crate) fn start(peer: &PeerAgent) {
    let Some(correspondent) = peer.link.correspondent.clone() else { return };
    let queue = open(&peer.link);
    let link = peer.link.clone();
    peer.rpc().spawn(async move {
        let grace = link.peer.limits().cancel_grace;
        let _ = until_dropped(&link.letters.over, grace, drain(&link, correspondent, queue)).await;
    });
}

fn open(link: &Link) -> Queue<News> {
    let (sender, queue) = link.peer.queue();
    *lock(&link.letters.news) = Some(sender);
    queue
}

async fn drain(link: &Link, correspondent: Arc<dyn Erased>, mut queue: Queue<News>) {
    while let Some(next) = queue.next().await {
        match next {
            Ok(news) => {
                let heard = AssertUnwindSafe(correspondent.clone().hear(news)).catch_unwind();
                if heard.await.is_err() {
                    tracing::error!("the correspondent panicked over a notification");
                }
            }
            Err(RpcError::Stalled { bytes }) => {
                tracing::warn!(bytes, "notifications were lost: the correspondent does not take them");
                count(&link.letters.dropped);
                queue = open(link);
            }
            Err(_) => return,
        }
    }
}
