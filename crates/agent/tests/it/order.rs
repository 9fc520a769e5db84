//! The order of an agent's updates, responses, cancellations and closes.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use duologue_agent::schema::{AgentCapabilities, SessionCapabilities, SessionCloseCapabilities};
use duologue_agent::schema::{PlanEntry, PlanEntryPriority, PlanEntryStatus, SessionUpdate, ToolCallUpdate};
use duologue_agent::{
    Agent, Context, Error, Limits, PermissionOption, PermissionOptionKind, Prompt, Server, Session,
    SessionSetup, StopReason, ToolKind, Turn,
};
use duologue_exchange::Exchange;
use duologue_rpc::{Direction, Tap, TappedFrame};
use futures::FutureExt;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use duologue_test_support::{ScriptedPeer, Wire, in_time_tests};

in_time_tests!(
    updates_behind_the_response_are_rejected,
    no_update_slips_behind_the_answer,
    updates_of_a_new_session_come_before_its_first_answer,
    the_next_prompt_keeps_its_own_cancellation,
    a_failing_close_leaves_the_session_to_be_cancelled,
    a_session_that_is_loaded_beside_a_close_survives,
    a_permission_question_tells_what_it_is_about,
    a_message_is_not_pushed_after_a_cancel,
    a_dropped_push_was_not_made,
);

/// An agent that does what the prompt says.
#[derive(Clone, Default)]
struct Doer {
    /// Reports to the test.
    says: Option<mpsc::UnboundedSender<String>>,
    turns: Option<mpsc::UnboundedSender<Turn>>,
}

impl Agent for Doer {
    fn capabilities(&self) -> AgentCapabilities {
        let close = SessionCapabilities::default().close(SessionCloseCapabilities::default());
        AgentCapabilities::default().load_session(true).session_capabilities(close)
    }

    async fn new_session(&self, _: &Context, session: &Session) -> duologue_agent::Result<SessionSetup> {
        if session.cwd().starts_with("/warned") {
            // It is kept, and is larger than a line may be: a warning is logged instead of it.
            session.update(SessionUpdate::agent_message("x".repeat(LINE_BYTES))).await?;
            session.peer_agent().notify("kept", json!(1)).await.map_err(Error::other)?;
        }
        if session.cwd().ends_with("held") {
            for number in 0..20 {
                session.update(SessionUpdate::agent_message(number.to_string())).await?;
            }
        }
        Ok(SessionSetup::new())
    }

    async fn load_session(&self, _: &Context, _: &Session) -> duologue_agent::Result<SessionSetup> {
        Ok(SessionSetup::new())
    }

