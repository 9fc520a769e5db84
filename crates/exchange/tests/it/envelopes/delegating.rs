//! Tasks: taken on, refused, cancelled, late, reported or not.

use std::time::Duration;

use duologue_agent::Server;
use duologue_client::exchange::Error;
use duologue_client::exchange::envelope::*;
use duologue_client::{Client, Exchange, Transport};
use duologue_rpc::Limits;
use serde_json::json;
use tokio::time::Instant;

use super::pair::{Heard, Quiet, pair};

/// Does what the task says, and has two hands.
struct Painter(Heard);

impl EnvelopeHandler for Painter {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("painter").max_concurrent_tasks(2)
    }

    async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        Ok(QueryResponse::new(format!("{}?", query.question)))
    }

    async fn accept(&self, task: &ReceivedTask) -> Result<Ack, EnvelopeError> {
        match task.task.as_str() {
            "tiles" => Err(EnvelopeError::not_authorized("I do not do tiles")),
            "think" => std::future::pending().await,
            "panic early" => panic!("on purpose"),
            _ => Ok(Ack::new(true).estimated_ms(1_500)),
        }
    }

    async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
        self.0.add(format!("does {}{}", task.task, if task.is_urgent() { " now" } else { "" }));
        match task.task.as_str() {
            "fail" => return Err(EnvelopeError::unknown_domain("work.tiles")),
            "panic" => panic!("on purpose"),
            "for ever" => std::future::pending::<()>().await,
            "until told" => {
                task.cancelled().await;
                return Ok(DelegationOutcome::new(OutcomeStatus::Partial).outcome("half of it"));
            }
            "with news" => {
                for step in 1..=3 {
                    task.progress(json!(step)).await.map_err(|error| error.fault())?;
                }
            }
            "with late news" => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                task.progress(json!("late")).await.map_err(|error| error.fault())?;
            }
            "ask back" => {
                let answer = task.peer.query("blue").await.map_err(|error| error.fault())?;
                return Ok(DelegationOutcome::new(OutcomeStatus::Completed).outcome(answer.summary));
            }
            _ => tokio::time::sleep(Duration::from_secs(1)).await,
        }
        Ok(DelegationOutcome::new(OutcomeStatus::Completed).outcome(format!("{} is done", task.task)))
    }
}

/// Hears of what nobody waits for.
struct Listener(Heard);

