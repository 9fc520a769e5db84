//! A client and a server over simulated connections, on a clock that moves only when nobody can go on.
//!
//! A seed determines the limits of both sides, the messages, and the fault of each connection: a cut at any byte, a
//! half-close, a truncation, a black hole, the death of the server, or delays. Every message has to arrive once and in order, in
//! both directions. If the server has died, the connection ends instead.

#[path = "../../../rpc/src/simulation/campaign.rs"]
#[allow(dead_code, reason = "shared with the simulation of the peer")]
mod campaign;
mod events;
mod outages;
mod wire;

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_rpc::{Lock as _, Transport};
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
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
    RemoteLink, ServerOptions,
};

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// The first line of a client.
const INITIALIZE_LINE: &str = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{}}\n";
/// The error of a side whose connection ended regularly, before it had everything.
const EARLY_END: &str = "the connection ended early";
/// The id of the request that closes a session at the end.
const CLOSE_ID: u64 = 1000;

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

    async fn dial(&mut self, _within: Duration) -> Result<Dialed<Self::Socket>, Error> {
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
        if self.faults.has_died() {
            // The next process knows no connection of this one.
            self.endpoint = Arc::new(AgentEndpoint::new(|_| std::future::ready(())));
        }
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

/// The requests of a session that a side has received and not answered, with their method.
struct OpenRequests {
    method: &'static str,
    ids: Mutex<Vec<(u64, String)>>,
}

/// The ids of requests begin behind those of the responses to unknown requests.
const REQUEST_IDS: u64 = 1_000_000;

/// Writes one message. Some cannot carry a cursor, and some have one of another connection. `answered` are the requests
/// that it may answer. A response names the session of its request.
fn message(rng: &mut Rng, number: u64, answered: &OpenRequests) -> String {
    let text = "x".repeat(rng.usize(0..*rng.clone().choice(&[10, 200, 3000]).unwrap_or(&10)));
    let session = rng.u8(0..3);
    let open = if rng.bool() { answered.ids.lock_unpoisoned().pop() } else { None };
    if let Some((id, session)) = open {
        return format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"t":"{text}"}},"session":"{session}","n":{number}}}"#
        );
    }
    let foreign = match rng.u8(0..3) {
        0 => format!(r#""_meta":{{"acp/cursor":"{}"}},"#, rng.u64(0..200)),
        _ => String::new(),
    };
    match rng.u8(0..6) {
        5 => format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"{}","params":{{"sessionId":"s{session}"}},"n":{number}}}"#,
            REQUEST_IDS + number,
            answered.method
        ),
        0 => format!(
            r#"{{"jsonrpc":"2.0","id":{number},"error":{{"code":1,"message":"{text}"}},"n":{number}}}"#
        ),
        1 => {
            format!(r#"{{"jsonrpc":"2.0","id":"{number}","result":{{{foreign}"t":"{text}"}},"n":{number}}}"#)
        }
        2 => format!(r#"{{"jsonrpc":"2.0","method":"m","params":["{text}"],"n":{number}}}"#),
        _ => format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{{foreign}"sessionId":"s{session}","t":"{text}"}},"n":{number}}}"#
        ),
    }
}

/// Writes messages, in bursts.
async fn send(
    writer: &mut Writer,
    mut rng: Rng,
    numbers: RangeInclusive<u64>,
    answered: &OpenRequests,
) -> Result<(), String> {
    let burst = rng.u8(1..20);
    for number in numbers {
        let mut line = message(&mut rng, number, answered) + "\n";
        if rng.u8(0..10) == 0 {
            // A message of the transport, which the server drops.
            let forged = rng.u64(0..200);
            line.insert_str(
                0,
                &format!("{{\"method\":\"stream/ack\",\"params\":{{\"received\":{forged}}}}}\n"),
            );
        }
        writer.write_all(line.as_bytes()).await.map_err(|error| format!("message {number}: {error}"))?;
        if rng.u8(0..burst) == 0 {
            sleep(Duration::from_millis(rng.u64(0..2000))).await;
        }
    }
    Ok(())
}

