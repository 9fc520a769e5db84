//! The questions of a task, and their answers.

use axum::http::StatusCode;
use duologue_schema::PermissionOptionKind;
use duologue_store::{
    JsonText, QuestionQuery, QuestionState, Store, StoreBatch, StoreChange, StorePage, StoreTime,
    StoredQuestion, StoredTask, StoredTaskKey,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::audit::{self, AuditedQuestion};
use crate::gateway::asked_questions::AskedQuestion;
use crate::gateway::rest::request::{
    JsonBody, OnceBatch, OnceKey, OnceOutcome, PathOf, QueryOf, RestCaller, RestReply, require_unused,
};
use crate::gateway::rest::sent_reply::SentReply;
use crate::gateway::rest::session_log::log_refusal;
use crate::gateway::rest::tasks::{require_owner, visible_task};
use crate::gateway::rest::values::{OwnerQuery, RestId, TaskTarget, conflict};
use crate::gateway::{Refusal, RefusalCode};
use crate::input::QuestionDecision;
use crate::question::{answered_option, permission_decision};
use crate::record::ClientKey;
use crate::session_questions::AnswerFault;

/// The state of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = QuestionState)]
pub enum RestQuestionState {
    /// It waits for an answer.
    Open,
    /// It has an answer.
    Answered,
    /// It needs no answer any more.
    Withdrawn,
}

/// A question of a task or a session.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Question)]
#[non_exhaustive]
pub struct RestQuestion {
    /// The id.
    pub question_id: String,
    /// The question. Of the type `permission` it has `toolCall` and `options`.
    #[schema(value_type = Value)]
    pub question: JsonText,
    /// The state.
    pub state: RestQuestionState,
    /// The time of the question, in milliseconds since 1970.
    pub created_at: u64,
}

impl From<StoredQuestion> for RestQuestion {
    fn from(question: StoredQuestion) -> Self {
        let state = match question.state {
            QuestionState::Open => RestQuestionState::Open,
            QuestionState::Answered => RestQuestionState::Answered,
            _ => RestQuestionState::Withdrawn,
        };
        RestQuestion {
            question_id: question.id,
            question: question.body,
            state,
            created_at: question.created,
        }
    }
}

/// The open questions of a task.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TaskInput)]
#[non_exhaustive]
pub struct RestTaskInput {
    /// The id of the task.
    pub task_id: String,
    /// The questions, the oldest first. Their page has at most 4 MiB.
    pub questions: Vec<RestQuestion>,
    /// The number of all open questions of the task. Those behind the page follow when the first ones have their answers.
    pub total: u64,
}

/// The answer to a question.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = NewAnswer)]
#[non_exhaustive]
pub struct RestAnswer {
    /// The id of the question. It may be left out if there is one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_id: Option<RestId>,
    /// The answer. That of a permission is `{"optionId": "…"}`. Any other cancels the tool call of a task, and `null` that of
    /// a session.
    #[schema(value_type = Value)]
    pub answer: JsonText,
}

impl RestAnswer {
    /// Creates the answer to a question, or to the only one that is open.
    #[must_use]
    pub fn new(question_id: Option<RestId>, answer: JsonText) -> Self {
        RestAnswer { question_id, answer }
    }

    /// Creates the answer to a permission request: the id of an option.
    #[must_use]
    pub fn option(option_id: &str) -> Self {
        RestAnswer::new(None, JsonText::of(&json!({"optionId": option_id})).unwrap_or_default())
    }
}

/// The end of a question.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AnsweredQuestion)]
#[non_exhaustive]
pub struct RestAnswered {
    /// The id of the task.
    pub task_id: String,
    /// The id of the question.
    pub question_id: String,
    /// The state.
    pub status: RestQuestionState,
}

/// Returns the open questions of a task.
#[utoipa::path(
    get, path = "/agents/{agentId}/tasks/{taskId}/input", tag = "tasks", params(TaskTarget, OwnerQuery),
    responses((status = 200, body = RestTaskInput, description = "The questions. There may be none.")),
)]
pub(crate) async fn get_input(
    caller: RestCaller,
    PathOf(target): PathOf<TaskTarget>,
    QueryOf(query): QueryOf<OwnerQuery>,
) -> Result<SentReply, Refusal> {
    let admission = caller.open_page().await?;
    let task = visible_task(&caller, target, query.owner).await?;
    let key = task.key;
    let task_id = key.task.clone();
    let open = caller.gateway().in_store(move |store| open_questions(store, key)).await?;
    let total = open.total;
    let questions = open.items.into_iter().map(RestQuestion::from).collect();
    Ok(admission.until_sent(RestReply::ok(&RestTaskInput { task_id, questions, total })?))
}

