//! The handles of an agent: terminals, tool calls, buffered messages and the state of a session.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use duologue_agent::schema::{Annotations, Role, TextContent};
use duologue_agent::{
    Agent, ClearPolicy, ContentBlock, Error, Limits, Prompt, Server, Session, StopReason, Turn,
};
use futures::FutureExt;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use duologue_test_support::{ScriptedPeer, Wire, in_time_tests};

in_time_tests!(
    a_terminal_whose_caller_has_gone_is_released,
    a_terminal_that_was_not_taken_is_released,
    a_tool_call_can_be_failed_after_a_cancel_with_a_full_output,
    buffered_texts_with_other_annotations_stay_apart,
    states_may_use_the_states_of_their_session,
);

/// An agent that does what the prompt says.
struct Worker {
    reports: mpsc::UnboundedSender<String>,
}

impl Agent for Worker {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
        match prompt.text().as_str() {
            "race" => tokio::select! {
                created = turn.create_terminal("true", ["-x"]) => drop(created?),
                () = turn.cancelled() => {}
            },
            "poll once" => {
                let mut created = turn.create_terminal("true", ["-x"]).into_future();
                assert!(created.as_mut().now_or_never().is_none());
                turn.cancelled().await;
            }
            "fail" => self.fail_with_a_full_output(turn).await?,
            "annotated" => {
                let mut message = turn.message();
                let text = |text: &str, audience: &[Role]| {
                    let annotations = Annotations::default().audience(audience.to_vec());
                    ContentBlock::Text(TextContent::new(text).annotations(annotations))
                };
                message.push(text("for the ", &[Role::User])).await?;
                message.push(text("user", &[Role::User])).await?;
                message.push(text("for the model", &[Role::Assistant])).await?;
                message.push("for all").await?;
            }
            "states" => {
                let session = turn.session().clone();
                std::thread::spawn({
                    let reports = self.reports.clone();
                    move || {
                        use_states(&session);
                        let _ = reports.send("used".into());
                    }
                });
            }
            _ => {}
        }
        Ok(StopReason::EndTurn)
    }
}

impl Worker {
    async fn fail_with_a_full_output(&self, turn: &Turn) -> duologue_agent::Result<()> {
        let call = turn.tool_call("Run").start().await?;
        let mut message = turn.message();
        while let Ok(pushed) = timeout(Duration::from_millis(200), message.push("x".repeat(8192))).await {
            pushed?;
        }
        let _ = self.reports.send("full".into());
        turn.cancelled().await;
        // Streams still end.
        assert!(matches!(message.push("more").await, Err(Error::Cancelled)));
        assert!(matches!(call.content("more").await, Err(Error::Cancelled)));
        let failed = call.fail("stopped").await;
        let _ = self.reports.send(format!("{failed:?}"));
        failed
    }
}

thread_local! {
    static SESSION: RefCell<Option<Session>> = const { RefCell::new(None) };
}

#[derive(Default)]
struct Inner;

/// A state that uses its session when it is created.
struct Outer;

impl Default for Outer {
    fn default() -> Self {
        SESSION.with_borrow(|session| drop(session.as_ref().map(Session::state::<Inner>)));
        Outer
    }
}

/// A state that uses its session when it is dropped.
struct Last(Session);

impl Drop for Last {
    fn drop(&mut self) {
        let _ = self.0.state::<Inner>();
    }
}

fn use_states(session: &Session) {
    SESSION.set(Some(session.clone()));
    let _ = session.state::<Outer>();
    session.set_state(Last(session.clone()));
    session.set_state(Last(session.clone()));
}

async fn client_of(
    limits: Limits,
    policy: ClearPolicy,
) -> (ScriptedPeer, mpsc::UnboundedReceiver<String>, String) {
    let (reports, reported) = mpsc::unbounded_channel();
    let (transport, mut client) = Wire::Memory.scripted();
    let server = Server::new(Worker { reports }).limits(limits).clear_policy(policy);
    tokio::spawn(server.serve(transport));
    client.initialize(json!({"terminal": true})).await;
    let session = client.new_session().await;
    (client, reported, session)
}

async fn expect_answer(client: &mut ScriptedPeer, id: u64) {
    let answer = client.next_message().await;
    assert_eq!((answer["id"].as_u64(), &answer["method"]), (Some(id), &Value::Null), "{answer}");
}

async fn a_terminal_whose_caller_has_gone_is_released() {
    let (mut client, _reported, session) = client_of(Limits::default(), ClearPolicy::Hold).await;
    for _ in 0..20 {
        let prompt = client.prompt(&session, "race").await;
        let create = client.expect("terminal/create").await;
        client.cancel(&session).await;
        let withdrawn = client.expect("$/cancel_request").await;
        assert_eq!(withdrawn["params"]["requestId"], create["id"]);
        expect_answer(&mut client, prompt).await;
        // The client had started the program already.
        client.respond(&create, json!({"terminalId": "t"})).await;
        let release = client.expect("terminal/release").await;
        assert_eq!(release["params"], json!({"sessionId": session, "terminalId": "t"}));
        client.respond(&release, json!({})).await;
        client.probe().await;
    }
}

