//! Notifications: their recipients, their order, and those that nobody reads.

use std::sync::{Arc, Weak};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use duologue_agent::{Agent, Prompt, Server, Session, SessionSetup, StopReason, Turn};
use duologue_client::exchange::Error;
use duologue_client::exchange::envelope::*;
use duologue_client::{Client, Exchange, Transport};
use duologue_rpc::jsonrpsee::RpcModule;
use duologue_rpc::{Extensions, Limits};
use futures::StreamExt as _;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Notify as Gate;

use super::pair::{Heard, Quiet, pair};
use duologue_test_support::{Wire, client_of, in_time};

/// Handles notifications, one for each permit.
struct Slow {
    heard: Heard,
    gate: Arc<Gate>,
}

impl EnvelopeHandler for Slow {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("slow").max_concurrent_tasks(1)
    }

    async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        match query.question.as_str() {
            "news?" => {
                // Notifications of the requesting side reach a subscription of the handler, in the same session.
                let mut news = query.peer.subscribe("a.*");
                query.peer.notify("ready", json!(null)).await.map_err(|error| error.fault())?;
                let first =
                    news.next().await.and_then(Result::ok).ok_or_else(|| EnvelopeError::internal("none"))?;
                Ok(QueryResponse::new(&*first.topic))
            }
            "dropped?" => Ok(QueryResponse::new(query.peer.exchange_stats().dropped.to_string())),
            _ => std::future::pending().await,
        }
    }

    async fn delegate(&self, _: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
        std::future::pending().await
    }

    async fn result(&self, result: Received<DelegationOutcome>) {
        self.heard.add(&*result.outcome);
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
async fn subscriptions_receive_their_topics() {
    let (heard, gate) = (Heard::default(), Arc::new(Gate::new()));
    let slow = Slow { heard: heard.clone(), gate: gate.clone() };
    let (_session, peer) = pair((), slow).await;
    let mut ready = peer.subscribe("ready");
    let answer = tokio::spawn(peer.query("news?").into_future());
    assert_eq!(ready.next().await.unwrap().unwrap().topic, "ready");
    for topic in ["b.c", "a", "a.b.c", "a.d"] {
        peer.notify(topic, json!(1)).await.unwrap();
    }
    assert_eq!(answer.await.unwrap().unwrap().summary, "a.b.c");
    // The handler receives all of them as well.
    for _ in 0..4 {
        gate.notify_one();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(heard.all(), ["b.c", "a", "a.b.c", "a.d"]);
}

/// A handle in a session hears of that session.
#[tokio::test(start_paused = true)]
async fn a_session_is_known_while_its_agent_is_listened_to() {
    let slow = Slow { heard: Heard::default(), gate: Arc::default() };
    let (session, peer) = pair((), slow).await;
    let _connection = session.connection().clone();
    drop(session);
    let (mut ready, mut news) = (peer.subscribe("ready"), peer.subscribe("*"));
    let answer = tokio::spawn(peer.query("news?").into_future());
    drop(peer);
    assert_eq!(news.next().await.unwrap().unwrap().topic, "ready");
    assert_eq!(ready.next().await.unwrap().unwrap().topic, "ready");
    answer.abort();
}

#[tokio::test(start_paused = true)]
async fn a_subscription_is_for_its_session() {
    let slow = Slow { heard: Heard::default(), gate: Arc::default() };
    let (session, peer) = pair((), slow).await;
    let connection = session.connection();
    let other = connection.new_session("/tmp").await.unwrap();
    let elsewhere = other.peer_agent();
    let [mut here, mut there, mut anywhere] =
        [&peer, &elsewhere, connection.peer_agent()].map(|peer| peer.subscribe("*"));
    for asker in [&peer, &elsewhere] {
        let asking = tokio::spawn(asker.query("news?").into_future());
        assert_eq!(anywhere.next().await.unwrap().unwrap().topic, "ready");
        asker.notify("a.b", json!(1)).await.unwrap();
        asking.await.unwrap().unwrap();
    }
    for (news, session) in [(&mut here, peer.session()), (&mut there, elsewhere.session())] {
        assert_eq!(news.next().await.unwrap().unwrap().peer.session(), session);
    }
    peer.rpc().close();
    assert!(here.next().await.is_none() && there.next().await.is_none());
}

/// Also those that are made at that moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_end_with_the_connection() {
    for _ in 0..20 {
        let (_session, peer) = pair((), ()).await;
        let subscriber = std::thread::spawn({
            let peer = peer.clone();
            move || {
                let mut after = 200;
                std::iter::from_fn(|| {
                    after -= u32::from(peer.rpc().is_closing());
                    (after > 0).then(|| peer.subscribe("*"))
                })
                .collect::<Vec<_>>()
            }
        });
        peer.rpc().close();
        peer.rpc().closed().await;
        let all = tokio::task::spawn_blocking(|| subscriber.join().unwrap()).await.unwrap();
        in_time(async {
            for mut news in all {
                assert!(news.next().await.is_none());
            }
        })
        .await;
    }
}

/// Only the last poller is woken, however often and from wherever it is polled.
#[tokio::test]
async fn a_subscription_holds_one_waker() {
    struct Nobody;

    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }

    let (_session, peer) = pair((), ()).await;
    let mut news = peer.subscribe("*");
    let kept = |all: &[Weak<Nobody>]| all.iter().filter(|waker| waker.strong_count() > 0).count();
    let mut all = Vec::new();
    for _ in 0..100 {
        let nobody = Arc::new(Nobody);
        all.push(Arc::downgrade(&nobody));
        assert!(news.poll_next_unpin(&mut Context::from_waker(&Waker::from(nobody))).is_pending());
    }
    assert_eq!((kept(&all), kept(&all[99..])), (1, 1));
    drop(news);
    assert_eq!(kept(&all), 0);
}

