//! The numbers of records.

use duologue_schema::envelope::TaskState;

use super::outbox::OutboxState;

/// The numbers of the records of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStatistics {
    /// The tasks by agent and state.
    pub tasks: Vec<TaskCount>,
    /// The tasks that no agent has started, by agent and band.
    pub waiting_tasks: Vec<QueueDepth>,
    /// The messages that no worker has and that can be delivered, by agent and band.
    pub waiting_messages: Vec<QueueDepth>,
    /// The posts of the outbox by state.
    pub outbox: Vec<OutboxCount>,
}

/// The number of tasks of an agent in a state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskCount {
    /// The agent.
    pub agent: String,
    /// The state.
    pub state: TaskState,
    /// The number.
    pub count: u64,
}

/// The length of a band of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueDepth {
    /// The agent.
    pub agent: String,
    /// The band, 0 to 3. Bands with higher numbers are more urgent.
    pub band: u8,
    /// The number of entries.
    pub count: u64,
    /// The time at which the oldest one was created, in milliseconds since 1970.
    pub oldest: u64,
}

/// The number of posts in a state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutboxCount {
    /// The state.
    pub state: OutboxState,
    /// The number.
    pub count: u64,
    /// The time at which the oldest one was created, in milliseconds since 1970.
    pub oldest: u64,
}
