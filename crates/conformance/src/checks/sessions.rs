//! What can be done with sessions, as far as the agent offers it.

use duologue_transcript::{ParsedLine, Record, Side, TranscriptEntry, entries};
use serde_json::{Value, json};

use super::bench::{Agent, Bench, Client, QUIET, Turn};
use super::finding::{Check, Finding, Outcome, check, fail, page, pass, skip, warn};
use super::wire::Refusal;

pub(super) const CHECKS: &[Check] = &[
    check!(
        "load-replays",
        Must,
        page::SESSION_SETUP,
        "`session/load` tells the conversation again, then answers.",
        load_replays
    ),
    check!(
        "load-unknown",
        Should,
        page::SESSION_SETUP,
        "`session/load` of a session nobody made is answered with an error.",
        load_unknown
    ),
    check!(
        "resume-is-silent",
        Must,
        page::SESSION_SETUP,
        "`session/resume` does not tell the conversation again.",
        resume_is_silent
    ),
    check!(
        "list-answers",
        Must,
        page::SESSION_LIST,
        "`session/list` is answered with sessions, each with its id and an absolute directory.",
        list_answers
    ),
    check!(
        "list-includes",
        Should,
        page::SESSION_LIST,
        "`session/list` names a session that has had a turn.",
        list_includes
    ),
    check!(
        "list-bad-cursor",
        Should,
        page::SESSION_LIST,
        "A cursor that `session/list` never gave is refused.",
        list_bad_cursor
    ),
    check!(
        "close-ends",
        Must,
        page::SESSION_SETUP,
        "`session/close` is answered, and cancels the turn that runs.",
        close_ends
    ),
    check!(
        "delete-removes",
        Must,
        page::SESSION_LIST,
        "`session/delete` takes a session off the list.",
        delete_removes
    ),
    check!(
        "set-mode",
        Must,
        page::SESSION_MODES,
        "`session/set_mode` takes each mode that was offered.",
        set_mode
    ),
    check!(
        "set-config-option",
        Must,
        page::CONFIG_OPTIONS,
        "`session/set_config_option` takes the value that is set, and answers with all options.",
        set_config_option
    ),
];

async fn load_replays(bench: &mut Bench) -> Outcome {
    let (agent, turn) = bench.after_turn().await?;
    offered(agent, "loadSession")?;
    let said = story(&agent.tape().since(0), &turn.session);
    let (records, answer) = restore(bench, "session/load", &turn).await?;
    if let Err(refusal) = answer {
        return Ok(fail(format!("the session of a moment ago cannot be loaded: {refusal}")));
    }
    let (before, after) = around(&records, "session/load");
    if let Some(late) = story_of(&after, &turn.session).next() {
        let late = records.get(late.record).cloned();
        return Ok(fail("part of the conversation came after the answer").shown(late));
    }
    match (said, story_of(&before, &turn.session).count()) {
        (0, _) => Ok(skip("the turn said nothing that could be told again")),
        (_, 0) => Ok(fail("nothing of the conversation was told again")),
        (_, told) => Ok(pass(format!("{told} update{}, then the answer", if told == 1 { "" } else { "s" }))),
    }
}

async fn load_unknown(bench: &mut Bench) -> Outcome {
    let (agent, _) = bench.session().await?;
    offered(agent, "loadSession")?;
    let params = agent.folder_of("b5a0c1d2-0000-4000-8000-00000000dead");
    match agent.ask("session/load", params).await?.outcome {
        Err(refusal) => Ok(pass(format!("{refusal}"))),
        Ok(_) => Ok(fail("a session that never was is loaded")),
    }
}

async fn resume_is_silent(bench: &mut Bench) -> Outcome {
    let (agent, turn) = bench.after_turn().await?;
    offered(agent, "resume")?;
    let (records, answer) = restore(bench, "session/resume", &turn).await?;
    match answer {
        Ok(_) => {}
        Err(refusal) if refusal.code == -32601 => {
            return Ok(fail(format!("it advertises the method, and answers {refusal}")));
        }
        // What can be resumed when is the agent's affair.
        Err(refusal) => {
            return Ok(skip(format!("the session of a moment ago cannot be resumed: {refusal}")));
        }
    }
    let all = entries(&records);
    match story_of(&all, &turn.session).next() {
        Some(told) => {
            let told = records.get(told.record).cloned();
            Ok(fail("the conversation was told again").shown(told))
        }
        None => Ok(pass("answered, without the conversation")),
    }
}

