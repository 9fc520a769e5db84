//! Requests of the agent to the host: the capability that each needs, their cancellation, and the bytes that they hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use duologue_client::schema::{
    ClientCapabilities, CreateElicitationRequest, CreateElicitationResponse, CreateTerminalRequest,
    ElicitationCapabilities, ElicitationFormCapabilities, ElicitationUrlCapabilities, FileSystemCapabilities,
    KillTerminalRequest, ReadTextFileRequest, ReadTextFileResponse, ReleaseTerminalRequest,
    RequestPermissionRequest, TerminalOutputRequest, WaitForTerminalExitRequest,
};
use duologue_client::{Client, Error, HostResult, Limits};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use duologue_test_support::{ScriptedPeer, Wire, client_of, in_time};

/// Counts the calls of a host, and those that were dropped before their end. Each waits for a permit.
#[derive(Clone)]
struct Calls {
    begun: Arc<AtomicUsize>,
    running: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

impl Calls {
    fn new() -> Self {
        Calls { begun: Arc::default(), running: Arc::default(), gate: Arc::new(Semaphore::new(0)) }
    }

    async fn wait(&self) {
        struct Running(Arc<AtomicUsize>);
        impl Drop for Running {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Relaxed);
            }
        }
        self.begun.fetch_add(1, Relaxed);
        self.running.fetch_add(1, Relaxed);
        let _running = Running(self.running.clone());
        self.gate.acquire().await.expect("open").forget();
    }

    /// Returns the calls that have begun and those that are running.
    async fn count(&self) -> (usize, usize) {
        tokio::time::sleep(Duration::from_millis(1)).await;
        (self.begun.load(Relaxed), self.running.load(Relaxed))
    }
}

async fn with_sessions(client: Client<()>, ids: &[&str]) -> (Vec<duologue_client::Session>, ScriptedPeer) {
    let (connection, mut script) = client_of(Wire::Memory, client, json!({})).await;
    let mut sessions = Vec::new();
    for id in ids {
        let (session, ()) = tokio::join!(connection.new_session("/tmp"), script.accept_session(id));
        sessions.push(session.expect("a session"));
    }
    (sessions, script)
}

fn read(session: &str) -> Value {
    json!({"sessionId": session, "path": "/a"})
}

fn question(session: &str) -> Value {
    let yes = json!({"optionId": "yes", "name": "Yes", "kind": "allow_once"});
    json!({"sessionId": session, "toolCall": {"toolCallId": "c"}, "options": [yes]})
}

