//! Errors for malformed envelopes, line by line.

use duologue_agent::exchange::envelope::*;
use duologue_agent::{
    Agent, Context, Exchange, Limits, Prompt, Server, Session, SessionSetup, StopReason, Turn,
};
use serde_json::{Value, json};

use super::pair::{Heard, Quiet};
use duologue_test_support::{ScriptedPeer, Wire, over_every_wire};

struct Clerk(Heard);

impl EnvelopeHandler for Clerk {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("clerk").max_concurrent_tasks(1)
    }

    async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        match query.question.as_str() {
            "panic" => panic!("on purpose"),
            "think" => std::future::pending().await,
            "nearly" => {
                tokio::time::sleep(std::time::Duration::from_millis(500)).await;
                Ok(QueryResponse::new("done"))
            }
            question => Ok(QueryResponse::new(question)),
        }
    }

    async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
        self.0.add(&*task.task);
        if task.task == "report" {
            task.progress(json!(0.5)).await?;
            task.output("half").last().await?;
        }
        if task.task == "wait" {
            task.cancelled().await;
            std::future::pending::<()>().await;
        }
        Ok(DelegationOutcome::new(OutcomeStatus::Completed).outcome(&*task.task))
    }

    async fn cancel(&self, cancel: Received<Cancel>, _: &ReceivedTask) -> Result<(), EnvelopeError> {
        if cancel.reason == "no reason" {
            Err(EnvelopeError::not_authorized("give a reason"))
        } else {
            Ok(())
        }
    }

    async fn notify(&self, news: Received<Notify>) {
        self.0.add(format!("{}: {:?}", news.topic, news.data));
    }

    async fn error(&self, error: Received<EnvelopeError>) {
        self.0.add(error.to_string());
    }
}

/// An agent that knows every session there was.
struct Loads;

impl Agent for Loads {
    async fn load_session(&self, _: &Context, _: &Session) -> duologue_agent::Result<SessionSetup> {
        Ok(SessionSetup::new())
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
        Quiet.prompt(turn, prompt).await
    }
}

/// A client without an SDK that has a session with the clerk.
struct Desk {
    client: ScriptedPeer,
    session: String,
    heard: Heard,
}

async fn desk() -> Desk {
    let heard = Heard::default();
    let (transport, mut client) = Wire::Memory.scripted();
    let exchange = Exchange::new().agent_id("c1e4").envelope_handler(Clerk(heard.clone()));
    tokio::spawn(Server::new(Loads).exchange(exchange).serve(transport));
    let meta = json!({"duologue": {"agentId": "ab", "envelope": {"v": [1]}}});
    let hello = client.initialize(json!({ "_meta": meta })).await;
    let said = &hello["result"]["agentCapabilities"]["_meta"]["duologue"];
    assert_eq!(*said, json!({"agentId": "c1e4", "envelope": {"v": [1]}}));
    let session = client.new_session().await;
    Desk { client, session, heard }
}

fn envelope(id: &str, kind: &str, payload: Value) -> Value {
    json!({"v": 1, "id": id, "from": "ab", "to": "c1e4", "ts": 1, "kind": kind, "ref": null, "payload": payload})
}

fn with(mut envelope: Value, key: &str, value: Value) -> Value {
    envelope[key] = value;
    envelope
}

fn without(mut envelope: Value, key: &str) -> Value {
    envelope.as_object_mut().unwrap().remove(key);
    envelope
}

impl Desk {
    fn params(&self, envelope: Value) -> Value {
        json!({"sessionId": self.session, "envelope": envelope})
    }

    async fn asked(&mut self, method: &str, envelope: Value) -> Value {
        let params = self.params(envelope);
        self.client.request(method, params).await
    }

    async fn tell(&mut self, method: &str, envelope: Value) {
        let params = self.params(envelope);
        self.client.notify(method, params).await;
    }

    /// Returns the error of a method: the JSON-RPC code, the envelope's code, and the message it refers to.
    async fn fault(&mut self, method: &str, params: Value) -> (i64, String, Value) {
        let answer = self.client.request(method, params).await;
        let error = &answer["error"];
        let envelope = &error["data"]["envelope"];
        assert_eq!(
            (&envelope["kind"], &envelope["from"], &envelope["v"]),
            (&json!("error"), &json!("c1e4"), &json!(1)),
            "{answer}"
        );
        assert_eq!(error["message"], envelope["payload"]["message"]);
        let code = envelope["payload"]["code"].as_str().unwrap().to_owned();
        (error["code"].as_i64().unwrap(), code, envelope["ref"].clone())
    }
}

