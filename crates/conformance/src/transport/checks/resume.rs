//! Resuming a lost connection, for a server that advertises it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::finding::{Finding, Outcome, checks, fail, pass, skip};
use crate::harness::plural;
use crate::raw_process::seconds;
use crate::transport::TransportKind;
use crate::transport::harness::{AgentCalls as _, ServerHarness, response_text};
use crate::transport::http::{EventStream, HttpConnection, NextEvent, StreamEvent};
use crate::transport::web_socket::{LoggedSocket, NextMessage, StreamPositions, is_of_transport, shown_code};
use crate::transport::wire::{
    HttpAnswer, is_response_to, is_turn_state, request, resumable, resume_secret, session_of, without_cursor,
};

/// The pause before a stream is requested again that the server still holds for its older response.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

checks! { server "resume";
    "resume-advertised" => resume_advertised, Must, RESUMPTION,
        "`transport.resumable` has the numbers `retentionMessages` and `retentionSeconds`.";
    "sse-event-ids" => sse_event_ids, Must, RESUMPTION,
        "Each event has an id, and no two events of a stream have the same one.";
    "sse-replay" => sse_replay, Must, RESUMPTION,
        "A GET with `Last-Event-ID` sends the events behind it, each once and in their order.";
    "sse-missed" => sse_missed, Must, RESUMPTION,
        "A closed stream is not a closed connection: what is sent meanwhile arrives when it is opened again.";
    "sse-cursor-gone" => sse_cursor_gone, Must, RESUMPTION,
        "A GET with a `Last-Event-ID` that the server does not have is refused: no stream with a hole.";
    "sse-secret" => sse_secret, Must, RESUMPTION,
        "A GET with another secret in `Acp-Resume` is refused.";
    "ws-resume" => ws_resume, Must, RESUMPTION,
        "`stream/resume` is answered with `stream/resumed`, and the frames behind the positions are sent, each once and in their order.";
    "ws-resume-secret" => ws_resume_secret, Must, RESUMPTION,
        "`stream/resume` with another secret is refused.";
    "ws-resume-unknown" => ws_resume_unknown, Must, RESUMPTION,
        "`stream/resume` of an unknown connection is refused.";
    "ws-cursor-gone" => ws_cursor_gone, Must, RESUMPTION,
        "`stream/resume` with a cursor that the server does not have is refused: no connection with a hole.";
}

/// The reason for which the checks are skipped.
const NOT_OFFERED: &str = "the server does not advertise `transport.resumable`";
/// A secret that no server has chosen.
const WRONG_SECRET: &str = "00000000000000000000000000000000";

/// Returns an error if the server does not advertise resumption.
fn offered(initialized: &Value) -> Result<&Value, Finding> {
    resumable(initialized).ok_or_else(|| skip(NOT_OFFERED))
}

async fn resume_advertised(harness: &mut ServerHarness) -> Outcome {
    let mut seen = Vec::new();
    if harness.has(TransportKind::Http) {
        seen.push(harness.http().await?.initialized);
    }
    if harness.has(TransportKind::WebSocket) {
        let mut connection = harness.socket().await?;
        connection.socket.send_close().await;
        seen.push(connection.initialized);
    }
    let mut saw = skip(NOT_OFFERED);
    for initialized in &seen {
        let Some(resumable) = resumable(initialized) else { continue };
        for name in ["retentionMessages", "retentionSeconds"] {
            if !resumable[name].is_u64() {
                return Ok(fail(format!("{name} is {}, no number", resumable[name])));
            }
        }
        let (messages, time) = (&resumable["retentionMessages"], &resumable["retentionSeconds"]);
        saw = pass(format!("{messages} messages, {time} s"));
    }
    Ok(saw)
}

/// A finished turn over HTTP, whose stream is not read any more.
struct ReadTurn {
    connection: HttpConnection,
    session: String,
    events: Vec<StreamEvent>,
}

async fn read_turn(harness: &mut ServerHarness) -> Result<ReadTurn, Finding> {
    offered(&harness.http().await?.initialized)?;
    harness.needs("sse-session-answers")?;
    harness.needs("sse-session-only")?;
    let mut session = harness.http_session().await?;
    let prompt = harness.settings.prompt.clone();
    let turn = session.turn(&prompt).await?;
    if turn.response.is_none() {
        return Err(skip("the prompt is not answered in time (--prompt)"));
    }
    // Dropping the stream closes it.
    Ok(ReadTurn { connection: session.connection, session: session.id, events: turn.events })
}

