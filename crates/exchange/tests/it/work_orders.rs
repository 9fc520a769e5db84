//! Work orders between an agent and a client: each does what the other asks for, and both against a peer
//! that is played line by line.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use duologue_agent::{Agent, Prompt, Server, StopReason, Turn};
use duologue_client::exchange::Error;
use duologue_client::exchange::envelope::{EnvelopeError, EnvelopeErrorCode};
use duologue_client::exchange::work::{
    Artifact, Recommendation, RunEnd, WorkContext, WorkInput, WorkOrder, WorkOutput, WorkTask, Worker,
    Workflow, WorkflowStep,
};
use duologue_client::{Client, Connection, Exchange};
use duologue_schema::{Members, Meta, TraceContext};
use serde_json::{Value, json};
use tokio::sync::Notify;

use duologue_test_support::{ScriptedPeer, Wire, client_of, over_every_wire};

over_every_wire!(
    the_agent_works_for_the_client,
    the_client_works_for_the_agent,
    a_workflow_over_two_connections,
    nothing_is_sent_to_a_side_that_does_no_work_orders,
    an_order_that_cannot_be_tried_is_an_error,
    a_dropped_order_is_withdrawn,
    orders_run_side_by_side,
    the_end_of_the_connection_ends_orders,
    an_agent_says_what_is_missing,
    a_client_says_what_is_missing,
    an_order_as_the_wire_has_it,
    an_answer_that_does_not_fit,
    a_repeated_order_is_performed_once,
    a_repetition_outlives_the_first_call,
    a_forwarded_order_keeps_its_trace_alone,
    metadata_travels_both_ways,
);

/// Does what the action says.
struct Hands {
    started: Arc<Notify>,
    dropped: Arc<AtomicBool>,
}

impl Hands {
    fn new() -> Self {
        Hands { started: Arc::default(), dropped: Arc::default() }
    }
}

struct OnDrop(Arc<AtomicBool>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Worker for Hands {
    async fn work(&self, input: WorkOrder) -> Result<WorkOutput, EnvelopeError> {
        match input.task.action.as_str() {
            "write" => {
                let path = format!("{}.md", input.context.feature_id);
                let content = format!("{} {}", input.context.iteration, input.prior_context.len());
                Ok(WorkOutput::new(
                    true,
                    "Wrote it.",
                    [Artifact::create(path, content)],
                    Recommendation::Proceed,
                )
                .notes(["It is short.".into()]))
            }
            "fail" => Ok(WorkOutput::new(false, "No.", [], Recommendation::Retry)),
            "refuse" => Err(EnvelopeError::overloaded("come back later")),
            "panic" => panic!("as I was told"),
            "hang" => {
                let _guard = OnDrop(self.dropped.clone());
                self.started.notify_one();
                std::future::pending().await
            }
            other => {
                Err(EnvelopeError::of(EnvelopeErrorCode::NotFound, format!("nobody knows how to {other}")))
            }
        }
    }
}

fn order(action: &str) -> WorkInput {
    let task = WorkTask::new(action, Members::new());
    WorkInput::new(WorkContext::new("login", "feature", 1), [("feature_root", "features/login")], task)
}

/// Gives its client, as a worker, the order it was prompted.
struct Boss;

impl Agent for Boss {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
        let text = match turn.peer_agent().work(order(&prompt.text())).await {
            Ok(output) => format!("{} {}", output.summary, output.recommendation),
            Err(error) => error.to_string(),
        };
        turn.message().push(text).await?;
        Ok(StopReason::EndTurn)
    }
}

/// A client of an agent that takes orders.
async fn agent(wire: Wire, worker: impl Worker) -> Connection {
    let (ours, theirs) = wire.pair();
    tokio::spawn(Server::new(Boss).exchange(Exchange::new().work(worker)).serve(theirs));
    Client::new(()).connect(ours).await.expect("a connection")
}