/// All messages that follow from one keep the id of its session.
#[tokio::test]
async fn a_session_is_not_known_by_a_longer_id_than_is_read() {
    let mut desk = desk().await;
    for (bytes, known) in [(Limits::ID_BYTES, true), (Limits::ID_BYTES + 1, false)] {
        desk.session = "s".repeat(bytes);
        let load = json!({"sessionId": desk.session, "cwd": "/", "mcpServers": []});
        assert!(desk.client.request("session/load", load).await["error"].is_null());
        let answer = desk.asked("_session/query", envelope("q", "query", json!({"question": "why?"}))).await;
        assert_eq!(answer["error"].is_null(), known, "{bytes}");
        assert!(known || answer["error"]["message"] == "unknown session");
    }
}

#[tokio::test]
async fn an_invalid_envelope_is_answered_with_its_id() {
    let mut desk = desk().await;
    let query = || envelope("q", "query", json!({"question": "why?"}));
    let faults = [
        // A version that nobody speaks, however the rest looks.
        (with(query(), "v", json!(2)), -31002, "unsupported_version", json!("q")),
        (with(query(), "v", json!("1")), -31002, "unsupported_version", json!("q")),
        (json!({"v": 3, "id": "q", "body": [1]}), -31002, "unsupported_version", json!("q")),
        (json!({"v": 3, "id": 7}), -31002, "unsupported_version", json!(null)),
        (with(query(), "kind", json!("ping")), -32602, "kind_mismatch", json!("q")),
        (with(query(), "kind", json!("poke")), -32602, "kind_mismatch", json!("q")),
        (with(query(), "to", json!("else")), -32002, "not_found", json!("q")),
        (without(query(), "payload"), -32602, "invalid_parameter", json!("q")),
        (with(query(), "payload", json!({"question": 7})), -32602, "invalid_parameter", json!("q")),
        (without(query(), "ts"), -32602, "invalid_parameter", json!("q")),
        (with(query(), "from", json!(7)), -32602, "invalid_parameter", json!("q")),
        (with(query(), "id", json!(7)), -32602, "invalid_parameter", json!(null)),
        (json!("hello"), -32602, "invalid_parameter", json!(null)),
    ];
    for (envelope, code, name, reference) in faults {
        let params = desk.params(envelope.clone());
        let fault = desk.fault("_session/query", params).await;
        assert_eq!(fault, (code, name.to_owned(), reference), "{envelope}");
    }
    let invalid = |code: i64, name: &str| (code, name.to_owned(), json!("q"));
    assert_eq!(
        desk.fault("_session/query", json!({"envelope": query()})).await,
        invalid(-32602, "invalid_parameter")
    );
    let unknown = json!({"sessionId": "nowhere", "envelope": query()});
    assert_eq!(desk.fault("_session/query", unknown).await, invalid(-32002, "not_found"));
    let nothing = desk.fault("_session/query", json!({})).await;
    assert_eq!(nothing, (-32602, "invalid_parameter".to_owned(), json!(null)));
    let panic = desk.params(envelope("q", "query", json!({"question": "panic"})));
    assert_eq!(desk.fault("_session/query", panic).await, invalid(-32603, "internal"));
    // The error goes to the sender, who may not be the agent of the handshake.
    for (from, envelope) in [("cd", with(query(), "v", json!(9))), ("ab", with(query(), "payload", json!(7)))]
    {
        let answer = desk.asked("_session/query", with(envelope, "from", json!(from))).await;
        assert_eq!(answer["error"]["data"]["envelope"]["to"], from, "{answer}");
    }
    let version = desk.asked("_session/query", with(query(), "v", json!(9))).await;
    let message = version["error"]["message"].as_str().unwrap();
    assert!(message.ends_with("supported: 1"), "{message}");
}

