//! Our client over HTTP with SSE, and servers whose answers a test writes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use duologue_http::{ConnectOptions, RemoteTransport, connect};
use duologue_test_support::in_time;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::setup::{Lines, quick};

/// A request that a server has received.
struct ServedRequest {
    method: String,
    body: Vec<u8>,
}

/// Starts a server. `events` is the body of the response to each GET, by its number from 1; `None` leaves it open. Returns its
/// address and the requests that it receives.
async fn server(
    events: impl Fn(usize) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> (SocketAddr, mpsc::UnboundedReceiver<ServedRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    let (received, requests) = mpsc::unbounded_channel();
    let (events, gets) = (Arc::new(events), Arc::new(std::sync::atomic::AtomicUsize::new(0)));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (events, gets, received) = (events.clone(), gets.clone(), received.clone());
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                while let Some(request) = read_request(&mut stream).await {
                    let (kind, body) = match request.method.as_str() {
                        "GET" => {
                            let number = gets.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
                            let _ = received.send(request);
                            let Some(events) = events(number) else { return std::future::pending().await };
                            ("200 OK\r\nContent-Type: text/event-stream", events)
                        }
                        _ => {
                            let answer = initialized(&request);
                            let _ = received.send(request);
                            answer.map_or(("202 Accepted", Vec::new()), |result| {
                                ("200 OK\r\nContent-Type: application/json\r\nAcp-Connection-Id: c", result)
                            })
                        }
                    };
                    let head = format!("HTTP/1.1 {kind}\r\nContent-Length: {}\r\n\r\n", body.len());
                    let answer = [head.as_bytes(), &body].concat();
                    if stream.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, requests)
}

async fn read_request(stream: &mut BufReader<tokio::net::TcpStream>) -> Option<ServedRequest> {
    let (mut method, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok().filter(|count| *count > 0)?;
        if method.is_none() {
            method = line.split(' ').next().map(str::to_owned);
        }
        let lower = line.to_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await.ok()?;
            return Some(ServedRequest { method: method?, body });
        }
    }
}

/// Returns the response to `initialize`.
fn initialized(request: &ServedRequest) -> Option<Vec<u8>> {
    let request: Value = serde_json::from_slice(&request.body).ok()?;
    let result = json!({"agentCapabilities": {"transport": {"resumable": {"retentionSeconds": 600}}}});
    let response = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
    (request["method"] == "initialize").then(|| response.to_string().into_bytes())
}

fn event(id: usize) -> Vec<u8> {
    format!("id: {id}\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"n\",\"params\":{{\"number\":{id}}}}}\n\n")
        .into_bytes()
}

async fn client(address: SocketAddr, options: ConnectOptions) -> Lines {
    let (transport, _) = connect(&format!("http://{address}/acp"), options).await.expect("a connection");
    let mut lines = Lines::new(transport);
    lines.request(0, "initialize", json!({})).await;
    lines
}

#[tokio::test]
async fn a_server_that_ends_each_response_after_an_event_is_slowed_down() {
    in_time(async {
        let (address, mut requests) = server(|number| Some(event(number))).await;
        let mut options = quick();
        options.transport = RemoteTransport::Events;
        // A pause does not end within this test.
        (options.resume_delay, options.resume_delay_max) =
            (Duration::from_secs(1 << 30), Duration::from_secs(1 << 30));
        let mut lines = client(address, options).await;
        for number in 1..=2 {
            assert_eq!(lines.next().await.expect("an event")["params"]["number"], number);
        }
        let mut gets = 0;
        for _ in 0..50 {
            lines.send(&json!({"jsonrpc": "2.0", "method": "n"})).await;
            loop {
                let request = requests.recv().await.expect("a request");
                gets += usize::from(request.method == "GET");
                if request.body.ends_with(br#""method":"n"}"#) {
                    break;
                }
            }
        }
        assert_eq!(gets, 2);
    })
    .await;
}

#[tokio::test]
async fn a_session_that_no_header_can_name_costs_only_its_requests() {
    in_time(async {
        let opened = br#"data: {"jsonrpc":"2.0","id":1,"result":{"sessionId":"a\u0007"}}"#;
        let (address, mut requests) =
            server(move |number| (number == 1).then(|| [&opened[..], b"\n\n", &event(2)].concat())).await;
        let mut options = quick();
        options.transport = RemoteTransport::Events;
        let mut lines = client(address, options).await;
        assert_eq!(lines.next().await.expect("a response")["result"]["sessionId"], "a\u{7}");
        assert_eq!(lines.next().await.expect("an event")["params"]["number"], 2);
        let params = json!({"sessionId": "a\u{7}"});
        let (refused, _) = lines.request(2, "session/prompt", params.clone()).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        // A notification is dropped, and the connection goes on.
        lines.send(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params})).await;
        lines.send(&json!({"jsonrpc": "2.0", "method": "n"})).await;
        loop {
            let request = requests.recv().await.expect("a request");
            let body = String::from_utf8(request.body).expect("UTF-8");
            assert!(!body.contains("session/"), "{body}");
            if body.ends_with(r#""method":"n"}"#) {
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn an_event_that_is_not_utf8_is_dropped() {
    in_time(async {
        let invalid = b"id: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}\n\n";
        let (address, _requests) =
            server(move |number| (number == 1).then(|| [&invalid[..], &event(2)].concat())).await;
        let mut options = quick();
        options.transport = RemoteTransport::Events;
        let mut lines = client(address, options).await;
        assert_eq!(lines.next().await.expect("an event")["params"]["number"], 2);
    })
    .await;
}