async fn the_agent_works_for_the_client(wire: Wire) {
    let agent = agent(wire, Hands::new()).await;
    // With a session or without.
    let session = agent.new_session("/tmp").await.expect("a session");
    for peer in [agent.peer_agent().clone(), session.peer_agent()] {
        let output =
            peer.work(order("write").prior_context(["a".into(), "b".into()])).await.expect("an output");
        assert_eq!(output.artifacts, [Artifact::create("login.md", "1 2")]);
        assert_eq!(output.notes, ["It is short.".into()]);
        let failed = peer.work(order("fail")).await.expect("a failure is an answer");
        assert!(!failed.success && failed.recommendation == Recommendation::Retry);
    }
    agent.close().await;
}

async fn the_client_works_for_the_agent(wire: Wire) {
    let (ours, theirs) = wire.pair();
    tokio::spawn(Server::new(Boss).serve(theirs));
    let client = Client::new(()).exchange(Exchange::new().work(Hands::new()));
    let agent = client.connect(ours).await.expect("a connection");
    let session = agent.new_session("/tmp").await.expect("a session");
    let says =
        async |text: &str| session.prompt(text).await.expect("idle").finish().await.expect("a reply").text;
    assert_eq!(says("write").await, "Wrote it. proceed");
    assert_eq!(says("fail").await, "No. retry");
    assert_eq!(says("refuse").await, "the other agent returned an error: come back later (overloaded)");
    assert_eq!(
        says("dance").await,
        "the other agent returned an error: nobody knows how to dance (not_found)"
    );
    assert!(says("panic").await.contains("(internal)"));
    assert_eq!(says("write").await, "Wrote it. proceed");
    agent.close().await;
}

async fn a_workflow_over_two_connections(wire: Wire) {
    let writer = agent(wire, Hands::new()).await;
    let strict = async |input: WorkOrder| {
        let verdict = if input.context.iteration == 1 { "retry" } else { "proceed" };
        Ok(WorkOutput::new(true, "Read it.", [], verdict).notes(["Say more.".into()]))
    };
    let reader = agent(wire, strict).await;
    let workflow = Workflow::new()
        .step(WorkflowStep::new("write", writer.peer_agent().clone()))
        .step(WorkflowStep::new("read", reader.peer_agent().clone()).back_to("write"));
    let run =
        workflow.run(WorkContext::new("login", "feature", 1), [("feature_root", ".")]).await.expect("a run");
    assert_eq!((run.end, run.completed.len()), (RunEnd::Finished, 4));
    assert_eq!(run.completed[2].output.artifacts, [Artifact::create("login.md", "2 2")]);
}

async fn nothing_is_sent_to_a_side_that_does_no_work_orders(wire: Wire) {
    // It speaks envelopes, but takes no orders.
    let capabilities =
        json!({"_meta": {"duologue": {"envelope": {"v": [1]}, "agentId": "a1", "work": null}}});
    let (client, mut agent) = client_of(wire, Client::new(()), capabilities).await;
    let refused = client.peer_agent().work(order("write")).await.expect_err("refused");
    assert!(matches!(refused, Error::NotSupported { scheme: "work", .. }), "{refused}");
    drop(client);
    assert_eq!(agent.read_to_end().await, Vec::<Value>::new());

    // And nothing is taken by a side that has nobody to do it.
    let (transport, mut client) = wire.scripted();
    tokio::spawn(Server::new(Boss).exchange(Exchange::new()).serve(transport));
    let hello = client.initialize(json!({})).await;
    assert_eq!(hello["result"]["agentCapabilities"]["_meta"]["duologue"]["work"], Value::Null);
    let answer = client.request("_session/work", json!({"input": order("write")})).await;
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
}

