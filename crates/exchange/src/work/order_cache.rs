//! The results of the work orders of a connection that have an id, so that a repeated order is not
//! performed twice.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use duologue_rpc::{CancellationToken, Lock as _};
use duologue_schema::envelope::{EnvelopeError, EnvelopeErrorCode};
use duologue_schema::serialized_len;
use duologue_schema::work::{WorkInput, WorkResult};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};

use crate::envelope::id_cache::Fingerprints;
use crate::limits::{WORK_RESULT_BYTES, WORK_RESULTS};

/// The outcome of an order.
pub(crate) type WorkOutcome = Result<WorkResult, EnvelopeError>;

type RunningOrder = Shared<BoxFuture<'static, WorkOutcome>>;

/// The orders of a connection that run or have finished, by id. Only outputs are kept: an order that
/// could not be attempted may be tried again.
#[derive(Default)]
pub(crate) struct OrderCache {
    /// Fingerprints of orders, to compare repeated ones.
    prints: Fingerprints,
    known: Mutex<KnownOrders>,
}

#[derive(Default)]
struct KnownOrders {
    orders: HashMap<String, KnownOrder>,
    /// The locks of the runs, by the id of their order: the runs of one order do not overlap.
    turns: HashMap<String, Arc<tokio::sync::Mutex<()>>>,
    /// The ids of the finished orders, oldest first.
    finished: VecDeque<String>,
    /// The size of the results of the finished orders.
    bytes: usize,
    /// The number of runs so far.
    runs: u64,
}

struct KnownOrder {
    /// The fingerprint of the order.
    content: u128,
    state: OrderState,
}

enum OrderState {
    Running(OrderRun),
    /// The result and its size. `None` for a result that is not kept.
    Finished(Option<(Box<WorkResult>, usize)>),
}

impl OrderState {
    /// Returns the outcome for a repetition of a finished order.
    fn repeated(&self) -> Option<WorkOutcome> {
        match self {
            OrderState::Running(_) => None,
            OrderState::Finished(Some((result, _))) => Some(Ok((**result).clone().duplicate(true))),
            OrderState::Finished(None) => {
                let text = "the order was performed before, and its output is not kept";
                Some(Err(EnvelopeError::of(EnvelopeErrorCode::NotFound, text)))
            }
        }
    }

    /// Removes the result. Returns its size.
    fn drop_result(&mut self) -> usize {
        match self {
            OrderState::Running(_) => 0,
            OrderState::Finished(kept) => kept.take().map_or(0, |(_, size)| size),
        }
    }
}

/// An order that runs.
struct OrderRun {
    number: u64,
    /// Weak, so that a withdrawn order is dropped.
    outcome: WeakShared<BoxFuture<'static, WorkOutcome>>,
    calls: Arc<OrderCalls>,
}

/// The calls that wait for a run.
#[derive(Default)]
struct OrderCalls {
    waiting: Mutex<usize>,
    /// Cancelled when the last call is withdrawn.
    withdrawn: CancellationToken,
}

impl OrderCalls {
    /// Adds a call. Returns `None` if all calls so far were withdrawn.
    fn join(self: &Arc<Self>) -> Option<OrderCall> {
        let mut waiting = self.waiting.lock_unpoisoned();
        if self.withdrawn.is_cancelled() {
            return None;
        }
        *waiting += 1;
        Some(OrderCall(Some(self.clone())))
    }
}

/// One call that waits for a run. Dropping it withdraws the call.
struct OrderCall(Option<Arc<OrderCalls>>);

impl OrderCall {
    /// Waits for the outcome. `withdrawn` ends the interest of this call; the run then has the rest of
    /// the time that this future is polled.
    async fn outcome(mut self, withdrawn: CancellationToken, mut run: RunningOrder) -> WorkOutcome {
        tokio::select! {
            biased;
            outcome = &mut run => {
                // The order is not withdrawn.
                self.0 = None;
                return outcome;
            }
            () = withdrawn.cancelled() => drop(self),
        }
        run.await
    }
}

