//! Outages before and after the answer to `initialize`, and slow links. The runtime of `play` has a paused clock
//! (`start_paused`).

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::UPGRADE;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse as _;
use tokio::io::{AsyncReadExt as _, DuplexStream, copy, duplex, split};
use tokio::task::AbortHandle;

use super::events::WireListener;
use super::*;
use crate::RemoteTransport;
use crate::client::begin;
use crate::client::dial::{ByteStream, StreamDialer};

const TRANSPORTS: [RemoteTransport; 3] =
    [RemoteTransport::WebSocket, RemoteTransport::Events, RemoteTransport::Auto];

/// The transports, and `Auto` once more with a server that refuses WebSockets.
fn with_fallback() -> impl Iterator<Item = (RemoteTransport, bool)> {
    TRANSPORTS.map(|transport| (transport, true)).into_iter().chain([(RemoteTransport::Auto, false)])
}

/// The connections between a client and a server.
struct Network {
    listener: mpsc::UnboundedSender<DuplexStream>,
    /// The bytes from the server after which the next connections are cut.
    cuts: Mutex<VecDeque<u64>>,
    open: Mutex<Vec<AbortHandle>>,
    refused_until: Mutex<Instant>,
    dials: AtomicU64,
    /// True if connections are neither refused nor opened.
    is_silent: AtomicBool,
    /// True if a connection passes one byte in a millisecond, in each direction.
    is_slow: AtomicBool,
    /// False if the server refuses WebSockets, so that the transport `Auto` uses server-sent events.
    has_sockets: Arc<AtomicBool>,
}

impl Network {
    fn dial(&self) -> Result<Pin<Box<dyn ByteStream>>, Error> {
        self.dials.fetch_add(1, Relaxed);
        let (client, near) = duplex(1 << 16);
        let (far, server) = duplex(1 << 16);
        if Instant::now() < *self.refused_until.lock_unpoisoned() || self.listener.send(server).is_err() {
            let error = std::io::ErrorKind::ConnectionRefused.into();
            return Err(Error::Unreachable { address: "simulated".into(), error });
        }
        let cut = self.cuts.lock_unpoisoned().pop_front().unwrap_or(u64::MAX);
        let is_slow = self.is_slow.load(Relaxed);
        let relaying = tokio::spawn(async move {
            let (near_read, near_write) = split(near);
            let (far_read, far_write) = split(far);
            tokio::select! {
                () = pass(far_read.take(cut), near_write, is_slow) => {}
                () = pass(near_read, far_write, is_slow) => {}
            }
        });
        self.open.lock_unpoisoned().push(relaying.abort_handle());
        Ok(Box::pin(client))
    }

    /// Cuts all connections, and refuses others for this time.
    fn fail_for(&self, time: Duration) {
        *self.refused_until.lock_unpoisoned() = Instant::now() + time;
        self.open.lock_unpoisoned().drain(..).for_each(|connection| connection.abort());
    }
}

/// Passes the bytes of one direction.
async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, is_slow: bool) {
    if !is_slow {
        _ = copy(&mut from, &mut to).await;
        return;
    }
    let mut byte = [0];
    while from.read_exact(&mut byte).await.is_ok() && to.write_all(&byte).await.is_ok() {
        sleep(Duration::from_millis(1)).await;
    }
}

/// Returns a network to a server, whose agent answers all requests, and the methods that the agent has received.
fn network(server: ServerOptions) -> (Arc<Network>, Arc<Mutex<Vec<String>>>) {
    network_of(server, || std::future::ready(()))
}

