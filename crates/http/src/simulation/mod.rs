//! A client and a server over simulated connections, on a clock that moves only when nobody can go on.
//!
//! A seed determines the limits of both sides, the messages, and the fault of each connection: a cut at any byte, a
//! half-close, a black hole, or delays. Every message has to arrive once and in order, in both directions.

#[path = "../../../rpc/src/simulation/campaign.rs"]
#[allow(dead_code, reason = "shared with the simulation of the peer")]
mod campaign;
mod events;
mod wire;

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_rpc::{Lock as _, Transport};
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::time::{Instant, sleep};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use self::campaign::{Campaign, EventCounts, play};
use self::wire::{Fault, FaultSwitch, WireEnd, wire};
use crate::client::driver::{Dialed, Dialer, start};
use crate::client::link::LinkState;
use crate::client::tungstenite_socket::TungsteniteSocket;
use crate::server::serve_socket::{SocketContext, serve_socket};
use crate::{
    AgentEndpoint, AgentEndpointOptions, ConnectOptions, Error, HttpRequestHead, RemoteConnectionId,
    ServerOptions,
};

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Opens simulated connections to an endpoint.
struct SimulatedDialer {
    endpoint: Arc<AgentEndpoint>,
    options: Arc<ServerOptions>,
    rng: Rng,
    planned: Vec<Fault>,
    faults: FaultSwitch,
    dials: Arc<AtomicU64>,
}

impl Dialer for SimulatedDialer {
    type Socket = TungsteniteSocket<WireEnd>;

    async fn dial(&mut self) -> Result<Dialed<Self::Socket>, Error> {
        sleep(Duration::from_millis(self.rng.u64(0..200))).await;
        let dial = self.dials.fetch_add(1, Relaxed);
        if dial > 0 && !self.planned.is_empty() && self.rng.u8(0..5) == 0 {
            let error = std::io::ErrorKind::ConnectionRefused.into();
            return Err(Error::Unreachable { address: "simulated".into(), error });
        }
        let (client, server) = wire(&mut self.rng, self.planned.pop(), &self.faults);
        let config = || Some(WebSocketConfig::default().read_buffer_size(4096).write_buffer_size(1024));
        let server = WebSocketStream::from_raw_socket(server, Role::Server, config()).await;
        let client = WebSocketStream::from_raw_socket(client, Role::Client, config()).await;
        let connection_id = format!("c{dial}");
        let context = SocketContext {
            endpoint: self.endpoint.clone(),
            options: self.options.clone(),
            id: RemoteConnectionId::new(connection_id.as_str()),
            head: HttpRequestHead::default(),
            wants_acks: true,
        };
        tokio::spawn(serve_socket(TungsteniteSocket(server), context));
        Ok(Dialed { socket: TungsteniteSocket(client), connection_id })
    }
}

/// A random limit: mostly tiny, so that it is reached.
fn limit(rng: &mut Rng) -> usize {
    *rng.choice(&[1, 300, 2000, 20_000, 1 << 20]).unwrap_or(&2000)
}

fn client_options(rng: &mut Rng) -> ConnectOptions {
    ConnectOptions {
        unacknowledged_bytes: limit(rng),
        inbox_bytes: limit(rng),
        resume_attempts: 1000,
        resume_time: Duration::from_secs(3000),
        ..ConnectOptions::default()
    }
}

fn server_options(rng: &mut Rng) -> ServerOptions {
    ServerOptions { window_bytes: limit(rng), ..ServerOptions::default() }
}

fn endpoint_options(rng: &mut Rng) -> AgentEndpointOptions {
    AgentEndpointOptions {
        ring_bytes: limit(rng),
        ring_frames: limit(rng),
        retained_bytes: limit(rng),
        input_bytes: limit(rng),
        grace: Duration::from_secs(1000),
        end_grace: Duration::from_secs(1000),
        ..AgentEndpointOptions::default()
    }
}

