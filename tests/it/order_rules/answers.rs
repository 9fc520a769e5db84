//! Rules 7 and 8: one answer for every request, and handlers that may await anything.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use duologue_agent::{Agent, Context, Prompt, Server, Session, SessionSetup, StopReason, Turn};
use duologue_client::Client;
use duologue_rpc::{Closed, Error, Incoming, Limits, PeerBuilder, Responder, Service};
use duologue_schema::{AgentCapabilities, METHODS, MethodSide};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use duologue_test_support::{ScriptedPeer, Wire, over_every_wire, texts};

over_every_wire!(
    rule_7_what_nobody_handles_is_refused_at_once,
    rule_7_a_panic_or_a_dropped_responder_is_one_answer,
    rule_7_every_request_gets_exactly_one_answer,
    rule_7_an_id_in_flight_is_not_taken_twice,
    rule_7_an_answer_that_does_not_fit_is_an_error,
    rule_7_an_id_that_does_not_fit_is_still_answered,
    rule_7_the_end_of_input_fails_waiters_at_once,
    rule_7_handlers_may_say_goodbye,
    rule_7_a_handler_that_ignores_the_end_is_dropped,
    rule_7_a_cancelled_request_is_still_answered,
    rule_7_a_cancelled_load_leaves_no_session,
    rule_7_a_prompt_behind_a_close_is_answered,
    rule_8_a_thousand_handlers_ask_back_at_once,
    rule_8_handlers_ask_each_other_in_turn,
    rule_8_errors_stay_inside_their_request,
);

/// Handlers that go wrong in every way, and some that do not.
struct Trouble;

impl Service for Trouble {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        match request.method {
            "_good" => responder.respond(Ok(request.params)),
            "_panic_on_the_reader" => panic!("on the reader"),
            "_panic" => responder.spawn::<(), _>(async { panic!("in the handler") }),
            "_panic_later" => responder.spawn::<(), _>(async {
                tokio::task::yield_now().await;
                panic!("later")
            }),
            "_drop" => drop(responder),
            "_drop_later" => {
                tokio::spawn(async move { drop(responder) });
            }
            "_hang" => responder.spawn(std::future::pending::<Result<(), _>>()),
            "_polite" => {
                let cancelled = responder.cancellation().clone();
                responder.spawn(async move {
                    cancelled.cancelled().await;
                    Ok("half of it")
                });
            }
            "_grow" => responder.respond(Ok("g".repeat(2000))),
            // A key that is no string has no JSON form.
            "_unwritable" => responder.respond(Ok(HashMap::from([((1, 2), 3)]))),
            other => responder.method_not_found(other),
        }
    }

    fn notification(&self, _: Incoming<'_>) {
        panic!("in a notification")
    }
}

fn trouble(wire: Wire, limits: Limits) -> ScriptedPeer {
    let (transport, script) = wire.scripted();
    let _lives_by_itself = PeerBuilder::new(transport).limits(limits).start(|_| Trouble);
    script
}

async fn code_of(script: &mut ScriptedPeer, method: &str) -> i64 {
    let answer = script.request(method, json!([])).await;
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{answer}"))
}

/// An agent with the required methods only.
struct Bare;

impl Agent for Bare {
    async fn prompt(&self, _: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        Ok(StopReason::EndTurn)
    }
}

async fn rule_7_what_nobody_handles_is_refused_at_once(wire: Wire) {
    let (transport, mut client) = wire.scripted();
    tokio::spawn(duologue_agent::serve(Bare, transport));
    client.initialize(json!({})).await;
    let session = client.new_session().await;
    for round in 0..100 {
        for method in ["_nobody", "session/sing", "fs/read_text_file", "$/secret", "rpc.discover", ""] {
            assert_eq!(code_of(&mut client, method).await, -32601, "{method} in round {round}");
        }
    }
    let mut optional = 0;
    for row in METHODS.iter().copied().flatten().filter(|row| row.side == MethodSide::Agent) {
        let params = json!({
            "sessionId": session, "cwd": "/tmp", "mcpServers": [], "modeId": "m", "configId": "c", "value": "v",
            "methodId": "a", "prompt": [], "protocolVersion": 1,
        });
        if row.method == "session/cancel" {
            continue;
        }
        let answer = client.request(row.method, params).await;
        optional += usize::from(answer["error"]["code"] == -32601);
    }
    assert!(optional >= 8, "only {optional} methods were refused");
}