/// Returns a network to a server, whose agent waits before each answer.
fn network_of<W: Future<Output = ()> + Send + 'static>(
    server: ServerOptions,
    wait: impl Fn() -> W + Clone + Send + Sync + 'static,
) -> (Arc<Network>, Arc<Mutex<Vec<String>>>) {
    let received = Arc::<Mutex<Vec<String>>>::default();
    let methods = received.clone();
    let endpoint = AgentEndpoint::new(move |transport| {
        let (methods, wait) = (methods.clone(), wait.clone());
        async move {
            let (reader, mut writer) = transport.into_split();
            let mut lines = BufReader::new(reader).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let request: Value = serde_json::from_str(&line).expect("a message");
                let method = request["method"].as_str().expect("a method");
                methods.lock_unpoisoned().push(method.to_owned());
                wait().await;
                let result = match method {
                    "session/new" => json!({"sessionId": "s"}),
                    _ => json!({"protocolVersion": 1}),
                };
                let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
                let _ = writer.write_all(format!("{answer}\n").as_bytes()).await;
            }
        }
    });
    let (ends, listener) = mpsc::unbounded_channel();
    let has_sockets = Arc::new(AtomicBool::new(true));
    let allows_sockets = has_sockets.clone();
    let without_sockets = from_fn(move |request: Request, next: Next| {
        let is_refused = request.headers().contains_key(UPGRADE) && !allows_sockets.load(Relaxed);
        async move { if is_refused { StatusCode::NOT_FOUND.into_response() } else { next.run(request).await } }
    });
    let router = crate::router(endpoint, server).layer(without_sockets);
    tokio::spawn(async move { axum::serve(WireListener(listener), router).await });
    let network = Network {
        listener: ends,
        cuts: Mutex::default(),
        open: Mutex::default(),
        refused_until: Mutex::new(Instant::now()),
        dials: AtomicU64::new(0),
        is_silent: AtomicBool::new(false),
        is_slow: AtomicBool::new(false),
        has_sockets,
    };
    (Arc::new(network), received)
}

async fn connect(network: &Arc<Network>, options: ConnectOptions) -> Result<(Transport, RemoteLink), Error> {
    let mut dialer = StreamDialer::new("http://localhost/acp", &options)?;
    let network = network.clone();
    dialer.simulated = Some(Box::new(move || {
        let (dialed, is_silent) = (network.dial(), network.is_silent.load(Relaxed));
        Box::pin(async move {
            if is_silent && dialed.is_ok() {
                std::future::pending::<()>().await;
            }
            dialed
        })
    }));
    begin(dialer, Arc::new(options)).await
}

fn over(transport: RemoteTransport) -> ConnectOptions {
    ConnectOptions { transport, ..ConnectOptions::default() }
}

async fn id_of_next(reader: &mut BufReader<Reader>) -> Result<Value, String> {
    let mut line = String::new();
    reader.read_line(&mut line).await.map_err(|error| error.to_string())?;
    let message: Value = serde_json::from_str(&line).map_err(|error| format!("{error}: {line}"))?;
    Ok(message["id"].clone())
}

async fn write(writer: &mut Writer, text: &str) -> Result<(), String> {
    writer.write_all(text.as_bytes()).await.map_err(|error| error.to_string())
}

#[test]
fn a_connection_that_is_lost_before_the_answer_to_initialize_begins_again() {
    const REQUESTS: &str = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{}}\n\
                            {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"_m\",\"params\":{}}\n";
    for ((transport, has_sockets), cut) in
        with_fallback().flat_map(|transport| (0..900).step_by(30).map(move |cut| (transport, cut)))
    {
        let played = play(async {
            let (network, received) = network(ServerOptions::default());
            network.has_sockets.store(has_sockets, Relaxed);
            network.cuts.lock_unpoisoned().extend([cut, 0, cut / 2]);
            let connected = connect(&network, over(transport)).await;
            let (transport, link) = connected.map_err(|error| error.to_string())?;
            let (reader, mut writer) = transport.into_split();
            let mut reader = BufReader::new(reader);
            write(&mut writer, REQUESTS).await?;
            let ids = [id_of_next(&mut reader).await?, id_of_next(&mut reader).await?];
            let count = received.lock_unpoisoned().iter().filter(|method| *method == "_m").count();
            Ok((ids, count, link.connection_id().is_empty()))
        });
        let row = format!("{transport:?}, sockets: {has_sockets}, after {cut} bytes");
        assert_eq!(played, Ok(([json!(0), json!(1)], 1, false)), "{row}");
    }
}

