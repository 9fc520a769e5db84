//! Responses that come early, late, on another connection, for another request, or not at all. The test plays the
//! other agent line by line.

use std::time::Duration;

use duologue_client::exchange::envelope::*;
use duologue_client::exchange::{Error, PeerAgent};
use duologue_client::{Client, Connection, Exchange, Session};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::pair::Heard;
use duologue_test_support::{ScriptedPeer, Wire, client_of, over_every_wire};

/// Hears of what nobody waits for.
struct Listener(Heard);

impl EnvelopeHandler for Listener {
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

/// A client with a session, whose agent the test plays.
struct Desk {
    agent: ScriptedPeer,
    _connection: Connection,
    session: Session,
    peer: PeerAgent,
    heard: Heard,
}

async fn desk(wire: Wire, offers: Value) -> Desk {
    let heard = Heard::default();
    let client =
        Client::new(()).exchange(Exchange::new().agent_id("c1e4").envelope_handler(Listener(heard.clone())));
    let meta = json!({ "_meta": { "duologue": offers } });
    let (connection, mut agent) = client_of(wire, client, meta).await;
    let (session, ()) = tokio::join!(connection.new_session("/tmp"), agent.accept_session("s"));
    let session = session.unwrap();
    let peer = session.peer_agent().clone();
    Desk { agent, _connection: connection, session, peer, heard }
}

async fn named() -> Desk {
    named_over(Wire::Memory).await
}

async fn named_over(wire: Wire) -> Desk {
    desk(wire, json!({"agentId": "ab", "envelope": {"v": [1, 7]}})).await
}

/// An envelope of the agent that answers another one.
fn reply(to: &Value, kind: &str, payload: Value) -> Value {
    let asked = &to["params"]["envelope"];
    json!({
        "v": 1, "id": format!("{kind} to {}", asked["id"]), "from": "ab", "to": asked["from"], "ts": 2,
        "kind": kind, "ref": asked["id"], "payload": payload,
    })
}

fn payload(message: &Value) -> &Value {
    &message["params"]["envelope"]["payload"]
}

impl Desk {
    /// Does something, and hears the message that comes of it.
    async fn asks<T: Send + 'static>(
        &mut self,
        method: &str,
        asking: impl IntoFuture<Output = T, IntoFuture: Send + 'static>,
    ) -> (tokio::task::JoinHandle<T>, Value) {
        let asking = tokio::spawn(asking.into_future());
        (asking, self.agent.expect(method).await)
    }

    /// A task that the agent has taken on.
    async fn delegated(&mut self, task: &str) -> (Delegation, Value) {
        let (task, asked) = self.asks("_session/delegate", self.peer.delegate(task)).await;
        let ack = reply(&asked, "ack", json!({"accepted": true}));
        self.agent.respond(&asked, json!({ "envelope": ack })).await;
        (task.await.unwrap().unwrap(), asked)
    }

    async fn tell(&mut self, kind: &str, envelope: Value) {
        let params = json!({"sessionId": "s", "envelope": envelope});
        self.agent.notify(&format!("_session/{kind}"), params).await;
    }

    async fn fails(&mut self, asked: &Value, error: Value) {
        self.agent.send(json!({"jsonrpc": "2.0", "id": asked["id"], "error": error})).await;
    }
}

#[tokio::test(start_paused = true)]
async fn sent_envelopes_match_the_snapshot() {
    let mut desk = named().await;
    let query = desk.peer.query("why?").domain("meta.why").max_tokens(9).deadline(Duration::from_secs(5));
    let (_query, asked) = desk.asks("_session/query", query).await;
    assert_eq!(asked["params"]["sessionId"], "s");
    let envelope = &asked["params"]["envelope"];
    let ends = (&envelope["v"], &envelope["from"], &envelope["to"], &envelope["kind"], &envelope["ref"]);
    assert_eq!(ends, (&json!(1), &json!("c1e4"), &json!("ab"), &json!("query"), &json!(null)));
    assert_eq!(envelope["id"].as_str().unwrap().len(), 36);
    let fields = json!({"question": "why?", "domain": "meta.why", "max_tokens": 9, "deadline_ms": 5000});
    assert_eq!(*payload(&asked), fields);
    let context: Members = [("room", json!("kitchen"))].into_iter().collect();
    let task = desk.peer.delegate("paint").context(context).urgent().deadline(Duration::from_secs(60));
    let (_task, asked) = desk.asks("_session/delegate", task.report_back(false)).await;
    let fields = json!({
        "task": "paint", "context": {"room": "kitchen"}, "priority": "urgent", "report_back": false,
        "deadline_ms": 60_000,
    });
    assert_eq!(*payload(&asked), fields);
    let (_task, asked) = desk.asks("_session/delegate", desk.peer.delegate("paint")).await;
    let fields = json!({"task": "paint", "context": {}, "priority": "normal", "report_back": true});
    assert_eq!(*payload(&asked), fields);
    desk.peer.notify("a.b", json!([1])).importance(Importance::Low).await.unwrap();
    let told = desk.agent.expect("_session/notify").await;
    assert_eq!(*payload(&told), json!({"topic": "a.b", "data": [1], "importance": "low"}));
    let (_ping, asked) = desk
        .asks("_session/ping", {
            let peer = desk.peer.clone();
            async move { peer.ping().await }
        })
        .await;
    assert_eq!(*payload(&asked), json!({}));
}