/// The messages that a side has received.
struct Received {
    /// Their numbers, each with the session of its message or an empty text.
    numbers: Mutex<Vec<(String, u64)>>,
    open: OpenRequests,
}

impl Received {
    /// `method` is that of the requests.
    fn new(method: &'static str) -> Self {
        Received { numbers: Mutex::default(), open: OpenRequests { method, ids: Mutex::default() } }
    }
}

/// Reads messages until the end, and records their numbers. Sometimes it is slow.
async fn receive(
    reader: &mut BufReader<Reader>,
    mut rng: Rng,
    count: u64,
    received: &Received,
) -> Result<(), String> {
    let slowness = rng.u8(0..10);
    let mut line = String::new();
    for _ in 0..count {
        line.clear();
        let read = reader.read_line(&mut line).await.map_err(|error| error.to_string())?;
        if read == 0 {
            return Err(EARLY_END.into());
        }
        let message: Value = serde_json::from_str(&line).map_err(|error| format!("{error}: {line}"))?;
        let number = message["n"].as_u64().ok_or_else(|| format!("a stray message: {line}"))?;
        let session = message["params"]["sessionId"].as_str().or(message["session"].as_str());
        let session = session.unwrap_or_default().to_owned();
        received.numbers.lock_unpoisoned().push((session.clone(), number));
        if message["method"] == received.open.method {
            received.open.ids.lock_unpoisoned().push((REQUEST_IDS + number, session));
        }
        if slowness == 0 && rng.u8(0..10) == 0 {
            sleep(Duration::from_millis(rng.u64(0..60_000))).await;
        }
    }
    Ok(())
}

fn numbers_of(received: &Received) -> Vec<u64> {
    received.numbers.lock_unpoisoned().iter().map(|(_, number)| *number).collect()
}

/// The agent of a schedule.
struct SimulatedAgent {
    endpoint: AgentEndpoint,
    /// The messages of the agent, and those of the client.
    counts: (u64, u64),
    received: Arc<Received>,
    ended: mpsc::UnboundedReceiver<Result<(), String>>,
    /// The sessions that the client opens first.
    sessions: &'static [&'static str],
}

/// Returns the method of the requests: one that closes sessions, unless the client opens their streams first.
fn request_method(sessions: &[&str]) -> &'static str {
    if sessions.is_empty() { "session/close" } else { "session/prompt" }
}

impl SimulatedAgent {
    fn new(rng: &mut Rng, sessions: &'static [&'static str], options: AgentEndpointOptions) -> Self {
        let counts = message_counts(rng);
        let received = Arc::new(Received::new(request_method(sessions)));
        let (sender, ended) = mpsc::unbounded_channel();
        let (agent_rng, at_agent) = (rng.fork(), received.clone());
        let serve = move |transport| {
            let (rng, received, ended) = (agent_rng.clone(), at_agent.clone(), sender.clone());
            async move {
                let _ = ended.send(agent(transport, rng, counts, sessions.len(), &received).await);
            }
        };
        let endpoint = AgentEndpoint::with_options(serve, options);
        SimulatedAgent { endpoint, counts, received, ended, sessions }
    }
}