/// Writes one message. Some cannot carry a cursor.
fn message(rng: &mut Rng, number: u64) -> String {
    let text = "x".repeat(rng.usize(0..*rng.clone().choice(&[10, 200, 3000]).unwrap_or(&10)));
    let session = rng.u8(0..3);
    match rng.u8(0..5) {
        0 => format!(
            r#"{{"jsonrpc":"2.0","id":{number},"error":{{"code":1,"message":"{text}"}},"n":{number}}}"#
        ),
        1 => format!(r#"{{"jsonrpc":"2.0","id":"{number}","result":{{"t":"{text}"}},"n":{number}}}"#),
        2 => format!(r#"{{"jsonrpc":"2.0","method":"m","params":["{text}"],"n":{number}}}"#),
        _ => format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s{session}","t":"{text}"}},"n":{number}}}"#
        ),
    }
}

/// Writes messages, in bursts.
async fn send(writer: &mut Writer, mut rng: Rng, numbers: RangeInclusive<u64>) -> Result<(), String> {
    let burst = rng.u8(1..20);
    for number in numbers {
        let line = message(&mut rng, number) + "\n";
        writer.write_all(line.as_bytes()).await.map_err(|error| format!("message {number}: {error}"))?;
        if rng.u8(0..burst) == 0 {
            sleep(Duration::from_millis(rng.u64(0..2000))).await;
        }
    }
    Ok(())
}

/// Reads messages until the end, and records their numbers. Sometimes it is slow.
async fn receive(
    reader: &mut BufReader<Reader>,
    mut rng: Rng,
    count: u64,
    numbers: &Mutex<Vec<u64>>,
) -> Result<(), String> {
    let slowness = rng.u8(0..10);
    let mut line = String::new();
    for _ in 0..count {
        line.clear();
        let read = reader.read_line(&mut line).await.map_err(|error| error.to_string())?;
        if read == 0 {
            return Err("the connection ended early".into());
        }
        let message: Value = serde_json::from_str(&line).map_err(|error| format!("{error}: {line}"))?;
        numbers
            .lock_unpoisoned()
            .push(message["n"].as_u64().ok_or_else(|| format!("a stray message: {line}"))?);
        if slowness == 0 && rng.u8(0..10) == 0 {
            sleep(Duration::from_millis(rng.u64(0..60_000))).await;
        }
    }
    Ok(())
}

/// The agent: answers `initialize`, then sends and receives numbered messages.
async fn agent(
    transport: Transport,
    rng: Rng,
    counts: (u64, u64),
    numbers: Arc<Mutex<Vec<u64>>>,
) -> Result<(), String> {
    let (reader, mut writer) = transport.into_split();
    let mut reader = BufReader::new(reader);
    let mut line = String::new();
    reader.read_line(&mut line).await.map_err(|error| error.to_string())?;
    let answer = json!({"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": 1}});
    writer.write_all(format!("{answer}\n").as_bytes()).await.map_err(|error| error.to_string())?;
    let mut rng = rng.clone();
    if rng.bool() {
        let (sending, receiving) = (rng.fork(), rng.fork());
        let (sent, received) = tokio::join!(
            send(&mut writer, sending, 1..=counts.0),
            receive(&mut reader, receiving, counts.1, &numbers)
        );
        sent.and(received)?;
    } else {
        // This agent reads nothing while it cannot write.
        for number in 1..=counts.0.max(counts.1) {
            if number <= counts.0 {
                send(&mut writer, rng.fork(), number..=number).await?;
            }
            if number <= counts.1 {
                receive(&mut reader, rng.fork(), 1, &numbers).await?;
            }
        }
    }
    // The connection ends with its client.
    line.clear();
    match reader.read_line(&mut line).await {
        Ok(0) => Ok(()),
        Ok(_) => Err(format!("one message too many: {line}")),
        Err(error) => Err(error.to_string()),
    }
}

