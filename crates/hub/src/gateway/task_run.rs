//! Runs a task as a prompt turn, or as a delegation.

mod rest_task;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use rest_task::stop_lost;

use std::collections::HashMap;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use duologue_rpc::raw_message::beginning;
use duologue_schema::envelope::TaskState;
use duologue_schema::{
    RequestPermissionOutcome, RequestPermissionRequest, SessionId, SessionUpdate, TraceContext,
};
use duologue_store::{
    Error as StoreError, JsonText, LeaseToken, Leased, NewDelivery, NewQuestion, OutboxKind, QuestionQuery,
    QuestionState, Store, StoreBatch, StoreChange, StorePage, StoreSettings, StoreTopic, StoreWatch,
    StoredTask, StoredTaskKey, TaskFailure, TaskUpdate,
};
use futures_util::future::select_all;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::gateway::agent_turn::{TurnOutput, WorkQuestion, WorkSession, failure_of};
use crate::gateway::asked_questions::AskedPlace;
use crate::gateway::dialogue_relay::{DIALOGUE, DialogueWork, relay_channel};
use crate::gateway::result_size::json_beginning;
use crate::gateway::runner::{LEASE, RENEWAL, callback, extend_lease, insist, renewing, stream_key};
use crate::gateway::work::WorkPlace;
use crate::gateway::work_turn::{WorkEnd, WorkNews, WorkTurn};
use crate::gateway::{GatewayShared, Refusal, RefusalCode, events, failure};
use crate::projection::position_of;
use crate::question::answered_option;

/// The time between two writes of progress and output.
const WRITE_PAUSE: Duration = Duration::from_millis(200);
/// The pause before a change of the store is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// The most bytes of the text in a post of output, as JSON.
const POST_BYTES: usize = 1 << 20;
/// The most posts of output in a change before the last one.
const POSTS: usize = 4;
/// The most bytes of output that wait for places in the outbox.
const WAITING_BYTES: usize = 4 << 20;
/// The time that the agent has to end a cancelled turn.
const CANCEL: Duration = Duration::from_secs(15);

/// Runs one task.
pub(crate) async fn run(gateway: Arc<GatewayShared>, leased: Leased<StoredTask>, mut place: WorkPlace) {
    if let Some(agent) = gateway.rest_agent(&leased.entry.key.agent) {
        return rest_task::run(gateway, leased, agent, place).await;
    }
    let Leased { entry: task, lease } = leased;
    // Watched from before the first change on, so that no cancellation is missed.
    let changes = gateway.store.watch(&StoreTopic::Task(task.key.clone()));
    let run = TaskRun { gateway, key: task.key.clone(), created: task.created, lease };
    if task.state == TaskState::Cancelling {
        // Its turn ended with its last worker.
        return run.finish(&task, Cancelled::Asked.end(Duration::ZERO)).await;
    }
    if task.handed_at.is_some() && !may_repeat(&task) {
        // The configuration had an agent elsewhere in the place of this one.
        let why = "another agent had the task before this one was configured in its place";
        return run.finish(&task, TaskEnd::failed(TaskFailure::RESTARTED, why, true)).await;
    }
    let limit = Instant::now() + run.limit(&task);
    let mut session = match timeout_at(limit, renewing(&run.gateway, lease, run.open(&task))).await {
        Ok(Ok(session)) => session,
        // The next start returns it to its place.
        _ if run.gateway.is_draining() || run.gateway.is_closing() => return,
        Ok(Err(end)) => return run.finish(&task, end).await,
        Err(_) => return run.finish(&task, Cancelled::Timeout.end(run.limit(&task))).await,
    };
    if let Err(refusal) = run.start(&session).await {
        // It was cancelled meanwhile, or the store has failed for too long and the task returns to its place.
        tracing::debug!(task = run.key.task.as_str(), %refusal, "a task was not started");
        let (agent, owner) = (run.gateway.hosted(&task.key.agent), &task.key.owner);
        return run.gateway.leave(session, agent, owner, found_again(&task)).await;
    }
    let ended = run.work(&task, &mut session, changes, limit, &mut place).await;
    if task.kind == DIALOGUE && task.retry_safe && (ended.is_lost || run.gateway.is_closing()) {
        session.leave().await;
    } else {
        session.close().await;
    }
    if ended.state == TaskState::Failed && run.gateway.is_closing() {
        // It ends, or runs again, with the next start.
        return;
    }
    if ended.is_lost {
        // The task ends as after the loss of a server, which depends on its metadata.
        return extend_lease(&run.gateway, lease, Duration::ZERO).await;
    }
    run.finish(&task, ended).await;
}