async fn rule_7_a_panic_or_a_dropped_responder_is_one_answer(wire: Wire) {
    let mut script = trouble(wire, Limits::default());
    for _ in 0..100 {
        script.notify("_panics", json!({})).await;
        for method in
            ["_panic_on_the_reader", "_panic", "_panic_later", "_drop", "_drop_later", "_unwritable"]
        {
            assert_eq!(code_of(&mut script, method).await, -32603, "{method}");
        }
        assert_eq!(script.request("_good", json!([7])).await["result"], json!([7]));
    }
}

async fn rule_7_every_request_gets_exactly_one_answer(wire: Wire) {
    let mut limits = Limits::default();
    limits.cancel_grace = Duration::from_millis(50);
    let mut script = trouble(wire, limits);
    let methods = ["_good", "_panic", "_panic_later", "_drop_later", "_hang", "_polite", "_nobody"];
    let mut expected = BTreeMap::new();
    for round in 0..700 {
        let method = methods[round % methods.len()];
        let id = script.send_request(method, json!([])).await;
        // Every second time also withdrawn, the ones that wait always, some twice and some too late.
        if matches!(method, "_hang" | "_polite") || round % 2 == 0 {
            for _ in 0..round % 3 + 1 {
                script.notify("$/cancel_request", json!({"requestId": id})).await;
            }
        }
        expected.insert(id, 0);
    }
    let mut missing = expected.len();
    while missing > 0 {
        let answer = script.next_message().await;
        let count = expected.get_mut(&answer["id"].as_u64().expect("an id")).expect("an id of ours");
        *count += 1;
        assert_eq!(*count, 1, "two answers: {answer}");
        missing -= 1;
    }
    script.probe().await;
}

async fn rule_7_an_id_in_flight_is_not_taken_twice(wire: Wire) {
    let mut script = trouble(wire, Limits::default());
    for round in 0..100 {
        let id = [json!("seven"), json!(7), Value::Null][round % 3].clone();
        let say = |method: &str| json!({"jsonrpc": "2.0", "id": id, "method": method});
        script.send(say("_polite")).await;
        // The second one is refused by its own answer, and the first one is as good as ever.
        for method in ["_good", "_polite", "_nobody"] {
            script.send(say(method)).await;
            let refusal = script.next_message().await;
            assert_eq!((&refusal["id"], &refusal["error"]["code"]), (&id, &json!(-32600)));
        }
        script.notify("$/cancel_request", json!({"requestId": id})).await;
        let answer = script.next_message().await;
        assert_eq!((&answer["id"], &answer["result"]), (&id, &json!("half of it")));
        // Now it is free again.
        script.send(say("_nobody")).await;
        assert_eq!(script.next_message().await["error"]["code"], -32601);
    }
}

async fn rule_7_an_answer_that_does_not_fit_is_an_error(wire: Wire) {
    let mut limits = Limits::default();
    limits.frame_bytes = 1000;
    let mut script = trouble(wire, limits);
    for _ in 0..100 {
        assert_eq!(code_of(&mut script, "_grow").await, -32603);
    }
}

/// Not even the error with the id in it would fit into a line.
async fn rule_7_an_id_that_does_not_fit_is_still_answered(wire: Wire) {
    let mut script = trouble(wire, Limits::default());
    let id = "i".repeat(16 * 1024 * 1024 - 45);
    for method in ["_drop", "_none"] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"{method}"}}"#);
        assert!(line.len() <= 16 * 1024 * 1024);
        script.send(line).await;
        let answer = script.next_message().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32600)));
    }
}

