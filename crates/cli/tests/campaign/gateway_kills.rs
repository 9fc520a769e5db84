//! A hub that is killed at random moments, while clients give it tasks and messages and an agent takes messages.
//!
//! Everything that the hub has accepted is there after the next start. No task is started twice, and no message comes back after
//! its acknowledgement. `DUOLOGUE_RUNS` sets the number of kills, and `DUOLOGUE_SEED` the moments.
#![cfg(all(target_os = "linux", feature = "serve"))]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use duologue_hub::client::{ConnectOptions, HubClient, HubResult};
use duologue_hub::gateway::types::{
    ClaimQuery, JsonText, LogFilter, OwnerQuery, RestAck, RestNewMessage, RestNewTask, RestRegistration,
    RestTask, RestTaskStatus,
};
use duologue_test_support::{Reproduction, in_time, measured, runs, seed};

use tokio::sync::Notify;

use crate::served::{Server, start_hub};

const KILLS: u64 = 6;
/// The time between two tasks. Each has a process of the agent.
const TASK_PAUSE: Duration = Duration::from_millis(40);
const MESSAGE_PAUSE: Duration = Duration::from_millis(10);
const AGENT: &str = "writer";
/// An agent that takes its messages over REST.
const KEEPER: &str = "keeper";

/// The responses that clients of a hub have received.
#[derive(Default)]
struct Known {
    tasks: BTreeSet<String>,
    messages: BTreeSet<String>,
    /// The messages whose acknowledgement was answered.
    acknowledged: BTreeSet<String>,
    /// Those whose acknowledgement was sent when the hub was killed.
    undecided: BTreeSet<String>,
}

fn client(server: &Server) -> HubClient {
    let mut options = ConnectOptions::default();
    let token = std::fs::read_to_string(&server.token).expect("a token");
    options.bearer_token = Some(token.trim().into());
    HubClient::new(&server.url, &options).expect("an address")
}

fn text(text: &str) -> JsonText {
    JsonText::of(text).expect("JSON")
}

async fn create_task(hub: &HubClient, id: &str) -> HubResult<()> {
    let mut task = RestNewTask::new("write", text("hello"));
    task.task_id = Some(id.into());
    hub.create_task(AGENT, &task).await.map(drop)
}

async fn send(hub: &HubClient, id: &str) -> HubResult<()> {
    let mut message = RestNewMessage::new("note", text(id));
    message.message_id = Some(id.into());
    hub.send_message(KEEPER, &message).await.map(drop)
}

/// Claims a message and acknowledges it.
async fn take(hub: &HubClient, known: &mut Known) -> HubResult<bool> {
    let claimed = hub.claim(KEEPER, &ClaimQuery::default()).await?.messages;
    let any = !claimed.is_empty();
    for message in claimed {
        let id = message.message_id;
        assert!(!known.acknowledged.contains(&id), "{id} came again after its acknowledgement");
        known.undecided.insert(id.clone());
        hub.ack(KEEPER, &id, &RestAck::new(message.lease.expect("a lease"))).await?;
        known.undecided.remove(&id);
        known.acknowledged.insert(id);
    }
    Ok(any)
}

/// Works until a request fails, which the end of the hub causes.
async fn work(hub: &HubClient, round: u64, known: &mut Known, accepted: &Notify) {
    let (mut tasks, mut messages, mut taken) = (BTreeSet::new(), BTreeSet::new(), Known::default());
    taken.acknowledged.clone_from(&known.acknowledged);
    let creating = async {
        for number in 0.. {
            let id = format!("t{round}-{number}");
            if create_task(hub, &id).await.is_err() {
                return;
            }
            tasks.insert(id);
            accepted.notify_one();
            tokio::time::sleep(TASK_PAUSE).await;
        }
    };
    let sending = async {
        for number in 0.. {
            let id = format!("m{round}-{number}");
            if send(hub, &id).await.is_err() {
                return;
            }
            messages.insert(id);
            tokio::time::sleep(MESSAGE_PAUSE).await;
        }
    };
    let taking = async {
        while take(hub, &mut taken).await.is_ok() {
            tokio::time::sleep(2 * MESSAGE_PAUSE).await;
        }
    };
    tokio::join!(creating, sending, taking);
    known.tasks.extend(tasks);
    known.messages.extend(messages);
    known.acknowledged.extend(taken.acknowledged);
    known.undecided.extend(taken.undecided);
}

/// Waits for the end of a task.
async fn ended(hub: &HubClient, id: &str) -> RestTask {
    loop {
        let task = hub.task(AGENT, id, &OwnerQuery::default()).await.expect("an accepted task");
        if !matches!(task.status, RestTaskStatus::Pending | RestTaskStatus::Processing) {
            return task;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the prompts in the log of a session.
async fn prompts(hub: &HubClient, session: &str) -> usize {
    let mut filter = LogFilter::default();
    let mut prompts = 0;
    loop {
        let page = hub.session_log(session, &filter).await.expect("a log");
        let is_prompt = |record: &&_| format!("{record:?}").contains("session/prompt");
        prompts += page.records.iter().filter(is_prompt).count();
        if page.records.is_empty() {
            return prompts;
        }
        filter.after = Some(page.next.into());
    }
}

async fn check(hub: &HubClient, known: &mut Known) {
    let (mut completed, mut lost) = (0, 0);
    for id in &known.tasks {
        let task = ended(hub, id).await;
        match task.status {
            RestTaskStatus::Completed => completed += 1,
            // It ran when the hub was killed. It is not started again by itself.
            RestTaskStatus::Failed => {
                let code = task.error.map(|error| error.code);
                assert_eq!(code.as_deref(), Some("restarted"), "{id}");
                lost += 1;
            }
            status => panic!("{id}: {status:?}"),
        }
        if let Some(session) = task.session_id {
            assert!(prompts(hub, &session).await <= 1, "{id} was started twice");
        }
        // A client that has not seen the answer sends the task again. It is the same one.
        create_task(hub, id).await.expect("the same task");
    }
    while take(hub, known).await.expect("an answer") {}
    let delivered = &known.acknowledged | &known.undecided;
    let missing: Vec<_> = known.messages.difference(&delivered).collect();
    assert!(missing.is_empty(), "accepted and not delivered: {missing:?}");
    assert!(completed > 0, "no task was completed");
    measured(format_args!(
        "{completed} tasks completed, {lost} interrupted, {} messages",
        known.messages.len()
    ));
}

fn restart(data: &Path) -> (Server, HubClient) {
    let server = start_hub(data);
    let hub = client(&server);
    (server, hub)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_hub_has_accepted_outlives_its_kills() {
    in_time(async {
        let (seed, kills) = (seed(), runs(KILLS));
        let _reproduction = Reproduction::of("-p duologue-cli --test campaign gateway_kills::", seed, kills);
        let mut random = fastrand::Rng::with_seed(seed);
        let data = tempfile::tempdir().expect("a folder");
        let mut known = Known::default();
        for round in 0..kills {
            let (mut server, hub) = restart(data.path());
            hub.register(KEEPER, &RestRegistration::default()).await.expect("registered");
            let life = Duration::from_millis(random.u64(0..600));
            let accepted = Notify::new();
            let killing = async {
                accepted.notified().await;
                tokio::time::sleep(life).await;
                server.kill();
            };
            tokio::join!(killing, work(&hub, round, &mut known, &accepted));
        }
        let (mut server, hub) = restart(data.path());
        check(&hub, &mut known).await;
        server.stop();
    })
    .await;
}