/// Returns true if the sender of a task lets another attempt follow one that an agent has begun.
fn may_repeat(task: &StoredTask) -> bool {
    let metadata: Value = task.metadata.parse().unwrap_or_default();
    metadata["retry"] == "safe"
}

/// Returns the check if a task is still there. A later one with its id is another task.
fn found_again(
    task: &StoredTask,
) -> impl FnOnce(&dyn Store) -> duologue_store::Result<bool> + Send + 'static {
    let (key, created) = (task.key.clone(), task.created);
    move |store| Ok(store.task(&key)?.is_some_and(|found| found.created == created))
}

/// The end of a task.
struct TaskEnd {
    state: TaskState,
    result: Option<JsonText>,
    error: Option<TaskFailure>,
    /// The output that was not posted yet.
    chunks: ChunkPosts,
    /// True if the connection to the agent was lost.
    is_lost: bool,
}

impl TaskEnd {
    fn failed(code: &str, message: impl Into<String>, retryable: bool) -> Self {
        TaskEnd::from(TaskFailure::new(code, message, retryable))
    }

    /// Makes the error fit the store. An agent can have written it.
    fn fit(&mut self, settings: &StoreSettings) {
        let Some(error) = &mut self.error else { return };
        if error.code.is_empty() || error.code.chars().count() > settings.id_chars {
            error.code = failure::AGENT_FAILED.to_owned();
        }
        error.message.truncate(beginning(&error.message, settings.text_bytes).len());
    }
}

impl From<TaskFailure> for TaskEnd {
    fn from(failure: TaskFailure) -> Self {
        TaskEnd {
            state: TaskState::Failed,
            result: None,
            error: Some(failure),
            chunks: ChunkPosts::default(),
            is_lost: false,
        }
    }
}

impl From<WorkEnd> for TaskEnd {
    fn from(end: WorkEnd) -> Self {
        let WorkEnd { state, result, error, is_lost } = end;
        TaskEnd { state, result, error, chunks: ChunkPosts::default(), is_lost }
    }
}

/// The posts of the output of a task.
#[derive(Default)]
struct ChunkPosts {
    url: Option<String>,
    stream: String,
    owner: String,
    trace: Option<String>,
    task: Option<u64>,
    position: u64,
    waiting: String,
    /// The bytes of the output behind `waiting` that are left out.
    left_out: usize,
}

impl ChunkPosts {
    fn of(task: &StoredTask) -> Self {
        ChunkPosts {
            url: task.stream_endpoint.clone(),
            stream: stream_key("chunk", task),
            task: Some(task.seq),
            owner: task.key.owner.clone(),
            trace: task.trace.clone(),
            ..ChunkPosts::default()
        }
    }

    /// Adds output. Beyond [`WAITING_BYTES`] it is left out, and so is what comes behind it until they have been posted.
    fn add(&mut self, text: &str) {
        if self.url.is_none() {
            return;
        }
        let room = if self.left_out == 0 { WAITING_BYTES.saturating_sub(self.waiting.len()) } else { 0 };
        let kept = beginning(text, room);
        self.waiting.push_str(kept);
        self.left_out += text.len() - kept.len();
    }

