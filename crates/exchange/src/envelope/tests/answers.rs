//! The state of a side at the moment at which each of its answers leaves: the other agent may act on an
//! answer at once.

use std::sync::{Arc, Mutex, OnceLock};

use duologue_rpc::{Direction, Lock as _, PeerBuilder, Tap, TappedFrame, Transport};
use serde_json::Value;

use crate::envelope::*;
use crate::in_memory::InMemoryService;
use crate::{Exchange, ExchangeConnector, PeerAgent};

/// Records the kind of each outgoing envelope, the message that it answers, and the load.
#[derive(Default)]
struct Watch {
    peer: OnceLock<PeerAgent>,
    seen: Mutex<Vec<String>>,
}

impl Tap for Watch {
    fn frame(&self, frame: TappedFrame<'_>) {
        let Some(peer) = self.peer.get().filter(|_| frame.direction == Direction::Outgoing) else { return };
        let line: Value = serde_json::from_slice(frame.bytes).unwrap();
        let places = ["/result/envelope", "/error/data/envelope", "/params/envelope"];
        let Some(envelope) = places.iter().find_map(|place| line.pointer(place)) else { return };
        let pong = peer.link.envelopes.with(|machine| machine.tasks.pong(100));
        let text = |key: &str| envelope[key].as_str().unwrap_or_default().to_owned();
        let load = format!("{} {}", pong.status.as_str(), pong.active_tasks);
        self.seen.lock_unpoisoned().push(format!("{} {} {load}", text("kind"), text("ref")));
    }
}

struct Worker;

impl EnvelopeHandler for Worker {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("worker").max_concurrent_tasks(2)
    }

    async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        match query.question.as_str() {
            "fail" => Err(EnvelopeError::internal("no")),
            _ => Ok(QueryResponse::new("yes")),
        }
    }

    async fn accept(&self, task: &ReceivedTask) -> Result<Ack, EnvelopeError> {
        match task.task.as_str() {
            "refuse" => Err(EnvelopeError::not_authorized("no")),
            "panic" => std::panic::resume_unwind(Box::new(())),
            _ => Ok(Ack::new(true)),
        }
    }

    async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
        if task.task == "wait" {
            task.cancelled().await;
            return Err(EnvelopeError::of(EnvelopeErrorCode::Cancelled, "stopped"));
        }
        Ok(DelegationOutcome::new(OutcomeStatus::Completed))
    }
}

fn watched() -> (PeerAgent, PeerAgent, Arc<Watch>) {
    let watch = Arc::new(Watch::default());
    let (ours, theirs) = Transport::memory();
    let start = |builder: PeerBuilder, exchange: Exchange| {
        let connector = ExchangeConnector::new(Some(exchange.agent_id("same")));
        let (mut meta, mut agent) = (None, None);
        connector.advertise(&mut meta);
        builder.start(|peer| {
            let service = connector.start(peer, |_| true, ());
            service.set_peer_capabilities(meta.as_ref());
            agent = Some(service.peer_agent().in_session("s"));
            InMemoryService(service)
        });
        agent.unwrap()
    };
    let peer = start(PeerBuilder::new(ours), Exchange::new());
    let worker = Exchange::new().envelope_handler(Worker);
    let them = start(PeerBuilder::new(theirs).tap(watch.clone()), worker);
    assert!(watch.peer.set(them.clone()).is_ok());
    (peer, them, watch)
}

/// A slot is free before the answer that ends its use, and taken before the answer that begins it.
#[tokio::test(start_paused = true)]
async fn an_answer_leaves_when_its_slot_is_free() {
    let (peer, _them, watch) = watched();
    let seen = || std::mem::take(&mut *watch.seen.lock_unpoisoned());
    peer.query("q").id("q1").await.unwrap();
    peer.query("fail").id("q2").await.unwrap_err();
    assert_eq!(seen(), ["response q1 idle 0", "error q2 idle 0"]);
    peer.delegate("refuse").id("d1").await.unwrap_err();
    peer.delegate("panic").id("d2").await.unwrap_err();
    assert_eq!(seen(), ["ack d1 idle 0", "error d2 idle 0"]);
    let task = peer.delegate("work").id("d3").await.unwrap();
    task.result().await.unwrap();
    assert_eq!(seen(), ["ack d3 busy 1", "result d3 idle 0"]);
    // A repetition is answered with the ack first, and needs no slot.
    drop(task);
    peer.delegate("work").id("d3").await.unwrap().result().await.unwrap();
    assert_eq!(seen(), ["ack d3 idle 0", "result d3 idle 0"]);
    // Without a report there is no end, also not for a repetition.
    for load in ["busy 1", "idle 0"] {
        peer.delegate("work").id("d4").report_back(false).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(seen(), [format!("ack d4 {load}")]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_ack_of_a_cancellation_leaves_before_the_end() {
    let (peer, _them, watch) = watched();
    let task = peer.delegate("wait").id("d1").await.unwrap();
    assert!(peer.cancel("d1").id("c1").await.unwrap().accepted);
    task.result().await.unwrap_err();
    let seen = watch.seen.lock_unpoisoned();
    assert_eq!(*seen, ["ack d1 busy 1", "ack c1 busy 1", "error d1 idle 0"]);
}
