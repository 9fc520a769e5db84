//! The results of the work orders of a connection that have an id, so that a repeated order is not
//! performed twice.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use duologue_rpc::Lock as _;
use duologue_schema::envelope::{EnvelopeError, EnvelopeErrorCode};
use duologue_schema::serialized_len;
use duologue_schema::work::{WorkInput, WorkResult};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};

use crate::limits::{WORK_RESULT_BYTES, WORK_RESULTS};

/// The outcome of an order.
pub(crate) type WorkOutcome = Result<WorkResult, EnvelopeError>;

type RunningOrder = Shared<BoxFuture<'static, WorkOutcome>>;

/// The orders of a connection that run or have finished, by id. Only outputs are kept: an order that
/// could not be attempted may be tried again.
#[derive(Default)]
pub(crate) struct OrderCache(Mutex<KnownOrders>);

#[derive(Default)]
struct KnownOrders {
    orders: HashMap<String, KnownOrder>,
    /// The ids of the finished orders, oldest first.
    finished: VecDeque<String>,
    /// The size of the finished orders and their results.
    bytes: usize,
    /// The number of runs so far.
    runs: u64,
}

struct KnownOrder {
    input: WorkInput,
    state: OrderState,
}

enum OrderState {
    /// Weak, so that a withdrawn order is dropped. With the number of the run.
    Running(WeakShared<BoxFuture<'static, WorkOutcome>>, u64),
    Finished(Box<WorkResult>, usize),
}

impl OrderCache {
    /// Performs an order with `work`, joins the same order that is running, or returns its earlier
    /// result.
    ///
    /// # Errors
    ///
    /// `conflict` for another order with the same id.
    pub(crate) fn perform(
        self: &Arc<Self>,
        id: &str,
        input: WorkInput,
        work: impl FnOnce(WorkInput) -> BoxFuture<'static, WorkOutcome>,
    ) -> Result<BoxFuture<'static, WorkOutcome>, EnvelopeError> {
        let mut known = self.0.lock_unpoisoned();
        if let Some(order) = known.orders.get(id) {
            if order.input != input {
                let text = "another work order with this id was sent on this connection";
                return Err(EnvelopeError::of(EnvelopeErrorCode::Conflict, text));
            }
            match &order.state {
                OrderState::Finished(result, _) => {
                    return Ok(std::future::ready(Ok((**result).clone().duplicate(true))).boxed());
                }
                OrderState::Running(running, _) => {
                    if let Some(running) = running.upgrade() {
                        return Ok(running.map(|outcome| Ok(outcome?.duplicate(true))).boxed());
                    }
                }
            }
        }
        known.runs += 1;
        let entry = OrderEntry { cache: self.clone(), id: id.to_owned(), run: known.runs };
        let running: RunningOrder =
            work(input.clone()).inspect(move |outcome| entry.finish(outcome)).boxed().shared();
        if let Some(weak) = running.downgrade() {
            let state = OrderState::Running(weak, known.runs);
            known.orders.insert(id.to_owned(), KnownOrder { input, state });
        }
        Ok(running.boxed())
    }

    /// Keeps the result of an order, and evicts the oldest ones.
    fn finish(&self, id: &str, outcome: &WorkOutcome) {
        let mut guard = self.0.lock_unpoisoned();
        let known = &mut *guard;
        let Some(order) = known.orders.get_mut(id) else { return };
        let Ok(result) = outcome else {
            known.orders.remove(id);
            return;
        };
        let size = |limit| {
            let input = serialized_len(&order.input, limit)?;
            Some(input + serialized_len(result, limit - input)?)
        };
        let Some(size) = size(WORK_RESULT_BYTES) else {
            known.orders.remove(id);
            return;
        };
        order.state = OrderState::Finished(Box::new(result.clone()), size);
        known.finished.push_back(id.to_owned());
        known.bytes += size;
        while known.finished.len() > WORK_RESULTS || known.bytes > WORK_RESULT_BYTES {
            let Some(oldest) = known.finished.pop_front() else { return };
            if let Some(KnownOrder { state: OrderState::Finished(_, size), .. }) =
                known.orders.remove(&oldest)
            {
                known.bytes -= size;
            }
        }
    }
}

/// The entry of an order that runs.
struct OrderEntry {
    cache: Arc<OrderCache>,
    id: String,
    run: u64,
}

impl OrderEntry {
    fn finish(&self, outcome: &WorkOutcome) {
        self.cache.finish(&self.id, outcome);
    }
}

