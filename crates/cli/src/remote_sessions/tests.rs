//! Tests of the relay.

use tokio::time::Instant;

use super::*;

pub(super) fn line(message: &Value) -> Vec<u8> {
    message.to_string().into_bytes()
}

pub(super) fn allowing() -> Book {
    let settings = RelaySettings { allows_files: true, ..RelaySettings::default() };
    Book { settings, ..Book::default() }
}

pub(super) fn now() -> Instant {
    Instant::now()
}

/// Passes a line of the client, which is a message. Returns the line for the server.
pub(super) fn send(book: &mut Book, line: Vec<u8>) -> Vec<u8> {
    book.accept_client_line(line).expect("a message").expect("a line for the server")
}

pub(super) fn call(id: &Value, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// Returns a book with a session, in which a prompt runs.
pub(super) fn book() -> (Book, mpsc::Sender<Vec<u8>>, mpsc::Receiver<Vec<u8>>) {
    let (answers, repeated) = mpsc::channel(ANSWERS);
    let mut book = Book::default();
    let mine = |name: &str, value: Value| json!({"_meta": {"duologue": {name: value}}, "sessionId": "s"});
    for (id, method, result) in [
        (json!(0), "initialize", mine("client", json!("key"))),
        (json!("one"), "session/new", mine("position", json!("1-7"))),
    ] {
        send(&mut book, line(&call(&id, method, &json!({"cwd": "/"}))));
        book.accept_server_line(line(&json!({"jsonrpc": "2.0", "id": id, "result": result})), &answers);
    }
    send(&mut book, line(&call(&json!(2), "session/prompt", &json!({"sessionId": "s"}))));
    (book, answers, repeated)
}

#[test]
fn sessions_are_resumed_behind_what_the_client_has() {
    let (mut book, answers, _) = book();
    assert!(book.can_continue());
    let update = json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s"}});
    for _ in 0..3 {
        assert!(book.accept_server_line(line(&update), &answers).is_some());
    }
    let (introduction, sessions) = book.begin_replacement();
    assert_eq!(introduction, json!({"cwd": "/", "_meta": {"duologue": {"client": "key"}}}));
    assert_eq!(sessions, ["s"]);
    let after = json!({"position": "1-7", "frames": 3});
    let mine = json!({"after": after, "requests": [2]});
    let expected = json!({"cwd": "/", "sessionId": "s", "_meta": {"duologue": mine}});
    assert_eq!(book.resume_params("s"), Some(expected));
}

#[test]
fn answers_and_cancellations_are_repeated_and_requests_are_not() {
    let (mut book, answers, mut repeated) = book();
    let question = line(&call(&json!("s:9"), "session/request_permission", &json!({"sessionId": "s"})));
    assert!(book.accept_server_line(question.clone(), &answers).is_some());
    let answer = line(&json!({"jsonrpc": "2.0", "id": "s:9", "result": {}}));
    send(&mut book, answer.clone());
    let cancel = line(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}}));
    send(&mut book, cancel.clone());
    send(&mut book, line(&call(&json!(3), "session/set_mode", &json!({"sessionId": "s"}))));
    send(&mut book, line(&call(&json!(4), "session/list", &json!({}))));

    book.begin_replacement();
    assert_eq!(book.accept_server_line(question.clone(), &answers), None);
    assert_eq!(repeated.try_recv().ok(), Some(answer));
    // Once for each connection.
    assert!(book.accept_server_line(question, &answers).is_some());
    assert!(repeated.try_recv().is_err());
    let mine = json!({"position": "1-20", "requests": [2]});
    let settled = book.resumed("s", Ok(json!({"_meta": {"duologue": mine}})), false);
    assert_eq!(settled.to_server, [cancel]);
    let refused = |lines: Vec<Vec<u8>>| -> Vec<(Value, Value)> {
        let lines = lines.iter().map(|line| serde_json::from_slice::<Value>(line).unwrap());
        lines.map(|line| (line["id"].clone(), line["error"]["data"]["code"].clone())).collect()
    };
    assert_eq!(refused(settled.to_client), [(json!(3), json!("interrupted"))]);
    assert_eq!(refused(book.refuse_others()), [(json!(4), json!("interrupted"))]);
    // The prompt is answered once.
    let response = line(&json!({"jsonrpc": "2.0", "id": 2, "result": {}}));
    assert!(book.accept_server_line(response.clone(), &answers).is_some());
    assert_eq!(book.accept_server_line(response, &answers), None);
}

fn question(id: &Value, text: &str) -> Vec<u8> {
    let params = json!({"sessionId": "s", "toolCall": {"title": text}});
    line(&call(id, "session/request_permission", &params))
}

#[test]
fn an_id_can_be_used_for_another_question() {
    let (mut book, answers, mut repeated) = book();
    let (first, second) = (question(&json!(7), "read README.md"), question(&json!(7), "rm -rf"));
    for text in [&first, &second, &second] {
        assert!(book.accept_server_line(text.clone(), &answers).is_some());
        send(&mut book, line(&json!({"jsonrpc": "2.0", "id": 7, "result": {}})));
    }
    book.begin_replacement();
    // The server has lost the second question.
    assert!(book.accept_server_line(first, &answers).is_some());
    assert!(repeated.try_recv().is_err());
}

