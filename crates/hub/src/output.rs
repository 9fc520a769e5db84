//! The output of a client: lines that wait for one writer, with a limit on their bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use duologue_rpc::raw_message::{
    call_frame, is_similar_name, member, member_text, response_frame, similar_members,
};
use duologue_rpc::{Limits, ResponseOutcome, RpcMessage};
use duologue_schema::{
    Error as RpcError, Json, Notification as _, SessionId, SessionNotification, SessionUpdate,
};
use serde_json::value::{RawValue, to_raw_value};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::projection::error_response;

/// Limit on the bytes that wait for a client. Its readers wait above it. A longer line waits alone.
const WAITING_BYTES: u32 = 4 << 20;
/// The bytes that are written at once, if as many wait.
const WRITE_BYTES: usize = 64 << 10;

/// The bytes by which a line is shorter than the longest one, for what the transport adds.
pub(crate) const LINE_RESERVE: usize = 16 << 10;

/// The beginning of each response.
const RESPONSE: &[u8] = br#"{"jsonrpc":"2.0","id":"#;

type Waiting = (Vec<u8>, OwnedSemaphorePermit);

/// A sender of lines. It sends them as long as there is an [`OpenOutput`].
#[derive(Clone, Debug)]
pub(crate) struct ClientOutput {
    lines: mpsc::WeakUnboundedSender<Waiting>,
    room: Arc<Semaphore>,
    /// True if no response of an agent brings ways to log in. Those in a terminal run a program on the machine of the client.
    hides_logins: bool,
}

impl ClientOutput {
    /// Sends a line without its line end, and waits for space before. One that is too long for a transport would end the
    /// connection, so an error takes the place of a response, and a notice that of a notification.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits sends nothing.
    pub(crate) async fn send(&self, line: Vec<u8>) {
        let _ = self.send_unless(line, std::future::pending()).await;
    }

    /// Returns a sender for the response to `initialize`, whose logins are those that the client may have.
    pub(crate) fn with_logins(&self) -> Self {
        ClientOutput { hides_logins: false, ..self.clone() }
    }

    /// Waits until half of the space is free.
    pub(crate) async fn half_free(&self) {
        let _ = self.room.acquire_many(WAITING_BYTES / 2).await;
    }

    /// Sends a line as [`send`](Self::send), unless there is no space when `stop` resolves. Returns the line in that case.
    pub(crate) async fn send_unless(&self, line: Vec<u8>, stop: impl Future<Output = ()>) -> Option<Vec<u8>> {
        let line = if self.hides_logins { without_logins(line) } else { line };
        let line = match check_length(&line) {
            Ok(()) => line,
            Err(error) => shortened(&line, error)?,
        };
        let bytes = u32::try_from(line.len()).unwrap_or(u32::MAX).clamp(1, WAITING_BYTES);
        tokio::select! {
            biased;
            room = self.room.clone().acquire_many_owned(bytes) => {
                if let (Ok(permit), Some(lines)) = (room, self.lines.upgrade()) {
                    let _ = lines.send((line, permit));
                }
                None
            }
            () = stop => Some(line),
        }
    }
}

/// Keeps an output open. Dropping it ends the output: the lines that wait are written, and no others.
#[derive(Debug)]
pub(crate) struct OpenOutput {
    _lines: mpsc::UnboundedSender<Waiting>,
    room: Arc<Semaphore>,
}

impl Drop for OpenOutput {
    fn drop(&mut self) {
        // Senders do not wait for a client that is gone.
        self.room.close();
    }
}

/// Refuses a line that would be too long with the ids of the hub, of an agent or of a transport.
pub(crate) fn check_length(line: &[u8]) -> Result<(), RpcError> {
    let (bytes, limit) = (line.len(), Limits::default().frame_bytes - LINE_RESERVE);
    if bytes <= limit {
        return Ok(());
    }
    let error = RpcError::internal(format!(
        "the message has {bytes} bytes, the limit is {limit} (`Limits::frame_bytes` less 16 KiB)"
    ));
    Err(error.coded("limit_reached", false))
}

/// Returns true for each response: the hub writes all of them, with the id in front. Some requests of agents begin so too.
pub(crate) fn is_response_of_hub(line: &[u8]) -> bool {
    line.starts_with(RESPONSE)
}

/// The member with the ways to log in.
const LOGINS: &str = "authMethods";