    async fn close_session(&self, _: &Context, session: &Session) -> duologue_agent::Result<()> {
        if session.cwd().ends_with("kept") {
            return Err(Error::other("it stays"));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(())
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
        match prompt.text().as_str() {
            "say" => turn.update(SessionUpdate::agent_message("said")).await?,
            "hand out" => drop(self.turns.as_ref().expect("a way out").send(turn.clone())),
            "talk beside" => {
                tokio::spawn(talk(turn.clone()));
                tokio::task::yield_now().await;
            }
            "wait" => turn.cancelled().await,
            "ask" => ask(turn).await?,
            "permission" => {
                turn.request_permission(ToolCallUpdate::new("call"), Vec::new()).await?;
            }
            "read" => drop(turn.read_text_file("/a").await?),
            "push late" => {
                let mut message = turn.message();
                message.push("in time").await?;
                turn.cancelled().await;
                let pushed = message.push("too late").await;
                let word = if matches!(pushed, Err(Error::Cancelled)) { "cancelled" } else { "pushed" };
                let _ = self.says.as_ref().expect("an ear").send(word.into());
            }
            "push and drop" => self.push_and_drop(turn).await?,
            _ => {}
        }
        Ok(StopReason::EndTurn)
    }
}

/// Talks until the turn is over.
async fn talk(turn: Turn) {
    while turn.update(SessionUpdate::agent_message("more")).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

async fn ask(turn: &Turn) -> duologue_agent::Result<()> {
    let call = turn.tool_call("Delete everything").kind(ToolKind::Delete).announce().await?;
    call.content("all of it").await?;
    let no = PermissionOption::new("no", "No", PermissionOptionKind::RejectOnce);
    call.request_permission(vec![no]).await?;
    call.complete().await
}

impl Doer {
    async fn push_and_drop(&self, turn: &Turn) -> duologue_agent::Result<()> {
        let (mut message, mut text) = (turn.message(), String::new());
        // Until there is no room; what would have to wait is given up.
        for number in 0.. {
            let next = format!("{number} {}", "p".repeat(1024));
            match message.push(next.as_str()).now_or_never() {
                Some(pushed) => pushed?,
                None => break,
            }
            text += &next;
        }
        text += "the end";
        let _ = self.says.as_ref().expect("an ear").send(text.clone());
        message.set(&text).await
    }
}

async fn client_of(agent: Doer, limits: Limits) -> ScriptedPeer {
    let (transport, mut client) = Wire::Memory.scripted();
    tokio::spawn(Server::new(agent).limits(limits).serve(transport));
    client.initialize(json!({})).await;
    client
}

/// Returns the messages up to the response to a request, and the response.
async fn until_answered(client: &mut ScriptedPeer, id: u64) -> (Vec<Value>, Value) {
    let mut before = Vec::new();
    loop {
        let message = client.next_message().await;
        if message.get("method").is_none() && message["id"] == id {
            return (before, message);
        }
        before.push(message);
    }
}

fn text(update: &Value) -> &str {
    update["params"]["update"]["content"]["text"].as_str().unwrap_or_else(|| panic!("{update}"))
}

async fn updates_behind_the_response_are_rejected() {
    let (turns, mut taken) = mpsc::unbounded_channel();
    let mut client = client_of(Doer { turns: Some(turns), says: None }, Limits::default()).await;
    let session = client.new_session().await;
    for _ in 0..20 {
        let prompt = client.prompt(&session, "hand out").await;
        let (before, answer) = until_answered(&mut client, prompt).await;
        assert!(before.is_empty() && answer["result"]["stopReason"] == "end_turn", "{answer}");
        let turn = taken.recv().await.expect("a turn");
        let entry = PlanEntry::new("p", PlanEntryPriority::Low, PlanEntryStatus::Pending);
        let late = turn.set_plan(vec![entry]).await;
        assert!(matches!(late, Err(Error::TurnEnded)), "{late:?}");
        let late = turn.message().push("late").await;
        assert!(matches!(late, Err(Error::TurnEnded)), "{late:?}");
        // The session may speak between turns.
        turn.session().set_plan(Vec::new()).await.expect("sent");
        assert_eq!(client.expect("session/update").await["params"]["update"]["sessionUpdate"], "plan");
        client.probe().await;
    }
}

async fn no_update_slips_behind_the_answer() {
    let mut client = client_of(Doer::default(), Limits::default()).await;
    let session = client.new_session().await;
    for _ in 0..300 {
        let prompt = client.prompt(&session, "talk beside").await;
        let (before, answer) = until_answered(&mut client, prompt).await;
        assert!(before.iter().all(|update| text(update) == "more"));
        assert_eq!(answer["result"]["stopReason"], "end_turn");
        // Nothing between the answer and this.
        client.probe().await;
    }
}

async fn updates_of_a_new_session_come_before_its_first_answer() {
    let mut client = client_of(Doer::default(), Limits::default()).await;
    for round in 0..300 {
        let request = client.send_request("session/new", json!({"cwd": "/held", "mcpServers": []})).await;
        let (before, answer) = until_answered(&mut client, request).await;
        assert!(before.is_empty(), "{before:?}");
        let session = answer["result"]["sessionId"].as_str().expect("an id").to_owned();
        let prompt = client.prompt(&session, ["say", "nothing"][round % 2]).await;
        let (before, _) = until_answered(&mut client, prompt).await;
        let mut expected: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        if round % 2 == 0 {
            expected.push("said".into());
        }
        assert_eq!(before.iter().map(text).collect::<Vec<_>>(), expected);
    }
}

/// The longest line of the agent whose session is being made while the client reacts.
const LINE_BYTES: usize = 32 * 1024;

/// Pauses the agent where it logs a warning, if its client could react meanwhile: once the answer that
/// names the session is out, until the test drops the sender.
struct PausedAtWarning {
    answered: AtomicBool,
    resume: Mutex<std::sync::mpsc::Receiver<()>>,
}

struct AnswerTap(Arc<PausedAtWarning>);

impl Tap for AnswerTap {
    fn frame(&self, frame: TappedFrame<'_>) {
        let line: Value = serde_json::from_slice(frame.bytes).expect("a message");
        if frame.direction == Direction::Outgoing && line["result"]["sessionId"].is_string() {
            self.0.answered.store(true, Relaxed);
        }
    }
}

struct WarningSubscriber(Arc<PausedAtWarning>);

impl tracing::Subscriber for WarningSubscriber {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.level() == &tracing::Level::WARN
    }

    fn event(&self, _: &tracing::Event<'_>) {
        if self.0.answered.load(Relaxed) {
            // Other threads take over the tasks of this one.
            let resume = || self.0.resume.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let _ = tokio::task::block_in_place(resume);
        }
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::Id {
        tracing::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::Id, _: &tracing::Id) {}
    fn enter(&self, _: &tracing::Id) {}
    fn exit(&self, _: &tracing::Id) {}
}

/// Whatever a client makes the agent send when it has read the answer comes behind what was kept. The agent is
/// paused wherever the client would otherwise have to be fast to show the opposite.
#[test]
fn nothing_of_a_new_session_overtakes_its_kept_updates() {
    let prompt = |text: &str| ("session/prompt", json!([{"type": "text", "text": text}]));
    let image = json!([{"type": "image", "mimeType": "image/png", "data": ""}]);
    for (method, content) in [
        prompt("nothing"),
        prompt("say"),
        prompt("permission"),
        prompt("read"),
        ("session/prompt", image),
        ("session/set_mode", Value::Null),
        ("session/close", Value::Null),
        ("session/load", Value::Null),
    ] {
        let (done, resume) = std::sync::mpsc::channel();
        let paused = PausedAtWarning { answered: AtomicBool::new(false), resume: Mutex::new(resume) };
        let paused = Arc::new(paused);
        let subscriber = tracing::Dispatch::new(WarningSubscriber(paused.clone()));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .on_thread_start(move || std::mem::forget(tracing::dispatcher::set_default(&subscriber)))
            .build()
            .expect("a runtime");
        runtime.block_on(duologue_test_support::in_time(async move {
            let (transport, mut client) = Wire::Memory.scripted();
            let mut limits = Limits::default();
            limits.frame_bytes = LINE_BYTES;
            let server = Server::new(Doer::default()).limits(limits).tap(Arc::new(AnswerTap(paused)));
            tokio::spawn(server.exchange(Exchange::new().agent_id("a1")).serve(transport));
            let envelopes = json!({"duologue": {"agentId": "c1", "envelope": {"v": [1]}}});
            client.initialize(json!({"fs": {"readTextFile": true}, "_meta": envelopes})).await;
            let answer =
                client.request("session/new", json!({"cwd": "/warned/held", "mcpServers": []})).await;
            let session = &answer["result"]["sessionId"];
            let params = json!({
                "sessionId": session, "prompt": content, "modeId": "m", "cwd": "/tmp", "mcpServers": [],
            });
            let request = client.send_request(method, params).await;
            let first = client.next_message().await;
            drop(done);
            let mut kept = vec![first];
            for _ in 0..20 {
                kept.push(client.next_message().await);
            }
            let (news, updates) = kept.split_last().expect("some");
            let expected: Vec<_> = (0..20).map(|number| json!(number.to_string())).collect();
            let texts = updates.iter().map(|update| &update["params"]["update"]["content"]["text"]);
            assert!(texts.eq(&expected), "{method}: {updates:?}");
            assert_eq!(news["params"]["envelope"]["payload"]["topic"], "kept", "{method}: {news}");
            let reaction = client.next_message().await;
            let asked = matches!(
                reaction["method"].as_str(),
                Some("session/request_permission" | "fs/read_text_file")
            );
            assert!(
                asked || reaction["id"] == request || reaction["method"] == "session/update",
                "{reaction}"
            );
        }));
    }
}

async fn the_next_prompt_keeps_its_own_cancellation() {
    let mut client = client_of(Doer::default(), Limits::default()).await;
    let session = client.new_session().await;
    for _ in 0..500 {
        let first = client.prompt(&session, "nothing").await;
        assert_eq!(until_answered(&mut client, first).await.1["result"]["stopReason"], "end_turn");
        let second = client.prompt(&session, "wait").await;
        client.cancel(&session).await;
        assert_eq!(until_answered(&mut client, second).await.1["result"]["stopReason"], "cancelled");
    }
}

async fn a_failing_close_leaves_the_session_to_be_cancelled() {
    let mut client = client_of(Doer::default(), Limits::default()).await;
    let answer = client.request("session/new", json!({"cwd": "/kept", "mcpServers": []})).await;
    let session = answer["result"]["sessionId"].as_str().expect("an id").to_owned();
    for round in 0..100 {
        if round % 2 == 0 {
            let running = client.prompt(&session, "wait").await;
            let close = client.send_request("session/close", json!({"sessionId": session})).await;
            assert_eq!(until_answered(&mut client, running).await.1["result"]["stopReason"], "cancelled");
            assert_eq!(until_answered(&mut client, close).await.1["error"]["code"], -32603);
        } else {
            let close = client.request("session/close", json!({"sessionId": session})).await;
            assert_eq!(close["error"]["code"], -32603, "{close}");
        }
        let next = client.prompt(&session, "wait").await;
        client.cancel(&session).await;
        let (_, answer) = until_answered(&mut client, next).await;
        assert_eq!(answer["result"]["stopReason"], "cancelled", "{answer}");
    }
}

async fn a_session_that_is_loaded_beside_a_close_survives() {
    let mut client = client_of(Doer::default(), Limits::default()).await;
    for round in 0..200 {
        let session = client.new_session().await;
        let load = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
        let close = json!({"sessionId": session});
        let close = client.send_request("session/close", close).await;
        let mut closed = Vec::new();
        if round % 2 == 1 {
            // The close has begun, or is over, when the load comes.
            let probe = client.send_request("_probe", json!({})).await;
            (closed, _) = until_answered(&mut client, probe).await;
            assert!(closed.iter().all(|answer| answer["id"] == close), "{closed:?}");
        }
        let load = client.send_request("session/load", load).await;
        let mut loaded = false;
        for _ in closed.len()..2 {
            let answer = client.next_message().await;
            assert!(answer["id"] == close || answer["id"] == load, "{answer}");
            loaded |= answer["id"] == load && answer.get("result").is_some();
        }
        assert!(loaded);
        let prompt = client.prompt(&session, "say").await;
        let (before, answer) = until_answered(&mut client, prompt).await;
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        assert_eq!(before.iter().map(text).collect::<Vec<_>>(), ["said"]);
    }
}

async fn a_permission_question_tells_what_it_is_about() {
    let mut client = client_of(Doer::default(), Limits::default()).await;
    let session = client.new_session().await;
    let prompt = client.prompt(&session, "ask").await;
    let call = client.expect("session/update").await["params"]["update"]["toolCallId"].clone();
    client.expect("session/update").await;
    let question = client.expect("session/request_permission").await;
    let about = &question["params"]["toolCall"];
    assert_eq!((&about["toolCallId"], &about["title"]), (&call, &json!("Delete everything")), "{about}");
    assert_eq!(about["kind"], "delete", "{about}");
    assert_eq!(about["content"][0]["content"]["text"], "all of it", "{about}");
    client.respond(&question, json!({"outcome": {"outcome": "selected", "optionId": "no"}})).await;
    assert_eq!(until_answered(&mut client, prompt).await.1["result"]["stopReason"], "end_turn");
}

async fn a_message_is_not_pushed_after_a_cancel() {
    let (says, mut said) = mpsc::unbounded_channel();
    let mut client = client_of(Doer { says: Some(says), turns: None }, Limits::default()).await;
    let session = client.new_session().await;
    for _ in 0..50 {
        let prompt = client.prompt(&session, "push late").await;
        assert_eq!(text(&client.expect("session/update").await), "in time");
        client.cancel(&session).await;
        let (before, answer) = until_answered(&mut client, prompt).await;
        assert!(before.is_empty() && answer["result"]["stopReason"] == "cancelled", "{before:?} {answer}");
        assert_eq!(said.recv().await.as_deref(), Some("cancelled"));
    }
}

async fn a_dropped_push_was_not_made() {
    let (says, mut said) = mpsc::unbounded_channel();
    let mut limits = Limits::default();
    limits.output_bytes = 32 * 1024;
    let mut client = client_of(Doer { says: Some(says), turns: None }, limits).await;
    let session = client.new_session().await;
    for _ in 0..20 {
        let prompt = client.prompt(&session, "push and drop").await;
        // Nothing is read before the agent has run out of room.
        let whole = said.recv().await.expect("the whole text");
        let (before, answer) = until_answered(&mut client, prompt).await;
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        assert_eq!(before.iter().map(text).collect::<String>(), whole);
    }
}