async fn list_answers(bench: &mut Bench) -> Outcome {
    let (agent, _) = bench.session().await?;
    offered(agent, "list")?;
    let sessions = list(agent, json!({})).await?;
    let odd = sessions.iter().find(|session| {
        let cwd = session["cwd"].as_str().unwrap_or_default();
        !session["sessionId"].is_string() || !std::path::Path::new(cwd).is_absolute()
    });
    match odd {
        Some(odd) => Ok(fail(format!("{odd} lacks an id or an absolute cwd"))),
        None => Ok(pass(format!("{} session{}", sessions.len(), if sessions.len() == 1 { "" } else { "s" }))),
    }
}

async fn list_includes(bench: &mut Bench) -> Outcome {
    let (agent, turn) = bench.after_turn().await?;
    offered(agent, "list")?;
    match lists(agent, &turn.session).await? {
        true => Ok(pass("it is on the list")),
        false => Ok(fail("it is not on the list")),
    }
}

async fn list_bad_cursor(bench: &mut Bench) -> Outcome {
    let (agent, _) = bench.session().await?;
    offered(agent, "list")?;
    match agent.ask("session/list", json!({"cursor": "no cursor of yours"})).await?.outcome {
        Err(refusal) => Ok(pass(format!("{refusal}"))),
        Ok(_) => Ok(fail("an invented cursor is answered with a page")),
    }
}

async fn close_ends(bench: &mut Bench) -> Outcome {
    let (agent, opened) = bench.session().await?;
    offered(agent, "close")?;
    let prompt = agent.prompt(&opened.id);
    let turn = agent.post("session/prompt", prompt).await?;
    // As after a cancel, there is no permission any more.
    let id = agent.post("session/close", json!({"sessionId": opened.id})).await?;
    if let Err(refusal) = agent.answer(&id, "session/close").await?.outcome {
        return Ok(fail(format!("answered with {refusal}")));
    }
    let ended = agent.answer(&turn, "the prompt of a session that was closed").await;
    let ended = ended.map_err(|finding| finding.explained_by("cancel-ends-turn"))?;
    let prompt = agent.prompt(&opened.id);
    match agent.ask("session/prompt", prompt).await?.outcome {
        Ok(_) => Ok(warn("closed, but the session still takes prompts")),
        Err(_) => match ended.outcome {
            Ok(result) => Ok(pass(format!("answered, and the turn with {}", result["stopReason"]))),
            Err(refusal) => {
                let saw = format!("closed, but its turn is answered with {refusal}");
                Ok(warn(saw).explained_by("prompt-answered"))
            }
        },
    }
}

async fn delete_removes(bench: &mut Bench) -> Outcome {
    let (agent, _) = bench.session().await?;
    offered(agent, "delete")?;
    bench.expect_turns()?;
    let (agent, opened) = bench.session().await?;
    agent.turn(&opened.id).await.map_err(|finding| finding.needed("there is no turn"))?;
    if let Err(refusal) = agent.ask("session/delete", json!({"sessionId": opened.id})).await?.outcome {
        return Ok(fail(format!("answered with {refusal}")));
    }
    if agent.offers("list") && lists(agent, &opened.id).await? {
        return Ok(fail("the deleted session is still on the list"));
    }
    match agent.ask("session/delete", json!({"sessionId": opened.id})).await?.outcome {
        Ok(_) => Ok(pass("deleted, and once more without complaint")),
        Err(refusal) => Ok(warn(format!("deleted; once more, which should work, it answers {refusal}"))),
    }
}

async fn set_mode(bench: &mut Bench) -> Outcome {
    let (agent, opened) = bench.session().await?;
    let modes = &opened.offer["modes"];
    let Some(available) = modes["availableModes"].as_array() else { return Ok(skip("it offers no modes")) };
    let ids: Vec<&Value> = available.iter().map(|mode| &mode["id"]).collect();
    if !ids.contains(&&modes["currentModeId"]) {
        return Ok(fail(format!("the current mode {} is not among those offered", modes["currentModeId"])));
    }
    let params = json!({"sessionId": opened.id, "modeId": modes["currentModeId"]});
    if let Err(refusal) = agent.ask("session/set_mode", params).await?.outcome {
        return Ok(fail(format!(
            "the mode it is in, {}, is answered with {refusal}",
            modes["currentModeId"]
        )));
    }
    for id in &ids {
        let params = json!({"sessionId": opened.id, "modeId": id});
        if let Err(refusal) = agent.ask("session/set_mode", params).await?.outcome {
            // A folder may not be trusted enough for it; then it should not be offered.
            return Ok(warn(format!("the mode {id} is offered, and answered with {refusal}")));
        }
    }
    let params = json!({"sessionId": opened.id, "modeId": "no-such-mode"});
    match agent.ask("session/set_mode", params).await?.outcome {
        Ok(_) => Ok(warn("each can be set, but so can one that was not offered")),
        Err(_) => Ok(pass(format!("each of {} can be set", ids.len()))),
    }
}

