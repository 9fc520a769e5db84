//! The answers to requests that are not upgraded.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use duologue_http::{ConnectOptions, Error, ServerOptions, connect};
use duologue_test_support::in_time;
use futures_util::stream::unfold;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::setup::{Lines, RawSocket, echo_endpoint, initialize, serve_router, server, url};

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Sends a request and returns the status line, the headers and the body.
async fn request(address: SocketAddr, method: &str, path: &str, headers: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let text = format!("{method} {path} HTTP/1.1\r\n{headers}\r\n");
    stream.write_all(text.as_bytes()).await.expect("sent");
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).await.expect("a response");
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if count == 0 || length.is_none_or(|length| body.len() >= length.parse().expect("a number")) {
            let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
            return (status, head.into(), body.into());
        }
    }
}

#[tokio::test]
async fn a_request_from_a_foreign_place_is_refused() {
    in_time(async {
        let mut options = ServerOptions::default();
        options.origins = vec!["https://good.example".into()];
        let address = server(echo_endpoint(), options).await;
        let host = format!("Host: {address}\r\n");
        assert_eq!(request(address, "GET", "/health", &host).await.2, "ok");
        assert_eq!(request(address, "GET", "/health", "Host: rebound.example\r\n").await.0, 403);
        for (method, headers, status) in [
            ("PUT", host.clone(), 405),
            ("GET", format!("{host}Connection: Upgrade\r\nUpgrade: websocket\r\n"), 400),
            ("GET", format!("Host: rebound.example\r\n{UPGRADE}"), 403),
            ("GET", format!("{host}Origin: https://evil.example\r\n{UPGRADE}"), 403),
            ("GET", format!("{host}Origin: null\r\n{UPGRADE}"), 403),
        ] {
            let (got, head, body) = request(address, method, "/acp", &headers).await;
            assert_eq!(got, status, "{method} {headers}: {body}");
            assert!(head.contains("content-type: application/json"), "{head}");
            let body: Value = serde_json::from_str(&body).expect("JSON");
            assert_eq!((&body["id"], &body["error"]["code"]), (&Value::Null, &Value::from(-32600)));
            assert_eq!(head.contains("allow: get, post, delete"), status == 405);
        }
        for headers in
            [format!("{host}{UPGRADE}"), format!("{host}Origin: https://good.example\r\n{UPGRADE}")]
        {
            let (status, head, _) = request(address, "GET", "/acp", &headers).await;
            assert_eq!(status, 101);
            assert!(head.contains("acp-connection-id: "), "{head}");
            for offered in ["sec-websocket-protocol", "sec-websocket-extensions"] {
                assert!(!head.contains(offered), "some clients reject any: {head}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_response_that_nobody_reads_ends() {
    in_time(async {
        let mut options = ServerOptions::default();
        options.stall_timeout = Duration::from_millis(50);
        let (kept, dropped) = oneshot::channel::<()>();
        let kept = Arc::new(Mutex::new(Some(kept)));
        let endless = move || async move {
            let kept = kept.lock().expect("no panic").take();
            let parts =
                unfold(kept, |kept| async move { Some((Ok::<_, Infallible>(vec![0; 1 << 16]), kept)) });
            Body::from_stream(parts)
        };
        let address = serve_router(Router::new().route("/endless", get(endless)), options).await;
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(b"GET /endless HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("sent");
        assert!(dropped.await.is_err(), "the body is dropped while the client is connected");
        drop(stream);
    })
    .await;
}

#[tokio::test]
async fn the_number_of_sockets_is_limited() {
    in_time(async {
        let mut options = ServerOptions::default();
        options.sockets = 1;
        let address = server(echo_endpoint(), options).await;
        let mut first = RawSocket::open(address).await;
        first.send_json(&initialize()).await;
        first.next().await.expect("the response");
        let mut once = ConnectOptions::default();
        once.open_time = std::time::Duration::ZERO;
        match connect(&url(address), once).await {
            Err(Error::Refused { status: 503, message }) => {
                assert!(message.contains("ServerOptions::sockets"), "{message}");
            }
            other => panic!("{:?}", other.err()),
        }
        drop(first);
        connect(&url(address), ConnectOptions::default()).await.expect("there is room");
    })
    .await;
}

#[tokio::test]
async fn the_token_is_a_header_and_a_refusal_is_an_error() {
    in_time(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut head = String::new();
            let mut buffer = [0; 1024];
            while !head.contains("\r\n\r\n") {
                let count = stream.read(&mut buffer).await.expect("a request");
                head.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
            let response = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 5\r\n\r\nwrong";
            stream.write_all(response.as_bytes()).await.expect("sent");
            head
        });
        let mut options = ConnectOptions::default();
        options.bearer_token = Some("secret".into());
        options.headers = vec![("x-one".into(), "1".into())];
        let refused = connect(&format!("http://{address}/acp?agent=a"), options).await;
        let Err(Error::Refused { status: 401, .. }) = refused else { panic!("{:?}", refused.err()) };
        let head = serving.await.expect("a request");
        assert!(head.starts_with("GET /acp?agent=a HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("authorization: Bearer secret\r\n") && head.contains("x-one: 1\r\n"), "{head}");
    })
    .await;
}

/// Waits until the server closes a connection, and returns what it sent before.
async fn until_closed(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset is an end too.
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn a_connection_that_sends_no_head_is_closed() {
    in_time(async {
        let mut options = ServerOptions::default();
        options.handshake_timeout = std::time::Duration::from_millis(50);
        let address = server(echo_endpoint(), options).await;
        for sent in ["", "GET /acp HTTP/1.1\r\nHost: localhost\r\nX-"] {
            let mut stream = TcpStream::connect(address).await.expect("a connection");
            stream.write_all(sent.as_bytes()).await.expect("sent");
            until_closed(&mut stream).await;
        }
        // Between two requests too.
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("sent");
        let sent = until_closed(&mut stream).await;
        assert!(sent.starts_with("HTTP/1.1 200"), "{sent}");
    })
    .await;
}

#[tokio::test]
async fn connections_are_limited() {
    in_time(async {
        let mut options = ServerOptions::default();
        (options.sockets, options.requests, options.strangers) = (1, 0, 1);
        let address = server(echo_endpoint(), options).await;
        let (known, _link) = connect(&url(address), ConnectOptions::default()).await.expect("a connection");
        let mut known = Lines::new(known);
        known.send(&initialize()).await;
        known.next().await.expect("an answer");
        // The WebSocket has a place of its own.
        let mut first = TcpStream::connect(address).await.expect("a connection");
        assert_eq!(status_of(&mut first, "").await, "HTTP/1.1 405");
        let _second = TcpStream::connect(address).await.expect("a connection");
        let mut above = TcpStream::connect(address).await.expect("a connection");
        assert_eq!(until_closed(&mut above).await, "");
        assert_eq!(status_of(&mut first, "").await, "HTTP/1.1 405");
    })
    .await;
}

/// Sends a PUT with more headers on an open connection, and returns the beginning of the answer.
async fn status_of(stream: &mut TcpStream, headers: &str) -> String {
    let request = format!("PUT /acp HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = vec![0; 4096];
    let count = stream.read(&mut answer).await.expect("an answer");
    String::from_utf8_lossy(&answer[..count.min(12)]).into_owned()
}

#[tokio::test]
async fn strangers_do_not_keep_others_out() {
    in_time(async {
        let mut options = ServerOptions::default();
        options.token = Some("secret".into());
        (options.sockets, options.requests, options.strangers) = (4, 4, 2);
        let address = server(echo_endpoint(), options).await;
        let token = "Authorization: Bearer secret\r\n";
        let mut known = TcpStream::connect(address).await.expect("a connection");
        assert_eq!(status_of(&mut known, token).await, "HTTP/1.1 405");
        let mut strangers = Vec::new();
        for _ in 0..20 {
            let mut stranger = TcpStream::connect(address).await.expect("a connection");
            // One is silent, the other has been refused.
            if strangers.len() % 2 == 0 {
                assert_eq!(status_of(&mut stranger, "").await, "HTTP/1.1 401");
            }
            strangers.push(stranger);
            // The oldest ones are closed, and the known one is not.
            assert_eq!(status_of(&mut known, token).await, "HTTP/1.1 405");
            let mut new = TcpStream::connect(address).await.expect("a connection");
            assert_eq!(status_of(&mut new, token).await, "HTTP/1.1 405");
        }
        for stranger in &mut strangers[..18] {
            assert_eq!(until_closed(stranger).await, "");
        }
    })
    .await;
}

#[tokio::test]
async fn a_long_head_ends_its_connection() {
    in_time(async {
        let address = server(echo_endpoint(), ServerOptions::default()).await;
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(b"GET /acp HTTP/1.1\r\nHost: localhost\r\nX-Long: ").await.expect("sent");
        // Writing fails when the server has closed the connection.
        while stream.write_all(&[b'a'; 4096]).await.is_ok() {}
        let (status, _, _) = request(address, "PUT", "/acp", "Host: localhost\r\n").await;
        assert_eq!(status, 405);
    })
    .await;
}
