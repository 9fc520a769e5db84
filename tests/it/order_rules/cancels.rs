//! A cancellation in every way at every point of a turn: one answer, the right one, nothing behind it, and
//! the next turn is as good as any.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use duologue_agent::schema::{SessionMode, SessionModeState, SetSessionModeRequest};
use duologue_agent::{
    Agent, Context, PermissionOption, PermissionOptionKind, Prompt, Server, Session, SessionSetup,
    StopReason, Turn,
};
use duologue_client::{Client, Host, HostContext, HostResult};
use duologue_rpc::{Direction, Tap, TappedFrame};
use duologue_schema::{RequestPermissionRequest, RequestPermissionResponse};
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};

use duologue_test_support::{ScriptedPeer, Wire, measured, over_every_wire, runs, texts};

over_every_wire!(an_agent_answers_every_cancel_once, a_client_gets_over_every_cancel);

/// A point in a turn.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    /// The prompt waits behind something else of its session.
    Queued,
    Running,
    PermissionOpen,
    /// The answer is made, and there is no room for it on the wire.
    AnswerQueued,
    /// It is on the wire, and nobody has read it.
    AnswerWritten,
    Done,
}

use Point::*;

const POINTS: [Point; 6] = [Queued, Running, PermissionOpen, AnswerQueued, AnswerWritten, Done];

/// The ways to cancel a turn, from outside of an SDK.
const WAYS: [&[&str]; 4] = [
    &["session/cancel"],
    &["$/cancel_request"],
    &["session/cancel", "$/cancel_request"],
    &["session/cancel", "session/cancel", "session/cancel"],
];

/// Follows the prompt, and counts the prompts.
#[derive(Clone)]
struct Worker {
    /// Lets modes be set.
    release: Arc<Semaphore>,
    prompts: Arc<AtomicUsize>,
    running: Arc<Notify>,
}

impl Default for Worker {
    fn default() -> Self {
        Worker { release: Arc::new(Semaphore::new(0)), prompts: Arc::default(), running: Arc::default() }
    }
}

impl Agent for Worker {
    async fn new_session(&self, _: &Context, _: &Session) -> duologue_agent::Result<SessionSetup> {
        Ok(SessionSetup::new().modes(SessionModeState::new("m", vec![SessionMode::new("m", "M")])))
    }

    async fn set_mode(
        &self,
        _: &Context,
        _: &Session,
        _: SetSessionModeRequest,
    ) -> duologue_agent::Result<()> {
        self.release.acquire().await.expect("open").forget();
        Ok(())
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
        self.prompts.fetch_add(1, SeqCst);
        self.running.notify_one();
        match prompt.text().as_str() {
            "run" => turn.cancelled().await,
            "ask" => {
                let no = PermissionOption::new("no", "No", PermissionOptionKind::RejectOnce);
                turn.tool_call("t").announce().await?.request_permission(vec![no]).await?;
            }
            // More than the wire holds, and less than the agent may have unwritten.
            "flood" => turn.message().push("f".repeat(4 * Wire::CAPACITY)).await?,
            said => turn.message().push(said).await?,
        }
        Ok(StopReason::EndTurn)
    }
}

/// Knows which answers were made, before anybody can have read them.
#[derive(Default)]
struct Answers(Mutex<HashMap<u64, bool>>, Notify);

impl Answers {
    async fn made(&self, id: u64) {
        while !self.0.lock().expect("no panic").contains_key(&id) {
            self.1.notified().await;
        }
    }
}

impl Tap for Answers {
    fn frame(&self, frame: TappedFrame<'_>) {
        let message: Value = serde_json::from_slice(frame.bytes).unwrap_or_default();
        if let (Direction::Outgoing, Some(id), None) =
            (frame.direction, message["id"].as_u64(), message.get("method"))
        {
            self.0.lock().expect("no panic").insert(id, true);
            self.1.notify_one();
        }
    }
}