async fn set_config_option(bench: &mut Bench) -> Outcome {
    let (agent, opened) = bench.session().await?;
    let options = opened.offer["configOptions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(option) = options.iter().find(|option| option["type"] == "select") else {
        return Ok(skip("it offers no config options"));
    };
    // The value that is set already: a harmless wish.
    let params = json!({"sessionId": opened.id, "configId": option["id"], "value": option["currentValue"]});
    match agent.ask("session/set_config_option", params).await?.outcome {
        // An error that gives a reason is an answer: a value may be fixed, or need a login. A method that is
        // not there, although it is offered, is a fault.
        Err(refusal) if refusal.code == -32601 => {
            Ok(fail(format!("{} is offered, and answered with {refusal}", option["id"])))
        }
        Err(refusal) => Ok(warn(format!("the value that {} has is answered with {refusal}", option["id"]))),
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

/// What was said while a session was restored, and the answer.
type Restored = (Vec<Record>, Result<Value, Refusal>);

/// Loads or resumes the session of a turn. Some agents take what another process has saved, some only
/// what they have at hand, and some not what is still in use: so a second process may try.
async fn restore(bench: &mut Bench, method: &str, turn: &Turn) -> Result<Restored, Finding> {
    let first = restore_by(bench.agent().await?, method, turn).await?;
    if first.1.is_ok() {
        return Ok(first);
    }
    let mut agent = bench.fresh(Client::Files).await?;
    let second = restore_by(&mut agent, method, turn).await;
    bench.retire(agent.into_wire());
    second
}

async fn restore_by(agent: &mut Agent, method: &str, turn: &Turn) -> Result<Restored, Finding> {
    let start = agent.tape().len();
    let params = agent.folder_of(&turn.session);
    let answer = agent.ask_in(method, params).await?;
    agent.listen(QUIET).await?;
    Ok((agent.tape().since(start), answer.outcome))
}

/// How much of a session's conversation there is.
fn story(records: &[Record], session: &str) -> usize {
    story_of(&entries(records), session).count()
}

/// The updates that are part of a session's conversation.
fn story_of<'a>(
    all: &'a [TranscriptEntry<'a>],
    session: &'a str,
) -> impl Iterator<Item = &'a TranscriptEntry<'a>> {
    all.iter().filter(move |entry| {
        let update = match &entry.parsed {
            ParsedLine::Notification { params: Some(params), method, .. } if method == "session/update" => {
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

/// What comes before the answer to `method`, and what after it.
fn around<'a>(records: &'a [Record], method: &str) -> (Vec<TranscriptEntry<'a>>, Vec<TranscriptEntry<'a>>) {
    let mut before = entries(records);
    let answered = before.iter().position(|entry| {
        matches!(entry.parsed, ParsedLine::Response { .. }) && entry.method() == Some(method)
    });
    let after = before.split_off(answered.unwrap_or(before.len()));
    (before, after)
}

/// All pages of the list.
async fn list(agent: &mut Agent, mut params: Value) -> Result<Vec<Value>, Finding> {
    const PAGES: usize = 100;
    let mut sessions = Vec::new();
    for _ in 0..PAGES {
        let page = match agent.ask("session/list", params.clone()).await?.outcome {
            Ok(page) => page,
            Err(refusal) => return Err(unlisted(format!("session/list is answered with {refusal}"))),
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
    // Without a directory some agents list only the sessions of the one they were started in.
    let here = json!({"cwd": agent.folder()["cwd"]});
    let sessions = [list(agent, here).await?, list(agent, json!({})).await?].concat();
    Ok(sessions.iter().any(|item| item["sessionId"] == session))
}
