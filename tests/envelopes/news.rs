//! News: to whom they go, in which order, and what becomes of those that nobody takes.

use std::sync::Arc;
use std::time::Duration;

use duologue_agent::Server;
use duologue_client::exchange::envelope::*;
use duologue_client::{Client, Exchange, Transport};
use duologue_rpc::jsonrpsee::RpcModule;
use duologue_rpc::{Extensions, Limits};
use serde_json::json;
use tokio::sync::Notify as Gate;

use super::pair::{Heard, Quiet, pair};

/// Hears news, one a permit.
struct Slow {
    heard: Heard,
    gate: Arc<Gate>,
}

impl Correspondent for Slow {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("slow").max_concurrent_tasks(1)
    }

    async fn query(&self, query: Received<Query>) -> Result<Response, Fault> {
        match query.question.as_str() {
            "news?" => {
                // The asker's news come to a subscription of the one it asks, in the session it asks in.
                let mut news = query.peer.subscribe("a.*");
                query.peer.notify("ready", json!(null)).await.map_err(|error| error.fault())?;
                let first = news.next().await.and_then(Result::ok).ok_or_else(|| Fault::internal("none"))?;
                Ok(Response::new(&*first.topic))
            }
            _ => std::future::pending().await,
        }
    }

    async fn delegate(&self, _: Assignment) -> Result<Outcome, Fault> {
        std::future::pending().await
    }

    async fn notify(&self, news: Received<Notify>) {
        self.heard.add(&*news.topic);
        self.gate.notified().await;
        if news.topic == "panic" {
            std::panic::resume_unwind(Box::new(()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn subscriptions_hear_what_they_asked_for() {
    let heard = Heard::default();
    let slow = Slow { heard: heard.clone(), gate: Arc::default() };
    let (_session, peer) = pair((), slow).await;
    let mut ready = peer.subscribe("ready");
    let answer = tokio::spawn(peer.query("news?").into_future());
    assert_eq!(ready.next().await.unwrap().unwrap().topic, "ready");
    for topic in ["b.c", "a", "a.b.c", "a.d"] {
        peer.notify(topic, json!(1)).await.unwrap();
    }
    assert_eq!(answer.await.unwrap().unwrap().summary, "a.b.c");
    // The correspondent hears all of them as well.
    assert_eq!(heard.wait(1).await, ["b.c"]);
}

/// What a busy side does with its hands does not matter for a ping.
#[tokio::test(start_paused = true)]
async fn a_ping_is_answered_while_everybody_is_busy() {
    let slow = Slow { heard: Heard::default(), gate: Arc::default() };
    let (_session, peer) = pair((), slow).await;
    let _tasks = [peer.delegate("x").await.unwrap(), peer.delegate("x").urgent().await.unwrap()];
    let queries: Vec<_> = (0..50).map(|_| tokio::spawn(peer.query("x").into_future())).collect();
    for number in 0..50 {
        peer.notify(format!("n{number}"), json!(1)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(9)).await;
    let begin = tokio::time::Instant::now();
    let pong = peer.ping().await.unwrap();
    assert_eq!(begin.elapsed(), Duration::ZERO);
    assert_eq!((pong.status, pong.active_tasks, pong.uptime_secs), (Status::Overloaded, 2, 9));
    drop(queries);
}

#[tokio::test(start_paused = true)]
async fn what_a_subscriber_does_not_take_is_counted() {
    let (_session, peer) = pair((), Flood).await;
    let mut all = peer.subscribe("*");
    let mut some = peer.subscribe("n.7");
    assert_eq!(peer.query("300").await.unwrap().summary, "sent");
    assert_eq!(all.next().await.unwrap().unwrap_err().missed, 300 - 256);
    assert_eq!(all.next().await.unwrap().unwrap().topic, "n.44");
    assert_eq!(some.next().await.unwrap().unwrap().topic, "n.7");
    // Two large ones are more than a megabyte.
    assert_eq!(peer.query("large").await.unwrap().summary, "sent");
    let lagged = all.next().await.unwrap().unwrap_err();
    assert_eq!(lagged.missed, 255 + 1, "{lagged}");
    assert_eq!(all.next().await.unwrap().unwrap().topic, "large.1");
    peer.rpc().close();
    assert!(all.next().await.is_none() && some.next().await.is_none());
}

struct Flood;

impl Correspondent for Flood {
    async fn query(&self, query: Received<Query>) -> Result<Response, Fault> {
        let fault = |error: duologue_client::exchange::Error| error.fault();
        match query.question.parse::<u32>() {
            Ok(many) => {
                for number in 0..many {
                    query.peer.notify(format!("n.{number}"), json!(number)).await.map_err(fault)?;
                }
            }
            Err(_) => {
                for number in 0..2 {
                    let data = json!("x".repeat(700_000));
                    query.peer.notify(format!("large.{number}"), data).await.map_err(fault)?;
                }
            }
        }
        Ok(Response::new("sent"))
    }
}

/// A correspondent that stops is not waited for for ever, and goes on when it can.
#[tokio::test(start_paused = true)]
async fn news_that_nobody_takes_are_let_go() {
    let (heard, gate) = (Heard::default(), Arc::new(Gate::new()));
    let slow = Slow { heard: heard.clone(), gate: gate.clone() };
    let (ours, theirs) = Transport::memory();
    let mut limits = Limits::default();
    limits.queue_bytes = 10_000;
    let exchange = Exchange::new().agent_id("a1").correspondent(slow);
    tokio::spawn(Server::new(Quiet).exchange(exchange).limits(limits).serve(theirs));
    let agent = Client::new(()).exchange(Exchange::new().agent_id("c1")).connect(ours).await.unwrap();
    let session = agent.new_session("/tmp").await.unwrap();
    let peer = session.peer_agent();
    peer.notify("panic", json!(0)).await.unwrap();
    for number in 0..20 {
        peer.notify(format!("n.{number}"), json!("x".repeat(1_000))).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(heard.all(), ["panic"]);
    // The reader has let them go, so that what is behind them is read.
    peer.ping().await.unwrap();
    for _ in 0..30 {
        gate.notify_one();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    peer.notify("again", json!(0)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(heard.all().last().unwrap(), "again");
}

/// Methods of others that look like ours go to whoever handles them.
#[tokio::test(start_paused = true)]
async fn foreign_methods_pass_to_the_handlers_of_the_user() {
    let (ours, theirs) = Transport::memory();
    let mut module = RpcModule::new(());
    module.register_method("_session/poke", |_, (), _| json!({"poked": true})).unwrap();
    let extensions = Extensions::new().merge(module).unwrap();
    let exchange = Exchange::new().agent_id("a1");
    tokio::spawn(Server::new(Quiet).exchange(exchange).extensions(extensions).serve(theirs));
    let agent = Client::new(()).exchange(Exchange::new()).connect(ours).await.unwrap();
    let params = json!({"envelope": {"v": 1, "id": "p", "from": "c", "to": "", "ts": 1, "kind": "poke"}});
    let answer: serde_json::Value = agent.peer_agent().rpc().call("_session/poke", &params).await.unwrap();
    assert_eq!(answer, json!({"poked": true}));
    let error =
        agent.peer_agent().rpc().call::<_, serde_json::Value>("_session/prod", &params).await.unwrap_err();
    assert_eq!(error.as_response().unwrap().code.0, -32601);
}