async fn an_order_that_cannot_be_tried_is_an_error(wire: Wire) {
    let agent = agent(wire, Hands::new()).await;
    let refused = async |action: &str| match agent.peer_agent().work(order(action)).await {
        Err(Error::Response(fault)) => fault,
        other => panic!("{other:?}"),
    };
    let fault = refused("refuse").await;
    assert_eq!(
        (&fault.code, fault.message.as_str(), fault.retryable),
        (&EnvelopeErrorCode::Overloaded, "come back later", true)
    );
    let fault = refused("dance").await;
    assert_eq!((&fault.code, fault.retryable), (&EnvelopeErrorCode::NotFound, false));
    assert_eq!(refused("panic").await.code, EnvelopeErrorCode::Internal);
    // The connection has seen worse.
    agent.peer_agent().work(order("write")).await.expect("an output");
    let nowhere = agent.peer_agent().in_session("none").work(order("write")).await;
    assert!(matches!(nowhere, Err(Error::Response(fault)) if fault.code == EnvelopeErrorCode::NotFound));
}

async fn a_dropped_order_is_withdrawn(wire: Wire) {
    let hands = Hands::new();
    let (started, dropped) = (hands.started.clone(), hands.dropped.clone());
    let agent = agent(wire, hands).await;
    tokio::select! {
        output = agent.peer_agent().work(order("hang")) => panic!("{output:?}"),
        () = started.notified() => {}
    }
    while !dropped.load(Ordering::SeqCst) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    agent.peer_agent().work(order("write")).await.expect("an output");
}

async fn orders_run_side_by_side(wire: Wire) {
    let together = Arc::new(tokio::sync::Barrier::new(20));
    let worker = move |input: WorkOrder| {
        let together = together.clone();
        async move {
            together.wait().await;
            Ok(WorkOutput::new(true, input.context.iteration.to_string(), [], Recommendation::Proceed))
        }
    };
    let agent = agent(wire, worker).await;
    let orders = (0..20).map(|number| {
        let mut input = order("wait");
        input.context.iteration = number;
        let peer = agent.peer_agent().clone();
        async move { peer.work(input).await.expect("an output").summary }
    });
    let summaries = futures::future::join_all(orders).await;
    assert_eq!(summaries, (0..20).map(|number| number.to_string()).collect::<Vec<_>>());
}

async fn the_end_of_the_connection_ends_orders(wire: Wire) {
    let (client, mut agent) = client_of(wire, Client::new(()), takes_orders()).await;
    let peer = client.peer_agent().clone();
    let waiting = tokio::spawn(async move { peer.work(order("write")).await });
    agent.expect("_session/work").await;
    agent.close().await;
    drop(agent);
    let ended = waiting.await.expect("no panic").expect_err("no answer");
    assert_eq!(ended.code(), EnvelopeErrorCode::Unreachable, "{ended}");
    let later = client.peer_agent().work(order("write")).await.expect_err("no connection");
    assert_eq!(later.code(), EnvelopeErrorCode::Unreachable, "{later}");
}

fn takes_orders() -> Value {
    json!({"_meta": {"duologue": {"work": {}}}})
}

async fn an_agent_says_what_is_missing(wire: Wire) {
    let (transport, mut client) = wire.scripted();
    tokio::spawn(Server::new(Boss).exchange(Exchange::new().work(Hands::new())).serve(transport));
    let hello = client.initialize(json!({})).await;
    assert_eq!(hello["result"]["agentCapabilities"]["_meta"]["duologue"]["work"], json!({}));
    says_what_is_missing(&mut client).await;
}

async fn a_client_says_what_is_missing(wire: Wire) {
    let client = Client::new(()).exchange(Exchange::new().work(Hands::new()));
    let (transport, mut agent) = wire.scripted();
    let (connection, hello) = tokio::join!(client.connect(transport), agent.accept_initialize(json!({})));
    let _connection = connection.expect("a connection");
    assert_eq!(hello["params"]["clientCapabilities"]["_meta"]["duologue"]["work"], json!({}));
    says_what_is_missing(&mut agent).await;
}

