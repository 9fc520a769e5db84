//! The SDKs over a socket.

use std::net::SocketAddr;
use std::time::Duration;

use duologue_agent::{Agent, Prompt, StopReason, Turn, serve};
use duologue_client::Client;
use duologue_http::{AgentEndpoint, RemoteTransport, ServerOptions, connect};
use duologue_test_support::in_time;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::setup::{CutRelay, quick, server, url};

#[derive(Clone)]
struct Counter;

impl Agent for Counter {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
        let count: u64 = prompt.text().parse().expect("a number");
        let mut message = turn.message();
        for number in 1..=count {
            message.push(format!("{number} ")).await?;
            if number % 25 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        Ok(StopReason::EndTurn)
    }
}

fn counter() -> AgentEndpoint {
    AgentEndpoint::new(|transport| async {
        let _ = serve(Counter, transport).await;
    })
}

fn numbers(count: u64) -> String {
    (1..=count).map(|number| format!("{number} ")).collect()
}

#[tokio::test]
async fn a_client_prompts_an_agent_over_a_socket() {
    in_time(async {
        let address = server(counter(), ServerOptions::default()).await;
        let (transport, link) = connect(&url(address), quick()).await.expect("a connection");
        let client = Client::new(()).connect(transport).await.expect("a client");
        let session = client.new_session("/tmp").await.expect("a session");
        let reply = session.prompt("100").await.expect("a turn").finish().await.expect("a reply");
        assert_eq!(reply.text, numbers(100));
        assert_eq!(link.resumes(), 0);
        assert!(!link.connection_id().is_empty());
    })
    .await;
}

/// Starts a relay that passes the head of a response on with the first byte of its body, as some proxies do.
async fn relay_that_holds_heads(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (mut from_client, mut to_client) = client.into_split();
            let server = TcpStream::connect(to).await.expect("the server");
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            tokio::spawn(async move {
                let mut held = Vec::new();
                while from_server.read_buf(&mut held).await.is_ok_and(|count| count > 0) {
                    let text = String::from_utf8_lossy(&held).to_lowercase();
                    let body = text.split_once("\r\n\r\n").map(|(_, body)| body);
                    let is_body = !text.starts_with("http/1.1");
                    if is_body || body.is_some_and(|body| !body.is_empty() || !text.contains(": chunked")) {
                        to_client.write_all(&held).await?;
                        held.clear();
                    }
                }
                to_client.write_all(&held).await
            });
        }
    });
    address
}

/// The server is not waited for until its next sign of life.
#[tokio::test]
async fn events_pass_a_relay_that_holds_the_heads_of_responses() {
    in_time(async {
        let mut options = ServerOptions::default();
        options.keepalive = Duration::from_secs(3600);
        let address = relay_that_holds_heads(server(counter(), options).await).await;
        let mut options = quick();
        options.transport = RemoteTransport::Events;
        let (transport, _link) = connect(&url(address), options).await.expect("a connection");
        let client = Client::new(()).connect(transport).await.expect("a client");
        let session = client.new_session("/tmp").await.expect("a session");
        let reply = session.prompt("100").await.expect("a turn").finish().await.expect("a reply");
        assert_eq!(reply.text, numbers(100));
    })
    .await;
}

/// The turn goes on, no update is lost and none comes twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_survives_20_cuts() {
    in_time(async {
        let relay = CutRelay::new(server(counter(), ServerOptions::default()).await).await;
        let (transport, link) = connect(&url(relay.address), quick()).await.expect("a connection");
        let client = Client::new(()).connect(transport).await.expect("a client");
        let session = client.new_session("/tmp").await.expect("a session");
        let mut turn = session.prompt("1000").await.expect("a turn");
        let (mut text, mut updates) = (String::new(), 0);
        while let Some(update) = turn.next().await {
            text.push_str(&update.expect("an update").to_string());
            updates += 1;
            if updates % 50 == 25 {
                let before = link.resumes();
                relay.cut();
                while link.resumes() == before {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
        assert_eq!((updates, text), (1000, numbers(1000)));
        assert!(link.resumes() >= 20, "{}", link.resumes());
    })
    .await;
}

/// The connection of a client that leaves ends at once and not after the grace period.
#[tokio::test]
async fn a_connection_ends_with_its_client() {
    in_time(async {
        let endpoint = counter();
        let address = server(endpoint.clone(), ServerOptions::default()).await;
        let (transport, mut link) = connect(&url(address), quick()).await.expect("a connection");
        let client = Client::new(()).connect(transport).await.expect("a client");
        assert_eq!(endpoint.connection_count(), 1);
        client.close().await;
        drop(client);
        while link.state() != duologue_http::LinkState::Ended {
            link.changed().await;
        }
        while endpoint.connection_count() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn both_sides_need_one_call_and_the_token() {
    in_time(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = url(listener.local_addr().expect("an address"));
        let mut options = ServerOptions::default();
        options.token = Some("secret".into());
        tokio::spawn(duologue_agent::serve_http(listener, options, || duologue_agent::Server::new(Counter)));
        for (token, is_right) in [(None, false), (Some("wrong"), false), (Some("secret"), true)] {
            let mut options = quick();
            options.bearer_token = token.map(Into::into);
            match Client::new(()).connect_url(&address, options).await {
                Ok(client) => {
                    assert!(is_right, "{token:?}");
                    let session = client.new_session("/tmp").await.expect("a session");
                    let reply = session.prompt("10").await.expect("a turn").finish().await.expect("a reply");
                    assert_eq!(reply.text, numbers(10));
                }
                Err(duologue_client::Error::Remote(error)) => {
                    assert!(!is_right, "{error}");
                    assert!(matches!(*error, duologue_http::Error::Refused { status: 401, .. }), "{error}");
                }
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn an_address_that_others_can_reach_needs_a_token() {
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.expect("a listener");
    let served = duologue_http::serve(listener, counter(), ServerOptions::default()).await;
    let error = served.expect_err("it has no token").to_string();
    assert!(error.contains("`ServerOptions::token`"), "{error}");
}
