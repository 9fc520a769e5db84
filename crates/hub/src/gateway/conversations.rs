//! The sessions that messages with the same correlation id share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use duologue_rpc::Lock as _;
use duologue_schema::TraceContext;
use duologue_store::StoredMessage;
use sha2::{Digest as _, Sha256};
use tokio::sync::OwnedMutexGuard;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::gateway::GatewayShared;
use crate::gateway::agent_turn::WorkSession;
use crate::gateway::config::{AgentConfig, WorkSessions};
use crate::gateway::hosted::HostedEntry;
use crate::state::CONTEXT_LOST;

/// The begin of the group of a conversation. The group of a client never has it.
pub(crate) const GROUP: &str = "correlation:";

/// A principal and a correlation id.
type ConversationKey = (String, String);
/// Is locked while a message of the conversation is answered.
type ConversationGate = tokio::sync::Mutex<()>;

/// The conversations of an agent: the sessions that messages share. The index of the sessions has the correlation id of each.
#[derive(Default)]
pub(crate) struct Conversations {
    gates: Mutex<HashMap<ConversationKey, Weak<ConversationGate>>>,
    /// The one that is idle for the longest time is the first.
    idle: Mutex<Vec<IdleSession>>,
    numbers: AtomicU64,
}

/// A session that is open without a message.
struct IdleSession {
    number: u64,
    key: ConversationKey,
    work: WorkSession,
    timer: AbortHandle,
}

impl Conversations {
    /// Closes all sessions that are idle, or those of one principal.
    pub(crate) async fn close_idle(&self, principal: Option<&str>) {
        while let Some(work) = self.take(|idle| principal.is_none_or(|principal| idle.key.0 == principal)) {
            work.close().await;
        }
    }

    /// Waits until no other message of a conversation is answered.
    async fn enter(&self, key: &ConversationKey) -> OwnedMutexGuard<()> {
        let gate = {
            let mut gates = self.gates.lock_unpoisoned();
            gates.retain(|_, gate| gate.strong_count() > 0);
            let known = gates.get(key).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let gate = Arc::new(ConversationGate::default());
                gates.insert(key.clone(), Arc::downgrade(&gate));
                gate
            })
        };
        gate.lock_owned().await
    }

    fn take(&self, is_wanted: impl Fn(&IdleSession) -> bool) -> Option<WorkSession> {
        let mut idle = self.idle.lock_unpoisoned();
        let place = idle.iter().position(is_wanted)?;
        let IdleSession { work, timer, .. } = idle.remove(place);
        timer.abort();
        Some(work)
    }

    /// Keeps a session for the next message of its conversation. One above the limit is closed, of the principal with the
    /// most.
    fn keep(self: &Arc<Self>, key: ConversationKey, work: WorkSession, agent: &AgentConfig) {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (conversations, limit) = (Arc::downgrade(self), Duration::from_secs(agent.idle_seconds));
        let timer = tokio::spawn(async move {
            sleep(limit).await;
            let Some(conversations) = conversations.upgrade() else { return };
            // A task of its own, because taking the session aborts this one.
            if let Some(work) = conversations.take(|idle| idle.number == number) {
                tokio::spawn(work.close());
            }
        });
        let surplus = {
            let mut idle = self.idle.lock_unpoisoned();
            idle.push(IdleSession { number, key, work, timer: timer.abort_handle() });
            let surplus = (idle.len() > agent.max_idle_sessions).then(|| surplus(&idle, |idle| &idle.key.0));
            surplus.flatten().map(|place| idle.remove(place))
        };
        if let Some(IdleSession { work, timer, .. }) = surplus {
            timer.abort();
            tokio::spawn(work.close());
        }
    }
}

/// Returns the place of the first entry of the owner that has the most, so that nobody takes the places of those with fewer.
/// Of several such owners it is the first entry of all.
fn surplus<T>(entries: &[T], owner: impl Fn(&T) -> &str) -> Option<usize> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for entry in entries {
        *counts.entry(owner(entry)).or_default() += 1;
    }
    let most = counts.values().max()?;
    entries.iter().position(|entry| counts.get(owner(entry)) == Some(most))
}

/// The session of a message.
pub(crate) struct MessageSession {
    pub(crate) work: WorkSession,
    /// None for a session that the message has alone.
    conversation: Option<ConversationPlace>,
    /// True if the agent does not have the earlier messages of the conversation.
    pub(crate) has_lost_context: bool,
}

/// The place of a message in its conversation. No other message has it.
struct ConversationPlace {
    conversations: Arc<Conversations>,
    key: ConversationKey,
    _alone: OwnedMutexGuard<()>,
}

