//! The mock among agents: it turns to a client that is one, and takes dialogues and work orders.

use duologue_client::exchange::dialogue::Dialogues;
use duologue_client::exchange::envelope::{
    Capabilities, EnvelopeError, EnvelopeErrorCode, EnvelopeHandler, Pattern, Query, QueryResponse, Received,
};
use duologue_client::exchange::work::{Recommendation, WorkContext, WorkInput, WorkTask};
use duologue_client::exchange::{Error, Exchange};
use duologue_client::schema::Members;
use duologue_client::schema::dialogue::MessageType;
use duologue_client::{Client, Command, Connection, Session};

struct Editor;

impl EnvelopeHandler for Editor {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("editor")
    }

    async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        Ok(QueryResponse::new(format!("{} characters were asked.", query.question.as_str().len())))
    }
}

async fn start(exchange: Option<Exchange>) -> (Connection, Session) {
    let mut client = Client::new(());
    if let Some(exchange) = exchange {
        client = client.exchange(exchange);
    }
    let mock = Command::new(env!("CARGO_BIN_EXE_duologue")).args(["mock", "--pace", "0"]);
    let agent = client.spawn(mock).await.unwrap();
    let session = agent.new_session(std::env::temp_dir()).await.unwrap();
    (agent, session)
}

async fn says(session: &Session) -> String {
    session.prompt("colleague").await.unwrap().finish().await.unwrap().text
}

#[tokio::test]
async fn turns_to_clients_that_are_agents() {
    let (agent, session) = start(Some(Exchange::new().envelope_handler(Editor))).await;
    let mut news = session.peer_agent().subscribe(Pattern::from("work.*"));
    insta::assert_snapshot!(says(&session).await, @r#"
    You are idle.

    Your name is "editor".

    I sent you news of work.build.

    You answered: 36 characters were asked.
    "#);
    assert_eq!(news.next().await.unwrap().unwrap().topic, "work.build");
    agent.close().await;

    let (agent, session) = start(None).await;
    insta::assert_snapshot!(says(&session).await, @"This client does not say that it speaks to agents: no _meta.duologue.envelope.");
    agent.close().await;
}

#[tokio::test]
async fn takes_work_orders() {
    let (agent, session) = start(None).await;
    let order = |action: &str| {
        let task = WorkTask::new(action, Members::new());
        WorkInput::new(WorkContext::new("login", "feature", 1), [("feature_root", "features/login")], task)
    };
    let peer = session.peer_agent();
    let done = peer.work(order("specify")).await.unwrap();
    assert!(done.success && done.artifacts[0].content.starts_with("# login"), "{done:?}");
    assert_eq!(done.recommendation, Recommendation::Proceed);
    let failed = peer.work(order("fail")).await.unwrap();
    assert_eq!((failed.success, failed.recommendation), (false, Recommendation::Retry));
    let asked = peer.work(order("escalate")).await.unwrap();
    assert_eq!(asked.recommendation, Recommendation::Escalate);
    match peer.work(order("juggle")).await {
        Err(Error::Response(fault)) => assert_eq!(fault.code, EnvelopeErrorCode::InvalidParameter),
        other => panic!("{other:?}"),
    }
    agent.close().await;
}

#[tokio::test]
async fn speaks_in_dialogues() {
    let dialogues = Dialogues::new("agent://editor.example").unwrap();
    let (agent, session) = start(Some(Exchange::new().dialogue(dialogues))).await;
    let dialogue = session.peer_agent().dialogue("agent://duologue.dev/mock").unwrap();
    let answer = dialogue.request("Is anybody there?").await.unwrap();
    assert_eq!(answer.message_type, MessageType::Response);
    assert_eq!(answer.content.natural_language.as_deref(), Some("You said: Is anybody there?"));
    let agreed = dialogue.propose("Let us stop.").answer().await.unwrap();
    assert_eq!(agreed.message_type, MessageType::Accept);
    dialogue.terminate("Thank you.").await.unwrap();
    agent.close().await;
}