/// Removes the entry of an order that was withdrawn.
impl Drop for OrderEntry {
    fn drop(&mut self) {
        let mut known = self.cache.0.lock_unpoisoned();
        if matches!(known.orders.get(&self.id), Some(KnownOrder { state: OrderState::Running(_, run), .. }) if *run == self.run)
        {
            known.orders.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use duologue_schema::Members;
    use duologue_schema::work::{Recommendation, WorkContext, WorkOutput, WorkTask};

    use super::*;

    fn order(iteration: u32) -> WorkInput {
        let task = WorkTask::new("write", Members::new());
        WorkInput::new(WorkContext::new("login", "feature", iteration), [("feature_root", ".")], task)
    }

    fn result(summary: &str) -> WorkOutcome {
        Ok(WorkResult::new(WorkOutput::new(true, summary, [], Recommendation::Proceed)))
    }

    /// Performs an order whose run has this outcome at once.
    fn perform(cache: &Arc<OrderCache>, id: &str, input: WorkInput, outcome: WorkOutcome) -> WorkOutcome {
        let work = cache.perform(id, input, |_| std::future::ready(outcome).boxed())?;
        work.now_or_never().expect("at once")
    }

    fn counts(cache: &OrderCache) -> (usize, usize) {
        let known = cache.0.lock_unpoisoned();
        (known.orders.len(), known.finished.len())
    }

    #[test]
    fn a_repeated_order_has_the_first_result() {
        let cache = Arc::new(OrderCache::default());
        let first = perform(&cache, "a", order(1), result("first")).unwrap();
        assert!(!first.duplicate);
        let again = perform(&cache, "a", order(1), result("second")).unwrap();
        assert_eq!((again.output.summary.as_str(), again.duplicate), ("first", true));
        let error = perform(&cache, "a", order(2), result("other")).unwrap_err();
        assert_eq!((error.code.clone(), error.retryable), (EnvelopeErrorCode::Conflict, false));
        assert_eq!(perform(&cache, "b", order(1), result("second")).unwrap().output.summary, "second");
    }

    #[test]
    fn an_order_that_could_not_be_attempted_frees_its_id() {
        let cache = Arc::new(OrderCache::default());
        perform(&cache, "a", order(1), Err(EnvelopeError::overloaded("later"))).unwrap_err();
        assert_eq!(counts(&cache), (0, 0));
        assert!(!perform(&cache, "a", order(2), result("second")).unwrap().duplicate);
    }

    #[tokio::test]
    async fn an_order_that_runs_is_joined() {
        let cache = Arc::new(OrderCache::default());
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let work = |_| receiver.map(|_| result("slow")).boxed();
        let first = cache.perform("a", order(1), work).unwrap();
        let again = cache.perform("a", order(1), |_| unreachable!()).unwrap();
        assert!(cache.perform("a", order(2), |_| unreachable!()).is_err());
        // The first request may be withdrawn meanwhile.
        drop(first);
        sender.send(()).unwrap();
        let again = again.await.unwrap();
        assert_eq!((again.output.summary.as_str(), again.duplicate), ("slow", true));
        assert_eq!(counts(&cache), (1, 1));
    }

    #[test]
    fn a_withdrawn_order_frees_its_id() {
        let cache = Arc::new(OrderCache::default());
        let pending = |_| std::future::pending().boxed();
        let (first, again) =
            (cache.perform("a", order(1), pending).unwrap(), cache.perform("a", order(1), pending).unwrap());
        drop(first);
        assert_eq!(counts(&cache), (1, 0));
        drop(again);
        assert_eq!(counts(&cache), (0, 0));
        assert!(!perform(&cache, "a", order(2), result("second")).unwrap().duplicate);
    }

    #[test]
    fn the_oldest_results_are_evicted() {
        let cache = Arc::new(OrderCache::default());
        for number in 0..=WORK_RESULTS {
            perform(&cache, &number.to_string(), order(1), result("")).unwrap();
        }
        assert_eq!(counts(&cache), (WORK_RESULTS, WORK_RESULTS));
        assert!(perform(&cache, "1", order(1), result("")).unwrap().duplicate);
        assert!(!perform(&cache, "0", order(1), result("")).unwrap().duplicate);

        let third = "x".repeat(WORK_RESULT_BYTES / 3 - 1000);
        for id in ["x", "y", "z", "w"] {
            perform(&cache, id, order(1), result(&third)).unwrap();
        }
        assert_eq!(counts(&cache), (3, 3));
        let known = cache.0.lock_unpoisoned();
        let sizes = known.orders.values().map(|order| match order.state {
            OrderState::Finished(_, size) => size,
            OrderState::Running(..) => 0,
        });
        assert_eq!(sizes.sum::<usize>(), known.bytes);
        drop(known);
        // A longer one is not kept, and evicts none.
        perform(&cache, "long", order(1), result(&"x".repeat(WORK_RESULT_BYTES))).unwrap();
        assert_eq!(counts(&cache), (3, 3));
    }
}
