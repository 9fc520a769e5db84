//! The life of a served connection: its result, its tap, and the answer to lines that are not messages.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll};

use duologue_agent::schema::Implementation;
use duologue_agent::{Agent, Error, Limits, Prompt, Result, Server, StopReason, Transport, Turn, serve};
use duologue_rpc::{Closed, Direction, Tap, TappedFrame};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, ReadBuf};

use duologue_test_support::{Wire, in_time};

struct Idle;

impl Agent for Idle {
    fn info(&self) -> Option<Implementation> {
        Some(Implementation::new("idle", "7"))
    }

    async fn prompt(&self, turn: &Turn, _: Prompt) -> Result<StopReason> {
        turn.cancelled().await;
        Ok(StopReason::EndTurn)
    }
}

/// An input that fails.
struct Broken(io::ErrorKind);

impl AsyncRead for Broken {
    fn poll_read(self: Pin<&mut Self>, _: &mut TaskContext<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(self.0.into()))
    }
}

/// A client that leaves is no error, however its pipes report it.
#[tokio::test(start_paused = true)]
async fn a_client_that_disconnects_is_no_error() {
    in_time(async {
        let (transport, mut client) = Wire::Memory.scripted();
        let serving = tokio::spawn(serve(Idle, transport));
        client.initialize(json!({})).await;
        client.close().await;
        serving.await.expect("no panic").expect("the end of the input");

        use io::ErrorKind::{BrokenPipe, ConnectionReset, PermissionDenied, UnexpectedEof};
        for kind in [BrokenPipe, ConnectionReset, UnexpectedEof, PermissionDenied] {
            let served = serve(Idle, Transport::new(Broken(kind), tokio::io::sink())).await;
            match served {
                Ok(()) => assert_ne!(kind, PermissionDenied),
                Err(Error::Connection(duologue_rpc::Error::Closed(Closed::Io(error)))) => {
                    assert_eq!((error.kind(), kind), (PermissionDenied, PermissionDenied));
                }
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_is_an_error() {
    in_time(async {
        let (transport, mut client) = Wire::Memory.scripted();
        let mut limits = Limits::default();
        limits.frame_bytes = 1000;
        let serving = tokio::spawn(Server::new(Idle).limits(limits).serve(transport));
        client.write("x".repeat(1001)).await;
        let served = serving.await.expect("no panic");
        assert!(
            matches!(
                &served,
                Err(Error::Connection(duologue_rpc::Error::Closed(Closed::FrameTooLarge { limit: 1000 })))
            ),
            "{served:?}"
        );
    })
    .await;
}

/// Keeps the direction and the method of every message.
#[derive(Default)]
struct Log(Mutex<Vec<(Direction, Value)>>);

impl Tap for Log {
    fn frame(&self, frame: TappedFrame<'_>) {
        let line: Value = serde_json::from_slice(frame.bytes).expect("a message");
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((frame.direction, line["id"].clone()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_tap_sees_both_directions() {
    in_time(async {
        let (transport, mut client) = Wire::Memory.scripted();
        let log = Arc::new(Log::default());
        tokio::spawn(Server::new(Idle).tap(log.clone()).serve(transport));
        let answer = client.initialize(json!({})).await;
        assert_eq!(answer["result"]["agentInfo"], json!({"name": "idle", "version": "7"}));
        let id = answer["id"].clone();
        let seen = std::mem::take(&mut *log.0.lock().unwrap_or_else(PoisonError::into_inner));
        assert_eq!(seen, [(Direction::Incoming, id.clone()), (Direction::Outgoing, id)]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn lines_that_are_not_messages_are_answered() {
    in_time(async {
        let (transport, mut client) = Wire::Memory.scripted();
        tokio::spawn(serve(Idle, transport));
        for (line, code) in [("npm WARN", -32700), ("[]", -32600)] {
            client.send(line).await;
            let answer = client.next_message().await;
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(code)), "{answer}");
        }
        client.initialize(json!({})).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_future_ends_the_connection() {
    in_time(async {
        let (transport, mut client) = Wire::Memory.scripted();
        let serving = tokio::spawn(serve(Idle, transport));
        client.initialize(json!({})).await;
        let session = client.new_session().await;
        let prompt = client.prompt(&session, "").await;
        client.probe().await;
        serving.abort();
        let answer = client.next_message().await;
        assert_eq!((&answer["id"], &answer["result"]["stopReason"]), (&json!(prompt), &json!("cancelled")));
        assert!(client.next_line().await.is_none(), "the connection is still open");
    })
    .await;
}
