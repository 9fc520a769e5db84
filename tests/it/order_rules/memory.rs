//! Rule 6: what a connection holds, and who pays when it is too much.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use duologue_agent::{Agent, Context, Prompt, Server, Session, SessionSetup, StopReason, Turn};
use duologue_client::limits::STATE_BYTES;
use duologue_client::schema::SessionInfoUpdate;
use duologue_client::{Client, Connection, Error as ClientError, SessionUpdate};
use duologue_rpc::{Error, Incoming, Limits, Queue, QueueSender, Responder, Service};
use futures::FutureExt;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

use duologue_test_support::{ScriptedPeer, Wire, client_of, message_chunk, over_every_wire, texts};

over_every_wire!(
    rule_6_a_slow_consumer_loses_nothing_and_holds_the_agent_back,
    rule_6_an_empty_queue_takes_one_line_of_any_size,
    rule_6_a_consumer_may_call_back_while_over_the_budget,
    rule_6_at_the_hard_limit_the_fullest_stream_ends_and_the_rest_goes_on,
    rule_6_a_stream_that_nobody_takes_ends_in_time,
    rule_6_a_consumer_that_stops_halfway_does_not_stop_the_others,
    rule_6_updates_without_a_subscriber_are_not_kept,
    rule_6_what_is_too_long_for_the_state_is_delivered_all_the_same,
    rule_6_the_request_after_1024_is_refused_at_once,
    rule_6_a_cancel_wakes_an_agent_that_waits_for_room,
    rule_6_updates_buffered_for_a_new_session_never_wait,
);

const KIB: usize = 1024;

fn small_queues(soft: usize, hard: usize) -> Limits {
    let mut limits = Limits::default();
    (limits.queue_bytes, limits.queue_bytes_hard) = (soft, hard);
    limits
}

/// A client with small queues, its agent, and one session for each name.
async fn client_with(
    wire: Wire,
    limits: Limits,
    sessions: &[&str],
) -> (Connection, ScriptedPeer, Vec<duologue_client::Session>) {
    let (agent, mut script) = client_of(wire, Client::new(()).limits(limits), json!({})).await;
    let mut opened = Vec::new();
    for name in sessions {
        let (session, ()) = tokio::join!(agent.new_session("/tmp"), script.accept_session(name));
        opened.push(session.expect("a session"));
    }
    (agent, script, opened)
}

/// Starts a turn and returns it with the agent's view of its prompt.
async fn prompted(
    session: &duologue_client::Session,
    script: &mut ScriptedPeer,
) -> (duologue_client::Turn, Value) {
    let (turn, prompt) = tokio::join!(session.prompt("go"), script.expect("session/prompt"));
    (turn.expect("a turn"), prompt)
}

/// A chunk of about a KiB that begins with its number.
fn kib(session: &str, number: usize) -> String {
    message_chunk(session, &format!("{number} {}", "x".repeat(900)))
}

