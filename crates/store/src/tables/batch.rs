//! Batches of changes, each of which is applied as a whole or not at all.

use std::time::Duration;

use super::agents::{RegisteredAgent, RegistryStatus};
use super::messages::{InboxKey, NewInboxMessage};
use super::outbox::NewDelivery;
use super::principals::{SeenAnswer, SeenId, SeenKey, StoredPrincipal};
use super::tasks::{NewQuestion, NewTask, StoredTaskKey, TaskUpdate};
use super::values::{JsonText, LeaseToken, StoreTime};

/// The moment at which a batch is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// It survives a power cut. For batches that acknowledge something to a sender.
    #[default]
    Synced,
    /// It survives the end of the process. A power cut can remove it, together with all later batches that are not
    /// synced.
    Accepted,
}

/// Changes that are applied in order, all of them or none.
#[derive(Clone, Debug)]
#[must_use]
pub struct StoreBatch {
    /// The time of all changes.
    pub time: StoreTime,
    /// The moment at which it is applied.
    pub durability: Durability,
    /// The changes.
    pub changes: Vec<StoreChange>,
}

impl StoreBatch {
    /// Creates an empty batch that is synced.
    pub fn new(time: StoreTime) -> Self {
        StoreBatch { time, durability: Durability::Synced, changes: Vec::new() }
    }

    /// Does not wait until the batch survives a power cut.
    pub fn accepted(mut self) -> Self {
        self.durability = Durability::Accepted;
        self
    }

    /// Adds a change.
    pub fn with(mut self, change: StoreChange) -> Self {
        self.changes.push(change);
        self
    }

    /// Adds a change.
    pub fn push(&mut self, change: StoreChange) {
        self.changes.push(change);
    }
}

