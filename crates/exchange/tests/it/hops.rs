//! Agents that ask each other in a circle stop.

use std::future::IntoFuture;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use duologue_exchange::envelope::{
    Ack, Cancel, Capabilities, DelegationOutcome, EnvelopeError, EnvelopeErrorCode, EnvelopeHandler,
    OutcomeStatus, Query, QueryResponse, Received, ReceivedTask,
};
use duologue_exchange::limits::HOPS;
use duologue_exchange::work::{WorkContext, WorkInput, WorkOrder, WorkOutput, WorkTask, Worker};
use duologue_exchange::{Error, Exchange, Hops, PeerAgent};
use duologue_schema::{Members, Meta};
use serde_json::json;

/// An agent that forwards every query to the other side.
#[derive(Clone, Default)]
struct Circle {
    /// The number of calls to a handler.
    calls: Arc<AtomicU32>,
    /// The error of the innermost call.
    last: Arc<OnceLock<Error>>,
    /// The other agent, for work orders.
    other: Arc<OnceLock<PeerAgent>>,
    way: Way,
}

/// The way in which a handler makes its call.
#[derive(Clone, Copy, Default)]
enum Way {
    #[default]
    HandlersTask,
    TaskOfTheCall,
    ScopedTask,
    /// A task that knows only the handle that came with the call.
    SpawnedTask,
}

impl Circle {
    fn is_reached(&self, hops: Hops) {
        assert_eq!(Hops::from(hops.get() + 1), Hops::current());
        assert_eq!(self.calls.fetch_add(1, Relaxed), hops.get());
        // Without a limit there would be no end of it.
        assert!(self.calls.load(Relaxed) < 100, "nothing stops them");
    }

    fn failed(&self, error: Error) -> EnvelopeError {
        let fault = error.clone().into();
        let _ = self.last.set(error);
        fault
    }

    fn exchange(&self) -> Exchange {
        Exchange::new().envelope_handler(self.clone()).work(self.clone())
    }
}

impl EnvelopeHandler for Circle {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("circle").max_concurrent_tasks(u32::MAX)
    }

    async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        self.is_reached(query.hops());
        let call = query.peer.query("And you?");
        let answer = match self.way {
            Way::HandlersTask => call.await,
            Way::TaskOfTheCall => tokio::spawn(call.into_future()).await.unwrap(),
            Way::ScopedTask => {
                let peer = query.peer.clone();
                let later = async move { peer.query("And you?").await };
                tokio::spawn(Hops::current().scope(later)).await.unwrap()
            }
            Way::SpawnedTask => {
                let peer = query.peer.clone();
                tokio::spawn(async move { peer.query("And you?").await }).await.unwrap()
            }
        };
        answer.map_err(|error| self.failed(error))
    }

    async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
        self.is_reached(task.hops());
        let delegation = match self.way {
            Way::TaskOfTheCall => tokio::spawn(task.peer.delegate("You do it.").into_future()).await.unwrap(),
            Way::SpawnedTask => {
                let peer = task.peer.clone();
                tokio::spawn(async move { peer.delegate("You do it.").await }).await.unwrap()
            }
            _ => task.peer.delegate("You do it.").await,
        };
        let delegation = delegation.map_err(|error| self.failed(error))?;
        delegation.result().await.map_err(|error| self.failed(error))?;
        Ok(DelegationOutcome::new(OutcomeStatus::Completed))
    }
}

impl Worker for Circle {
    async fn work(&self, order: WorkOrder) -> Result<WorkOutput, EnvelopeError> {
        self.is_reached(Hops::from(Hops::current().get() - 1));
        self.other.get().unwrap().work(order.input).await.map_err(|error| self.failed(error))
    }
}

fn order() -> WorkInput {
    let task = WorkTask::new("build", Members::new());
    WorkInput::new(WorkContext::new("login", "feature", 1), [("feature_root", ".")], task)
}

/// Two agents of this kind, and the first one's handle on the second.
fn two(circle: &Circle, max_hops: u32) -> PeerAgent {
    let second = Circle { other: Arc::default(), ..circle.clone() };
    let (peer, other) = circle.exchange().max_hops(max_hops).in_memory(second.exchange().max_hops(max_hops));
    assert!(circle.other.set(peer.clone()).is_ok() && second.other.set(other).is_ok());
    peer
}

fn check(circle: &Circle, outermost: &Error, limit: u32) {
    assert_eq!(circle.calls.load(Relaxed), limit + 1);
    let last = circle.last.get().unwrap();
    assert!(
        matches!(last, Error::TooManyHops { hops, limit: most } if *hops == limit + 1 && *most == limit),
        "{last}"
    );
    assert_eq!(last.code(), EnvelopeErrorCode::TooManyHops);
    // `?` passes it on as it is, through every handler of the circle.
    assert_eq!(outermost.code(), EnvelopeErrorCode::TooManyHops, "{outermost}");
    assert!(!last.is_retryable() && outermost.to_string().contains("Exchange::max_hops"), "{outermost}");
}

