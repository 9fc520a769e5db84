//! The frames that a client receives for a record of the log.
//!
//! The log is the only source: a client that reads it again from a position receives the same frames.

use duologue_rpc::RpcMessage;
use duologue_rpc::raw_message::{call_frame, member, splice};
use duologue_schema::{
    CancelRequestNotification, Error as RpcError, Notification as _, OtherTurnNotification, RequestId,
    SessionId,
};
use duologue_transcript::Side;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::abilities::Abilities;
use crate::child_sessions::{WithoutChildren, without_children};
use crate::chunk_line;
use crate::cleared_messages::{separator, with_message_id};
use crate::exchange_state::ExchangeScheme;
use crate::legacy_plan::legacy_frames;
use crate::question::SharedQuestionKind;
use crate::record::{ClientKey, HubEvent, InvalidRecord, LogEntry};
use crate::routing::{is_of_client_files, is_of_transport};
use crate::state::{CONTEXT_LOST, outcome_members, parse};

/// A client that reads the log of a session.
#[derive(Clone, Copy, Debug)]
pub struct ClientView<'a> {
    /// The client.
    pub client: &'a ClientKey,
    /// The session.
    pub session: &'a SessionId,
    /// The messages of the agent that the client can handle.
    pub abilities: Abilities,
}

/// Appends the frames that a client receives for the record at `position`, without line ends. `read` returns an earlier
/// line of the log.
///
/// # Errors
///
/// [`InvalidRecord`] if the line is not a record.
pub fn project(
    view: &ClientView<'_>,
    position: u64,
    line: &[u8],
    read: impl FnOnce(u64) -> Option<Vec<u8>>,
    frames: &mut Vec<Vec<u8>>,
) -> Result<(), InvalidRecord> {
    match chunk_line::of_record(line, view.session) {
        Some(chunk) => frames.push(chunk.to_vec()),
        None => project_entry(view, position, LogEntry::read(line)?, read, frames)?,
    }
    Ok(())
}