over_every_wire!(answers_may_come_as_notifications, an_error_afterwards_ends_what_waits);

async fn answers_may_come_as_notifications(wire: Wire) {
    let mut desk = named_over(wire).await;
    let (query, asked) = desk.asks("_session/query", desk.peer.query("why?")).await;
    // Of the wrong kind, to something else, and then the one that is meant.
    desk.tell("pong", reply(&asked, "pong", json!({"status": "idle"}))).await;
    let mut stray = reply(&asked, "response", json!({"summary": "no"}));
    stray["ref"] = json!("else");
    desk.tell("response", stray).await;
    desk.tell("response", reply(&asked, "response", json!({"summary": "because"}))).await;
    assert_eq!(query.await.unwrap().unwrap().summary, "because");
    desk.tell("response", reply(&asked, "response", json!({"summary": "late"}))).await;
    // The response to the request itself comes too late as well.
    desk.agent
        .respond(&asked, json!({"envelope": reply(&asked, "response", json!({"summary": "late"}))}))
        .await;
    desk.agent.probe().await;
    assert_eq!((desk.peer.exchange_stats().late, desk.peer.rpc().stats().stray_responses), (3, 1));

    let (task, asked) = desk.asks("_session/delegate", desk.peer.delegate("paint")).await;
    let ack = reply(&asked, "ack", json!({"accepted": true, "estimated_ms": 5}));
    desk.agent.notify("_session/ack", json!({"envelope": ack, "_meta": {"cost": 7}})).await;
    let task = task.await.unwrap().unwrap();
    assert_eq!(task.estimated(), Some(Duration::from_millis(5)));
    assert_eq!(task.ack_meta().and_then(|meta| meta.get("cost")), Some(7));
    let ping = {
        let peer = desk.peer.clone();
        async move { peer.ping().await }
    };
    let (ping, asked) = desk.asks("_session/ping", ping).await;
    desk.tell("pong", reply(&asked, "pong", json!({"status": "dreaming"}))).await;
    assert_eq!(ping.await.unwrap().unwrap().status.as_str(), "dreaming");
    let discover = {
        let peer = desk.peer.clone();
        async move { peer.discover().await }
    };
    let (discover, asked) = desk.asks("_session/discover", discover).await;
    let capabilities = reply(&asked, "capabilities", json!({"agent_name": "played"}));
    desk.agent.notify("_session/capabilities", json!({ "envelope": capabilities })).await;
    assert_eq!(discover.await.unwrap().unwrap().agent_name, "played");
    assert_eq!(desk.peer.rpc().pending_requests(), 0);
}

