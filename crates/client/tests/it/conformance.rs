//! The client's duties to an agent and to its user: cancel once, respond to open requests, lose nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use duologue_client::rpc::Error as RpcError;
use duologue_client::schema::{
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse, SelectedPermissionOutcome,
    StopReason,
};
use duologue_client::{Client, Connection, Error, Host, HostContext, HostResult, Session, Turn};
use serde_json::{Value, json};
use tokio::sync::watch;

use duologue_test_support::{ScriptedPeer, Wire, client_of, message_chunk, over_every_wire, texts};

over_every_wire!(
    dropping_a_turn_cancels_it_once,
    a_turn_that_has_ended_is_not_cancelled,
    a_prompt_waits_for_the_end_of_a_dropped_turn,
    a_detached_turn_runs_on,
    an_update_outside_of_a_turn_is_in_the_updates,
    updates_of_a_dropped_turn_are_discarded,
    a_second_prompt_is_refused_while_one_runs,
    open_permissions_are_answered_before_anything_else,
    after_a_cancel_no_answer_but_cancelled,
    auth_required_names_the_ways_to_log_in,
    updates_before_the_session_is_known_are_not_lost,
    dropping_a_request_withdraws_it_once,
    dropping_a_request_for_a_session_withdraws_it,
    initialize_is_never_withdrawn,
);

async fn with_session<H: Host>(wire: Wire, client: Client<H>) -> (Connection, ScriptedPeer, Session) {
    let modes = json!({"currentModeId": "a", "availableModes": [{"id": "a", "name": "A"}]});
    let (agent, mut script) = client_of(wire, client, json!({})).await;
    let (session, ()) = tokio::join!(agent.new_session("/tmp"), async {
        let request = script.expect("session/new").await;
        script.respond(&request, json!({"sessionId": "s", "modes": modes})).await;
    });
    (agent, script, session.expect("a session"))
}

async fn turn(session: &Session, script: &mut ScriptedPeer) -> (Turn, Value) {
    let (turn, prompt) = tokio::join!(session.prompt("go"), script.expect("session/prompt"));
    (turn.expect("a turn"), prompt)
}

async fn dropping_a_turn_cancels_it_once(wire: Wire) {
    let (_agent, mut script, session) = with_session(wire, Client::new(())).await;
    for round in 0..200 {
        let (running, prompt) = turn(&session, &mut script).await;
        for _ in 0..round % 3 {
            running.cancel();
            session.cancel();
        }
        drop(running);
        session.cancel();
        assert_eq!(script.expect("session/cancel").await["params"], json!({"sessionId": "s"}));
        script.send_chunk("s", "late words").await;
        // The next line is the answer to this, so there was no second cancel.
        script.probe().await;
        script.end_turn(&prompt, "cancelled").await;
    }
}

async fn a_turn_that_has_ended_is_not_cancelled(wire: Wire) {
    let (_agent, mut script, session) = with_session(wire, Client::new(())).await;
    for _ in 0..100 {
        let (mut running, prompt) = turn(&session, &mut script).await;
        script.end_turn(&prompt, "end_turn").await;
        assert_eq!(running.outcome().await.expect("an answer").stop_reason, StopReason::EndTurn);
        running.cancel();
        session.cancel();
        drop(running);
        script.probe().await;
    }
}

async fn a_prompt_waits_for_the_end_of_a_dropped_turn(wire: Wire) {
    let (_agent, mut script, session) = with_session(wire, Client::new(())).await;
    let (mut running, mut prompt) = turn(&session, &mut script).await;
    for number in 0..200 {
        drop(running);
        let next = tokio::spawn({
            let session = session.clone();
            async move { session.prompt("next").await }
        });
        script.expect("session/cancel").await;
        // Words of the old turn must not show up in the new one.
        script.send_chunk("s", "old words").await;
        script.probe().await;
        script.end_turn(&prompt, "cancelled").await;
        prompt = script.expect("session/prompt").await;
        running = next.await.expect("no panic").expect("a turn");
        script.send_chunk("s", &number.to_string()).await;
        assert_eq!(
            running.next().await.expect("an update").expect("no error").to_string(),
            number.to_string()
        );
    }
    drop(running);
}

async fn a_detached_turn_runs_on(wire: Wire) {
    let (_agent, mut script, session) = with_session(wire, Client::new(())).await;
    let mut updates = session.updates();
    for number in 0..100 {
        let (running, prompt) = turn(&session, &mut script).await;
        running.detach();
        script.send_chunk("s", &number.to_string()).await;
        assert_eq!(updates.next().await.expect("one").expect("no error").to_string(), number.to_string());
        assert!(matches!(session.prompt("too early").await, Err(Error::Busy)));
        script.probe().await;
        script.end_turn(&prompt, "end_turn").await;
        script.probe().await;
    }
}

