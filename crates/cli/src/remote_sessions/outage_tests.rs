//! Tests of the relay while the server is away.

use std::task::{Context, Waker};

use duologue_test_support::in_time;
use tokio::sync::Notify;

use super::tests::{book, call, line, now, send};
use super::*;

#[test]
fn a_line_is_not_taken_while_the_server_is_away() {
    let prompt = br#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s"}}"#;
    let mut client = RelayLines::new(&*[&prompt[..], b"\n"].concat().leak());
    let (refusals, _refused) = mpsc::channel(1);
    let (_answers, mut repeated) = mpsc::channel(1);
    let (book, mut server) = (Mutex::new(Book::default()), Vec::new());
    let mut cx = Context::from_waker(Waker::noop());
    let is_back = Notify::new();
    for is_away in [true, false] {
        let to_server = (&mut server, async || {
            if is_away {
                is_back.notified().await;
            }
        });
        // The next connection continues with the same client.
        let mut sending = pin!(send_to_server(&mut client, &mut repeated, &refusals, to_server, &book));
        let _ = sending.as_mut().poll(&mut cx);
        assert_eq!(book.lock_unpoisoned().pending.is_empty(), is_away);
    }
    assert_eq!(server, [&prompt[..], b"\n"].concat());
}

#[test]
fn an_outage_that_is_shorter_than_the_time_for_it_is_followed_by_another_connection() {
    use duologue_http::Error;

    let mut options = ConnectOptions::default();
    options.resume_time = Duration::from_secs(600);
    let gave_up = Error::GaveUp { attempts: 9, elapsed: Duration::ZERO, last: "refused".into() };
    for (error, outage, expected) in [
        (Error::Lost { reason: "reset".into() }, 0, true),
        (Error::ResumeRefused { reason: "unknown".into() }, 599, true),
        (Error::ResumeRefused { reason: "unknown".into() }, 600, false),
        (gave_up, 60, true),
        (Error::Refused { status: 401, message: "no".into() }, 0, false),
    ] {
        let text = error.to_string();
        let is_replaced = is_replaceable(&io::Error::other(error), Duration::from_secs(outage), &options);
        assert_eq!(is_replaced, expected, "{text}");
    }
}

#[test]
fn a_client_gets_notices_of_the_last_state_of_the_connection() {
    let (mut book, ..) = book();
    book.initialize = json!({"clientCapabilities": {"session": {"notices": {}}}});
    // A client that does not read gets no notice of a state that has passed.
    for (states, severity) in [
        (&[true, false][..], None),
        (&[true], Some("warning")),
        (&[false, true], None),
        (&[true, false], Some("info")),
    ] {
        states.iter().for_each(|is_away| book.is_away = *is_away);
        let notices = book.link_notices();
        assert_eq!(notices.len(), usize::from(severity.is_some()), "{states:?}");
        for notice in notices {
            let notice: Value = serde_json::from_slice(&notice).unwrap();
            let update = &notice["params"]["update"];
            assert_eq!(
                (&notice["params"]["sessionId"], update["severity"].as_str()),
                (&json!("s"), severity)
            );
        }
    }
}

/// The server refuses connections, accepts them and says nothing, or loses them.
#[tokio::test]
async fn the_end_of_the_client_ends_the_relay_before_the_first_answer() {
    use duologue_http::RemoteTransport::{Events, WebSocket};

    for transport in [WebSocket, Events] {
        for (is_listening, is_silent) in [(false, false), (true, true), (true, false)] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let accepting = tokio::spawn(async move {
                let mut open = Vec::new();
                if is_listening {
                    loop {
                        open.extend(listener.accept().await.ok().filter(|_| is_silent));
                    }
                }
            });
            let mut options = ConnectOptions::default();
            (options.transport, options.open_time) = (transport, Duration::from_secs(3600));
            let (client, editor) = Transport::memory();
            let (_output, mut input) = editor.into_split();
            input.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}\n").await.unwrap();
            input.shutdown().await.unwrap();
            let settings = RelaySettings { end_wait: Duration::ZERO, ..RelaySettings::default() };
            let ended = relay(client, std::future::pending(), &url, &options, settings).await;
            ended.expect("it ends by itself");
            accepting.abort();
        }
    }
}