/// A change of the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreChange {
    /// Adds or replaces an entry of the registry. An entry of another owner is
    /// [`Error::RecordConflict`](crate::Error::RecordConflict).
    PutAgent(RegisteredAgent),
    /// Removes an entry of the registry. Its inbox stays. Its tasks that have not ended fail with
    /// [`TaskFailure::AGENT_REMOVED`](crate::TaskFailure::AGENT_REMOVED), or are cancelled if they were being cancelled. The
    /// outcome is the number of removed entries.
    RemoveAgent {
        /// The agent.
        agent: String,
    },
    /// Records a sign of life of an agent.
    Heartbeat {
        /// The agent.
        agent: String,
        /// The state.
        status: RegistryStatus,
    },
    /// Marks the agents offline whose last sign of life is older. Those of the configuration stay as they are. The
    /// outcome is their number.
    MarkStale {
        /// The time of the oldest sign of life that is good enough, in milliseconds since 1970.
        seen_before: u64,
    },

    /// Adds a message to an inbox. If the sender has sent the same message already, the outcome is
    /// [`ChangeOutcome::Duplicate`]; the same id with another content is
    /// [`Error::RecordConflict`](crate::Error::RecordConflict). The expiry is not compared.
    Enqueue(NewInboxMessage),
    /// Records that an agent begins a message, which is not given out again: if the lease ends without an
    /// acknowledgement, the message is a dead letter with [`TaskFailure::WORKER_LOST`](crate::TaskFailure::WORKER_LOST) or
    /// [`TaskFailure::RESTARTED`](crate::TaskFailure::RESTARTED). A message that is safe to repeat needs no record.
    StartMessage {
        /// The lease of the message.
        lease: LeaseToken,
    },
    /// Acknowledges a message, with the response of the agent if there is one.
    AckMessage {
        /// The lease of the message.
        lease: LeaseToken,
        /// The response.
        response: Option<JsonText>,
    },
    /// Returns a message to its place, for a later attempt. After its last attempt it becomes a dead letter, and the
    /// outcome is [`ChangeOutcome::Dead`].
    NackMessage {
        /// The lease of the message.
        lease: LeaseToken,
        /// The delay before the next attempt.
        delay: Duration,
        /// The reason.
        error: Option<String>,
    },
    /// Makes a message a dead letter at once, since no later attempt can succeed.
    RejectMessage {
        /// The lease of the message.
        lease: LeaseToken,
        /// The reason.
        error: String,
    },
    /// Sends a dead letter again, as the newest message of its inbox.
    ResendMessage {
        /// The message.
        key: InboxKey,
        /// The time after which it is not delivered any more, in milliseconds since 1970.
        expires: Option<u64>,
    },
    /// Removes a message that no worker has. The outcome is the number of removed messages.
    RemoveMessage {
        /// The message.
        key: InboxKey,
    },
    /// Continues a lease of any kind: it then lasts so long from the time of the batch.
    RenewLease {
        /// The lease.
        lease: LeaseToken,
        /// The duration from now.
        lasts: Duration,
    },
    /// Records that a message or a task goes on where an earlier attempt has begun it. The earlier attempts do not count
    /// any more, and this one is the first.
    ContinueWork {
        /// The lease.
        lease: LeaseToken,
    },
    /// Records that an agent gets a message under its present number, or a task at the time of the batch. That of a
    /// message stays if it is sent again.
    HandOver {
        /// The lease.
        lease: LeaseToken,
    },

    /// Adds a task in the state `submitted`. If its owner has created the same task already, the outcome is
    /// [`ChangeOutcome::Duplicate`]; the same id with another content is
    /// [`Error::RecordConflict`](crate::Error::RecordConflict). Metadata and expiry are not compared.
    CreateTask(NewTask),
    /// Changes a task. The outcome is [`ChangeOutcome::Version`].
    UpdateTask(TaskUpdate),
    /// Returns a claimed task to its place. It must not be started, or be safe to retry. After its last attempt it
    /// fails with `worker_lost` and becomes a dead letter, and the outcome is [`ChangeOutcome::Dead`].
    ReturnTask {
        /// The lease of the task.
        lease: LeaseToken,
        /// The delay before the next attempt.
        delay: Duration,
    },
    /// Submits a task again that is a dead letter.
    ResendTask {
        /// The task.
        key: StoredTaskKey,
        /// The time after which it is not started any more, in milliseconds since 1970.
        expires: Option<u64>,
    },
    /// Removes a task from the dead letters. It stays in the list of tasks.
    DropDeadTask {
        /// The task.
        key: StoredTaskKey,
    },

    /// Adds a question to a task that has not ended. The state of the task stays as it is.
    AddQuestion(NewQuestion),
    /// Answers an open question. For any other it is [`Error::WrongState`](crate::Error::WrongState), so the first
    /// answer counts.
    AnswerQuestion {
        /// The task.
        task: StoredTaskKey,
        /// The id of the question.
        question: String,
        /// The answer.
        answer: JsonText,
        /// The principal that answers.
        answered_by: String,
    },
    /// Withdraws an open question.
    WithdrawQuestion {
        /// The task.
        task: StoredTaskKey,
        /// The id of the question.
        question: String,
    },

    /// Adds a post to the outbox. If the stream has the same post at this position, the outcome is
    /// [`ChangeOutcome::Duplicate`]; an earlier position or another body is
    /// [`Error::RecordConflict`](crate::Error::RecordConflict).
    PushDelivery(NewDelivery),
    /// Marks a post as delivered.
    Delivered {
        /// The lease of the post.
        lease: LeaseToken,
    },
    /// Returns a post to its place. Later posts of its stream wait for it.
    DeliveryFailed {
        /// The lease of the post.
        lease: LeaseToken,
        /// The delay before the next attempt.
        delay: Duration,
        /// The reason.
        error: String,
    },
    /// Gives a post up, and the rest of its stream if it asks for that. The outcome is the number of posts.
    GiveUpDelivery {
        /// The lease of the post.
        lease: LeaseToken,
        /// The reason.
        error: String,
        /// True gives up all waiting posts of the stream.
        whole_stream: bool,
    },

    /// Remembers the key of a request. If it is known with the same digest, the whole batch has no effect, and
    /// the outcome of the batch is [`BatchOutcome::Repeated`]. Another digest is
    /// [`Error::KeyReused`](crate::Error::KeyReused).
    Remember(SeenId),
    /// Sets the response of a remembered key. A key that has expired meanwhile is ignored.
    SetResponse {
        /// The key.
        key: SeenKey,
        /// The response.
        response: JsonText,
    },

    /// Adds or replaces a principal.
    PutPrincipal(StoredPrincipal),
    /// Removes a principal, but not its data. The outcome is the number of removed principals.
    RemovePrincipal {
        /// The principal.
        principal: String,
    },
    /// Enables these principals and disables all others, also those of which there is nothing but work. What a
    /// principal that is disabled has in the queues ends: its tasks fail with
    /// [`TaskFailure::PRINCIPAL_REMOVED`](crate::TaskFailure::PRINCIPAL_REMOVED), or are cancelled if they were being
    /// cancelled, and its messages are dead letters, which are not sent again while it is disabled. Its key and secret
    /// are removed, and its records stay. A principal that is enabled has no key until
    /// [`PutPrincipal`](Self::PutPrincipal) gives it one, so that keys can move. The outcome is the number of principals
    /// that were not disabled before.
    KeepPrincipals {
        /// The principals.
        principals: Vec<String>,
        /// The beginnings of the ids of others.
        prefixes: Vec<String>,
    },
    /// Removes all data of a principal: its agents with their inboxes, the messages that it has sent, its tasks with
    /// their questions, its posts and keys. The principal itself stays, and so do agents of
    /// [`RegistrySource::Config`](crate::RegistrySource::Config), whose inboxes belong to all principals. A change removes
    /// about 16 MiB of text, or ends a page of the tasks of others at an agent. The outcome is the number of its records: the
    /// erasure is complete with zero.
    /// [`Store::erasures`](crate::Store::erasures) has the principal until
    /// [`EndErasure`](Self::EndErasure), for what is not in the store.
    ErasePrincipal {
        /// The principal.
        principal: String,
    },
    /// Ends an erasure, after everything of the principal was removed. The outcome is the number of erasures.
    EndErasure {
        /// The principal.
        principal: String,
    },
    /// Removes what has ended before a time: acknowledged messages, tasks with their questions, posts. Dead letters
    /// stay, and tasks whose callback is due. The outcome is the number of records. At most
    /// [`StoreSettings::page_entries`](crate::StoreSettings::page_entries) messages, tasks and posts are removed, so
    /// the caller repeats it until there are none.
    Purge {
        /// The time, in milliseconds since 1970.
        ended_before: u64,
        /// The principal that has sent or created them. By default those of all are removed.
        principal: Option<String>,
    },
}

/// The outcome of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchOutcome {
    /// All changes were applied. Each has an outcome, in their order.
    Applied(Vec<ChangeOutcome>),
    /// Nothing was applied, because [`StoreChange::Remember`] has found the key of the same request.
    Repeated(SeenAnswer),
}

impl BatchOutcome {
    /// Returns the outcome of a change, if the batch was applied.
    #[must_use]
    pub fn of(&self, change: usize) -> Option<&ChangeOutcome> {
        match self {
            BatchOutcome::Applied(outcomes) => outcomes.get(change),
            BatchOutcome::Repeated(_) => None,
        }
    }
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeOutcome {
    /// It was applied.
    Done,
    /// The record was there already, with the same content.
    Duplicate,
    /// The entry has become a dead letter.
    Dead,
    /// The new version of the task.
    Version(u64),
    /// The number of records that were changed or removed.
    Count(u64),
}