    /// Returns the next posts of the waiting output, and the bytes of it that they have. They have all of it if the
    /// output is complete, and the last one says so. One says that output behind it is left out.
    fn posts(&self, is_complete: bool) -> (Vec<StoreChange>, usize) {
        let (mut posts, mut rest) = (Vec::new(), self.waiting.as_str());
        let Some(url) = &self.url else { return (posts, 0) };
        let limit = if is_complete { usize::MAX } else { POSTS };
        for position in (self.position..).take(limit) {
            if rest.is_empty() && !(is_complete && posts.is_empty()) {
                break;
            }
            let (chunk, later) = rest.split_at(json_beginning(rest, POST_BYTES).len());
            let is_last = is_complete && later.is_empty();
            let mut body = json!({"chunk": chunk, "position": position, "complete": is_last});
            if self.left_out > 0 && later.is_empty() {
                body["truncated"] = json!(true);
            }
            let Ok(body) = JsonText::of(&body) else { break };
            let (owner, stream) = (&self.owner, &self.stream);
            let mut post = NewDelivery::new(OutboxKind::Chunk, owner, stream, position, url, body);
            (post.task, post.trace) = (self.task, self.trace.clone());
            posts.push(StoreChange::PushDelivery(post));
            rest = later;
        }
        (posts, self.waiting.len() - rest.len())
    }

    /// Removes output that has been posted. Returns the bytes behind it that are left out.
    fn posted(&mut self, posts: u64, bytes: usize) -> usize {
        self.position += posts;
        self.waiting.drain(..bytes);
        if self.waiting.is_empty() { std::mem::take(&mut self.left_out) } else { 0 }
    }
}

/// Returns the posts for the end of the output of a task that has ended without it. If an agent has started the task, there
/// may be output without a post.
pub(crate) fn last_chunk(store: &dyn Store, task: &StoredTask) -> duologue_store::Result<Vec<StoreChange>> {
    let mut chunks = ChunkPosts::of(task);
    chunks.position = store.stream_end(&chunks.stream)?.map_or(0, |end| end + 1);
    chunks.left_out = task.started.into();
    Ok(chunks.posts(true).0)
}

struct TaskRun {
    gateway: Arc<GatewayShared>,
    key: StoredTaskKey,
    /// A later task with the key has another time.
    created: u64,
    lease: LeaseToken,
}

impl TaskRun {
    /// Changes the task. `change` gets the task as it is now and an update with the lease; without an update nothing
    /// changes.
    async fn change(
        &self,
        change: impl Fn(&StoredTask, TaskUpdate) -> Option<TaskUpdate> + Send + 'static,
    ) -> Result<(), Refusal> {
        self.change_with(move |task, update| Ok(change(task, update).map(|update| (update, Vec::new()))))
            .await
    }

    /// Changes the task together with other parts of the store.
    async fn change_with(
        &self,
        change: impl Fn(&StoredTask, TaskUpdate) -> duologue_store::Result<Option<(TaskUpdate, Vec<StoreChange>)>>
        + Send
        + 'static,
    ) -> Result<(), Refusal> {
        let (key, lease, time) = (self.key.clone(), self.lease, self.gateway.time());
        let apply = move |store: &dyn Store| loop {
            let task = store.task(&key)?.ok_or_else(|| StoreError::NoRecord { record: key.task.clone() })?;
            let update = TaskUpdate::new(key.clone(), task.version).lease(lease);
            let Some((update, more)) = change(&task, update)? else { return Ok(()) };
            let mut batch = StoreBatch::new(time).with(StoreChange::UpdateTask(update));
            batch.changes.extend(more);
            match store.apply(batch) {
                Ok(_) => return Ok(()),
                // A request has changed the task in between.
                Err(StoreError::VersionLost { .. }) => {}
                Err(error) => return Err(error),
            }
        };
        self.gateway.in_store(apply).await
    }

    /// Opens the session of the task. Its agent has none of the work yet.
    async fn open(&self, task: &StoredTask) -> Result<WorkSession, TaskEnd> {
        let Some(agent) = self.gateway.hosted(&self.key.agent) else {
            let why = "the agent is not in the configuration any more";
            return Err(TaskEnd::failed(failure::UNREACHABLE, why, false));
        };
        let trace = task.trace.as_deref().and_then(TraceContext::new);
        // A dialogue goes on in its session behind a restart.
        let relay = DialogueWork::session_of_caller(task).map(|_| relay_channel());
        let known = task.session.as_deref().filter(|_| relay.is_some());
        let opened = WorkSession::open_for(&agent, &self.key.owner, trace.as_ref(), known, relay).await;
        opened.map_err(|error| TaskEnd::from(failure_of(failure::UNREACHABLE, &error)))
    }