#[tokio::test]
async fn agents_that_query_each_other_stop() {
    for way in [Way::HandlersTask, Way::TaskOfTheCall, Way::ScopedTask, Way::SpawnedTask] {
        let circle = Circle { way, ..Circle::default() };
        let error = two(&circle, HOPS).query("Who knows?").await.unwrap_err();
        check(&circle, &error, HOPS);
    }
}

#[tokio::test]
async fn agents_that_delegate_to_each_other_stop() {
    for way in [Way::HandlersTask, Way::TaskOfTheCall, Way::SpawnedTask] {
        let circle = Circle { way, ..Circle::default() };
        let task = two(&circle, HOPS).delegate("Do it.").await.unwrap();
        check(&circle, &task.result().await.unwrap_err(), HOPS);
    }
}

#[tokio::test]
async fn agents_that_give_each_other_work_orders_stop() {
    let circle = Circle::default();
    let error = two(&circle, HOPS).work(order()).await.unwrap_err();
    check(&circle, &error, HOPS);
}

#[tokio::test]
async fn the_limit_is_a_setting() {
    for limit in [0, 1, 40] {
        let circle = Circle::default();
        let error = two(&circle, limit).query("Who knows?").await.unwrap_err();
        check(&circle, &error, limit);
    }
}

/// Calls from every method of a handler are counted.
#[tokio::test]
async fn every_method_of_a_handler_has_the_hops_of_its_call() {
    #[derive(Clone, Default)]
    struct Counts(Arc<std::sync::Mutex<Vec<(&'static str, u32)>>>);

    impl Counts {
        fn add(&self, method: &'static str) {
            self.0.lock().unwrap().push((method, Hops::current().get()));
        }
    }

    impl EnvelopeHandler for Counts {
        fn capabilities(&self) -> Capabilities {
            Capabilities::new("counts").max_concurrent_tasks(1)
        }

        async fn query(&self, _: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
            self.add("query");
            Ok(QueryResponse::new(""))
        }

        async fn accept(&self, _: &ReceivedTask) -> Result<Ack, EnvelopeError> {
            self.add("accept");
            Ok(Ack::new(true))
        }

        async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
            self.add("delegate");
            task.cancelled().await;
            Ok(DelegationOutcome::new(OutcomeStatus::Partial))
        }

        async fn cancel(&self, _: Received<Cancel>, _: &ReceivedTask) -> Result<(), EnvelopeError> {
            self.add("cancel");
            Ok(())
        }
    }

    let counts = Counts::default();
    let (peer, _) = Exchange::new().in_memory(Exchange::new().envelope_handler(counts.clone()));
    let hops = Hops::from(4);
    hops.scope(peer.query("").into_future()).await.unwrap();
    let task = hops.scope(peer.delegate("").into_future()).await.unwrap();
    // A cancellation carries no hops: its handler has those of the task.
    task.cancel("").await.unwrap();
    task.result().await.unwrap();
    let made_there = hops.scope(async { peer.query("") }).await;
    made_there.await.unwrap();
    assert_eq!(
        *counts.0.lock().unwrap(),
        [("query", 5), ("accept", 5), ("delegate", 5), ("cancel", 5), ("query", 5)]
    );
}

/// A side that allows more, or does not count, is refused by the one that receives.
#[tokio::test]
async fn a_call_with_too_many_hops_is_refused_by_its_receiver() {
    let circle = Circle::default();
    let patient = || Exchange::new().max_hops(u32::MAX);
    let strict = circle.exchange().max_hops(3);
    let (peer, _) = patient().in_memory(strict);
    let hops = Hops::from(4);
    let query = hops.scope(peer.query("Who knows?").into_future()).await.unwrap_err();
    let task = hops.scope(peer.delegate("Do it.").into_future()).await.map(drop).unwrap_err();
    let work = hops.scope(peer.work(order()).into_future()).await.unwrap_err();
    for error in [query, task, work] {
        let Error::Response(fault) = &error else { panic!("{error}") };
        assert_eq!(fault.code, EnvelopeErrorCode::TooManyHops);
        assert!(fault.message.contains("4 hops, more than Exchange::max_hops = 3"), "{fault}");
    }
    assert_eq!(circle.calls.load(Relaxed), 0, "no handler was asked");
    // Hops that cannot be read might be too many.
    let meta = Meta::from_iter([("duologue", json!({"hops": "4"}))]);
    let query = peer.query("Who knows?").meta(meta.clone()).await.unwrap_err();
    let task = peer.delegate("Do it.").meta(meta.clone()).await.map(drop).unwrap_err();
    let work = peer.work(order()).meta(meta).await.unwrap_err();
    for error in [query, task, work] {
        let Error::Response(fault) = &error else { panic!("{error}") };
        assert_eq!(fault.code, EnvelopeErrorCode::InvalidParameter);
        assert!(fault.message.contains("`_meta.duologue.hops` must be a whole number"), "{fault}");
    }
    assert_eq!(circle.calls.load(Relaxed), 0, "no handler was asked");
    // Pings and cancellations are not counted, and answered.
    hops.scope(peer.ping()).await.unwrap();
}