impl Drop for OrderCall {
    fn drop(&mut self) {
        let Some(calls) = self.0.take() else { return };
        let mut waiting = calls.waiting.lock_unpoisoned();
        *waiting -= 1;
        if *waiting == 0 {
            calls.withdrawn.cancel();
        }
    }
}

impl OrderCache {
    /// Performs an order with `work`, joins the same order that is running, or returns its earlier
    /// result. `withdrawn` is the token of this call. The token for `work` is cancelled when all calls
    /// that wait for the run are withdrawn. Another run of the order begins when that run has ended.
    ///
    /// Orders are compared as JSON values: the order of members and the spelling of numbers do not
    /// matter.
    ///
    /// # Errors
    ///
    /// `conflict` for another order with the same id.
    pub(crate) fn perform(
        self: &Arc<Self>,
        id: &str,
        input: WorkInput,
        withdrawn: CancellationToken,
        work: impl FnOnce(WorkInput, CancellationToken) -> BoxFuture<'static, WorkOutcome>,
    ) -> Result<BoxFuture<'static, WorkOutcome>, EnvelopeError> {
        let content = self.prints.of_json(&input);
        let mut known = self.known.lock_unpoisoned();
        if let Some(order) = known.orders.get(id) {
            if order.content != content {
                let text = "another work order with this id was sent on this connection";
                return Err(EnvelopeError::of(EnvelopeErrorCode::Conflict, text));
            }
            if let Some(outcome) = order.state.repeated() {
                return Ok(std::future::ready(outcome).boxed());
            }
            if let OrderState::Running(run) = &order.state {
                // In this order: an outcome that is dropped here would take the lock again.
                let joined = run.calls.join().and_then(|call| Some((call, run.outcome.upgrade()?)));
                if let Some((call, outcome)) = joined {
                    let outcome = call.outcome(withdrawn, outcome);
                    return Ok(outcome.map(|outcome| Ok(outcome?.duplicate(true))).boxed());
                }
            }
        }
        known.runs += 1;
        let number = known.runs;
        let calls: Arc<OrderCalls> = Arc::default();
        let turn = known.turns.entry(id.to_owned()).or_default().clone();
        let entry = OrderEntry { cache: self.clone(), id: id.to_owned(), number, calls: calls.clone(), turn };
        let work = work(input, calls.withdrawn.clone());
        let run: RunningOrder = entry.run(work).boxed().shared();
        let Some((call, outcome)) = calls.join().zip(run.downgrade()) else { return Ok(run.boxed()) };
        let state = OrderState::Running(OrderRun { number, outcome, calls });
        known.orders.insert(id.to_owned(), KnownOrder { content, state });
        Ok(call.outcome(withdrawn, run).boxed())
    }

    /// Returns the outcome for a repetition of a finished order.
    fn repeated(&self, id: &str) -> Option<WorkOutcome> {
        self.known.lock_unpoisoned().orders.get(id)?.state.repeated()
    }

    /// Keeps the result of a run, and drops the oldest ones that do not fit. A run that was withdrawn may still have a
    /// result for the calls that wait for the next run.
    fn finish(&self, run: &OrderEntry, outcome: &WorkOutcome) {
        let mut guard = self.known.lock_unpoisoned();
        let known = &mut *guard;
        let Some(order) = known.orders.get_mut(&run.id) else { return };
        let OrderState::Running(current) = &order.state else { return };
        // A worker that gave up because all calls were withdrawn has no result for the next one.
        let gave_up = |result: &WorkResult| !result.output.success && run.calls.withdrawn.is_cancelled();
        let Some(result) = outcome.as_ref().ok().filter(|result| !gave_up(result)) else {
            if current.number == run.number {
                known.orders.remove(&run.id);
            }
            return;
        };
        let size = serialized_len(result, WORK_RESULT_BYTES);
        order.state = OrderState::Finished(size.map(|size| (Box::new(result.clone()), size)));
        known.finished.push_back(run.id.clone());
        known.bytes += size.unwrap_or(0);
        if known.finished.len() > WORK_RESULTS
            && let Some(oldest) = known.finished.pop_front()
            && let Some(mut order) = known.orders.remove(&oldest)
        {
            known.bytes -= order.state.drop_result();
        }
        // A forgotten order runs again, so the results go first. There are few orders.
        for id in &known.finished {
            if known.bytes <= WORK_RESULT_BYTES {
                break;
            }
            known.bytes -= known.orders.get_mut(id).map_or(0, |order| order.state.drop_result());
        }
    }
}

