//! Operations on sessions that the agent advertises: load, resume, list, close, delete, modes and options.

use duologue_schema::{
    CloseSessionRequest, DeleteSessionRequest, ListSessionsRequest, LoadSessionRequest, Notification as _,
    PromptRequest, Request as _, ResumeSessionRequest, SessionNotification, SetSessionConfigOptionRequest,
    SetSessionModeRequest,
};
use duologue_transcript::{ParsedLine, Record, Side, TranscriptEntry, entries};
use serde_json::{Value, json};

use crate::finding::{Finding, Outcome, checks, fail, pass, skip, warn};
use crate::harness::{Agent, EndedTurn, Harness, TestClient, plural};
use crate::raw_process::ErrorFromAgent;

checks! { "sessions";
    "load-replays" => load_replays, Must, SESSION_SETUP,
        "`session/load` replays the conversation before its response.";
    "load-unknown" => load_unknown, Should, SESSION_SETUP,
        "`session/load` of an unknown session is answered with an error.";
    "resume-is-silent" => resume_is_silent, Must, SESSION_SETUP,
        "`session/resume` does not replay the conversation.";
    "list-answers" => list_answers, Must, SESSION_LIST,
        "`session/list` is answered with sessions, each with its id and an absolute directory.";
    "list-includes" => list_includes, Should, SESSION_LIST,
        "`session/list` names a session that has had a turn.";
    "list-bad-cursor" => list_bad_cursor, Should, SESSION_LIST,
        "A cursor that `session/list` never gave is refused.";
    "close-ends" => close_ends, Must, SESSION_SETUP,
        "`session/close` is answered, and cancels the turn that runs.";
    "delete-removes" => delete_removes, Must, SESSION_LIST,
        "`session/delete` takes a session off the list.";
    "set-mode" => set_mode, Must, SESSION_MODES,
        "`session/set_mode` takes each mode that was offered.";
    "mode-option" => mode_option, Should, SESSION_MODES,
        "Modes are also offered as a config option of the category `mode`, and a change of one changes the other.";
    "set-config-option" => set_config_option, Must, CONFIG_OPTIONS,
        "`session/set_config_option` takes the value that is set, and answers with all options.";
}

async fn load_replays(harness: &mut Harness) -> Outcome {
    let (agent, turn) = harness.after_turn().await?;
    offered(agent, "loadSession")?;
    let said = story(&agent.log().since(0), &turn.session);
    let (records, response) = restore(harness, LoadSessionRequest::METHOD, &turn).await?;
    if let Err(error) = response {
        return Ok(fail(format!("the session of a moment ago cannot be loaded: {error}")));
    }
    let (before, after) = around(&records, LoadSessionRequest::METHOD);
    if let Some(late) = story_of(&after, &turn.session).next() {
        let late = records.get(late.record).cloned();
        return Ok(fail("part of the conversation came after the answer").shown(late));
    }
    match (said, story_of(&before, &turn.session).count()) {
        (0, _) => Ok(skip("the turn had no updates to replay")),
        (_, 0) => Ok(fail("nothing of the conversation was replayed")),
        (_, updates) => Ok(pass(format!("{}, then the answer", plural(updates, "update")))),
    }
}

async fn load_unknown(harness: &mut Harness) -> Outcome {
    let (agent, _) = harness.session().await?;
    offered(agent, "loadSession")?;
    let params = agent.load_session_params("b5a0c1d2-0000-4000-8000-00000000dead");
    match agent.request(LoadSessionRequest::METHOD, params).await?.outcome {
        Err(error) => Ok(pass(format!("{error}"))),
        Ok(_) => Ok(fail("an unknown session is loaded")),
    }
}

async fn resume_is_silent(harness: &mut Harness) -> Outcome {
    let (agent, turn) = harness.after_turn().await?;
    offered(agent, "resume")?;
    let (records, response) = restore(harness, ResumeSessionRequest::METHOD, &turn).await?;
    match response {
        Ok(_) => {}
        Err(error) if error.code == -32601 => {
            return Ok(fail(format!("it advertises the method, and answers {error}")));
        }
        // The agent decides which sessions can be resumed.
        Err(error) => {
            return Ok(skip(format!("the session of a moment ago cannot be resumed: {error}")));
        }
    }
    let all = entries(&records);
    match story_of(&all, &turn.session).next() {
        Some(update) => {
            let update = records.get(update.record).cloned();
            Ok(fail("the conversation was replayed").shown(update))
        }
        None => Ok(pass("answered, without the conversation")),
    }
}