/// Appends the frames for a record as [`project`].
pub(crate) fn project_entry(
    view: &ClientView<'_>,
    position: u64,
    entry: LogEntry<'_>,
    read: impl FnOnce(u64) -> Option<Vec<u8>>,
    frames: &mut Vec<Vec<u8>>,
) -> Result<(), InvalidRecord> {
    let frame = entry.frame.map(|(_, frame)| frame);
    let adapted;
    let frame = match frame.filter(|_| is_of_agent(&entry) && !view.abilities.subagents) {
        None => frame,
        Some(whole) => match without_children(view.session, whole.get().as_bytes()) {
            WithoutChildren::Same => Some(whole),
            WithoutChildren::Changed(line) => {
                adapted = line;
                Some(serde_json::from_slice(&adapted)?)
            }
            WithoutChildren::Dropped => None,
        },
    };
    match (entry.event, frame) {
        // A notification of the agent. Its requests and responses have an event.
        (None, Some(frame)) => {
            let is_agents = matches!(entry.frame, Some((Side::Agent, _)));
            let parsed = is_agents.then(|| parse(frame.get().as_bytes())).flatten();
            if let Some(RpcMessage::Notification { method, .. }) = parsed
                && !is_of_transport(&method)
                && !is_of_client_files(&method)
                && view.abilities.show_update(frame.get().as_bytes())
                && ExchangeScheme::of(&method).is_none_or(|scheme| view.abilities.speak(scheme))
            {
                let legacy = if view.abilities.plans { None } else { legacy_frames(frame.get().as_bytes()) };
                frames.extend(legacy.unwrap_or_else(|| vec![frame.get().into()]));
            }
        }
        (Some(HubEvent::Addressed { client }), Some(frame)) if client == *view.client => {
            frames.push(frame.get().into());
        }
        (
            Some(HubEvent::Cleared { .. } | HubEvent::ClearedNothing | HubEvent::Renamed { .. }),
            Some(frame),
        ) if view.abilities.clears => frames.push(frame.get().into()),
        (Some(HubEvent::Cleared { message }), Some(frame)) => {
            frames.extend(separator(frame.get().as_bytes(), message));
        }
        (Some(HubEvent::Renamed { message }), Some(frame)) => {
            frames.extend(with_message_id(frame.get().as_bytes(), &message));
        }
        (Some(HubEvent::Prompt { asker, .. }), Some(frame)) if asker.client != *view.client => {
            frames.extend(other_turn(view.session, true));
            user_message(view.session, frame, frames);
        }
        (Some(HubEvent::Answer { to, .. }), Some(frame)) => {
            for asker in to.iter().filter(|asker| asker.client == *view.client) {
                frames.push(response(asker.id.token(), &outcome_members(frame)));
            }
        }
        (Some(HubEvent::Interrupted { to, code, reason, .. }), _) => {
            for asker in to.iter().filter(|asker| asker.client == *view.client) {
                frames.push(error_response(asker.id.token(), &interruption(&code, &reason)));
            }
        }
        (Some(HubEvent::TurnEnded), _) => frames.extend(other_turn(view.session, false)),
        (Some(HubEvent::Question), Some(frame)) if shows(view, frame) => {
            frames.extend(request(view.session, position, frame));
        }
        (Some(HubEvent::AskedAgain { question, client }), _) if client == *view.client => {
            let Some(line) = read(question) else { return Ok(()) };
            let question_frame = LogEntry::read(&line)?.frame;
            let asked = question_frame.and_then(|(_, frame)| request(view.session, question, frame));
            frames.extend(asked.map(|line| match without_children(view.session, &line) {
                WithoutChildren::Changed(line) if !view.abilities.subagents => line,
                _ => line,
            }));
        }
        (Some(HubEvent::Answered { question, by }), _) if by.as_ref() != Some(view.client) => {
            frames.extend(withdrawal(view.session, question));
        }
        (Some(HubEvent::HostRequest { client }), Some(frame)) if client == *view.client => {
            frames.extend(if handles(view, frame) {
                request(view.session, position, frame)
            } else {
                withdrawal_of_session(view.session, position)
            });
        }
        (Some(HubEvent::HostAnswer { request, client }), _) if client.as_ref() == Some(view.client) => {
            frames.extend(withdrawal(view.session, request));
        }
        _ => {}
    }
    Ok(())
}

/// Returns true for a record of a notification or request of the agent.
fn is_of_agent(entry: &LogEntry<'_>) -> bool {
    matches!(entry.frame, Some((Side::Agent, _))) && !matches!(entry.event, Some(HubEvent::Answer { .. }))
}

/// Returns the id of a request to clients, as JSON: the session and the position of the record.
pub(crate) fn request_id(session: &SessionId, position: u64) -> String {
    json!(format!("{session}:{position}")).to_string()
}

/// Returns the position that the text of an id names, if it is one of [`request_id`] for the session.
pub(crate) fn position_of(session: &SessionId, token: &str) -> Option<u64> {
    let id: std::borrow::Cow<'_, str> = serde_json::from_str(token).ok()?;
    id.strip_prefix(session.as_str())?.strip_prefix(':')?.parse().ok()
}

/// Returns the error of a request that has no response of the agent.
pub(crate) fn interruption(code: &str, reason: &str) -> RpcError {
    // The same prompt finds no context the next time either.
    RpcError::internal(reason.to_owned()).coded(code, code != CONTEXT_LOST)
}

/// Writes a response from the text of its member `result` or `error`.
pub(crate) fn response(id: &str, outcome: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},{outcome}}}"#).into_bytes()
}