/// The response has arrived, but its caller was dropped before it took the terminal.
async fn a_terminal_that_was_not_taken_is_released() {
    let (mut client, _reported, session) = client_of(Limits::default(), ClearPolicy::Hold).await;
    for _ in 0..20 {
        let prompt = client.prompt(&session, "poll once").await;
        let create = client.expect("terminal/create").await;
        client.respond(&create, json!({"terminalId": "t"})).await;
        client.cancel(&session).await;
        let release = client.expect("terminal/release").await;
        assert_eq!(release["params"], json!({"sessionId": session, "terminalId": "t"}));
        client.respond(&release, json!({})).await;
        expect_answer(&mut client, prompt).await;
        client.probe().await;
    }
}

async fn a_tool_call_can_be_failed_after_a_cancel_with_a_full_output() {
    let mut limits = Limits::default();
    limits.output_bytes = 32 * 1024;
    let (mut client, mut reported, session) = client_of(limits, ClearPolicy::Separator).await;
    let prompt = client.prompt(&session, "fail").await;
    assert_eq!(reported.recv().await.as_deref(), Some("full"));
    client.cancel(&session).await;
    // Nothing is read before the agent has failed the call.
    assert_eq!(reported.recv().await.as_deref(), Some("Ok(())"));
    let mut updates = Vec::new();
    loop {
        let message = client.next_message().await;
        if message["id"] == prompt {
            assert_eq!(message["result"]["stopReason"], "cancelled", "{message}");
            break;
        }
        updates.push(message["params"]["update"].clone());
    }
    let last: Vec<_> = updates.iter().rev().take(2).rev().collect();
    assert_eq!(last[0]["content"][0]["content"]["text"], "stopped", "{last:?}");
    assert_eq!(last[1]["status"], "failed", "{last:?}");
}

async fn buffered_texts_with_other_annotations_stay_apart() {
    let (mut client, _reported, session) = client_of(Limits::default(), ClearPolicy::Hold).await;
    client.prompt(&session, "annotated").await;
    for (text, audience) in [("for the user", json!(["user"])), ("for the model", json!(["assistant"]))] {
        let update = client.expect("session/update").await;
        let content = &update["params"]["update"]["content"];
        assert_eq!((&content["text"], &content["annotations"]["audience"]), (&json!(text), &audience));
    }
    let update = client.expect("session/update").await;
    assert_eq!(update["params"]["update"]["content"], json!({"type": "text", "text": "for all"}));
}

/// They run on a thread of their own, because a deadlock would block the test forever.
async fn states_may_use_the_states_of_their_session() {
    let (mut client, mut reported, session) = client_of(Limits::default(), ClearPolicy::Hold).await;
    client.prompt(&session, "states").await;
    let used = timeout(Duration::from_secs(10), reported.recv()).await;
    assert_eq!(used.expect("no deadlock").as_deref(), Some("used"));
}

/// State that is shared in an `Arc` is found by its own type, and the newest state counts.
#[tokio::test(start_paused = true)]
async fn shared_state_is_found_by_its_type() {
    struct Shared;

    impl Agent for Shared {
        async fn prompt(&self, turn: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
            #[derive(Default)]
            struct Number(u32);
            assert!(turn.get_state::<Number>().is_none());
            let shared = Arc::new(Number(7));
            turn.set_state(shared.clone());
            assert!(Arc::ptr_eq(&turn.state::<Number>(), &shared));
            assert_eq!(turn.state::<Arc<Number>>().0, 7);
            turn.set_state(Number(8));
            assert_eq!(turn.state::<Number>().0, 8);
            turn.set_state(shared);
            assert_eq!(turn.state::<Number>().0, 7);
            // A state that was replaced is dropped.
            let replaced = Arc::new(Number(9));
            turn.set_state(replaced.clone());
            turn.set_state(Arc::new(Number(10)));
            assert_eq!((Arc::strong_count(&replaced), turn.state::<Number>().0), (1, 10));
            Ok(StopReason::EndTurn)
        }
    }

    let (transport, mut client) = Wire::Memory.scripted();
    tokio::spawn(duologue_agent::serve(Shared, transport));
    client.initialize(json!({})).await;
    let session = client.new_session().await;
    let prompt = client.prompt(&session, "").await;
    let answer = client.next_message().await;
    assert_eq!((&answer["id"], &answer["result"]["stopReason"]), (&json!(prompt), &json!("end_turn")));
}
