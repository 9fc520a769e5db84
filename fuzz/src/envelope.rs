//! The envelope: every line is read without a panic, its parts are parts of the line, and what it is
//! answered with is a message that carries its id byte for byte.

use duologue_rpc::fuzzing::{fast_path_line, fast_path_params_of, refusal};
use duologue_rpc::{Limits, Malformed, ResponseOutcome, RpcMessage};
use duologue_schema::{Error, RequestId};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// A line, and the end of one.
pub fn check(line: &[u8]) {
    whole(line);
    let line = fast_path_line(line);
    whole(&line);
    let short =
        fast_path_params_of(&line).filter(|params| serde_json::from_str::<IgnoredAny>(params).is_ok());
    if let Some(short) = short {
        match RpcMessage::read(&line, &Limits::default()) {
            Some(Ok(RpcMessage::Notification { method, params })) => {
                assert_eq!((&*method, params.map(RawValue::get)), ("m", Some(short.trim())));
            }
            other => panic!("the short way takes what is {other:?}"),
        }
    }
}

fn whole(line: &[u8]) {
    let repaired = RpcMessage::repair(line);
    let line = repaired.as_deref().unwrap_or(line);
    let limits = Limits::default();
    let is_part = |raw: &RawValue| {
        let (line, part) = (line.as_ptr_range(), raw.get().as_bytes().as_ptr_range());
        assert!(line.start <= part.start && part.end <= line.end, "a part that is not of the line");
    };
    match RpcMessage::read(line, &limits) {
        None => assert!(is_blank(line), "skipped, but not blank"),
        Some(Ok(RpcMessage::Request { id, params, .. })) => {
            params.map(is_part);
            // The line has one member `id`, so no choice is checked here.
            assert!(holds(line, id.token()), "the id {id} is not in the line");
            answered(&id, &Error::method_not_found("m"));
        }
        Some(Ok(RpcMessage::Notification { params, .. })) => {
            params.map(is_part);
        }
        Some(Ok(RpcMessage::Response { id, outcome })) => {
            is_part(id);
            if let ResponseOutcome::Result(result) = outcome {
                is_part(result);
            }
        }
        Some(Err(Malformed::Request(id, error))) => {
            assert!(id == RequestId::null() || holds(line, id.token()), "the id {id} is not in the line");
            answered(&id, &error);
        }
        Some(Err(Malformed::Noise(error))) => answered(&RequestId::null(), &error),
        Some(Ok(_) | Err(_)) => {}
    }
}

fn is_blank(line: &[u8]) -> bool {
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
    line.iter().all(|byte| b" \t\r\n".contains(byte))
}

fn holds(line: &[u8], token: &str) -> bool {
    line.windows(token.len()).any(|part| part == token.as_bytes())
}

/// An answer is one line, which reads as the answer it is.
fn answered(id: &RequestId, error: &Error) {
    let line = refusal(id, error).expect("an error can be written");
    assert!(!line.contains(&b'\n'), "an answer of several lines");
    match RpcMessage::read(&line, &Limits::default()) {
        Some(Ok(RpcMessage::Response { id: echo, outcome: ResponseOutcome::Error(told) })) => {
            assert_eq!(echo.get(), id.token());
            assert_eq!(told, *error);
        }
        other => panic!("{} reads as {other:?}", String::from_utf8_lossy(&line)),
    }
}
