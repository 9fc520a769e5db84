//! The questions of a session to its user, and their answers.

use duologue_rpc::RpcMessage;
use duologue_schema::{Request as _, RequestPermissionRequest};
use duologue_store::{IndexedSession, JsonText, LogRecord};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::gateway::rest::request::{JsonBody, PathOf, RestCaller, RestReply};
use crate::gateway::rest::session_log::{PAGE_BYTES, log_refusal};
use crate::gateway::rest::sessions::{SessionTarget, own_session};
use crate::gateway::rest::task_input::{RestAnswer, RestQuestion, RestQuestionState};
use crate::gateway::{Refusal, RefusalCode};
use crate::record::{ClientKey, LogEntry};
use crate::session_questions::AnswerFault;
use crate::state::parse;

/// The open questions of a session.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SessionInput)]
#[non_exhaustive]
pub struct RestSessionInput {
    /// The id of the session.
    pub session_id: String,
    /// The questions, the oldest first. They are those of the type `permission`, as in a task, and of the type `elicitation`,
    /// which have `message`, `mode` and the form or link of the agent. Questions of more than 1 MiB together are not all here.
    pub questions: Vec<RestQuestion>,
}

/// The end of a question of a session.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AnsweredSessionQuestion)]
#[non_exhaustive]
pub struct RestSessionAnswered {
    /// The id of the session.
    pub session_id: String,
    /// The id of the question.
    pub question_id: String,
    /// The state.
    pub status: RestQuestionState,
}

/// Returns the open questions of a session of the caller. Those of a task are at the task alone.
#[utoipa::path(
    get, path = "/sessions/{sessionId}/input", tag = "sessions", params(SessionTarget),
    responses((status = 200, body = RestSessionInput, description = "The questions. There may be none.")),
)]
pub(crate) async fn get_session_input(
    caller: RestCaller,
    PathOf(SessionTarget { session_id }): PathOf<SessionTarget>,
) -> Result<RestReply, Refusal> {
    let (hub, session) = own_session(&caller, &session_id).await?;
    let open = hub.open_questions(&session.owner, &session.id, PAGE_BYTES).await.map_err(log_refusal)?;
    let questions = open.iter().filter_map(|record| question(&session, record)).collect();
    RestReply::ok(&RestSessionInput { session_id, questions })
}

/// Answers a question of a session of the caller, as one more client of it. The first answer counts, so a repeated one is
/// refused. An answer that does not fit leaves the question open.
///
/// The answer to a permission is `{"optionId": "…"}`, or `null`, which cancels the tool call. The answer to an elicitation is
/// `{"action": "accept", "content": {…}}`, `{"action": "decline"}` or `{"action": "cancel"}`. The content fits the form: its
/// members, types, choices and limits, but its patterns and formats are left to the agent. A link takes no content.
#[utoipa::path(
    post, path = "/sessions/{sessionId}/input", tag = "sessions", params(SessionTarget), request_body = RestAnswer,
    responses(
        (status = 200, body = RestSessionAnswered, description = "The question is answered."),
        (status = 409, body = crate::gateway::rest::RefusalBody, description = "No such question is open, several are and the answer names none, or the session is that of a task."),
    ),
)]
pub(crate) async fn answer_session_input(
    caller: RestCaller,
    PathOf(SessionTarget { session_id }): PathOf<SessionTarget>,
    body: JsonBody<RestAnswer>,
) -> Result<RestReply, Refusal> {
    let (hub, session) = own_session(&caller, &session_id).await?;
    let RestAnswer { question_id, answer } = body.value;
    // No question has the position 0.
    let question = question_id.map(|id| id.0.parse().unwrap_or_default());
    let answer = answer
        .parse()
        .map_err(|error| Refusal::invalid(format!("answer: {error}; each number has to fit 64 bits")))?;
    let client = ClientKey::new(format!("rest:{}", caller.id()));
    let answered = hub.answer_question(&session.owner, &session.id, client, question, answer);
    let question_id = answered.await.map_err(answer_refusal)?.to_string();
    RestReply::ok(&RestSessionAnswered { session_id, question_id, status: RestQuestionState::Answered })
}

fn answer_refusal(fault: AnswerFault) -> Refusal {
    match fault {
        AnswerFault::Session(error) => log_refusal(error),
        AnswerFault::Invalid(reason) => Refusal::invalid(format!("answer: {reason}")),
        fault => Refusal::new(RefusalCode::Conflict, fault.to_string()),
    }
}

/// Returns the question of a record: its params without the session.
fn question(session: &IndexedSession, record: &LogRecord) -> Option<RestQuestion> {
    let entry = LogEntry::read(&record.line).ok()?;
    let (_, frame) = entry.frame?;
    let RpcMessage::Request { method, params, .. } = parse(frame.get().as_bytes())? else { return None };
    let mut question: Map<String, Value> = serde_json::from_str(params?.get()).ok()?;
    question.remove("sessionId");
    let kind = if method == RequestPermissionRequest::METHOD { "permission" } else { "elicitation" };
    question.insert("type".to_owned(), Value::from(kind));
    Some(RestQuestion {
        question_id: record.position.number().to_string(),
        question: JsonText::of(&question).ok()?,
        state: RestQuestionState::Open,
        created_at: session.created.saturating_add(entry.at / 1_000),
    })
}
