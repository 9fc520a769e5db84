//! The same over HTTP with SSE: every message arrives once, and in the order of its stream.

use std::collections::BTreeMap;
use std::io;

use axum::serve::Listener;
use tokio::sync::mpsc;

use super::*;
use crate::RemoteTransport;
use crate::client::dial::{ByteStream, TcpDialer};
use crate::client::events;

/// The sessions of the messages.
const SESSIONS: [&str; 3] = ["s0", "s1", "s2"];

/// The server's ends of simulated connections.
struct WireListener(mpsc::UnboundedReceiver<WireEnd>);

impl Listener for WireListener {
    type Io = WireEnd;
    type Addr = ();

    async fn accept(&mut self) -> (WireEnd, ()) {
        match self.0.recv().await {
            Some(end) => (end, ()),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a dialer of simulated connections to a server.
fn dialer(
    rng: Rng,
    planned: Vec<Fault>,
    faults: &FaultSwitch,
    options: &ConnectOptions,
    server: mpsc::UnboundedSender<WireEnd>,
) -> Result<TcpDialer, Error> {
    let mut dialer = TcpDialer::new("http://localhost/acp", options)?;
    let (state, faults) = (Arc::new(Mutex::new((rng, planned))), faults.clone());
    dialer.simulated = Some(Box::new(move || {
        let (state, faults, server) = (state.clone(), faults.clone(), server.clone());
        Box::pin(async move {
            let pause = state.lock_unpoisoned().0.u64(0..200);
            sleep(Duration::from_millis(pause)).await;
            let mut state = state.lock_unpoisoned();
            let (rng, planned) = &mut *state;
            // The first requests cannot be repeated.
            let is_armed = faults.is_armed.load(Relaxed);
            let (fault, refused) = match is_armed {
                true => (planned.pop(), !planned.is_empty() && rng.u8(0..5) == 0),
                false => (None, false),
            };
            let (client, end) = wire(rng, fault, &faults);
            if refused || server.send(end).is_err() {
                let error = io::ErrorKind::ConnectionRefused.into();
                return Err(Error::Unreachable { address: "simulated".into(), error });
            }
            Ok(Box::pin(client) as std::pin::Pin<Box<dyn ByteStream>>)
        })
    }));
    Ok(dialer)
}

/// Returns the stream of a message.
fn stream(message: &Value) -> String {
    message["params"]["sessionId"].as_str().unwrap_or_default().to_owned()
}

/// The agent: the client opens the sessions first.
async fn events_agent(
    transport: Transport,
    rng: Rng,
    counts: (u64, u64),
    numbers: Arc<Mutex<Vec<u64>>>,
) -> Result<(), String> {
    let (reader, writer) = transport.into_split();
    let mut reader = BufReader::new(reader);
    let mut first = String::new();
    reader.read_line(&mut first).await.map_err(|error| error.to_string())?;
    let mut writer = writer;
    let answer = json!({"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": 1}});
    writer.write_all(format!("{answer}\n").as_bytes()).await.map_err(|error| error.to_string())?;
    for _ in SESSIONS {
        reader.read_line(&mut String::new()).await.map_err(|error| error.to_string())?;
    }
    let mut rng = rng.clone();
    let (sending, receiving) = (rng.fork(), rng.fork());
    let (sent, received) = tokio::join!(
        send(&mut writer, sending, 1..=counts.0),
        receive(&mut reader, receiving, counts.1, &numbers)
    );
    sent.and(received)?;
    let mut line = String::new();
    match reader.read_line(&mut line).await {
        Ok(0) => Ok(()),
        Ok(_) => Err(format!("one message too many: {line}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads messages and records their numbers by stream.
async fn receive_streams(
    reader: &mut BufReader<Reader>,
    mut rng: Rng,
    count: u64,
    streams: &Mutex<BTreeMap<String, Vec<u64>>>,
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
        let number = message["n"].as_u64().ok_or_else(|| format!("a stray message: {line}"))?;
        streams.lock_unpoisoned().entry(stream(&message)).or_default().push(number);
        if slowness == 0 && rng.u8(0..10) == 0 {
            sleep(Duration::from_millis(rng.u64(0..60_000))).await;
        }
    }
    Ok(())
}

async fn schedule(seed: u64, steps: usize) -> Result<EventCounts, String> {
    let mut rng = Rng::with_seed(seed);
    let planned: Vec<Fault> = (0..rng.usize(0..16).min(steps)).map(|_| Fault::random(&mut rng)).collect();
    let counts = (rng.u64(0..80), rng.u64(0..80));
    let (at_agent, at_client) =
        (Arc::<Mutex<Vec<u64>>>::default(), Mutex::<BTreeMap<_, Vec<u64>>>::default());
    let (ended, mut has_ended) = mpsc::unbounded_channel();
    let (agent_rng, agent_numbers) = (rng.fork(), at_agent.clone());
    let endpoint = AgentEndpoint::with_options(
        move |transport| {
            let (rng, numbers, ended) = (agent_rng.clone(), agent_numbers.clone(), ended.clone());
            async move {
                let _ = ended.send(events_agent(transport, rng, counts, numbers).await);
            }
        },
        // Written events are kept up to this limit, and more would be lost than the buffers on the way can have.
        AgentEndpointOptions { ring_bytes: 2 << 20, ring_frames: 100_000, ..endpoint_options(&mut rng) },
    );
    let (ends, listener) = mpsc::unbounded_channel();
    let router = crate::router(endpoint.clone(), server_options(&mut rng));
    let serving = tokio::spawn(async move { axum::serve(WireListener(listener), router).await });
    let faults = FaultSwitch::default();
    let options = ConnectOptions { transport: RemoteTransport::Events, ..client_options(&mut rng) };
    let dialer = dialer(rng.fork(), planned, &faults, &options, ends).map_err(|error| error.to_string())?;
    let first = dialer.http().await.map_err(|error| error.to_string())?;
    let (transport, mut link) = events::start(dialer, first, Arc::new(options));
    let (reader, mut writer) = transport.into_split();
    let mut reader = BufReader::new(reader);
    let initialize = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{}}\n";
    writer.write_all(initialize.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut line = String::new();
    reader.read_line(&mut line).await.map_err(|error| error.to_string())?;
    faults.is_armed.store(true, Relaxed);
    for session in SESSIONS {
        let open = json!({"jsonrpc": "2.0", "method": "open", "params": {"sessionId": session}});
        writer.write_all(format!("{open}\n").as_bytes()).await.map_err(|error| error.to_string())?;
    }
    let mut send_rng = rng.fork();
    let exchange = async {
        tokio::join!(
            send(&mut writer, send_rng.fork(), 1..=counts.1),
            receive_streams(&mut reader, rng.fork(), counts.0, &at_client)
        )
    };
    let Ok((sent, received)) = tokio::time::timeout(Duration::from_secs(2500), exchange).await else {
        let (client, agent) = (at_client.lock_unpoisoned().clone(), at_agent.lock_unpoisoned().len());
        return Err(format!(
            "the client waits with {client:?} of {} and the agent with {agent} of {}; {:?}, {} resumes, {:?}",
            counts.0,
            counts.1,
            link.state(),
            link.resumes(),
            faults.happened.lock_unpoisoned()
        ));
    };
    let streams = at_client.lock_unpoisoned().clone();
    sent.and(received).map_err(|why| format!("client: {why}, after {streams:?}"))?;
    let mut numbers: Vec<u64> = streams.values().flatten().copied().collect();
    numbers.sort_unstable();
    if !numbers.into_iter().eq(1..=counts.0) || streams.values().any(|numbers| !numbers.is_sorted()) {
        return Err(format!("the client received {streams:?} of {}", counts.0));
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
    serving.abort();
    let mut tally = EventCounts::default();
    for fault in faults.happened.lock_unpoisoned().iter() {
        tally.add(fault.name(), 1);
    }
    tally.add("resumes", link.resumes());
    tally.add("messages", counts.0 + counts.1);
    Ok(tally)
}

#[test]
fn every_message_of_events_arrives_once_and_in_the_order_of_its_stream() {
    let campaign = Campaign {
        test: "duologue-http --lib simulation::events",
        schedules: 40,
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
