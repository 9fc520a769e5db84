//! The output of running tasks, for the agents that wait for their ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use duologue_rpc::Lock as _;
use duologue_rpc::raw_message::beginning;
use duologue_schema::envelope::OutputChunk;
use duologue_store::StoredTaskKey;
use tokio::sync::Notify;

/// By task, the output that its listeners have not read.
type Listeners = HashMap<StoredTaskKey, Vec<Arc<UnreadOutput>>>;

/// The listeners to the output of tasks.
#[derive(Clone, Default)]
pub(crate) struct TaskOutputs(Arc<Mutex<Listeners>>);

impl TaskOutputs {
    /// Listens to a task from now on, up to a number of bytes. The rest of its output is dropped.
    pub(crate) fn listen(&self, key: &StoredTaskKey, limit: usize) -> OutputListener {
        let text = UnreadText { left: limit, ..UnreadText::default() };
        let unread = Arc::new(UnreadOutput { text: Mutex::new(text), arrived: Notify::new() });
        self.0.lock_unpoisoned().entry(key.clone()).or_default().push(unread.clone());
        OutputListener { outputs: self.clone(), key: key.clone(), unread }
    }

    /// Gives the listeners of a task the next text of its agent.
    pub(crate) fn add(&self, key: &StoredTaskKey, text: &str) {
        let all = self.0.lock_unpoisoned();
        for unread in all.get(key).into_iter().flatten() {
            unread.text.lock_unpoisoned().add(text);
            unread.arrived.notify_one();
        }
    }
}

/// Listens to the output of a task until it is dropped.
pub(crate) struct OutputListener {
    outputs: TaskOutputs,
    key: StoredTaskKey,
    unread: Arc<UnreadOutput>,
}

impl OutputListener {
    /// Waits until there may be output.
    ///
    /// # Cancel safety
    ///
    /// No output is lost if the future is dropped.
    pub(crate) async fn arrived(&self) {
        self.unread.arrived.notified().await;
    }

    /// Returns the output since the last chunk. `is_last` marks the chunk at the end of a task that has succeeded, unless output
    /// was dropped. A task without output has no chunks.
    pub(crate) fn take(&self, is_last: bool) -> Option<OutputChunk> {
        self.unread.text.lock_unpoisoned().take(is_last)
    }
}

impl Drop for OutputListener {
    fn drop(&mut self) {
        let mut all = self.outputs.0.lock_unpoisoned();
        let Some(listeners) = all.get_mut(&self.key) else { return };
        listeners.retain(|listener| !Arc::ptr_eq(listener, &self.unread));
        if listeners.is_empty() {
            all.remove(&self.key);
        }
    }
}

struct UnreadOutput {
    text: Mutex<UnreadText>,
    arrived: Notify,
}

#[derive(Default)]
struct UnreadText {
    waiting: String,
    /// The bytes that may follow.
    left: usize,
    is_cut: bool,
    /// The position of the next chunk.
    position: u64,
}

impl UnreadText {
    fn add(&mut self, text: &str) {
        if self.is_cut {
            return;
        }
        let kept = beginning(text, self.left);
        self.waiting.push_str(kept);
        self.left -= kept.len();
        self.is_cut = kept.len() < text.len();
    }

    fn take(&mut self, is_last: bool) -> Option<OutputChunk> {
        let is_last = is_last && !self.is_cut && (self.position > 0 || !self.waiting.is_empty());
        if self.waiting.is_empty() && !is_last {
            return None;
        }
        let text = std::mem::take(&mut self.waiting);
        let chunk = OutputChunk::new(self.position).chunk(text).complete(is_last);
        self.position += 1;
        Some(chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_kept_up_to_its_limit_while_somebody_listens() {
        let (outputs, key) = (TaskOutputs::default(), StoredTaskKey::new("alice", "b", "t"));
        outputs.add(&key, "nobody listens");
        let (whole, cut) = (outputs.listen(&key, 6), outputs.listen(&key, 5));
        let read = |listener: &OutputListener, is_last| {
            let chunk = listener.take(is_last)?;
            Some((chunk.position, chunk.text().unwrap(), chunk.complete))
        };
        assert!(read(&whole, true).is_none(), "a task without output has no chunks");
        outputs.add(&key, "a");
        outputs.add(&key, "b");
        assert_eq!(read(&whole, false), Some((0, "ab".to_owned(), false)));
        assert!(read(&whole, false).is_none());
        outputs.add(&key, "cdé");
        assert_eq!(read(&whole, true), Some((1, "cdé".to_owned(), true)));
        // It is cut between characters, and then it is not complete.
        outputs.add(&key, "x");
        assert_eq!(read(&cut, true), Some((0, "abcd".to_owned(), false)));
        assert!(read(&cut, true).is_none());
        drop((whole, cut));
        assert!(outputs.0.lock_unpoisoned().is_empty());
    }
}