#[tokio::test]
async fn optional_members_may_be_missing() {
    let mut desk = desk().await;
    for params in [
        json!({"envelope": without(envelope("p", "ping", json!({})), "payload")}),
        json!({"envelope": envelope("p", "ping", json!(null))}),
        json!({"envelope": without(without(envelope("p", "ping", json!({"later": 1})), "v"), "ref")}),
        json!({"sessionId": null, "envelope": with(envelope("p", "ping", json!({})), "to", json!(""))}),
        json!({"sessionId": desk.session, "envelope": envelope("p", "ping", json!({}))}),
    ] {
        let pong = desk.client.request("_session/ping", params).await;
        let envelope = &pong["result"]["envelope"];
        let ends = (&envelope["kind"], &envelope["ref"], &envelope["to"], &envelope["from"]);
        assert_eq!(ends, (&json!("pong"), &json!("p"), &json!("ab"), &json!("c1e4")), "{pong}");
        assert_eq!(envelope["payload"]["status"], "idle");
    }
    let query = envelope("q", "query", json!({"question": "why?", "mood": "curious", "max_tokens": 1}));
    let answer = desk.asked("_session/query", query).await;
    let payload = &answer["result"]["envelope"]["payload"];
    assert_eq!(*payload, json!({"data": null, "summary": "why?", "tokens_used": 0, "truncated": false}));
}

#[tokio::test]
async fn an_unknown_kind_is_answered_or_complained_about() {
    let mut desk = desk().await;
    let poke = envelope("k", "poke", json!({}));
    let params = desk.params(poke.clone());
    let fault = desk.fault("_session/poke", params).await;
    assert_eq!(fault, (-32601, "unknown_kind".to_owned(), json!("k")));
    let params = desk.params(envelope("n", "notify", json!({"topic": "a", "data": 1})));
    let fault = desk.fault("_session/notify", params).await;
    assert_eq!(fault, (-32601, "unknown_kind".to_owned(), json!("n")));
    desk.tell("_session/poke", poke).await;
    let complaint = desk.client.expect("_session/error").await;
    assert_eq!(complaint["params"]["envelope"]["payload"]["code"], "unknown_kind");
    // Without an envelope it is a method like any other.
    let answer = desk.client.request("_session/poke", json!({})).await;
    assert_eq!(
        (&answer["error"]["code"], &answer["error"]["data"]["envelope"]),
        (&json!(-32601), &json!(null))
    );
}

#[tokio::test(start_paused = true)]
async fn complaints_are_few_and_errors_are_not_answered() {
    let mut desk = desk().await;
    for wrong in [
        without(envelope("n", "notify", json!({"topic": "a"})), "from"),
        without(envelope("n", "notify", json!({"topic": "a"})), "id"),
    ] {
        desk.tell("_session/notify", wrong).await;
    }
    desk.tell("_session/error", envelope("e", "error", json!(7))).await;
    desk.tell("_session/error", envelope("e", "poke", json!({}))).await;
    desk.client.probe().await;
    let mut nowhere = desk.params(envelope("n", "notify", json!({"topic": "a"})));
    nowhere["sessionId"] = json!("nowhere");
    desk.client.notify("_session/notify", nowhere).await;
    let complaint = desk.client.expect("_session/error").await;
    assert_eq!(complaint["params"]["envelope"]["payload"]["code"], "not_found", "{complaint}");
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    for number in 0..30 {
        let id = number.to_string();
        desk.tell("_session/notify", envelope(&id, "notify", json!({}))).await;
    }
    for number in 0..10 {
        let complaint = desk.client.expect("_session/error").await;
        let envelope = &complaint["params"]["envelope"];
        assert_eq!(
            (&envelope["ref"], &envelope["to"]),
            (&json!(number.to_string()), &json!("ab")),
            "{complaint}"
        );
        assert_eq!(complaint["params"]["sessionId"], desk.session);
    }
    desk.client.probe().await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    for id in ["x", "y", "z"] {
        desk.tell("_session/result", envelope(id, "result", json!({"status": "completed"}))).await;
    }
    for id in ["x", "y"] {
        assert_eq!(desk.client.expect("_session/error").await["params"]["envelope"]["ref"], id);
    }
    desk.client.probe().await;
    desk.tell("_session/query", envelope("q", "query", json!({"question": "why?"}))).await;
    desk.client.probe().await;
    assert_eq!(desk.heard.all(), Vec::<String>::new());
    // A request without a JSON-RPC id cannot be answered, so its sender gets a notification.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    desk.tell("_session/query", envelope("q", "query", json!({"question": "why?"}))).await;
    let complaint = desk.client.expect("_session/error").await;
    let envelope = &complaint["params"]["envelope"];
    assert_eq!(
        (&envelope["ref"], &envelope["payload"]["code"]),
        (&json!("q"), &json!("invalid_parameter")),
        "{complaint}"
    );
    desk.client.probe().await;
}