    /// Records that the agent gets the work. A task that is lost before returns to its place.
    async fn start(&self, session: &WorkSession) -> Result<(), Refusal> {
        let id = session.session.id().as_str().to_owned();
        insist(|| {
            let id = id.clone();
            self.change(move |_, update| {
                let mut update = update.state(TaskState::Working);
                update.session = Some(id.clone());
                Some(update)
            })
        })
        .await
    }

    /// Gives the agent the work, and follows it to its end.
    async fn work(
        &self,
        task: &StoredTask,
        session: &mut WorkSession,
        changes: StoreWatch,
        limit: Instant,
        place: &mut WorkPlace,
    ) -> TaskEnd {
        let begun = renewing(&self.gateway, self.lease, WorkTurn::begin(&self.gateway, session, task));
        match timeout_at(limit, begun).await {
            Ok(Ok(turn)) => {
                place.begin();
                let mut open = OpenQuestions::default();
                let end = self.follow(task, turn, session, (changes, limit), &mut open, place).await;
                self.end_questions(open.all.drain(), true).await;
                end
            }
            Ok(Err(end)) => end.into(),
            Err(_) => Cancelled::Timeout.end(self.limit(task)),
        }
    }

    /// Returns the time in which the task has to end.
    fn limit(&self, task: &StoredTask) -> Duration {
        let default = Duration::from_secs(self.gateway.config.limits.task_seconds);
        task.timeout_ms.map_or(default, Duration::from_millis)
    }

    /// Follows the turn to its end.
    async fn follow(
        &self,
        task: &StoredTask,
        mut turn: WorkTurn,
        work: &mut WorkSession,
        (mut changes, timeout): (StoreWatch, Instant),
        open: &mut OpenQuestions,
        place: &WorkPlace,
    ) -> TaskEnd {
        let limit = self.limit(task);
        let mut chunks = ChunkPosts::of(task);
        let mut output = TurnOutput::default();
        // The entry of the message that the last text is in.
        let mut last_message = None;
        let mut written_progress = None;
        let mut next_renewal = Instant::now() + RENEWAL;
        let mut next_write: Option<Instant> = None;
        // The reason for which the turn is being cancelled, and the end of the agent's time for it.
        let mut cancelled: Option<(Cancelled, Instant)> = None;
        // A cancellation may have come before the turn.
        let mut must_look = true;
        loop {
            if std::mem::take(&mut must_look) {
                match self.look(open).await {
                    Ok(Looked::Working) => {}
                    Ok(Looked::Cancelling) if cancelled.is_none() => {
                        turn.cancel();
                        cancelled = Some((Cancelled::Asked, Instant::now() + CANCEL));
                    }
                    Ok(Looked::Cancelling) => {}
                    Ok(Looked::Ended) => {
                        turn.cancel();
                        return TaskEnd::failed(TaskFailure::WORKER_LOST, "the task ended elsewhere", true);
                    }
                    Err(_) => {
                        tokio::time::sleep(RETRY).await;
                        must_look = true;
                    }
                }
            }
            let alarm = [Some(next_renewal), next_write, cancelled.as_ref().map(|(_, until)| *until)]
                .into_iter()
                .flatten()
                .chain(cancelled.is_none().then_some(timeout))
                .min()
                .unwrap_or(next_renewal);
            let alarm = pin!(sleep_until(alarm));
            tokio::select! {
                update = turn.next() => match update {
                    Some(Ok(news)) => {
                        match &news {
                            WorkNews::Update(update) => {
                                if !output.add(update) {
                                    turn.cancel();
                                    let why = "the updates of the agent exceed 64 MiB";
                                    return TaskEnd { chunks, ..TaskEnd::failed(failure::TOO_LARGE, why, false) };
                                }
                            }
                            WorkNews::Text(_) => {}
                            WorkNews::Progress(percent) => output.progress = Some(*percent),
                        }
                        if let Some(text) = agent_text(&news).filter(|text| !text.is_empty()) {
                            // As between the messages of a result.
                            let is_next = last_message.replace(output.entry).is_some_and(|last| last != output.entry);
                            for text in [if is_next { "\n\n" } else { "" }, text] {
                                self.gateway.outputs.add(&self.key, text);
                                chunks.add(text);
                            }
                        }
                        if !chunks.waiting.is_empty() || output.progress != written_progress {
                            next_write.get_or_insert_with(|| Instant::now() + WRITE_PAUSE);
                        }
                    }
                    Some(Err(error)) => {
                        return TaskEnd { chunks, ..TaskEnd::failed(failure::INTERNAL, error.to_string(), true) };
                    }
                    None => break,
                },
                Some(question) = work.questions.recv() => {
                    match self.ask(open, question, work.session.id()).await {
                        Ok(()) => place.ask(),
                        // Without an answer the agent may not do it: the question was dropped.
                        Err(_) => tracing::warn!(task = self.key.task.as_str(), "a question of a task could not be stored"),
                    }
                }
                question = open.given_elsewhere() => {
                    let ended = open.all.remove_entry(&question);
                    self.end_questions(ended, open.all.is_empty()).await;
                }
                () = changes.changed() => must_look = true,
                () = alarm => {
                    let now = Instant::now();
                    if now >= next_renewal {
                        next_renewal = now + RENEWAL;
                        self.withdraw_expired(open).await;
                        extend_lease(&self.gateway, self.lease, LEASE).await;
                    }
                    if next_write.is_some_and(|at| now >= at) {
                        next_write = None;
                        written_progress = output.progress;
                        self.write_output(&mut chunks, output.progress).await;
                        if !chunks.waiting.is_empty() {
                            next_write = Some(Instant::now() + RETRY);
                        }
                    }
                    match &cancelled {
                        Some((reason, until)) if now >= *until => {
                            let end = reason.end(limit);
                            return TaskEnd { chunks, ..end };
                        }
                        None if now >= timeout => {
                            turn.cancel();
                            cancelled = Some((Cancelled::Timeout, now + CANCEL));
                        }
                        _ => {}
                    }
                }
            }
        }
        let size = self.gateway.result_size;
        let end = TaskEnd::from(turn.end(&output, size, work.is_remote).await);
        let end = match cancelled {
            Some((Cancelled::Timeout, _)) => Cancelled::Timeout.end(limit),
            Some((Cancelled::Asked, _)) if end.state == TaskState::Failed => Cancelled::Asked.end(limit),
            _ => end,
        };
        TaskEnd { chunks, ..end }
    }

