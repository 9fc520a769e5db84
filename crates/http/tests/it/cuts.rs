//! Cuts of real sockets: every message arrives once and in order, in both directions.

use std::net::SocketAddr;
use std::time::Duration;

use duologue_http::{AgentEndpoint, ConnectOptions, ServerOptions, connect};
use duologue_rpc::Transport;
use duologue_test_support::{Reproduction, in_time, runs, seed};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::setup::{CutRelay, Lines, echo_endpoint, initialize, quick, server, url};

/// Sends numbered messages to the client, and ends when it has received all of the client's.
async fn numbering_agent(transport: Transport, count: u64, received: tokio::sync::mpsc::Sender<Vec<u64>>) {
    let (mut input, mut output) = halves(transport);
    let request = input.next().await.expect("initialize");
    let result = json!({"protocolVersion": 1, "agentCapabilities": {}});
    output.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    let ((), numbers) = tokio::join!(send(&mut output, count), receive(&mut input, count));
    let _ = received.send(numbers).await;
    // The client ends the connection.
    while input.next().await.is_some() {}
}

fn numbered(number: u64) -> Value {
    let session = format!("s{}", number % 3);
    let text = "x".repeat((number % 17 * 100) as usize);
    if number.is_multiple_of(11) {
        // Error responses carry no cursor.
        return json!({"jsonrpc": "2.0", "id": number, "error": {"code": 1, "message": text}, "number": number});
    }
    json!({"jsonrpc": "2.0", "method": "u", "params": {"sessionId": session, "text": text}, "number": number})
}

async fn receive(lines: &mut Lines, count: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    while numbers.len() < count as usize {
        let Some(message) = lines.next().await else { break };
        numbers.extend(message["number"].as_u64());
    }
    numbers
}

/// The numbers that both sides have received, each in the order of its messages.
pub(crate) struct ReceivedNumbers {
    pub(crate) sent: Vec<u64>,
    pub(crate) at_client: Vec<u64>,
    pub(crate) at_agent: Vec<u64>,
    pub(crate) resumes: u64,
}

/// Returns the numbers of each stream. Over server-sent events each one has an order of its own.
pub(crate) fn of_streams(numbers: &[u64]) -> [Vec<u64>; 4] {
    let stream = |number: u64| if number.is_multiple_of(11) { 3 } else { number % 3 };
    [0, 1, 2, 3].map(|id| numbers.iter().copied().filter(|number| stream(*number) == id).collect())
}

/// Sends numbered messages in both directions, while the connection is cut `cuts` times.
pub(crate) async fn exchange_with_cuts(
    cuts: u64,
    mut rng: fastrand::Rng,
    server_options: ServerOptions,
    url: fn(SocketAddr) -> String,
    options: ConnectOptions,
) -> ReceivedNumbers {
    let count = cuts * 100;
    let (numbers, mut at_agent) = tokio::sync::mpsc::channel(1);
    let endpoint = AgentEndpoint::new(move |transport| numbering_agent(transport, count, numbers.clone()));
    let relay = CutRelay::new(server(endpoint, server_options).await).await;
    let (transport, link) = connect(&url(relay.address), options).await.expect("a connection");
    let (mut input, mut output) = halves(transport);
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
    let ((), (), at_client) = tokio::join!(cutting, send(&mut output, count), receive(&mut input, count));
    let at_agent = at_agent.recv().await.expect("the agent's numbers");
    ReceivedNumbers { sent: (1..=count).collect(), at_client, at_agent, resumes: link.resumes() }
}

/// Returns the two directions of a transport.
fn halves(transport: Transport) -> (Lines, Lines) {
    let (reader, writer) = transport.into_split();
    let input = Lines::new(Transport::new(reader, tokio::io::sink()));
    (input, Lines::new(Transport::new(tokio::io::empty(), writer)))
}

/// Sends numbered messages with pauses.
async fn send(lines: &mut Lines, count: u64) {
    for number in 1..=count {
        lines.send(&numbered(number)).await;
        if number % 40 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_cuts_lose_and_repeat_nothing() {
    in_time(async {
        let (cuts, seed) = (runs(50), seed());
        let _reproduction = Reproduction::of("-p duologue-http --test it fifty_cuts", seed, cuts);
        let rng = fastrand::Rng::with_seed(seed);
        let received = exchange_with_cuts(cuts, rng, ServerOptions::default(), url, quick()).await;
        assert_eq!(received.at_client, received.sent);
        assert_eq!(received.at_agent, received.sent);
        assert!(received.resumes >= cuts);
    })
    .await;
}

#[tokio::test]
async fn a_client_without_attempts_reports_the_lost_socket() {
    in_time(async {
        let relay = CutRelay::new(server(echo_endpoint(), ServerOptions::default()).await).await;
        let mut options = quick();
        options.resume_time = Duration::ZERO;
        let (transport, _) = connect(&url(relay.address), options).await.expect("a connection");
        let mut lines = Lines::new(transport);
        lines.request(0, "initialize", json!({})).await;
        relay.cut();
        assert!(matches!(lines.error().await, Some(duologue_http::Error::Lost { .. })));
    })
    .await;
}

#[tokio::test]
async fn a_socket_that_is_lost_during_the_upgrade_has_a_temporary_error() {
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
        let mut options = quick();
        // Other errors of the upgrade are final.
        options.open_time = Duration::ZERO;
        let (connected, _) = tokio::join!(connect(&url, options), answering);
        let error = connected.expect_err("it is lost");
        assert!(matches!(error, duologue_http::Error::Unreachable { .. }), "{error}");
    })
    .await;
}