async fn sse_event_ids(harness: &mut ServerHarness) -> Outcome {
    let turn = read_turn(harness).await?;
    let mut ids = std::collections::BTreeSet::new();
    for event in &turn.events {
        let Some(id) = &event.id else { return Ok(fail("an event has no id")) };
        if !ids.insert(id) {
            return Ok(fail(format!("two events have the id {id}")));
        }
    }
    Ok(pass(format!("{} with an id", plural(ids.len(), "event"))))
}

/// Opens a stream again. A server may still have the older response of a lost connection, and refuse the new one for a while.
async fn reopen(
    connection: &HttpConnection,
    session: Option<&str>,
    cursor: Option<&str>,
) -> Result<Result<EventStream, HttpAnswer>, Finding> {
    let secret = resume_secret(&connection.initialized).map(|secret| ("Acp-Resume", secret));
    let headers: Vec<_> = cursor.map(|cursor| ("Last-Event-ID", cursor)).into_iter().chain(secret).collect();
    let deadline = Instant::now() + connection.wire.patience;
    loop {
        match connection.request_stream(session, &headers).await? {
            Err(answer) if answer.status == 409 && is_in_use(&answer) && Instant::now() < deadline => {
                sleep(PAUSE).await;
            }
            answer => return Ok(answer),
        }
    }
}

fn is_in_use(answer: &HttpAnswer) -> bool {
    String::from_utf8_lossy(&answer.body).contains("stream_in_use")
}

async fn sse_replay(harness: &mut ServerHarness) -> Outcome {
    harness.needs("sse-event-ids")?;
    let turn = read_turn(harness).await?;
    let Some((first, expected)) = turn.events.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return Ok(skip("the turn has one event (--prompt)"));
    };
    let mut stream = match reopen(&turn.connection, Some(&turn.session), first.id.as_deref()).await? {
        Ok(stream) => stream,
        Err(answer) => return Ok(fail(format!("the stream is refused with {}", answer.shown()))),
    };
    let deadline = Instant::now() + harness.wire.patience;
    let mut replayed = Vec::new();
    while replayed.len() < expected.len() {
        match stream.next(deadline).await? {
            NextEvent::Event(event) if is_turn_state(&event.message) => {}
            NextEvent::Event(event) => replayed.push(without_cursor(&event.message)),
            NextEvent::Quiet | NextEvent::End => break,
        }
    }
    let expected: Vec<Value> = expected.iter().map(|event| without_cursor(&event.message)).collect();
    if replayed == expected {
        return Ok(pass(format!("{} again", plural(replayed.len(), "event"))));
    }
    Ok(fail(difference(&expected, &replayed)))
}

/// Describes the first difference between messages.
fn difference(expected: &[Value], found: &[Value]) -> String {
    let place = expected.iter().zip(found).take_while(|(expected, found)| expected == found).count();
    let (expected_count, count) = (plural(expected.len(), "message"), found.len());
    let Some(missing) = expected.get(place) else {
        return format!("{count} messages instead of {expected_count}");
    };
    let shown: String = missing.to_string().chars().take(120).collect();
    format!("message {} of {expected_count} is missing or is another one: {shown}", place + 1)
}

async fn sse_missed(harness: &mut ServerHarness) -> Outcome {
    harness.needs("sse-connection-answers")?;
    let mut connection = harness.http().await?;
    offered(&connection.initialized)?;
    connection.open_stream().await?;
    connection.call("_duologue.dev/nothing", &json!({})).await?;
    // The last event has been received, and the stream is closed.
    let Some(stream) = connection.stream.take() else { return Ok(skip("there is no stream")) };
    drop(stream);
    let id = connection.new_id();
    connection.send(None, &request(id, "_duologue.dev/nothing", &json!({}))).await?;
    let mut stream = match reopen(&connection, None, None).await? {
        Ok(stream) => stream,
        Err(answer) => return Ok(fail(format!("the stream is refused with {}", answer.shown()))),
    };
    let deadline = Instant::now() + harness.wire.patience;
    loop {
        match stream.next(deadline).await? {
            NextEvent::Event(event) if is_response_to(&event.message, id) => {
                return Ok(pass(format!("the answer arrives ({})", response_text(&event.message))));
            }
            NextEvent::Event(_) => {}
            NextEvent::Quiet | NextEvent::End => {
                return Ok(fail("the answer to a request that was sent without a stream does not arrive"));
            }
        }
    }
}