    /// Writes the progress and the output since the last write. Output that was not written waits for the next one.
    async fn write_output(&self, chunks: &mut ChunkPosts, progress: Option<u8>) {
        let (posts, bytes) = chunks.posts(false);
        let count = posts.len() as u64;
        let written = self.change_with(move |_, mut update| {
            update.progress = progress;
            Ok(Some((update, posts.clone())))
        });
        if written.await.is_err() {
            return;
        }
        for position in chunks.position..chunks.position + count {
            events::stream_chunk(&self.key, position, false);
        }
        self.note_left_out(chunks.posted(count, bytes));
    }

    /// Logs the bytes of output that no post has.
    fn note_left_out(&self, left_out: usize) {
        if left_out > 0 {
            let task = self.key.task.as_str();
            tracing::warn!(task, left_out, "output of a task is left out: its outbox was full");
        }
    }

    /// Stores a question, and marks the task as waiting for input.
    async fn ask(
        &self,
        open: &mut OpenQuestions,
        question: WorkQuestion,
        session: &SessionId,
    ) -> Result<(), Refusal> {
        let WorkQuestion { id: request_id, request, answer } = question;
        let id = crate::unique_id::new_id().to_string();
        let position = request_id.and_then(|id| position_of(session, id.token()));
        let asked = &self.gateway.asked;
        let place = position.map(|at| asked.add(self.key.clone(), &id, session.as_str(), at));
        let body = JsonText::of(&json!({
            "type": "permission", "toolCall": request.tool_call, "options": request.options,
        }))?;
        let new = NewQuestion::new(self.key.clone(), &id, body);
        self.change_with(move |task, update| {
            let state = match &task.state {
                TaskState::Cancelling => TaskState::Cancelling,
                _ => TaskState::InputRequired,
            };
            Ok(Some((update.state(state), vec![StoreChange::AddQuestion(new.clone())])))
        })
        .await?;
        open.all.insert(id, OpenQuestion { request, answer, place, since: Instant::now() });
        Ok(())
    }