/// One prompt, cancelled; says how it was answered.
async fn cancelled_at(
    (client, worker, answers): (&mut ScriptedPeer, &Worker, &Answers),
    session: &str,
    point: Point,
    way: &[&str],
) -> Value {
    let begun = worker.prompts.load(SeqCst);
    let text = match point {
        Queued | Running => "run",
        PermissionOpen => "ask",
        AnswerQueued => "flood",
        AnswerWritten | Done => "hello",
    };
    let mode = (point == Queued).then_some(json!({"sessionId": session, "modeId": "m"}));
    let mode = match mode {
        Some(mode) => Some(client.send_request("session/set_mode", mode).await),
        None => None,
    };
    let prompt = client.prompt(session, text).await;
    let (mut heard, mut permission) = (Vec::new(), None);
    match point {
        Queued => client.probe().await,
        Running => worker.running.notified().await,
        PermissionOpen => {
            while permission.is_none() {
                let message = client.next_message().await;
                permission = (message["method"] == "session/request_permission").then_some(message);
            }
        }
        AnswerQueued | AnswerWritten => answers.made(prompt).await,
        Done => {
            while heard.last().is_none_or(|message: &Value| message["id"] != prompt) {
                heard.push(client.next_message().await);
            }
        }
    }
    for method in way {
        match *method {
            "session/cancel" => client.cancel(session).await,
            method => client.notify(method, json!({"requestId": prompt})).await,
        }
    }
    if let Some(permission) = permission {
        // The protocol's duty of a client.
        client.respond(&permission, json!({"outcome": {"outcome": "cancelled"}})).await;
    }
    if mode.is_some() {
        // It has been taken back when its place comes.
        client.probe().await;
        worker.release.add_permits(1);
    }
    // All that comes of it is here when two questions have been answered, one behind the other, and the
    // answer has come.
    let probe = client.send_request("_probe", json!({})).await;
    while heard.iter().filter(|message| message["id"] == prompt || message["id"] == probe).count() < 2 {
        heard.push(client.next_message().await);
    }
    client.probe().await;
    let answer = heard.iter().position(|message| message["id"] == prompt).expect("an answer");
    let count =
        heard.iter().filter(|message| message["id"] == prompt && message.get("method").is_none()).count();
    assert_eq!(count, 1, "{point:?} {way:?}: {heard:?}");
    let late = heard[answer..].iter().any(|message| message["method"] == "session/update");
    assert!(!late, "{point:?} {way:?}: an update behind the answer");
    assert_eq!(worker.prompts.load(SeqCst) - begun, usize::from(point != Queued), "{point:?} {way:?}");
    heard.swap_remove(answer)
}

async fn an_agent_answers_every_cancel_once(wire: Wire) {
    let (transport, mut client) = wire.scripted();
    let (worker, answers) = (Worker::default(), Arc::new(Answers::default()));
    tokio::spawn(Server::new(worker.clone()).tap(answers.clone()).serve(transport));
    client.initialize(json!({})).await;
    let session = client.new_session().await;
    let rounds = runs(20);
    for _ in 0..rounds {
        for point in POINTS {
            for way in WAYS {
                let answer = cancelled_at((&mut client, &worker, &answers), &session, point, way).await;
                let reason =
                    if [Queued, Running, PermissionOpen].contains(&point) { "cancelled" } else { "end_turn" };
                assert_eq!(answer["result"]["stopReason"], reason, "{point:?} {way:?}: {answer}");
                // The cancelled turn is over.
                let prompt = client.prompt(&session, "next").await;
                let update = client.expect("session/update").await;
                assert_eq!(update["params"]["update"]["content"]["text"], "next");
                let next = client.next_message().await;
                assert_eq!(
                    (&next["id"], &next["result"]["stopReason"]),
                    (&json!(prompt), &json!("end_turn"))
                );
                // Its permit is of no use to the next one.
                worker.running.notified().await;
            }
        }
    }
    let turns = rounds as usize * POINTS.len() * WAYS.len();
    measured(format_args!(
        "{turns} turns cancelled, {} points in {} ways, one answer each",
        POINTS.len(),
        WAYS.len()
    ));
}

