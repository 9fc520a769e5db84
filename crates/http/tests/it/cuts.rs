//! Cuts of real sockets: every message arrives once and in order, in both directions.

use std::time::Duration;

use duologue_http::{AgentEndpoint, ServerOptions, connect};
use duologue_test_support::{Reproduction, in_time, runs, seed};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::setup::{CutRelay, Lines, echo_endpoint, initialize, quick, server, url};

/// Sends numbered messages to the client, and ends when it has received all of the client's.
pub(crate) async fn numbering_agent(
    transport: duologue_rpc::Transport,
    count: u64,
    received: tokio::sync::mpsc::Sender<Vec<u64>>,
) {
    let (reader, writer) = transport.into_split();
    let mut input = Lines::new(duologue_rpc::Transport::new(reader, tokio::io::sink()));
    let mut output = Lines::new(duologue_rpc::Transport::new(tokio::io::empty(), writer));
    let request = input.next().await.expect("initialize");
    let result = json!({"protocolVersion": 1, "agentCapabilities": {}});
    output.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    let sending = async {
        for number in 1..=count {
            output.send(&numbered(number)).await;
            if number % 40 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    let receiving = receive(&mut input, count);
    let ((), numbers) = tokio::join!(sending, receiving);
    let _ = received.send(numbers).await;
    // The client ends the connection.
    while input.next().await.is_some() {}
}

pub(crate) fn numbered(number: u64) -> Value {
    let session = format!("s{}", number % 3);
    let text = "x".repeat((number % 17 * 100) as usize);
    if number.is_multiple_of(11) {
        // Error responses carry no cursor.
        return json!({"jsonrpc": "2.0", "id": number, "error": {"code": 1, "message": text}, "number": number});
    }
    json!({"jsonrpc": "2.0", "method": "u", "params": {"sessionId": session, "text": text}, "number": number})
}

pub(crate) async fn receive(lines: &mut Lines, count: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    while numbers.len() < count as usize {
        let Some(message) = lines.next().await else { break };
        numbers.extend(message["number"].as_u64());
    }
    numbers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_cuts_lose_and_repeat_nothing() {
    in_time(async {
        let (cuts, seed) = (runs(50), seed());
        let _reproduction = Reproduction::of("-p duologue-http --test it fifty_cuts", seed, cuts);
        let mut rng = fastrand::Rng::with_seed(seed);
        let count = cuts * 100;
        let (numbers, mut at_agent) = tokio::sync::mpsc::channel(1);
        let endpoint =
            AgentEndpoint::new(move |transport| numbering_agent(transport, count, numbers.clone()));
        let relay = CutRelay::new(server(endpoint, ServerOptions::default()).await).await;
        let (transport, link) = connect(&url(relay.address), quick()).await.expect("a connection");
        let (reader, writer) = transport.into_split();
        let mut input = Lines::new(duologue_rpc::Transport::new(reader, tokio::io::sink()));
        let mut output = Lines::new(duologue_rpc::Transport::new(tokio::io::empty(), writer));
        output.send(&initialize()).await;
        input.next().await.expect("the response");
        let cutting = async {
            for _ in 0..cuts {
                let before = link.resumes();
                tokio::time::sleep(Duration::from_micros(rng.u64(0..5000))).await;
                relay.cut();
                while link.resumes() == before && link.state() != duologue_http::LinkState::Ended {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        };
        let sending = async {
            for number in 1..=count {
                output.send(&numbered(number)).await;
                if number % 40 == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        };
        let ((), (), received) = tokio::join!(cutting, sending, receive(&mut input, count));
        let expected: Vec<u64> = (1..=count).collect();
        assert_eq!(received, expected);
        assert_eq!(at_agent.recv().await.expect("the agent's numbers"), expected);
        assert!(link.resumes() >= cuts);
    })
    .await;
}

#[tokio::test]
async fn a_client_without_attempts_reports_the_lost_socket() {
    in_time(async {
        let relay = CutRelay::new(server(echo_endpoint(), ServerOptions::default()).await).await;
        let mut options = quick();
        options.resume_attempts = 0;
        let (transport, _) = connect(&url(relay.address), options).await.expect("a connection");
        let mut lines = Lines::new(transport);
        lines.request(0, "initialize", json!({})).await;
        relay.cut();
        assert!(matches!(lines.error().await, Some(duologue_http::Error::Lost { .. })));
    })
    .await;
}

#[tokio::test]
async fn a_socket_that_is_lost_during_the_upgrade_is_tried_again() {
    in_time(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        let answering = async {
            let (mut socket, _) = listener.accept().await.expect("a socket");
            socket.write_all(b"HTTP/1.1 101 Switching").await.expect("it reads");
            // A reset would look like an error of the system.
            socket.shutdown().await.expect("it is open");
            tokio::io::copy(&mut socket, &mut tokio::io::sink()).await
        };
        let url = url(address);
        let (connected, _) = tokio::join!(connect(&url, quick()), answering);
        let error = connected.expect_err("it is lost");
        assert!(matches!(error, duologue_http::Error::Unreachable { .. }), "{error}");
    })
    .await;
}