#[test]
fn a_server_cannot_fill_the_memory_with_questions() {
    let (mut book, answers, _) = book();
    for id in 0..QUESTIONS + 5 {
        assert!(book.accept_server_line(question(&json!(id), "a"), &answers).is_some());
    }
    assert!(book.questions.len() == QUESTIONS && !book.questions.contains_key("4"));
    let long = "x".repeat(ID_BYTES + 1);
    for (id, session, is_passed_on) in [(&*long, "s", false), ("a", &*long, true)] {
        let params = json!({"sessionId": session});
        let text = line(&call(&json!(id), "session/request_permission", &params));
        assert_eq!(book.accept_server_line(text, &answers).is_some(), is_passed_on);
    }
    let answer = json!({"jsonrpc": "2.0", "id": 9, "result": "x".repeat(ANSWER_BYTES)});
    send(&mut book, line(&answer));
    assert_eq!(book.questions.len(), QUESTIONS - 1);
}

#[test]
fn a_lost_session_is_reported_to_the_user() {
    let (mut book, _, _) = book();
    book.begin_replacement();
    let settled = book.resumed("s", Err(RpcError::resource_not_found("unknown session")), false);
    let text: Vec<String> =
        settled.to_client.iter().map(|line| String::from_utf8(line.clone()).unwrap()).collect();
    assert!(text[0].contains("The server has lost this session"), "{text:?}");
    assert!(text[1].contains("interrupted"), "{text:?}");
    assert!(settled.to_server.is_empty());
}

fn failed(code: &str) -> RpcError {
    RpcError::internal("no").coded(code, true)
}

/// Resumes a session at a server with these answers, one after the other. Returns the requests, the lines for the client,
/// and true if the book still has the session.
async fn resumed_with(answers: Vec<Value>) -> (Vec<Value>, Vec<String>, bool) {
    let (mut book, answers_of_client, mut repeated) = book();
    book.sessions.get_mut("s").unwrap().frames = 3;
    let book = Mutex::new(book);
    let (ours, theirs) = Transport::memory();
    let server = tokio::spawn(async move {
        let (reader, mut writer) = theirs.into_split();
        let mut lines = RelayLines::new(reader);
        let mut requests = Vec::new();
        let introduced = json!({"result": {}});
        for answer in std::iter::once(introduced).chain(answers) {
            let request: Value = serde_json::from_slice(&lines.next().await.unwrap().unwrap()).unwrap();
            let mut answer = answer;
            answer["id"] = request["id"].clone();
            answer["jsonrpc"] = json!("2.0");
            write(&mut writer, line(&answer)).await.unwrap();
            requests.push(request);
        }
        // The connection stays open.
        let _ = lines.next().await;
        requests
    });
    let (mut output, client) = tokio::io::duplex(1 << 16);
    let mut options = ConnectOptions::default();
    options.resume_delay_max = Duration::from_millis(8);
    let mut connection = RelayServer::new(ours);
    let at = (&options, now() + options.resume_time);
    // Another attempt has left it.
    answers_of_client.try_send(b"{}".to_vec()).unwrap();
    let mut waiting = WaitingClient {
        book: &book,
        output: &mut output,
        answers: &answers_of_client,
        repeated: &mut repeated,
    };
    connection.resume_all(at, &mut waiting).await.unwrap();
    assert!(repeated.try_recv().is_err());
    drop((output, connection));
    let mut client = RelayLines::new(client);
    let mut received = Vec::new();
    while let Ok(Some(line)) = client.next().await {
        received.push(String::from_utf8(line).unwrap());
    }
    let has_session = book.lock_unpoisoned().sessions.contains_key("s");
    (server.await.unwrap().split_off(1), received, has_session)
}

#[tokio::test]
async fn a_session_that_cannot_be_opened_now_is_resumed_later() {
    let result = json!({"result": {"_meta": {"duologue": {"position": "2-9", "requests": [2]}}}});
    let failures = ["log_failed", "limit_reached", "closed"].map(|code| json!({"error": failed(code)}));
    let answers = failures.into_iter().chain([result]).collect();
    let (requests, received, has_session) = resumed_with(answers).await;
    assert!(has_session && received.is_empty(), "{received:?}");
    assert_eq!(requests.len(), 4);
}

#[tokio::test]
async fn a_session_without_the_position_of_the_client_is_resumed_at_its_end() {
    let result = json!({"result": {"_meta": {"duologue": {"position": "2-9", "requests": [2]}}}});
    let (requests, received, has_session) =
        resumed_with(vec![json!({"error": failed("cursor_gone")}), result]).await;
    assert!(has_session);
    assert_eq!(requests[0]["params"]["_meta"]["duologue"]["after"]["frames"], 3);
    assert_eq!(requests[1]["params"]["_meta"]["duologue"], json!({"requests": [2]}));
    assert!(received[0].contains("incomplete"), "{received:?}");
}