/// A run of an order.
struct OrderEntry {
    cache: Arc<OrderCache>,
    id: String,
    number: u64,
    calls: Arc<OrderCalls>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl OrderEntry {
    /// Performs the order when an earlier run of it has ended.
    async fn run(self, work: BoxFuture<'static, WorkOutcome>) -> WorkOutcome {
        // A withdrawn run has a grace period, so it may still work.
        let _turn = self.turn.lock().await;
        if let Some(outcome) = self.cache.repeated(&self.id) {
            return outcome;
        }
        if self.calls.withdrawn.is_cancelled() {
            return Err(EnvelopeError::of(EnvelopeErrorCode::Cancelled, "it was withdrawn"));
        }
        let outcome = work.await;
        self.cache.finish(&self, &outcome);
        outcome
    }
}

/// Removes the entry of an order that was withdrawn.
impl Drop for OrderEntry {
    fn drop(&mut self) {
        let mut guard = self.cache.known.lock_unpoisoned();
        let known = &mut *guard;
        let state = known.orders.get(&self.id).map(|order| &order.state);
        if matches!(state, Some(OrderState::Running(run)) if run.number == self.number) {
            known.orders.remove(&self.id);
        }
        // The other owners are the runs of this order.
        if let Entry::Occupied(turn) = known.turns.entry(std::mem::take(&mut self.id))
            && Arc::strong_count(turn.get()) <= 2
        {
            turn.remove();
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
        let work =
            cache.perform(id, input, CancellationToken::new(), |_, _| std::future::ready(outcome).boxed())?;
        work.now_or_never().expect("at once")
    }

    fn counts(cache: &OrderCache) -> (usize, usize) {
        let known = cache.known.lock_unpoisoned();
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
        let (first_call, other) = (CancellationToken::new(), CancellationToken::new);
        let mut withdrawn = None;
        let work = |_, token| {
            withdrawn = Some(token);
            receiver.map(|_| result("slow")).boxed()
        };
        let mut first = cache.perform("a", order(1), first_call.clone(), work).unwrap();
        let again = cache.perform("a", order(1), other(), |_, _| unreachable!()).unwrap();
        assert!(cache.perform("a", order(2), other(), |_, _| unreachable!()).is_err());
        // The first request may be withdrawn meanwhile. The worker does not learn of it.
        first_call.cancel();
        assert!((&mut first).now_or_never().is_none());
        assert!(!withdrawn.unwrap().is_cancelled());
        drop(first);
        sender.send(()).unwrap();
        let again = again.await.unwrap();
        assert_eq!((again.output.summary.as_str(), again.duplicate), ("slow", true));
        assert_eq!(counts(&cache), (1, 1));
    }

    #[test]
    fn a_withdrawn_order_frees_its_id() {
        let cache = Arc::new(OrderCache::default());
        let mut withdrawn = None;
        let pending = |_, token: CancellationToken| {
            withdrawn = Some(token);
            std::future::pending().boxed()
        };
        let first = cache.perform("a", order(1), CancellationToken::new(), pending).unwrap();
        let again = cache.perform("a", order(1), CancellationToken::new(), |_, _| unreachable!()).unwrap();
        let withdrawn = withdrawn.unwrap();
        drop(first);
        assert_eq!((counts(&cache), withdrawn.is_cancelled()), ((1, 0), false));
        drop(again);
        assert!(withdrawn.is_cancelled());
        assert_eq!(counts(&cache), (0, 0));
        assert!(!perform(&cache, "a", order(2), result("second")).unwrap().duplicate);
    }

    /// The worker has a moment to give up. A repetition in that moment begins another run.
    #[test]
    fn a_run_that_gives_up_is_not_joined() {
        let cache = Arc::new(OrderCache::default());
        let gives_up = |_, withdrawn: CancellationToken| {
            let output = WorkOutput::new(false, "gave up", [], Recommendation::Proceed);
            async move {
                withdrawn.cancelled().await;
                Ok(WorkResult::new(output))
            }
            .boxed()
        };
        for is_repeated in [true, false] {
            let call = CancellationToken::new();
            let mut first = cache.perform("a", order(1), call.clone(), gives_up).unwrap();
            assert!((&mut first).now_or_never().is_none());
            call.cancel();
            let again = is_repeated.then(|| {
                // The first run has not been polled since.
                cache.perform("a", order(1), CancellationToken::new(), |_, _| unreachable!()).unwrap()
            });
            if let Some(again) = again {
                assert!((&mut first).now_or_never().is_none());
                drop((first, again));
                continue;
            }
            assert!(!first.now_or_never().unwrap().unwrap().output.success);
            assert_eq!(counts(&cache), (0, 0));
            let again = perform(&cache, "a", order(1), result("second")).unwrap();
            assert_eq!((again.output.summary.as_str(), again.duplicate), ("second", false));
        }
    }

    /// The runs of one order do not overlap: a withdrawn worker may still write files.
    #[tokio::test]
    async fn a_repetition_waits_for_the_run_that_gives_up() {
        let cache = Arc::new(OrderCache::default());
        let busy = Arc::new(Mutex::new(0_u32));
        let run = |gate: tokio::sync::oneshot::Receiver<WorkOutcome>| {
            let busy = busy.clone();
            move |_, _| {
                async move {
                    *busy.lock_unpoisoned() += 1;
                    assert_eq!(*busy.lock_unpoisoned(), 1, "two runs");
                    let outcome = gate.await.unwrap_or(Err(EnvelopeError::internal("dropped")));
                    *busy.lock_unpoisoned() -= 1;
                    outcome
                }
                .boxed()
            }
        };
        let gates = || tokio::sync::oneshot::channel::<WorkOutcome>();
        let failure = || Ok(WorkResult::new(WorkOutput::new(false, "gave up", [], Recommendation::Proceed)));
        for (ends, expected, duplicate) in [
            (Some(failure()), "second", false),
            (Some(result("late")), "late", true),
            (None, "second", false),
        ] {
            let ((release, gate), (second, other)) = (gates(), gates());
            let call = CancellationToken::new();
            let mut first = cache.perform("a", order(1), call.clone(), run(gate)).unwrap();
            assert!((&mut first).now_or_never().is_none());
            call.cancel();
            assert!((&mut first).now_or_never().is_none());
            let again = cache.perform("a", order(1), CancellationToken::new(), run(other)).unwrap();
            let mut again = std::pin::pin!(again);
            second.send(result("second")).unwrap();
            for _ in 0..3 {
                assert!((&mut again).now_or_never().is_none());
            }
            match ends {
                Some(end) => {
                    release.send(end).unwrap();
                    first.now_or_never().unwrap().unwrap();
                }
                // Its grace period is over.
                None => {
                    drop(first);
                    *busy.lock_unpoisoned() = 0;
                }
            }
            // A later call joins the run that waited, or has its result.
            let later =
                cache.perform("a", order(1), CancellationToken::new(), |_, _| unreachable!()).unwrap();
            let again = again.await.unwrap();
            assert_eq!((again.output.summary.as_str(), again.duplicate), (expected, duplicate));
            let later = later.await.unwrap();
            assert_eq!((later.output.summary.as_str(), later.duplicate), (expected, true));
            let mut known = cache.known.lock_unpoisoned();
            assert!(known.turns.is_empty());
            (known.orders, known.finished) = Default::default();
        }
    }

    /// Each run waits for the one before, also for one that has waited itself. An order that is
    /// withdrawn while it waits does not run.
    #[tokio::test]
    async fn no_two_of_many_runs_overlap() {
        let cache = Arc::new(OrderCache::default());
        let begun = Arc::new(Mutex::new(Vec::new()));
        let mut runs = Vec::new();
        let repeat = |number: u32| {
            let (release, gate) = tokio::sync::oneshot::channel::<()>();
            let (call, begun) = (CancellationToken::new(), begun.clone());
            let run = move |_, _| {
                async move {
                    begun.lock_unpoisoned().push(number);
                    let _ = gate.await;
                    Ok(WorkResult::new(WorkOutput::new(false, "gave up", [], Recommendation::Proceed)))
                }
                .boxed()
            };
            let outcome = cache.perform("a", order(1), call.clone(), run).unwrap();
            (outcome, call, release)
        };
        runs.push(repeat(1));
        for number in 1..=3 {
            let (outcome, call, _) = runs.last_mut().unwrap();
            assert!(outcome.now_or_never().is_none());
            assert_eq!(begun.lock_unpoisoned().last(), Some(&number));
            call.cancel();
            assert!(outcome.now_or_never().is_none());
            // The next two wait, and the first of them is withdrawn meanwhile.
            let (mut withdrawn, call, _release) = repeat(99);
            assert!((&mut withdrawn).now_or_never().is_none());
            call.cancel();
            assert!((&mut withdrawn).now_or_never().is_none());
            let (mut next, call, release) = repeat(number + 1);
            assert!((&mut next).now_or_never().is_none());
            assert_eq!(begun.lock_unpoisoned().last(), Some(&number));
            let (first, _, ends) = runs.pop().unwrap();
            ends.send(()).unwrap();
            first.await.unwrap();
            assert_eq!(withdrawn.await.unwrap_err().code, EnvelopeErrorCode::Cancelled);
            runs.push((next, call, release));
        }
        drop(runs);
        assert!(cache.known.lock_unpoisoned().turns.is_empty());
        assert_eq!((counts(&cache), &*begun.lock_unpoisoned()), ((0, 0), &vec![1, 2, 3]));
    }

    #[test]
    fn another_order_of_members_is_the_same_order() {
        let cache = Arc::new(OrderCache::default());
        let with = |json: &str| {
            let mut order = order(1);
            order.task.params = serde_json::from_str(json).unwrap();
            order
        };
        perform(&cache, "a", with(r#"{"x":1,"y":{"a":[2],"b":null}}"#), result("first")).unwrap();
        let same = with(r#"{"y":{"b":null,"a":[2.0]},"x":1e0}"#);
        assert_eq!(perform(&cache, "a", same, result("second")).unwrap().output.summary, "first");
        let other = with(r#"{"x":1,"y":{"a":[2],"b":0}}"#);
        let error = perform(&cache, "a", other, result("second")).unwrap_err();
        assert_eq!(error.code, EnvelopeErrorCode::Conflict);
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
        // A longer one is not kept, and takes no space from the others.
        perform(&cache, "long", order(1), result(&"x".repeat(WORK_RESULT_BYTES))).unwrap();
        assert_eq!(counts(&cache), (WORK_RESULTS, WORK_RESULTS));
        // None of them runs again.
        for (id, is_kept) in [("x", false), ("y", true), ("z", true), ("w", true), ("long", false)] {
            match perform(&cache, id, order(1), result("again")) {
                Ok(repeated) => assert_eq!((repeated.duplicate, is_kept), (true, true), "{id}"),
                Err(error) => assert_eq!((error.code, is_kept), (EnvelopeErrorCode::NotFound, false), "{id}"),
            }
        }
        let mut known = cache.known.lock_unpoisoned();
        let sizes: usize = known.orders.values_mut().map(|order| order.state.drop_result()).sum();
        assert_eq!(sizes, known.bytes);
    }
}