fn number(text: &str) -> usize {
    text.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

async fn rule_6_a_slow_consumer_loses_nothing_and_holds_the_agent_back(wire: Wire) {
    let (soft, hard) = (64 * KIB, 256 * KIB);
    let (_agent, mut script, sessions) = client_with(wire, small_queues(soft, hard), &["s"]).await;
    let (mut turn, prompt) = prompted(&sessions[0], &mut script).await;
    let written = Arc::new(AtomicUsize::new(0));
    let writer = tokio::spawn({
        let written = written.clone();
        async move {
            for number in 0..2000 {
                let line = kib("s", number);
                written.fetch_add(line.len(), SeqCst);
                script.write(line).await;
            }
            script.end_turn(&prompt, "end_turn").await;
        }
    });
    let mut taken = 0;
    for expected in 0..2000 {
        // Whatever the timing: the agent is never further ahead than queue, buffers and wire hold.
        let ahead = written.load(SeqCst) - taken;
        assert!(ahead <= soft + Wire::CAPACITY + 128 * KIB, "{ahead} bytes ahead");
        let text = turn.next().await.expect("an update").expect("no error").to_string();
        assert_eq!(number(&text), expected);
        taken += kib("s", expected).len();
        if expected % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    writer.await.expect("all written");
    assert!(turn.next().await.is_none() && turn.outcome().await.is_ok());
}

async fn rule_6_an_empty_queue_takes_one_line_of_any_size(wire: Wire) {
    let (_agent, mut script, sessions) = client_with(wire, small_queues(KIB, 200 * KIB), &["s"]).await;
    let (mut turn, prompt) = prompted(&sessions[0], &mut script).await;
    for size in [2 * KIB, 100 * KIB, 1, 150 * KIB] {
        let text = "w".repeat(size);
        let (update, ()) = tokio::join!(turn.next(), script.send_chunk("s", &text));
        assert_eq!(update.expect("an update").expect("no error").to_string().len(), size);
    }
    script.end_turn(&prompt, "end_turn").await;
    assert!(turn.outcome().await.is_ok());
}

async fn rule_6_a_consumer_may_call_back_while_over_the_budget(wire: Wire) {
    let (agent, script, sessions) = client_with(wire, small_queues(16 * KIB, 64 << 20), &["s"]).await;
    let mut script = script;
    let (mut turn, prompt) = prompted(&sessions[0], &mut script).await;
    let script = tokio::spawn(async move {
        for round in 0..100 {
            // Far more than the queue and the wire hold together, and only then an answer.
            let updates: String = (0..200).map(|index| kib("s", round * 200 + index)).collect();
            script.write(updates).await;
            let question = script.expect("_question").await;
            script.respond(&question, json!(round)).await;
        }
        script.end_turn(&prompt, "end_turn").await;
    });
    for round in 0..100 {
        for index in 0..200 {
            let text = turn.next().await.expect("an update").expect("no error").to_string();
            assert_eq!(number(&text), round * 200 + index);
            if index == 0 {
                let answer: usize = agent.peer().call("_question", &[0]).await.expect("an answer");
                assert_eq!(answer, round);
            }
        }
    }
    script.await.expect("no panic");
    assert!(turn.next().await.is_none() && turn.outcome().await.is_ok());
}

async fn rule_6_at_the_hard_limit_the_fullest_stream_ends_and_the_rest_goes_on(wire: Wire) {
    let limits = small_queues(64 * KIB, 128 * KIB);
    let (_agent, mut script, sessions) = client_with(wire, limits, &["full", "live"]).await;
    let (mut full, full_prompt) = prompted(&sessions[0], &mut script).await;
    let (mut live, live_prompt) = prompted(&sessions[1], &mut script).await;
    // The prompt of the other session is unanswered, so the reader may not pause.
    for number in 0..1000 {
        script.write(kib("full", number)).await;
        if number % 10 == 0 {
            script.send_chunk("live", &number.to_string()).await;
            let text = live.next().await.expect("an update").expect("no error").to_string();
            assert_eq!(text, number.to_string());
        }
    }
    let error = full.next().await.expect("an end").expect_err("a stream that was not taken");
    assert!(matches!(error, ClientError::Connection(Error::Stalled { bytes: 1.., after: None })), "{error}");
    assert!(error.to_string().ends_with("all streams together reached Limits::queue_bytes_hard"), "{error}");
    assert!(full.next().await.is_none() && full.outcome().await.is_err());
    script.end_turn(&full_prompt, "end_turn").await;
    script.end_turn(&live_prompt, "end_turn").await;
    assert!(live.next().await.is_none() && live.outcome().await.is_ok());
    // The session of the stream that ended is as good as new.
    let (mut again, prompt) = prompted(&sessions[0], &mut script).await;
    script.send_chunk("full", "once more").await;
    script.end_turn(&prompt, "end_turn").await;
    assert_eq!(texts(&mut again).await, ["once more"]);
}

async fn rule_6_a_stream_that_nobody_takes_ends_in_time(wire: Wire) {
    let mut limits = small_queues(64 * KIB, 4 << 20);
    limits.stall_timeout = Duration::from_millis(200);
    let (_agent, mut script, sessions) = client_with(wire, limits, &["stuck", "next"]).await;
    let (mut stuck, prompt) = prompted(&sessions[0], &mut script).await;
    // More than queue and wire hold: it can only be written if somebody gives up.
    let flood: String = (0..500).map(|number| kib("stuck", number)).collect();
    script.write(flood).await;
    script.end_turn(&prompt, "end_turn").await;
    let (mut next, prompt) = prompted(&sessions[1], &mut script).await;
    script.send_chunk("next", "fine").await;
    script.end_turn(&prompt, "end_turn").await;
    assert_eq!(texts(&mut next).await, ["fine"]);
    let error = stuck.next().await.expect("an end").expect_err("a stream that was not taken");
    assert!(matches!(error, ClientError::Connection(Error::Stalled { after: Some(_), .. })), "{error}");
    assert!(error.to_string().contains("nothing was taken for 200ms (Limits::stall_timeout)"), "{error}");
}

/// The default patience, on a clock of the test's own.
#[tokio::test(start_paused = true)]
async fn rule_6_ten_seconds_without_a_taker_are_enough() {
    let limits = small_queues(64 * KIB, 4 << 20);
    let (_agent, mut script, sessions) = client_with(Wire::Memory, limits, &["s"]).await;
    let (mut turn, prompt) = prompted(&sessions[0], &mut script).await;
    let started = tokio::time::Instant::now();
    let flood: String = (0..250).map(|number| kib("s", number)).collect();
    script.write(flood).await;
    script.end_turn(&prompt, "end_turn").await;
    script.probe().await;
    let waited = started.elapsed();
    assert!((Duration::from_secs(10)..Duration::from_secs(11)).contains(&waited), "{waited:?}");
    assert!(turn.next().await.expect("an end").is_err());
}

/// Puts every notification into one of two streams, by its first letter.
struct Sorter(Mutex<[QueueSender<Value>; 2]>, mpsc::UnboundedSender<()>);

impl Service for Sorter {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        responder.method_not_found(request.method);
    }

    fn notification(&self, notification: Incoming<'_>) {
        let item = serde_json::from_str(notification.params.expect("params").get()).expect("JSON");
        let queues = self.0.lock().expect("unpoisoned");
        let queue = if notification.method == "_left" { &queues[0] } else { &queues[1] };
        let _ = queue.push(item, notification.wire_bytes);
        let _ = self.1.send(());
    }
}

async fn rule_6_a_consumer_that_stops_halfway_does_not_stop_the_others(wire: Wire) {
    let (transport, mut script) = wire.scripted();
    let mut limits = small_queues(KIB, 1 << 20);
    limits.stall_timeout = Duration::from_millis(100);
    let (sent, received) = std::sync::mpsc::channel();
    let (pushed, mut seen) = mpsc::unbounded_channel();
    let _peer = duologue_rpc::PeerBuilder::new(transport).limits(limits).start(|peer| {
        let (left, right) = (peer.queue(), peer.queue());
        sent.send((left.1, right.1)).expect("received");
        Sorter(Mutex::new([left.0, right.0]), pushed)
    });
    let (mut left, mut right): (Queue<Value>, Queue<Value>) = received.recv().expect("two streams");
    // Two lines that together are far over the budget; one is taken, the other never is.
    script.notify("_left", json!([1])).await;
    script.notify("_left", json!(["x".repeat(10 * KIB)])).await;
    for _ in 0..2 {
        seen.recv().await;
    }
    assert_eq!(left.next().await.expect("one").expect("no error"), json!([1]));
    // The wire holds less than this, so it only gets through if the reader goes on.
    for number in 0..500 {
        script.notify("_right", json!([number])).await;
        let item = right.next().await.expect("an item").expect("the other stream is fine");
        assert_eq!(item, json!([number]));
    }
    drop(left);
}

async fn rule_6_updates_without_a_subscriber_are_not_kept(wire: Wire) {
    let limits = small_queues(64 * KIB, 128 * KIB);
    let (agent, mut script, _sessions) = client_with(wire, limits, &["s"]).await;
    let lines: String = (0..3000).map(|number| kib(["s", "unknown"][number % 2], number)).collect();
    script.write(lines).await;
    let plan = json!({"sessionUpdate": "plan", "entries": [{"content": "p", "priority": "low", "status": "pending"}]});
    script.notify("session/update", json!({"sessionId": "s", "update": plan})).await;
    script.probe().await;
    assert!(agent.dropped_updates() >= 3000 - 256, "{}", agent.dropped_updates());
    assert_eq!(_sessions[0].state().plan.expect("the latest plan").entries.len(), 1);
}

async fn rule_6_what_is_too_long_for_the_state_is_delivered_all_the_same(wire: Wire) {
    let (_agent, mut script, sessions) = client_with(wire, Limits::default(), &["s"]).await;
    let mut updates = sessions[0].updates();
    for length in [9, STATE_BYTES] {
        let update = json!({"sessionUpdate": "session_info_update", "title": "t".repeat(length)});
        script.notify("session/update", json!({"sessionId": "s", "update": update})).await;
        let Some(Ok(SessionUpdate::SessionInfoUpdate(info))) = updates.next().await else {
            panic!("a title of {length} bytes was not delivered")
        };
        assert_eq!(info, SessionInfoUpdate::new().title("t".repeat(length)));
        assert_eq!(sessions[0].state().title.as_deref(), Some("ttttttttt"));
    }
}

/// Holds every request until it is let go.
struct Holder(Arc<Semaphore>);

impl Service for Holder {
    fn request(&self, _: Incoming<'_>, responder: Responder) {
        let release = self.0.clone();
        responder.spawn(async move {
            release.acquire().await.expect("open").forget();
            Ok(true)
        });
    }
    fn notification(&self, _: Incoming<'_>) {}
}

async fn rule_6_the_request_after_1024_is_refused_at_once(wire: Wire) {
    let (ours, theirs) = wire.pair();
    let release = Arc::new(Semaphore::new(0));
    let holder = duologue_rpc::PeerBuilder::new(theirs).start(|_| Holder(release.clone()));
    let peer = duologue_rpc::PeerBuilder::new(ours).start(|_| Holder(release.clone()));
    for _ in 0..2 {
        let held: Vec<_> = (0..1024).map(|_| peer.call::<_, bool>("_hold", &[0])).collect();
        for _ in 0..100 {
            let error = peer.call::<_, bool>("_hold", &[0]).await.expect_err("one too many");
            assert_eq!(error.as_response().expect("an answer").code.0, -32603);
        }
        release.add_permits(1024);
        for call in held {
            assert!(call.await.expect("an answer"));
        }
    }
    assert_eq!(holder.stats().refused, 200);
}

/// Sets sessions up with more or less to say, and talks until it cannot any more.
struct Talker(mpsc::UnboundedSender<String>);

impl Talker {
    fn say(&self, what: impl Into<String>) {
        let _ = self.0.send(what.into());
    }
}

impl Agent for Talker {
    async fn new_session(&self, _: &Context, session: &Session) -> duologue_agent::Result<SessionSetup> {
        let length = if session.cwd().ends_with("much") { Limits::EARLY_BYTES / 200 } else { 40 };
        for number in 0..200 {
            let text = format!("{number} {}", "h".repeat(length));
            session.update(duologue_client::SessionUpdate::agent_message(text)).await?;
        }
        self.say("set up");
        Ok(SessionSetup::new())
    }

    async fn prompt(&self, turn: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        let mut message = turn.message();
        loop {
            if turn.client().peer().ready().now_or_never().is_none() {
                self.say("full");
            }
            if let Err(error) = message.push("t".repeat(KIB)).await {
                self.say(error.to_string());
                return Err(error);
            }
        }
    }
}

/// An agent with little room for output.
fn talker(wire: Wire) -> (ScriptedPeer, mpsc::UnboundedReceiver<String>) {
    let (transport, client) = wire.scripted();
    let (said, heard) = mpsc::unbounded_channel();
    let mut limits = Limits::default();
    limits.output_bytes = 32 * KIB;
    tokio::spawn(Server::new(Talker(said)).limits(limits).serve(transport));
    (client, heard)
}

async fn heard(words: &mut mpsc::UnboundedReceiver<String>, what: &str) {
    while words.recv().await.expect("an agent that talks") != what {}
}

async fn rule_6_a_cancel_wakes_an_agent_that_waits_for_room(wire: Wire) {
    let (mut client, mut words) = talker(wire);
    client.initialize(json!({})).await;
    let session = client.new_session().await;
    for _ in 0..200 {
        client.expect("session/update").await;
    }
    let prompt = client.prompt(&session, "talk").await;
    // Nothing is read meanwhile, so it waits for room, and would for ever.
    heard(&mut words, "full").await;
    client.cancel(&session).await;
    heard(&mut words, "the turn was cancelled").await;
    loop {
        let message = client.next_message().await;
        if message["id"] == prompt {
            assert_eq!(message["result"]["stopReason"], "cancelled");
            break;
        }
        assert_eq!(message["method"], "session/update");
    }
}

async fn rule_6_updates_buffered_for_a_new_session_never_wait(wire: Wire) {
    let (mut client, mut words) = talker(wire);
    client.initialize(json!({})).await;
    let first = client.new_session().await;
    let prompt = client.prompt(&first, "talk").await;
    heard(&mut words, "full").await;
    // There is no room at all, and nothing is read until the agent has set the session up.
    let request = client.send_request("session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
    heard(&mut words, "set up").await;
    client.cancel(&first).await;
    let (mut second, mut next, mut ended) = (None, 0, false);
    while next < 200 || !ended {
        let message = client.next_message().await;
        if message["id"] == prompt {
            ended = true;
        } else if message["id"] == request {
            second = Some(message["result"]["sessionId"].clone());
        } else if message["params"]["sessionId"] != *first && message.get("method").is_some() {
            assert_eq!(Some(&message["params"]["sessionId"]), second.as_ref(), "the answer comes first");
            assert_eq!(number(message["params"]["update"]["content"]["text"].as_str().expect("text")), next);
            next += 1;
        }
    }
    client.probe().await;
    // The buffer is bounded too. Exceeding it ends this session, not the connection.
    let answer = client.request("session/new", json!({"cwd": "/much", "mcpServers": []})).await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    client.probe().await;
}