#[test]
fn a_server_runs_no_login_on_the_machine_of_the_client() {
    let response = |logins: Value| {
        line(&json!({"jsonrpc": "2.0", "id": "i", "result": {"protocolVersion": 1, "authMethods": logins}}))
    };
    let login = json!({"id": "key", "name": "A key"});
    let mut command = login.clone();
    command["_meta"] = json!({"terminal-auth": {"command": "sh", "args": ["-c", "id"]}, "a": 1});
    let mut harmless = login.clone();
    harmless["_meta"] = json!({"a": 1});
    let terminal = json!({"id": "t", "name": "T", "type": "terminal", "args": ["--allow-files"], "env": {"LD_PRELOAD": "/x"}});
    let (offered, shown) = (response(json!([login, command, terminal])), response(json!([login, harmless])));
    for (allows_files, expected) in [(false, shown), (true, offered.clone())] {
        let (mut book, answers, _repeated) = book();
        book.settings.allows_files = allows_files;
        send(&mut book, line(&call(&json!("i"), "initialize", &json!({"protocolVersion": 1}))));
        let passed = book.accept_server_line(offered.clone(), &answers).expect("a line");
        let read = |line: &[u8]| serde_json::from_slice::<Value>(line).unwrap();
        assert_eq!(read(&passed), read(&expected));
    }
    // The client may read these in another way than this program.
    let text = String::from_utf8(offered).unwrap();
    for hidden in [
        text.replacen("\"protocolVersion\"", "\"x\":1e999,\"protocolVersion\"", 1),
        text.replacen("\"protocolVersion\"", "\"x\":\"\\ud800\",\"protocolVersion\"", 1),
        text.replacen("\"i\"", "0.0", 1),
        r#"{"jsonrpc":"2.0","id":"i","result":[1,{},[{"id":"t","name":"T","type":"terminal","env":{"LD_PRELOAD":"/x"}}]]}"#
            .to_owned(),
        r#"{"jsonrpc":"2.0","id":"i","result":{"authMethods":[["terminal","t","T",null,[],{"LD_PRELOAD":"/x"}]]}}"#
            .to_owned(),
        r#"{"jsonrpc":"2.0","id":"i","result":{"authMethods":[{"id":"t","name":"T","_meta":[{"LD_PRELOAD":"/x"}]}]}}"#
            .to_owned(),
        format!("\u{feff}{text}"),
    ] {
        let (mut book, answers, _repeated) = book();
        send(&mut book, line(&call(&json!("i"), "initialize", &json!({"protocolVersion": 1}))));
        let passed = book.accept_server_line(hidden.clone().into_bytes(), &answers);
        let passed = passed.map(|line| String::from_utf8(line).unwrap()).unwrap_or_default();
        assert!(!passed.contains("LD_PRELOAD"), "{hidden}: {passed}");
    }
    // So is the answer to a request that this program could not read.
    let (mut unknown, answers, _repeated) = book();
    let refusal = line(&json!({"jsonrpc": "2.0", "id": 77, "error": {"code": -32600, "message": "invalid"}}));
    let passed = unknown.accept_server_line(refusal.clone(), &answers).expect("an answer");
    let read = |line: &[u8]| serde_json::from_slice::<Value>(line).unwrap();
    assert_eq!(read(&passed), read(&refusal));
    let ack = line(&json!({"jsonrpc": "2.0", "method": "stream/ack", "params": {"received": 1}}));
    assert_eq!(unknown.accept_server_line(ack, &answers), None);
    // Neither may the server read more than this program.
    let mut book = Book::default();
    let offer = r#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"x":1e999,"clientCapabilities":{"terminal":true}}}"#;
    let sent = String::from_utf8(send(&mut book, offer.as_bytes().to_vec())).unwrap();
    assert!(!sent.contains("terminal"), "{sent}");
}

