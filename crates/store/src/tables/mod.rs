//! The tables of a server: registry, inboxes, tasks, questions, outbox, seen ids and principals.
//!
//! [`Store`] is the interface, and `SqliteStore` keeps the tables in one file.

mod agents;
mod batch;
mod messages;
mod outbox;
mod principals;
mod settings;
mod sqlite;
mod statistics;
mod store;
mod tasks;
mod values;
mod watch;

pub use agents::{AgentQuery, RegisteredAgent, RegistrySource, RegistryStatus};
pub use batch::{BatchOutcome, ChangeOutcome, Durability, StoreBatch, StoreChange};
pub use messages::{InboxKey, MessageQuery, MessageSender, MessageState, NewInboxMessage, StoredMessage};
pub use outbox::{NewDelivery, OutboxEntry, OutboxKind, OutboxQuery, OutboxState};
pub use principals::{SeenAnswer, SeenId, SeenKey, StoredPrincipal};
pub use settings::{BatchObserver, StoreSettings};
pub use sqlite::SqliteStore;
pub use statistics::{OutboxCount, QueueDepth, StoreStatistics, TaskCount};
pub use store::{ExportPage, ExportPosition, Store, SweepReport, SweepTimes};
pub use tasks::{
    NewQuestion, NewTask, QuestionQuery, QuestionState, StoredQuestion, StoredTask, StoredTaskKey,
    TaskFailure, TaskQuery, TaskUpdate,
};
pub use values::{Claim, Claimed, JsonText, LeaseKind, LeaseToken, Leased, StorePage, StoreTime};
pub use watch::{StoreTopic, StoreWatch};
