//! The client for the REST interface, with a gateway of its own.

use duologue_hub::client::{ConnectOptions, HubClient, HubClientError, HubTaskEvent};
use duologue_hub::gateway::types::{
    AgentFilter, ClaimQuery, DeadFilter, DeadQuery, JsonText, LogFilter, MessageFilter, OwnerQuery, RestAck,
    RestAgentStatus, RestAnswer, RestMessageStatus, RestNack, RestNewMessage, RestNewTask, RestRegistration,
    RestSendMode, RestTaskStatus, SenderQuery, SessionFilter, TaskFilter,
};
use duologue_test_support::in_time;

use crate::rest::hosted::writer;
use crate::rest::world::{ALICE, REMOTE, RestWorld};

fn client(world: &RestWorld, key: &str) -> HubClient {
    let mut options = ConnectOptions::default();
    options.bearer_token = Some(key.into());
    HubClient::new(&format!("http://{}", world.address), &options).unwrap()
}

fn text(text: &str) -> JsonText {
    JsonText::of(text).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_followed_with_its_session() {
    let world = RestWorld::start(&writer()).await;
    let hub = client(&world, ALICE);
    let found = hub.agents(&AgentFilter::default()).await.unwrap();
    assert_eq!((found.pagination.total, found.agents[0].agent_id.as_str()), (1, "writer"));
    assert_eq!(hub.agent("writer").await.unwrap().endpoint, "/acp/writer");
    assert_eq!(hub.capabilities("writer").await.unwrap().capabilities[0].name(), "write");

    let mut task = RestNewTask::new("ask", text("permission"));
    task.task_id = Some("t/1".into());
    assert_eq!(hub.create_task("writer", &task).await.unwrap().task_id, "t/1");
    let mut events = hub.task_events("writer", "t/1", None).await.unwrap();
    let (mut updates, mut ended) = (0, None);
    in_time(async {
        while let Some(event) = events.next().await.unwrap() {
            match event {
                HubTaskEvent::Question(question) if question.question.as_str().contains("allow-once") => {
                    let query = OwnerQuery::default();
                    let open = hub.questions("writer", "t/1", &query).await.unwrap().questions;
                    if !open.is_empty() {
                        let answer = RestAnswer::option("allow-once");
                        hub.answer("writer", "t/1", &query, &answer).await.unwrap();
                    }
                }
                HubTaskEvent::Update(_) => updates += 1,
                HubTaskEvent::End(task) => ended = Some(task),
                _ => {}
            }
        }
    })
    .await;
    let ended = ended.expect("an end");
    assert!(updates > 0 && ended.status == RestTaskStatus::Completed, "{ended:?}");
    let last = events.last_id().unwrap();
    assert!(hub.task_events("writer", "t/1", Some(last)).await.unwrap().next().await.unwrap().is_none());
    assert_eq!(hub.tasks("writer", &TaskFilter::default()).await.unwrap().tasks.len(), 1);
    let refused = hub.cancel_task("writer", "t/1", &OwnerQuery::default()).await.unwrap_err();
    assert!(matches!(&refused, HubClientError::Refused { status: 409, refusal } if !refusal.retryable));

    let session = ended.session_id.unwrap();
    assert_eq!(hub.sessions(&SessionFilter::default()).await.unwrap().sessions.len(), 1);
    assert_eq!(hub.session(&session).await.unwrap().session_id, session);
    let page = hub.session_log(&session, &LogFilter::default()).await.unwrap();
    let mut stream = hub.follow_session_log(&session, 0).await.unwrap();
    let mut numbers = Vec::new();
    while let Some(record) = in_time(stream.next()).await.unwrap() {
        numbers.push(record.number);
    }
    assert_eq!(numbers, page.records.iter().map(|record| record.number).collect::<Vec<_>>());
    assert_eq!(page.next, *numbers.last().unwrap());
    hub.erase_session(&session).await.unwrap();
    let gone = hub.session(&session).await.unwrap_err();
    assert!(matches!(gone, HubClientError::Refused { status: 404, .. }), "{gone}");
    world.stop().await;
}

#[tokio::test]
async fn an_agent_takes_its_messages() {
    let world = RestWorld::start("").await;
    let (hub, agent) = (client(&world, ALICE), client(&world, REMOTE));
    agent.register("remote", &RestRegistration::default()).await.unwrap();
    let busy = agent.heartbeat("remote", RestAgentStatus::Busy).await.unwrap();
    assert_eq!(busy.status, RestAgentStatus::Busy);
    let mut message = RestNewMessage::new("query", text("hello"));
    (message.message_id, message.mode) = (Some("m1".into()), Some(RestSendMode::Sync));
    let answering = async {
        let mut claim = ClaimQuery::default();
        claim.wait = Some(20.into());
        let claimed = agent.claim("remote", &claim).await.unwrap().messages;
        let mut ack = RestAck::new(claimed[0].lease.clone().unwrap());
        ack.response = Some(RestNewMessage::new("response", text("hi")).message);
        agent.ack("remote", "m1", &ack).await.unwrap();
    };
    let (sent, ()) = in_time(async { tokio::join!(hub.send_message("remote", &message), answering) }).await;
    let sent = sent.unwrap();
    assert_eq!(sent.status, RestMessageStatus::Completed);
    assert!(sent.response.unwrap().as_str().contains("hi"));

    (message.message_id, message.mode) = (Some("m2".into()), None);
    assert_eq!(hub.send_message("remote", &message).await.unwrap().status, RestMessageStatus::Received);
    let lease =
        agent.claim("remote", &ClaimQuery::default()).await.unwrap().messages[0].lease.clone().unwrap();
    let mut nack = RestNack::new(lease);
    nack.requeue = Some(false);
    assert_eq!(agent.nack("remote", "m2", &nack).await.unwrap().status, RestMessageStatus::Error);
    assert_eq!(hub.messages("remote", &MessageFilter::default()).await.unwrap().messages.len(), 2);
    assert_eq!(
        hub.dead_letters("remote", &DeadFilter::default()).await.unwrap().messages[0].message_id,
        "m2"
    );
    hub.resend("remote", "m2", &DeadQuery::default()).await.unwrap();
    let again = hub.message("remote", "m2", &SenderQuery::default()).await.unwrap();
    assert_eq!(again.status, RestMessageStatus::Received);
    let alive = hub.drop_dead_letter("remote", "m2", &DeadQuery::default()).await.unwrap_err();
    assert_eq!(alive.to_string(), "it is not a dead letter (conflict)");
    agent.unregister("remote").await.unwrap();
    let unknown = client(&world, "unknown").agents(&AgentFilter::default()).await.unwrap_err();
    assert!(matches!(unknown, HubClientError::Refused { status: 401, .. }), "{unknown}");
    world.stop().await;
    let gone = hub.agents(&AgentFilter::default()).await.unwrap_err();
    assert!(matches!(gone, HubClientError::Connection(_)), "{gone}");
}