/// A ping does not wait for busy handlers.
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
    assert_eq!((pong.status, pong.active_tasks, pong.uptime_secs), (AgentStatus::Overloaded, 2, 9));
    drop(queries);
}

#[tokio::test(start_paused = true)]
async fn unread_messages_of_a_subscriber_are_counted() {
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
    // So is one that is larger by itself.
    assert_eq!(peer.query("huge").await.unwrap().summary, "sent");
    assert_eq!(all.next().await.unwrap().unwrap_err().missed, 1);
    assert_eq!(peer.query("1").await.unwrap().summary, "sent");
    assert_eq!(all.next().await.unwrap().unwrap().topic, "n.0");
    peer.rpc().close();
    assert!(all.next().await.is_none() && some.next().await.is_none());
}

struct Flood;

impl EnvelopeHandler for Flood {
    async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        let fault = |error: duologue_client::exchange::Error| error.fault();
        match query.question.as_str().parse::<u32>() {
            Ok(many) => {
                for number in 0..many {
                    query.peer.notify(format!("n.{number}"), json!(number)).await.map_err(fault)?;
                }
            }
            Err(_) => {
                let (many, bytes) = if query.question == "huge" { (1, 1_100_000) } else { (2, 700_000) };
                for number in 0..many {
                    let data = json!("x".repeat(bytes));
                    query.peer.notify(format!("large.{number}"), data).await.map_err(fault)?;
                }
            }
        }
        Ok(QueryResponse::new("sent"))
    }
}

/// A correspondent that stops is not waited for for ever, and goes on when it can.
#[tokio::test(start_paused = true)]
async fn unread_notifications_are_evicted() {
    let (heard, gate) = (Heard::default(), Arc::new(Gate::new()));
    let slow = Slow { heard: heard.clone(), gate: gate.clone() };
    let (ours, theirs) = Transport::memory();
    let mut limits = Limits::default();
    limits.queue_bytes = 10_000;
    let exchange = Exchange::new().agent_id("a1").envelope_handler(slow);
    tokio::spawn(Server::new(Quiet).exchange(exchange).limits(limits).serve(theirs));
    let agent = Client::new(()).exchange(Exchange::new().agent_id("c1")).connect(ours).await.unwrap();
    let session = agent.new_session("/tmp").await.unwrap();
    let peer = session.peer_agent();
    peer.notify("panic", json!(0)).await.unwrap();
    // The end of an earlier task comes first. It is not dropped with the notifications behind it.
    let end = json!({"v": 1, "id": "r", "from": "c1", "to": "a1", "ts": 1, "kind": "result", "ref": "before",
        "payload": {"status": "completed", "outcome": "the end"}});
    let params = json!({"sessionId": session.id(), "envelope": end});
    peer.rpc().notify_raw("_session/result", &params).await.unwrap();
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
    let all = heard.all();
    assert_eq!((&*all[1], &*all[all.len() - 1]), ("the end", "again"));
    let lost = 20 - (all.len() - 3);
    assert!(lost > 10, "{all:?}");
    assert_eq!(peer.query("dropped?").await.unwrap().summary, lost.to_string());
}