async fn list_answers(harness: &mut Harness) -> Outcome {
    let (agent, _) = harness.session().await?;
    offered(agent, "list")?;
    let sessions = list(agent, json!({})).await?;
    let odd = sessions.iter().find(|session| {
        let cwd = session["cwd"].as_str().unwrap_or_default();
        !session["sessionId"].is_string() || !std::path::Path::new(cwd).is_absolute()
    });
    match odd {
        Some(odd) => Ok(fail(format!("{odd} lacks an id or an absolute cwd"))),
        None => Ok(pass(plural(sessions.len(), "session"))),
    }
}

async fn list_includes(harness: &mut Harness) -> Outcome {
    let (agent, turn) = harness.after_turn().await?;
    offered(agent, "list")?;
    match lists(agent, &turn.session).await? {
        true => Ok(pass("it is on the list")),
        false => Ok(fail("it is not on the list")),
    }
}

async fn list_bad_cursor(harness: &mut Harness) -> Outcome {
    let (agent, _) = harness.session().await?;
    offered(agent, "list")?;
    match agent.request(ListSessionsRequest::METHOD, json!({"cursor": "no cursor of yours"})).await?.outcome {
        Err(error) => Ok(pass(format!("{error}"))),
        Ok(_) => Ok(fail("an invented cursor is answered with a page")),
    }
}

async fn close_ends(harness: &mut Harness) -> Outcome {
    let (agent, opened) = harness.session().await?;
    offered(agent, "close")?;
    let prompt = agent.slow_prompt_params(&opened.id);
    let turn = agent.send_request(PromptRequest::METHOD, prompt).await?;
    // As after a cancel, permission requests are cancelled.
    let id = agent.send_request(CloseSessionRequest::METHOD, json!({"sessionId": opened.id})).await?;
    if let Err(error) = agent.response(&id, CloseSessionRequest::METHOD).await?.outcome {
        return Ok(fail(format!("answered with {error}")));
    }
    let ended = agent.response(&turn, "the prompt of a session that was closed").await;
    let ended = ended.map_err(|finding| finding.explained_by("cancel-ends-turn"))?;
    let prompt = agent.prompt_params(&opened.id);
    match agent.request(PromptRequest::METHOD, prompt).await?.outcome {
        Ok(_) => Ok(warn("closed, but the session still takes prompts")),
        Err(_) => match ended.outcome {
            Ok(result) => Ok(pass(format!("answered, and the turn with {}", result["stopReason"]))),
            Err(error) => {
                let saw = format!("closed, but its turn is answered with {error}");
                Ok(warn(saw).explained_by("prompt-answered"))
            }
        },
    }
}

async fn delete_removes(harness: &mut Harness) -> Outcome {
    let (agent, _) = harness.session().await?;
    offered(agent, "delete")?;
    harness.expect_turns()?;
    let (agent, opened) = harness.session().await?;
    agent.turn(&opened.id).await.map_err(|finding| finding.needed("there is no turn"))?;
    if let Err(error) =
        agent.request(DeleteSessionRequest::METHOD, json!({"sessionId": opened.id})).await?.outcome
    {
        return Ok(fail(format!("answered with {error}")));
    }
    if agent.offers("list") && lists(agent, &opened.id).await? {
        return Ok(fail("the deleted session is still on the list"));
    }
    match agent.request(DeleteSessionRequest::METHOD, json!({"sessionId": opened.id})).await?.outcome {
        Ok(_) => Ok(pass("deleted, and once more without complaint")),
        Err(error) => Ok(warn(format!("deleted; once more, which should work, it answers {error}"))),
    }
}

async fn set_mode(harness: &mut Harness) -> Outcome {
    let (agent, opened) = harness.session().await?;
    let modes = &opened.offer["modes"];
    let Some(available) = modes["availableModes"].as_array() else { return Ok(skip("it offers no modes")) };
    let ids: Vec<&Value> = available.iter().map(|mode| &mode["id"]).collect();
    if !ids.contains(&&modes["currentModeId"]) {
        return Ok(fail(format!("the current mode {} is not among those offered", modes["currentModeId"])));
    }
    let params = json!({"sessionId": opened.id, "modeId": modes["currentModeId"]});
    if let Err(error) = agent.request(SetSessionModeRequest::METHOD, params).await?.outcome {
        return Ok(fail(format!("the mode it is in, {}, is answered with {error}", modes["currentModeId"])));
    }
    for id in &ids {
        let params = json!({"sessionId": opened.id, "modeId": id});
        if let Err(error) = agent.request(SetSessionModeRequest::METHOD, params).await?.outcome {
            // The agent may refuse a mode in an untrusted folder; then it should not offer the mode.
            return Ok(warn(format!("the mode {id} is offered, and answered with {error}")));
        }
    }
    let params = json!({"sessionId": opened.id, "modeId": "no-such-mode"});
    match agent.request(SetSessionModeRequest::METHOD, params).await?.outcome {
        Ok(_) => Ok(warn("each can be set, but so can one that was not offered")),
        Err(_) => Ok(pass(format!("each of {} can be set", ids.len()))),
    }
}