async fn rule_7_the_end_of_input_fails_waiters_at_once(wire: Wire) {
    let (transport, mut script) = wire.scripted();
    let mut limits = Limits::default();
    // Long enough to tell those who wait from handlers that take their time.
    limits.cancel_grace = Duration::from_secs(600);
    let peer = PeerBuilder::new(transport).limits(limits).start(|_| Trouble);
    script.send_request("_hang", json!([])).await;
    script.probe().await;
    let waiting: Vec<_> = (0..300).map(|_| peer.call::<_, Value>("_question", &[0])).collect();
    let (_sender, mut queue) = peer.queue::<()>();
    script.close().await;
    for call in waiting {
        let error = call.await.expect_err("no answer came");
        assert!(matches!(error, Error::Closed(Closed::EndOfInput)), "{error}");
    }
    assert!(matches!(queue.next().await, Some(Err(Error::Closed(Closed::EndOfInput)))));
    let error = peer.call::<_, Value>("_late", &[0]).await.expect_err("it is over");
    assert!(matches!(error, Error::Closed(Closed::EndOfInput)), "{error}");
}

/// Says goodbye when it is cancelled, or does not even notice.
struct Leaving(mpsc::UnboundedSender<&'static str>);

struct OnDrop(mpsc::UnboundedSender<&'static str>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

impl Agent for Leaving {
    fn capabilities(&self) -> AgentCapabilities {
        AgentCapabilities::default().load_session(true)
    }

    async fn new_session(&self, _: &Context, session: &Session) -> duologue_agent::Result<SessionSetup> {
        if session.cwd().ends_with("hang") {
            let _guard = OnDrop(self.0.clone());
            let _ = self.0.send("begun");
            std::future::pending::<()>().await;
        }
        Ok(SessionSetup::new())
    }

    async fn load_session(&self, _: &Context, _: &Session) -> duologue_agent::Result<SessionSetup> {
        let _ = self.0.send("begun");
        std::future::pending().await
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
        if prompt.text() == "stubborn" {
            let _guard = OnDrop(self.0.clone());
            std::future::pending::<()>().await;
        }
        turn.cancelled().await;
        turn.update(duologue_schema::SessionUpdate::agent_message("goodbye")).await?;
        Ok(StopReason::EndTurn)
    }
}

fn leaving(wire: Wire) -> (ScriptedPeer, mpsc::UnboundedReceiver<&'static str>, tokio::task::JoinHandle<()>) {
    let (transport, client) = wire.scripted();
    let (said, heard) = mpsc::unbounded_channel();
    let agent = tokio::spawn(async move {
        duologue_agent::serve(Leaving(said), transport).await.expect("a client that leaves is no error");
    });
    (client, heard, agent)
}

async fn rule_7_handlers_may_say_goodbye(wire: Wire) {
    let (mut client, _heard, agent) = leaving(wire);
    client.initialize(json!({})).await;
    let mut sessions = Vec::new();
    for _ in 0..100 {
        sessions.push(client.new_session().await);
    }
    let mut prompts = Vec::new();
    for session in &sessions {
        prompts.push(client.prompt(session, "polite").await);
    }
    client.probe().await;
    client.close().await;
    let rest = client.read_to_end().await;
    for (session, prompt) in sessions.iter().zip(prompts) {
        let update = rest.iter().position(|message| message["params"]["sessionId"] == **session);
        let answer = rest.iter().position(|message| message["id"] == prompt);
        let (update, answer) = (update.expect("a goodbye"), answer.expect("an answer"));
        assert!(update < answer);
        assert_eq!(rest[answer]["result"]["stopReason"], "cancelled");
    }
    assert_eq!(rest.len(), 200);
    agent.await.expect("an orderly end");
}

async fn rule_7_a_handler_that_ignores_the_end_is_dropped(wire: Wire) {
    let (mut client, mut heard, agent) = leaving(wire);
    client.initialize(json!({})).await;
    let session = client.new_session().await;
    let prompt = client.prompt(&session, "stubborn").await;
    let opening = client.send_request("session/new", json!({"cwd": "/hang", "mcpServers": []})).await;
    assert_eq!(heard.recv().await, Some("begun"));
    client.probe().await;
    let started = std::time::Instant::now();
    client.close().await;
    let rest = client.read_to_end().await;
    assert!(started.elapsed() >= Duration::from_millis(900), "they have a second");
    let answer = |id: u64| rest.iter().find(|message| message["id"] == id).expect("an answer");
    assert_eq!(answer(prompt)["result"]["stopReason"], "cancelled");
    assert_eq!(answer(opening)["error"]["code"], -32800);
    assert_eq!(rest.len(), 2);
    agent.await.expect("an orderly end");
    assert_eq!((heard.recv().await, heard.recv().await), (Some("dropped"), Some("dropped")));
}

async fn rule_7_a_cancelled_request_is_still_answered(wire: Wire) {
    let mut limits = Limits::default();
    limits.cancel_grace = Duration::from_millis(20);
    let mut script = trouble(wire, limits);
    for _ in 0..50 {
        for (method, result) in [("_polite", json!("half of it")), ("_hang", Value::Null)] {
            let id = script.send_request(method, json!([])).await;
            script.notify("$/cancel_request", json!({"requestId": id})).await;
            let answer = script.next_message().await;
            assert_eq!((&answer["id"], &answer["result"]), (&json!(id), &result));
            assert_eq!(answer["error"]["code"] == -32800, method == "_hang", "{answer}");
        }
        // Of an id that is none, was one, or is odd, nothing comes.
        for id in [json!(4), json!("x"), json!(null), json!({"a": [1]}), json!(1.5)] {
            script.notify("$/cancel_request", json!({"requestId": id})).await;
        }
        script.notify("$/cancel_request", json!([])).await;
        script.probe().await;
    }
    // A turn has an answer of its own for it.
    let (mut client, _heard, _agent) = leaving(wire);
    client.initialize(json!({})).await;
    let session = client.new_session().await;
    let prompt = client.prompt(&session, "polite").await;
    client.notify("$/cancel_request", json!({"requestId": prompt})).await;
    client.expect("session/update").await;
    let answer = client.next_message().await;
    assert_eq!((&answer["id"], &answer["result"]["stopReason"]), (&json!(prompt), &json!("cancelled")));
}

async fn rule_7_a_cancelled_load_leaves_no_session(wire: Wire) {
    let (mut client, mut heard, _agent) = leaving(wire);
    client.initialize(json!({})).await;
    let load = json!({"sessionId": "old", "cwd": "/tmp", "mcpServers": []});
    let load = client.send_request("session/load", load).await;
    assert_eq!(heard.recv().await, Some("begun"));
    client.notify("$/cancel_request", json!({"requestId": load})).await;
    let answer = client.next_message().await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(load), &json!(-32800)));
    let prompt = client.prompt("old", "polite").await;
    let answer = client.next_message().await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(prompt), &json!(-32002)));
}