#[test]
fn a_byte_in_a_millisecond_is_no_lost_connection() {
    const REQUESTS: [&str; 3] = [
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/new\",\"params\":{}}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"session/prompt\",\"params\":{\"sessionId\":\"s\"}}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"_m\",\"params\":{}}\n",
    ];
    for (transport, has_sockets) in with_fallback() {
        let played = play(async {
            let (network, received) = network(ServerOptions::default());
            network.has_sockets.store(has_sockets, Relaxed);
            network.is_slow.store(true, Relaxed);
            let connected = connect(&network, over(transport)).await;
            let (transport, link) = connected.map_err(|error| error.to_string())?;
            let (mut reader, mut writer) = initialized(transport).await?;
            let mut ids = Vec::new();
            for request in REQUESTS {
                write(&mut writer, request).await?;
                ids.push(id_of_next(&mut reader).await?);
            }
            Ok((ids, received.lock_unpoisoned().clone(), link.resumes()))
        });
        let methods = ["initialize", "session/new", "session/prompt", "_m"].map(str::to_owned).to_vec();
        let expected = Ok((vec![json!(1), json!(2), json!(3)], methods, 0));
        assert_eq!(played, expected, "{transport:?}, sockets: {has_sockets}");
    }
}

#[test]
fn attempts_to_resume_last_as_long_as_the_server_keeps_the_connection() {
    for (transport, has_sockets) in with_fallback() {
        for (minutes, is_resumed) in [(9, true), (30, false)] {
            let played = play(async {
                let (network, _) = network(ServerOptions::default());
                network.has_sockets.store(has_sockets, Relaxed);
                let connected = connect(&network, over(transport)).await;
                let (transport, _link) = connected.map_err(|error| error.to_string())?;
                let (mut reader, mut writer) = initialized(transport).await?;
                network.fail_for(Duration::from_secs(60 * minutes));
                write(&mut writer, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"_m\",\"params\":{}}\n")
                    .await?;
                let next = id_of_next(&mut reader).await;
                Ok((next, network.dials.load(Relaxed)))
            });
            let (next, dials) = played.expect("it ends");
            match &next {
                Ok(id) => assert!(is_resumed && *id == 1, "{transport:?} {id}"),
                Err(error) => assert!(!is_resumed && error.contains("was not resumed in 600"), "{error}"),
            }
            assert!(dials > 30, "{transport:?} {dials}");
        }
    }
}

#[test]
fn a_server_that_does_not_listen_yet_is_waited_for() {
    for transport in TRANSPORTS {
        for (seconds, open_time, is_reached) in [(20, 30, true), (40, 30, false), (1, 0, false)] {
            let notices = Arc::<AtomicU64>::default();
            let played = play(async {
                let (network, _) = network(ServerOptions::default());
                network.fail_for(Duration::from_secs(seconds));
                let counter = notices.clone();
                let options = ConnectOptions {
                    open_time: Duration::from_secs(open_time),
                    on_retry: Some(Arc::new(move |_| _ = counter.fetch_add(1, Relaxed))),
                    ..over(transport)
                };
                let connected = connect(&network, options).await;
                Ok((connected.map(drop), network.dials.load(Relaxed)))
            });
            let (connected, dials) = played.expect("it ends");
            assert_eq!(connected.is_ok(), is_reached, "{transport:?} {connected:?}");
            assert!(matches!(connected, Ok(()) | Err(Error::Unreachable { .. })), "{connected:?}");
            assert_eq!(notices.load(Relaxed) + 1, dials, "{transport:?}");
            assert_eq!(dials == 1, open_time == 0, "{transport:?} {dials}");
        }
    }
}