/// Calls a function with a client that waits for another connection.
async fn with_waiting_client<T>(act: impl AsyncFnOnce(&mut WaitingClient<'_, tokio::io::Sink>) -> T) -> T {
    let (answers, mut repeated) = mpsc::channel(1);
    let (book, mut output) = (Mutex::new(Book::default()), tokio::io::sink());
    let mut waiting =
        WaitingClient { book: &book, output: &mut output, answers: &answers, repeated: &mut repeated };
    act(&mut waiting).await
}

#[tokio::test]
async fn a_server_that_never_resumes_the_sessions_is_left() {
    let (ours, _theirs) = Transport::memory();
    let mut options = ConnectOptions::default();
    options.resume_time = Duration::from_millis(1);
    let end = now() + options.resume_time;
    let resumed = with_waiting_client(async |client| {
        let mut server = RelayServer::new(ours);
        in_time(server.resume_all((&options, end), client)).await
    });
    let error = resumed.await.expect_err("no answer").to_string();
    assert!(error.contains("within 1ms (`--resume-time`)"), "{error}");
}

/// Loses connections that last for `lifetime`, each with an outage, until the time for attempts is over. Returns the number of
/// replacements.
fn lost_connections(lifetime: Duration, outage: Duration) -> usize {
    let options = ConnectOptions::default();
    let (mut losses, mut time) = (Losses::default(), now());
    for count in 0..1000 {
        match losses.note(time, outage, &options) {
            Ok((next, _)) => {
                let next = next.max(time);
                losses.replaced(time, next);
                time = next + lifetime + outage;
            }
            Err(error) => {
                assert!(error.to_string().contains("(`--resume-time`)"), "{error}");
                return count;
            }
        }
    }
    1000
}

#[test]
fn a_server_that_loses_each_connection_is_left() {
    // The pauses grow to 15 seconds, and reach 600 seconds together (`resume_time`).
    let (none, longest) = (Duration::ZERO, Duration::from_secs(15));
    assert_eq!(lost_connections(none, none), 43);
    assert_eq!(lost_connections(longest, none), 1000);
    // An outage counts, and is no part of the lifetime.
    assert_eq!(lost_connections(none, Duration::from_secs(60)), 9);
    assert_eq!(lost_connections(longest, Duration::from_secs(60)), 1000);
}

#[test]
fn a_refusal_is_not_lost_with_the_connection() {
    let mut client = RelayLines::new(&b"no message\nno message\nno message\nno message\n"[..]);
    let (refusals, mut refused) = mpsc::channel(REFUSALS);
    let (_answers, mut repeated) = mpsc::channel(1);
    let book = Mutex::new(Book::default());
    let mut cx = Context::from_waker(Waker::noop());
    let mut count = 0;
    for _connection in 0..4 {
        let mut server = Vec::new();
        let to_server = (&mut server, async || {});
        let _ = pin!(send_to_server(&mut client, &mut repeated, &refusals, to_server, &book)).poll(&mut cx);
        while refused.try_recv().is_ok() {
            count += 1;
        }
    }
    assert_eq!(count, 4);
}

#[test]
fn a_session_that_was_opened_with_an_array_is_not_resumed() {
    let (mut book, answers, _repeated) = book();
    send(&mut book, line(&call(&json!(9), "session/new", &json!(["/"]))));
    let result = json!({"sessionId": "t", "_meta": {"duologue": {"position": "1-1"}}});
    let response = line(&json!({"jsonrpc": "2.0", "id": 9, "result": result}));
    assert!(book.accept_server_line(response, &answers).is_some());
    assert_eq!(book.begin_replacement().1, ["s"]);
    assert_eq!(book.resume_params("t"), None);
}

/// Serves an agent that answers all requests, the first one when the sender in the channel is used. The ids of all are sent to
/// the other channel. Returns its address.
#[cfg(feature = "serve")]
async fn serve_when_accepted(
    (opened, received): (
        mpsc::UnboundedSender<tokio::sync::oneshot::Sender<()>>,
        mpsc::UnboundedSender<Value>,
    ),
) -> std::net::SocketAddr {
    use duologue_http::{AgentEndpoint, ServerOptions, serve};

    let endpoint = AgentEndpoint::new(move |transport: Transport| {
        let (opened, received) = (opened.clone(), received.clone());
        async move {
            let (reader, mut writer) = transport.into_split();
            let mut lines = RelayLines::new(reader);
            while let Ok(Some(line)) = lines.next().await {
                let request: Value = serde_json::from_slice(&line).unwrap();
                let _ = received.send(request["id"].clone());
                let (accept, is_accepted) = tokio::sync::oneshot::channel();
                if request["method"] == "initialize" && opened.send(accept).is_ok() {
                    let _ = is_accepted.await;
                }
                let own = json!({"duologue": {"client": "key", "position": "1-1"}});
                let result = json!({"protocolVersion": 1, "sessionId": "s", "_meta": own});
                let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
                let _ = write(&mut writer, super::tests::line(&answer)).await;
            }
        }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, endpoint, ServerOptions::default()));
    address
}

/// The input is that of a script, which ends behind its last line.
#[cfg(feature = "serve")]
#[tokio::test]
async fn requests_are_answered_before_the_end_of_their_client() {
    let ((opens, mut opened), (receives, _received)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    let url = format!("http://{}", serve_when_accepted((opens, receives)).await);
    for transport in [duologue_http::RemoteTransport::WebSocket, duologue_http::RemoteTransport::Events] {
        let mut options = ConnectOptions::default();
        options.transport = transport;
        let (client, editor) = Transport::memory();
        let (output, mut input) = editor.into_split();
        let settings = RelaySettings { end_wait: Duration::from_secs(3600), ..RelaySettings::default() };
        let relayed = relay(client, std::future::pending(), &url, &options, settings);
        let talk = async {
            for (id, method) in [(0, "initialize"), (1, "session/new"), (2, "session/list")] {
                write(&mut input, line(&call(&json!(id), method, &json!({"cwd": "/"})))).await.unwrap();
            }
            input.shutdown().await.unwrap();
            let accept: tokio::sync::oneshot::Sender<()> = opened.recv().await.unwrap();
            accept.send(()).unwrap();
            let mut output = RelayLines::new(output);
            for _ in 0..3 {
                output.next().await.unwrap().expect("an answer");
            }
        };
        let (relayed, ()) = in_time(async { tokio::join!(relayed, talk) }).await;
        relayed.expect("it ends by itself");
    }
}

#[test]
fn a_connection_is_replaced_with_the_introduction_that_the_server_accepted() {
    let (mut book, answers, _repeated) = book();
    let (first, _) = book.begin_replacement();
    send(&mut book, line(&call(&json!(7), "initialize", &json!({"protocolVersion": "x"}))));
    let refusal = json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32602, "message": "no"}});
    assert!(book.accept_server_line(line(&refusal), &answers).is_some());
    assert_eq!(book.begin_replacement().0, first);
}

