//! The chain of stages: a state machine without I/O.

use std::collections::VecDeque;
use std::future::Future;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;

use duologue_rpc::Limits;
use duologue_rpc::raw_message::response_line;
use duologue_schema::Error as RpcError;
use duologue_transcript::Side;

use crate::error::{Error, Result};
use crate::jobs::{Job, JobQueue};
use crate::link::{StageCall, StageLink};
use crate::message::StageMessage;
use crate::proxy::MESSAGES_PER_LINE;
use crate::stage::{Decision, ProxyStage, Replacement};
use crate::stage_ids::{IdMatch, PerSide, StageIds};

/// The stages and everything that they share.
#[derive(Debug)]
pub(crate) struct Chain {
    slots: Vec<StageSlot>,
    core: ChainCore,
    /// The limits, apart from the core because messages borrow them.
    limits: Limits,
}

struct StageSlot {
    stage: Box<dyn ProxyStage>,
    ids: StageIds,
}

impl std::fmt::Debug for StageSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StageSlot").field("ids", &self.ids).finish_non_exhaustive()
    }
}

/// The state that the links of all stages use.
pub(crate) struct ChainCore {
    /// The messages that wait for their next stage. Each step appends its messages, so those between any two stages keep
    /// their order.
    hops: VecDeque<Hop>,
    /// The bytes of these messages for each side.
    hop_bytes: PerSide<usize>,
    /// The lines for each side.
    output: PerSide<Output>,
    /// The ids that are kept for all stages.
    pub(crate) kept: usize,
    /// The open requests of stages.
    pub(crate) calls: usize,
    pub(crate) jobs: Arc<JobQueue>,
    in_flight: usize,
    frame_bytes: usize,
    output_bytes_hard: usize,
    /// The messages that the stages may send because of the current line.
    messages_left: usize,
    /// The beginning of the id of every request of a stage.
    id_prefix: String,
    last_call: u64,
}

impl std::fmt::Debug for ChainCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChainCore").field("kept", &self.kept).finish_non_exhaustive()
    }
}

/// A message on its way through the stages.
#[derive(Debug)]
pub(crate) struct Hop {
    pub(crate) from: Side,
    /// The number of stages that it has passed, counted in its direction.
    pub(crate) passed: usize,
    /// The line with its end.
    pub(crate) line: Vec<u8>,
}

/// The lines for one side that were not written yet.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    /// The bytes at the start that were written.
    written: usize,
    /// True if the last line has no end.
    is_open: bool,
}

/// The capacity that an empty output keeps.
const KEPT_CAPACITY: usize = 256 * 1024;

impl Output {
    fn push(&mut self, line: &[u8]) {
        if std::mem::take(&mut self.is_open) {
            self.bytes.push(b'\n');
        }
        self.bytes.extend_from_slice(line);
        self.is_open = !line.is_empty() && !line.ends_with(b"\n");
    }

    /// Returns the unwritten bytes.
    pub(crate) fn unwritten(&self) -> &[u8] {
        self.bytes.get(self.written..).unwrap_or_default()
    }

    /// Removes bytes that were written.
    pub(crate) fn consume(&mut self, count: usize) {
        self.written += count;
        if self.written >= self.bytes.len() {
            self.clear();
        } else if self.written >= KEPT_CAPACITY {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_CAPACITY);
        self.written = 0;
    }
}

impl ChainCore {
    pub(crate) fn push_hop(&mut self, hop: Hop) {
        *self.hop_bytes.of_mut(hop.from.other()) += hop.line.len();
        self.hops.push_back(hop);
    }

    fn pop_hop(&mut self) -> Option<Hop> {
        let hop = self.hops.pop_front()?;
        *self.hop_bytes.of_mut(hop.from.other()) -= hop.line.len();
        Some(hop)
    }

    /// Returns an error if no more ids may be kept.
    pub(crate) fn room_for_id(&self) -> Result<()> {
        if self.kept < self.in_flight { Ok(()) } else { Err(Error::OpenRequests { limit: self.in_flight }) }
    }