/// A notification whose name looks like ours.
#[derive(Serialize, Deserialize)]
struct Poked {
    envelope: serde_json::Value,
}

impl duologue_schema::Notification for Poked {
    const METHOD: &'static str = "_session/poked";
}

/// Foreign methods with a similar name go to the user's handler.
#[tokio::test(start_paused = true)]
async fn foreign_methods_pass_to_the_handlers_of_the_user() {
    let (ours, theirs) = Transport::memory();
    let mut module = RpcModule::new(());
    module.register_method("_session/poke", |_, (), _| json!({"poked": true})).unwrap();
    let heard = Heard::default();
    let poked = heard.clone();
    let extensions = Extensions::new()
        .merge(module)
        .unwrap()
        .on_notification(move |_, poke: Poked| poked.add(poke.envelope["id"].to_string()));
    let exchange = Exchange::new().agent_id("a1");
    tokio::spawn(Server::new(Quiet).exchange(exchange).extensions(extensions).serve(theirs));
    let agent = Client::new(()).exchange(Exchange::new()).connect(ours).await.unwrap();
    let params = json!({"envelope": {"v": 1, "id": "p", "from": "c", "to": "", "ts": 1, "kind": "poke"}});
    let answer: serde_json::Value = agent.peer_agent().rpc().call("_session/poke", &params).await.unwrap();
    assert_eq!(answer, json!({"poked": true}));
    agent.peer_agent().rpc().notify_raw("_session/poked", &params).await.unwrap();
    assert_eq!(heard.wait(1).await, [r#""p""#]);
    let error =
        agent.peer_agent().rpc().call::<_, serde_json::Value>("_session/prod", &params).await.unwrap_err();
    assert_eq!(error.as_response().unwrap().code.0, -32601);
}

/// A client that speaks envelopes by itself, with an agent that has the SDK to speak them.
#[tokio::test(start_paused = true)]
async fn a_side_that_was_not_set_up_takes_only_what_is_its_own() {
    let heard = Heard::default();
    let (news, errors) = (heard.clone(), heard.clone());
    let extensions = Extensions::new()
        .on_notification(move |_, told: EnvelopeParams<Notify>| news.add(&*told.envelope.payload.topic))
        .on_notification(move |_, error: EnvelopeParams<EnvelopeError>| {
            errors.add(&*error.envelope.payload.message)
        });
    let meta = json!({"_meta": {"duologue": {"agentId": "ab", "envelope": {"v": [1]}}}});
    let (connection, mut agent) = client_of(Wire::Memory, Client::new(()).extensions(extensions), meta).await;
    let (session, ()) = tokio::join!(connection.new_session("/tmp"), agent.accept_session("s"));
    let (session, peer) = session.map(|session| (session.clone(), session.peer_agent())).unwrap();
    let mut some = peer.subscribe("a.*");
    let query = tokio::spawn(peer.query("why?").into_future());
    let asked = agent.expect("_session/query").await["params"]["envelope"].clone();
    let envelope = |id: &str, kind: &str, payload: serde_json::Value| json!({"id": id, "from": "ab", "to": asked["from"], "ts": 2, "kind": kind, "payload": payload});
    let error = json!({"code": "tired", "message": "tired"});
    let mut own = envelope("e", "error", error.clone());
    own["ref"] = asked["id"].clone();
    for (kind, envelope) in [
        ("notify", envelope("n1", "notify", json!({"topic": "a.b"}))),
        ("notify", envelope("n2", "notify", json!({"topic": "b"}))),
        ("error", own),
        ("error", envelope("f", "error", error)),
        ("ping", envelope("p", "ping", json!({}))),
    ] {
        agent.notify(&format!("_session/{kind}"), json!({"sessionId": "s", "envelope": envelope})).await;
    }
    assert_eq!(some.next().await.unwrap().unwrap().topic, "a.b");
    assert_eq!(query.await.unwrap().unwrap_err().code().as_str(), "tired");
    agent.probe().await;
    assert_eq!(heard.all(), ["b", "tired"]);
    drop(session);
}

/// Without envelopes on either side, `_session/notify` is a notification like any other: also the same one twice.
#[tokio::test(start_paused = true)]
async fn without_envelopes_nothing_is_taken() {
    let heard = Heard::default();
    let news = heard.clone();
    let extensions = Extensions::new()
        .on_notification(move |_, told: EnvelopeParams<Notify>| news.add(told.envelope.id.as_str()));
    let (connection, mut agent) =
        client_of(Wire::Memory, Client::new(()).extensions(extensions), json!({})).await;
    let envelope =
        json!({"id": "n", "from": "a", "to": "", "ts": 1, "kind": "notify", "payload": {"topic": "t"}});
    for _ in 0..2 {
        agent.notify("_session/notify", json!({"sessionId": "s", "envelope": envelope})).await;
    }
    agent.probe().await;
    assert_eq!(heard.all(), ["n", "n"]);
    drop(connection);
}

/// A handler of a notification that is stuck ends soon after its connection.
#[tokio::test(start_paused = true)]
async fn a_stuck_handler_is_dropped_with_its_connection() {
    struct Stuck(Heard);
    struct Guard(Heard);

    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.add("dropped");
        }
    }

    impl EnvelopeHandler for Stuck {
        async fn notify(&self, _: Received<Notify>) {
            let _guard = Guard(self.0.clone());
            std::future::pending().await
        }
    }

    let heard = Heard::default();
    let (_session, peer) = pair((), Stuck(heard.clone())).await;
    peer.notify("a", json!(1)).await.unwrap();
    peer.ping().await.unwrap();
    assert_eq!(heard.all(), [""; 0]);
    peer.rpc().close();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(heard.all(), ["dropped"]);
}

