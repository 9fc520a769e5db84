//! Reading and writing the types that come most often.

use std::hint::black_box;

use duologue_rpc::{Limits, ResponseOutcome, RpcMessage};
use duologue_schema::{
    AgentRequest, ClientRequest, PromptRequest, PromptResponse, ReadTextFileRequest, ReadTextFileResponse,
    RequestPermissionRequest, RequestPermissionResponse, SessionNotification,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::{Path, Work};

pub(crate) const PATHS: &[Path] = &[
    Path::new("decode/agent_message_chunk", 1, || decode::<SessionNotification>(MESSAGE_CHUNK)),
    Path::new("decode/agent_thought_chunk", 1, || decode::<SessionNotification>(THOUGHT_CHUNK)),
    Path::new("decode/tool_call", 1, || decode::<SessionNotification>(TOOL_CALL)),
    Path::new("decode/tool_call_update", 1, || decode::<SessionNotification>(TOOL_CALL_UPDATE)),
    Path::new("decode/plan", 1, || decode::<SessionNotification>(PLAN)),
    Path::new("encode/agent_message_chunk", 1, || encode::<SessionNotification>(MESSAGE_CHUNK)),
    Path::new("encode/agent_thought_chunk", 1, || encode::<SessionNotification>(THOUGHT_CHUNK)),
    Path::new("encode/tool_call", 1, || encode::<SessionNotification>(TOOL_CALL)),
    Path::new("encode/tool_call_update", 1, || encode::<SessionNotification>(TOOL_CALL_UPDATE)),
    Path::new("encode/plan", 1, || encode::<SessionNotification>(PLAN)),
    Path::new("encode/prompt", 1, || encode::<PromptRequest>(PROMPT)),
    Path::new("encode/prompt_answer", 1, || encode::<PromptResponse>(PROMPT_ANSWER)),
    Path::new("encode/read_text_file", 1, || encode::<ReadTextFileRequest>(READ)),
    Path::new("encode/read_text_file_answer", 1, || encode::<ReadTextFileResponse>(&read_answer())),
    Path::new("encode/request_permission", 1, || encode::<RequestPermissionRequest>(PERMISSION)),
    Path::new("encode/request_permission_answer", 1, || {
        encode::<RequestPermissionResponse>(PERMISSION_ANSWER)
    }),
    // Whole lines: the envelope, and what is in it.
    Path::new("line/prompt", 1, || request("session/prompt", PROMPT, of_client)),
    Path::new("line/prompt_answer", 1, || answer::<PromptResponse>(PROMPT_ANSWER)),
    Path::new("line/read_text_file", 1, || request("fs/read_text_file", READ, of_agent)),
    Path::new("line/read_text_file_answer", 1, || answer::<ReadTextFileResponse>(&read_answer())),
    Path::new("line/request_permission", 1, || request("session/request_permission", PERMISSION, of_agent)),
    Path::new("line/request_permission_answer", 1, || answer::<RequestPermissionResponse>(PERMISSION_ANSWER)),
];

/// Forty bytes of text, about what a model says at once.
const MESSAGE_CHUNK: &str = r#"{"sessionId":"0bd7d9b9-6a1c-4c53-9b1c-6f0a54d9e1f2","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"and so it is forty bytes, neither more n"},"messageId":"c6d3a1de-6c3f-4c4e-a8a1-5a9e36f0b7cd"}}"#;

const THOUGHT_CHUNK: &str = r#"{"sessionId":"0bd7d9b9-6a1c-4c53-9b1c-6f0a54d9e1f2","update":{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"and so it is forty bytes, neither more n"}}}"#;

const TOOL_CALL: &str = r#"{"sessionId":"0bd7d9b9-6a1c-4c53-9b1c-6f0a54d9e1f2","update":{"sessionUpdate":"tool_call","toolCallId":"call_001","title":"Read src/main.rs","kind":"read","status":"pending","locations":[{"path":"/home/me/project/src/main.rs","line":1}],"rawInput":{"path":"src/main.rs","limit":200}}}"#;

const TOOL_CALL_UPDATE: &str = r#"{"sessionId":"0bd7d9b9-6a1c-4c53-9b1c-6f0a54d9e1f2","update":{"sessionUpdate":"tool_call_update","toolCallId":"call_001","status":"completed","content":[{"type":"content","content":{"type":"text","text":"fn main() {\n    println!(\"hello\");\n}\n"}}]}}"#;

const PLAN: &str = r#"{"sessionId":"0bd7d9b9-6a1c-4c53-9b1c-6f0a54d9e1f2","update":{"sessionUpdate":"plan","entries":[{"content":"Read the code","priority":"high","status":"completed"},{"content":"Find the fault","priority":"high","status":"in_progress"},{"content":"Write a test for it","priority":"medium","status":"pending"},{"content":"Mend it","priority":"high","status":"pending"}]}}"#;

const PROMPT: &str = r#"{"sessionId":"0bd7d9b9-6a1c-4c53-9b1c-6f0a54d9e1f2","prompt":[{"type":"text","text":"What is wrong here?"}]}"#;

const PROMPT_ANSWER: &str = r#"{"stopReason":"end_turn"}"#;

const READ: &str =
    r#"{"sessionId":"0bd7d9b9-6a1c-4c53-9b1c-6f0a54d9e1f2","path":"/home/me/project/src/main.rs"}"#;

/// A file of 4 KiB, of lines.
fn read_answer() -> String {
    format!(r#"{{"content":"{}"}}"#, r"let answer = 42; // a line of 32\n".repeat(4096 / 33))
}

const PERMISSION: &str = r#"{"sessionId":"0bd7d9b9-6a1c-4c53-9b1c-6f0a54d9e1f2","toolCall":{"toolCallId":"call_001","title":"Write src/main.rs","kind":"edit","status":"pending"},"options":[{"optionId":"allow","name":"Allow","kind":"allow_once"},{"optionId":"always","name":"Always allow","kind":"allow_always"},{"optionId":"reject","name":"Reject","kind":"reject_once"}]}"#;

const PERMISSION_ANSWER: &str = r#"{"outcome":{"outcome":"selected","optionId":"allow"}}"#;

fn parsed<T: DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).expect("it fits its type")
}