    /// Returns an error if a stage may not send a message of this length, else counts it.
    pub(crate) fn room_for_message(&mut self, to: Side, length: usize) -> Result<()> {
        let bytes = self.output.of(to).unwritten().len() + self.hop_bytes.of(to);
        if length > self.frame_bytes.saturating_add(1) {
            return Err(Error::TooLong { bytes: length - 1, limit: self.frame_bytes });
        }
        if bytes > self.output_bytes_hard {
            return Err(Error::Output { bytes, limit: self.output_bytes_hard });
        }
        let Some(left) = self.messages_left.checked_sub(1) else {
            return Err(Error::MessagesPerLine { limit: MESSAGES_PER_LINE });
        };
        self.messages_left = left;
        Ok(())
    }

    /// Returns a new call and the token of its id.
    pub(crate) fn next_call(&mut self) -> (StageCall, String) {
        self.last_call += 1;
        (StageCall(self.last_call), format!("\"{}{}\"", self.id_prefix, self.last_call))
    }
}

/// The result of a step of a message.
enum Step {
    /// The message goes on.
    Passed,
    /// This line goes on in its place.
    Replaced(Vec<u8>),
    /// The message has ended here.
    Ended,
}

impl Chain {
    pub(crate) fn new(stages: Vec<Box<dyn ProxyStage>>, limits: Limits, jobs: Arc<JobQueue>) -> Self {
        let core = ChainCore {
            hops: VecDeque::new(),
            hop_bytes: PerSide::default(),
            output: PerSide::default(),
            kept: 0,
            calls: 0,
            jobs,
            in_flight: limits.in_flight,
            frame_bytes: limits.frame_bytes,
            output_bytes_hard: limits.output_bytes_hard,
            messages_left: MESSAGES_PER_LINE,
            id_prefix: format!("duologue-proxy-{:016x}-", RandomState::new().build_hasher().finish()),
            last_call: 0,
        };
        let slots = stages.into_iter().map(|stage| StageSlot { stage, ids: StageIds::default() });
        Chain { slots: slots.collect(), core, limits }
    }

    /// Returns the lines for a side.
    pub(crate) fn output(&mut self, to: Side) -> &mut Output {
        self.core.output.of_mut(to)
    }

    /// Returns the unwritten bytes for a side.
    pub(crate) fn unwritten(&self, to: Side) -> usize {
        self.core.output.of(to).unwritten().len()
    }

    /// Passes a line with its end through the stages.
    pub(crate) fn feed(&mut self, from: Side, raw: &[u8]) {
        self.core.messages_left = MESSAGES_PER_LINE;
        let Chain { slots, core, limits } = self;
        let message = StageMessage::new(raw, limits);
        if core.calls > 0 && is_forged(&message, &core.id_prefix) {
            let error = RpcError::invalid_request("the id is in use by a request of the proxy");
            if let Some(line) = message.id().and_then(|id| response_line(id, Err(&error)).ok()) {
                // As the answer of an agent in front of the first stage.
                core.output.of_mut(from).push(&line);
            }
            return;
        }
        for passed in 0..slots.len() {
            let line = match step(slots, core, from, passed, &message) {
                Step::Passed if core.hops.is_empty() => continue,
                Step::Passed => raw.to_vec(),
                Step::Replaced(line) => line,
                Step::Ended => return self.pass_hops(),
            };
            core.push_hop(Hop { from, passed: passed + 1, line });
            return self.pass_hops();
        }
        core.output.of_mut(from.other()).push(raw);
    }

    /// Passes all messages on that wait between stages, one stage at a time.
    fn pass_hops(&mut self) {
        let Chain { slots, core, limits } = self;
        while let Some(Hop { from, passed, line }) = core.pop_hop() {
            if passed >= slots.len() {
                core.output.of_mut(from.other()).push(&line);
                continue;
            }
            let step = step(slots, core, from, passed, &StageMessage::new(&line, limits));
            let line = match step {
                Step::Passed => line,
                Step::Replaced(line) => line,
                Step::Ended => continue,
            };
            core.push_hop(Hop { from, passed: passed + 1, line });
        }
    }

    /// Runs a job of a stage.
    pub(crate) fn run_job(&mut self, stage: usize, job: Job) {
        self.core.messages_left = MESSAGES_PER_LINE;
        let (stages, core) = (self.slots.len(), &mut self.core);
        if let Some(StageSlot { ids, .. }) = self.slots.get_mut(stage) {
            let mut link = StageLink { core, ids, stage, stages };
            if catch_unwind(AssertUnwindSafe(|| job(&mut link))).is_err() {
                tracing::error!(stage, "a job of a stage of the proxy panicked");
            }
        }
        self.pass_hops();
    }

