//! `ping`, `query` and `discover`, in both directions.

use duologue_agent::exchange::envelope::{
    Capabilities, EnvelopeError, EnvelopeHandler, Members, Query, QueryResponse, Received,
};
use duologue_agent::{Agent, Prompt, Server, StopReason, Turn};
use duologue_client::exchange::Error;
use duologue_client::{Client, Exchange, Transport};
use serde_json::json;

/// Answers every question with its name and the question.
struct Named(&'static str);

impl EnvelopeHandler for Named {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(self.0)
    }

    async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        Ok(QueryResponse::new(format!("{}: {}", self.0, query.question)))
    }
}

/// Asks its client what it was prompted.
struct Asker;

impl Agent for Asker {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
        let answer = turn.peer_agent().query(prompt.text()).await.map_err(duologue_agent::Error::other)?;
        turn.message().push(answer.summary).await?;
        Ok(StopReason::EndTurn)
    }
}

#[tokio::test]
async fn both_sides_ask() {
    let (ours, theirs) = Transport::memory();
    let exchange = Exchange::new().agent_id("a1").envelope_handler(Named("agent"));
    tokio::spawn(Server::new(Asker).exchange(exchange).serve(theirs));
    let exchange = Exchange::new().agent_id("c1").envelope_handler(Named("client"));
    let agent = Client::new(()).exchange(exchange).connect(ours).await.unwrap();

    assert_eq!(agent.peer_agent().id().unwrap(), "a1");
    assert_eq!(agent.peer_agent().discover().await.unwrap().agent_name, "agent");
    assert!(matches!(agent.peer_agent().query("who?").await, Err(Error::NoSession { .. })));

    let session = agent.new_session("/tmp").await.unwrap();
    assert_eq!(session.peer_agent().query("who?").await.unwrap().summary, "agent: who?");
    let reply = session.prompt("and you?").await.unwrap().finish().await.unwrap();
    assert_eq!(reply.text, "client: and you?");
}

#[tokio::test]
async fn nothing_is_sent_to_a_side_that_does_not_speak_envelopes() {
    let (ours, theirs) = Transport::memory();
    tokio::spawn(Server::new(Asker).serve(theirs));
    let agent = Client::new(()).exchange(Exchange::new()).connect(ours).await.unwrap();
    let refused = agent.peer_agent().ping().await.unwrap_err();
    assert!(matches!(refused, Error::NotSupported { scheme: "envelope", .. }), "{refused}");
}

/// Answers structured questions about a person.
struct Register;

impl EnvelopeHandler for Register {
    async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        let person: Option<String> =
            query.question.data().and_then(|data| data.parse::<Members>().ok()?.get("person"));
        Ok(QueryResponse::new(match person {
            Some(person) => format!("{person} is known"),
            None => format!("text: {}", query.question),
        }))
    }
}

#[tokio::test]
async fn a_question_may_be_structured() {
    let (peer, _) = Exchange::new().in_memory(Exchange::new().envelope_handler(Register));
    assert_eq!(peer.query(json!({ "person": "Ada" })).await.unwrap().summary, "Ada is known");
    assert_eq!(peer.query(json!("Ada")).await.unwrap().summary, "text: Ada");
    assert_eq!(peer.query("Ada").await.unwrap().summary, "text: Ada");
}
