//! Handlers of an agent that use the agent's session: they stream to the user and ask for permission.

use duologue_agent::exchange::envelope::*;
use duologue_agent::schema::{
    AgentCapabilities, PermissionOption, PermissionOptionKind, RequestPermissionOutcome, SessionCapabilities,
    SessionCloseCapabilities, SessionUpdate, ToolCallUpdate,
};
use duologue_agent::{Agent, Context, Exchange, Prompt, Server, Session, StopReason, Turn};
use duologue_test_support::{ScriptedPeer, Wire, over_every_wire};
use serde_json::{Value, json};

/// Sessions that can be closed.
struct Closable;

impl Agent for Closable {
    fn capabilities(&self) -> AgentCapabilities {
        let close = SessionCapabilities::default().close(SessionCloseCapabilities::default());
        AgentCapabilities::default().session_capabilities(close)
    }

    async fn close_session(&self, _: &Context, _: &Session) -> duologue_agent::Result<()> {
        Ok(())
    }

    async fn prompt(&self, _: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        Ok(StopReason::EndTurn)
    }
}

/// Shows each query to the user, and requests permission before it works.
struct Host;

fn failed(error: duologue_agent::Error) -> EnvelopeError {
    EnvelopeError::internal(error.to_string())
}

impl EnvelopeHandler for Host {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("host").max_concurrent_tasks(1)
    }

    async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        let Some(session) = Session::of(&query.peer) else { return Ok(QueryResponse::new("no session")) };
        assert_eq!(Some(session.id()), query.session_id());
        let text = format!("asked: {}", query.question);
        session.update(SessionUpdate::agent_message(text)).await.map_err(failed)?;
        Ok(QueryResponse::new(session.cwd().display().to_string()))
    }

    async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
        if task.task == "later" {
            task.cancelled().await;
            let is_open = Session::of(&task.peer).is_some();
            return Ok(DelegationOutcome::new(OutcomeStatus::Partial).outcome(format!("open: {is_open}")));
        }
        let session = Session::of(&task.peer).ok_or_else(|| EnvelopeError::internal("no session"))?;
        let options = vec![PermissionOption::new("yes", "Yes", PermissionOptionKind::AllowOnce)];
        let call = ToolCallUpdate::new("call").title(task.task.as_str());
        match session.request_permission(call, options).await.map_err(failed)? {
            RequestPermissionOutcome::Selected(_) => Ok(DelegationOutcome::new(OutcomeStatus::Completed)),
            _ => Err(EnvelopeError::not_authorized("the user said no")),
        }
    }
}

fn envelope(session: &str, id: &str, kind: &str, payload: Value) -> Value {
    let envelope = json!({"id": id, "from": "ab", "to": "", "ts": 1, "kind": kind, "payload": payload});
    json!({"sessionId": session, "envelope": envelope})
}

async fn desk(wire: Wire) -> (ScriptedPeer, String) {
    let (transport, mut client) = wire.scripted();
    tokio::spawn(Server::new(Closable).exchange(Exchange::new().envelope_handler(Host)).serve(transport));
    client.initialize(json!({"_meta": {"duologue": {"agentId": "ab", "envelope": {"v": [1]}}}})).await;
    let session = client.new_session().await;
    (client, session)
}

over_every_wire!(a_handler_streams_in_its_session_and_asks_the_user);

async fn a_handler_streams_in_its_session_and_asks_the_user(wire: Wire) {
    let (mut client, session) = desk(wire).await;
    let query = envelope(&session, "q", "query", json!({"question": "Who?"}));
    let id = client.send_request("_session/query", query).await;
    let update = client.expect("session/update").await;
    assert_eq!(update["params"]["sessionId"], session);
    assert_eq!(update["params"]["update"]["content"]["text"], "asked: Who?");
    let answer = client.next_message().await;
    assert_eq!(
        (&answer["id"], answer["result"]["envelope"]["payload"]["summary"].is_string()),
        (&json!(id), true)
    );

    for (outcome, end) in [
        (json!({"outcome": "selected", "optionId": "yes"}), "_session/result"),
        (json!({"outcome": "cancelled"}), "_session/error"),
    ] {
        let task = envelope(&session, end, "delegate", json!({"task": "paint"}));
        client.request("_session/delegate", task).await;
        let asked = client.expect("session/request_permission").await;
        let (of, title) = (&asked["params"]["sessionId"], &asked["params"]["toolCall"]["title"]);
        assert_eq!((of, title), (&json!(session), &json!("paint")));
        client.respond(&asked, json!({ "outcome": outcome })).await;
        assert_eq!(client.expect(end).await["params"]["envelope"]["ref"], end);
    }
}

#[tokio::test]
async fn a_closed_session_is_not_reached() {
    let (mut client, session) = desk(Wire::Memory).await;
    let task = envelope(&session, "d", "delegate", json!({"task": "later"}));
    client.request("_session/delegate", task).await;
    let other = client.new_session().await;
    client.request("session/close", json!({"sessionId": session})).await;
    let mut cancel = envelope(&other, "c", "cancel", json!({"reason": ""}));
    cancel["envelope"]["ref"] = json!("d");
    client.request("_session/cancel", cancel).await;
    let end = client.expect("_session/result").await;
    assert_eq!(end["params"]["envelope"]["payload"]["outcome"], "open: false", "{end}");
}

/// Elsewhere there is no agent's session: the handle of a client's session and one in memory.
#[tokio::test]
async fn another_connection_has_no_session_of_an_agent() {
    let (peer, _) = Exchange::new().in_memory(Exchange::new().envelope_handler(Host));
    assert_eq!(peer.query("Who?").await.unwrap().summary, "no session");
    assert!(Session::of(&peer).is_none());
}