pub(crate) fn error_response(id: &str, error: &RpcError) -> Vec<u8> {
    // As text, because the data may have numbers that no value has.
    let error = serde_json::to_string(error).unwrap_or_else(|_| r#"{"code":-32603,"message":""}"#.into());
    response(id, &format!("\"error\":{error}"))
}

/// Returns true if the client can show the question in a frame of the agent.
fn shows(view: &ClientView<'_>, frame: &RawValue) -> bool {
    let Some(RpcMessage::Request { method, params: Some(params), .. }) = parse(frame.get().as_bytes()) else {
        return false;
    };
    matches!(SharedQuestionKind::read(&method, params.get()), Some(Ok(kind)) if view.abilities.show(&kind))
}

/// Returns true if the client handles the request in a frame of the agent. The server may have been started with other
/// settings since the request was recorded.
fn handles(view: &ClientView<'_>, frame: &RawValue) -> bool {
    let parsed = parse(frame.get().as_bytes());
    matches!(parsed, Some(RpcMessage::Request { method, .. }) if view.abilities.handle(&method))
}

/// Returns a request of the agent with the id of the hub.
fn request(session: &SessionId, position: u64, frame: &RawValue) -> Option<Vec<u8>> {
    let frame = frame.get().as_bytes();
    splice(frame, member(frame, "id")?, request_id(session, position).as_bytes())
}

fn withdrawal(session: &SessionId, position: u64) -> Option<Vec<u8>> {
    let id = RequestId::from_token(&request_id(session, position))?;
    let params = CancelRequestNotification::new(id);
    serde_json::to_vec(&json!({
        "jsonrpc": "2.0", "method": CancelRequestNotification::METHOD, "params": params,
    }))
    .ok()
}

/// Returns a withdrawal in the place of a request that an earlier start of the server has sent, and this one does not. A client
/// counts the frames of its session, and has counted the request.
fn withdrawal_of_session(session: &SessionId, position: u64) -> Option<Vec<u8>> {
    let mut withdrawal: Value = serde_json::from_slice(&withdrawal(session, position)?).ok()?;
    withdrawal["params"]["sessionId"] = json!(session);
    serde_json::to_vec(&withdrawal).ok()
}

/// Returns the notification that the turn of another client begins or ends.
fn other_turn(session: &SessionId, running: bool) -> Option<Vec<u8>> {
    let turn = OtherTurnNotification::new(session.clone(), running);
    call_frame(None, OtherTurnNotification::METHOD, &turn).ok()
}

/// Appends the content of a prompt as messages of the user, for the clients that did not send it.
fn user_message(session: &SessionId, frame: &RawValue, frames: &mut Vec<Vec<u8>>) {
    #[derive(serde::Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        prompt: Vec<&'a RawValue>,
    }
    let Some(RpcMessage::Request { params: Some(params), .. }) = parse(frame.get().as_bytes()) else {
        return;
    };
    let Ok(params) = serde_json::from_str::<Params<'_>>(params.get()) else { return };
    let session = json!(session);
    for block in params.prompt {
        let update = format!(r#"{{"sessionUpdate":"user_message_chunk","content":{}}}"#, block.get());
        let frame = format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":{session},"update":{update}}}}}"#
        );
        frames.push(frame.into_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk_line::tests::updates;

    #[test]
    fn a_chunk_has_the_frames_that_it_has_in_the_general_way() {
        let (client, session) = (ClientKey::new("c"), SessionId::from("s"));
        let mut count = 0;
        for frame in updates() {
            let record = chunk_line::record(7, frame.as_bytes());
            // The owner records no others.
            if parse(frame.as_bytes()).is_none() {
                continue;
            }
            let hub = record
                .strip_suffix(b"}")
                .map(|record| [record, br#","hub":{"event":"turn_ended"}}"#].concat());
            for (record, abilities) in [Some(record), hub].into_iter().flatten().flat_map(|record| {
                [Abilities::default(), Abilities::EXACT].map(|able| (record.clone(), able))
            }) {
                let view = ClientView { client: &client, session: &session, abilities };
                let (mut fast, mut general) = (Vec::new(), Vec::new());
                project(&view, 1, &record, |_| None, &mut fast).unwrap();
                let entry = LogEntry::read(&record).unwrap();
                project_entry(&view, 1, entry, |_| None, &mut general).unwrap();
                assert_eq!(fast, general, "{}", String::from_utf8_lossy(&record));
                count += usize::from(chunk_line::of_record(&record, &session).is_some());
            }
        }
        assert!(count > 50, "{count} chunks");
    }
}