#[tokio::test]
async fn notifications_are_received_once_and_in_order() {
    let mut desk = desk().await;
    for number in [1, 2, 1, 3, 2] {
        let news = json!({"topic": "a.b", "data": number, "importance": "high"});
        desk.tell("_session/notify", envelope(&format!("n{number}"), "notify", news)).await;
    }
    let error = json!({"code": "no_idea", "message": "what?"});
    for _ in 0..2 {
        desk.tell("_session/error", with(envelope("e", "error", error.clone()), "ref", json!("n1"))).await;
        desk.tell("_session/error", envelope("f", "error", error.clone())).await;
    }
    let heard = desk.heard.wait(5).await;
    assert_eq!(heard, ["a.b: Some(1)", "a.b: Some(2)", "a.b: Some(3)", "what? (no_idea)", "what? (no_idea)"]);
    desk.client.probe().await;
    assert_eq!(desk.heard.all().len(), 5);
}

#[tokio::test]
async fn a_task_is_not_done_twice() {
    let mut desk = desk().await;
    let task = |id: &str, task: &str| envelope(id, "delegate", json!({"task": task, "report_back": true}));
    let accepted = |answer: &Value| answer["result"]["envelope"]["payload"]["accepted"] == json!(true);
    for _ in 0..2 {
        assert!(accepted(&desk.asked("_session/delegate", task("d", "wait")).await));
    }
    // There is no room for another one, nor for its duplicate.
    let params = desk.params(task("other", "one"));
    for _ in 0..2 {
        let fault = desk.fault("_session/delegate", params.clone()).await;
        assert_eq!(fault, (-31005, "overloaded".to_owned(), json!("other")));
    }
    let cancel =
        |of: Value, reason: &str| with(envelope("c", "cancel", json!({ "reason": reason })), "ref", of);
    let ack = desk.asked("_session/cancel", cancel(json!("d"), "no reason")).await;
    let payload = &ack["result"]["envelope"]["payload"];
    assert_eq!((&payload["accepted"], &payload["error"]["code"]), (&json!(false), &json!("not_authorized")));
    let ack = desk.asked("_session/cancel", cancel(json!("d"), "enough")).await;
    assert!(accepted(&ack), "{ack}");
    assert_eq!(ack["result"]["envelope"]["ref"], "c");
    let end = desk.client.expect("_session/error").await;
    let envelope = &end["params"]["envelope"];
    assert_eq!((&envelope["ref"], &envelope["payload"]["code"]), (&json!("d"), &json!("cancelled")));
    // It is over, and stays over. A repetition receives the end again.
    assert!(accepted(&desk.asked("_session/delegate", task("d", "wait")).await));
    let again = desk.client.expect("_session/error").await;
    assert_eq!(again["params"]["envelope"]["payload"], envelope["payload"]);
    let ack = desk.asked("_session/cancel", cancel(json!("d"), "again")).await;
    let error = json!({"code": "already_finished", "message": "the delegation is over", "retryable": false});
    assert_eq!(
        ack["result"]["envelope"]["payload"],
        json!({"accepted": false, "reason": "already_finished", "error": error})
    );
    let ack = desk.asked("_session/cancel", cancel(json!("nothing"), "")).await;
    let payload = &ack["result"]["envelope"]["payload"];
    assert_eq!((&payload["accepted"], &payload["error"]["code"]), (&json!(false), &json!("not_found")));
    let params = desk.params(cancel(json!(null), ""));
    assert_eq!(desk.fault("_session/cancel", params).await.1, "invalid_parameter");
    assert_eq!(desk.heard.all(), ["wait"]);
    // The slot is free, and what was refused may come again.
    assert!(accepted(&desk.asked("_session/delegate", task("other", "one")).await));
    let end = desk.client.expect("_session/result").await;
    let payload = &end["params"]["envelope"]["payload"];
    assert_eq!((&end["params"]["envelope"]["ref"], &payload["outcome"]), (&json!("other"), &json!("one")));
}