    /// Notes the end of the output of a side. Requests of stages to it fail.
    pub(crate) fn ended(&mut self, side: Side) {
        self.core.messages_left = MESSAGES_PER_LINE;
        let stages = self.slots.len();
        for passed in 0..stages {
            let stage = index(stages, side, passed);
            let Some(StageSlot { stage: inner, ids }) = self.slots.get_mut(stage) else { continue };
            let calls = ids.take_calls(side);
            self.core.kept -= calls.len();
            self.core.calls -= calls.len();
            let mut link = StageLink { core: &mut self.core, ids, stage, stages };
            let told = catch_unwind(AssertUnwindSafe(|| {
                for call in calls {
                    let error = RpcError::internal("the receiver of the request has ended the connection");
                    inner.response(call, Err(error), &mut link);
                }
                inner.ended(side, &mut link);
            }));
            if told.is_err() {
                tracing::error!(stage, "a stage of the proxy panicked");
            }
            self.pass_hops();
        }
    }

    /// Returns a future if stages delay the connection.
    pub(crate) fn wait(&mut self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        let mut all: Option<Pin<Box<dyn Future<Output = ()> + Send>>> = None;
        for next in self.slots.iter_mut().filter_map(|slot| slot.stage.wait()) {
            all = Some(match all {
                None => next,
                Some(before) => Box::pin(async move {
                    before.await;
                    next.await;
                }),
            });
        }
        all
    }
}

/// Returns the index of the stage that a message reaches after `passed` stages.
fn index(stages: usize, from: Side, passed: usize) -> usize {
    match from {
        Side::Client => passed,
        Side::Agent => stages.saturating_sub(passed + 1),
    }
}

/// Returns true for a request with the id of an open request of a stage.
fn is_forged(message: &StageMessage<'_>, id_prefix: &str) -> bool {
    memchr::memmem::find(message.raw(), id_prefix.as_bytes()).is_some()
        && message.is_request()
        && message.id().is_some_and(|id| id.contains(id_prefix))
}

/// Passes a message to one stage and carries out its decision.
fn step(
    slots: &mut [StageSlot],
    core: &mut ChainCore,
    from: Side,
    passed: usize,
    message: &StageMessage<'_>,
) -> Step {
    let stages = slots.len();
    let stage = index(stages, from, passed);
    let Some(slot) = slots.get_mut(stage) else { return Step::Passed };
    if slot.ids.len() == 0 {
        return call(slot, core, stage, stages, from, message);
    }
    let before = slot.ids.len();
    let found = slot.ids.find(from, message);
    core.kept -= before - slot.ids.len();
    match found {
        None => call(slot, core, stage, stages, from, message),
        Some(IdMatch::Mapped(line)) => {
            match call(slot, core, stage, stages, from, &message.with_raw(&line)) {
                Step::Passed => Step::Replaced(line),
                step => step,
            }
        }
        Some(IdMatch::Own(own)) => {
            core.calls -= 1;
            let outcome = message.outcome();
            let mut link = StageLink { core, ids: &mut slot.ids, stage, stages };
            if catch_unwind(AssertUnwindSafe(|| slot.stage.response(own, outcome, &mut link))).is_err() {
                tracing::error!(stage, "a stage of the proxy panicked on a response");
            }
            Step::Ended
        }
    }
}

fn call(
    slot: &mut StageSlot,
    core: &mut ChainCore,
    stage: usize,
    stages: usize,
    from: Side,
    message: &StageMessage<'_>,
) -> Step {
    let StageSlot { stage: inner, ids } = slot;
    let mut link = StageLink { core, ids, stage, stages };
    let decision = catch_unwind(AssertUnwindSafe(|| match from {
        Side::Client => inner.client_message(message, &mut link),
        Side::Agent => inner.agent_message(message, &mut link),
    }));
    match decision {
        Ok(Decision::Pass) if link.ids.len() == 0 => Step::Passed,
        Ok(_) if link.ids.is_cancel_of_taken(from, message) => Step::Ended,
        Ok(Decision::Pass) => Step::Passed,
        Ok(Decision::Replace(replacement)) => replace(&mut link, from, message, replacement),
        Ok(Decision::Answer(outcome)) => answer(&mut link, from, message, outcome),
        Ok(Decision::Take) => take(&mut link, from, message),
        Ok(Decision::Drop) => answer(&mut link, from, message, Err(dropped())),
        Err(_) => {
            tracing::error!(stage, "a stage of the proxy panicked; its message fails");
            answer(&mut link, from, message, Err(RpcError::internal("a stage of the proxy panicked")))
        }
    }
}