async fn sse_cursor_gone(harness: &mut ServerHarness) -> Outcome {
    harness.needs("sse-opens")?;
    let connection = harness.http().await?;
    offered(&connection.initialized)?;
    let mut saw = Vec::new();
    for cursor in ["no-such-cursor", "4294967296"] {
        match connection.request_stream(None, &[("Last-Event-ID", cursor)]).await? {
            Ok(_) => {
                return Ok(fail(format!("a stream is opened behind the event {cursor}, which never was")));
            }
            Err(answer) if (400..=499).contains(&answer.status) => saw.push(answer.status.to_string()),
            Err(answer) => return Ok(fail(answer.shown())),
        }
    }
    saw.dedup();
    Ok(pass(format!("status {}", saw.join(" and "))))
}

async fn sse_secret(harness: &mut ServerHarness) -> Outcome {
    harness.needs("sse-opens")?;
    let connection = harness.http().await?;
    offered(&connection.initialized)?;
    if resume_secret(&connection.initialized).is_none() {
        return Ok(skip("the server grants no secret"));
    }
    match connection.request_stream(None, &[("Acp-Resume", WRONG_SECRET)]).await? {
        Ok(_) => Ok(fail("a stream is opened with another secret")),
        Err(answer) => Ok(pass(format!("status {}", answer.status))),
    }
}

/// The answer to `stream/resume`.
enum Resumed {
    /// The server has received this many frames of the client.
    Resumed(u64),
    /// It was refused, with the reason.
    Refused(String),
}

/// Opens a socket and resumes a connection.
async fn resume(
    harness: &ServerHarness,
    id: &str,
    secret: Option<&str>,
    cursors: Value,
) -> Result<(LoggedSocket, Resumed), Finding> {
    let mut socket = LoggedSocket::open(&harness.wire).await?;
    let mut params = json!({"connectionId": id, "cursors": cursors});
    if let Some(secret) = secret {
        params["secret"] = json!(secret);
    }
    socket.send(&json!({"jsonrpc": "2.0", "method": "stream/resume", "params": params})).await?;
    let deadline = Instant::now() + harness.wire.patience;
    let answer = match socket.next(deadline).await? {
        NextMessage::Message(message) => match message["method"].as_str() {
            Some("stream/resumed") => match message["params"]["received"].as_u64() {
                Some(received) => Resumed::Resumed(received),
                None => return Err(fail("`stream/resumed` has no number `received`")),
            },
            Some("stream/resume_failed") => Resumed::Refused(
                message["params"]["reason"].as_str().unwrap_or("without a reason").to_owned(),
            ),
            _ => {
                let shown: String = message.to_string().chars().take(200).collect();
                return Err(fail(format!("`stream/resume` is answered with {shown}")));
            }
        },
        NextMessage::Closed(code) => Resumed::Refused(format!("closed with {}", shown_code(code))),
        NextMessage::Lost => Resumed::Refused("the socket ends".into()),
        other => {
            let limit = seconds(harness.wire.patience);
            return Err(fail(format!("`stream/resume` is not answered within {limit} ({other:?})")));
        }
    };
    Ok((socket, answer))
}