async fn schedule(seed: u64, steps: usize) -> Result<EventCounts, String> {
    let mut rng = Rng::with_seed(seed);
    let planned: Vec<Fault> = (0..rng.usize(0..8).min(steps)).map(|_| Fault::random(&mut rng)).collect();
    let counts = (rng.u64(0..80), rng.u64(0..80));
    let (at_agent, at_client) = (Arc::<Mutex<Vec<u64>>>::default(), Mutex::<Vec<u64>>::default());
    let (ended, mut has_ended) = tokio::sync::mpsc::unbounded_channel();
    let (agent_rng, agent_numbers) = (rng.fork(), at_agent.clone());
    let endpoint = AgentEndpoint::with_options(
        move |transport| {
            let (rng, numbers, ended) = (agent_rng.clone(), agent_numbers.clone(), ended.clone());
            async move {
                let _ = ended.send(agent(transport, rng, counts, numbers).await);
            }
        },
        endpoint_options(&mut rng),
    );
    let (faults, dials) = (FaultSwitch::default(), Arc::<AtomicU64>::default());
    let mut dialer = SimulatedDialer {
        endpoint: Arc::new(endpoint.clone()),
        options: Arc::new(server_options(&mut rng)),
        planned,
        faults: faults.clone(),
        dials: dials.clone(),
        rng: rng.fork(),
    };
    let options = Arc::new(client_options(&mut rng));
    let first = dialer.dial().await.map_err(|error| error.to_string())?;
    let (transport, mut link) = start(dialer, first, options);
    let (reader, mut writer) = transport.into_split();
    let mut reader = BufReader::new(reader);
    let initialize = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{}}\n";
    writer.write_all(initialize.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut line = String::new();
    reader.read_line(&mut line).await.map_err(|error| error.to_string())?;
    // A connection is resumed after the answer to `initialize`.
    faults.is_armed.store(true, Relaxed);
    let mut send_rng = rng.fork();
    let exchange = async {
        tokio::join!(
            send(&mut writer, send_rng.fork(), 1..=counts.1),
            receive(&mut reader, rng.fork(), counts.0, &at_client)
        )
    };
    let Ok((sent, received)) = tokio::time::timeout(Duration::from_secs(2500), exchange).await else {
        let (client, agent) = (at_client.lock_unpoisoned().len(), at_agent.lock_unpoisoned().len());
        return Err(format!(
            "the client waits with {client} of {} messages and the agent with {agent} of {}; {:?}, {} resumes, {:?}",
            counts.0,
            counts.1,
            link.state(),
            link.resumes(),
            faults.happened.lock_unpoisoned()
        ));
    };
    let numbers = at_client.lock_unpoisoned().clone();
    sent.and(received).map_err(|why| format!("client: {why}, after {numbers:?}"))?;
    if !numbers.iter().copied().eq(1..=counts.0) {
        return Err(format!("the client received {numbers:?} of {}", counts.0));
    }
    writer.shutdown().await.map_err(|error| error.to_string())?;
    line.clear();
    let rest = reader.read_line(&mut line).await;
    if !matches!(rest, Ok(0)) {
        return Err(format!("after the end: {rest:?} {line}"));
    }
    while link.state() != LinkState::Ended {
        link.changed().await;
    }
    let agent = has_ended.recv().await.unwrap_or_else(|| Err("no agent ran".into()));
    let numbers = at_agent.lock_unpoisoned().clone();
    agent.map_err(|why| format!("agent: {why}, after {numbers:?} of {}", counts.1))?;
    if !numbers.iter().copied().eq(1..=counts.1) {
        return Err(format!("the agent received {numbers:?} of {}", counts.1));
    }
    let since = Instant::now();
    while endpoint.connection_count() > 0 {
        sleep(Duration::from_millis(100)).await;
        if since.elapsed() > Duration::from_secs(1050) {
            return Err("the connection did not end".into());
        }
    }
    let mut tally = EventCounts::default();
    for fault in faults.happened.lock_unpoisoned().iter() {
        tally.add(fault.name(), 1);
    }
    tally.add("resumes", link.resumes());
    tally.add("messages", counts.0 + counts.1);
    Ok(tally)
}

#[test]
fn every_message_arrives_once_and_in_order() {
    let campaign = Campaign {
        test: "duologue-http --lib simulation",
        schedules: 300,
        minimum: &[
            ("cuts", 100),
            ("half-closes", 10),
            ("black holes", 10),
            ("dead links", 10),
            ("resumes", 150),
        ],
        shown: "",
    };
    campaign.play(|seed, steps| play(schedule(seed, steps)));
}

/// Returns a client and its connection over connections without faults.
async fn connected(
    endpoint: AgentEndpoint,
    server: ServerOptions,
    client: ConnectOptions,
) -> (BufReader<Reader>, Writer, crate::RemoteLink) {
    let mut dialer = SimulatedDialer {
        endpoint: Arc::new(endpoint),
        options: Arc::new(server),
        planned: Vec::new(),
        faults: FaultSwitch::default(),
        dials: Arc::default(),
        rng: Rng::with_seed(1),
    };
    let first = dialer.dial().await.expect("a socket");
    let (transport, link) = start(dialer, first, Arc::new(client));
    let (reader, mut writer) = transport.into_split();
    let initialize = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{}}\n";
    writer.write_all(initialize.as_bytes()).await.expect("sent");
    let mut reader = BufReader::new(reader);
    reader.read_line(&mut String::new()).await.expect("the response");
    (reader, writer, link)
}