fn dropped() -> RpcError {
    RpcError::internal("a stage of the proxy dropped the message")
}

/// Ends a message with an outcome: a request is answered, and a response goes on with the outcome in place of its own.
fn answer(
    link: &mut StageLink<'_>,
    from: Side,
    message: &StageMessage<'_>,
    outcome: std::result::Result<Box<serde_json::value::RawValue>, RpcError>,
) -> Step {
    let line = |id: &str| response_line(id, outcome.as_deref()).ok();
    if let Some((id, error)) = message.invalid_request() {
        if let Ok(line) = response_line(id.token(), Err(error)) {
            link.push(from, line);
        }
        return Step::Ended;
    }
    let Some(line) = message.id().and_then(line) else { return Step::Ended };
    if message.is_response() {
        return Step::Replaced(line);
    }
    link.push(from, line);
    Step::Ended
}

/// Keeps a request for its answer by the stage.
fn take(link: &mut StageLink<'_>, from: Side, message: &StageMessage<'_>) -> Step {
    let Some(id) = message.id().filter(|_| message.is_request()) else {
        return answer(link, from, message, Err(dropped()));
    };
    let error = match link.core.room_for_id() {
        Err(error) => RpcError::internal(error.to_string()),
        Ok(()) if !link.ids.take(from, id) => {
            RpcError::invalid_request("a request with this id waits for its response")
        }
        Ok(()) => {
            link.core.kept += 1;
            return Step::Ended;
        }
    };
    answer(link, from, message, Err(error))
}

/// Replaces a message by another one of the same kind.
fn replace(
    link: &mut StageLink<'_>,
    from: Side,
    message: &StageMessage<'_>,
    Replacement { line, is_same }: Replacement,
) -> Step {
    let length = line.len();
    let limit = link.core.frame_bytes;
    if length > message.raw().len() && length > limit.saturating_add(2) {
        let error = Error::TooLong { bytes: length, limit };
        return answer(link, from, message, Err(RpcError::internal(error.to_string())));
    }
    if is_same {
        return Step::Replaced(line);
    }
    let fault = {
        let new = message.with_raw(&line);
        match (message.id(), new.id()) {
            (Some(old), Some(new_id)) if message.is_request() && new.is_request() => {
                if old == new_id {
                    None
                } else if let Err(error) = link.core.room_for_id() {
                    Some(error.to_string())
                } else if link.ids.map(from, old, new_id) {
                    link.core.kept += 1;
                    None
                } else {
                    Some("a stage of the proxy gave a request an id that is in use".into())
                }
            }
            (Some(old), Some(new_id)) if message.is_response() && new.is_response() && old == new_id => None,
            // A line that is not a message must not become a request that nobody has sent.
            (None, None) if message.is_invalid() || new.is_notification() => None,
            _ => Some("a stage of the proxy replaced the message by one of another kind".into()),
        }
    };
    match fault {
        None => Step::Replaced(line),
        Some(fault) => {
            tracing::error!(stage = link.stage, "{fault}; the message fails");
            answer(link, from, message, Err(RpcError::internal(fault)))
        }
    }
}

impl<'a> StageMessage<'a> {
    /// Returns a message with other bytes and the same limits.
    fn with_raw<'b>(&self, raw: &'b [u8]) -> StageMessage<'b>
    where
        'a: 'b,
    {
        StageMessage::new(raw, self.limits())
    }

    /// Returns the outcome of a response.
    fn outcome(&self) -> std::result::Result<&'a serde_json::value::RawValue, RpcError> {
        match (self.result(), self.error()) {
            (Some(result), _) => Ok(result),
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Err(RpcError::internal("the response is not readable")),
        }
    }
}
