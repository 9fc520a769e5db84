//! Work of stages outside of their calls.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use duologue_rpc::Lock;
use futures_util::task::AtomicWaker;

use crate::error::{Error, Result};
use crate::link::StageLink;

pub(crate) type Job = Box<dyn FnOnce(&mut StageLink<'_>) + Send>;

/// The jobs that wait for the task of a chain.
pub(crate) struct JobQueue {
    /// The jobs with the index of their stage; `None` after the end.
    jobs: Mutex<Option<VecDeque<(usize, Job)>>>,
    limit: usize,
    /// Wakes the task of the chain.
    pub(crate) task: AtomicWaker,
}

impl JobQueue {
    pub(crate) fn new(limit: usize) -> Self {
        JobQueue { jobs: Mutex::new(Some(VecDeque::new())), limit: limit.max(1), task: AtomicWaker::new() }
    }

    pub(crate) fn next(&self) -> Option<(usize, Job)> {
        self.jobs.lock_unpoisoned().as_mut()?.pop_front()
    }

    pub(crate) fn close(&self) {
        // Jobs may own handles, which use the lock.
        let jobs = self.jobs.lock_unpoisoned().take();
        drop(jobs);
    }
}

/// Sends messages of a stage outside of its calls, for example from a task. Handles are cheap to clone.
///
/// ```
/// use duologue_proxy::{Proxy, Side, Decision};
///
/// // Answers a request of the client in a task.
/// let proxy = Proxy::new().on_client_message(|message, link| {
///     let Some(id) = message.id().filter(|_| message.method() == Some("_example/slow")) else {
///         return Decision::Pass;
///     };
///     let (id, handle) = (id.to_owned(), link.handle());
///     tokio::spawn(async move {
///         tokio::time::sleep(std::time::Duration::from_secs(1)).await;
///         handle.run(move |link| {
///             let _ = link.respond(Side::Client, &id, Ok(&"done"));
///         })
///     });
///     Decision::Take
/// });
/// # let _ = proxy;
/// ```
#[derive(Clone)]
pub struct StageHandle {
    queue: Arc<JobQueue>,
    stage: usize,
}

impl StageHandle {
    pub(crate) fn new(queue: Arc<JobQueue>, stage: usize) -> Self {
        StageHandle { queue, stage }
    }

    /// Calls `job` with the link of the stage, as soon as no stage runs. Jobs of a chain run in their order. A job that
    /// panics is logged.
    ///
    /// # Errors
    ///
    /// [`Error::OpenRequests`] if `Limits::in_flight` jobs wait, and [`Error::Ended`].
    pub fn run(&self, job: impl FnOnce(&mut StageLink<'_>) + Send + 'static) -> Result<()> {
        let mut jobs = self.queue.jobs.lock_unpoisoned();
        let waiting = jobs.as_mut().ok_or(Error::Ended)?;
        if waiting.len() >= self.queue.limit {
            return Err(Error::OpenRequests { limit: self.queue.limit });
        }
        waiting.push_back((self.stage, Box::new(job)));
        drop(jobs);
        self.queue.task.wake();
        Ok(())
    }
}

impl std::fmt::Debug for StageHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StageHandle").field("stage", &self.stage).finish_non_exhaustive()
    }
}