/// Reads `count` messages and returns their numbers.
async fn numbers(reader: &mut BufReader<Reader>, count: u64) -> Result<Vec<u64>, String> {
    let numbers = Mutex::default();
    // This seed reads without pauses.
    receive(reader, Rng::with_seed(1), count, &numbers).await?;
    Ok(numbers.into_inner().unwrap_or_default())
}

fn long(number: u64) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":{{\"t\":\"{}\"}},\"n\":{number}}}\n",
        "x".repeat(5000)
    )
}

/// The confirmations of a client wait behind its messages. If the agent takes these only after it has written its own,
/// both would wait for ever.
#[test]
fn an_agent_that_reads_only_when_it_can_write_goes_on() {
    const COUNT: u64 = 200;
    let played = play(async {
        let options = AgentEndpointOptions {
            ring_bytes: 50_000,
            input_bytes: 1000,
            retained_bytes: 0,
            ..AgentEndpointOptions::default()
        };
        let endpoint = AgentEndpoint::with_options(
            |transport| async {
                let (reader, mut writer) = transport.into_split();
                let mut lines = BufReader::new(reader).lines();
                let mut number = 0;
                let answer = json!({"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": 1}});
                let _ = writer.write_all(format!("{answer}\n").as_bytes()).await;
                let _ = lines.next_line().await;
                while let Ok(Some(_)) = lines.next_line().await {
                    for _ in 0..10 {
                        number += 1;
                        let _ = writer.write_all(long(number).as_bytes()).await;
                    }
                }
            },
            options,
        );
        let (mut reader, mut writer, link) =
            connected(endpoint, ServerOptions::default(), ConnectOptions::default()).await;
        let sending = async {
            for number in 1..=COUNT {
                writer.write_all(long(number).as_bytes()).await.map_err(|error| error.to_string())?;
            }
            Ok::<_, String>(())
        };
        let (sent, received) = tokio::join!(sending, numbers(&mut reader, COUNT * 10));
        sent?;
        let is_complete = received?.into_iter().eq(1..=COUNT * 10);
        Ok((is_complete, link.resumes()))
    });
    let (is_complete, resumes) = played.expect("both go on");
    assert!(is_complete && resumes > 0, "{is_complete} {resumes}");
}

/// The server keeps a bounded number of bytes for a client that does not read, closes its socket, and sends everything
/// when the client reads again.
#[test]
fn a_client_that_does_not_read_is_resumed_later() {
    const COUNT: u64 = 2000;
    let played = play(async {
        let sent = Arc::<AtomicU64>::default();
        let counter = sent.clone();
        let options = AgentEndpointOptions { ring_bytes: 200_000, ..AgentEndpointOptions::default() };
        let endpoint = AgentEndpoint::with_options(
            move |transport| {
                let counter = counter.clone();
                async move {
                    let (reader, mut writer) = transport.into_split();
                    let mut lines = BufReader::new(reader).lines();
                    let answer = json!({"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": 1}});
                    let _ = writer.write_all(format!("{answer}\n").as_bytes()).await;
                    for number in 1..=COUNT {
                        let _ = writer.write_all(long(number).as_bytes()).await;
                        counter.fetch_add(1, Relaxed);
                    }
                    while let Ok(Some(_)) = lines.next_line().await {}
                }
            },
            options,
        );
        let server = ServerOptions { window_bytes: 100_000, ..ServerOptions::default() };
        let client = ConnectOptions { inbox_bytes: 10_000, ..ConnectOptions::default() };
        let (mut reader, writer, link) = connected(endpoint, server, client).await;
        sleep(Duration::from_secs(200)).await;
        let in_memory = sent.load(Relaxed) * 5000;
        let received = numbers(&mut reader, COUNT).await?;
        drop(writer);
        Ok((received.into_iter().eq(1..=COUNT), in_memory, link.resumes()))
    });
    let (is_complete, in_memory, resumes) = played.expect("the client is resumed");
    assert!(is_complete && resumes > 0, "{is_complete} {resumes}");
    assert!(in_memory < 2_000_000, "{in_memory} bytes were sent to a client that does not read");
}