/// Closes sessions, and ends turns on demand.
struct Closing;

impl Agent for Closing {
    fn capabilities(&self) -> AgentCapabilities {
        let close = duologue_schema::SessionCloseCapabilities::default();
        let sessions = duologue_schema::SessionCapabilities::default().close(close);
        AgentCapabilities::default().session_capabilities(sessions)
    }

    async fn close_session(&self, _: &Context, _: &Session) -> duologue_agent::Result<()> {
        Ok(())
    }

    async fn prompt(&self, turn: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        turn.cancelled().await;
        Ok(StopReason::EndTurn)
    }
}

async fn rule_7_a_prompt_behind_a_close_is_answered(wire: Wire) {
    let (transport, mut client) = wire.scripted();
    let mut limits = Limits::default();
    // A deadlock would last until this time limit.
    limits.cancel_grace = Duration::from_secs(600);
    tokio::spawn(Server::new(Closing).limits(limits).serve(transport));
    client.initialize(json!({})).await;
    for round in 0..100 {
        let session = client.new_session().await;
        let mut waiting = std::collections::BTreeSet::new();
        if round % 2 == 0 {
            waiting.insert(client.prompt(&session, "one").await);
        }
        waiting.insert(client.send_request("session/close", json!({"sessionId": session})).await);
        waiting.insert(client.prompt(&session, "two").await);
        let mut prompts = 0;
        while !waiting.is_empty() {
            let answer = client.next_message().await;
            assert!(waiting.remove(&answer["id"].as_u64().expect("an id")), "{answer}");
            // One more each time something ends, to hit the moment between two turns.
            if prompts < 3 {
                waiting.insert(client.prompt(&session, "more").await);
                prompts += 1;
            }
        }
    }
}

