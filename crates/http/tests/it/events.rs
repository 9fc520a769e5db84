//! HTTP with SSE: the rules of the protocol, by requests that a test writes itself, and our client.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::Request;
use axum::http::Method;
use axum::middleware::{Next, from_fn};
use duologue_http::{
    AgentEndpoint, AgentEndpointOptions, ConnectOptions, RemoteTransport, ServerOptions, connect, router,
};
use duologue_test_support::{Reproduction, in_time, runs, seed};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::cuts::{exchange_with_cuts, of_streams};
use crate::setup::{CutRelay, Lines, echo_agent, echo_endpoint, initialize, quick, serve_router, server};

/// A response whose body is not read.
struct RawResponse {
    status: u16,
    headers: Vec<(String, String)>,
    stream: BufReader<TcpStream>,
}

impl RawResponse {
    /// Sends a request on a connection of its own.
    async fn of(address: SocketAddr, method: &str, headers: &[(&str, &str)], body: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let mut text =
            format!("{method} /acp HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += "\r\n";
        text += body;
        stream.write_all(text.as_bytes()).await.expect("sent");
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).await.expect("a status line");
        let status = line.split(' ').nth(1).expect("a status").parse().expect("a number");
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await.expect("a header");
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_lowercase(), value.to_owned()));
        }
        RawResponse { status, headers, stream }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    async fn body(mut self) -> String {
        let length = self.header("content-length").map_or(0, |length| length.parse().expect("a number"));
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.expect("the body");
        String::from_utf8(body).expect("UTF-8")
    }

    /// Returns the id and the message of the next event.
    async fn event(&mut self) -> (Option<String>, Value) {
        let (mut id, mut data) = (None, None);
        loop {
            let mut line = String::new();
            let count = self.stream.read_line(&mut line).await.expect("a line");
            assert!(count > 0, "the stream has ended");
            match line.trim_end() {
                "" if data.is_some() => {
                    let data: String = data.expect("checked");
                    return (id, serde_json::from_str(&data).expect("JSON"));
                }
                line => {
                    if let Some(value) = line.strip_prefix("id: ") {
                        id = Some(value.to_owned());
                    } else if let Some(value) = line.strip_prefix("data: ") {
                        data = Some(value.to_owned());
                    }
                }
            }
        }
    }
}

/// A client that knows the published protocol only.
struct RawClient {
    address: SocketAddr,
    id: String,
    initialized: Value,
}

impl RawClient {
    async fn new(address: SocketAddr) -> Self {
        let headers = [("Content-Type", "application/json; charset=utf-8")];
        let response = RawResponse::of(address, "POST", &headers, &initialize().to_string()).await;
        assert_eq!(response.status, 200);
        let id = response.header("acp-connection-id").expect("an id").to_owned();
        let initialized = serde_json::from_str(&response.body().await).expect("JSON");
        RawClient { address, id, initialized }
    }

    async fn send(&self, method: &str, headers: &[(&str, &str)], body: &str) -> RawResponse {
        let mut all = vec![("Acp-Connection-Id", self.id.as_str())];
        all.extend_from_slice(headers);
        RawResponse::of(self.address, method, &all, body).await
    }

    async fn post(&self, session: Option<&str>, message: &Value) -> u16 {
        let mut headers = vec![("Content-Type", "application/json")];
        headers.extend(session.map(|session| ("Acp-Session-Id", session)));
        let response = self.send("POST", &headers, &message.to_string()).await;
        let status = response.status;
        if status == 202 {
            assert_eq!(
                response.header("acp-session-id"),
                session.or(message["params"]["sessionId"].as_str())
            );
            assert_eq!(response.body().await, "");
        }
        status
    }