impl MessageSession {
    /// Opens the session of a message: one of its own, or the one of its conversation.
    pub(crate) async fn open(
        agent: &HostedEntry,
        message: &StoredMessage,
        trace: Option<&TraceContext>,
    ) -> duologue_client::Result<Self> {
        let principal = &message.from.principal;
        let Some(id) = correlation(&agent.config, message.correlation_id.as_ref()) else {
            let work = WorkSession::open(agent, principal, trace, None).await?;
            return Ok(MessageSession { work, conversation: None, has_lost_context: false });
        };
        let (conversations, key) = (agent.conversations.clone(), (principal.clone(), id.clone()));
        let place = ConversationPlace { _alone: conversations.enter(&key).await, conversations, key };
        let idle = place.conversations.take(|idle| idle.key == place.key);
        let known = agent.hub.session_in_state(principal, &state(id)).await.map_err(internal)?;
        let work = match (idle, known) {
            (Some(work), Some(known)) if work.session.id().as_str() == known => work,
            (idle, known) => {
                // Its session was erased meanwhile.
                if let Some(idle) = idle {
                    idle.close().await;
                }
                let work = WorkSession::open(agent, principal, trace, known.as_deref()).await?;
                if known.is_none() {
                    agent.hub.set_state(work.session.id().as_str(), state(id)).await.map_err(internal)?;
                    return Ok(MessageSession { work, conversation: Some(place), has_lost_context: false });
                }
                work
            }
        };
        let mut opened = MessageSession { work, conversation: Some(place), has_lost_context: false };
        // A notification alone would not restore the session.
        if opened.work.has_envelopes
            && let Err(error) = opened.work.session.peer_agent().ping().await
            && error.code().as_str() == CONTEXT_LOST
        {
            opened.begin_anew(agent, trace).await?;
        }
        Ok(opened)
    }

    /// Begins a new session of the conversation, because the agent does not know the former one any more.
    pub(crate) async fn begin_anew(
        &mut self,
        agent: &HostedEntry,
        trace: Option<&TraceContext>,
    ) -> duologue_client::Result<()> {
        let Some(ConversationPlace { key: (principal, id), .. }) = &self.conversation else { return Ok(()) };
        let new = WorkSession::open(agent, principal, trace, None).await?;
        let former = std::mem::replace(&mut self.work, new);
        self.has_lost_context = true;
        for (session, state) in [(&self.work, state(id)), (&former, String::new())] {
            agent.hub.set_state(session.session.id().as_str(), state).await.map_err(internal)?;
        }
        former.close().await;
        Ok(())
    }

    /// Keeps the session of a conversation whose turn has ended, and closes every other one.
    pub(crate) async fn end(self, agent: &HostedEntry, has_answer: bool) {
        match self.conversation {
            Some(ConversationPlace { conversations, key, _alone }) if has_answer => {
                conversations.keep(key, self.work, &agent.config);
            }
            _ => self.work.close().await,
        }
    }
}

impl GatewayShared {
    /// Returns the group of a message without one: that of its conversation, so that its messages are answered in order. The
    /// store keeps the groups of principals apart.
    pub(crate) fn conversation_group(&self, agent: &str, correlation_id: Option<&String>) -> Option<String> {
        let agent = self.hosted(agent)?;
        let id = correlation(&agent.config, correlation_id)?;
        Some(Sha256::digest(id).iter().fold(GROUP.to_owned(), |text, byte| format!("{text}{byte:02x}")))
    }
}

/// Returns the correlation id of a message if it names a conversation.
fn correlation<'a>(agent: &AgentConfig, id: Option<&'a String>) -> Option<&'a String> {
    id.filter(|_| agent.sessions == WorkSessions::PerCorrelation)
}

/// Returns the state of the session of a conversation in the index.
fn state(correlation_id: &str) -> String {
    format!("correlation:{correlation_id}")
}

fn internal(error: crate::Error) -> duologue_client::Error {
    duologue_client::Error::Response(duologue_schema::Error::internal(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_with_the_most_gives_its_first_entry() {
        for (owners, expected) in [
            ("", None),
            ("a", Some(0)),
            ("abb", Some(1)),
            ("abab", Some(0)),
            ("babca", Some(0)),
            ("cabba", Some(1)),
        ] {
            let owners: Vec<String> = owners.chars().map(String::from).collect();
            assert_eq!(surplus(&owners, |owner| owner), expected, "{owners:?}");
        }
    }
}