/// Responds to `_leaf`; to `_ask` only after a `_leaf` request to the other side; to `_down` after a chain of requests
/// between both sides, of the given depth.
struct Asking;

impl Service for Asking {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        let peer = responder.peer();
        let [number]: [u64; 1] =
            serde_json::from_str(request.params.expect("params").get()).expect("a number");
        let wire_error = |error: Error| duologue_schema::Error::internal(error.to_string());
        match request.method {
            "_leaf" => responder.respond(Ok(number)),
            "_ask" => {
                responder
                    .spawn(async move { peer.call::<_, u64>("_leaf", &[number]).await.map_err(wire_error) });
            }
            _ => responder.spawn(async move {
                if number == 0 {
                    return Ok(0);
                }
                let below = peer.call::<_, u64>("_down", &[number - 1]).await.map_err(wire_error)?;
                Ok(below + 1)
            }),
        }
    }
    fn notification(&self, _: Incoming<'_>) {}
}

async fn rule_8_a_thousand_handlers_ask_back_at_once(wire: Wire) {
    let (ours, theirs) = wire.pair();
    let (left, right) =
        (PeerBuilder::new(ours).start(|_| Asking), PeerBuilder::new(theirs).start(|_| Asking));
    let from_left: Vec<_> = (0..1000_u64).map(|number| left.call::<_, u64>("_ask", &[number])).collect();
    // And a few hundred the other way at the same time, within what may be in flight.
    for number in 0..500 {
        assert_eq!(right.call::<_, u64>("_leaf", &[number]).await.expect("an answer"), number);
    }
    for (number, call) in from_left.into_iter().enumerate() {
        assert_eq!(call.await.expect("an answer"), number as u64);
    }
}

async fn rule_8_handlers_ask_each_other_in_turn(wire: Wire) {
    let (ours, theirs) = wire.pair();
    let (left, _right) =
        (PeerBuilder::new(ours).start(|_| Asking), PeerBuilder::new(theirs).start(|_| Asking));
    let calls: Vec<_> = (0..20).map(|_| left.call::<_, u64>("_down", &[50])).collect();
    for call in calls {
        assert_eq!(call.await.expect("an answer"), 50);
    }
}

/// Requests a permission, fails or panics, as the prompt says.
struct Asker;

impl Agent for Asker {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
        match &*prompt.text() {
            "fail" => return Err(duologue_agent::Error::invalid_params("told to fail")),
            "panic" => panic!("told to panic"),
            _ => {}
        }
        for round in 0..20 {
            let call = turn.tool_call("t").announce().await?;
            let outcome = call.request_permission(Vec::new()).await?;
            let cancelled = duologue_schema::RequestPermissionOutcome::Cancelled;
            turn.message().push(format!("{round}{}", outcome == cancelled)).await?;
        }
        Ok(StopReason::EndTurn)
    }
}

async fn rule_8_errors_stay_inside_their_request(wire: Wire) {
    let (ours, theirs) = wire.pair();
    tokio::spawn(duologue_agent::serve(Asker, theirs));
    let agent = Client::new(()).connect(ours).await.expect("a connection");
    let turns = (0..24).map(|number| {
        let agent = agent.clone();
        tokio::spawn(async move {
            let session = agent.new_session("/tmp").await.expect("a session");
            for _ in 0..3 {
                let text = ["work", "fail", "panic"][number % 3];
                let mut turn = session.prompt(text).await.expect("a turn");
                let said = texts(&mut turn).await.concat();
                let outcome = turn.outcome().await;
                assert_eq!(outcome.is_ok(), text == "work", "{outcome:?}");
                assert_eq!(said.matches("true").count(), if text == "work" { 20 } else { 0 });
            }
        })
    });
    for turn in futures::future::join_all(turns).await {
        turn.expect("as it should be");
    }
}