/// Answers `initialize` and reads the messages that open sessions, then sends and receives numbered messages.
async fn agent(
    transport: Transport,
    mut rng: Rng,
    counts: (u64, u64),
    sessions: usize,
    received: &Received,
) -> Result<(), String> {
    let (reader, mut writer) = transport.into_split();
    let mut reader = BufReader::new(reader);
    let mut line = String::new();
    reader.read_line(&mut line).await.map_err(|error| error.to_string())?;
    let answer = json!({"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": 1}});
    writer.write_all(format!("{answer}\n").as_bytes()).await.map_err(|error| error.to_string())?;
    for _ in 0..sessions {
        reader.read_line(&mut line).await.map_err(|error| error.to_string())?;
    }
    if sessions > 0 || rng.bool() {
        let (sending, receiving) = (rng.fork(), rng.fork());
        let (sent, all_received) = tokio::join!(
            send(&mut writer, sending, 1..=counts.0, &received.open),
            receive(&mut reader, receiving, counts.1, received)
        );
        sent.and(all_received)?;
    } else {
        // This agent reads nothing while it cannot write.
        for number in 1..=counts.0.max(counts.1) {
            if number <= counts.0 {
                send(&mut writer, rng.fork(), number..=number, &received.open).await?;
            }
            if number <= counts.1 {
                receive(&mut reader, rng.fork(), 1, received).await?;
            }
        }
    }
    // The connection ends with its client, which may close a session before.
    line.clear();
    let mut read = reader.read_line(&mut line).await;
    let request: Value = serde_json::from_str(&line).unwrap_or_default();
    if request["id"] == CLOSE_ID {
        let closed = json!({"jsonrpc": "2.0", "id": CLOSE_ID, "result": {}});
        writer.write_all(format!("{closed}\n").as_bytes()).await.map_err(|error| error.to_string())?;
        line.clear();
        read = reader.read_line(&mut line).await;
    }
    match read {
        Ok(0) => Ok(()),
        Ok(_) => Err(format!("one message too many: {line}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the numbers of messages of the agent and of the client.
fn message_counts(rng: &mut Rng) -> (u64, u64) {
    let most = *rng.choice(&[10, 30, 80]).unwrap_or(&30);
    (rng.u64(0..most), rng.u64(0..most))
}

/// Exchanges the messages of a schedule over a connection, whose faults begin after `initialize`, and ends it. `is_in_order`
/// checks the numbers that the client has received.
async fn exchange(
    mut agent: SimulatedAgent,
    (transport, mut link): (Transport, RemoteLink),
    faults: &FaultSwitch,
    rng: &mut Rng,
    is_in_order: fn(&[(String, u64)]) -> bool,
) -> Result<EventCounts, String> {
    let counts = agent.counts;
    let (mut reader, mut writer) = initialized(transport).await?;
    // Before the answer to `initialize` nothing can be repeated.
    faults.is_armed.store(true, Relaxed);
    for session in agent.sessions {
        let open = json!({"jsonrpc": "2.0", "method": "open", "params": {"sessionId": session}});
        writer.write_all(format!("{open}\n").as_bytes()).await.map_err(|error| error.to_string())?;
    }
    let at_client = Received::new(request_method(agent.sessions));
    let exchanging = async {
        tokio::join!(
            send(&mut writer, rng.fork(), 1..=counts.1, &at_client.open),
            receive(&mut reader, rng.fork(), counts.0, &at_client)
        )
    };
    let Ok((sent, received)) = tokio::time::timeout(Duration::from_secs(2500), exchanging).await else {
        let (client, agent) = (numbers_of(&at_client), numbers_of(&agent.received).len());
        return Err(format!(
            "the client waits with {client:?} of {} and the agent with {agent} of {}; {:?}, {} resumes, {:?}",
            counts.0,
            counts.1,
            link.state(),
            link.resumes(),
            faults.happened.lock_unpoisoned()
        ));
    };
    if faults.has_died() {
        if received.is_err_and(|why| why == EARLY_END) {
            return Err("the connection ended without its reason".into());
        }
        drop((reader, writer));
        return after_death(link, [&at_client, &agent.received], faults).await;
    }
    let received_messages = at_client.numbers.lock_unpoisoned().clone();
    sent.and(received).map_err(|why| format!("client: {why}, after {received_messages:?}"))?;
    let mut numbers = numbers_of(&at_client);
    numbers.sort_unstable();
    if !numbers.into_iter().eq(1..=counts.0) || !is_in_order(&received_messages) {
        return Err(format!("the client received {received_messages:?} of {}", counts.0));
    }
    // A stream without a cursor is continued behind the response to `session/close`, so this one has a cursor.
    let closed = received_messages.iter().find(|(session, _)| !session.is_empty());
    if let Some((session, _)) = closed.filter(|_| !agent.sessions.is_empty()) {
        close_session(&mut reader, &mut writer, session).await?;
    }
    writer.shutdown().await.map_err(|error| error.to_string())?;
    let mut line = String::new();
    let rest = reader.read_line(&mut line).await;
    if faults.has_died() {
        return after_death(link, [&at_client, &agent.received], faults).await;
    }
    if !matches!(rest, Ok(0)) {
        return Err(format!("after the end: {rest:?} {line}"));
    }
    while link.state() != LinkState::Ended {
        link.changed().await;
    }
    if faults.has_died() {
        return after_death(link, [&at_client, &agent.received], faults).await;
    }
    let ended = agent.ended.recv().await.unwrap_or_else(|| Err("no agent ran".into()));
    let numbers = numbers_of(&agent.received);
    ended.map_err(|why| format!("agent: {why}, after {numbers:?} of {}", counts.1))?;
    if !numbers.iter().copied().eq(1..=counts.1) {
        return Err(format!("the agent received {numbers:?} of {}", counts.1));
    }
    let since = Instant::now();
    while agent.endpoint.connection_count() > 0 {
        sleep(Duration::from_secs(5)).await;
        if since.elapsed() > Duration::from_secs(1050) {
            return Err("the connection did not end".into());
        }
    }
    let mut tally = faults.counts();
    tally.add("resumes", link.resumes());
    tally.add("messages", counts.0 + counts.1);
    Ok(tally)
}

/// Sends `initialize` and reads the answer. Returns the halves of the transport.
async fn initialized(transport: Transport) -> Result<(BufReader<Reader>, Writer), String> {
    let (reader, mut writer) = transport.into_split();
    let mut reader = BufReader::new(reader);
    writer.write_all(INITIALIZE_LINE.as_bytes()).await.map_err(|error| error.to_string())?;
    reader.read_line(&mut String::new()).await.map_err(|error| error.to_string())?;
    Ok((reader, writer))
}

/// Returns fewer than `most` faults, and not more than `steps`.
fn planned_faults(rng: &mut Rng, most: usize, steps: usize) -> Vec<Fault> {
    (0..rng.usize(0..most).min(steps)).map(|_| Fault::random(rng)).collect()
}

/// Closes a session and waits for the response.
async fn close_session(
    reader: &mut BufReader<Reader>,
    writer: &mut Writer,
    session: &str,
) -> Result<(), String> {
    let params = json!({"sessionId": session});
    let close = json!({"jsonrpc": "2.0", "id": CLOSE_ID, "method": "session/close", "params": params});
    writer.write_all(format!("{close}\n").as_bytes()).await.map_err(|error| error.to_string())?;
    let mut line = String::new();
    reader.read_line(&mut line).await.map_err(|error| error.to_string())?;
    let response: Result<Value, _> = serde_json::from_str(&line);
    if response.is_ok_and(|response| response["id"] == CLOSE_ID) {
        return Ok(());
    }
    Err(format!("another response to `session/close`: {line}"))
}

/// If the server's process dies, the connection ends, and nothing was doubled or reordered before.
async fn after_death(
    mut link: RemoteLink,
    sides: [&Received; 2],
    faults: &FaultSwitch,
) -> Result<EventCounts, String> {
    while link.state() != LinkState::Ended {
        link.changed().await;
    }
    for numbers in sides.map(numbers_of) {
        if !numbers.iter().copied().eq(1..=numbers.len() as u64) {
            return Err(format!("a side received {numbers:?} before the server died"));
        }
    }
    Ok(faults.counts())
}

async fn schedule(seed: u64, steps: usize) -> Result<EventCounts, String> {
    let mut rng = Rng::with_seed(seed);
    let mut planned = planned_faults(&mut rng, 8, steps);
    if rng.u8(0..6) == 0
        && let Some(first) = planned.first_mut()
    {
        *first = Fault::ServerDeath;
    }
    let options = endpoint_options(&mut rng);
    let agent = SimulatedAgent::new(&mut rng, &[], options);
    let faults = FaultSwitch::default();
    let mut dialer = SimulatedDialer {
        endpoint: Arc::new(agent.endpoint.clone()),
        options: Arc::new(server_options(&mut rng)),
        planned,
        faults: faults.clone(),
        dials: Arc::default(),
        rng: rng.fork(),
    };
    let options = Arc::new(client_options(&mut rng));
    let first = dialer.dial(Duration::MAX).await.map_err(|error| error.to_string())?;
    let connection = start(dialer, first, options);
    exchange(agent, connection, &faults, &mut rng, |received| {
        received.is_sorted_by_key(|(_, number)| *number)
    })
    .await
}

#[test]
fn every_message_arrives_once_and_in_order() {
    // At most half of the usual counts in a hundred schedules.
    let campaign = Campaign {
        test: "duologue-http --lib simulation",
        schedules: 1000,
        minimum: &[
            ("cuts", 30),
            ("half-closes", 4),
            ("truncations", 10),
            ("server deaths", 2),
            ("black holes", 4),
            ("dead links", 4),
            ("abandoned links", 8),
            ("delays", 1000),
            ("resumes", 50),
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
) -> (BufReader<Reader>, Writer, RemoteLink) {
    let mut dialer = SimulatedDialer {
        endpoint: Arc::new(endpoint),
        options: Arc::new(server),
        planned: Vec::new(),
        faults: FaultSwitch::default(),
        dials: Arc::default(),
        rng: Rng::with_seed(1),
    };
    let first = dialer.dial(Duration::MAX).await.expect("a socket");
    let (transport, link) = start(dialer, first, Arc::new(client));
    let (reader, writer) = initialized(transport).await.expect("the response");
    (reader, writer, link)
}

/// Reads `count` messages and returns their numbers.
async fn numbers(reader: &mut BufReader<Reader>, count: u64) -> Result<Vec<u64>, String> {
    let received = Received::new(request_method(&[]));
    // This seed reads without pauses.
    receive(reader, Rng::with_seed(1), count, &received).await?;
    Ok(numbers_of(&received))
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

/// An agent ends while its last lines are in its pipe, because the ring of its client is full.
#[test]
fn the_last_output_of_an_agent_waits_for_a_slow_client() {
    const COUNT: u64 = 100;
    let played = play(async {
        let options = AgentEndpointOptions { ring_bytes: 50_000, ..AgentEndpointOptions::default() };
        let endpoint = AgentEndpoint::with_options(
            |transport| async {
                let (_reader, mut writer) = transport.into_split();
                let answer = json!({"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": 1}});
                let _ = writer.write_all(format!("{answer}\n").as_bytes()).await;
                for number in 1..=COUNT {
                    let _ = writer.write_all(long(number).as_bytes()).await;
                }
            },
            options,
        );
        let server = ServerOptions { window_bytes: 10_000, ..ServerOptions::default() };
        let client = ConnectOptions { inbox_bytes: 10_000, ..ConnectOptions::default() };
        let (mut reader, _writer, _link) = connected(endpoint, server, client).await;
        let mut received = Vec::new();
        while received.len() < COUNT as usize {
            received.extend(numbers(&mut reader, 1).await?);
            sleep(Duration::from_secs(5)).await;
        }
        let rest = reader.read_line(&mut String::new()).await;
        Ok((received, matches!(rest, Ok(0))))
    });
    let (received, has_ended) = played.expect("the client gets everything");
    assert!(received.into_iter().eq(1..=COUNT) && has_ended);
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