async fn says_what_is_missing(played: &mut ScriptedPeer) {
    let whole = json!({"input": order("write")});
    for at in [
        "/input",
        "/input/context",
        "/input/context/feature_id",
        "/input/context/workflow",
        "/input/context/iteration",
        "/input/paths",
        "/input/task",
        "/input/task/action",
        "/input/task/params",
    ] {
        let (object, key) = at.rsplit_once('/').expect("a key");
        let mut params = whole.clone();
        params.pointer_mut(object).and_then(Value::as_object_mut).expect(at).remove(key);
        let error = played.request("_session/work", params).await["error"].take();
        assert_eq!(error["code"], -32602, "{at}: {error}");
        assert_eq!(error["message"], format!("_session/work: missing field `{key}`"));
        assert_eq!(error["data"], json!({"code": "invalid_parameter", "retryable": false}));
    }
    for params in [json!({"input": 7}), json!([1]), json!({"input": {"context": "x"}})] {
        let answer = played.request("_session/work", params).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    let mut unknown = whole.clone();
    unknown["sessionId"] = "none".into();
    assert_eq!(played.request("_session/work", unknown).await["error"]["code"], -32002);
    // Unknown members are no reason to reject.
    let mut more = whole;
    more["input"]["deadline"] = "soon".into();
    more["input"]["context"]["branch"] = "main".into();
    more["later"] = json!([]);
    let answer = played.request("_session/work", more).await;
    insta::allow_duplicates! {
        insta::assert_snapshot!(answer["result"], @r#"{"output":{"artifacts":[{"content":"1 0","operation":"create","path":"login.md"}],"notes":["It is short."],"recommendation":"proceed","success":true,"summary":"Wrote it."}}"#);
    }
}

async fn an_order_as_the_wire_has_it(wire: Wire) {
    let (client, mut agent) = client_of(wire, Client::new(()), takes_orders()).await;
    let peer = client.peer_agent().in_session("s1");
    let input = order("write").prior_context(["a note".into()]);
    let (output, ()) = tokio::join!(peer.work(input), async {
        let request = agent.expect("_session/work").await;
        insta::allow_duplicates! {
            insta::assert_snapshot!(request["params"], @r#"{"input":{"context":{"feature_id":"login","iteration":1,"workflow":"feature"},"paths":{"feature_root":"features/login"},"prior_context":["a note"],"task":{"action":"write","params":{}}},"sessionId":"s1"}"#);
        }
        let output = json!({
            "success": false, "summary": "", "artifacts": [], "notes": null, "recommendation": "ponder", "mood": 1,
        });
        agent.respond(&request, json!({"output": output, "_meta": {"cost": 2}})).await;
    });
    let output = output.expect("an output");
    assert!(output.recommendation.escalates() && output.notes.is_empty());
    assert_eq!(output.extra.get::<u32>("mood"), Some(1));
}

async fn an_answer_that_does_not_fit(wire: Wire) {
    let (client, mut agent) = client_of(wire, Client::new(()), takes_orders()).await;
    let whole = json!({"success": true, "summary": "", "artifacts": [], "recommendation": "proceed"});
    for key in ["success", "summary", "artifacts", "recommendation"] {
        let mut output = whole.clone();
        output.as_object_mut().expect("an object").remove(key);
        let (answer, ()) = tokio::join!(client.peer_agent().work(order("write")), async {
            let request = agent.expect("_session/work").await;
            agent.respond(&request, json!({"output": output})).await;
        });
        let error = answer.expect_err("no output");
        assert!(matches!(error, Error::Connection(_)) && error.to_string().contains(key), "{error}");
    }
}

/// Counts its orders, and gives up those that are withdrawn.
#[derive(Default)]
struct Counting {
    runs: AtomicU32,
    started: Notify,
    released: Notify,
}

impl Worker for Counting {
    async fn work(&self, order: WorkOrder) -> Result<WorkOutput, EnvelopeError> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        self.started.notify_one();
        match order.task.action.as_str() {
            "refuse" => return Err(EnvelopeError::overloaded("later")),
            "wait" => tokio::select! {
                biased;
                () = order.cancelled() => {
                    assert!(order.is_cancelled());
                    return Ok(WorkOutput::new(false, "gave up", [], Recommendation::Retry));
                }
                () = self.released.notified() => {}
            },
            _ => {}
        }
        let id = order.id.as_deref().unwrap_or("none");
        Ok(WorkOutput::new(true, format!("run {run} of {id}"), [], Recommendation::Proceed))
    }
}

async fn a_repeated_order_is_performed_once(wire: Wire) {
    let worker = Arc::new(Counting::default());
    let agent = agent(wire, worker.clone()).await;
    let peer = agent.peer_agent();
    let result = async |action: &str, id: &str| peer.work(order(action)).id(id).result().await;
    for duplicate in [false, true, true] {
        let result = result("write", "a").await.expect("an output");
        assert_eq!((result.output.summary.as_str(), result.duplicate), ("run 1 of a", duplicate));
    }
    let Err(Error::Response(fault)) = result("build", "a").await else { panic!("another order") };
    assert_eq!((&fault.code, fault.retryable), (&EnvelopeErrorCode::Conflict, false));
    // Without an id, and with another one, it is another order.
    assert_eq!(peer.work(order("write")).await.expect("an output").summary, "run 2 of none");
    assert_eq!(result("write", "b").await.expect("an output").output.summary, "run 3 of b");
    // An order that could not be attempted is tried again.
    result("refuse", "c").await.expect_err("overloaded");
    assert_eq!(result("write", "c").await.expect("an output").output.summary, "run 5 of c");
    for id in [String::new(), "x".repeat(129)] {
        let Err(Error::Response(fault)) = result("write", &id).await else { panic!("no id") };
        assert_eq!(fault.message, "_session/work: orderId must have 1 to 128 characters");
    }
    assert!(result("write", &"é".repeat(128)).await.expect("an output").output.success);
}

async fn a_repetition_outlives_the_first_call(wire: Wire) {
    let worker = Arc::new(Counting::default());
    let agent = agent(wire, worker.clone()).await;
    let call = || agent.peer_agent().work(order("wait")).id("d").result();
    let repeat = async || {
        let (again, ()) = tokio::join!(call(), async {
            // The withdrawal and the repetition have arrived before this order has its answer.
            agent.peer_agent().work(order("write")).await.expect("an output");
            worker.released.notify_one();
        });
        again.expect("a result")
    };
    // The first call is withdrawn before or after the repetition arrives: then it is another run.
    tokio::select! {
        biased;
        result = call() => panic!("{result:?}"),
        () = worker.started.notified() => {}
    }
    let again = repeat().await;
    assert!(again.output.success, "{again:?}");
    assert_eq!(again.duplicate, again.output.summary == "run 1 of d", "{again:?}");

    // The first call is withdrawn when the repetition has joined it.
    let worker = Arc::new(Counting::default());
    let agent = self::agent(wire, worker.clone()).await;
    let call = || agent.peer_agent().work(order("wait")).id("d").result();
    let first = tokio::spawn(call());
    worker.started.notified().await;
    let mut again = Box::pin(call());
    // The order after it: the repetition arrives before it.
    let output = tokio::select! {
        biased;
        again = &mut again => panic!("{again:?}"),
        output = agent.peer_agent().work(order("write")) => output.expect("an output"),
    };
    assert_eq!(output.summary, "run 2 of none");
    first.abort();
    first.await.expect_err("withdrawn");
    agent.peer_agent().work(order("write")).await.expect("an output");
    worker.released.notify_one();
    let again = again.await.expect("a result");
    assert_eq!((again.output.summary.as_str(), again.duplicate), ("run 1 of d", true));
}

#[tokio::test]
async fn calls_to_the_sender_continue_the_trace() {
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";
    let boss = |order: WorkOrder| {
        let trace = order.trace_context().map(|trace| trace.to_string()).unwrap_or_default();
        std::future::ready(Ok(WorkOutput::new(true, trace, [], Recommendation::Proceed)))
    };
    let worker = async |received: WorkOrder| {
        let back = received.peer.as_ref().expect("a sender").work(order("back"));
        let back =
            if received.task.action == "other" { back.trace_context(TraceContext::new(OTHER)) } else { back };
        let back = back.await.map_err(|error| error.fault())?;
        Ok(WorkOutput::new(true, back.summary, [], Recommendation::Proceed))
    };
    let (peer, _other) = Exchange::new().work(boss).in_memory(Exchange::new().work(worker));
    for (action, sent, expected) in
        [("same", Some(PARENT), PARENT), ("other", Some(PARENT), OTHER), ("none", None, "")]
    {
        let meta = Meta::from_iter([("cost", 7)]);
        let call = peer.work(order(action)).trace_context(sent.and_then(TraceContext::new));
        assert_eq!(call.meta(meta).await.expect("an output").summary, expected);
    }
}

async fn a_forwarded_order_keeps_its_trace_alone(wire: Wire) {
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let (downstream, mut helper) = client_of(wire, Client::new(()), takes_orders()).await;
    let upstream = agent(wire, downstream.peer_agent().clone()).await;
    let meta = Meta::from_iter([("token", "secret")]);
    let call = upstream.peer_agent().work(order("write")).id("a").trace_context(TraceContext::new(PARENT));
    let (result, ()) = tokio::join!(call.meta(meta).result(), async {
        let request = helper.expect("_session/work").await;
        let meta = json!({"traceparent": PARENT, "duologue": {"hops": 1}});
        assert_eq!((&request["params"]["_meta"], &request["params"]["orderId"]), (&meta, &Value::Null));
        let output = json!({"success": true, "summary": "", "artifacts": [], "recommendation": "proceed"});
        helper.respond(&request, json!({"output": output, "_meta": {"cost": 2}})).await;
    });
    assert_eq!(result.expect("a result").meta.and_then(|meta| meta.get("cost")), Some(2));
}

async fn metadata_travels_both_ways(wire: Wire) {
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let (transport, mut client) = wire.scripted();
    let worker = async |order: WorkOrder| {
        let session = order.session_id().map(ToString::to_string).unwrap_or_default();
        let peer = order.peer.as_ref().expect("a sender");
        assert_eq!(peer.session(), order.session_id());
        if let Some(meta) = order.meta() {
            order.set_answer_meta(meta.clone());
        }
        Ok(WorkOutput::new(true, session, [], Recommendation::Proceed))
    };
    tokio::spawn(Server::new(Boss).exchange(Exchange::new().work(worker)).serve(transport));
    client.initialize(json!({})).await;
    let session = client.new_session().await;
    let meta = json!({"traceparent": PARENT, "cost": 7});
    let params = json!({"sessionId": session, "input": order("write"), "_meta": meta});
    let answer = client.request("_session/work", params).await;
    assert_eq!(
        (&answer["result"]["_meta"], &answer["result"]["output"]["summary"]),
        (&meta, &json!(session))
    );
    let answer = client.request("_session/work", json!({"input": order("write"), "_meta": 7})).await;
    assert_eq!(
        (&answer["result"]["_meta"], &answer["result"]["output"]["summary"]),
        (&Value::Null, &json!(""))
    );

    let (client, mut agent) = client_of(wire, Client::new(()), takes_orders()).await;
    let meta = Meta::from_iter([("cost", 7)]);
    let call =
        client.peer_agent().work(order("write")).id("a").meta(meta).trace_context(TraceContext::new(PARENT));
    let (result, ()) = tokio::join!(call.result(), async {
        let request = agent.expect("_session/work").await;
        assert_eq!(request["params"]["_meta"], json!({"cost": 7, "traceparent": PARENT}));
        assert_eq!(request["params"]["orderId"], "a");
        let output = json!({"success": true, "summary": "", "artifacts": [], "recommendation": "proceed"});
        agent.respond(&request, json!({"output": output, "_meta": {"cost": 2}})).await;
    });
    assert_eq!(result.expect("a result").meta.and_then(|meta| meta.get("cost")), Some(2));
}