/// Returns a line without the ways to log in that a result has, or an error in its data. A client knows those of `initialize`.
fn without_logins(line: Vec<u8>) -> Vec<u8> {
    if !is_response_of_hub(&line) {
        return line;
    }
    let cleaned = match RpcMessage::read(&line, &Limits::default()) {
        Some(Ok(RpcMessage::Response { id, outcome: ResponseOutcome::Error(mut error) })) => {
            let object = member(&line, "error").and_then(|error| line.get(error)).unwrap_or_default();
            // A reader without case takes it for the data.
            let has_other_data = similar_members(object, &["data"]).any(|(key, name)| key != name);
            let data = error.data.as_ref().map(|data| serde_json::from_str(data.get()));
            let is_changed = match data {
                Some(Ok(mut data @ serde_json::Value::Object(_))) => {
                    let has_logins = remove_logins(&mut data);
                    if has_logins {
                        error.data = Some(Json::from(data));
                    }
                    has_logins
                }
                // Some programs read the members of an array by their order.
                Some(Ok(serde_json::Value::Array(_)) | Err(_)) => {
                    error.data = None;
                    true
                }
                _ => false,
            };
            (is_changed || has_other_data).then(|| error_response(id.get(), &error))
        }
        Some(Ok(RpcMessage::Response { id, outcome: ResponseOutcome::Result(result) })) => {
            let has_logins = similar_members(result.get().as_bytes(), &[LOGINS]).next().is_some();
            has_logins.then(|| without_member(id, result))
        }
        Some(Ok(RpcMessage::Response { id, outcome: ResponseOutcome::Unreadable(error) })) => {
            let error = RpcError::internal(format!("the response of the agent cannot be read: {error}"));
            Some(error_response(id.get(), &error))
        }
        _ => None,
    };
    cleaned.unwrap_or(line)
}

/// Removes the ways to log in from all objects of a value. Returns true if there were any.
fn remove_logins(value: &mut serde_json::Value) -> bool {
    match value {
        serde_json::Value::Object(members) => {
            let count = members.len();
            members.retain(|key, _| !is_similar_name(key, LOGINS));
            let changed =
                members.values_mut().filter_map(|member| remove_logins(member).then_some(())).count();
            members.len() < count || changed > 0
        }
        serde_json::Value::Array(items) => {
            items.iter_mut().filter_map(|item| remove_logins(item).then_some(())).count() > 0
        }
        _ => false,
    }
}

/// Returns a response without the ways to log in that its result has. The text of the other members stays as it is.
fn without_member(id: &RawValue, result: &RawValue) -> Vec<u8> {
    let members = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(result.get());
    let line = members.and_then(|mut members| {
        members.retain(|key, _| !is_similar_name(key, LOGINS));
        response_frame(id.get(), Ok(&*to_raw_value(&members)?))
    });
    line.unwrap_or_else(|error| error_response(id.get(), &RpcError::internal(error.to_string())))
}

/// Returns an error for a response that is too long, or a notice for a notification of a session. A request of an agent
/// is not too long, because the lines of agents have a lower limit.
fn shortened(line: &[u8], error: RpcError) -> Option<Vec<u8>> {
    let id = member(line, "id").and_then(|id| std::str::from_utf8(line.get(id)?).ok());
    let params = member(line, "params").and_then(|params| line.get(params));
    let session = params.and_then(|params| member_text(params, "sessionId"));
    tracing::warn!(session = session.as_deref(), id, %error, "a message does not reach its client");
    if let (Some(id), None) = (id, params) {
        return Some(error_response(id, &error));
    }
    let session = session.filter(|_| id.is_none())?.into_owned();
    let text = format!("[A part of this session is left out: {}.]", error.message);
    let notice = SessionNotification::new(SessionId::from(session), SessionUpdate::agent_message(text));
    call_frame(None, SessionNotification::METHOD, &notice).ok()
}

/// Creates a sender, and the future that writes until the output is not open any more. The future belongs to the task of the
/// connection, because a task of its own would be another change of tasks for each message.
pub(crate) fn client_output(
    writer: impl AsyncWrite + Unpin,
    hides_logins: bool,
) -> (ClientOutput, OpenOutput, impl Future<Output = ()>) {
    let (lines, waiting) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(WAITING_BYTES as usize));
    let writing = write(writer, waiting, room.clone());
    let output = ClientOutput { lines: lines.downgrade(), room: room.clone(), hides_logins };
    (output, OpenOutput { _lines: lines, room }, writing)
}