async fn mode_option(harness: &mut Harness) -> Outcome {
    let (agent, opened) = harness.session().await?;
    let modes = &opened.offer["modes"];
    let current = &modes["currentModeId"];
    let Some(available) = modes["availableModes"].as_array() else { return Ok(skip("it offers no modes")) };
    let Some(option) = mode_option_of(&opened.offer["configOptions"]) else {
        return Ok(fail("it offers modes, and clients that show only config options hide them"));
    };
    if option["currentValue"] != *current {
        return Ok(fail(format!("the mode is {current}, and the option has {}", option["currentValue"])));
    }
    // The session is in the configured mode since it was opened.
    let entered = agent.mode().map(Value::from);
    let current = entered.as_ref().unwrap_or(current);
    let Some(other) = available.iter().map(|mode| &mode["id"]).find(|id| *id != current) else {
        return Ok(pass("the option has the current mode, which is the only one"));
    };
    // The mode changes the option.
    let start = agent.log().len();
    let params = json!({"sessionId": opened.id, "modeId": other});
    if let Err(error) = agent.request(SetSessionModeRequest::METHOD, params).await?.outcome {
        return Ok(skip(format!("the mode {other} is answered with {error}")).explained_by("set-mode"));
    }
    agent.serve_in_quiet().await?;
    let shown = |update: &Value| {
        mode_option_of(&update["configOptions"]).is_some_and(|option| option["currentValue"] == *other)
    };
    if !updates_since(agent, start, &opened.id).iter().any(shown) {
        return Ok(fail(format!("after the mode was set to {other}, no config_option_update has it")));
    }
    // The option changes the mode.
    let start = agent.log().len();
    let params = json!({"sessionId": opened.id, "configId": option["id"], "value": current});
    if let Err(error) = agent.request(SetSessionConfigOptionRequest::METHOD, params).await?.outcome {
        return Ok(skip(format!("the value {current} of {} is answered with {error}", option["id"])));
    }
    agent.serve_in_quiet().await?;
    let back = |update: &Value| update["currentModeId"] == *current;
    match updates_since(agent, start, &opened.id).iter().any(back) {
        true => Ok(pass("a change of one changes the other")),
        false => Ok(fail(format!("after the option was set to {current}, no current_mode_update has it"))),
    }
}

/// Returns the config option of the category `mode`.
fn mode_option_of(options: &Value) -> Option<&Value> {
    options.as_array()?.iter().find(|option| option["category"] == "mode")
}

/// Returns the updates of a session that were logged since `start`.
fn updates_since(agent: &Agent, start: usize, session: &str) -> Vec<Value> {
    let records = agent.log().since(start);
    let lines = records.iter().filter_map(Record::line).filter(|line| line.from == Side::Agent);
    lines
        .filter_map(|line| serde_json::from_slice::<Value>(line.bytes()).ok())
        .filter(|line| line["params"]["sessionId"] == session)
        .map(|mut line| line["params"]["update"].take())
        .collect()
}

async fn set_config_option(harness: &mut Harness) -> Outcome {
    let (agent, opened) = harness.session().await?;
    let options = opened.offer["configOptions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(option) = options.iter().find(|option| option["type"] == "select") else {
        return Ok(skip("it offers no config options"));
    };
    // The current value, so that the request changes nothing.
    let params = json!({"sessionId": opened.id, "configId": option["id"], "value": option["currentValue"]});
    match agent.request(SetSessionConfigOptionRequest::METHOD, params).await?.outcome {
        // An error with a reason is acceptable: a value may be fixed, or need a login. A missing method that
        // is advertised is a fault.
        Err(error) if error.code == -32601 => {
            Ok(fail(format!("{} is offered, and answered with {error}", option["id"])))
        }
        Err(error) => Ok(warn(format!("the value that {} has is answered with {error}", option["id"]))),
        Ok(result) => {
            let all = result["configOptions"].as_array().map(Vec::as_slice).unwrap_or_default();
            match options.iter().find(|offered| !all.iter().any(|option| option["id"] == offered["id"])) {
                Some(missing) => Ok(fail(format!("the answer leaves out {}", missing["id"]))),
                None => Ok(pass("all options come back")),
            }
        }
    }
}