#[tokio::test]
async fn a_withdrawn_question_is_answered_with_an_envelope() {
    let mut desk = desk().await;
    let params = desk.params(envelope("q", "query", json!({"question": "think"})));
    let id = desk.client.send_request("_session/query", params).await;
    desk.client.notify("$/cancel_request", json!({ "requestId": id })).await;
    let answer = desk.client.next_message().await;
    let envelope = &answer["error"]["data"]["envelope"];
    assert_eq!(
        (&answer["error"]["code"], &envelope["payload"]["code"]),
        (&json!(-32800), &json!("cancelled"))
    );
    assert_eq!(envelope["ref"], "q");
}

/// A handler has a moment to finish after the withdrawal, and its answer is not wasted.
#[tokio::test(start_paused = true)]
async fn a_withdrawn_question_that_is_nearly_answered_has_its_answer() {
    let mut desk = desk().await;
    let params = desk.params(envelope("q", "query", json!({"question": "nearly"})));
    let id = desk.client.send_request("_session/query", params).await;
    desk.client.notify("$/cancel_request", json!({ "requestId": id })).await;
    let answer = desk.client.next_message().await;
    assert_eq!(answer["result"]["envelope"]["payload"]["summary"], "done", "{answer}");
}

#[tokio::test]
async fn nothing_is_answered_before_the_introduction() {
    let (transport, mut client) = Wire::Memory.scripted();
    tokio::spawn(Server::new(Quiet).exchange(Exchange::new()).serve(transport));
    let params = json!({"envelope": with(envelope("p", "ping", json!({})), "to", json!(""))});
    let answer = client.request("_session/ping", params.clone()).await;
    assert_eq!(answer["error"]["message"], "initialize first", "{answer}");
    assert_eq!(answer["error"]["data"]["envelope"]["payload"]["code"], "invalid_parameter", "{answer}");
    client.initialize(json!({})).await;
    let pong = client.request("_session/ping", params).await;
    assert_eq!(pong["result"]["envelope"]["kind"], "pong", "{pong}");
}

/// Asks its client everything there is to ask.
struct Curious;

impl Agent for Curious {
    async fn prompt(&self, turn: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        let peer = turn.peer_agent();
        let other = duologue_agent::Error::other;
        let pong = peer.ping().await.map_err(other)?;
        let capabilities = peer.discover().await.map_err(other)?;
        let response = peer.query("why?").await.map_err(other)?;
        let task = peer.delegate("paint").await.map_err(other)?;
        let stopped = task.cancel("enough").await.map_err(other)?;
        let said = format!(
            "{} {} {} {:?} {}",
            pong.status.as_str(),
            capabilities.agent_name,
            response.summary,
            task.estimated(),
            stopped.accepted
        );
        turn.message().push(said).await?;
        Ok(StopReason::EndTurn)
    }
}

over_every_wire!(a_client_may_answer_with_notifications);

async fn a_client_may_answer_with_notifications(wire: Wire) {
    let (transport, mut client) = wire.scripted();
    tokio::spawn(Server::new(Curious).exchange(Exchange::new().agent_id("c1e4")).serve(transport));
    let meta = json!({"duologue": {"agentId": "ab", "envelope": {"v": [1]}}});
    client.initialize(json!({ "_meta": meta })).await;
    let session = client.new_session().await;
    client.prompt(&session, "ask").await;
    for (kind, answer, payload) in [
        ("ping", "pong", json!({"status": "dreaming"})),
        ("discover", "capabilities", json!({"agent_name": "played"})),
        ("query", "response", json!({"summary": "because"})),
        ("delegate", "ack", json!({"accepted": true, "estimated_ms": 5})),
        ("cancel", "ack", json!({"accepted": false})),
    ] {
        let asked = client.expect(&format!("_session/{kind}")).await;
        let asked = &asked["params"]["envelope"];
        let mut envelope = envelope(&format!("to {kind}"), answer, payload);
        envelope["ref"] = asked["id"].clone();
        let params = json!({"sessionId": session, "envelope": envelope});
        client.notify(&format!("_session/{answer}"), params).await;
    }
    let said = client.expect("session/update").await;
    let text = &said["params"]["update"]["content"]["text"];
    assert_eq!(text, "dreaming played because Some(5ms) false");
}

