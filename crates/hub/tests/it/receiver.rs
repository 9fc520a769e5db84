//! A receiver of posts on a loopback address, and a resolver that a test plays.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use duologue_hub::{OutboundClient, OutboundSettings, ResolveFuture, Resolver};
use duologue_rpc::Lock as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A post that was received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

type Answer = Box<dyn Fn(usize, &Received) -> Response + Send + Sync>;

struct Inner {
    received: Mutex<Vec<Received>>,
    answer: Answer,
}

/// A receiver whose responses depend on the number of the post.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    inner: Arc<Inner>,
    _server: JoinSet<()>,
}

impl Receiver {
    pub(crate) async fn start(answer: impl Fn(usize, &Received) -> Response + Send + Sync + 'static) -> Self {
        Self::on("127.0.0.1:0", answer).await
    }

    pub(crate) async fn on(
        address: &str,
        answer: impl Fn(usize, &Received) -> Response + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        let inner = Arc::new(Inner { received: Mutex::default(), answer: Box::new(answer) });
        let app = axum::Router::new().fallback(receive).with_state(inner.clone());
        let mut server = JoinSet::new();
        server.spawn(async move { drop(axum::serve(listener, app).await) });
        Receiver { address, inner, _server: server }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.inner.received.lock_unpoisoned().clone()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

async fn receive(State(inner): State<Arc<Inner>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let received = Received { path: parts.uri.to_string(), headers: parts.headers, body };
    let number = {
        let mut all = inner.received.lock_unpoisoned();
        all.push(received.clone());
        all.len() - 1
    };
    // An answer may wait for the test, which no worker of the runtime must do: a waiting worker keeps the tasks that it
    // was about to run.
    tokio::task::spawn_blocking(move || (inner.answer)(number, &received)).await.expect("an answer")
}

/// Answers every post with 204.
pub(crate) fn accept(_: usize, _: &Received) -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// Starts a server that reads the head of a request, writes bytes, repeats the last part of them as long as it can, and
/// keeps the connection open.
pub(crate) async fn raw_server(
    first: Vec<u8>,
    repeated: Vec<u8>,
    pause: std::time::Duration,
) -> (SocketAddr, JoinSet<u64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    let mut server = JoinSet::new();
    server.spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut read = [0; 4096];
        let _ = stream.read(&mut read).await;
        let mut written = 0;
        if stream.write_all(&first).await.is_err() {
            return written;
        }
        loop {
            if repeated.is_empty() {
                // Until the client closes the connection.
                while stream.read(&mut read).await.is_ok_and(|count| count > 0) {}
                return written;
            }
            if stream.write_all(&repeated).await.is_err() {
                return written;
            }
            written += repeated.len() as u64;
            tokio::time::sleep(pause).await;
        }
    });
    (address, server)
}

/// A resolver with the answers of a test, the last of which is repeated. It counts the look-ups.
#[derive(Clone, Default)]
pub(crate) struct PlayedResolver {
    answers: Arc<Mutex<HashMap<String, Vec<Vec<IpAddr>>>>>,
    pub(crate) lookups: Arc<Mutex<Vec<String>>>,
}

impl PlayedResolver {
    pub(crate) fn name(self, name: &str, answers: &[&[&str]]) -> Self {
        let parsed = answers
            .iter()
            .map(|answer| answer.iter().map(|address| address.parse().expect("an address")).collect());
        self.answers.lock_unpoisoned().insert(name.to_owned(), parsed.collect());
        self
    }
}

impl Resolver for PlayedResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> ResolveFuture<'a> {
        self.lookups.lock_unpoisoned().push(name.to_owned());
        let mut answers = self.answers.lock_unpoisoned();
        let answer = match answers.get_mut(name) {
            Some(answers) if answers.len() > 1 => Ok(answers.remove(0)),
            Some(answers) => Ok(answers.first().cloned().unwrap_or_default()),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        Box::pin(async move { answer })
    }
}

/// Returns a client that may reach this machine.
pub(crate) fn loopback_client() -> OutboundClient {
    OutboundClient::new(loopback_settings())
}

pub(crate) fn loopback_settings() -> OutboundSettings {
    let mut settings = OutboundSettings::default();
    settings.allow_loopback = true;
    settings
}