#[test]
fn a_request_of_the_relay_has_an_id_of_its_own() {
    let (mut book, ..) = book();
    for expected in [r#""connect:a""#, r#""connect:a+""#, r#""connect:a++""#] {
        let id = book.own_id("a").unwrap();
        assert_eq!(id.get(), expected);
        send(&mut book, line(&call(&value(Some(&id)), "session/list", &json!({}))));
    }
}

/// The server is replaced twice. The client ends while the third connection is opened, or before it is known that the second one
/// cannot be resumed.
#[cfg(feature = "serve")]
#[tokio::test]
async fn what_the_client_sent_before_its_end_reaches_the_next_connection() {
    for (is_replaced, reads_no_more) in [(true, false), (true, true), (false, false), (false, true)] {
        in_time(send_before_the_end(is_replaced, reads_no_more)).await;
    }
}

/// Sends a request and ends the client, while the connection is replaced or is only lost. It reads the rest or not.
#[cfg(feature = "serve")]
async fn send_before_the_end(is_replaced: bool, reads_no_more: bool) {
    let ((opens, mut opened), (receives, mut received)) =
        (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    let serve = async || serve_when_accepted((opens.clone(), receives.clone())).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (target, targets) = tokio::sync::watch::channel(Some(serve().await));
    // Connections end when the target changes, and wait for one.
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut targets = targets.clone();
            tokio::spawn(async move {
                let target = targets.wait_for(Option::is_some).await.unwrap().unwrap();
                let mut server = tokio::net::TcpStream::connect(target).await.unwrap();
                tokio::select! {
                    _ = targets.changed() => {}
                    _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                }
            });
        }
    });
    let mut options = ConnectOptions::default();
    options.resume_delay_max = Duration::from_millis(8);
    let (mut input, client_input) = tokio::io::duplex(1 << 16);
    let (client_output, output) = tokio::io::duplex(1 << 16);
    let mut output = Some(RelayLines::new(output));
    let client = Transport::new(client_input, client_output);
    let settings = RelaySettings { end_wait: Duration::from_secs(3600), ..RelaySettings::default() };
    let relayed = relay(client, std::future::pending(), &url, &options, settings);
    let request = |id: usize, method: &str| {
        let params = json!({"cwd": "/", "clientCapabilities": {"session": {"notices": {}}}});
        line(&call(&json!(id), method, &params))
    };
    let end = async |input: &mut (dyn AsyncWrite + Send + Unpin), output: &mut Option<RelayLines>| {
        *output = output.take().filter(|_| !reads_no_more);
        // The link is lost.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        input.write_all(&request(3, "session/list")).await.unwrap();
        input.shutdown().await.unwrap();
        // The relay reads the end.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    };
    let talk = async {
        let next_line = async |output: &mut Option<RelayLines>| {
            output.as_mut().unwrap().next().await.unwrap().expect("a line")
        };
        write(&mut input, request(0, "initialize")).await.unwrap();
        for (id, method) in [(1, "session/new"), (2, "session/list")] {
            let accept: tokio::sync::oneshot::Sender<()> = opened.recv().await.unwrap();
            accept.send(()).unwrap();
            // The answer to `initialize`, or the notices that the server is away and back.
            for severity in [&[Value::Null][..], &[json!("warning"), json!("info")]][id - 1] {
                let line: Value = serde_json::from_slice(&next_line(&mut output).await).unwrap();
                assert_eq!(&line["params"]["update"]["severity"], severity, "{line}");
            }
            write(&mut input, request(id, method)).await.unwrap();
            next_line(&mut output).await;
            let next = serve().await;
            if id == 2 && !is_replaced {
                target.send_replace(None);
                end(&mut input, &mut output).await;
            }
            target.send_replace(Some(next));
        }
        let accept = opened.recv().await.unwrap();
        if is_replaced {
            end(&mut input, &mut output).await;
        }
        accept.send(()).unwrap();
        while received.recv().await.unwrap() != 3 {}
    };
    let (relayed, ()) = tokio::join!(relayed, talk);
    relayed.expect("it ends by itself");
}
