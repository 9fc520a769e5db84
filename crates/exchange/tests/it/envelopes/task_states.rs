//! Repeated delegations, and the states of tasks.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use duologue_client::exchange::envelope::*;
use duologue_client::exchange::{Error, Exchange, PeerAgent, limits};
use serde_json::json;

use super::pair::Heard;

/// Does what the task says.
struct Worker(Heard);

impl EnvelopeHandler for Worker {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("worker").max_concurrent_tasks(3)
    }

    async fn accept(&self, task: &ReceivedTask) -> Result<Ack, EnvelopeError> {
        match task.task.as_str() {
            "think" => tokio::time::sleep(Duration::from_secs(5)).await,
            "refuse" => {
                self.0.add("refuses");
                return Err(EnvelopeError::not_authorized("no"));
            }
            _ => {}
        }
        Ok(Ack::new(true).estimated_ms(700))
    }

    async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
        self.0.add(task.task.as_str());
        match task.task.as_str() {
            "fail" => return Err(EnvelopeError::internal("broken")),
            "large" => {
                let outcome = DelegationOutcome::new(OutcomeStatus::Completed);
                return Ok(outcome.outcome("x".repeat(limits::ENDED_TASK_BYTES)));
            }
            "late" => return Err(EnvelopeError::of(EnvelopeErrorCode::Timeout, "the shop is closed")),
            "failed" => return Ok(DelegationOutcome::new(OutcomeStatus::Failed).error(json!("broken"))),
            "for ever" => std::future::pending().await,
            "ask" => {
                let answer = task.ask("Which colour?").await?;
                return Ok(DelegationOutcome::new(OutcomeStatus::Partial).outcome(answer.summary));
            }
            "give up" => {
                task.cancelled().await;
                return Err(EnvelopeError::internal("the brush is lost"));
            }
            "stop" => {
                task.cancelled().await;
                tokio::time::sleep(Duration::from_secs(1)).await;
                return Err(EnvelopeError::of(EnvelopeErrorCode::Cancelled, "stopped"));
            }
            _ => tokio::time::sleep(Duration::from_secs(2)).await,
        }
        Ok(DelegationOutcome::new(OutcomeStatus::Completed).outcome(task.task.as_str()))
    }
}

/// Answers after a second.
struct Client(Heard);

impl EnvelopeHandler for Client {
    async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        self.0.add(format!("{} re {:?}", query.question, query.envelope.reference));
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(QueryResponse::new("blue"))
    }

    async fn result(&self, result: Received<DelegationOutcome>) {
        self.0.add(format!("result {}", result.outcome));
    }
}

fn connected() -> (PeerAgent, Heard, Heard) {
    let (here, there) = (Heard::default(), Heard::default());
    let ours = Exchange::new().agent_id("c0").envelope_handler(Client(here.clone()));
    let (peer, _) = ours.in_memory(Exchange::new().envelope_handler(Worker(there.clone())));
    (peer, here, there)
}

async fn state(peer: &PeerAgent, id: &str) -> TaskState {
    peer.task_status(id).await.unwrap().state
}

