//! What the mock remembers: the sessions of this process, and two of a past that never was.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use duologue_agent::schema::{
    Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus, SessionId, SessionInfo, SessionUpdate, ToolCall,
    ToolCallStatus, ToolKind,
};

/// Sessions, the oldest first.
pub(super) struct Memory(Mutex<Vec<Remembered>>);

struct Remembered {
    id: SessionId,
    /// Those of the past were everywhere.
    cwd: Option<PathBuf>,
    prompts: Vec<String>,
}

impl Default for Memory {
    fn default() -> Self {
        let old = [("session-old-1", "How hot is the sun?"), ("session-old-2", "Tidying up")];
        let old =
            old.map(|(id, prompt)| Remembered { id: id.into(), cwd: None, prompts: vec![prompt.into()] });
        Memory(Mutex::new(old.into()))
    }
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Vec<Remembered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new session.
    pub(super) fn add(&self, id: &SessionId, cwd: &Path) {
        self.lock().push(Remembered { id: id.clone(), cwd: Some(cwd.into()), prompts: Vec::new() });
    }

    /// Something was said in a session.
    pub(super) fn prompted(&self, id: &SessionId, prompt: &str) {
        if let Some(session) = self.lock().iter_mut().find(|session| session.id == *id) {
            session.prompts.push(prompt.into());
        }
    }

    pub(super) fn forget(&self, id: &SessionId) {
        self.lock().retain(|session| session.id != *id);
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.lock().iter().map(|session| session.id.to_string()).collect()
    }

    /// The sessions in which something was said, in this folder if one is given.
    pub(super) fn list(&self, cwd: Option<&Path>) -> Vec<SessionInfo> {
        let sessions = self.lock();
        let here = |session: &&Remembered| match (&session.cwd, cwd) {
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

    /// What a session comes to, shortened: what the user said, and that it is long ago. `None` if
    /// there is no such session.
    pub(super) fn story(&self, id: &SessionId) -> Option<Vec<SessionUpdate>> {
        let sessions = self.lock();
        let session = sessions.iter().find(|session| session.id == *id)?;
        let mut story = Vec::new();
        for (turn, prompt) in (1..).zip(&session.prompts) {
            let part = |name: &str| format!("message-old-{turn}-{name}");
            let call = ToolCall::new(format!("call-old-{turn}"), "Look it up")
                .kind(ToolKind::Fetch)
                .status(ToolCallStatus::Completed);
            let steps = vec![PlanEntry::new("Answer", PlanEntryPriority::Medium, PlanEntryStatus::Completed)];
            story.extend([
                SessionUpdate::user_message(prompt.as_str()).with_message_id(part("user")),
                SessionUpdate::agent_thought("I remember.").with_message_id(part("thought")),
                SessionUpdate::from(call),
                SessionUpdate::Plan(Plan::new(steps)),
                SessionUpdate::agent_message("That was long ago.").with_message_id(part("agent")),
            ]);
        }
        Some(story)
    }
}