/// The lines arrive in one piece, with the listener before or after them.
async fn an_update_outside_of_a_turn_is_in_the_updates(wire: Wire) {
    let (_agent, mut script, session) = with_session(wire, Client::new(())).await;
    for round in 0..100 {
        let mut updates = (round % 2 == 0).then(|| session.updates());
        let (mut running, prompt) = turn(&session, &mut script).await;
        let end = json!({"jsonrpc": "2.0", "id": prompt["id"], "result": {"stopReason": "end_turn"}});
        let (early, late) = (message_chunk("s", "early"), message_chunk("s", "late"));
        script.write(format!("{early}\n{end}\n{late}")).await;
        assert_eq!(texts(&mut running).await, ["early"]);
        running.outcome().await.expect("an answer");
        let updates = updates.get_or_insert_with(|| session.updates());
        assert_eq!(updates.next().await.expect("one").expect("no error").to_string(), "late");
    }
}

/// Until the agent has ended the turn, nothing of it reaches another turn or the updates between turns.
async fn updates_of_a_dropped_turn_are_discarded(wire: Wire) {
    let (_agent, mut script, session) = with_session(wire, Client::new(())).await;
    let mut updates = session.updates();
    for _ in 0..50 {
        let (running, prompt) = turn(&session, &mut script).await;
        drop(running);
        script.expect("session/cancel").await;
        script.send_chunk("s", "of the dropped turn").await;
        script.end_turn(&prompt, "cancelled").await;
        script.send_chunk("s", "after it").await;
        assert_eq!(updates.next().await.expect("one").expect("no error").to_string(), "after it");
    }
}

async fn a_second_prompt_is_refused_while_one_runs(wire: Wire) {
    let (_agent, mut script, session) = with_session(wire, Client::new(())).await;
    let (mut running, prompt) = turn(&session, &mut script).await;
    for _ in 0..100 {
        assert!(matches!(session.prompt("me too").await, Err(Error::Busy)));
    }
    script.end_turn(&prompt, "refusal").await;
    assert_eq!(running.outcome().await.expect("an answer").stop_reason, StopReason::Refusal);
    let (running, prompt) = turn(&session, &mut script).await;
    script.end_turn(&prompt, "end_turn").await;
    assert_eq!(running.finish().await.expect("an answer").text, "");
}

/// Decides permissions on demand, and counts the requests.
struct Clicks {
    asked: Arc<AtomicUsize>,
    click: watch::Receiver<bool>,
}

impl Host for Clicks {
    async fn request_permission(
        &self,
        _: &HostContext,
        _: RequestPermissionRequest,
    ) -> HostResult<RequestPermissionResponse> {
        self.asked.fetch_add(1, SeqCst);
        let _ = self.click.clone().wait_for(|clicked| *clicked).await;
        Ok(RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new("yes")).into())
    }
}

fn clicks() -> (Clicks, Arc<AtomicUsize>, watch::Sender<bool>) {
    let (asked, (click, clicked)) = (Arc::new(AtomicUsize::new(0)), watch::channel(false));
    (Clicks { asked: asked.clone(), click: clicked }, asked, click)
}

async fn ask_permission(script: &mut ScriptedPeer) -> u64 {
    let option = json!({"optionId": "yes", "name": "Yes", "kind": "allow_once"});
    let params = json!({"sessionId": "s", "toolCall": {"toolCallId": "t"}, "options": [option]});
    script.send_request("session/request_permission", params).await
}

async fn open_permissions_are_answered_before_anything_else(wire: Wire) {
    let (host, asked, _click) = clicks();
    let (_agent, mut script, session) = with_session(wire, Client::new(host)).await;
    for round in 1..=100 {
        let (running, prompt) = turn(&session, &mut script).await;
        let mut open = Vec::new();
        for _ in 0..3 {
            open.push(ask_permission(&mut script).await);
        }
        // Shown, all of them, before the cancellation.
        while asked.load(SeqCst) < 3 * round {
            tokio::task::yield_now().await;
        }
        if round % 2 == 0 {
            running.cancel();
        } else {
            drop(running);
        }
        // Something else of the same session, as soon as can be.
        let other = tokio::spawn({
            let session = session.clone();
            async move { session.set_mode("a").await }
        });
        script.expect("session/cancel").await;
        for _ in 0..3 {
            let answer = script.next_message().await;
            assert_eq!(answer["result"]["outcome"]["outcome"], "cancelled", "{answer}");
            let id = answer["id"].as_u64().expect("an id");
            open.retain(|open| *open != id);
        }
        assert!(open.is_empty());
        let mode = script.expect("session/set_mode").await;
        script.respond(&mode, json!({})).await;
        other.await.expect("no panic").expect("a mode");
        // A question that comes late is not shown to anybody.
        let before = asked.load(SeqCst);
        let late = ask_permission(&mut script).await;
        let answer = script.next_message().await;
        assert_eq!(
            (&answer["id"], &answer["result"]["outcome"]["outcome"]),
            (&json!(late), &json!("cancelled"))
        );
        assert_eq!(asked.load(SeqCst), before);
        script.end_turn(&prompt, "cancelled").await;
    }
}