fn open_questions(
    store: &dyn Store,
    key: StoredTaskKey,
) -> duologue_store::Result<StorePage<StoredQuestion>> {
    let mut query = QuestionQuery::default();
    (query.task, query.state) = (Some(key), Some(QuestionState::Open));
    store.questions(&query)
}

/// Returns the id of the only open question of a task.
fn only_question(store: &dyn Store, key: StoredTaskKey) -> duologue_store::Result<Result<String, Refusal>> {
    let mut open = open_questions(store, key)?;
    Ok(match (open.items.pop(), open.total) {
        (Some(question), 1) => Ok(question.id),
        (None, _) => Err(conflict("the task has no open question")),
        (Some(_), _) => Err(conflict("the task has several open questions; name one as `questionId`")),
    })
}

/// Answers a question of a task. The first answer counts.
#[utoipa::path(
    post, path = "/agents/{agentId}/tasks/{taskId}/input", tag = "tasks",
    params(
        TaskTarget, OwnerQuery,
        ("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 128, pattern = "^[!-~]+$", description = "A repeated request with this key has the first response."),
    ),
    request_body = RestAnswer,
    responses(
        (status = 422, body = crate::gateway::rest::RefusalBody, description = "The `Idempotency-Key` belongs to a request with another content."),
        (status = 200, body = RestAnswered, description = "The question is answered."),
        (status = 409, body = crate::gateway::rest::RefusalBody, description = "No such question is open, or several are and the answer names none."),
    ),
)]
pub(crate) async fn answer_input(
    caller: RestCaller,
    PathOf(target): PathOf<TaskTarget>,
    QueryOf(query): QueryOf<OwnerQuery>,
    body: JsonBody<RestAnswer>,
) -> Result<RestReply, Refusal> {
    let task = visible_task(&caller, target, query.owner).await?;
    require_owner(&caller, &task)?;
    let seen = caller.once("answer_input", &body.bytes)?;
    // An answer that the agent has is stored, also if the client leaves.
    let answering = tokio::spawn(answer_task(caller, task, seen, body.value));
    let panicked = |_| Refusal::new(RefusalCode::Internal, "the answer could not be given");
    answering.await.map_err(panicked)?
}

async fn answer_task(
    caller: RestCaller,
    task: StoredTask,
    seen: Option<OnceKey>,
    RestAnswer { question_id, answer }: RestAnswer,
) -> Result<RestReply, Refusal> {
    let gateway = caller.gateway();
    // A repeated answer finds no question any more, but its key has the response.
    if let Some(reply) = caller.repeated(seen.as_ref()).await? {
        return Ok(reply);
    }
    let limit = gateway.store.settings().content_bytes;
    if answer.as_str().len() > limit {
        return Err(Refusal::invalid(format!("answer: it has more than {limit} bytes")));
    }
    let key = task.key;
    let question = match question_id {
        Some(question) => question.0,
        None => {
            let key = key.clone();
            gateway.in_store(move |store| only_question(store, key)).await??
        }
    };
    let time = gateway.time();
    let asked = gateway.asked.find(&key, &question);
    let answering = match &asked {
        Some(asked) => {
            let answering = asked.answering.lock().await;
            let (key, question, seen) = (key.clone(), question.clone(), seen.clone());
            let find = move |store: &dyn Store| {
                require_unused(store, seen.as_ref(), time)?;
                store.question(&key, &question)
            };
            let found = gateway.in_store(find).await?;
            if found.is_none_or(|found| found.state != QuestionState::Open) {
                return Err(not_open());
            }
            Some(answering)
        }
        // Its worker has ended it.
        None if gateway.hosted(&key.agent).is_some() => return Err(not_open()),
        None => None,
    };
    if let Some(asked) = &asked {
        give(&caller, &key, asked, &answer).await?;
    }
    let record = |seen: Option<OnceKey>| {
        let (key, question, answer) = (key.clone(), question.clone(), answer.clone());
        let answered_by = caller.id().to_owned();
        gateway.in_store(move |store| record(store, time, (key, question), (answer, answered_by), seen))
    };
    let mut recorded = record(seen.clone()).await;
    // The agent has the answer, and the key alone may be what has no room.
    if recorded.is_err() && asked.is_some() && seen.is_some() {
        recorded = record(None).await;
    }
    drop(answering);
    let (reply, decision) = recorded??;
    if let Some(decision) = decision {
        let place = AuditedQuestion {
            agent: &key.agent,
            session: task.session.as_deref(),
            task: Some(&key.task),
            question: &question,
        };
        audit::answered(caller.id(), &place, &decision);
    }
    Ok(reply)
}

