//! The questions of running tasks, with their places in the sessions.
//!
//! A client of the session can answer a question too. The session decides which answer is the first one, so an answer over REST
//! is given there before it is stored.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use duologue_rpc::Lock as _;
use duologue_store::StoredTaskKey;
use tokio::sync::Mutex as AsyncMutex;

/// The questions that workers have, by their ids.
#[derive(Clone, Default)]
pub(crate) struct AskedQuestions(Arc<Mutex<HashMap<String, Arc<AskedQuestion>>>>);

/// A question of a task in its session.
pub(crate) struct AskedQuestion {
    task: StoredTaskKey,
    pub(crate) session: String,
    /// The position of its record in the log.
    pub(crate) position: u64,
    /// Locked while an answer is given and stored.
    pub(crate) answering: AsyncMutex<()>,
}

/// The entry of a question, until it is dropped.
pub(crate) struct AskedPlace {
    all: AskedQuestions,
    id: String,
    question: Arc<AskedQuestion>,
}

impl AskedQuestions {
    /// Adds a question of a task at a position of a session.
    pub(crate) fn add(&self, task: StoredTaskKey, id: &str, session: &str, position: u64) -> AskedPlace {
        let (session, answering) = (session.to_owned(), AsyncMutex::default());
        let question = Arc::new(AskedQuestion { task, session, position, answering });
        self.0.lock_unpoisoned().insert(id.to_owned(), question.clone());
        AskedPlace { all: self.clone(), id: id.to_owned(), question }
    }

    /// Returns the question of a task that a worker has.
    pub(crate) fn find(&self, task: &StoredTaskKey, id: &str) -> Option<Arc<AskedQuestion>> {
        self.0.lock_unpoisoned().get(id).filter(|question| question.task == *task).cloned()
    }
}

impl AskedPlace {
    /// Waits until an answer that is being given is stored.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub(crate) async fn settled(&self) {
        drop(self.question.answering.lock().await);
    }
}

impl Drop for AskedPlace {
    fn drop(&mut self) {
        self.all.0.lock_unpoisoned().remove(&self.id);
    }
}