async fn an_error_afterwards_ends_what_waits(wire: Wire) {
    let mut desk = named_over(wire).await;
    let (query, asked) = desk.asks("_session/query", desk.peer.query("why?")).await;
    let fault = json!({"code": "tired", "message": "not now", "retryable": true});
    desk.tell("error", reply(&asked, "error", fault.clone())).await;
    let error = query.await.unwrap().unwrap_err();
    assert!(error.is_retryable() && error.code().as_str() == "tired", "{error}");
    desk.agent
        .respond(&asked, json!({"envelope": reply(&asked, "response", json!({"summary": "late"}))}))
        .await;
    desk.tell("error", reply(&asked, "error", fault.clone())).await;
    desk.agent.probe().await;
    assert_eq!((desk.peer.rpc().stats().stray_responses, desk.peer.exchange_stats().repeated), (1, 1));

    let (task, asked) = desk.asks("_session/delegate", desk.peer.delegate("paint")).await;
    desk.tell("error", reply(&asked, "error", fault.clone())).await;
    assert!(matches!(task.await.unwrap(), Err(Error::Response(_))));
    let (task, asked) = desk.delegated("paint").await;
    desk.tell("error", reply(&asked, "error", fault.clone())).await;
    desk.tell("result", reply(&asked, "result", json!({"status": "completed"}))).await;
    assert_eq!(task.result().await.unwrap_err().code().as_str(), "tired");
    desk.agent.probe().await;
    assert_eq!(desk.peer.exchange_stats().repeated, 2, "it has ended once");
    assert_eq!(desk.heard.all(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_result_may_come_at_any_time() {
    let mut desk = named().await;
    let done = |what: &str| json!({"status": "completed", "outcome": what, "data": [1], "error": null});
    // Before the ack.
    let (task, asked) = desk.asks("_session/delegate", desk.peer.delegate("early")).await;
    desk.tell("result", reply(&asked, "result", done("early"))).await;
    desk.agent.respond(&asked, json!({"envelope": reply(&asked, "ack", json!({"accepted": true}))})).await;
    let outcome = task.await.unwrap().unwrap().result().await.unwrap();
    assert_eq!((&*outcome.outcome, outcome.error), ("early", None));
    // Instead of it.
    let begin = Instant::now();
    let (task, asked) = desk.asks("_session/delegate", desk.peer.delegate("hasty")).await;
    desk.tell("result", reply(&asked, "result", done("hasty"))).await;
    assert_eq!(task.await.unwrap().unwrap().result().await.unwrap().outcome, "hasty");
    assert_eq!((begin.elapsed(), desk.peer.rpc().pending_requests()), (Duration::ZERO, 0));
    // In spite of a refusal, or after nobody waits any more.
    let (task, asked) = desk.asks("_session/delegate", desk.peer.delegate("never")).await;
    let ack = reply(&asked, "ack", json!({"accepted": false, "reason": "no paint"}));
    desk.agent.respond(&asked, json!({ "envelope": ack })).await;
    desk.tell("result", reply(&asked, "result", done("in spite"))).await;
    let refused = task.await.unwrap().unwrap_err();
    assert!(matches!(&refused, Error::Declined(fault) if fault.message == "no paint"), "{refused}");
    let (task, asked) = desk.delegated("dropped").await;
    drop(task);
    desk.tell("result", reply(&asked, "result", done("dropped"))).await;
    let wait = Duration::from_secs(1);
    let (task, asked) = desk.asks("_session/delegate", desk.peer.delegate("late").ack_timeout(wait)).await;
    let timeout = task.await.unwrap().unwrap_err();
    assert!(
        matches!(timeout, Error::Timeout { kind: EnvelopeKind::Delegate, after } if after == wait),
        "{timeout}"
    );
    desk.agent.expect("$/cancel_request").await;
    for _ in 0..2 {
        desk.tell("result", reply(&asked, "result", done("late"))).await;
    }
    // In a session that is gone.
    let (task, asked) = desk.delegated("after all").await;
    drop(desk.session);
    let params = json!({"sessionId": "s", "envelope": reply(&asked, "result", done("after all"))});
    desk.agent.notify("_session/result", params).await;
    assert_eq!(task.result().await.unwrap().outcome, "after all");
    let heard = desk.heard.wait(3).await;
    assert_eq!(heard, ["result: in spite", "result: dropped", "result: late"]);
    assert_eq!(desk.peer.exchange_stats().repeated, 1);
}

/// A better one may never come.
#[tokio::test(start_paused = true)]
async fn an_end_that_does_not_fit_is_an_end() {
    let mut desk = named().await;
    for (kind, change, code) in [
        ("result", ("payload", json!({"outcome": "no status"})), "invalid_parameter"),
        ("result", ("to", json!("else")), "not_found"),
        ("result", ("v", json!(2)), "unsupported_version"),
        ("result", ("kind", json!("notify")), "kind_mismatch"),
        ("result", ("ts", json!("now")), "invalid_parameter"),
        ("error", ("payload", json!({"message": "no code"})), "invalid_parameter"),
    ] {
        let (task, asked) = desk.delegated("paint").await;
        let mut end = reply(&asked, kind, json!({"status": "completed"}));
        end[change.0] = change.1.clone();
        desk.tell(kind, end).await;
        let error = task.result().await.unwrap_err();
        let fits = matches!(&error, Error::Answer { kind: EnvelopeKind::Delegate, .. })
            && error.code().as_str() == code;
        assert!(fits, "{change:?}: {error}");
        if kind == "result" {
            let complaint = desk.agent.expect("_session/error").await;
            assert_eq!(payload(&complaint)["code"], code, "{complaint}");
        }
    }
    // One that is the first answer, and one to a question.
    let (task, asked) = desk.asks("_session/delegate", desk.peer.delegate("paint")).await;
    desk.tell("result", reply(&asked, "result", json!({}))).await;
    assert!(matches!(task.await.unwrap(), Err(Error::Answer { kind: EnvelopeKind::Delegate, .. })));
    desk.agent.expect("_session/error").await;
    for kind in ["error", "response"] {
        let (query, asked) = desk.asks("_session/query", desk.peer.query("why?")).await;
        let mut answer = reply(&asked, kind, json!({}));
        answer["ts"] = json!(null);
        desk.tell(kind, answer).await;
        assert!(
            matches!(query.await.unwrap(), Err(Error::Answer { kind: EnvelopeKind::Query, .. })),
            "{kind}"
        );
    }
    desk.agent.expect("_session/error").await;
    // A message of a wrong kind does not end a task that nobody waits for.
    let (task, asked) = desk.delegated("paint").await;
    drop(task);
    desk.tell("result", reply(&asked, "result", json!({}))).await;
    let done = json!({"status": "completed", "outcome": "in the end"});
    desk.tell("result", reply(&asked, "result", done)).await;
    assert_eq!(desk.heard.wait(1).await, ["result: in the end"]);
    desk.agent.expect("_session/error").await;
    let (task, asked) = desk.delegated("paint").await;
    drop(task);
    let dropped = desk.peer.exchange_stats().dropped;
    desk.tell("error", reply(&asked, "error", json!({"message": "no code"}))).await;
    desk.tell("error", reply(&asked, "error", json!({"code": "tired", "message": "in the end"}))).await;
    assert_eq!(desk.heard.wait(2).await[1], "error: in the end (tired)");
    assert_eq!(desk.peer.exchange_stats().dropped, dropped + 1);
}

#[tokio::test(start_paused = true)]
async fn noise_does_not_make_a_task_end_twice() {
    let mut desk = named().await;
    let done = |what: &str| json!({"status": "completed", "outcome": what});
    let (task, asked) = desk.delegated("paint").await;
    desk.tell("result", reply(&asked, "result", done("once"))).await;
    assert_eq!(task.result().await.unwrap().outcome, "once");
    for number in 0..5_000 {
        let mut noise = reply(&asked, "result", done("noise"));
        noise["ref"] = json!(format!("noise {number}"));
        desk.tell("result", noise).await;
    }
    desk.tell("result", reply(&asked, "result", done("twice"))).await;
    let heard = desk.heard.wait(5_000).await;
    desk.agent.probe().await;
    assert!(heard.iter().all(|it| it == "result: noise"));
    assert_eq!((desk.heard.all().len(), desk.peer.exchange_stats().repeated), (5_000, 1));
    // A result that names a question does not keep its error away.
    let (query, asked) = desk.asks("_session/query", desk.peer.query("why?")).await;
    desk.tell("result", reply(&asked, "result", done("what?"))).await;
    desk.tell("error", reply(&asked, "error", json!({"code": "tired", "message": "not now"}))).await;
    assert_eq!(query.await.unwrap().unwrap_err().code().as_str(), "tired");
}

/// Two answers with the same `ref` would be ambiguous.
#[tokio::test(start_paused = true)]
async fn an_id_waits_for_one_answer() {
    let mut desk = named().await;
    let (first, asked) = desk.asks("_session/query", desk.peer.query("why?").id("q1")).await;
    let second = desk.peer.query("how?").id("q1").await.unwrap_err();
    assert!(matches!(&second, Error::IdInUse { id } if id.as_str() == "q1"), "{second}");
    let answer = reply(&asked, "response", json!({"summary": "because"}));
    desk.agent.respond(&asked, json!({ "envelope": answer })).await;
    assert_eq!(first.await.unwrap().unwrap().summary, "because");
    // It is free again.
    desk.asks("_session/query", desk.peer.query("how?").id("q1")).await;
}

#[tokio::test(start_paused = true)]
async fn a_missed_deadline_withdraws_the_question() {
    let mut desk = named().await;
    for (query, after) in
        [(desk.peer.query("why?"), 30), (desk.peer.query("why?").deadline(Duration::from_secs(2)), 2)]
    {
        let begin = Instant::now();
        let (query, asked) = desk.asks("_session/query", query).await;
        let error = query.await.unwrap().unwrap_err();
        assert!(
            matches!(error, Error::Timeout { kind: EnvelopeKind::Query, .. }) && error.is_retryable(),
            "{error}"
        );
        assert_eq!(begin.elapsed().as_secs(), after);
        let withdrawn = desk.agent.expect("$/cancel_request").await;
        assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
        let late = reply(&asked, "response", json!({"summary": "late"}));
        desk.agent.respond(&asked, json!({ "envelope": late })).await;
        desk.tell("response", late).await;
    }
    desk.agent.probe().await;
    assert_eq!((desk.peer.rpc().stats().stray_responses, desk.peer.exchange_stats().late), (2, 2));
    let query = tokio::spawn(desk.peer.query("why?").into_future());
    desk.agent.expect("_session/query").await;
    query.abort();
    desk.agent.expect("$/cancel_request").await;
    let task = tokio::spawn(desk.peer.delegate("paint").into_future());
    desk.agent.expect("_session/delegate").await;
    task.abort();
    desk.agent.expect("$/cancel_request").await;
    assert_eq!(desk.peer.rpc().pending_requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn errors_of_those_who_know_no_envelopes() {
    let mut desk = named().await;
    let with = |code: i64, data: Value| json!({"code": code, "message": "no", "data": data});
    let fault =
        |code: &str| json!({"envelope": {"kind": "error", "payload": {"code": code, "message": "no"}}});
    for (error, code) in [
        (json!({"code": -32601, "message": "Method not found"}), "unknown_kind"),
        (json!({"code": -32602, "message": "no"}), "invalid_parameter"),
        (with(-32002, json!({"uri": "x"})), "not_found"),
        (with(-32603, json!("details")), "internal"),
        (json!({"code": -32000, "message": "log in"}), "not_authorized"),
        (json!({"code": -32800, "message": "no"}), "cancelled"),
        (json!({"code": 7, "message": "no"}), "internal"),
        (with(-32603, fault("unknown_domain")), "unknown_domain"),
        (with(7, fault("out_of_paint")), "out_of_paint"),
    ] {
        let (query, asked) = desk.asks("_session/query", desk.peer.query("why?")).await;
        desk.fails(&asked, error.clone()).await;
        let got = query.await.unwrap().unwrap_err();
        assert!(matches!(&got, Error::Response(fault) if fault.code.as_str() == code), "{error}: {got}");
    }
    // An envelope of the kind error, as the result.
    let (query, asked) = desk.asks("_session/query", desk.peer.query("why?")).await;
    let error = reply(&asked, "error", json!({"code": "overloaded", "message": "later", "retryable": true}));
    desk.agent.respond(&asked, json!({ "envelope": error })).await;
    let got = query.await.unwrap().unwrap_err();
    assert!(matches!(&got, Error::Response(fault) if fault.code == EnvelopeErrorCode::Overloaded), "{got}");
    assert_eq!(got.meta(), None);
}

/// The `_meta` of an error is read from every form that an error has, and another value is ignored.
#[tokio::test(start_paused = true)]
async fn the_meta_of_an_error_is_read_from_every_form() {
    let mut desk = named().await;
    let fault = json!({"code": "tired", "message": "not now", "retryable": true});
    for (meta, expected) in [(json!({"cost": 2}), Some(2)), (json!([2]), None), (json!(null), None)] {
        let (query, asked) = desk.asks("_session/query", desk.peer.query("why?")).await;
        let data = json!({"envelope": reply(&asked, "error", fault.clone()), "_meta": meta});
        desk.fails(&asked, json!({"code": -32603, "message": "no", "data": data})).await;
        let error = query.await.unwrap().unwrap_err();
        assert_eq!(error.meta().and_then(|meta| meta.get("cost")), expected, "{meta}");
        assert_eq!(error.code().as_str(), "tired");
    }
    let meta = || json!({"cost": 3});
    // Without an envelope, as the result, and as a notification.
    let (query, asked) = desk.asks("_session/query", desk.peer.query("why?")).await;
    desk.fails(&asked, json!({"code": -32601, "message": "no", "data": {"_meta": meta()}})).await;
    let without = query.await.unwrap().unwrap_err();
    let (query, asked) = desk.asks("_session/query", desk.peer.query("why?")).await;
    let error = json!({"envelope": reply(&asked, "error", fault.clone()), "_meta": meta()});
    desk.agent.respond(&asked, error).await;
    let result = query.await.unwrap().unwrap_err();
    let (query, asked) = desk.asks("_session/query", desk.peer.query("why?")).await;
    let params = json!({"sessionId": "s", "envelope": reply(&asked, "error", fault), "_meta": meta()});
    desk.agent.notify("_session/error", params).await;
    let notified = query.await.unwrap().unwrap_err();
    for error in [without, result, notified] {
        assert_eq!(error.meta().and_then(|meta| meta.get("cost")), Some(3), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalid_response_is_an_error_at_once() {
    let mut desk = named().await;
    let good = json!({"summary": "because"});
    for (change, code) in [
        (("ref", json!("else")), "invalid_parameter"),
        (("to", json!("else")), "not_found"),
        (("v", json!(2)), "unsupported_version"),
        (("kind", json!("pong")), "kind_mismatch"),
        (("payload", json!({})), "invalid_parameter"),
        (("id", json!(null)), "invalid_parameter"),
    ] {
        let (query, asked) = desk.asks("_session/query", desk.peer.query("why?")).await;
        let mut answer = reply(&asked, "response", good.clone());
        answer[change.0] = change.1.clone();
        desk.agent.respond(&asked, json!({ "envelope": answer })).await;
        let error = query.await.unwrap().unwrap_err();
        let fits = matches!(&error, Error::Answer { kind: EnvelopeKind::Query, .. })
            && error.code().as_str() == code;
        assert!(fits, "{change:?}: {error}");
    }
    for nothing in [json!({}), json!(null), json!({"envelope": 7})] {
        let (query, asked) = desk.asks("_session/query", desk.peer.query("why?")).await;
        desk.agent.respond(&asked, nothing.clone()).await;
        assert!(matches!(query.await.unwrap(), Err(Error::Answer { .. })), "{nothing}");
    }
    // Some leave out what the JSON-RPC id says already.
    let (query, asked) = desk.asks("_session/query", desk.peer.query("why?")).await;
    let mut answer = reply(&asked, "response", good);
    answer["ref"] = json!(null);
    answer["to"] = json!("");
    desk.agent.respond(&asked, json!({ "envelope": answer })).await;
    assert_eq!(query.await.unwrap().unwrap().summary, "because");
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_an_id_and_without_versions_of_ours() {
    let mut nameless = desk(Wire::Memory, json!({"envelope": {"v": [1]}})).await;
    let (_query, asked) = nameless.asks("_session/query", nameless.peer.query("why?")).await;
    assert_eq!(asked["params"]["envelope"]["to"], "");
    let silent = |error: Error| {
        assert!(matches!(&error, Error::NotSupported { scheme: "envelope", versions } if *versions == [2]));
        assert!(error.to_string().contains("of version 1, but 2; nothing was sent"), "{error}");
    };
    let mut other = desk(Wire::Memory, json!({"agentId": "ab", "envelope": {"v": [2]}})).await;
    silent(other.peer.query("why?").await.unwrap_err());
    silent(other.peer.delegate("paint").await.unwrap_err());
    silent(other.peer.notify("a", json!(1)).await.unwrap_err());
    silent(other.peer.ping().await.unwrap_err());
    silent(other.peer.discover().await.unwrap_err());
    other.agent.probe().await;
}

#[tokio::test(start_paused = true)]
async fn discovered_capabilities_are_kept_for_a_minute() {
    let mut desk = named().await;
    let discover = |desk: &Desk| {
        let peer = desk.peer.clone();
        async move { peer.discover().await }
    };
    let named = |name: &str| json!({"agent_name": name, "domains": ["family"]});
    let (asking, asked) = desk.asks("_session/discover", discover(&desk)).await;
    let together = tokio::spawn(discover(&desk));
    desk.agent.respond(&asked, json!({"envelope": reply(&asked, "capabilities", named("first"))})).await;
    for asking in [asking, together] {
        assert_eq!(asking.await.unwrap().unwrap().agent_name, "first");
    }
    tokio::time::sleep(DISCOVER_LIFETIME - Duration::from_millis(1)).await;
    assert_eq!(desk.peer.discover().await.unwrap().agent_name, "first");
    tokio::time::sleep(Duration::from_millis(1)).await;
    for name in ["second", "third"] {
        let (asking, asked) = desk.asks("_session/discover", discover(&desk)).await;
        desk.agent.respond(&asked, json!({"envelope": reply(&asked, "capabilities", named(name))})).await;
        assert_eq!(asking.await.unwrap().unwrap().agent_name, name);
        assert_eq!(desk.peer.discover().await.unwrap().agent_name, name);
        if name == "second" {
            desk.peer.forget_discovered().await;
        }
    }
    // An agent that is gone knows about nothing.
    let mut directory = Directory::new();
    directory.add(desk.peer.clone());
    assert_eq!(directory.who_handles("family.dinner").await.len(), 1);
    desk.agent.close().await;
    desk.peer.rpc().closed().await;
    assert_eq!(directory.who_handles("family.dinner").await.len(), 0);
    assert_eq!(desk.peer.discover().await.unwrap_err().code(), EnvelopeErrorCode::Unreachable);
}

#[tokio::test(start_paused = true)]
async fn those_who_ask_a_mute_agent_fail_together() {
    let mut desk = named().await;
    for _ in 0..2 {
        let begin = Instant::now();
        let all = (0..5).map(|_| {
            let peer = desk.peer.clone();
            tokio::spawn(async move { peer.discover().await })
        });
        for asking in futures::future::join_all(all).await {
            assert!(matches!(asking.unwrap(), Err(Error::Timeout { kind: EnvelopeKind::Discover, .. })));
        }
        assert_eq!(begin.elapsed().as_secs(), 10);
        desk.agent.expect("_session/discover").await;
        desk.agent.expect("$/cancel_request").await;
    }
    // The waiting caller is dropped: the next caller sends the request.
    let leaving = tokio::spawn({
        let peer = desk.peer.clone();
        async move { peer.discover().await }
    });
    desk.agent.expect("_session/discover").await;
    let peer = desk.peer.clone();
    let asking = tokio::spawn(async move { peer.discover().await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    leaving.abort();
    desk.agent.expect("$/cancel_request").await;
    let asked = desk.agent.expect("_session/discover").await;
    let capabilities = reply(&asked, "capabilities", json!({"agent_name": "at last"}));
    desk.agent.respond(&asked, json!({ "envelope": capabilities })).await;
    assert_eq!(asking.await.unwrap().unwrap().agent_name, "at last");
}

/// A result that arrived before the end stays available.
#[tokio::test(start_paused = true)]
async fn a_result_is_not_lost_with_the_connection() {
    let mut desk = named().await;
    let done = |what: &str| json!({"status": "completed", "outcome": what});
    let (early, asked) = desk.asks("_session/delegate", desk.peer.delegate("early")).await;
    desk.tell("result", reply(&asked, "result", done("before its ack"))).await;
    let (unseen, asked) = desk.delegated("unseen").await;
    desk.tell("result", reply(&asked, "result", done("of a dropped handle"))).await;
    desk.agent.close().await;
    desk.peer.rpc().closed().await;
    let early = early.await.unwrap().unwrap();
    assert_eq!(early.result().await.unwrap().outcome, "before its ack");
    drop(unseen);
    assert_eq!(desk.heard.wait(1).await, ["result: of a dropped handle"]);
    assert_eq!(desk.peer.exchange_stats().dropped, 0);
}

/// The end of the input, not of our side.
#[tokio::test(start_paused = true)]
async fn an_agent_that_hangs_up_is_unreachable() {
    let mut desk = named().await;
    let (task, _) = desk.delegated("paint").await;
    let (query, _) = desk.asks("_session/query", desk.peer.query("why?")).await;
    let (late, _) = desk.asks("_session/delegate", desk.peer.delegate("more")).await;
    let begin = Instant::now();
    desk.agent.close().await;
    for error in [
        task.result().await.unwrap_err(),
        query.await.unwrap().unwrap_err(),
        late.await.unwrap().unwrap_err(),
        task.cancel("").await.unwrap_err(),
        desk.peer.query("why?").await.unwrap_err(),
        desk.peer.delegate("more").await.unwrap_err(),
        desk.peer.notify("a", json!(1)).await.unwrap_err(),
    ] {
        assert!(
            matches!(error, Error::Connection(_)) && error.code() == EnvelopeErrorCode::Unreachable,
            "{error}"
        );
        assert!(error.is_retryable());
    }
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

/// A side that offers nothing itself can still use the other side's offers.
#[tokio::test(start_paused = true)]
async fn without_an_exchange_of_its_own() {
    let offers = json!({"_meta": {"duologue": {"agentId": "ab", "envelope": {"v": [1]}}}});
    let (connection, mut agent) = client_of(Wire::Memory, Client::new(()), offers).await;
    let (session, ()) = tokio::join!(connection.new_session("/tmp"), agent.accept_session("s"));
    let session = session.unwrap();
    let peer = session.peer_agent().clone();
    let mut desk = Desk { agent, _connection: connection, session, peer, heard: Heard::default() };
    let (task, asked) = desk.delegated("paint").await;
    desk.tell("result", reply(&asked, "result", json!({"status": "partial"}))).await;
    assert_eq!(task.result().await.unwrap().status, OutcomeStatus::Partial);
    // It responds to nothing, as it has not advertised envelopes.
    let mut ping = reply(&asked, "ping", json!({}));
    ping["ref"] = json!(null);
    let answer = desk.agent.request("_session/ping", json!({ "envelope": ping })).await;
    assert_eq!(
        (&answer["error"]["code"], &answer["error"]["data"]["envelope"]),
        (&json!(-32601), &json!(null))
    );
}

#[tokio::test(start_paused = true)]
async fn chunks_of_output_arrive_in_order() {
    let mut desk = named().await;
    let (task, asked) = desk.delegated("write").await;
    let mut output = task.output();
    let mut number = 0;
    let mut send = |position: Value, complete: bool| {
        number += 1;
        let chunk = json!({"chunk": format!("c{position}"), "position": position, "complete": complete});
        let mut envelope = reply(&asked, "notify", json!({"topic": "task.output", "data": chunk}));
        envelope["id"] = json!(format!("n{number}"));
        envelope
    };
    for position in [json!(1), json!(0), json!(0), json!(3), json!("bad"), json!(2.0), json!(1), json!(5)] {
        let envelope = send(position, false);
        desk.tell("notify", envelope).await;
    }
    for expected in ["c1", "c0", "c2.0", "c3"].map(str::to_owned) {
        let chunk = output.next().await.unwrap().unwrap();
        let text = ["c0", "c1", "c2.0", "c3"][usize::try_from(chunk.chunk.position).unwrap()];
        assert_eq!(chunk.text().as_deref(), Some(text), "{expected}");
    }
    // A missing chunk is waited for until the end of the task.
    let waits = tokio::time::timeout(Duration::from_secs(60), output.next()).await;
    assert!(waits.is_err() && !output.is_complete());
    desk.tell("result", reply(&asked, "result", json!({"status": "completed"}))).await;
    let gap = output.next().await.unwrap().unwrap_err();
    assert_eq!((gap.position, gap.missing), (4, 1), "{gap}");
    assert_eq!(output.next().await.unwrap().unwrap().text().as_deref(), Some("c5"));
    assert!(output.next().await.is_none() && !output.is_complete());
    assert_eq!(task.result().await.unwrap().status, OutcomeStatus::Completed);

    // A gap ends when too many chunks wait, and the last chunk ends the output.
    let (task, asked) = desk.delegated("write").await;
    let mut output = task.output();
    for position in 1..=65_u64 {
        let chunk = json!({"chunk": null, "position": position, "complete": position == 65});
        let mut envelope = reply(&asked, "notify", json!({"topic": "task.output", "data": chunk}));
        envelope["id"] = json!(format!("m{position}"));
        desk.tell("notify", envelope).await;
    }
    assert_eq!(output.next().await.unwrap().unwrap_err().position, 0);
    for position in 1..=65 {
        assert_eq!(output.next().await.unwrap().unwrap().chunk.position, position);
    }
    assert!(output.next().await.is_none() && output.is_complete());
}
