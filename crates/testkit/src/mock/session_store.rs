//! The sessions of the mock agent: those of this process, and two invented older ones.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use duologue_agent::rpc::Lock;
use duologue_agent::schema::{
    Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus, SessionId, SessionInfo, SessionUpdate, ToolCall,
    ToolCallStatus, ToolKind,
};

/// The sessions, the oldest first.
pub(super) struct SessionStore(Mutex<Vec<StoredSession>>);

struct StoredSession {
    id: SessionId,
    /// The folder; the invented sessions are in every folder.
    cwd: Option<PathBuf>,
    prompts: Vec<String>,
}

impl Default for SessionStore {
    fn default() -> Self {
        let old = [("session-old-1", "How hot is the sun?"), ("session-old-2", "Tidying up")];
        let old =
            old.map(|(id, prompt)| StoredSession { id: id.into(), cwd: None, prompts: vec![prompt.into()] });
        SessionStore(Mutex::new(old.into()))
    }
}

impl SessionStore {
    fn lock(&self) -> MutexGuard<'_, Vec<StoredSession>> {
        self.0.lock_unpoisoned()
    }

    /// Adds a session.
    pub(super) fn add(&self, id: &SessionId, cwd: &Path) {
        self.lock().push(StoredSession { id: id.clone(), cwd: Some(cwd.into()), prompts: Vec::new() });
    }

    /// Stores a prompt of a session.
    pub(super) fn add_prompt(&self, id: &SessionId, prompt: &str) {
        if let Some(session) = self.lock().iter_mut().find(|session| session.id == *id) {
            session.prompts.push(prompt.into());
        }
    }

    pub(super) fn remove(&self, id: &SessionId) {
        self.lock().retain(|session| session.id != *id);
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.lock().iter().map(|session| session.id.to_string()).collect()
    }

    /// Lists the sessions with a prompt, of this folder if one is given.
    pub(super) fn list(&self, cwd: Option<&Path>) -> Vec<SessionInfo> {
        let sessions = self.lock();
        let here = |session: &&StoredSession| match (&session.cwd, cwd) {
            (Some(its), Some(wanted)) => its == wanted,
            _ => true,
        };
        let listed = sessions.iter().filter(here).filter_map(|session| {
            let folder = session.cwd.as_deref().or(cwd).unwrap_or(Path::new("/"));
            let info = SessionInfo::new(session.id.clone(), folder);
            let title = session.prompts.first()?.lines().next().unwrap_or_default();
            Some(info.title(title).updated_at("2026-01-02T03:04:05Z"))
        });
        listed.collect()
    }

    /// Returns the updates that replay a session: its prompts with short responses. Returns `None` if
    /// the session is unknown.
    pub(super) fn replay(&self, id: &SessionId) -> Option<Vec<SessionUpdate>> {
        let sessions = self.lock();
        let session = sessions.iter().find(|session| session.id == *id)?;
        let mut replay = Vec::new();
        for (turn, prompt) in (1..).zip(&session.prompts) {
            let part = |name: &str| format!("message-old-{turn}-{name}");
            let call = ToolCall::new(format!("call-old-{turn}"), "Look it up")
                .kind(ToolKind::Fetch)
                .status(ToolCallStatus::Completed);
            let steps = vec![PlanEntry::new("Answer", PlanEntryPriority::Medium, PlanEntryStatus::Completed)];
            replay.extend([
                SessionUpdate::user_message(prompt.as_str()).with_message_id(part("user")),
                SessionUpdate::agent_thought("I remember.").with_message_id(part("thought")),
                SessionUpdate::from(call),
                SessionUpdate::Plan(Plan::new(steps)),
                SessionUpdate::agent_message("That was long ago.").with_message_id(part("agent")),
            ]);
        }
        Some(replay)
    }
}
