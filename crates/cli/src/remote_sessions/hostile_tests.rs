//! Tests of servers that try to get the client to do what it did not allow.

use super::tests::{allowing, book, call, line, send};
use super::*;

fn read(line: &[u8]) -> Value {
    serde_json::from_slice(line).unwrap()
}

/// A number beyond a float, and half of a surrogate pair.
#[test]
fn an_error_with_data_that_has_no_value_is_passed_on() {
    for data in [r#"{"x":1e400}"#, r#"{"x":"\ud800"}"#, "1e400"] {
        for allows_files in [false, true] {
            let (mut book, answers, _repeated) = book();
            book.settings.allows_files = allows_files;
            let error =
                format!(r#"{{"jsonrpc":"2.0","id":2,"error":{{"code":1,"message":"no","data":{data}}}}}"#);
            let passed = book.accept_server_line(error.into_bytes(), &answers).expect("an error");
            assert!(String::from_utf8_lossy(&passed).contains(r#""error":"#), "{data}");
        }
    }
}

#[test]
fn no_name_of_a_login_in_a_terminal_passes() {
    let terminal = json!([{"type": "terminal", "id": "t", "name": "T", "args": ["x"]}]);
    let named = json!([{"id": "t", "name": "T", "field_meta": {"terminal-auth": {"command": "x"}}}]);
    for (name, logins) in [("authMethods", &terminal), ("auth_methods", &terminal), ("authMethods", &named)] {
        for code in ["context_lost", "restore_failed", "other"] {
            let (mut book, answers, _repeated) = book();
            let data = json!({"code": code, name: logins});
            let error = RpcError::internal("no").data(data);
            let error = line(&json!({"jsonrpc": "2.0", "id": 2, "error": error}));
            let passed = read(&book.accept_server_line(error, &answers).expect("an error"));
            let text = passed.to_string();
            assert!(!text.contains("args") && !text.contains("command"), "{text}");
            assert_eq!(text.contains("--fresh"), code != "other", "{text}");
        }
    }
    let mut params = json!({"client_capabilities": {"fs": {"readTextFile": true}}, "clientCapabilities": {
        "field_meta": {"terminal-auth": true}, "terminal": true,
    }});
    client_files::remove_capabilities(&mut params);
    assert_eq!(params, json!({"clientCapabilities": {}}));
}

#[test]
fn a_response_with_too_many_values_is_an_error() {
    let (mut book, answers, _repeated) = book();
    send(&mut book, line(&call(&json!(9), "session/list", &json!({}))));
    let values = "0,".repeat(Limits::default().values);
    let result = format!(r#"{{"jsonrpc":"2.0","id":9,"result":{{"authMethods":[{values}0]}}}}"#).into_bytes();
    let passed = read(&book.accept_server_line(result.clone(), &answers).expect("an error"));
    assert_eq!((&passed["id"], &passed["error"]["code"]), (&json!(9), &json!(-32603)), "{passed}");
    assert_eq!(book.accept_server_line(result, &answers), None, "no request is open");
}

/// The answer to the first question waits to be sent.
#[test]
fn another_question_does_not_get_an_answer_that_was_given_before() {
    let (mut book, answers, mut repeated) = book();
    let question = |text: &str| {
        let params = json!({"sessionId": "s", "toolCall": {"title": text}});
        line(&call(&json!(7), "session/request_permission", &params))
    };
    assert!(book.accept_server_line(question("ls"), &answers).is_some());
    book.begin_replacement();
    for _ in 0..2 {
        assert_eq!(book.accept_server_line(question("rm"), &answers), None);
        assert_eq!(read(&repeated.try_recv().expect("a refusal"))["error"]["code"], -32600);
    }
    let answer = line(&json!({"jsonrpc": "2.0", "id": 7, "result": {"outcome": "yes"}}));
    send(&mut book, answer.clone());
    // A client may answer twice, and its first answer counts.
    send(&mut book, line(&json!({"jsonrpc": "2.0", "id": 7, "result": {"outcome": "no"}})));
    assert_eq!(book.accept_server_line(question("ls"), &answers), None);
    assert_eq!(repeated.try_recv().ok(), Some(answer));
    assert!(book.accept_server_line(question("rm"), &answers).is_some(), "the user sees it");
}

#[test]
fn a_response_that_would_grow_too_long_is_an_error() {
    let (mut book, answers, _repeated) = book();
    let limits = Limits::default();
    // Each number has four characters, and more when it is written anew.
    let numbers = "1e14,".repeat(limits.values / 2);
    let data =
        format!(r#"{{"a":"{}","b":[{numbers}0]}}"#, "x".repeat(limits.frame_bytes - 2 * numbers.len()));
    let error = format!(r#"{{"jsonrpc":"2.0","id":2,"error":{{"code":1,"message":"no","data":{data}}}}}"#);
    let passed = book.accept_server_line(error.into_bytes(), &answers).expect("an error");
    let text = read(&passed)["error"]["message"].to_string();
    assert!(text.contains("longer than"), "{text}");
}

#[test]
fn an_id_that_programs_write_in_another_way_is_refused() {
    let ids = ["9007199254740993", "-9007199254740992", "null", r#""\ud800""#];
    for allows_files in [false, true] {
        let (mut book, answers, mut repeated) = book();
        book.settings.allows_files = allows_files;
        let question = |id: &str| {
            let params = r#"{"sessionId":"s","toolCall":{}}"#;
            let method = "session/request_permission";
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#).into_bytes()
        };
        for id in ids {
            assert_eq!(book.accept_server_line(question(id), &answers), None, "{id}");
            let refusal = String::from_utf8(repeated.try_recv().expect("a refusal")).unwrap();
            assert!(refusal.contains(&format!(r#""id":{id},"#)) && refusal.contains("-32600"), "{refusal}");
        }
        // The answers that wait have a limit.
        let long = format!("\"{}\"", "x".repeat(ID_BYTES));
        assert_eq!(book.accept_server_line(question(&long), &answers), None);
        assert!(repeated.try_recv().is_err());
        for id in ["9007199254740991", r#""s:1""#] {
            assert!(book.accept_server_line(question(id), &answers).is_some(), "{id}");
        }
    }
    let (mut book, ..) = book();
    let request = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"session/list"}}"#).into_bytes();
    // After a replacement they would be other ones.
    for id in [r#""\ud800""#, "1e2", "1.5", "-0", "18446744073709551616"] {
        let refused = book.accept_client_line(request(id)).expect_err("no value");
        let answer = String::from_utf8(refused.answer.expect("an answer")).unwrap();
        let answered = [id, "null"].map(|id| answer.contains(&format!(r#""id":{id},"#)));
        assert!(answered.contains(&true) && answer.contains("-32600"), "{answer}");
    }
    let refused =
        book.accept_client_line(line(&call(&json!(1), "stream/ack", &json!({})))).expect_err("no request");
    let answer = String::from_utf8(refused.answer.expect("an answer")).unwrap();
    assert!(answer.contains("of the transport"), "{answer}");
    for id in ["9223372036854775807", "-9223372036854775808", "0", r#""1e2""#] {
        assert!(book.accept_client_line(request(id)).is_ok(), "{id}");
    }
}

#[test]
fn the_server_learns_of_no_files_that_are_not_allowed() {
    let capabilities = json!({
        "fs": {"readTextFile": true},
        "terminal": true,
        "elicitation": {},
        "auth": {"terminal": true},
        "_meta": {"terminal-auth": true},
    });
    let offer = |name: &str, capabilities: Value| {
        let params = json!({"protocolVersion": 1, "_meta": {"a": [1]}, name: capabilities});
        call(&json!("i"), "initialize", &params)
    };
    let accepted = |book: &mut Book| {
        let (answers, _) = mpsc::channel(1);
        book.accept_server_line(line(&json!({"jsonrpc": "2.0", "id": "i", "result": {}})), &answers);
        book.begin_replacement().0
    };
    for name in ["clientCapabilities", "capabilities"] {
        let mut book = Book::default();
        let sent = send(&mut book, line(&offer(name, capabilities.clone())));
        let left = json!({"elicitation": {}, "auth": {}, "_meta": {}});
        let masked = offer(name, left.clone());
        assert_eq!(serde_json::from_slice::<Value>(&sent).unwrap(), masked);
        // The next server gets the same.
        assert_eq!(accepted(&mut book)[name], left);

        let mut book = allowing();
        let offered = line(&offer(name, capabilities.clone()));
        assert_eq!(send(&mut book, offered.clone()), offered);
        assert_eq!(accepted(&mut book)[name], capabilities);
    }
    let without = offer("clientCapabilities", json!({"elicitation": {}}));
    let sent = send(&mut Book::default(), line(&without));
    assert_eq!(serde_json::from_slice::<Value>(&sent).unwrap(), without);
}

/// A number is the position of an earlier version.
#[test]
fn a_position_that_is_no_text_or_too_long_is_not_kept() {
    for position in [json!(9), json!("x".repeat(ID_BYTES + 1))] {
        let (mut book, answers, _repeated) = book();
        let own = json!({"duologue": {"position": position}});
        send(&mut book, line(&call(&json!(9), "session/new", &json!({"cwd": "/"}))));
        let result = json!({"sessionId": "t", "_meta": own});
        let response = line(&json!({"jsonrpc": "2.0", "id": 9, "result": result}));
        assert!(book.accept_server_line(response, &answers).is_some());
        assert_eq!(book.begin_replacement().1, ["s"]);
        // The server refuses the next resume of this one, and does not count from an earlier position.
        book.resumed("s", Ok(json!({"_meta": own})), false);
        let params = book.resume_params("s").unwrap();
        assert_eq!(params["_meta"]["duologue"]["after"], json!({"position": "", "frames": 0}));
    }
}
