//! WebSocket: the upgrade, the first frame and the frames of a turn.

use serde_json::json;
use tokio::time::Instant;

use crate::finding::{Outcome, checks, fail, pass, warn};
use crate::harness::{QUIET, plural};
use crate::raw_process::seconds;
use crate::transport::harness::{AgentCalls as _, ServerHarness, response_text};
use crate::transport::web_socket::{
    LoggedSocket, NextMessage, SocketConnection, is_of_transport, shown_code,
};
use crate::transport::wire::{initialize, is_response_to, request};

checks! { server "websocket";
    "ws-upgrade" => ws_upgrade, Must, REMOTE,
        "A GET with `Upgrade: websocket` is answered with 101 and `Acp-Connection-Id`, without a subprotocol or extension that was not requested.";
    "ws-initialize" => ws_initialize, Must, REMOTE,
        "The first text frame is `initialize`, and one text frame is its answer.";
    "ws-first-frame" => ws_first_frame, Must, REMOTE,
        "A first frame that is not `initialize` closes the socket with 1002, or the agent answers it.";
    "ws-binary" => ws_binary, Must, REMOTE,
        "Binary frames are ignored.";
    "ws-line-breaks" => ws_line_breaks, Must, REMOTE,
        "One text frame is one message, also with line breaks in it.";
    "ws-ping" => ws_ping, Must, WEBSOCKET,
        "A ping is answered with a pong that has its payload.";
    "ws-turn" => ws_turn, Must, REMOTE,
        "The updates of a turn come before the answer to its prompt, which comes once.";
    "ws-close" => ws_close, Must, WEBSOCKET,
        "A close of the client is answered with a close.";
}

async fn ws_upgrade(harness: &mut ServerHarness) -> Outcome {
    let mut socket = LoggedSocket::open(&harness.wire).await?;
    socket.send_close().await;
    if let Some(name) = &socket.unrequested {
        return Ok(fail(format!("the answer has the header {name}, which was not requested")));
    }
    match &socket.id {
        Some(id) => Ok(pass(format!("101, connection {id}"))),
        None => Ok(fail("the answer has no header `Acp-Connection-Id`")),
    }
}

async fn ws_initialize(harness: &mut ServerHarness) -> Outcome {
    harness.needs("ws-upgrade")?;
    let mut connection = SocketConnection::open(&harness.wire).await?;
    connection.socket.send_close().await;
    let info = &connection.initialized["agentInfo"];
    Ok(pass(info["name"].as_str().unwrap_or("answered").to_owned()))
}

async fn ws_first_frame(harness: &mut ServerHarness) -> Outcome {
    harness.needs("ws-initialize")?;
    let mut saw = Vec::new();
    for first in [
        request(1, "_duologue.dev/nothing", &json!({})),
        json!({"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}}),
    ] {
        let mut socket = LoggedSocket::open(&harness.wire).await?;
        socket.send(&first).await?;
        let deadline = Instant::now() + harness.wire.patience;
        let end = loop {
            match socket.next(deadline).await? {
                NextMessage::Message(message) if is_response_to(&message, 1) => break "answered".to_owned(),
                NextMessage::Message(_) | NextMessage::Pong(_) | NextMessage::Binary => {}
                NextMessage::Closed(Some(1002)) => break "closed with 1002".into(),
                NextMessage::Closed(code) => {
                    return Ok(warn(format!("the socket is closed with {}, not 1002", shown_code(code))));
                }
                NextMessage::Lost => return Ok(warn("the socket ends without a close")),
                NextMessage::Quiet => {
                    let limit = seconds(harness.wire.patience);
                    return Ok(fail(format!("neither an answer nor a close within {limit}")));
                }
            }
        };
        socket.send_close().await;
        if !saw.contains(&end) {
            saw.push(end);
        }
    }
    Ok(pass(saw.join(" and ")))
}

async fn ws_binary(harness: &mut ServerHarness) -> Outcome {
    let mut connection = harness.socket().await?;
    connection.socket.send_binary(&[0, 159, 146, 150]).await?;
    let response = connection.call("_duologue.dev/nothing", &json!({})).await?;
    connection.socket.send_close().await;
    Ok(pass(format!("the next request is answered with {}", response_text(&response))))
}

async fn ws_line_breaks(harness: &mut ServerHarness) -> Outcome {
    harness.needs("ws-initialize")?;
    let mut socket = LoggedSocket::open(&harness.wire).await?;
    socket.send_text(&format!("{:#}\r\n", initialize())).await?;
    let deadline = Instant::now() + harness.wire.patience;
    loop {
        match socket.next(deadline).await? {
            NextMessage::Message(message) if is_response_to(&message, 0) && message["result"].is_object() => {
                socket.send_close().await;
                return Ok(pass("`initialize` in several lines is answered"));
            }
            NextMessage::Message(message) if is_of_transport(&message) => {}
            NextMessage::Message(message) => {
                return Ok(fail(format!("it is answered with {}", response_text(&message))));
            }
            NextMessage::Pong(_) | NextMessage::Binary => {}
            other => return Ok(fail(format!("it is not answered ({other:?})"))),
        }
    }
}

async fn ws_ping(harness: &mut ServerHarness) -> Outcome {
    let mut connection = harness.socket().await?;
    connection.socket.send_ping(b"duologue").await?;
    let deadline = Instant::now() + harness.wire.patience;
    loop {
        match connection.socket.next(deadline).await? {
            NextMessage::Pong(payload) if payload == b"duologue" => break,
            NextMessage::Pong(payload) => {
                let length = payload.len();
                return Ok(fail(format!("the pong has another payload of {}", plural(length, "byte"))));
            }
            NextMessage::Message(_) | NextMessage::Binary => {}
            other => return Ok(fail(format!("there is no pong ({other:?})"))),
        }
    }
    connection.socket.send_close().await;
    Ok(pass("a pong with its payload"))
}

async fn ws_turn(harness: &mut ServerHarness) -> Outcome {
    let mut session = harness.socket_session().await?;
    let prompt = harness.settings.prompt.clone();
    let id = session.prompt(&prompt).await?;
    let messages = session.connection.until_response(id, "the prompt").await?;
    let Some((response, before)) = messages.split_last() else { return Ok(fail("there is no answer")) };
    if response["error"].is_object() {
        return Ok(harness.no_turn(&format!("the prompt is answered with {}", response_text(response))));
    }
    let updates = before.iter().filter(|message| message["method"] == "session/update").count();
    let connection = &mut session.connection;
    while let NextMessage::Message(message) = connection.socket.next(Instant::now() + QUIET).await? {
        if is_response_to(&message, id) {
            return Ok(fail("the prompt is answered twice"));
        }
    }
    connection.socket.send_close().await;
    Ok(pass(format!("the answer, behind {}", plural(updates, "update"))))
}

async fn ws_close(harness: &mut ServerHarness) -> Outcome {
    let mut connection = harness.socket().await?;
    connection.socket.send_close().await;
    let deadline = Instant::now() + harness.wire.patience;
    loop {
        match connection.socket.next(deadline).await? {
            NextMessage::Closed(code) => return Ok(pass(format!("answered with {}", shown_code(code)))),
            NextMessage::Lost => return Ok(fail("the socket ends without a close")),
            NextMessage::Quiet => {
                let limit = seconds(harness.wire.patience);
                return Ok(fail(format!("there is no close within {limit}")));
            }
            NextMessage::Message(_) | NextMessage::Pong(_) | NextMessage::Binary => {}
        }
    }
}
