//! The same over HTTP with SSE: every message arrives once, and in the order of its stream.

use std::collections::BTreeMap;
use std::io;

use axum::serve::Listener;

use super::*;
use crate::RemoteTransport;
use crate::client::dial::{ByteStream, StreamDialer};
use crate::client::events;

/// The sessions of the messages.
const SESSIONS: [&str; 3] = ["s0", "s1", "s2"];

/// The server's ends of simulated connections.
pub(super) struct WireListener<E>(pub(super) mpsc::UnboundedReceiver<E>);

impl<E: AsyncRead + AsyncWrite + Send + Unpin + 'static> Listener for WireListener<E> {
    type Io = E;
    type Addr = ();

    async fn accept(&mut self) -> (E, ()) {
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
) -> Result<StreamDialer, Error> {
    let mut dialer = StreamDialer::new("http://localhost/acp", options)?;
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

async fn schedule(seed: u64, steps: usize) -> Result<EventCounts, String> {
    let mut rng = Rng::with_seed(seed);
    let planned = planned_faults(&mut rng, 16, steps);
    // Written events are kept up to this limit, and more would be lost than the buffers on the way can have.
    let options =
        AgentEndpointOptions { ring_bytes: 2 << 20, ring_frames: 100_000, ..endpoint_options(&mut rng) };
    let agent = SimulatedAgent::new(&mut rng, &SESSIONS, options);
    let (ends, listener) = mpsc::unbounded_channel();
    let router = crate::router(agent.endpoint.clone(), server_options(&mut rng));
    let serving = tokio::spawn(async move { axum::serve(WireListener(listener), router).await });
    let faults = FaultSwitch::default();
    let options = ConnectOptions { transport: RemoteTransport::Events, ..client_options(&mut rng) };
    let dialer = dialer(rng.fork(), planned, &faults, &options, ends).map_err(|error| error.to_string())?;
    let first = dialer.http(Duration::MAX).await.map_err(|error| error.to_string())?;
    let connection = events::start(dialer, first, Arc::new(options));
    let tally = exchange(agent, connection, &faults, &mut rng, is_in_order).await;
    serving.abort();
    tally
}

/// Returns true if the messages of each stream are in order.
fn is_in_order(received: &[(String, u64)]) -> bool {
    let mut last = BTreeMap::new();
    received.iter().all(|(stream, number)| last.insert(stream, number) < Some(number))
}

#[test]
fn every_message_of_events_arrives_once_and_in_the_order_of_its_stream() {
    let campaign = Campaign {
        test: "duologue-http --lib simulation::events",
        schedules: 200,
        minimum: &[
            ("cuts", 30),
            ("half-closes", 4),
            ("truncations", 10),
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