impl EnvelopeHandler for Listener {
    async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        Ok(QueryResponse::new(format!("{}!", query.question)))
    }

    async fn notify(&self, news: Received<Notify>) {
        self.0.add(format!("news of {}", news.topic));
    }

    async fn result(&self, result: Received<DelegationOutcome>) {
        self.0.add(format!("result: {}", result.outcome));
    }

    async fn error(&self, error: Received<EnvelopeError>) {
        self.0.add(format!("error: {}", *error));
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_is_taken_on_and_done() {
    let heard = Heard::default();
    let (_session, peer) = pair((), Painter(heard.clone())).await;
    let task = peer.delegate("kitchen").await.unwrap();
    assert_eq!(task.estimated(), Some(Duration::from_millis(1_500)));
    let begin = Instant::now();
    for _ in 0..2 {
        let outcome = task.result().await.unwrap();
        assert_eq!((outcome.status, &*outcome.outcome), (OutcomeStatus::Completed, "kitchen is done"));
    }
    assert_eq!(begin.elapsed().as_secs(), 1);
    assert_eq!(heard.all(), ["does kitchen"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_may_fail() {
    let (_session, peer) = pair((), Painter(Heard::default())).await;
    let refused = peer.delegate("tiles").await.unwrap_err();
    assert!(
        matches!(&refused, Error::Declined(fault) if fault.code == EnvelopeErrorCode::NotAuthorized),
        "{refused}"
    );
    let failed = peer.delegate("fail").await.unwrap().result().await.unwrap_err();
    assert_eq!(failed.code(), EnvelopeErrorCode::UnknownDomain, "{failed}");
    let panicked = peer.delegate("panic").await.unwrap().result().await.unwrap_err();
    assert_eq!(panicked.code(), EnvelopeErrorCode::Internal, "{panicked}");
    let panicked = peer.delegate("panic early").await.unwrap_err();
    assert_eq!(panicked.code(), EnvelopeErrorCode::Internal, "{panicked}");
    assert_eq!(peer.ping().await.unwrap().active_tasks, 0);
}

#[tokio::test(start_paused = true)]
async fn progress_comes_in_order_and_ends_with_the_task() {
    let heard = Heard::default();
    let (_session, peer) = pair(Listener(heard.clone()), Painter(Heard::default())).await;
    let task = peer.delegate("with news").await.unwrap();
    task.result().await.unwrap();
    let mut progress = task.progress();
    let mut steps = Vec::new();
    while let Some(news) = progress.next().await {
        steps.push(news.unwrap().data.as_ref().unwrap().to_string());
    }
    assert_eq!(steps, ["1", "2", "3"]);
    assert_eq!(heard.all(), Vec::<String>::new());
    let task = peer.delegate("ask back").await.unwrap();
    assert_eq!(task.result().await.unwrap().outcome, "blue!");
}

#[tokio::test(start_paused = true)]
async fn a_task_is_reported_without_its_session() {
    let (session, peer) = pair((), Painter(Heard::default())).await;
    let task = peer.delegate("with late news").await.unwrap();
    let _connection = session.connection();
    drop(session);
    let news = task.progress().next().await.unwrap().unwrap();
    assert_eq!(news.data.as_ref().unwrap().get(), "\"late\"");
    assert_eq!(task.result().await.unwrap().outcome, "with late news is done");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_ends_as_cancelled_or_as_it_likes() {
    let (_session, peer) = pair((), Painter(Heard::default())).await;
    let task = peer.delegate("for ever").await.unwrap();
    let ack = task.cancel("no paint").await.unwrap();
    assert!(ack.accepted, "{ack:?}");
    let end = task.result().await.unwrap_err();
    assert!(matches!(&end, Error::Response(fault) if fault.code == EnvelopeErrorCode::Cancelled), "{end}");
    assert!(end.to_string().contains("no paint"), "{end}");
    let ack = task.cancel("again").await.unwrap();
    assert_eq!((ack.accepted, ack.reason.as_deref()), (false, Some("already_finished")));
    assert_eq!(ack.error.unwrap().code.as_str(), "already_finished");

    let task = peer.delegate("until told").await.unwrap();
    task.cancel("enough").await.unwrap();
    assert_eq!(task.result().await.unwrap().status, OutcomeStatus::Partial);
}

#[tokio::test(start_paused = true)]
async fn a_task_has_its_time() {
    let (_session, peer) = pair((), Painter(Heard::default())).await;
    let begin = Instant::now();
    let task = peer.delegate("for ever").deadline(Duration::from_secs(5)).await.unwrap();
    let end = task.result().await.unwrap_err();
    assert_eq!(end.code(), EnvelopeErrorCode::Timeout, "{end}");
    assert_eq!(begin.elapsed().as_secs(), 6, "with the grace");
    let late = peer.delegate("think").ack_timeout(Duration::from_secs(3)).await.unwrap_err();
    assert!(matches!(late, Error::Timeout { kind: EnvelopeKind::Delegate, .. }), "{late}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(peer.ping().await.unwrap().active_tasks, 0, "it was withdrawn");
}

#[tokio::test(start_paused = true)]
async fn there_are_so_many_slots_and_one_for_what_is_urgent() {
    let heard = Heard::default();
    let (_session, peer) = pair((), Painter(heard.clone())).await;
    assert_eq!(peer.ping().await.unwrap().status, AgentStatus::Idle);
    let first = peer.delegate("one").await.unwrap();
    assert_eq!(peer.ping().await.unwrap().status, AgentStatus::Busy);
    let _second = peer.delegate("two").await.unwrap();
    let full = peer.delegate("three").await.unwrap_err();
    assert!(matches!(&full, Error::Response(fault) if fault.code == EnvelopeErrorCode::Overloaded), "{full}");
    assert!(full.is_retryable());
    let _third = peer.delegate("three").urgent().await.unwrap();
    assert_eq!(peer.delegate("four").urgent().await.unwrap_err().code(), EnvelopeErrorCode::Overloaded);
    let pong = peer.ping().await.unwrap();
    assert_eq!((pong.status, pong.active_tasks, &*pong.agent_name), (AgentStatus::Overloaded, 3, "painter"));
    first.result().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(heard.all(), ["does one", "does two", "does three now"]);
    let pong = peer.ping().await.unwrap();
    assert_eq!((pong.status, pong.active_tasks, pong.uptime_secs), (AgentStatus::Idle, 0, 11));
    assert_eq!(peer.delegate("four").await.unwrap().result().await.unwrap().outcome, "four is done");
}

/// It is no matter of how many there are: none is ever taken.
#[tokio::test(start_paused = true)]
async fn without_slots_no_task_is_accepted() {
    let (_session, peer) = pair((), Listener(Heard::default())).await;
    let refused = peer.delegate("kitchen").await.unwrap_err();
    assert!(
        matches!(&refused, Error::Response(fault) if fault.code == EnvelopeErrorCode::UnknownKind),
        "{refused}"
    );
    assert!(!refused.is_retryable() && refused.to_string().contains("max_concurrent_tasks"), "{refused}");
}

/// A result that is too large to be sent is the error `internal`: nobody waits for ever.
#[tokio::test(start_paused = true)]
async fn an_unsendable_message_is_an_error() {
    struct Lavish;

    impl EnvelopeHandler for Lavish {
        fn capabilities(&self) -> Capabilities {
            Capabilities::new("lavish").max_concurrent_tasks(1)
        }

        async fn delegate(&self, _: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
            Ok(DelegationOutcome::new(OutcomeStatus::Completed).outcome("x".repeat(10_000)))
        }
    }

    let (ours, theirs) = Transport::memory();
    let mut limits = Limits::default();
    limits.frame_bytes = 10_000;
    let exchange = Exchange::new().agent_id("a1").envelope_handler(Lavish);
    tokio::spawn(Server::new(Quiet).exchange(exchange).limits(limits).serve(theirs));
    let agent = Client::new(()).exchange(Exchange::new().agent_id("c1")).connect(ours).await.unwrap();
    let session = agent.new_session("/tmp").await.unwrap();
    let end = session.peer_agent().delegate("much").await.unwrap().result().await.unwrap_err();
    assert_eq!(end.code(), EnvelopeErrorCode::Internal, "{end}");
    assert!(end.to_string().contains("frame_bytes"), "{end}");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_what_is_not_reported() {
    let heard = [Heard::default(), Heard::default()];
    let (_session, peer) = pair(Listener(heard[0].clone()), Painter(heard[1].clone())).await;
    let task = peer.delegate("quietly").report_back(false).await.unwrap();
    assert!(matches!(task.result().await, Err(Error::NoReport)));
    assert!(task.progress().next().await.is_none());
    let _failing = peer.delegate("fail").report_back(false).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let _telling = peer.delegate("with news").report_back(false).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(heard[1].all(), ["does quietly", "does fail", "does with news"]);
    assert_eq!(heard[0].all(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn messages_without_a_waiting_caller_go_to_the_handler() {
    let heard = Heard::default();
    let (_session, peer) = pair(Listener(heard.clone()), Painter(Heard::default())).await;
    drop(peer.delegate("later").await.unwrap());
    assert_eq!(heard.wait(1).await, ["result: later is done"]);
    let seen = peer.delegate("fail").await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(seen.is_over());
    drop(seen);
    assert_eq!(heard.wait(2).await[1], "error: nobody here knows about work.tiles (unknown_domain)");
}

#[tokio::test(start_paused = true)]
async fn waiting_calls_fail_when_the_connection_ends() {
    let (_session, peer) = pair((), Painter(Heard::default())).await;
    let task = peer.delegate("for ever").await.unwrap();
    let thinking = tokio::spawn({
        let peer = peer.clone();
        async move { peer.delegate("think").await.map(drop) }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    let begin = Instant::now();
    peer.rpc().close();
    for end in
        [task.result().await.map(drop), thinking.await.unwrap(), peer.notify("a.b", json!(1)).await.map(drop)]
    {
        let error = end.unwrap_err();
        assert_eq!(error.code(), EnvelopeErrorCode::Unreachable, "{error}");
    }
    assert_eq!(peer.query("anybody?").await.unwrap_err().code(), EnvelopeErrorCode::Unreachable);
    assert_eq!(peer.delegate("anything").await.unwrap_err().code(), EnvelopeErrorCode::Unreachable);
    assert!(peer.subscribe("*").next().await.is_none());
    assert_eq!(begin.elapsed(), Duration::ZERO, "at once");
}