#[test]
fn a_question_that_cannot_be_read_is_shown_again() {
    let ask = |title: &str| {
        let params =
            format!(r#"{{"sessionId":"s","toolCall":{{"title":"{title}","x":1e999}},"options":[]}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{params}}}"#)
    };
    let without = r#"{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":null}"#;
    for second in [ask("rm -rf /"), without.to_owned()] {
        let (mut book, answers, mut repeated) = book();
        assert!(book.accept_server_line(ask("ls").into_bytes(), &answers).is_some());
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": "yes"}});
        send(&mut book, line(&json!({"jsonrpc": "2.0", "id": 7, "result": outcome})));
        book.begin_replacement();
        book.accept_server_line(second.clone().into_bytes(), &answers);
        assert!(repeated.try_recv().is_err(), "{second}");
    }
}

#[test]
fn requests_for_files_do_not_reach_the_client() {
    let text = |text: &str| text.as_bytes().to_vec();
    let request =
        |method: &str| line(&call(&json!("f"), method, &json!({"sessionId": "s", "path": "/etc/passwd"})));
    for (refused, code) in [
        (request("fs/read_text_file"), -32601),
        (request("fs/write_text_file"), -32601),
        (request("terminal/create"), -32601),
        (request("FS/read_text_file"), -32601),
        (request("Terminal/create"), -32601),
        (text(r#"{"method":"fs\/read_text_file","params":{},"id":"f","jsonrpc":"2.0"}"#), -32601),
        (text(r#" {"jsonrpc":"2.0","id":"f","method":"\u0074erminal/kill"}"#), -32601),
        // A client may read these in another way.
        (text(r#"{"id":"f","method":"fs/read_text_file"}"#), -32600),
        (
            text(r#"{"jsonrpc":"2.0","id":"f","method":"session/update","method":"fs/read_text_file"}"#),
            -32600,
        ),
    ] {
        let (mut book, answers, mut repeated) = book();
        let shown = String::from_utf8_lossy(&refused).into_owned();
        assert_eq!(book.accept_server_line(refused.clone(), &answers), None, "{shown}");
        let answer: Value = serde_json::from_slice(&repeated.try_recv().expect("an answer")).unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("f"), &json!(code)), "{shown}");
        let names_option = answer["error"]["message"].as_str().unwrap().contains("`--allow-files`");
        assert_eq!(names_option, code == -32601, "{answer}");

        book.settings.allows_files = true;
        assert_eq!(book.accept_server_line(refused.clone(), &answers), Some(refused), "{shown}");
    }
    let (mut book, answers, mut repeated) = book();
    for dropped in [
        &br#"[{"jsonrpc":"2.0","id":1,"method":"fs/read_text_file"}]"#[..],
        br#"{"jsonrpc":"2.0","method":"terminal/kill","params":{}}"#,
        b"\0{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"fs/read_text_file\"}",
        b"no message",
    ] {
        assert_eq!(book.accept_server_line(dropped.to_vec(), &answers), None);
    }
    assert!(repeated.try_recv().is_err());
    // The others are no messages.
    assert_eq!(book.dropped_lines, 3);
    let update = line(&json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s"}}));
    assert!(book.accept_server_line(update, &answers).is_some());
    // A frame that is refused counts for the position in its session.
    assert!(book.accept_server_line(request("fs/read_text_file"), &answers).is_none());
    assert_eq!(book.sessions["s"].frames, 2);
}

#[test]
fn a_server_that_does_not_read_gets_no_more_answers() {
    let (mut book, answers, mut repeated) = book();
    for id in 0..ANSWERS + 5 {
        let request = line(&call(&json!(id), "fs/read_text_file", &json!({})));
        assert_eq!(book.accept_server_line(request, &answers), None);
    }
    assert_eq!(std::iter::from_fn(|| repeated.try_recv().ok()).count(), ANSWERS);
}

#[test]
fn a_question_with_another_meta_is_another_question() {
    let asked = |meta: Value| {
        let params = json!({"sessionId": "s", "toolCall": {"title": "ls"}, "_meta": meta});
        line(&call(&json!(7), "session/request_permission", &params))
    };
    let first = asked(json!({"shell": "ls"}));
    for (second, is_same) in [
        (first.clone(), true),
        (asked(json!({"shell": "ls", "acp/cursor": "9"})), true),
        (asked(json!({"shell": "rm -rf"})), false),
        (asked(Value::Null), false),
    ] {
        let (mut book, answers, mut repeated) = book();
        assert!(book.accept_server_line(first.clone(), &answers).is_some());
        send(&mut book, line(&json!({"jsonrpc": "2.0", "id": 7, "result": {}})));
        book.begin_replacement();
        assert_eq!(book.accept_server_line(second.clone(), &answers).is_none(), is_same);
        assert_eq!(repeated.try_recv().is_ok(), is_same);
    }
    // The transport may add the object for its cursor.
    let plain = line(&call(&json!(7), "session/request_permission", &json!({"sessionId": "s"})));
    for meta in [json!(null), json!({}), json!({"acp/cursor": "9"})] {
        let (mut book, answers, mut repeated) = book();
        assert!(book.accept_server_line(plain.clone(), &answers).is_some());
        send(&mut book, line(&json!({"jsonrpc": "2.0", "id": 7, "result": {}})));
        book.begin_replacement();
        let params = json!({"sessionId": "s", "_meta": meta});
        let again = line(&call(&json!(7), "session/request_permission", &params));
        assert_eq!(book.accept_server_line(again, &answers), None);
        assert!(repeated.try_recv().is_ok());
    }
}

#[test]
fn a_long_line_is_answered_if_its_beginning_has_the_id() {
    let refused = |beginning: &str| {
        let (line, is_request) = match LongLine::read(beginning.as_bytes(), 100) {
            LongLine::Request(line) => (line, true),
            LongLine::Response(line) => (line, false),
            LongLine::Unanswered => return None,
        };
        let line: Value = serde_json::from_slice(&line).unwrap();
        let error = &line["error"];
        assert_eq!(
            (error["code"] == -32600, error["data"]["code"] == "limit_reached"),
            (is_request, !is_request)
        );
        assert!(error["message"].as_str().unwrap().contains("100 bytes"), "{line}");
        Some((line["id"].clone(), is_request))
    };
    let long_id = "1".repeat(ID_BYTES + 1);
    for (beginning, id) in [
        (r#"{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"a":"bbb"#, Some((json!(7), true))),
        (r#" { "method" : "a", "id" : "x\"y", "params":[[[{"id":3}"#, Some((json!("x\"y"), true))),
        // An agent waits for these.
        (r#"{"jsonrpc":"2.0","id":"7","result":{"content":"bbb"#, Some((json!("7"), false))),
        (r#"{"id":7,"result":{"method":"a"#, Some((json!(7), false))),
        (r#"{"id":7,"error":{"code":1"#, Some((json!(7), false))),
        (r#"{"method":"session/cancel","params":{"id":7,"a":"b"#, None),
        (r#"{"method":"a","id":7"#, None),
        (r#"{"id":7,"method":"a"#, None),
        (r#"{"id":7,"other":"a"#, None),
        (r#"{"result":"a"#, None),
        (r#"{"id":{"a":1},"method":"a","params":"#, None),
        (&format!(r#"{{"id":"{long_id}","method":"a","params":"#), None),
        ("no message", None),
    ] {
        assert_eq!(refused(beginning), id, "{beginning}");
    }
}

/// A line of a client offers files in a way that this program and the server could read in different ways.
#[test]
fn the_server_gets_no_line_that_is_not_one_message() {
    let offer = r#"{"jsonrpc":"2.0","id":5,"method":"initialize","params":{"clientCapabilities":{"fs":{"readTextFile":true},"terminal":true}}}"#;
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for (text, answer) in [
        (format!("{offer}{offer}"), Some((json!(null), -32700))),
        (format!("{offer} {offer}"), Some((json!(null), -32700))),
        (format!("[{offer}]"), Some((json!(null), -32600))),
        (format!("\0{offer}"), Some((json!(null), -32700))),
        ("no message fs terminal".to_owned(), Some((json!(null), -32700))),
        (r#""fs terminal""#.to_owned(), Some((json!(null), -32600))),
        (offer.replacen("\"params\"", "\"params\":{},\"params\"", 1), Some((json!(5), -32600))),
        (offer.replacen("\"method\"", "\"method\":\"a\",\"method\"", 1), Some((json!(5), -32600))),
        (offer.replacen("true", &deep, 1), Some((json!(5), -32600))),
        (offer.replacen("\"2.0\"", "2", 1), Some((json!(5), -32600))),
        (offer.replacen("5", "[5]", 1), Some((json!(null), -32600))),
        (
            offer.replacen("{\"clientCapabilities\"", "7,\"x\":{\"clientCapabilities\"", 1),
            Some((json!(5), -32602)),
        ),
        (offer.replacen("\"params\"", "\"params\":{},\"Params\"", 1), Some((json!(5), -32600))),
        (offer.replacen("\"params\"", "\"result\":{},\"params\"", 1), Some((json!(5), -32600))),
        // Neither a notification nor a response is answered.
        (offer.replacen("\"id\":5,", "", 1), None),
        (r#"{"jsonrpc":"2.0","id":5,"result":{"fs":1},"result":{"terminal":2}}"#.to_owned(), None),
    ] {
        let refused = Book::default().accept_client_line(text.clone().into_bytes()).expect_err(&text);
        let read = refused.answer.map(|answer| {
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            (answer["id"].clone(), answer["error"]["code"].as_i64().unwrap())
        });
        assert_eq!(read, answer.map(|(id, code)| (id, i64::from(code))), "{text}");
        assert!(!refused.reason.is_empty(), "{text}");
    }
    for (text, is_sent) in [
        (format!("\u{feff}{offer}"), true),
        (
            offer.replacen("\"clientCapabilities\"", "\"clientCapabilities\":{},\"clientCapabilities\"", 1),
            true,
        ),
        (offer.replacen("{\"fs\"", "[{\"fs\"", 1).replacen("}}}", "}]}}", 1), true),
        (
            offer.replacen("{\"fs\"", "{\"auth\":[{\"terminal\":1}],\"_meta\":[\"terminal-auth\"],\"fs\"", 1),
            true,
        ),
        (offer.replacen("\"params\":{", "\"params\":[{", 1).replacen("}}}", "}}]}", 1), true),
        (offer.replacen("initialize", "\\u0069nitialize", 1), true),
        (offer.replacen("\"clientCapabilities\"", "\"client\\u0043apabilities\"", 1), true),
        (offer.replacen("\"id\"", "\"fs\":{\"terminal\":1},\"id\"", 1), true),
        (offer.replacen("clientCap", "ClientCap", 1), true),
        (offer.replacen("clientCapabilities", "CAPABILITIE\\u017f", 1), true),
        (offer.replacen("\"fs\"", "\"FS\"", 1).replacen("terminal", "Terminal", 1), true),
        (offer.replacen("{\"fs\"", "{\"Auth\":{\"terminal\":1},\"fs\"", 1), true),
        (offer.replacen("{\"fs\"", "{\"auth\":{\"TERMINAL\":1},\"fs\"", 1), true),
        (offer.replacen("{\"fs\"", "{\"_META\":{\"terminal-auth\":1},\"fs\"", 1), true),
        ("\u{feff} \t".to_owned(), false),
    ] {
        let sent = Book::default().accept_client_line(text.clone().into_bytes()).expect(&text);
        assert_eq!(sent.is_some(), is_sent, "{text}");
        let sent = String::from_utf8(sent.unwrap_or_default()).unwrap().to_lowercase();
        let offers = ["\"fs\"", "terminal", "\u{feff}"].iter().any(|hidden| sent.contains(hidden));
        assert!(!offers, "{text}: {sent}");
    }
}

#[test]
fn numbers_that_are_equal_as_floats_are_different_questions() {
    let ask = |id: &str, params: &str| {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"session/request_permission","params":{params}}}"#
        );
        text.into_bytes()
    };
    let first = (r#"7"#, r#"{"sessionId":"s","toolCall":{"n":18446744073709551617}}"#);
    for (id, params, is_same) in [
        (first.0, first.1, true),
        ("7", r#"{"sessionId":"s","_meta":null,"toolCall":{"n":18446744073709551617}}"#, true),
        ("7", r#"{"sessionId":"s","toolCall":{"n":18446744073709551618}}"#, false),
        ("7", r#"{"sessionId":"s","toolCall":{"n":1.8446744073709551617e19}}"#, false),
        ("7", r#"{"sessionId":"s","toolCall":{"n":18446744073709551617,"n":1}}"#, false),
        ("7", r#"{"sessionId":"s","toolCall":{"n":18446744073709551617},"toolCall":{}}"#, false),
        ("7", r#"{"sessionId":"s","toolCall":{"n":18446744073709551617},"_meta":[]}"#, false),
        ("7", r#"{"sessionId":"s","_meta":{"toolCall":{"n":18446744073709551617}}}"#, false),
        (
            "7",
            r#"{"sessionId":"s","toolCall":{"n":18446744073709551617},"_meta":{"acp/cursor":1,"a":1}}"#,
            false,
        ),
        (
            "7",
            r#"{"sessionId":"s","toolCall":{"n":18446744073709551617},"_meta":{"acp/cursor":1,"acp/cursor":1}}"#,
            false,
        ),
        ("7", r#"[{"sessionId":"s"}]"#, false),
        ("7.0", first.1, false),
        ("\"7\"", first.1, false),
    ] {
        let (mut book, answers, mut repeated) = book();
        assert!(book.accept_server_line(ask(first.0, first.1), &answers).is_some());
        send(&mut book, line(&json!({"jsonrpc": "2.0", "id": 7, "result": {}})));
        book.begin_replacement();
        book.accept_server_line(ask(id, params), &answers);
        assert_eq!(
            repeated.try_recv().is_ok_and(|answer| answer.ends_with(br#""result":{}}"#)),
            is_same,
            "{params}"
        );
    }
}

/// Variants of a login in a terminal, beside those that were found before.
#[test]
fn a_login_in_a_terminal_has_no_other_form() {
    let id = r#""jsonrpc":"2.0","id":"i""#;
    let login = r#"{"id":"t","name":"T","type":"terminal","env":{"LD_PRELOAD":"/x"}}"#;
    for hidden in [
        format!(r#"{{{id},"result":{{"authMethods":[{login}],"authMethods":[]}}}}"#),
        format!(r#"{{{id},"result":{{"authMethods":[],"auth\u004dethods":[{login}]}}}}"#),
        format!(r#"{{{id},"result":{{"authMethods":{login}}}}}"#),
        format!(r#"{{{id},"result":{{"authMethods":{{"0":{login}}}}}}}"#),
        format!(
            r#"{{{id},"result":{{"authMethods":[{}]}}}}"#,
            login.replace("\"terminal\"", "\"term\\u0069nal\"")
        ),
        format!(
            r#"{{{id},"result":{{"authMethods":[{}]}}}}"#,
            login.replace("\"terminal\"", "[\"terminal\"]")
        ),
        format!(
            r#"{{{id},"result":{{"authMethods":[{}]}}}}"#,
            login.replace("\"type\"", "\"type\":\"agent\",\"type\"")
        ),
        format!(r#"{{{id},"result":{{"authMethods":[[{login}]]}}}}"#),
        format!(r#"{{{id},"result":{{}},"result":{{"authMethods":[{login}]}}}}"#),
        format!(r#"{{{id},"error":{{"code":-32000,"message":"m","data":{{"authMethods":[{login}]}}}}}}"#),
        format!(r#"{{{id},"error":{{"code":-32000,"message":"m","data":[[{login}]]}}}}"#),
        format!(r#"{{{id},"error":[-32000,"m",{{"authMethods":[{login}]}}]}}"#),
        format!(
            r#"{{{id},"result":null,"error":{{"code":-32000,"message":"m","data":{{"authMethods":[{login}]}}}}}}"#
        ),
        format!(
            r#"{{{id},"result":{{"x":1}},"error":{{"code":-32000,"message":"m","data":{{"authMethods":[{login}]}}}}}}"#
        ),
        format!(r#"[{{{id},"result":{{"authMethods":[{login}]}}}}]"#),
        format!(r#"{{{id},"result":{{"authMethods":[{login}]}}}} {{}}"#),
        // For readers that ignore case.
        format!(r#"{{{id},"Result":{{"authMethods":[{login}]}}}}"#),
        format!(r#"{{{id},"result":{{"AUTHMETHODS":[{login}]}}}}"#),
        format!(r#"{{{id},"result":{{"authMethod\u017f":[{login}],"authMethods":[]}}}}"#),
        format!(r#"{{{id},"result":{{"authMethods":[{}]}}}}"#, login.replace("\"type\"", "\"Type\"")),
        format!(
            r#"{{{id},"result":{{"authMethods":[{}]}}}}"#,
            login.replace("\"type\"", "\"type\":\"agent\",\"TYPE\"")
        ),
        format!(
            r#"{{{id},"result":{{"authMethods":[{{"id":"t","_Meta":{{"terminal-auth":"LD_PRELOAD"}}}}]}}}}"#
        ),
        format!(
            r#"{{{id},"result":{{"authMethods":[{{"id":"t","_meta":{{"Terminal-Auth":"LD_PRELOAD"}}}}]}}}}"#
        ),
        format!(r#"{{{id},"error":{{"code":-32000,"message":"m","Data":{{"authMethods":[{login}]}}}}}}"#),
        // For readers that look at the result first.
        format!(r#"{{{id},"method":"_x","result":{{"authMethods":[{login}]}}}}"#),
        format!(r#"{{{id},"method":"_x","error":{{"data":{{"authMethods":[{login}]}}}}}}"#),
    ] {
        for may_ask in [true, false] {
            let (mut book, answers, _repeated) = book();
            if may_ask {
                send(&mut book, line(&call(&json!("i"), "initialize", &json!({"protocolVersion": 1}))));
            }
            let passed = book.accept_server_line(hidden.clone().into_bytes(), &answers);
            let passed = passed.map(|line| String::from_utf8(line).unwrap()).unwrap_or_default();
            assert!(!passed.contains("LD_PRELOAD"), "{hidden}: {passed}");
        }
    }
}

/// Relays for a client that has ended, to a server that accepts connections and never answers. The end is read, or is known
/// before it can be read.
#[tokio::test]
async fn the_end_of_the_client_ends_the_relay() {
    use duologue_http::RemoteTransport::{Events, WebSocket};

    for (transport, is_read) in [(WebSocket, true), (Events, true), (WebSocket, false)] {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let mut options = ConnectOptions::default();
        options.transport = transport;
        let (client, editor) = Transport::memory();
        let (_output, mut input) = editor.into_split();
        write(&mut input, line(&call(&json!(1), "initialize", &json!({"protocolVersion": 1}))))
            .await
            .unwrap();
        if is_read {
            input.shutdown().await.unwrap();
        }
        let input_end = async {
            if is_read {
                std::future::pending().await
            }
        };
        let settings = RelaySettings { end_wait: Duration::ZERO, ..RelaySettings::default() };
        relay(client, input_end, &url, &options, settings).await.expect("it ends by itself");
    }
}

#[test]
fn the_end_of_a_client_that_reads_no_refusals_is_seen() {
    use std::task::{Context, Waker};

    let mut client = RelayLines::new(&b"no message\nno message\nno message\n"[..]);
    let end = client.end.clone();
    let (refusals, _refused) = mpsc::channel(1);
    let (_answers, mut repeated) = mpsc::channel(1);
    let (book, mut server) = (Mutex::new(Book::default()), Vec::new());
    let mut cx = Context::from_waker(Waker::noop());
    let to_server = (&mut server, async || {});
    let mut sending = pin!(send_to_server(&mut client, &mut repeated, &refusals, to_server, &book));
    assert!(sending.as_mut().poll(&mut cx).is_pending());
    assert!(pin!(end.notified()).poll(&mut cx).is_ready());
}

#[test]
fn byte_order_marks_do_not_reach_the_server() {
    let prompt = line(&call(&json!(9), "session/prompt", &json!({"sessionId": "s"})));
    for marks in 0..4 {
        let marked = ["\u{feff}".repeat(marks).as_bytes(), &prompt].concat();
        assert_eq!(send(&mut allowing(), marked), prompt, "{marks}");
    }
    let marks = "\u{feff}\u{feff} ".to_owned().into_bytes();
    assert!(allowing().accept_client_line(marks).unwrap().is_none());
}

#[test]
fn a_prompt_whose_params_cannot_be_read_is_not_written_anew() {
    let id = serde_json::value::to_raw_value(&9).unwrap();
    for params in ["[1]", r#"{"_meta":7}"#, r#"{"_meta":{"duologue":[]}}"#, r#"{"a":1e999}"#] {
        let raw = RawValue::from_string(params.to_owned()).unwrap();
        assert_eq!(with_fresh(&id, PromptRequest::METHOD, Some(&raw)), None, "{params}");
        let prompt = format!(r#"{{"jsonrpc":"2.0","id":9,"method":"session/prompt","params":{params}}}"#);
        let mut book = allowing();
        book.settings.fresh = true;
        assert_eq!(send(&mut book, prompt.clone().into_bytes()), prompt.into_bytes());
    }
}

#[test]
fn paths_are_mapped_between_the_client_and_the_server() {
    let (mut book, answers, mut repeated) = book();
    book.settings.allows_files = true;
    book.settings.paths = Some(PathMap::new().map("/here", "/there").strict());
    let load =
        |folder: &str| line(&call(&json!(7), "session/load", &json!({"sessionId": "t", "cwd": folder})));
    assert_eq!(send(&mut book, load("/here/a")), load("/there/a"));
    let refused = book.accept_client_line(load("/etc")).expect_err("a path outside");
    let answer: Value = serde_json::from_slice(&refused.answer.expect("an answer")).unwrap();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(-32602)));
    // The server that resumes the session gets its own folder.
    let loaded = json!({"jsonrpc": "2.0", "id": 7, "result": {"_meta": {"duologue": {"position": "1-1"}}}});
    book.accept_server_line(line(&loaded), &answers).expect("a response");
    assert_eq!(book.resume_params("t").unwrap()["cwd"], "/there/a");

    let read =
        |path: Value| line(&call(&json!("f"), "fs/read_text_file", &json!({"sessionId": "s", "path": path})));
    assert_eq!(book.accept_server_line(read(json!("/there/a")), &answers), Some(read(json!("/here/a"))));
    let mut expect_refused = |book: &mut Book, request: Vec<u8>| {
        assert_eq!(book.accept_server_line(request, &answers), None);
        let answer: Value = serde_json::from_slice(&repeated.try_recv().expect("an answer")).unwrap();
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    };
    expect_refused(&mut book, read(json!("/etc/passwd")));
    expect_refused(&mut book, read(json!(["/etc/passwd"])));
    expect_refused(&mut book, line(&call(&json!("f"), "fs/read_text_file", &json!(["s", "/etc/passwd"]))));
    // A question is refused again on the next connection.
    let location = json!({"sessionId": "s", "toolCall": {"locations": [{"path": "/etc"}]}});
    let question = line(&call(&json!("q"), "session/request_permission", &location));
    for _ in 0..2 {
        expect_refused(&mut book, question.clone());
        book.begin_replacement();
    }
    // Lines that are no messages do not pass with a map, even if files are allowed.
    for dropped in ["no message", "[{}]", r#"{"jsonrpc":"2.0","method":"a","params":["/etc"]}"#] {
        assert_eq!(book.accept_server_line(dropped.as_bytes().to_vec(), &answers), None, "{dropped}");
    }
    // The agent waits for the response.
    let odd = send(&mut book, b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\r\"result\":{}}".to_vec());
    let odd: Value = serde_json::from_slice(&odd).unwrap();
    assert_eq!((&odd["id"], &odd["error"]["code"]), (&json!("x"), &json!(-32600)));
}

#[test]
fn a_lost_conversation_names_the_option_that_goes_on_without_it() {
    let prompt = line(&call(&json!(9), "session/prompt", &json!({"sessionId": "s", "_meta": {"a": 1}})));
    let lost = |id: u64| {
        let error = RpcError::internal("the conversation is lost").data(json!({"code": "context_lost"}));
        line(&json!({"jsonrpc": "2.0", "id": id, "error": error}))
    };
    let read = |line: &[u8]| serde_json::from_slice::<Value>(line).unwrap();
    for fresh in [false, true] {
        let (mut book, answers, _repeated) = book();
        book.settings.fresh = fresh;
        let sent = read(&send(&mut book, prompt.clone()));
        let meta = if fresh { json!({"a": 1, "duologue": {"fresh": true}}) } else { json!({"a": 1}) };
        assert_eq!(sent["params"], json!({"sessionId": "s", "_meta": meta}));
        let passed = read(&book.accept_server_line(lost(9), &answers).expect("a line"));
        let text = passed["error"]["message"].as_str().unwrap();
        assert_eq!(text.contains("`--fresh`"), !fresh, "{text}");
        assert_eq!((&passed["id"], &passed["error"]["data"]["code"]), (&json!(9), &json!("context_lost")));
    }
    let (mut book, _answers, _repeated) = book();
    book.settings.fresh = true;
    for meta in [Value::Null, json!({"duologue": null})] {
        let prompt = line(&call(&json!(9), "session/prompt", &json!({"sessionId": "s", "_meta": meta})));
        assert_eq!(read(&send(&mut book, prompt))["params"]["_meta"]["duologue"]["fresh"], true);
    }
}

#[test]
fn a_line_that_becomes_too_long_is_refused() {
    let limit = Limits::default().frame_bytes;
    let padded = |message: &Value| {
        let mut text = message.to_string();
        let room = limit - text.len();
        text = text.replace("PAD", &"x".repeat(room + 3));
        assert_eq!(text.len(), limit);
        text.into_bytes()
    };
    let (mut book, _answers, _repeated) = book();
    book.settings.fresh = true;
    book.settings.paths = Some(PathMap::new().map("/a", "/longer"));
    let prompt = json!({"sessionId": "s", "prompt": [{"type": "text", "text": "PAD"}]});
    let load = json!({"sessionId": "t", "cwd": "/a", "x": "PAD"});
    for (method, params) in [("session/prompt", prompt), ("session/load", load)] {
        let request = padded(&call(&json!(9), method, &params));
        let refused = book.accept_client_line(request).expect_err("it has no room");
        let answer: Value = serde_json::from_slice(&refused.answer.expect("an answer")).unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(9), &json!(-32600)));
        assert!(refused.reason.contains(&limit.to_string()), "{}", refused.reason);
        assert!(!book.pending.contains_key("9"));
    }
}