#[tokio::test]
async fn ids_belong_to_their_sender() {
    let mut desk = desk().await;
    for from in ["ab", "cd", "ab"] {
        let news = with(envelope("n", "notify", json!({"topic": "a.b", "data": from})), "from", json!(from));
        let params = desk.params(news);
        desk.client.notify("_session/notify", params).await;
    }
    assert_eq!(desk.heard.wait(2).await, [r#"a.b: Some("ab")"#, r#"a.b: Some("cd")"#]);
    let accepted = |answer: &Value| answer["result"]["envelope"]["payload"]["accepted"].clone();
    let task = envelope("d", "delegate", json!({"task": "wait"}));
    assert_eq!(accepted(&desk.asked("_session/delegate", task).await), json!(true));
    // For another agent behind the same connection the task does not exist.
    let cancel = with(envelope("c", "cancel", json!({"reason": "enough"})), "ref", json!("d"));
    let foreign = desk.asked("_session/cancel", with(cancel.clone(), "from", json!("cd"))).await;
    let payload = &foreign["result"]["envelope"]["payload"];
    assert_eq!((&payload["accepted"], &payload["reason"]), (&json!(false), &json!("not_found")));
    assert_eq!(accepted(&desk.asked("_session/cancel", cancel).await), json!(true));
    desk.client.expect("_session/error").await;
    // The state of a task is for its sender too.
    let task = with(envelope("e", "delegate", json!({"task": "wait"})), "from", json!("cd"));
    assert_eq!(accepted(&desk.asked("_session/delegate", task).await), json!(true));
    let status =
        with(envelope("s", "query", json!({"question": "?", "domain": "meta.task"})), "ref", json!("e"));
    let own = desk.asked("_session/query", with(status.clone(), "from", json!("cd"))).await;
    assert_eq!(own["result"]["envelope"]["payload"]["summary"], "working", "{own}");
    let params = desk.params(status);
    assert_eq!(desk.fault("_session/query", params).await.1, "not_found");
    // So is the end of a task of an earlier connection.
    for from in ["ab", "cd", "ab"] {
        let error = envelope(&format!("f {from}"), "error", json!({"code": "no_idea", "message": from}));
        desk.tell("_session/error", with(with(error, "ref", json!("old")), "from", json!(from))).await;
    }
    let heard = desk.heard.wait(6).await;
    assert_eq!(heard[4..], ["ab (no_idea)", "cd (no_idea)"]);
}

/// An agent behind the other side gets the reports of its own tasks.
#[tokio::test]
async fn reports_are_addressed_to_the_agent_that_delegated() {
    let mut desk = desk().await;
    let task = with(envelope("d", "delegate", json!({"task": "report"})), "from", json!("cd"));
    let ack = desk.asked("_session/delegate", task).await;
    assert_eq!(ack["result"]["envelope"]["to"], "cd", "{ack}");
    for method in ["_session/notify", "_session/notify", "_session/result"] {
        let report = desk.client.expect(method).await;
        let envelope = &report["params"]["envelope"];
        assert_eq!((&envelope["to"], &envelope["ref"]), (&json!("cd"), &json!("d")), "{report}");
    }
}

over_every_wire!(foreign_envelopes_are_answered);

/// Other orders of keys, unknown members, other spellings of numbers, and ids of every shape.
async fn foreign_envelopes_are_answered(wire: Wire) {
    let heard = Heard::default();
    let (transport, mut client) = wire.scripted();
    let exchange = Exchange::new().agent_id("c1e4").envelope_handler(Clerk(heard.clone()));
    tokio::spawn(Server::new(Loads).exchange(exchange).serve(transport));
    let meta = json!({"duologue": {"agentId": "ab", "envelope": {"v": [1]}}});
    client.initialize(json!({ "_meta": meta })).await;
    let session = client.new_session().await;
    let mut answered = 0;
    for line in include_str!("../../../../schema/tests/fixtures/foreign_envelopes.jsonl").lines() {
        let envelope: Value = serde_json::from_str(line).unwrap();
        let kind = EnvelopeKind::from(envelope["kind"].as_str().unwrap());
        let params = json!({"sessionId": session, "envelope": envelope});
        let Some(answer) = kind.response() else {
            client.notify(&format!("_session/{kind}"), params).await;
            continue;
        };
        let response = client.request(&format!("_session/{kind}"), params).await;
        let reply = &response["result"]["envelope"];
        assert_eq!((&reply["kind"], &reply["ref"]), (&json!(answer.as_str()), &envelope["id"]), "{response}");
        answered += 1;
    }
    assert_eq!(answered, 6);
    let heard = heard.wait(3).await;
    assert_eq!(heard, ["paint", r#"family.dinner: Some({"at":19.0})"#, "no blue (out_of_paint)"]);
}
