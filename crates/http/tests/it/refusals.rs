//! A gateway in front of a server that refuses requests, for a while or for good.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use duologue_http::{Error, RemoteLink, RemoteTransport, ServerOptions, connect};
use duologue_rpc::Lock as _;
use duologue_test_support::in_time;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;

use crate::setup::{Lines, echo_endpoint, quick, server};

/// The method of the first request of a connection, and the statuses with which the next ones are refused.
type Refusals = Arc<Mutex<(&'static str, VecDeque<u16>)>>;

/// A relay of connections that a test cuts. It answers the first request of some in the place of the server.
struct RefusingRelay {
    address: SocketAddr,
    cut: broadcast::Sender<()>,
    refusals: Refusals,
}

impl RefusingRelay {
    async fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        let (cut, refusals) = (broadcast::Sender::new(1), Refusals::default());
        let (cuts, refused) = (cut.clone(), refusals.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (mut cut, refusals) = (cuts.subscribe(), refused.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        _ = pass(client, to, &refusals) => {}
                        _ = cut.recv() => {}
                    }
                });
            }
        });
        RefusingRelay { address, cut, refusals }
    }

    /// Cuts all connections, and refuses the next ones that begin with a method.
    fn refuse(&self, method: &'static str, statuses: impl IntoIterator<Item = u16>) {
        *self.refusals.lock_unpoisoned() = (method, statuses.into_iter().collect());
        let _ = self.cut.send(());
    }
}

/// Passes a connection on to the server, or refuses its first request.
async fn pass(
    mut client: TcpStream,
    to: SocketAddr,
    refusals: &Mutex<(&str, VecDeque<u16>)>,
) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if client.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let status = {
        let (method, statuses) = &mut *refusals.lock_unpoisoned();
        if head.starts_with(method.as_bytes()) { statuses.pop_front() } else { None }
    };
    if let Some(status) = status {
        let answer = format!("HTTP/1.1 {status} No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
        client.write_all(answer.as_bytes()).await?;
        // A socket that is closed with unread bytes is reset, and the answer may be lost.
        tokio::io::copy(&mut client, &mut tokio::io::sink()).await?;
        return Ok(());
    }
    let mut server = TcpStream::connect(to).await?;
    server.write_all(&head).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// The transports, each with a method of its requests behind the first one.
const REQUESTS: [(RemoteTransport, &str); 3] = [
    (RemoteTransport::WebSocket, "GET"),
    (RemoteTransport::Events, "GET"),
    (RemoteTransport::Events, "POST"),
];

/// Connects a client through a relay to a server.
async fn client(transport: RemoteTransport) -> (RefusingRelay, Lines, RemoteLink) {
    let relay = RefusingRelay::new(server(echo_endpoint(), ServerOptions::default()).await).await;
    let mut options = quick();
    options.transport = transport;
    let url = format!("http://{}/acp", relay.address);
    let (transport, link) = connect(&url, options).await.expect("a connection");
    let mut lines = Lines::new(transport);
    lines.request(0, "initialize", json!({})).await;
    (relay, lines, link)
}

#[tokio::test]
async fn a_lost_connection_is_tried_again_as_long_as_a_gateway_is_overloaded() {
    for (transport, method) in REQUESTS {
        in_time(async {
            let (relay, mut lines, link) = client(transport).await;
            for (id, status) in (1..).zip([502, 503, 504, 429]) {
                let resumes = link.resumes();
                relay.refuse(method, [status, status]);
                let (answer, _) = lines.request(id, "echo", json!({"status": status})).await;
                assert_eq!(answer["result"]["status"], status, "{transport:?} {method}: {answer}");
                while link.resumes() == resumes || !relay.refusals.lock_unpoisoned().1.is_empty() {
                    tokio::task::yield_now().await;
                }
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_lost_connection_that_is_forbidden_has_ended() {
    for (transport, method) in REQUESTS {
        for status in [401, 403] {
            in_time(async {
                let (relay, mut lines, link) = client(transport).await;
                relay.refuse(method, [status]);
                lines.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "echo"})).await;
                assert_eq!(lines.next().await, None, "{transport:?} {method}");
                let error = lines.error().await;
                assert!(
                    matches!(&error, Some(Error::Refused { status: found, message }) if *found == status && message == "no"),
                    "{transport:?} {method}: {error:?}"
                );
                assert_eq!(link.state(), duologue_http::LinkState::Ended);
            })
            .await;
        }
    }
}