async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut waiting: mpsc::UnboundedReceiver<Waiting>,
    room: Arc<Semaphore>,
) {
    let mut buffer = Vec::new();
    while let Some((line, permit)) = waiting.recv().await {
        let mut permits = vec![permit];
        buffer.clear();
        buffer.extend_from_slice(&line);
        buffer.push(b'\n');
        while buffer.len() < WRITE_BYTES
            && let Ok((line, permit)) = waiting.try_recv()
        {
            buffer.extend_from_slice(&line);
            buffer.push(b'\n');
            permits.push(permit);
        }
        if writer.write_all(&buffer).await.is_err() || writer.flush().await.is_err() {
            // Senders do not wait for a client that is gone.
            room.close();
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_error_of_an_agent_brings_a_login() {
        let of = |text: &str| -> serde_json::Value {
            serde_json::from_slice(&without_logins(text.as_bytes().to_vec())).unwrap()
        };
        let login = r#"[{"id":"a","name":"A","type":"terminal","args":["sh"]}]"#;
        for (members, data) in [
            (format!(r#""authMethods":{login},"b":1"#), json!({"b": 1})),
            (format!(r#""AUTHMETHODS":{login},"b":1"#), json!({"b": 1})),
            (format!(r#""x":[{{"authMethods":{login},"b":1}}]"#), json!({"x": [{"b": 1}]})),
            (format!(r#""auth\u004dethods":{login},"authMethods":{login}"#), json!({})),
        ] {
            let line = format!(
                r#"{{"jsonrpc":"2.0","id":7,"error":{{"code":-32000,"message":"log in","data":{{{members}}}}}}}"#
            );
            let error = json!({"code": -32000, "message": "log in", "data": data});
            assert_eq!(of(&line), json!({"jsonrpc": "2.0", "id": 7, "error": error}), "{line}");
        }
        let result = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"auth_methods":{login},"b":1.50}}}}"#);
        let cleaned = without_logins(result.into_bytes());
        assert_eq!(String::from_utf8(cleaned).unwrap(), r#"{"jsonrpc":"2.0","id":7,"result":{"b":1.50}}"#);
        let other_data = format!(
            r#"{{"jsonrpc":"2.0","id":7,"error":{{"code":1,"message":"","Data":{{"authMethods":{login}}}}}}}"#
        );
        assert_eq!(of(&other_data)["error"], json!({"code": 1, "message": ""}));
        let array =
            format!(r#"{{"jsonrpc":"2.0","id":7,"error":{{"code":1,"message":"","data":[{login}]}}}}"#);
        assert_eq!(of(&array)["error"], json!({"code": 1, "message": ""}));
        let odd =
            format!(r#"{{"jsonrpc":"2.0","id":7,"error":{{"code":"x","data":{{"authMethods":{login}}}}}}}"#);
        assert!(!of(&odd).to_string().contains("terminal"), "{}", of(&odd));
        for same in [
            r#"{"jsonrpc":"2.0","id":7,"result":{"a":{"authMethods":[1.50]}}}"#,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"","data":{"a":1.50}}}"#,
            r#"{"jsonrpc":"2.0","method":"a","params":{}}"#,
        ] {
            assert_eq!(without_logins(same.as_bytes().to_vec()), same.as_bytes());
        }
    }

    #[tokio::test]
    async fn a_notice_or_an_error_takes_the_place_of_a_line_that_is_too_long() {
        let (output, _open, writing) = client_output(tokio::io::sink(), false);
        drop(writing);
        let (lines, mut sent) = mpsc::unbounded_channel();
        let output = ClientOutput { lines: lines.downgrade(), ..output };
        let long = "x".repeat(Limits::default().frame_bytes);
        let update = format!(r#"{{"method":"session/update","params":{{"sessionId":"s","text":"{long}"}}}}"#);
        for line in [update, format!(r#"{{"id":"a","result":"{long}"}}"#), "{}".to_owned()] {
            output.send(line.into_bytes()).await;
        }
        let notice = String::from_utf8(sent.recv().await.unwrap().0).unwrap();
        assert!(notice.contains(r#""sessionId":"s""#) && notice.contains("is left out"), "{notice}");
        let error = String::from_utf8(sent.recv().await.unwrap().0).unwrap();
        assert!(error.contains(r#""id":"a""#) && error.contains("limit_reached"), "{error}");
        assert_eq!(sent.recv().await.unwrap().0, b"{}");
    }
}