fn decode<T: DeserializeOwned + 'static>(json: &'static str) -> Work {
    Box::new(move || drop(black_box(parsed::<T>(black_box(json)))))
}

fn encode<T: DeserializeOwned + Serialize + 'static>(json: &str) -> Work {
    let value: T = parsed(json);
    let mut line = Vec::new();
    Box::new(move || {
        line.clear();
        serde_json::to_writer(&mut line, black_box(&value)).expect("JSON has it");
        black_box(&line);
    })
}

/// Reads params into the type that belongs to their method.
type Read = fn(&str, Option<&RawValue>);

fn of_client(method: &str, params: Option<&RawValue>) {
    let request = ClientRequest::decode(method, params);
    assert!(matches!(black_box(request), Some(Ok(_))));
}

fn of_agent(method: &str, params: Option<&RawValue>) {
    let request = AgentRequest::decode(method, params);
    assert!(matches!(black_box(request), Some(Ok(_))));
}

fn request(method: &str, params: &str, read: Read) -> Work {
    let line = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{params}}}"#);
    let limits = Limits::default();
    Box::new(move || match RpcMessage::read(black_box(line.as_bytes()), &limits) {
        Some(Ok(RpcMessage::Request { id, method, params })) => {
            black_box(id);
            read(&method, params);
        }
        other => panic!("{other:?} is no request"),
    })
}

fn answer<T: DeserializeOwned + 'static>(result: &str) -> Work {
    let line = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#);
    let limits = Limits::default();
    Box::new(move || match RpcMessage::read(black_box(line.as_bytes()), &limits) {
        Some(Ok(RpcMessage::Response { outcome: ResponseOutcome::Result(result), .. })) => {
            drop(black_box(parsed::<T>(result.get())));
        }
        other => panic!("{other:?} is no answer"),
    })
}
