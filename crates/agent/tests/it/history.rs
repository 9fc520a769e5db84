//! The conversations that a [`History`] keeps, over several lives of an agent.

use std::path::Path;
use std::sync::Arc;

use duologue_agent::schema::{
    AgentCapabilities, DeleteSessionRequest, ListSessionsRequest, ListSessionsResponse, PlanEntry,
    PlanEntryPriority, PlanEntryStatus, SessionUpdate,
};
use duologue_agent::{
    Agent, Context, Error, History, Prompt, Result, Session, SessionSetup, StopReason, Transport, Turn, serve,
};
use duologue_client::{Client, Connection};
use duologue_test_support::in_time;

/// Answers with the number of messages so far, after a draft, a thought, a plan and a tool call.
struct Keeper(History);

impl Agent for Keeper {
    fn capabilities(&self) -> AgentCapabilities {
        History::advertise(AgentCapabilities::new())
    }

    async fn new_session_id(&self) -> Result<duologue_agent::schema::SessionId> {
        Ok(uuid().into())
    }

    async fn new_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        self.0.begin(session)?;
        Ok(SessionSetup::new())
    }

    async fn load_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        self.0.load(session).await?;
        Ok(SessionSetup::new())
    }

    async fn resume_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        self.0.resume(session)?;
        Ok(SessionSetup::new())
    }

    async fn list_sessions(&self, _: &Context, request: ListSessionsRequest) -> Result<ListSessionsResponse> {
        self.0.list(&request).await
    }

    async fn delete_session(&self, _: &Context, request: DeleteSessionRequest) -> Result<()> {
        self.0.delete(&request.session_id)
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        if prompt.text() == "fail" {
            turn.tool_call("Build").start().await?.content("half").await?;
            return Err(Error::other("the model is down"));
        }
        let mut message = turn.message();
        message.push("a draft").await?;
        turn.thought().push("hmm").await?;
        message.clear().await?;
        let step = PlanEntry::new("answer", PlanEntryPriority::Low, PlanEntryStatus::Completed);
        turn.set_plan(vec![step]).await?;
        turn.tool_call("Look").start().await?.complete().await?;
        let so_far = self.0.conversation(turn.id()).await?;
        message.push(so_far.messages().filter(|message| !message.is_empty()).count().to_string()).await?;
        message.push(" messages").await?;
        Ok(StopReason::EndTurn)
    }
}

/// Returns an id that no other session of these tests has.
fn uuid() -> String {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("s-{}", NUMBER.fetch_add(1, Relaxed))
}

/// Starts the agent with the sessions in a folder.
async fn start(folder: &Path) -> Connection {
    let (ours, theirs) = Transport::memory();
    tokio::spawn(serve(Arc::new(Keeper(History::in_folder(folder).expect("a folder"))), theirs));
    Client::new(()).connect(ours).await.expect("a connection")
}

/// Returns the replay of a session, a line for each update.
async fn replay(agent: &Connection, id: &str) -> Vec<String> {
    let mut replay = agent.load_session(id, "/tmp").expect("sent");
    let mut lines = Vec::new();
    while let Some(update) = replay.next().await {
        lines.push(match update.expect("an update") {
            SessionUpdate::UserMessageChunk(chunk) => {
                format!("user {}", chunk.content.as_text().unwrap_or("-"))
            }
            SessionUpdate::AgentMessageChunk(chunk) => {
                format!("agent {}", chunk.content.as_text().unwrap_or("-"))
            }
            SessionUpdate::AgentThoughtChunk(chunk) => {
                format!("thought {}", chunk.content.as_text().unwrap_or("-"))
            }
            SessionUpdate::ToolCall(call) => format!("{} {}", call.title, call.status),
            SessionUpdate::Plan(plan) => format!("plan of {}", plan.entries.len()),
            other => format!("{other:?}"),
        });
    }
    replay.outcome().await.expect("loaded");
    lines
}