/// Shows questions that nobody answers.
#[derive(Clone, Default)]
struct Screen {
    shown: Arc<Notify>,
    gone: Arc<AtomicUsize>,
}

impl Host for Screen {
    async fn request_permission(
        &self,
        _: &HostContext,
        _: RequestPermissionRequest,
    ) -> HostResult<RequestPermissionResponse> {
        struct Shown<'a>(&'a Screen);
        impl Drop for Shown<'_> {
            fn drop(&mut self) {
                self.0.gone.fetch_add(1, SeqCst);
            }
        }
        let _shown = Shown(self);
        self.shown.notify_one();
        std::future::pending().await
    }
}

/// Uses both SDKs; the owner of the turn cancels it, or drops it.
async fn a_client_gets_over_every_cancel(wire: Wire) {
    let (ours, theirs) = wire.pair();
    let (worker, screen) = (Worker::default(), Screen::default());
    tokio::spawn(duologue_agent::serve(worker.clone(), theirs));
    let agent = Client::new(screen.clone()).connect(ours).await.expect("a connection");
    let session = agent.new_session("/tmp").await.expect("a session");
    let rounds = runs(20);
    let mut asked = 0;
    for _ in 0..rounds {
        for point in POINTS {
            for drops in [false, true] {
                let mode = (point == Queued).then(|| {
                    let session = session.clone();
                    tokio::spawn(async move { session.set_mode("m").await })
                });
                if mode.is_some() {
                    while agent.peer().pending_requests() == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                let text = match point {
                    Queued | Running => "run",
                    PermissionOpen => "ask",
                    AnswerQueued => "flood",
                    AnswerWritten | Done => "hello",
                };
                let mut turn = session.prompt(text).await.expect("a turn");
                match point {
                    Queued => {}
                    Running => worker.running.notified().await,
                    PermissionOpen => {
                        screen.shown.notified().await;
                        asked += 1;
                    }
                    // It has come, and nobody has taken it.
                    AnswerQueued | AnswerWritten => {
                        while agent.peer().pending_requests() > 0 {
                            tokio::task::yield_now().await;
                        }
                    }
                    Done => drop(turn.outcome().await.expect("an answer")),
                }
                if drops {
                    drop(turn);
                    worker.release.add_permits(usize::from(mode.is_some()));
                } else {
                    turn.cancel();
                    worker.release.add_permits(usize::from(mode.is_some()));
                    let reason = turn.outcome().await.expect("an answer").stop_reason;
                    let ended = [AnswerQueued, AnswerWritten, Done].contains(&point);
                    let expected = if ended { StopReason::EndTurn } else { StopReason::Cancelled };
                    assert_eq!(reason, expected, "{point:?}");
                }
                if let Some(mode) = mode {
                    mode.await.expect("no panic").expect("switched");
                }
                let mut next = session.prompt("next").await.expect("a turn");
                assert_eq!(texts(&mut next).await, ["next"], "{point:?}, dropped: {drops}");
                assert_eq!(next.outcome().await.expect("an answer").stop_reason, StopReason::EndTurn);
                assert_eq!(agent.peer().pending_requests(), 0);
                while screen.gone.load(SeqCst) < asked {
                    tokio::task::yield_now().await;
                }
                let _ = futures::FutureExt::now_or_never(worker.running.notified());
            }
        }
    }
    let stats = agent.peer().stats();
    assert_eq!((stats.stray_responses, stats.dropped), (0, 0));
    measured(format_args!(
        "{} turns cancelled or dropped at {} points, the next one untouched, no request left",
        rounds as usize * POINTS.len() * 2,
        POINTS.len()
    ));
}