fn offered(agent: &Agent, capability: &str) -> Result<(), Finding> {
    let name = if capability == "loadSession" {
        capability.to_owned()
    } else {
        format!("sessionCapabilities.{capability}")
    };
    if agent.offers(capability) { Ok(()) } else { Err(skip(format!("it does not advertise {name}"))) }
}

/// The records while a session was restored, and the response.
type Restored = (Vec<Record>, Result<Value, ErrorFromAgent>);

/// Loads or resumes the session of a turn. Some agents restore only sessions of their own process, and some
/// only sessions that are not in use, so a second process tries if the first refuses.
async fn restore(harness: &mut Harness, method: &str, turn: &EndedTurn) -> Result<Restored, Finding> {
    let first = restore_by(harness.agent().await?, method, turn).await?;
    if first.1.is_ok() {
        return Ok(first);
    }
    let mut agent = harness.fresh(TestClient::Files).await?;
    let second = restore_by(&mut agent, method, turn).await;
    harness.retire(agent.into_process());
    second
}

async fn restore_by(agent: &mut Agent, method: &str, turn: &EndedTurn) -> Result<Restored, Finding> {
    let start = agent.log().len();
    let params = agent.load_session_params(&turn.session);
    let response = agent.request_with_login(method, params).await?;
    agent.serve_in_quiet().await?;
    Ok((agent.log().since(start), response.outcome))
}

/// Counts the updates that are part of a session's conversation.
fn story(records: &[Record], session: &str) -> usize {
    story_of(&entries(records), session).count()
}

/// Returns the updates that are part of a session's conversation.
fn story_of<'a>(
    all: &'a [TranscriptEntry<'a>],
    session: &'a str,
) -> impl Iterator<Item = &'a TranscriptEntry<'a>> {
    all.iter().filter(move |entry| {
        let update = match &entry.parsed {
            ParsedLine::Notification { params: Some(params), method, .. }
                if method == SessionNotification::METHOD =>
            {
                serde_json::from_str::<Value>(params.get()).unwrap_or_default()
            }
            _ => return false,
        };
        entry.from() == Side::Agent
            && update["sessionId"] == session
            && matches!(
                update["update"]["sessionUpdate"].as_str(),
                Some("agent_message_chunk" | "agent_thought_chunk" | "user_message_chunk" | "tool_call")
            )
    })
}

/// Splits the entries at the response to `method`.
fn around<'a>(records: &'a [Record], method: &str) -> (Vec<TranscriptEntry<'a>>, Vec<TranscriptEntry<'a>>) {
    let mut before = entries(records);
    let answered = before.iter().position(|entry| {
        matches!(entry.parsed, ParsedLine::Response { .. }) && entry.method() == Some(method)
    });
    let after = before.split_off(answered.unwrap_or(before.len()));
    (before, after)
}

/// Returns the sessions of all pages of the list.
async fn list(agent: &mut Agent, mut params: Value) -> Result<Vec<Value>, Finding> {
    const PAGES: usize = 100;
    let mut sessions = Vec::new();
    for _ in 0..PAGES {
        let page = match agent.request(ListSessionsRequest::METHOD, params.clone()).await?.outcome {
            Ok(page) => page,
            Err(error) => return Err(unlisted(format!("session/list is answered with {error}"))),
        };
        let Some(items) = page["sessions"].as_array() else {
            return Err(unlisted(format!("the answer has no list of sessions: {page}")));
        };
        sessions.extend(items.iter().cloned());
        match page["nextCursor"].as_str() {
            Some(cursor) => params["cursor"] = json!(cursor),
            None => return Ok(sessions),
        }
    }
    Ok(sessions)
}

fn unlisted(saw: String) -> Finding {
    fail(saw).explained_by("list-answers")
}

async fn lists(agent: &mut Agent, session: &str) -> Result<bool, Finding> {
    // Without a directory some agents list only the sessions of their own directory.
    let here = json!({"cwd": agent.new_session_params()["cwd"]});
    let sessions = [list(agent, here).await?, list(agent, json!({})).await?].concat();
    Ok(sessions.iter().any(|item| item["sessionId"] == session))
}
