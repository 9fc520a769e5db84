//! The client's duties to its user: withdrawn permission requests, ends of turns, and backpressure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use duologue_agent::{Agent, Prompt, Turn};
use duologue_client::rpc::Error as RpcError;
use duologue_client::schema::{
    ClientCapabilities, CreateElicitationRequest, CreateElicitationResponse, ElicitationCapabilities,
    ElicitationFormCapabilities, RequestPermissionRequest, RequestPermissionResponse,
};
use duologue_client::{
    Client, Connection, Error, Host, HostContext, HostResult, Limits, Session, StopReason,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use duologue_test_support::{ScriptedPeer, Wire, client_of, in_time_tests, message_chunk, texts};

in_time_tests!(
    a_cancel_drops_the_questions_that_are_open,
    a_cancel_from_elsewhere_ends_the_turn_it_meets,
    a_session_loaded_beside_a_close_is_kept,
    a_session_resumed_beside_a_close_is_kept,
    a_close_that_fails_leaves_the_session,
    sessions_nobody_listens_to_keep_little_together,
);

const KIB: usize = 1024;

async fn with_session<H: Host>(client: Client<H>) -> (Connection, ScriptedPeer, Session) {
    let sessions = json!({"close": {}, "resume": {}});
    let capabilities = json!({"loadSession": true, "sessionCapabilities": sessions});
    let (agent, mut script) = client_of(Wire::Memory, client, capabilities).await;
    let modes = json!({"currentModeId": "a", "availableModes": [{"id": "a", "name": "A"}]});
    let (session, ()) = tokio::join!(agent.new_session("/tmp"), async {
        let request = script.expect("session/new").await;
        script.respond(&request, json!({"sessionId": "s", "modes": modes})).await;
    });
    (agent, script, session.expect("a session"))
}

async fn turn(session: &Session, script: &mut ScriptedPeer) -> (duologue_client::Turn, Value) {
    let (turn, prompt) = tokio::join!(session.prompt("go"), script.expect("session/prompt"));
    (turn.expect("a turn"), prompt)
}

/// Shows questions that nobody answers, and tells when they are shown and when they are gone.
struct Screen(mpsc::UnboundedSender<&'static str>);

struct Shown<'a>(&'a Screen);

impl Screen {
    async fn show<T>(&self) -> T {
        let _shown = Shown(self);
        let _ = self.0.send("shown");
        std::future::pending().await
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        let _ = self.0.0.send("gone");
    }
}

impl Host for Screen {
    fn capabilities(&self) -> ClientCapabilities {
        let form = ElicitationCapabilities::default().form(ElicitationFormCapabilities::default());
        ClientCapabilities::default().elicitation(form)
    }

    async fn request_permission(
        &self,
        _: &HostContext,
        _: RequestPermissionRequest,
    ) -> HostResult<RequestPermissionResponse> {
        self.show().await
    }

    async fn create_elicitation(
        &self,
        _: &HostContext,
        _: CreateElicitationRequest,
    ) -> HostResult<CreateElicitationResponse> {
        self.show().await
    }
}

async fn a_cancel_drops_the_questions_that_are_open() {
    let (sender, mut screen) = mpsc::unbounded_channel();
    let mut limits = Limits::default();
    // A call that waits for this grace does not end in time.
    limits.cancel_grace = Duration::from_secs(600);
    let (_agent, mut script, session) = with_session(Client::new(Screen(sender)).limits(limits)).await;
    for _ in 0..50 {
        let (running, prompt) = turn(&session, &mut script).await;
        let option = json!({"optionId": "yes", "name": "Yes", "kind": "allow_once"});
        let params = json!({"sessionId": "s", "toolCall": {"toolCallId": "t"}, "options": [option]});
        let permission = script.send_request("session/request_permission", params).await;
        let params = json!({
            "sessionId": "s", "mode": "form", "message": "?",
            "requestedSchema": {"type": "object", "properties": {}},
        });
        let form = script.send_request("elicitation/create", params).await;
        for _ in 0..2 {
            assert_eq!(screen.recv().await, Some("shown"));
        }
        running.cancel();
        for _ in 0..2 {
            assert_eq!(screen.recv().await, Some("gone"));
        }
        script.expect("session/cancel").await;
        for _ in 0..2 {
            let answer = script.next_message().await;
            if answer["id"] == permission {
                assert_eq!(answer["result"]["outcome"]["outcome"], "cancelled", "{answer}");
            } else {
                assert_eq!(answer["id"], form);
                assert_eq!(answer["result"]["action"], "cancel", "{answer}");
            }
        }
        script.end_turn(&prompt, "cancelled").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_does_not_switch_backpressure_off() {
    let mut limits = Limits::default();
    (limits.queue_bytes, limits.queue_bytes_hard) = (64 * KIB, 128 * KIB);
    let client = Client::new(()).limits(limits).request_timeout(Duration::from_millis(50));
    let (agent, mut script, session) = with_session(client).await;
    let (mut running, prompt) = turn(&session, &mut script).await;
    let (switched, _) = tokio::join!(session.set_mode("a"), script.expect("session/set_mode"));
    assert!(matches!(switched, Err(Error::Connection(RpcError::Timeout { .. }))), "{switched:?}");
    script.expect("$/cancel_request").await;
    let writer = tokio::spawn(async move {
        for number in 0..1000 {
            script.write(message_chunk("s", &format!("{number} {}", "x".repeat(900)))).await;
        }
        script.end_turn(&prompt, "end_turn").await;
        script
    });
    while !agent.peer().is_paused() {
        assert!(!writer.is_finished(), "everything was read");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for (number, text) in texts(&mut running).await.iter().enumerate() {
        assert!(text.starts_with(&format!("{number} ")));
    }
    assert_eq!(running.outcome().await.expect("an answer").stop_reason, StopReason::EndTurn);
    drop(writer.await.expect("all written"));
}

/// Works until it is cancelled.
struct Worker;

impl Agent for Worker {
    async fn prompt(&self, turn: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        turn.cancelled().await;
        Ok(StopReason::Cancelled)
    }
}

async fn a_cancel_from_elsewhere_ends_the_turn_it_meets() {
    let (ours, theirs) = Wire::Memory.pair();
    tokio::spawn(duologue_agent::serve(Worker, theirs));
    let agent = Client::new(()).connect(ours).await.expect("a connection");
    let session = agent.new_session("/tmp").await.expect("a session");
    let over = Arc::new(AtomicBool::new(false));
    let impatient = std::thread::spawn({
        let (session, over) = (session.clone(), over.clone());
        move || {
            while !over.load(SeqCst) {
                session.cancel();
                std::thread::yield_now();
            }
        }
    });
    for _ in 0..500 {
        let mut running = session.prompt("go").await.expect("a turn");
        let outcome = running.outcome().await.expect("an answer");
        assert_eq!(outcome.stop_reason, StopReason::Cancelled);
    }
    over.store(true, SeqCst);
    impatient.join().expect("no panic");
}

/// The session still gets what the agent says.
async fn hears(session: &Session, script: &mut ScriptedPeer) {
    script.send_chunk("s", "still here").await;
    let mut updates = session.updates();
    script.probe().await;
    let update = updates.next().await.expect("an update").expect("no error");
    assert_eq!(update.to_string(), "still here");
    assert_eq!(session.connection().dropped_updates(), 0);
}

async fn a_session_loaded_beside_a_close_is_kept() {
    for close_first in [true, false] {
        let (agent, mut script, session) = with_session(Client::new(())).await;
        let closing = tokio::spawn(async move { session.close().await });
        let close = script.expect("session/close").await;
        let replay = agent.load_session("s", "/tmp").expect("a replay");
        let load = script.expect("session/load").await;
        let answers = if close_first { [&close, &load] } else { [&load, &close] };
        for request in answers {
            script.respond(request, json!({})).await;
        }
        let loaded = replay.outcome().await.expect("a session");
        closing.await.expect("no panic").expect("closed");
        hears(&loaded, &mut script).await;
    }
}

async fn a_session_resumed_beside_a_close_is_kept() {
    let (agent, mut script, session) = with_session(Client::new(())).await;
    let closing = tokio::spawn(async move { session.close().await });
    let close = script.expect("session/close").await;
    let (resumed, ()) = tokio::join!(agent.resume_session("s", "/tmp"), async {
        let resume = script.expect("session/resume").await;
        script.respond(&close, json!({})).await;
        script.respond(&resume, json!({})).await;
    });
    closing.await.expect("no panic").expect("closed");
    hears(&resumed.expect("a session"), &mut script).await;
}

async fn a_close_that_fails_leaves_the_session() {
    let (_agent, mut script, session) = with_session(Client::new(())).await;
    for _ in 0..20 {
        let (mut running, prompt) = turn(&session, &mut script).await;
        let (closed, ()) = tokio::join!(session.close(), async {
            script.expect("session/cancel").await;
            let close = script.expect("session/close").await;
            script.end_turn(&prompt, "cancelled").await;
            let error = json!({"code": -32603, "message": "no"});
            script.send(json!({"jsonrpc": "2.0", "id": close["id"], "error": error})).await;
        });
        assert!(matches!(closed, Err(Error::Response(_))), "{closed:?}");
        assert_eq!(running.outcome().await.expect("an answer").stop_reason, StopReason::Cancelled);
        hears(&session, &mut script).await;
        // The next turn can be cancelled like any other.
        let (running, prompt) = turn(&session, &mut script).await;
        running.cancel();
        script.expect("session/cancel").await;
        script.end_turn(&prompt, "cancelled").await;
    }
}

/// Each of them may keep a megabyte, but not all of them at once; and what is gone makes room.
async fn sessions_nobody_listens_to_keep_little_together() {
    const TEXT: usize = 1000 * KIB;
    let (agent, mut script, first) = with_session(Client::new(())).await;
    drop(first);
    let mut sessions = Vec::new();
    for number in 0..40 {
        let id = format!("s{number}");
        let (session, ()) = tokio::join!(agent.new_session("/tmp"), script.accept_session(&id));
        sessions.push(session.expect("a session"));
        script.send_chunk(&id, &"x".repeat(TEXT)).await;
    }
    script.probe().await;
    assert_eq!(agent.dropped_updates(), 24, "16 of 40 fit into 16 MiB");
    sessions.drain(..8);
    for number in 30..40 {
        script.send_chunk(&format!("s{number}"), &"x".repeat(TEXT)).await;
    }
    script.probe().await;
    assert_eq!(agent.dropped_updates(), 24 + 2);
    let mut kept = 0;
    for session in &sessions {
        let mut updates = session.updates();
        while let Ok(Some(update)) = tokio::time::timeout(Duration::from_millis(1), updates.next()).await {
            kept += update.expect("an update").to_string().len();
        }
    }
    assert_eq!(kept, 16 * TEXT);
}