#[tokio::test(start_paused = true)]
async fn each_capability_allows_its_own_requests() {
    in_time(async {
        let files = FileSystemCapabilities::new;
        let questions = ElicitationCapabilities::new;
        let form = questions().form(ElicitationFormCapabilities::new());
        let url = questions().url(ElicitationUrlCapabilities::new());
        let capabilities = ClientCapabilities::new;
        for (offered, own) in [
            (capabilities().fs(files().read_text_file(true)), "fs/read_text_file"),
            (capabilities().fs(files().write_text_file(true)), "fs/write_text_file"),
            (capabilities().terminal(true), "terminal/"),
            (capabilities().elicitation(form), "form"),
            (capabilities().elicitation(url), "url"),
        ] {
            let client = Client::new(()).advertise(move |_| offered);
            let (_sessions, mut script) = with_sessions(client, &["s"]).await;
            for method in ["fs/read_text_file", "fs/write_text_file", "terminal/create", "terminal/output"] {
                let params =
                    json!({"sessionId": "x", "path": "/a", "content": "", "command": "c", "terminalId": "t"});
                let answer = script.request(method, params).await;
                // The session is checked after the capability.
                let code = if method.starts_with(own) { -32002 } else { -32601 };
                assert_eq!(answer["error"]["code"], code, "{own}: {method}");
            }
            for mode in ["form", "url", "hologram"] {
                let params = json!({
                    "sessionId": "s", "mode": mode, "message": "?", "requestedSchema": {"type": "object", "properties": {}},
                    "url": "https://example.com", "elicitationId": "e",
                });
                let answer = script.request("elicitation/create", params).await;
                // The host `()` has no answer to those that are accepted.
                let is_refused = answer["error"]["code"] == -32602;
                assert_eq!(is_refused, mode != own, "{own}: {mode}: {answer}");
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn terminals_are_advertised_if_all_their_methods_are_handled() {
    in_time(async {
        async fn none<T>() -> HostResult<T> {
            Err(duologue_client::schema::Error::internal("no"))
        }
        let four = || {
            Client::new(())
                .on(|_, _: CreateTerminalRequest| none())
                .on(|_, _: TerminalOutputRequest| none())
                .on(|_, _: WaitForTerminalExitRequest| none())
                .on(|_, _: KillTerminalRequest| none())
        };
        let five = four().on(|_, _: ReleaseTerminalRequest| none());
        for (client, is_advertised) in [(four(), false), (five, true)] {
            let (transport, mut script) = Wire::Memory.scripted();
            let connecting = tokio::spawn(client.connect(transport));
            let request = script.expect("initialize").await;
            let capabilities = &request["params"]["clientCapabilities"];
            assert_eq!(capabilities["terminal"].as_bool().unwrap_or(false), is_advertised, "{request}");
            connecting.abort();
        }
    })
    .await;
}

/// Large requests of all sessions wait for each other. One that is withdrawn while it waits never reaches the host.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_withdrawn_while_it_waits_is_not_begun() {
    in_time(async {
        let calls = Calls::new();
        let mut limits = Limits::default();
        limits.frame_bytes = 64 * 1024;
        let client = Client::new(()).limits(limits).host_bytes(64 * 1024).on_with(
            calls.clone(),
            async |calls: Calls, _, _: ReadTextFileRequest| {
                calls.wait().await;
                Ok(ReadTextFileResponse::new("text"))
            },
        );
        let (_sessions, mut script) = with_sessions(client, &["a", "b"]).await;
        let first = script.send_request("fs/read_text_file", read("a")).await;
        let second = script.send_request("fs/read_text_file", read("b")).await;
        assert_eq!(calls.count().await, (1, 1), "one response may be as long as a line");
        let begun = Instant::now();
        script.notify("$/cancel_request", json!({"requestId": second})).await;
        let answer = script.next_message().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(second), &json!(-32800)));
        assert_eq!((calls.count().await, begun.elapsed().as_secs()), ((1, 1), 0));
        // The next one has its turn when the first has ended.
        let third = script.send_request("fs/read_text_file", read("b")).await;
        assert_eq!(calls.count().await, (1, 1));
        calls.gate.add_permits(1);
        assert_eq!(script.next_message().await["id"], first);
        assert_eq!(calls.count().await, (2, 1));
        calls.gate.add_permits(1);
        let answer = script.next_message().await;
        assert_eq!((&answer["id"], &answer["result"]["content"]), (&json!(third), &json!("text")));
    })
    .await;
}

/// A question that the agent withdraws has its answer at once, and the host no longer works on it.
#[tokio::test(start_paused = true)]
async fn a_withdrawn_question_is_answered_at_once() {
    in_time(async {
        let calls = Calls::new();
        let client = Client::new(())
            .on_with(calls.clone(), async |calls: Calls, _, _: RequestPermissionRequest| {
                calls.wait().await;
                panic!("as intended")
            })
            .on_with(calls.clone(), async |calls: Calls, _, _: CreateElicitationRequest| {
                calls.wait().await;
                Ok(CreateElicitationResponse::cancel())
            });
        let (sessions, mut script) = with_sessions(client, &["s"]).await;
        let form = json!({
            "sessionId": "s", "mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}},
        });
        for (begun, method, params, cancelled) in [
            (1, "session/request_permission", question("s"), json!({"outcome": {"outcome": "cancelled"}})),
            (2, "elicitation/create", form, json!({"action": "cancel"})),
        ] {
            let id = script.send_request(method, params).await;
            assert_eq!(calls.count().await, (begun, 1));
            let time = Instant::now();
            script.notify("$/cancel_request", json!({"requestId": id})).await;
            let answer = script.next_message().await;
            assert_eq!((&answer["id"], &answer["result"]), (&json!(id), &cancelled));
            assert_eq!(time.elapsed(), Duration::ZERO, "a question has no grace period");
            assert_eq!(calls.count().await, (begun, 0));
        }
        // A cancelled turn has no more questions.
        let mut turn = sessions[0].prompt("go").await.expect("a turn");
        let prompt = script.expect("session/prompt").await;
        turn.cancel();
        script.expect("session/cancel").await;
        let answer = script.request("session/request_permission", question("s")).await;
        assert_eq!(answer["result"]["outcome"]["outcome"], "cancelled");
        assert_eq!(calls.count().await, (2, 0), "the host was called");
        script.end_turn(&prompt, "cancelled").await;
        turn.outcome().await.expect("a response");
        // A panic is an error, not a choice.
        let id = script.send_request("session/request_permission", question("s")).await;
        assert_eq!(calls.count().await, (3, 1));
        calls.gate.add_permits(1);
        let answer = script.next_message().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(id), &json!(-32603)), "{answer}");
    })
    .await;
}

/// A request for a session that could not be sent leaves nothing behind.
#[tokio::test(start_paused = true)]
async fn a_session_that_cannot_be_requested_is_not_opening() {
    in_time(async {
        let mut limits = Limits::default();
        limits.frame_bytes = 2000;
        let client = Client::new(())
            .limits(limits)
            .on(async |_, _: ReadTextFileRequest| Ok(ReadTextFileResponse::new("text")));
        let (connection, mut script) = client_of(Wire::Memory, client, json!({"loadSession": true})).await;
        let long = format!("/{}", "x".repeat(2000));
        let made = connection.new_session(&long).await;
        assert!(matches!(made, Err(Error::Connection(_))), "{made:?}");
        // Nothing is being created, so unknown sessions are unknown.
        let answer = script.request("fs/read_text_file", read("nobody")).await;
        assert_eq!(answer["error"]["code"], -32002, "{answer}");
        for _ in 0..2 {
            let loaded = connection.load_session("s", &long);
            assert!(matches!(loaded, Err(Error::Connection(_))), "{loaded:?}");
        }
        let replay = connection.load_session("s", "/tmp").expect("it is not busy");
        let request = script.expect("session/load").await;
        script.respond(&request, json!({})).await;
        replay.outcome().await.expect("a session");
    })
    .await;
}