#[tokio::test]
async fn a_conversation_survives_its_process() {
    in_time(async {
        let folder = tempfile::tempdir().expect("a folder");
        let first = start(folder.path()).await;
        let session = first.new_session("/tmp").await.expect("a session");
        let answer = |text: &'static str| {
            let session = session.clone();
            async move { session.prompt(text).await.expect("sent").finish().await.map(|reply| reply.text) }
        };
        answer("hello\nthere").await.expect("an answer");
        answer("fail").await.expect_err("failed");
        let id = session.id().as_str().to_owned();
        first.close().await;

        let second = start(folder.path()).await;
        let listed = second.list_sessions(None).expect("sent").all().await.expect("a list");
        let titles: Vec<_> =
            listed.iter().map(|info| (info.session_id.as_str(), info.title.as_deref())).collect();
        assert_eq!(titles, [(&*id, Some("hello"))]);
        let expected = [
            "user hello\nthere",
            "agent 2 messages",
            "thought hmm",
            "Look completed",
            "user fail",
            "Build failed",
            "plan of 1",
        ];
        assert_eq!(replay(&second, &id).await, expected);
        // Later prompts are kept too, and a replay is not kept again.
        let session = second.resume_session(id.as_str(), "/tmp").await.expect("resumed");
        session.prompt("again").await.expect("sent").finish().await.expect("an answer");
        second.close().await;

        let third = start(folder.path()).await;
        let lines = replay(&third, &id).await;
        assert_eq!(lines[..6], expected[..6]);
        assert_eq!(
            lines[6..],
            ["user again", "agent 6 messages", "thought hmm", "Look completed", "plan of 1"]
        );
        third.delete_session(id.as_str()).await.expect("deleted");
        third.delete_session(id.as_str()).await.expect("deleted before");
        assert!(third.list_sessions(None).expect("sent").all().await.expect("a list").is_empty());
        third.load_session(id.as_str(), "/tmp").expect("sent").outcome().await.expect_err("deleted");
    })
    .await;
}

#[tokio::test]
async fn a_line_that_was_cut_costs_that_line() {
    in_time(async {
        let folder = tempfile::tempdir().expect("a folder");
        let first = start(folder.path()).await;
        let session = first.new_session("/tmp").await.expect("a session");
        session.prompt("hello").await.expect("sent").finish().await.expect("an answer");
        first.close().await;
        let file = folder.path().join(format!("{}.jsonl", session.id()));
        let mut text = std::fs::read(&file).expect("a file");
        text.truncate(text.len() - 10);
        std::fs::write(&file, text).expect("written");

        let second = start(folder.path()).await;
        let session = second.resume_session(session.id().clone(), "/tmp").await.expect("resumed");
        session.prompt("next").await.expect("sent").finish().await.expect("an answer");
        let lines = replay(&second, session.id().as_str()).await;
        assert!(
            lines.contains(&"agent 2".to_owned()) && lines.contains(&"user next".to_owned()),
            "{lines:?}"
        );
    })
    .await;
}

/// The id of a session comes from the client.
#[tokio::test]
async fn an_id_names_no_other_file() {
    in_time(async {
        let folder = tempfile::tempdir().expect("a folder");
        let sessions = folder.path().join("sessions");
        let agent = start(&sessions).await;
        let secret = folder.path().join("secret.jsonl");
        std::fs::write(&secret, "{}\n").expect("written");
        for id in ["../secret", "", ".", "..", "a/b", "nosuch", "sessions\\secret", &"x".repeat(129)] {
            for refused in [
                agent.load_session(id, "/tmp").expect("sent").outcome().await.map(drop),
                agent.resume_session(id, "/tmp").await.map(drop),
            ] {
                let error = refused.expect_err("unknown").to_string();
                assert!(error.contains("there is no such session (-32002)"), "{id}: {error}");
            }
            agent.delete_session(id).await.expect("unknown");
        }
        assert!(secret.exists());
        assert!(agent.list_sessions(None).expect("sent").all().await.expect("a list").is_empty());
    })
    .await;
}