/// Sends notifications before its session is known.
struct Eager;

impl Agent for Eager {
    async fn new_session(
        &self,
        _: &duologue_agent::Context,
        session: &Session,
    ) -> duologue_agent::Result<SessionSetup> {
        let peer = session.peer_agent();
        for number in 0..2 {
            peer.notify(format!("n.{number}"), json!(1)).await.map_err(duologue_agent::Error::other)?;
        }
        let much = peer.notify("much", json!("x".repeat(8 << 20))).await.unwrap_err();
        assert!(matches!(much, Error::TooEarly), "{much}");
        Ok(SessionSetup::new())
    }

    async fn prompt(&self, turn: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        turn.peer_agent().notify("turn", json!(1)).await.map_err(duologue_agent::Error::other)?;
        Ok(StopReason::EndTurn)
    }
}

/// A handler gets a notification only after the session's id is known.
#[tokio::test(start_paused = true)]
async fn notifications_follow_the_response_that_names_their_session() {
    let (transport, mut client) = Wire::Memory.scripted();
    tokio::spawn(Server::new(Eager).exchange(Exchange::new().agent_id("c1e4")).serve(transport));
    client.initialize(json!({"_meta": {"duologue": {"agentId": "ab", "envelope": {"v": [1]}}}})).await;
    let session = client.new_session().await;
    let prompt = client.prompt(&session, "now").await;
    for topic in ["n.0", "n.1", "turn"] {
        let told = client.expect("_session/notify").await;
        assert_eq!(
            (&told["params"]["sessionId"], told["params"]["envelope"]["payload"]["topic"].as_str()),
            (&json!(session), Some(topic))
        );
    }
    assert_eq!(client.next_message().await["id"], prompt);
}