    /// Withdraws the questions that nobody has answered in time.
    async fn withdraw_expired(&self, open: &mut OpenQuestions) {
        let limit = Duration::from_secs(self.gateway.config.limits.question_seconds);
        let expired = open.take_older_than(limit);
        self.end_questions(expired, open.all.is_empty()).await;
    }

    /// Withdraws questions that need no answer any more. One whose answer is being given has that. Without another question the
    /// task goes on. Until it is stored the questions are those of the worker.
    async fn end_questions(&self, ended: impl IntoIterator<Item = (String, OpenQuestion)>, are_last: bool) {
        for (id, question) in ended {
            if let Some(place) = &question.place {
                place.settled().await;
            }
            let key = self.key.clone();
            let withdrawn = self.change_with(move |task, update| {
                let goes_on = are_last && task.state == TaskState::InputRequired;
                let update = if goes_on { update.state(TaskState::Working) } else { update };
                let withdraw = StoreChange::WithdrawQuestion { task: key.clone(), question: id.clone() };
                Ok(Some((update, vec![withdraw])))
            });
            if let Err(refusal) = withdrawn.await {
                // It has an answer. The agent has that, or the cancellation.
                tracing::debug!(task = self.key.task.as_str(), %refusal, "a question was not withdrawn");
            }
        }
    }

    /// Reads the task, and gives the agent the answers to its questions.
    async fn look(&self, open: &mut OpenQuestions) -> Result<Looked, Refusal> {
        let key = self.key.clone();
        let has_questions = !open.all.is_empty();
        let (task, answered) = self
            .gateway
            .in_store(move |store| {
                let task = store.task(&key)?;
                let mut query = QuestionQuery::default();
                query.task = Some(key);
                query.state = Some(QuestionState::Answered);
                if !has_questions {
                    return Ok((task, Vec::new()));
                }
                let answered = StorePage::all(|offset| {
                    query.offset = offset;
                    store.questions(&query)
                })?;
                Ok((task, answered))
            })
            .await?;
        let is_open = |task: &StoredTask| task.created == self.created && !task.state.is_final();
        let Some(task) = task.filter(is_open) else { return Ok(Looked::Ended) };
        for question in answered {
            let Some(asked) = open.all.remove(&question.id) else { continue };
            let answer: Value = question.answer.and_then(|answer| answer.parse().ok()).unwrap_or_default();
            asked.give(&answer);
        }
        if open.all.is_empty() && task.state == TaskState::InputRequired {
            self.change(|task, update| {
                (task.state == TaskState::InputRequired).then(|| update.state(TaskState::Working))
            })
            .await?;
        }
        Ok(if task.state == TaskState::Cancelling { Looked::Cancelling } else { Looked::Working })
    }

    /// Writes the end of the task with its posts, until that succeeds or the lease is lost. An end that the store
    /// refuses becomes a smaller one: without any, the agent would do the work again.
    async fn finish(&self, task: &StoredTask, mut end: TaskEnd) {
        if end.chunks.url.is_none() {
            // It has failed before its turn.
            end.chunks = ChunkPosts::of(task);
        }
        end.fit(self.gateway.store.settings());
        let (mut has_posts, mut is_smaller) = (true, false);
        let id = self.key.task.as_str();
        while let Err(refusal) = insist(|| self.write_end(&end, has_posts)).await {
            match refusal.code {
                RefusalCode::InvalidParameter if !is_smaller => {
                    tracing::warn!(task = id, %refusal, "the end of a task is replaced by an error");
                    let why = format!("the end of the task could not be stored: {refusal}");
                    end = TaskEnd { chunks: end.chunks, ..TaskEnd::failed(failure::TOO_LARGE, why, false) };
                    is_smaller = true;
                }
                RefusalCode::Overloaded | RefusalCode::InvalidParameter if has_posts => {
                    // The sweep queues the last chunk and the callback when it can.
                    let left_out = end.chunks.waiting.len() + end.chunks.left_out;
                    tracing::warn!(task = id, %refusal, left_out, "a task ends without the rest of its output, and its last posts wait");
                    has_posts = false;
                }
                RefusalCode::NotFound => {
                    return tracing::debug!(task = id, "a task was erased before its end");
                }
                _ => return tracing::error!(task = id, %refusal, "the end of a task was lost"),
            }
        }
        if has_posts {
            self.note_left_out(end.chunks.left_out);
        }
    }