#[tokio::test(start_paused = true)]
async fn a_repeated_delegation_runs_once() {
    let (peer, here, there) = connected();
    // While it runs: the same ack, and one result.
    drop(peer.delegate("paint").id("d1").await.unwrap());
    let again = peer.delegate("paint").id("d1").await.unwrap();
    assert_eq!(again.estimated(), Some(Duration::from_millis(700)));
    assert_eq!(again.result().await.unwrap().outcome, "paint");
    drop(again);
    // After its end: the same ack, and the result again.
    let again = peer.delegate("paint").id("d1").await.unwrap();
    assert_eq!(again.estimated(), Some(Duration::from_millis(700)));
    assert_eq!(again.result().await.unwrap().outcome, "paint");
    let failed =
        || async { peer.delegate("fail").id("d2").await.unwrap().result().await.unwrap_err().code() };
    assert_eq!((failed().await, failed().await), (EnvelopeErrorCode::Internal, EnvelopeErrorCode::Internal));
    assert_eq!(there.all(), ["paint", "fail"]);
    assert_eq!(here.all(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_id_with_another_content_is_a_conflict() {
    let (peer, _, there) = connected();
    drop(peer.delegate("paint").id("d1").await.unwrap());
    for _ in 0..2 {
        let other = peer.delegate("clean").id("d1").await.unwrap_err();
        assert!(
            matches!(&other, Error::Response(fault) if fault.code == EnvelopeErrorCode::Conflict),
            "{other}"
        );
        assert!(!other.is_retryable());
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(there.all(), ["paint"]);
}

/// JSON has no order of members, and one number has several spellings.
#[tokio::test(start_paused = true)]
async fn another_order_of_members_is_the_same_task() {
    let (peer, _, there) = connected();
    let task = |context: &str| {
        let context: Members = serde_json::from_str(context).unwrap();
        peer.delegate("paint").id("d1").context(context)
    };
    drop(task(r#"{"room":"kitchen","walls":[{"w":2,"h":3}]}"#).await.unwrap());
    let again = task(r#"{"walls":[{"h":3.0,"w":2e0}],"room":"kitchen"}"#).await.unwrap();
    assert_eq!(again.result().await.unwrap().outcome, "paint");
    drop(again);
    for other in [r#"{"room":"kitchen","walls":[{"w":3,"h":2}]}"#, r#"{"room":"kitchen"}"#] {
        let error = task(other).await.unwrap_err();
        assert_eq!(error.code(), EnvelopeErrorCode::Conflict, "{error}");
    }
    assert_eq!(there.all(), ["paint"]);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_or_withdrawn_task_may_be_sent_again() {
    let (peer, _, there) = connected();
    for _ in 0..2 {
        assert!(matches!(peer.delegate("refuse").id("d1").await, Err(Error::Declined(_))));
    }
    let late = peer.delegate("think").id("d2").ack_timeout(Duration::from_secs(1)).await.unwrap_err();
    assert!(matches!(late, Error::Timeout { .. }));
    // At once: the first copy is still being given up.
    let task = peer.delegate("think").id("d2").await.unwrap();
    assert_eq!(task.result().await.unwrap().outcome, "think");
    assert_eq!(there.all(), ["refuses", "refuses", "think"]);
}

/// A handler that takes no more tasks after its first one.
#[derive(Default)]
struct Closing(AtomicBool);

impl EnvelopeHandler for Closing {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("closing").max_concurrent_tasks(u32::from(!self.0.load(Relaxed)))
    }

    async fn delegate(&self, _: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
        self.0.store(true, Relaxed);
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok(DelegationOutcome::new(OutcomeStatus::Completed))
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeated_delegation_needs_no_slot() {
    let (peer, _) = Exchange::new().in_memory(Exchange::new().envelope_handler(Closing::default()));
    drop(peer.delegate("paint").id("d1").await.unwrap());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let refused = peer.delegate("paint").id("d2").await.unwrap_err();
    assert_eq!(refused.code(), EnvelopeErrorCode::UnknownKind, "{refused}");
    for _ in 0..2 {
        peer.delegate("paint").id("d1").await.unwrap().result().await.unwrap();
    }
}

/// A result that is too large to be kept is not sent again, and the task does not run again.
#[tokio::test(start_paused = true)]
async fn a_result_that_is_not_kept_is_not_found() {
    let (peer, _, there) = connected();
    let task = peer.delegate("large").id("d1").await.unwrap();
    assert_eq!(task.result().await.unwrap().outcome.len(), limits::ENDED_TASK_BYTES);
    drop(task);
    let again = peer.delegate("large").id("d1").await.unwrap().result().await.unwrap_err();
    assert_eq!((again.code(), again.is_retryable()), (EnvelopeErrorCode::NotFound, false), "{again}");
    assert_eq!(state(&peer, "d1").await, TaskState::Completed);
    assert_eq!(there.all(), ["large"]);
}

/// A task that is cancelled while it is being accepted does not begin, even if the handler accepts it then.
#[tokio::test(start_paused = true)]
async fn a_task_may_be_cancelled_before_it_is_accepted() {
    let (peer, _, there) = connected();
    let thinking = tokio::spawn(peer.delegate("think").id("d1").into_future());
    tokio::time::sleep(Duration::from_millis(4_500)).await;
    assert!(peer.cancel("d1").reason("too slow").await.unwrap().accepted);
    let error = thinking.await.unwrap().map(drop).unwrap_err();
    assert_eq!((error.code(), error.fault().message.as_str()), (EnvelopeErrorCode::Cancelled, "too slow"));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(there.all(), [""; 0]);
    assert_eq!(peer.ping().await.unwrap().active_tasks, 0);
}

/// The agent that cancelled a task gets `cancelled`, whatever the handler makes of it, with the handler's reason.
#[tokio::test(start_paused = true)]
async fn an_error_after_a_cancellation_is_its_end() {
    let (peer, ..) = connected();
    let task = peer.delegate("give up").id("d1").await.unwrap();
    task.cancel("no paint").await.unwrap();
    let end = task.result().await.unwrap_err();
    assert_eq!(
        (end.code(), end.fault().message.as_str()),
        (EnvelopeErrorCode::Cancelled, "the brush is lost")
    );
    assert_eq!(state(&peer, "d1").await, TaskState::Cancelled);
    let task = peer.delegate("give up").id("d2").deadline(Duration::from_secs(1)).await.unwrap();
    let end = task.result().await.unwrap_err();
    assert_eq!(end.code(), EnvelopeErrorCode::Timeout, "{end}");
    assert_eq!(end.fault().message, "not done within 1s: the brush is lost");
}

/// A cancellation does not become a timeout when the deadline passes in the grace period.
#[tokio::test(start_paused = true)]
async fn the_first_reason_to_stop_counts() {
    let (peer, ..) = connected();
    let task = peer.delegate("for ever").id("d1").deadline(Duration::from_millis(500)).await.unwrap();
    task.cancel("no paint").await.unwrap();
    let end = task.result().await.unwrap_err();
    assert_eq!(end.code(), EnvelopeErrorCode::Cancelled, "{end}");
    assert!(end.to_string().contains("no paint"), "{end}");
    assert_eq!(state(&peer, "d1").await, TaskState::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn the_state_of_a_task() {
    let (peer, here, _) = connected();
    let second = || tokio::time::sleep(Duration::from_secs(1));
    let unknown = peer.task_status("d0").await.unwrap_err();
    assert!(
        matches!(&unknown, Error::Response(fault) if fault.code == EnvelopeErrorCode::NotFound),
        "{unknown}"
    );

    let thinking = tokio::spawn(peer.delegate("think").id("d1").into_future());
    second().await;
    assert_eq!(state(&peer, "d1").await, TaskState::Submitted);
    let task = thinking.await.unwrap().unwrap();
    let status = task.status().await.unwrap();
    assert_eq!((status.task.as_str(), status.state), ("d1", TaskState::Working));
    assert!(status.updated_ms.is_some_and(|ms| ms > 1_700_000_000_000));
    task.result().await.unwrap();
    assert_eq!(state(&peer, "d1").await, TaskState::Completed);

    let asking = peer.delegate("ask").id("d2").await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(state(&peer, "d2").await, TaskState::InputRequired);
    assert_eq!(asking.result().await.unwrap().outcome, "blue");
    assert_eq!(state(&peer, "d2").await, TaskState::Completed);
    assert_eq!(here.all(), [r#"Which colour? re Some("d2")"#]);

    let stopping = peer.delegate("stop").id("d3").await.unwrap();
    stopping.cancel("enough").await.unwrap();
    assert_eq!(state(&peer, "d3").await, TaskState::Cancelling);
    stopping.result().await.unwrap_err();
    assert_eq!(state(&peer, "d3").await, TaskState::Cancelled);

    for (id, task, expected) in [("d4", "fail", TaskState::Failed), ("d5", "failed", TaskState::Failed)] {
        let _ = peer.delegate(task).id(id).await.unwrap().result().await;
        let status = peer.task_status(id).await.unwrap();
        assert_eq!(
            (status.state, status.error.map(|error| error.message)),
            (expected, Some("broken".to_owned()))
        );
    }
    let _ = peer.delegate("refuse").id("d6").await.unwrap_err();
    let status = peer.task_status("d6").await.unwrap();
    assert_eq!(
        (status.state, status.error.unwrap().code),
        (TaskState::Rejected, EnvelopeErrorCode::NotAuthorized)
    );
    let late = peer.delegate("for ever").id("d7").deadline(Duration::from_secs(1)).await.unwrap();
    late.result().await.unwrap_err();
    assert_eq!(state(&peer, "d7").await, TaskState::Expired);
    // A timeout of the handler's own is no deadline of the task.
    peer.delegate("late").id("d8").await.unwrap().result().await.unwrap_err();
    assert_eq!(state(&peer, "d8").await, TaskState::Failed);
    // A query of this domain without a task is one for the handler.
    let other = peer.query("q").domain(TaskStatus::DOMAIN).await.unwrap_err();
    assert_eq!(other.code(), EnvelopeErrorCode::UnknownKind);
}