/// The user clicks in the moment of the cancellation: every response behind it is `cancelled`.
async fn after_a_cancel_no_answer_but_cancelled(wire: Wire) {
    let (host, _asked, click) = clicks();
    let (_agent, mut script, session) = with_session(wire, Client::new(host)).await;
    for _ in 0..300 {
        click.send_replace(false);
        let (running, prompt) = turn(&session, &mut script).await;
        for _ in 0..8 {
            ask_permission(&mut script).await;
        }
        script.probe().await;
        let clicking = tokio::task::spawn_blocking({
            let click = click.clone();
            move || click.send_replace(true)
        });
        running.cancel();
        let (mut answers, mut cancelled) = (0, false);
        while answers < 8 || !cancelled {
            let message = script.next_message().await;
            if message["method"] == "session/cancel" {
                cancelled = true;
                continue;
            }
            answers += 1;
            let outcome = &message["result"]["outcome"]["outcome"];
            assert!(!cancelled || outcome == "cancelled", "{message} after session/cancel");
        }
        clicking.await.expect("no panic");
        script.end_turn(&prompt, "cancelled").await;
        drop(running);
    }
}

async fn auth_required_names_the_ways_to_log_in(wire: Wire) {
    let (transport, mut script) = wire.scripted();
    let (agent, ()) = tokio::join!(Client::new(()).connect(transport), async {
        let hello = script.expect("initialize").await;
        let methods = json!([{"id": "key", "name": "API key"}, {"id": "web", "name": "Browser"}]);
        script.respond(&hello, json!({"protocolVersion": 1, "authMethods": methods})).await;
    });
    let agent = agent.expect("a connection");
    let refuse = async |script: &mut ScriptedPeer, method: &str| {
        let request = script.expect(method).await;
        let error = json!({"code": -32000, "message": "who are you?"});
        script.send(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
    };
    let (session, ()) = tokio::join!(agent.new_session("/tmp"), refuse(&mut script, "session/new"));
    let Err(Error::AuthRequired { methods, message }) = session else { panic!("{session:?}") };
    assert_eq!((methods.len(), &*message), (2, "who are you?"));
    let (done, ()) = tokio::join!(agent.authenticate("web"), async {
        let request = script.expect("authenticate").await;
        assert_eq!(request["params"]["methodId"], "web");
        script.respond(&request, json!(null)).await;
    });
    done.expect("logged in");
    let (session, ()) = tokio::join!(agent.new_session("/tmp"), script.accept_session("s"));
    let session = session.expect("a session");
    // A prompt can say it too.
    let (turn, ()) = tokio::join!(session.prompt("go"), refuse(&mut script, "session/prompt"));
    let outcome = turn.expect("a turn").outcome().await;
    assert!(matches!(outcome, Err(Error::AuthRequired { .. })), "{outcome:?}");
}

async fn updates_before_the_session_is_known_are_not_lost(wire: Wire) {
    let (agent, mut script) = client_of(wire, Client::new(()), json!({})).await;
    for round in 0..50 {
        let name = format!("s{round}");
        let (session, ()) = tokio::join!(agent.new_session("/tmp"), async {
            let request = script.expect("session/new").await;
            for number in 0..100 {
                script.send_chunk(&name, &number.to_string()).await;
                script.send_chunk("somebody else", "lost").await;
            }
            script.respond(&request, json!({"sessionId": name})).await;
            script.send_chunk(&name, "100").await;
        });
        let mut updates = session.expect("a session").updates();
        for number in 0..=100 {
            let text = updates.next().await.expect("an update").expect("no error").to_string();
            assert_eq!(text, number.to_string());
        }
    }
    assert_eq!(agent.dropped_updates(), 5000);
}

async fn dropping_a_request_withdraws_it_once(wire: Wire) {
    let (agent, mut script, session) = with_session(wire, Client::new(())).await;
    for _ in 0..300 {
        let setting = tokio::spawn({
            let session = session.clone();
            async move { session.set_mode("a").await }
        });
        let request = script.expect("session/set_mode").await;
        setting.abort();
        let cancel = script.expect("$/cancel_request").await;
        assert_eq!(cancel["params"], json!({"requestId": request["id"]}));
        script.respond(&request, json!({})).await;
        script.probe().await;
    }
    // An answered one is not withdrawn.
    for _ in 0..300 {
        let call = agent.peer().call::<_, Value>("_question", &[0]);
        let request = script.expect("_question").await;
        script.respond(&request, json!(1)).await;
        script.probe().await;
        drop(call);
        script.probe().await;
    }
    assert_eq!(agent.peer().pending_requests(), 0);
}

async fn dropping_a_request_for_a_session_withdraws_it(wire: Wire) {
    let (agent, mut script) = client_of(wire, Client::new(()), json!({})).await;
    for _ in 0..100 {
        let making = tokio::spawn({
            let agent = agent.clone();
            async move { agent.new_session("/tmp").await }
        });
        let request = script.expect("session/new").await;
        making.abort();
        let cancel = script.expect("$/cancel_request").await;
        assert_eq!(cancel["params"], json!({"requestId": request["id"]}));
        let error = json!({"code": -32800, "message": "cancelled"});
        script.send(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
        script.probe().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_too_long_is_withdrawn() {
    let client = Client::new(()).request_timeout(Duration::from_millis(100));
    let (transport, mut script) = Wire::Memory.scripted();
    let (agent, _) = tokio::join!(client.connect(transport), script.accept_initialize(json!({})));
    let agent = agent.expect("a connection");
    for _ in 0..3 {
        let (session, ()) = tokio::join!(agent.new_session("/tmp"), async {
            let request = script.expect("session/new").await;
            let cancel = script.expect("$/cancel_request").await;
            assert_eq!(cancel["params"]["requestId"], request["id"]);
            script.respond(&request, json!({"sessionId": "late"})).await;
        });
        assert!(matches!(session, Err(Error::Connection(RpcError::Timeout { .. }))), "{session:?}");
    }
    script.probe().await;
    let (session, ()) = tokio::join!(agent.new_session("/tmp"), script.accept_session("s"));
    session.expect("the connection is fine");
}

async fn initialize_is_never_withdrawn(wire: Wire) {
    for _ in 0..50 {
        let (transport, mut script) = wire.scripted();
        let connecting = tokio::spawn(Client::new(()).connect(transport));
        script.expect("initialize").await;
        connecting.abort();
        assert!(script.read_to_end().await.is_empty());
    }
    let (transport, mut script) = wire.scripted();
    let connecting = Client::new(()).start_timeout(Duration::from_millis(50)).connect(transport);
    let (outcome, rest) = tokio::join!(connecting, async {
        script.expect("initialize").await;
        script.read_to_end().await
    });
    assert!(matches!(outcome, Err(Error::StartTimeout { .. })), "{outcome:?}");
    assert!(rest.is_empty(), "{rest:?}");
}

/// An agent that ignores a cancellation does not block its session for ever.
#[tokio::test(start_paused = true)]
async fn an_ignored_cancellation_is_given_up_after_ten_seconds() {
    let (_agent, mut script, session) = with_session(Wire::Memory, Client::new(())).await;
    let (mut running, old) = turn(&session, &mut script).await;
    let started = tokio::time::Instant::now();
    running.cancel();
    script.expect("session/cancel").await;
    let outcome = running.outcome().await;
    assert!(matches!(outcome, Err(Error::CancelIgnored { .. })), "{outcome:?}");
    assert_eq!(started.elapsed().as_secs(), 10);
    let (mut next, prompt) = turn(&session, &mut script).await;
    // The old answer, at last: it must not end the new turn.
    script.end_turn(&old, "cancelled").await;
    script.send_chunk("s", "new").await;
    script.end_turn(&prompt, "end_turn").await;
    assert_eq!(texts(&mut next).await, ["new"]);
    assert_eq!(next.outcome().await.expect("an answer").stop_reason, StopReason::EndTurn);
}

#[tokio::test(start_paused = true)]
async fn the_patience_after_a_cancel_is_a_setting() {
    let client = Client::new(()).cancel_patience(Duration::from_secs(3600));
    let (_agent, mut script, session) = with_session(Wire::Memory, client).await;
    let (mut running, _) = turn(&session, &mut script).await;
    running.cancel();
    script.expect("session/cancel").await;
    let Err(Error::CancelIgnored { after }) = running.outcome().await else { panic!("given up") };
    assert_eq!(after, Duration::from_secs(3600));
}

/// Without a word of ours about it: the default patience.
#[tokio::test(start_paused = true)]
async fn an_agent_that_says_nothing_is_given_up_after_thirty_seconds() {
    let (transport, mut script) = Wire::Memory.scripted();
    let started = tokio::time::Instant::now();
    let (outcome, ()) = tokio::join!(Client::new(()).connect(transport), async {
        script.expect("initialize").await;
        script.send("still loading").await;
    });
    let Err(Error::StartTimeout { after, noise, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!((after.as_secs(), started.elapsed().as_secs()), (30, 30));
    assert_eq!(noise, ["still loading"]);
}