    /// Writes the end of the task, with the rest of its output and its callback if it has posts.
    async fn write_end(&self, end: &TaskEnd, has_posts: bool) -> Result<(), Refusal> {
        let (state, result, error) = (end.state.clone(), end.result.clone(), end.error.clone());
        let posts = if has_posts { end.chunks.posts(true).0 } else { Vec::new() };
        let count = posts.len();
        self.change_with(move |task, update| {
            let mut update = update.state(state.clone());
            (update.result, update.error) = (result.clone(), error.clone());
            update.progress = (state == TaskState::Completed).then_some(100);
            let mut more = posts.clone();
            if has_posts {
                update.callback_queued = true;
                let mut ended = task.clone();
                ended.state = state.clone();
                (ended.result, ended.error) = (result.clone(), error.clone());
                more.extend(callback(&ended)?);
            }
            Ok(Some((update, more)))
        })
        .await?;
        for (position, left) in (end.chunks.position..).zip((0..count).rev()) {
            events::stream_chunk(&self.key, position, left == 0);
        }
        events::task_completed(&self.key, end.state.as_str());
        Ok(())
    }
}

/// The reason for which a turn is cancelled.
enum Cancelled {
    Asked,
    Timeout,
}

impl Cancelled {
    fn end(&self, limit: Duration) -> TaskEnd {
        match self {
            Cancelled::Asked => TaskEnd {
                state: TaskState::Cancelled,
                result: None,
                error: None,
                chunks: ChunkPosts::default(),
                is_lost: false,
            },
            Cancelled::Timeout => {
                TaskEnd::failed(failure::TIMEOUT, format!("the task did not end within {limit:?}"), true)
            }
        }
    }
}

/// The state of a task that another party may have changed.
enum Looked {
    Working,
    Cancelling,
    Ended,
}

/// The questions of a task that wait for their answers.
#[derive(Default)]
struct OpenQuestions {
    all: HashMap<String, OpenQuestion>,
}

struct OpenQuestion {
    request: RequestPermissionRequest,
    answer: oneshot::Sender<RequestPermissionOutcome>,
    /// Its place in the session.
    place: Option<AskedPlace>,
    since: Instant,
}

impl OpenQuestion {
    /// Gives the agent an answer. One that names no option of the question is a cancellation.
    fn give(self, answer: &Value) {
        let option = answered_option(answer).map(Into::into);
        let option =
            option.and_then(|option| self.request.option(&option).map(|option| option.option_id.clone()));
        let outcome = option.map_or(RequestPermissionOutcome::Cancelled, RequestPermissionOutcome::selected);
        let _ = self.answer.send(outcome);
    }
}

impl OpenQuestions {
    /// Waits until the agent needs no answer to a question any more, and returns its id: an editor that has opened the session
    /// of the task has answered it, or the agent has withdrawn it.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    async fn given_elsewhere(&mut self) -> String {
        let given = self.all.iter_mut().map(|(id, question)| {
            Box::pin(async move {
                question.answer.closed().await;
                id.clone()
            })
        });
        let given: Vec<_> = given.collect();
        if given.is_empty() { pending().await } else { select_all(given).await.0 }
    }

    /// Returns the questions that nobody has answered in time.
    fn take_older_than(&mut self, limit: Duration) -> Vec<(String, OpenQuestion)> {
        self.all.extract_if(|_, question| question.since.elapsed() >= limit).collect()
    }
}

fn agent_text(news: &WorkNews) -> Option<&str> {
    match news {
        WorkNews::Update(SessionUpdate::AgentMessageChunk(chunk)) => chunk.content.as_text(),
        WorkNews::Text(text) => Some(text),
        _ => None,
    }
}