/// Three seconds are the time for attempts, and the server does not answer them.
#[test]
fn an_attempt_does_not_outlast_the_time_for_attempts() {
    let limit = Duration::from_secs(3);
    for transport in TRANSPORTS {
        let options = move || ConnectOptions { open_time: limit, resume_time: limit, ..over(transport) };
        // The attempt that begins at the end of the time has another second.
        for (refused, expected) in [(0, 3), (3, 4)] {
            let played = play(async {
                let (network, _) = network(ServerOptions::default());
                network.fail_for(Duration::from_secs(refused));
                network.is_silent.store(true, Relaxed);
                let started = Instant::now();
                let connected = connect(&network, options()).await.map(drop);
                Ok((connected, started.elapsed().as_secs()))
            });
            let (connected, seconds) = played.expect("it ends");
            assert!(matches!(connected, Err(Error::Timeout { .. })), "{transport:?} {connected:?}");
            assert_eq!(seconds, expected, "{transport:?}");
        }
        for is_initialized in [false, true] {
            let played = play(async {
                let (network, _) = network(ServerOptions::default());
                let connected = connect(&network, options()).await.map_err(|error| error.to_string())?;
                let (transport, link) = connected;
                let (mut reader, _writer) = match is_initialized {
                    true => initialized(transport).await?,
                    false => {
                        let (reader, mut writer) = transport.into_split();
                        write(&mut writer, INITIALIZE_LINE).await?;
                        (BufReader::new(reader), writer)
                    }
                };
                network.is_silent.store(true, Relaxed);
                network.fail_for(Duration::ZERO);
                let started = Instant::now();
                let ended = id_of_next(&mut reader).await;
                let seconds = started.elapsed().as_secs();
                sleep(limit).await;
                Ok((ended, seconds, link.outage().as_secs(), link.state()))
            });
            let (ended, seconds, outage, state) = played.expect("it ends");
            assert!(ended.is_err(), "{transport:?} {ended:?}");
            assert_eq!((seconds, state), (3, LinkState::Ended), "{transport:?} {is_initialized}");
            assert!(outage == 3 || !is_initialized, "{transport:?} {outage}");
        }
    }
}

/// The server reads the pings, and its agent does not answer.
#[test]
fn an_answer_to_initialize_has_a_limit() {
    for transport in TRANSPORTS {
        let played = play(async {
            let (network, _) = network_of(ServerOptions::default(), std::future::pending);
            let mut options = over(transport);
            options.initialize_timeout = Duration::from_secs(20);
            options.open_time = Duration::from_secs(1);
            let connected = connect(&network, options).await.map_err(|error| error.to_string())?;
            let started = Instant::now();
            let ended = initialized(connected.0).await.map(drop);
            Ok((ended, started.elapsed().as_secs()))
        });
        let (ended, seconds) = played.expect("it ends");
        let error = ended.expect_err("there is no answer");
        assert!(
            error.contains("within 20s") && (20..=22).contains(&seconds),
            "{transport:?} {seconds} {error}"
        );
    }
}

#[test]
fn the_second_transport_of_an_attempt_has_the_rest_of_its_time() {
    let played = play(async {
        let options = ConnectOptions { open_time: Duration::from_secs(3), ..ConnectOptions::default() };
        let mut dialer =
            StreamDialer::new("http://localhost/acp", &options).map_err(|error| error.to_string())?;
        let dials = AtomicU64::new(0);
        dialer.simulated = Some(Box::new(move || {
            let is_second = dials.fetch_add(1, Relaxed) > 0;
            Box::pin(async move {
                if is_second {
                    std::future::pending::<()>().await;
                }
                let (client, mut server) = duplex(1 << 16);
                tokio::spawn(async move {
                    sleep(Duration::from_secs(2)).await;
                    let _ = server.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await;
                });
                Ok(Box::pin(client) as Pin<Box<dyn ByteStream>>)
            })
        }));
        let started = Instant::now();
        let connected = begin(dialer, Arc::new(options)).await.map(drop);
        Ok((connected, started.elapsed().as_secs()))
    });
    let (connected, seconds) = played.expect("it ends");
    assert!(matches!(connected, Err(Error::Timeout { .. })) && seconds == 3, "{seconds} {connected:?}");
}

#[test]
fn a_refusal_of_a_new_connection_is_final() {
    for transport in TRANSPORTS {
        let played = play(async {
            let token = duologue_rpc::SecretText::from("a token");
            let server = ServerOptions { token: Some(token), ..ServerOptions::default() };
            let (network, _) = network(server);
            let connected = match connect(&network, over(transport)).await {
                // Over HTTP with SSE the first request is `initialize`.
                Ok((transport, _)) => initialized(transport).await.map(drop),
                Err(error) => Err(error.to_string()),
            };
            Ok((connected, network.dials.load(Relaxed)))
        });
        let (connected, dials) = played.expect("it ends");
        let error = connected.expect_err("it has no token");
        assert!(error.contains("status 401") && dials == 1, "{transport:?} {dials} {error}");
    }
}