    async fn get(&self, session: Option<&str>, headers: &[(&str, &str)]) -> RawResponse {
        let mut all = vec![("Accept", "text/event-stream")];
        all.extend(session.map(|session| ("Acp-Session-Id", session)));
        all.extend_from_slice(headers);
        self.send("GET", &all, "").await
    }
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

#[tokio::test]
async fn requests_that_break_the_rules_are_refused() {
    in_time(async {
        let mut options = ServerOptions::default();
        options.frame_bytes = 2000;
        options.id_bytes = 50;
        let address = server(echo_endpoint(), options).await;
        let client = RawClient::new(address).await;
        let (json_type, id) =
            (("Content-Type", "application/json"), ("Acp-Connection-Id", client.id.as_str()));
        let message = request(1, "echo", json!({"sessionId": "s"})).to_string();
        let (long_id, long) = ("x".repeat(51), "x".repeat(2001));
        for (method, headers, body, status) in [
            ("POST", &[id][..], message.as_str(), 415),
            ("POST", &[id, ("Content-Type", "text/plain")], &message, 415),
            ("POST", &[json_type], &message, 400),
            ("POST", &[json_type, ("Acp-Connection-Id", "no")], &message, 404),
            ("POST", &[json_type, ("Acp-Connection-Id", &long_id)], &message, 400),
            ("POST", &[json_type, id, id], &message, 400),
            ("POST", &[json_type, id, ("Acp-Session-Id", "other")], &message, 400),
            ("POST", &[json_type, id, ("Acp-Frame-Number", "x")], &message, 400),
            ("POST", &[json_type, id], "[]", 400),
            ("POST", &[json_type, id], "{", 400),
            ("POST", &[json_type, id], "", 400),
            ("POST", &[json_type, id], &long, 413),
            ("POST", &[json_type, id, ("Acp-Session-Id", "s")], &message, 202),
            ("GET", &[id], "", 406),
            ("GET", &[id, ("Accept", "application/json")], "", 406),
            ("GET", &[("Accept", "text/event-stream")], "", 400),
            ("GET", &[("Accept", "text/event-stream"), ("Acp-Connection-Id", "no")], "", 404),
            ("GET", &[("Accept", "text/event-stream"), id, ("Last-Event-ID", "9")], "", 400),
            ("GET", &[("Accept", "text/event-stream"), id, ("Acp-Resume", "no")], "", 404),
            ("GET", &[("Accept", "application/json, Text/Event-Stream;q=1"), id], "", 200),
            ("DELETE", &[], "", 400),
            ("DELETE", &[("Acp-Connection-Id", "no")], "", 404),
            ("PUT", &[id], "", 405),
            ("DELETE", &[id], "", 202),
            ("POST", &[json_type, id], &message, 404),
        ] {
            let response = RawResponse::of(address, method, headers, body).await;
            let content_type = response.header("content-type").map(str::to_owned);
            let (got, body) = (response.status, response.body().await);
            assert_eq!(got, status, "{method} {headers:?}: {body}");
            if status >= 400 {
                assert_eq!(content_type.as_deref(), Some("application/json"));
                let body: Value = serde_json::from_str(&body).expect("JSON");
                assert!(body["id"].is_null() && body["error"]["message"].is_string(), "{body}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn every_request_needs_the_token_and_a_known_place() {
    in_time(async {
        let mut options = ServerOptions::default();
        options.token = Some("secret".into());
        let address = server(echo_endpoint(), options).await;
        let json_type = ("Content-Type", "application/json");
        let right = ("Authorization", "Bearer secret");
        let initialize = initialize().to_string();
        let response = RawResponse::of(address, "POST", &[json_type, right], &initialize).await;
        assert_eq!(response.status, 200);
        let id = response.header("acp-connection-id").expect("an id").to_owned();
        let (id, accept) = (("Acp-Connection-Id", id.as_str()), ("Accept", "text/event-stream"));
        let message = request(1, "echo", json!({})).to_string();
        for (method, headers, body) in [
            ("POST", vec![json_type], initialize.as_str()),
            ("POST", vec![json_type, id], &message),
            ("GET", vec![accept, id], ""),
            ("DELETE", vec![id], ""),
        ] {
            for (extra, status) in [
                (vec![], 401),
                (vec![("Authorization", "Bearer secre")], 401),
                (vec![("Authorization", "Basic secret")], 401),
                (vec![right, ("Origin", "https://evil.example")], 403),
                (vec![right, ("Origin", "null")], 403),
            ] {
                let headers = [headers.clone(), extra].concat();
                let response = RawResponse::of(address, method, &headers, body).await;
                assert_eq!(response.status, status, "{method} {headers:?}");
            }
        }
        // Two lengths, with which a proxy and the server could disagree on the end of a request.
        let smuggled = [json_type, right, id, ("Transfer-Encoding", "chunked"), ("Content-Length", "3")];
        assert_eq!(RawResponse::of(address, "POST", &smuggled, &message).await.status, 400);
    })
    .await;
}

#[tokio::test]
async fn a_connection_keeps_its_transport() {
    in_time(async {
        let address = server(echo_endpoint(), ServerOptions::default()).await;
        let (transport, link) = connect(&crate::setup::url(address), quick()).await.expect("a connection");
        let mut lines = Lines::new(transport);
        lines.request(0, "initialize", json!({})).await;
        let id = ("Acp-Connection-Id", link.connection_id());
        for (method, headers) in [
            ("POST", vec![("Content-Type", "application/json"), id]),
            ("GET", vec![("Accept", "text/event-stream"), id]),
            ("DELETE", vec![id]),
        ] {
            let message = request(1, "echo", json!({})).to_string();
            assert_eq!(RawResponse::of(address, method, &headers, &message).await.status, 404, "{method}");
        }
        lines.request(1, "echo", json!({})).await;
        // And the other way round.
        let client = RawClient::new(address).await;
        let secret = client.initialized["result"]["_meta"]["duologue"]["resume"]["secret"].clone();
        let mut socket = crate::setup::RawSocket::open(address).await;
        let params = json!({"connectionId": client.id, "secret": secret, "cursors": []});
        socket.send_json(&json!({"jsonrpc": "2.0", "method": "stream/resume", "params": params})).await;
        assert_eq!(socket.next().await.expect("an answer")["method"], "stream/resume_failed");
    })
    .await;
}

#[tokio::test]
async fn a_client_of_the_published_protocol_has_a_conversation() {
    in_time(async {
        let endpoint = AgentEndpoint::new(|transport| async {
            let mut lines = Lines::new(transport);
            while let Some(message) = lines.next().await {
                let (id, params) = (message["id"].clone(), message["params"].clone());
                let result = match message["method"].as_str() {
                    Some("session/new") => json!({"sessionId": "s"}),
                    Some("session/prompt") => {
                        let update = json!({"sessionId": params["sessionId"], "update": {}});
                        lines
                            .send(&json!({"jsonrpc": "2.0", "method": "session/update", "params": update}))
                            .await;
                        let question = request(7, "session/request_permission", json!({"sessionId": "s"}));
                        lines.send(&question).await;
                        let answer = lines.next().await.expect("an answer");
                        let cancel = lines.next().await.expect("a cancellation");
                        json!({"answer": answer["result"], "then": cancel["method"]})
                    }
                    _ => json!({"protocolVersion": 1, "agentCapabilities": {}}),
                };
                lines.send(&json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
            }
        });
        let address = server(endpoint, ServerOptions::default()).await;
        let client = RawClient::new(address).await;
        let resumable = &client.initialized["result"]["agentCapabilities"]["transport"]["resumable"];
        assert!(resumable["retentionSeconds"].is_number(), "{}", client.initialized);
        let mut connection = client.get(None, &[]).await;
        assert_eq!(connection.header("content-type"), Some("text/event-stream"));
        assert_eq!(connection.header("acp-connection-id"), Some(client.id.as_str()));
        assert_eq!(client.post(None, &request(1, "session/new", json!({}))).await, 202);
        assert_eq!(connection.event().await.1["result"]["sessionId"], "s");
        let mut session = client.get(Some("s"), &[]).await;
        assert_eq!(session.header("acp-session-id"), Some("s"));
        assert_eq!(
            client.post(Some("s"), &request(2, "session/prompt", json!({"sessionId": "s"}))).await,
            202
        );
        assert_eq!(session.event().await.1["method"], "session/update");
        let (cursor, question) = session.event().await;
        assert_eq!((cursor.as_deref(), question["id"].as_u64()), (Some("2"), Some(7)));
        // The answer has no params, and its header is optional.
        assert_eq!(client.post(None, &json!({"jsonrpc": "2.0", "id": 7, "result": "yes"})).await, 202);
        let cancel = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}});
        assert_eq!(client.post(None, &cancel).await, 202);
        let (_, response) = session.event().await;
        assert_eq!(response["result"], json!({"answer": "yes", "then": "session/cancel"}));
        // A second response for the same stream.
        let refused = client.get(Some("s"), &[]).await;
        assert_eq!(refused.status, 409);
        assert!(refused.body().await.contains("stream_in_use"));
    })
    .await;
}

#[tokio::test]
async fn a_stream_continues_behind_its_last_event() {
    in_time(async {
        let mut options = AgentEndpointOptions::default();
        options.ring_frames = 10;
        let endpoint =
            AgentEndpoint::with_options(|transport| async { echo_agent(transport).await }, options);
        let address = server(endpoint, ServerOptions::default()).await;
        let client = RawClient::new(address).await;
        let secret =
            client.initialized["result"]["_meta"]["duologue"]["resume"]["secret"].as_str().expect("a secret");
        let secret = ("Acp-Resume", secret);
        let mut first = client.get(Some("s"), &[]).await;
        client.post(None, &request(1, "count", json!({"sessionId": "s", "count": 5}))).await;
        for number in 1..=5 {
            assert_eq!(first.event().await.1["params"]["number"], number);
        }
        // The connection of the first response is still open at both ends.
        let mut second = client.get(Some("s"), &[secret, ("Last-Event-ID", "3")]).await;
        for number in 4..=5 {
            let (id, message) = second.event().await;
            assert_eq!((id, &message["params"]["number"]), (Some(number.to_string()), &json!(number)));
        }
        assert_eq!(second.event().await.1["id"], 1, "the response follows the updates");
        // A client that has used the secret has it in every request.
        let json_type = ("Content-Type", "application/json");
        let count = request(2, "count", json!({"sessionId": "s", "count": 40})).to_string();
        let accept = ("Accept", "text/event-stream");
        for wrong in [None, Some(("Acp-Resume", "no"))] {
            for (method, header, body) in
                [("GET", accept, ""), ("POST", json_type, count.as_str()), ("DELETE", accept, "")]
            {
                let headers: Vec<_> = wrong.into_iter().chain([header]).collect();
                assert_eq!(client.send(method, &headers, body).await.status, 404, "{method} {wrong:?}");
            }
        }
        assert_eq!(client.send("POST", &[json_type, secret], &count).await.status, 202);
        for number in 1..=40 {
            assert_eq!(second.event().await.1["params"]["number"], number);
        }
        let refused = client.get(Some("s"), &[secret, ("Last-Event-ID", "3")]).await;
        assert_eq!(refused.status, 409);
        assert!(refused.body().await.contains("cursor_gone"));
        assert_eq!(client.send("DELETE", &[secret], "").await.status, 202);
    })
    .await;
}

#[tokio::test]
async fn cursors_of_agents_and_clients_are_removed() {
    in_time(async {
        let endpoint = AgentEndpoint::new(|transport| async {
            let mut lines = Lines::new(transport);
            while let Some(message) = lines.next().await {
                let meta = json!({"acp/cursor": {"a": "1"}});
                let result = json!({"received": message["params"], "_meta": meta});
                lines.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).await;
            }
        });
        let address = server(endpoint, ServerOptions::default()).await;
        let params = json!({"a": 1, "_meta": {"acp/cursor": [7], "b": 2}});
        let received = json!({"a": 1, "_meta": {"b": 2}});
        let (ask, initialize) = (request(1, "ask", params.clone()), request(0, "initialize", params));

        let client = RawClient::new(address).await;
        assert_eq!(client.initialized["result"]["_meta"]["acp/cursor"], Value::Null);
        let mut connection = client.get(None, &[]).await;
        client.post(None, &ask).await;
        let result = json!({"received": received, "_meta": {}});
        assert_eq!(connection.event().await.1["result"], result);

        let mut socket = crate::setup::RawSocket::open(address).await;
        socket.send_json(&initialize).await;
        let answer = socket.next().await.expect("an answer");
        assert_eq!(
            (&answer["result"]["received"], &answer["result"]["_meta"]["acp/cursor"]),
            (&received, &json!("1"))
        );
        socket.send_json(&ask).await;
        assert_eq!(socket.next().await.expect("an answer")["result"], result);
    })
    .await;
}

#[tokio::test]
async fn a_numbered_message_is_accepted_once() {
    in_time(async {
        let address = server(echo_endpoint(), ServerOptions::default()).await;
        let client = RawClient::new(address).await;
        let mut connection = client.get(None, &[]).await;
        for (number, id) in [("2", 1), ("2", 2), ("1", 3), ("3", 4), ("3", 5)] {
            let headers = [("Content-Type", "application/json"), ("Acp-Frame-Number", number)];
            let response = client.send("POST", &headers, &request(id, "echo", json!({})).to_string()).await;
            assert_eq!(response.status, 202);
        }
        assert_eq!(connection.event().await.1["id"], 1);
        assert_eq!(connection.event().await.1["id"], 4);
    })
    .await;
}

#[tokio::test]
async fn a_refused_initialize_leaves_nothing_behind() {
    in_time(async {
        let endpoint = AgentEndpoint::new(|transport| async {
            let mut lines = Lines::new(transport);
            let request = lines.next().await.expect("initialize");
            let error = json!({"code": -32602, "message": "no"});
            lines.send(&json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
            while lines.next().await.is_some() {}
        });
        let address = server(endpoint.clone(), ServerOptions::default()).await;
        let headers = [("Content-Type", "application/json")];
        let response = RawResponse::of(address, "POST", &headers, &initialize().to_string()).await;
        assert_eq!((response.status, response.header("acp-connection-id")), (200, None));
        assert!(response.body().await.contains("-32602"));
        while endpoint.connection_count() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

fn events_options() -> ConnectOptions {
    let mut options = quick();
    options.transport = RemoteTransport::Events;
    options
}

fn http_url(address: SocketAddr) -> String {
    format!("http://{address}/acp")
}

#[tokio::test]
async fn the_client_talks_over_events_and_ends_its_connection() {
    in_time(async {
        let endpoint = echo_endpoint();
        let address = server(endpoint.clone(), ServerOptions::default()).await;
        let (transport, link) = connect(&http_url(address), events_options()).await.expect("a connection");
        let mut lines = Lines::new(transport);
        lines.request(0, "initialize", json!({})).await;
        assert!(!link.connection_id().is_empty());
        for (id, session) in [(1, "a"), (2, "b"), (3, "a")] {
            lines.send(&request(id, "count", json!({"sessionId": session, "count": 3}))).await;
            for number in 1..=3 {
                assert_eq!(lines.next().await.expect("an update")["params"]["number"], number);
            }
            assert_eq!(lines.next().await.expect("the response")["id"], id);
        }
        drop(lines);
        while endpoint.connection_count() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// The server takes the DELETE of a client, and every connection is lost before its answer. When the client comes back, its
/// streams find no connection, and the second DELETE is answered after that.
#[tokio::test]
async fn a_client_that_loses_the_answer_to_its_delete_ends_regularly() {
    in_time(async {
        let endpoint = echo_endpoint();
        let (relay, deleted) = (Arc::<OnceLock<CutRelay>>::default(), Arc::new(AtomicBool::new(false)));
        let (served, cut, refusals) = (endpoint.clone(), relay.clone(), Arc::new(Notify::new()));
        let loses_answer = move |request: Request, next: Next| {
            let (served, cut, refusals) = (served.clone(), cut.clone(), refusals.clone());
            let deleted = deleted.clone();
            async move {
                let is_delete = request.method() == Method::DELETE;
                if is_delete && !deleted.swap(true, Relaxed) {
                    cut.get().expect("the relay").cut();
                    // The end of its connection would cancel it.
                    tokio::spawn(next.run(request));
                    return std::future::pending().await;
                }
                if !deleted.load(Relaxed) {
                    return next.run(request).await;
                }
                if is_delete {
                    refusals.notified().await;
                }
                while served.connection_count() > 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let response = next.run(request).await;
                assert_eq!(response.status(), 404);
                refusals.notify_one();
                response
            }
        };
        let router = router(endpoint, ServerOptions::default()).layer(from_fn(loses_answer));
        let address = serve_router(router, ServerOptions::default()).await;
        let relayed = CutRelay::new(address).await;
        let url = http_url(relayed.address);
        assert!(relay.set(relayed).is_ok());
        let (transport, _) = connect(&url, events_options()).await.expect("a connection");
        let mut lines = Lines::new(transport);
        lines.request(0, "initialize", json!({})).await;
        lines.request(1, "count", json!({"sessionId": "s", "count": 2})).await;
        lines.end_output().await;
        assert!(lines.next().await.is_none());
        assert!(lines.end.is_none(), "{:?}", lines.end);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_cuts_of_events_lose_and_repeat_nothing() {
    in_time(async {
        let (cuts, seed) = (runs(50), seed());
        let _reproduction = Reproduction::of("-p duologue-http --test it fifty_cuts_of_events", seed, cuts);
        let rng = fastrand::Rng::with_seed(seed);
        let received =
            exchange_with_cuts(cuts, rng, ServerOptions::default(), http_url, events_options()).await;
        assert_eq!(of_streams(&received.at_client), of_streams(&received.sent));
        assert_eq!(received.at_agent, received.sent);
    })
    .await;
}

#[tokio::test]
async fn an_initialize_with_an_invalid_id_is_answered() {
    in_time(async {
        let endpoint = AgentEndpoint::new(|transport| async {
            let mut lines = Lines::new(transport);
            while lines.next().await.is_some() {
                let error = json!({"code": -32600, "message": "the id is invalid"});
                lines.send(&json!({"jsonrpc": "2.0", "id": null, "error": error})).await;
            }
        });
        let address = server(endpoint, ServerOptions::default()).await;
        let headers = [("Content-Type", "application/json")];
        let request = r#"{"jsonrpc":"2.0","id":1.5,"method":"initialize","params":{}}"#;
        let body = RawResponse::of(address, "POST", &headers, request).await.body().await;
        assert!(body.contains("the id is invalid"), "{body}");
    })
    .await;
}

/// Some agents write an error without an id before they answer.
#[tokio::test]
async fn an_error_line_before_the_response_to_initialize_does_not_take_its_place() {
    in_time(async {
        for options in [events_options(), quick()] {
            let endpoint = AgentEndpoint::new(|transport| async {
                let mut lines = Lines::new(transport);
                let error = json!({"code": -32700, "message": "a line was no JSON"});
                lines.send(&json!({"jsonrpc": "2.0", "id": null, "error": error})).await;
                let initialize = lines.next().await.expect("a request");
                lines.send(&json!({"jsonrpc": "2.0", "id": initialize["id"], "result": {"agentCapabilities": {}}})).await;
                while lines.next().await.is_some() {}
            });
            let address = server(endpoint, ServerOptions::default()).await;
            let (transport, _link) = connect(&http_url(address), options).await.expect("a server");
            let mut client = Lines::new(transport);
            let (answer, _) = client.request(1, "initialize", json!({})).await;
            let resumable = &answer["result"]["agentCapabilities"]["transport"]["resumable"];
            assert!(resumable.is_object(), "{answer}");
        }
    })
    .await;
}