/// The reply to an answer, and its meaning if it is the first one.
type RecordedAnswer = (RestReply, Option<QuestionDecision>);

/// Stores an answer.
fn record(
    store: &dyn Store,
    time: StoreTime,
    (task, question): (StoredTaskKey, String),
    (answer, answered_by): (JsonText, String),
    seen: Option<OnceKey>,
) -> duologue_store::Result<Result<RecordedAnswer, Refusal>> {
    let answered = RestAnswered {
        task_id: task.task.clone(),
        question_id: question.clone(),
        status: RestQuestionState::Answered,
    };
    let reply = RestReply::kept(StatusCode::OK, &answered)?;
    let asked = task.clone();
    let chosen = answer.clone();
    let change = StoreChange::AnswerQuestion { task, question: question.clone(), answer, answered_by };
    match OnceBatch::new(StoreBatch::new(time).with(change), seen).apply(store, reply, |_| Ok(None)) {
        Ok(OnceOutcome { reply, first: None }) => Ok(Ok((reply, None))),
        Ok(OnceOutcome { reply, first: Some(_) }) => {
            let decision = decision(store.question(&asked, &question)?, &chosen);
            Ok(Ok((reply, Some(decision))))
        }
        Err(duologue_store::Error::NoRecord { .. } | duologue_store::Error::WrongState { .. }) => {
            Ok(Err(not_open()))
        }
        Err(error) => Err(error),
    }
}

fn not_open() -> Refusal {
    conflict(
        "the task has no such open question: it has an answer, its agent needs none any more, or none came within `limits.question_seconds`",
    )
}

/// Gives an answer to the session of a task, which decides if it is the first one.
async fn give(
    caller: &RestCaller,
    key: &StoredTaskKey,
    asked: &AskedQuestion,
    answer: &JsonText,
) -> Result<(), Refusal> {
    let hub = caller.gateway().hosted(&key.agent).map(|entry| entry.hub.clone()).ok_or_else(not_open)?;
    let client = ClientKey::new(format!("rest:{}", caller.id()));
    let answer: Value = answer.parse().unwrap_or_default();
    let option = answered_option(&answer).map(|option| json!({"optionId": option}));
    let give =
        |answer| hub.answer_for_work(&key.owner, &asked.session, client.clone(), asked.position, answer);
    let given = match give(option.unwrap_or_default()).await {
        // Any other answer cancels the tool call.
        Err(AnswerFault::Invalid(_)) => give(Value::Null).await,
        given => given,
    };
    match given {
        Ok(_) => Ok(()),
        Err(AnswerFault::Session(error)) => Err(log_refusal(error)),
        Err(_) => Err(not_open()),
    }
}

/// Returns the meaning of an answer to a question.
fn decision(question: Option<StoredQuestion>, answer: &JsonText) -> QuestionDecision {
    let question: Value = question.and_then(|question| question.body.parse().ok()).unwrap_or_default();
    let answer: Value = answer.parse().unwrap_or_default();
    let options = question["options"].as_array().into_iter().flatten();
    let wanted = answered_option(&answer);
    let mut chosen = options.filter(|option| wanted.is_some() && option["optionId"].as_str() == wanted);
    // An id of two options says nothing.
    let chosen = chosen.next().filter(|_| chosen.next().is_none());
    let kind = chosen.and_then(|option| option["kind"].as_str());
    permission_decision(kind.map(PermissionOptionKind::from).as_ref())
}

#[cfg(test)]
mod tests {
    use duologue_store::{NewQuestion, NewTask};

    use super::*;
    use crate::gateway::task_run::tests::gateway;

    #[tokio::test]
    async fn questions_behind_the_page_count() {
        let (gateway, _folder) = gateway("", |settings| settings.page_entries = 1);
        let key = StoredTaskKey::new("alice", "writer", "t");
        let only = || only_question(&*gateway.store, key.clone()).expect("the store");
        let task = StoreChange::CreateTask(NewTask::new(key.clone(), "a", "write", JsonText::default()));
        gateway.store.apply(StoreBatch::new(gateway.time()).with(task)).expect("a task");
        assert!(only().is_err());
        for id in ["q1", "q2"] {
            let question = StoreChange::AddQuestion(NewQuestion::new(key.clone(), id, JsonText::default()));
            gateway.store.apply(StoreBatch::new(gateway.time()).with(question)).expect("a question");
            assert_eq!(only().ok().as_deref(), Some("q1").filter(|_| id == "q1"));
        }
        let page = open_questions(&*gateway.store, key.clone()).expect("the store");
        assert_eq!((page.items.len(), page.total), (1, 2));
    }
}