async fn ws_resume(harness: &mut ServerHarness) -> Outcome {
    harness.needs("ws-turn")?;
    let mut session = harness.socket_session().await?;
    offered(&session.connection.initialized)?;
    // A client that has received nothing of the turn.
    let positions: StreamPositions = session.connection.positions.clone();
    let prompt = harness.settings.prompt.clone();
    let id = session.prompt(&prompt).await?;
    let mut seen = session.connection.until_response(id, "the prompt").await?;
    let connection = session.connection;
    let sent = connection.sent;
    // The socket is lost without a close.
    drop(connection.socket);
    let secret = resume_secret(&connection.initialized);
    let (mut socket, answer) = resume(harness, &connection.id, secret, positions.cursors()).await?;
    let received = match answer {
        Resumed::Resumed(received) => received,
        Resumed::Refused(reason) => return Ok(fail(format!("the connection is not resumed: {reason}"))),
    };
    let count = sent.len() as u64;
    if received > count {
        return Ok(fail(format!("`received` is {received}, and {count} frames were sent")));
    }
    // Frames of the client that did not arrive are sent again.
    for message in sent.iter().skip(usize::try_from(received).unwrap_or(usize::MAX)) {
        socket.send(message).await?;
    }
    let deadline = Instant::now() + harness.wire.patience;
    let mut replayed = Vec::new();
    while replayed.len() < seen.len() {
        match socket.next(deadline).await? {
            NextMessage::Message(message) if is_of_transport(&message) || is_turn_state(&message) => {}
            NextMessage::Message(message) => replayed.push(without_cursor(&message)),
            NextMessage::Binary | NextMessage::Pong(_) => {}
            NextMessage::Quiet | NextMessage::Closed(_) | NextMessage::Lost => break,
        }
    }
    seen.iter_mut().for_each(|message| *message = without_cursor(message));
    for (stream, expected) in by_stream(&seen) {
        let found = by_stream(&replayed).remove(&stream).unwrap_or_default();
        if found != expected {
            return Ok(fail(difference(&expected, &found)));
        }
    }
    // The connection goes on.
    let id = connection_id_after(&sent);
    socket.send(&request(id, "_duologue.dev/nothing", &json!({}))).await?;
    loop {
        match socket.next(deadline).await? {
            NextMessage::Message(message) if is_response_to(&message, id) => break,
            NextMessage::Message(_) | NextMessage::Binary | NextMessage::Pong(_) => {}
            other => return Ok(fail(format!("the next request is not answered ({other:?})"))),
        }
    }
    socket.send_close().await;
    Ok(pass(format!("{} again, and the connection goes on", plural(replayed.len(), "message"))))
}

/// Returns an id that none of these messages has.
fn connection_id_after(sent: &[Value]) -> u64 {
    sent.iter().filter_map(|message| message["id"].as_u64()).max().unwrap_or_default() + 1000
}

/// Sorts messages by their stream. The order between streams is not kept by a resume.
fn by_stream(messages: &[Value]) -> BTreeMap<Option<String>, Vec<Value>> {
    let mut streams: BTreeMap<_, Vec<Value>> = BTreeMap::new();
    for message in messages {
        streams.entry(session_of(message).map(str::to_owned)).or_default().push(message.clone());
    }
    streams
}

async fn ws_resume_secret(harness: &mut ServerHarness) -> Outcome {
    let mut connection = harness.socket().await?;
    offered(&connection.initialized)?;
    if resume_secret(&connection.initialized).is_none() {
        return Ok(skip("the server grants no secret"));
    }
    let cursors = connection.positions.cursors();
    for secret in [Some(WRONG_SECRET), None] {
        let (_, answer) = resume(harness, &connection.id, secret, cursors.clone()).await?;
        if let Resumed::Resumed(_) = answer {
            let name = secret.map_or("without a secret", |_| "with another secret");
            return Ok(fail(format!("the connection is resumed {name}")));
        }
    }
    // The older socket is not disturbed.
    connection.call("_duologue.dev/nothing", &json!({})).await?;
    connection.socket.send_close().await;
    Ok(pass("refused, and the connection goes on"))
}

async fn ws_resume_unknown(harness: &mut ServerHarness) -> Outcome {
    let mut connection = harness.socket().await?;
    offered(&connection.initialized)?;
    connection.socket.send_close().await;
    match resume(harness, "no-such-connection", Some(WRONG_SECRET), json!([])).await? {
        (_, Resumed::Refused(reason)) => Ok(pass(reason)),
        (_, Resumed::Resumed(_)) => Ok(fail("a connection that never was is resumed")),
    }
}

async fn ws_cursor_gone(harness: &mut ServerHarness) -> Outcome {
    let connection = harness.socket().await?;
    offered(&connection.initialized)?;
    let secret = resume_secret(&connection.initialized).map(str::to_owned);
    drop(connection.socket);
    for cursor in ["no-such-cursor", "4294967296"] {
        let cursors = json!([{"cursor": cursor, "frames": 0}]);
        match resume(harness, &connection.id, secret.as_deref(), cursors).await? {
            (_, Resumed::Refused(_)) => {}
            (_, Resumed::Resumed(_)) => {
                return Ok(fail(format!(
                    "the connection is resumed behind the cursor {cursor}, which never was"
                )));
            }
        }
    }
    Ok(pass("refused"))
}
