//! The draft of version 2: a prompt is answered at once, and an update of the state ends its turn.

use std::time::Duration;

use duologue_schema::{
    CloseSessionRequest, ListSessionsRequest, PromptRequest, Request as _, RequestPermissionRequest,
    ResumeSessionRequest,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::finding::{Finding, Outcome, checks, fail, pass, skip, warn};
use crate::harness::{Agent, Harness, TestClient};
use crate::raw_process::{FromAgent, ReadOutcome, ResponseFromAgent, seconds};

checks! { "version-2";
    "initialize-answers" => initialize_answers, Must, V2_INITIALIZATION,
        "An offer of version 2 is answered with version 2, the agent's `info` and its `capabilities`.";
    "unknown-method" => unknown_method, Must, V2_OVERVIEW,
        "A request for an unknown method is answered with -32601.";
    "unknown-extension" => unknown_extension, Must, V2_OVERVIEW,
        "A request for an extension method it does not have (`_…`) is answered with -32601.";
    "session-new" => session_new, Must, V2_SESSIONS,
        "`session/new` in an absolute directory makes a session.";
    "prompt-answered" => prompt_answered, Must, V2_PROMPT,
        "`session/prompt` is answered with the `messageId` of the user's message before the turn ends.";
    "user-message" => user_message, Must, V2_PROMPT,
        "The user's message is sent as an update with the `messageId` of the answer.";
    "running-first" => running_first, Must, V2_PROMPT,
        "The state is `running` before the turn's first message of the agent or tool call.";
    "stop-reason" => stop_reason, Should, V2_PROMPT,
        "The turn ends with the state `idle` and a stop reason.";
    "nothing-after-idle" => nothing_after_idle, Must, V2_PROMPT,
        "No message, thought or tool call of the turn follows the state `idle`.";
    "message-ids" => message_ids, Must, V2_PROMPT,
        "Each update of a message or thought has a `messageId`.";
    "second-prompt" => second_prompt, Must, V2_PROMPT,
        "A prompt in the turn of another one is answered at the latest after a cancel. If it is accepted, its message is sent.";
    "cancel-ends-turn" => cancel_ends_turn, Must, V2_PROMPT,
        "`session/cancel` ends the turn with the stop reason `cancelled`, and no tool call of it stays open.";
    "permission-request" => permission_request, Must, V2_PROMPT,
        "A permission request has a `title` and `options`.";
    "tool-call-cancel-unknown" => tool_call_cancel_unknown, Should, V2_OVERVIEW,
        "`tool_call/cancel` of an unknown tool call is answered with -32602.";
    "resume" => resume, Must, V2_SESSIONS,
        "`session/resume` without `replayFrom` is answered, and no message is replayed.";
    "resume-state" => resume_state, Must, V2_SESSIONS,
        "`session/resume` sends the state of the session behind the replay and before its answer.";
    "resume-replays" => resume_replays, Must, V2_SESSIONS,
        "`session/resume` from the start replays the messages, and one `replay_complete` ends them before its answer.";
    "resume-unknown-place" => resume_unknown_place, Must, V2_SESSIONS,
        "`session/resume` from a place of an unknown type is answered with -32602.";
    "list-answers" => list_answers, Must, V2_SESSIONS,
        "`session/list` is answered with a list of sessions.";
    "close-answers" => close_answers, Must, V2_SESSIONS,
        "`session/close` is answered with a result.";
    "close-twice" => close_twice, Should, V2_SESSIONS,
        "`session/close` of a closed session succeeds.";
    "nothing-after-close" => nothing_after_close, Must, V2_SESSIONS,
        "After a close in a turn, the turn has ended, and nothing of the session follows the answer.";
}

/// The time to wait for the first work of a turn.
const FIRST_WORK: Duration = Duration::from_secs(2);
/// The time to wait for the answer to a prompt that the agent may hold.
const HELD: Duration = Duration::from_secs(1);

/// A line of a turn that concerns the checks.
enum Seen {
    Response,
    Update(Value),
    Permission(Value),
}

/// The messages of the agent from a prompt to the end of its turn.
struct SeenTurn {
    seen: Vec<Seen>,
    response: ResponseFromAgent,
    /// The time from the cancel to the end, if the turn was cancelled.
    after_cancel: Option<Duration>,
}

impl SeenTurn {
    fn updates(&self) -> impl DoubleEndedIterator<Item = &Value> {
        self.seen.iter().filter_map(|seen| match seen {
            Seen::Update(update) => Some(update),
            _ => None,
        })
    }

    fn message_id(&self) -> Option<&str> {
        self.response.outcome.as_ref().ok().and_then(|result| result["messageId"].as_str())
    }
}

fn kind(update: &Value) -> &str {
    update["sessionUpdate"].as_str().unwrap_or_default()
}

/// Returns true for what the agent does in a turn.
fn is_work(update: &Value) -> bool {
    let kind = kind(update);
    kind.starts_with("agent_") || kind.starts_with("tool_call")
}

fn is_idle(update: &Value) -> bool {
    kind(update) == "state_update" && update["state"] == "idle"
}

/// Runs a turn until the state `idle`. With `cancels`, it is cancelled at its first work.
async fn run_turn(
    agent: &mut Agent,
    session: &str,
    params: Value,
    mut cancels: bool,
) -> Result<SeenTurn, Finding> {
    let id = agent.send_request(PromptRequest::METHOD, params).await?;
    let mut deadline = Instant::now() + agent.patience;
    let (mut seen, mut response, mut is_over) = (Vec::new(), None, false);
    let mut cancelled: Option<Instant> = None;
    loop {
        if response.is_none() && agent.has_response(&id) {
            let answer = agent.response(&id, PromptRequest::METHOD).await?;
            is_over |= answer.outcome.is_err();
            seen.push(Seen::Response);
            response = Some(answer);
        }
        if is_over {
            let response = match response {
                Some(response) => response,
                None => {
                    let early = agent.response(&id, "a prompt whose turn has ended").await?;
                    seen.push(Seen::Response);
                    early
                }
            };
            return Ok(SeenTurn { seen, response, after_cancel: cancelled.map(|sent| sent.elapsed()) });
        }
        match agent.next(deadline).await {
            ReadOutcome::Message(FromAgent::Notification(sent)) if sent.params["sessionId"] == session => {
                let update = sent.params["update"].clone();
                if cancels && is_work(&update) {
                    cancels = false;
                    agent.cancel(session).await?;
                    let now = Instant::now();
                    (cancelled, deadline) = (Some(now), now + agent.patience);
                }
                // The state of a session without a turn comes before the user's message.
                is_over = is_idle(&update)
                    && (response.is_some()
                        || seen.iter().any(|seen| matches!(seen, Seen::Update(work) if is_work(work))));
                seen.push(Seen::Update(update));
            }
            ReadOutcome::Message(message) => {
                if let FromAgent::Request(request) = &message
                    && request.method == RequestPermissionRequest::METHOD
                {
                    seen.push(Seen::Permission(request.params.clone()));
                }
                agent.handle(message).await?;
            }
            ReadOutcome::Timeout => {
                let limit = seconds(agent.patience);
                let missing = if response.is_some() { "no state `idle`" } else { "no answer" };
                return Err(fail(format!("{missing} within {limit} after the prompt")));
            }
            ReadOutcome::End => return Err(fail("the agent ended in the turn")),
        }
    }
}

/// Runs a turn with the configured prompt in a new session.
async fn turn(harness: &mut Harness) -> Result<(&mut Agent, String, SeenTurn), Finding> {
    harness.expect_turns()?;
    let (agent, session) = harness.session().await?;
    let prompt = agent.prompt_params(&session.id);
    match run_turn(agent, &session.id, prompt, false).await {
        Ok(turn) => {
            if let Err(error) = &turn.response.outcome {
                return Err(skip(format!("the prompt is answered with {error}; set another prompt")));
            }
            Ok((harness.agent().await?, session.id, turn))
        }
        Err(finding) => Err(harness.without_turn(&finding)),
    }
}

async fn initialize_answers(harness: &mut Harness) -> Outcome {
    let agent = match harness.fresh(TestClient::Bare).await {
        Ok(agent) => agent,
        Err(finding) => return Ok(fail(finding.saw)),
    };
    let answer = agent.initialized.clone();
    harness.retire(agent.into_process());
    let info = &answer["info"];
    if !info["name"].is_string() || !info["version"].is_string() {
        return Ok(fail("`info` has no name or no version"));
    }
    if !answer["capabilities"].is_object() {
        return Ok(fail("there are no `capabilities`"));
    }
    Ok(pass("version 2"))
}

fn expect_code(response: &ResponseFromAgent, code: i64) -> Finding {
    match &response.outcome {
        Err(error) if error.code == code => pass(code.to_string()),
        Err(error) => fail(format!("answered with {error}, not with {code}")),
        Ok(result) => fail(format!("answered with a result: {result}")),
    }
}

async fn unknown_method(harness: &mut Harness) -> Outcome {
    let response = harness.agent().await?.request("no/such_method", json!({})).await?;
    Ok(expect_code(&response, -32601))
}

async fn unknown_extension(harness: &mut Harness) -> Outcome {
    let response = harness.agent().await?.request("_duologue.dev/no_such_method", json!({})).await?;
    Ok(expect_code(&response, -32601).explained_by("unknown-method"))
}

async fn session_new(harness: &mut Harness) -> Outcome {
    let opened = harness.open().await?;
    Ok(if opened.id.is_empty() { fail("the session's id is empty") } else { pass("a session") })
}

async fn prompt_answered(harness: &mut Harness) -> Outcome {
    let (agent, session) = harness.session().await?;
    let prompt = agent.prompt_params(&session.id);
    let turn = match run_turn(agent, &session.id, prompt, false).await {
        Ok(turn) => turn,
        Err(finding) => {
            harness.without_turn(&finding);
            return Err(finding);
        }
    };
    if let Err(error) = &turn.response.outcome {
        return Ok(warn(format!("the prompt is answered with {error}; set another prompt")));
    }
    if turn.message_id().is_none() {
        return Ok(fail("the answer has no `messageId`"));
    }
    if matches!(turn.seen.last(), Some(Seen::Response)) {
        return Ok(fail("the answer came after the end of the turn"));
    }
    Ok(pass("answered before the turn ended"))
}

async fn user_message(harness: &mut Harness) -> Outcome {
    let (_, _, turn) = turn(harness).await?;
    let id = turn.message_id().ok_or_else(|| skip("the answer has no `messageId`"))?;
    let mut echoes = turn.updates().filter(|update| kind(update).starts_with("user_message"));
    Ok(match echoes.next() {
        None => fail("the user's message was not sent"),
        Some(echo) if echo["messageId"] == id => pass("sent with its id"),
        Some(echo) => fail(format!("the message has the id {}, the answer {id:?}", echo["messageId"])),
    })
}

async fn running_first(harness: &mut Harness) -> Outcome {
    let (_, _, turn) = turn(harness).await?;
    for update in turn.updates() {
        if kind(update) == "state_update" && update["state"] == "running" {
            return Ok(pass("running"));
        }
        if is_work(update) {
            return Ok(fail(format!("`{}` came before the state `running`", kind(update))));
        }
    }
    Ok(fail("there was no state `running`"))
}

async fn stop_reason(harness: &mut Harness) -> Outcome {
    let (_, _, turn) = turn(harness).await?;
    let reason = turn.updates().rfind(|update| is_idle(update)).map(|idle| idle["stopReason"].clone());
    Ok(match reason.as_ref().and_then(Value::as_str) {
        Some(reason) => pass(reason),
        None => fail("the state `idle` has no stop reason"),
    })
}

async fn nothing_after_idle(harness: &mut Harness) -> Outcome {
    let (agent, session, _) = turn(harness).await?;
    let deadline = Instant::now() + agent.waits.quiet * 2;
    loop {
        match agent.next(deadline).await {
            ReadOutcome::Message(FromAgent::Notification(sent)) if sent.params["sessionId"] == *session => {
                let update = &sent.params["update"];
                // Work without a prompt has a state `running` of its own.
                if kind(update) == "state_update" && update["state"] == "running" {
                    return Ok(pass("other work began after the turn"));
                }
                if is_work(update) {
                    return Ok(fail(format!("`{}` came after the state `idle`", kind(update))));
                }
            }
            ReadOutcome::Message(message) => agent.handle(message).await?,
            ReadOutcome::Timeout => return Ok(pass("nothing of the turn came after the state `idle`")),
            ReadOutcome::End => return Ok(fail("the agent ended after the turn")),
        }
    }
}

async fn message_ids(harness: &mut Harness) -> Outcome {
    let (_, _, turn) = turn(harness).await?;
    let is_message = |update: &&Value| {
        let kind = kind(update);
        kind.starts_with("user_message")
            || kind.starts_with("agent_message")
            || kind.starts_with("agent_thought")
    };
    let mut messages = turn.updates().filter(is_message).peekable();
    if messages.peek().is_none() {
        return Ok(skip("the turn has no message"));
    }
    Ok(match messages.find(|update| !update["messageId"].is_string()) {
        Some(update) => fail(format!("`{}` has no `messageId`", kind(update))),
        None => pass("all messages have an id"),
    })
}

async fn second_prompt(harness: &mut Harness) -> Outcome {
    harness.expect_turns()?;
    let (agent, session) = harness.session().await?;
    let slow = agent.slow_prompt_params(&session.id);
    let first = agent.send_request(PromptRequest::METHOD, slow).await?;
    let first = agent.response(&first, "the first of two prompts").await?;
    let prompt = agent.prompt_params(&session.id);
    let second = agent.send_request(PromptRequest::METHOD, prompt).await?;
    // An agent may hold the prompt until the first turn has ended.
    let mut updates =
        updates_until(agent, &session.id, Instant::now() + HELD, |agent, _| agent.has_response(&second))
            .await?;
    agent.cancel(&session.id).await?;
    let response = agent.response(&second, "a prompt in the turn of another one, and a cancel").await?;
    let (deadline, mut state) = (Instant::now() + agent.patience, Value::Null);
    let ended = |_: &Agent, update: Option<&Value>| {
        if let Some(update) = update.filter(|update| kind(update) == "state_update") {
            state = update["state"].clone();
        }
        state == "idle"
    };
    updates.extend(updates_until(agent, &session.id, deadline, ended).await?);
    let accepted = match response.outcome {
        Ok(accepted) => accepted,
        Err(error) => return Ok(pass(format!("refused with {error}"))),
    };
    let id = &accepted["messageId"];
    if first.outcome.is_ok_and(|first| first["messageId"] == *id) {
        return Ok(fail(format!("both prompts are answered with the message id {id}")));
    }
    let is_echo = |update: &Value| kind(update).starts_with("user_message") && update["messageId"] == *id;
    Ok(match updates.iter().any(is_echo) {
        true => pass("accepted"),
        false => fail("the prompt was accepted, and its message was not sent"),
    })
}

/// Returns the updates of a session until `is_over` or the deadline. `is_over` gets each update, and `None` before the
/// first one.
async fn updates_until(
    agent: &mut Agent,
    session: &str,
    deadline: Instant,
    mut is_over: impl FnMut(&Agent, Option<&Value>) -> bool,
) -> Result<Vec<Value>, Finding> {
    let mut updates = Vec::new();
    let mut ended = is_over(agent, None);
    while !ended {
        match agent.next(deadline).await {
            ReadOutcome::Message(FromAgent::Notification(sent)) if sent.params["sessionId"] == session => {
                let update = sent.params["update"].clone();
                ended = is_over(agent, Some(&update));
                updates.push(update);
                continue;
            }
            ReadOutcome::Message(message) => agent.handle(message).await?,
            ReadOutcome::Timeout => break,
            ReadOutcome::End => return Err(fail("the agent ended")),
        }
        ended = is_over(agent, None);
    }
    Ok(updates)
}

async fn cancel_ends_turn(harness: &mut Harness) -> Outcome {
    harness.expect_turns()?;
    let (agent, session) = harness.session().await?;
    let slow = agent.slow_prompt_params(&session.id);
    let turn = run_turn(agent, &session.id, slow, true).await?;
    let idle = turn.updates().rfind(|update| is_idle(update));
    let after = turn.after_cancel.unwrap_or_default();
    match idle.and_then(|idle| idle["stopReason"].as_str()) {
        Some("cancelled") => {}
        Some("end_turn") if after < agent.waits.crossed => {
            return Ok(skip("the turn was over before it could be cancelled; set a slow prompt"));
        }
        Some(other) => {
            let after = seconds(Duration::from_secs(after.as_secs()));
            return Ok(fail(format!("the turn ended with {other:?} {after} after the cancel")));
        }
        None => return Ok(fail("the cancelled turn ended without a stop reason")),
    }
    let mut open = Vec::new();
    for update in turn.updates().filter(|update| kind(update) == "tool_call_update") {
        let id = &update["toolCallId"];
        match update["status"].as_str() {
            Some("completed" | "failed" | "cancelled") => open.retain(|other| other != id),
            Some(_) if !open.contains(id) => open.push(id.clone()),
            _ => {}
        }
    }
    Ok(match open.first() {
        Some(id) => fail(format!("the tool call {id} is open after the cancelled turn")),
        None => pass("cancelled"),
    })
}

async fn permission_request(harness: &mut Harness) -> Outcome {
    harness.expect_turns()?;
    let (agent, session) = harness.session().await?;
    let prompt = agent.permission_prompt_params(&session.id);
    let turn = run_turn(agent, &session.id, prompt, false).await?;
    let request = turn.seen.iter().find_map(|seen| match seen {
        Seen::Permission(params) => Some(params),
        _ => None,
    });
    Ok(match request {
        None => skip("the prompt requests no permission; set a permission prompt"),
        Some(params) if !params["title"].is_string() => fail("the request has no `title`"),
        Some(params) if params["options"].as_array().is_none_or(Vec::is_empty) => {
            fail("the request has no `options`")
        }
        Some(_) => pass("it has a title and options"),
    })
}

async fn tool_call_cancel_unknown(harness: &mut Harness) -> Outcome {
    let (agent, session) = harness.session().await?;
    let params = json!({"sessionId": session.id, "toolCallId": "no-such-call"});
    let response = agent.request("tool_call/cancel", params).await?;
    Ok(match &response.outcome {
        Err(error) if error.code == -32601 => skip("the agent has no `tool_call/cancel`"),
        _ => expect_code(&response, -32602),
    })
}

/// Resumes a session after a turn, and returns the response and the updates before it.
async fn resumed(
    harness: &mut Harness,
    replay_from: Option<Value>,
) -> Result<(ResponseFromAgent, Vec<Value>), Finding> {
    let (agent, session, _) = turn(harness).await?;
    agent.close(&session).await?;
    let mut params = agent.load_session_params(&session);
    if let Some(place) = replay_from {
        params["replayFrom"] = place;
    }
    let id = agent.send_request(ResumeSessionRequest::METHOD, params).await?;
    let deadline = Instant::now() + agent.patience;
    let mut updates = Vec::new();
    while !agent.has_response(&id) {
        match agent.next(deadline).await {
            ReadOutcome::Message(FromAgent::Notification(sent)) => {
                updates.push(sent.params["update"].clone())
            }
            ReadOutcome::Message(message) => agent.handle(message).await?,
            ReadOutcome::Timeout | ReadOutcome::End => break,
        }
    }
    let response = agent.response(&id, ResumeSessionRequest::METHOD).await?;
    if response.outcome.as_ref().is_err_and(|error| error.code == -32002) && !lists(agent, &session).await? {
        return Err(skip("the agent keeps no closed sessions: it does not list this one"));
    }
    Ok((response, updates))
}

/// Returns true if the agent lists a session.
async fn lists(agent: &mut Agent, session: &str) -> Result<bool, Finding> {
    let response = agent.request(ListSessionsRequest::METHOD, json!({})).await?;
    let listed = |result: Value| {
        let sessions = result["sessions"].as_array().cloned().unwrap_or_default();
        sessions.iter().any(|listed| listed["sessionId"] == session)
    };
    Ok(response.outcome.is_ok_and(listed))
}

fn is_message(update: &Value) -> bool {
    kind(update).starts_with("agent_message") || kind(update).starts_with("user_message")
}

async fn resume(harness: &mut Harness) -> Outcome {
    let (response, updates) = resumed(harness, None).await?;
    Ok(match response.outcome {
        Err(error) => fail(format!("answered with {error}")),
        Ok(_) if updates.iter().any(is_message) => fail("messages were replayed"),
        Ok(_) => pass("resumed"),
    })
}

async fn resume_state(harness: &mut Harness) -> Outcome {
    let (response, updates) = resumed(harness, Some(json!({"type": "start"}))).await?;
    let (response, updates) = match response.outcome {
        // The agent cannot replay.
        Err(error) if error.code == -32602 => resumed(harness, None).await?,
        _ => (response, updates),
    };
    if let Err(error) = response.outcome {
        return Ok(fail(format!("answered with {error}")).explained_by("resume"));
    }
    let state = updates.iter().rposition(|update| kind(update) == "state_update");
    let message = updates.iter().rposition(is_message);
    Ok(match state {
        None => fail("no state came before the answer"),
        Some(state) if message.is_some_and(|message| state < message) => {
            fail("no state came behind the replay and before the answer")
        }
        Some(_) => pass("the state came before the answer"),
    })
}

async fn resume_replays(harness: &mut Harness) -> Outcome {
    let (response, updates) = resumed(harness, Some(json!({"type": "start"}))).await?;
    Ok(match response.outcome {
        Err(error) if error.code == -32602 => skip(format!("the agent cannot replay: {error}")),
        Err(error) => fail(format!("answered with {error}")),
        Ok(_) => match updates.iter().rposition(is_message) {
            None => fail("no message came before the answer"),
            Some(message) => {
                let is_end = |update: &&Value| kind(update) == "replay_complete";
                let (replayed, behind) = updates.split_at(message);
                match (replayed.iter().filter(is_end).count(), behind.iter().filter(is_end).count()) {
                    (0, 1) => pass("messages and the end of the replay came before the answer"),
                    (0, 0) => fail("no `replay_complete` came before the answer"),
                    (0, ends) => fail(format!("`replay_complete` came {ends} times")),
                    _ => fail("a message came behind `replay_complete`"),
                }
            }
        },
    })
}

async fn resume_unknown_place(harness: &mut Harness) -> Outcome {
    let place = json!({"type": "_duologue.dev/nowhere"});
    let (response, _) = resumed(harness, Some(place)).await?;
    Ok(expect_code(&response, -32602))
}

async fn list_answers(harness: &mut Harness) -> Outcome {
    let agent = harness.agent().await?;
    let response = agent.request_with_login(ListSessionsRequest::METHOD, json!({})).await?;
    Ok(match response.outcome {
        Ok(result) if result["sessions"].is_array() => pass("a list"),
        Ok(_) => fail("the answer has no list `sessions`"),
        Err(error) => fail(format!("answered with {error}")),
    })
}

async fn close_answers(harness: &mut Harness) -> Outcome {
    let (agent, session) = harness.session().await?;
    let response = agent.request(CloseSessionRequest::METHOD, json!({"sessionId": session.id})).await?;
    Ok(match response.outcome {
        Ok(_) => pass("closed"),
        Err(error) => fail(format!("answered with {error}")),
    })
}

async fn close_twice(harness: &mut Harness) -> Outcome {
    let (agent, session) = harness.session().await?;
    let params = json!({"sessionId": session.id});
    if let Err(error) = agent.request(CloseSessionRequest::METHOD, params.clone()).await?.outcome {
        return Ok(fail(format!("answered with {error}")).explained_by("close-answers"));
    }
    Ok(match agent.request(CloseSessionRequest::METHOD, params).await?.outcome {
        Ok(_) => pass("the second close has a result"),
        Err(error) if error.code == -32002 => {
            pass(format!("the second close is answered with {error}, which counts as closed"))
        }
        Err(error) => fail(format!("the second close is answered with {error}")),
    })
}

async fn nothing_after_close(harness: &mut Harness) -> Outcome {
    harness.expect_turns()?;
    let (agent, session) = harness.session().await?;
    let slow = agent.slow_prompt_params(&session.id);
    let prompt = agent.send_request(PromptRequest::METHOD, slow).await?;
    agent.response(&prompt, PromptRequest::METHOD).await?;
    let deadline = Instant::now() + FIRST_WORK;
    updates_until(agent, &session.id, deadline, |_, update| update.is_some_and(is_work)).await?;
    let params = json!({"sessionId": session.id});
    let close = agent.send_request(CloseSessionRequest::METHOD, params).await?;
    let deadline = Instant::now() + agent.patience;
    updates_until(agent, &session.id, deadline, |agent, _| agent.has_response(&close)).await?;
    if let Err(error) = agent.response(&close, CloseSessionRequest::METHOD).await?.outcome {
        return Ok(fail(format!("answered with {error}")).explained_by("close-answers"));
    }
    let quiet = Instant::now() + agent.waits.quiet * 2;
    let late = updates_until(agent, &session.id, quiet, |_, update| update.is_some()).await?;
    Ok(match late.first() {
        None => pass("nothing came after the answer"),
        Some(update) => fail(format!("`{}` came after the answer", kind(update))),
    })
}
