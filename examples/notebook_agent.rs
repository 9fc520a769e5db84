//! An agent that remembers: state for each session, commands, modes, login, and sessions that can be
//! listed and loaded again. It keeps notes; `clear` asks first.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use duologue_agent::schema::{
    AgentCapabilities, AuthMethod, AuthMethodAgent, AuthenticateRequest, AvailableCommand, Implementation,
    InitializeRequest, ListSessionsRequest, ListSessionsResponse, SessionCapabilities, SessionId,
    SessionInfo, SessionListCapabilities, SessionMode, SessionModeState, SessionUpdate,
    SetSessionModeRequest,
};
use duologue_agent::{
    Agent, Context, Error, Prompt, Result, Session, SessionSetup, StopReason, Turn, serve_stdio,
};

/// The notes of one session, and how they are shown.
#[derive(Default)]
struct Notes {
    lines: Mutex<Vec<String>>,
    numbered: AtomicBool,
}

#[derive(Default)]
struct Notebook {
    logged_in: AtomicBool,
    /// Every session of this process, so that it can be loaded again.
    sessions: Mutex<BTreeMap<SessionId, (std::path::PathBuf, Arc<Notes>)>>,
}

impl Notebook {
    /// Returns the initial state of a session, and sends its first updates.
    async fn set_up(&self, session: &Session, notes: Arc<Notes>) -> Result<SessionSetup> {
        let entry = (session.cwd().to_owned(), notes.clone());
        locked(&self.sessions).insert(session.id().clone(), entry);
        session.set_state(notes);
        session.set_commands(vec![AvailableCommand::new("clear", "Forget all notes")]).await?;
        let modes = vec![SessionMode::new("plain", "Plain"), SessionMode::new("numbered", "Numbered")];
        Ok(SessionSetup::new().modes(SessionModeState::new("plain", modes)).mirror_modes())
    }
}

impl Agent for Notebook {
    fn info(&self) -> Option<Implementation> {
        Some(Implementation::new("notebook-agent", env!("CARGO_PKG_VERSION")).title("Notebook"))
    }

    fn capabilities(&self) -> AgentCapabilities {
        let sessions = SessionCapabilities::new().list(SessionListCapabilities::new());
        AgentCapabilities::new().load_session(true).session_capabilities(sessions)
    }

    fn auth_methods(&self, _: &InitializeRequest) -> Vec<AuthMethod> {
        vec![AuthMethodAgent::new("just-ask", "Say please").into()]
    }

    async fn authenticate(&self, _: &Context, _: AuthenticateRequest) -> Result<()> {
        self.logged_in.store(true, Relaxed);
        Ok(())
    }

    async fn new_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        if !self.logged_in.load(Relaxed) {
            return Err(Error::auth_required("say please first"));
        }
        self.set_up(session, Arc::default()).await
    }

    async fn load_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        let known = locked(&self.sessions).get(session.id()).map(|(_, notes)| notes.clone());
        let notes = known.ok_or_else(|| Error::not_found("no such notebook"))?;
        // The replay: earlier messages, as updates, before the response.
        let lines = locked(&notes.lines).clone();
        for line in lines {
            session.update(SessionUpdate::user_message(line)).await?;
            session.update(SessionUpdate::agent_message("Noted.")).await?;
        }
        self.set_up(session, notes).await
    }

    async fn list_sessions(&self, _: &Context, request: ListSessionsRequest) -> Result<ListSessionsResponse> {
        let sessions = locked(&self.sessions);
        let infos = sessions.iter().map(|(id, (cwd, _))| SessionInfo::new(id.clone(), cwd.clone()));
        Ok(request.page(infos, 50)?)
    }

    async fn set_mode(&self, _: &Context, session: &Session, request: SetSessionModeRequest) -> Result<()> {
        let notes = session.state::<Notes>();
        notes.numbered.store(request.mode_id == "numbered", Relaxed);
        Ok(())
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let notes = turn.state::<Notes>();
        match prompt.text().trim() {
            "/clear" => {
                let clear = turn.tool_call("Forget all notes").announce().await?;
                match clear.allowed().await? {
                    true => {
                        locked(&notes.lines).clear();
                        clear.complete().await?;
                    }
                    false => clear.fail("You kept them.").await?,
                }
            }
            "" => {
                let numbered = notes.numbered.load(Relaxed);
                let lines = locked(&notes.lines).clone();
                let mut message = turn.message();
                for (number, line) in (1..).zip(lines) {
                    let mark = if numbered { format!("{number}.") } else { "-".into() };
                    message.push(format!("{mark} {line}\n")).await?;
                }
            }
            note => {
                locked(&notes.lines).push(note.to_owned());
                turn.message().push("Noted.").await?;
            }
        }
        Ok(StopReason::EndTurn)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[tokio::main]
async fn main() -> Result<()> {
    serve_stdio(Notebook::default()).await
}
