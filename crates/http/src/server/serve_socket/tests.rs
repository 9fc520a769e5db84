//! Tests of the window of a socket, and of the frames that are sent at once.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::*;
use crate::server::endpoint::{IncomingFrame, OutgoingFrame, StreamRequest};
use crate::wire::{StreamId, StreamPosition};

/// The bytes of each frame of a [`ReadySource`].
const FRAME_BYTES: usize = 1024;

/// An event of a socket or its source, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketEvent {
    /// A frame was sent, with this number.
    Frame(usize),
    /// A ping was sent behind this number of frames.
    Ping(u64),
    /// The source learned that this number of frames has arrived.
    Confirmed(u64),
    Flush,
}

type SocketEvents = Arc<Mutex<Vec<SocketEvent>>>;

/// A source whose frames are all there, and which then fails.
struct ReadySource {
    next: usize,
    count: usize,
    events: SocketEvents,
}

impl FrameSource for ReadySource {
    async fn next(&mut self) -> Result<OutgoingFrame, SourceEnd> {
        if self.next == self.count {
            return Err(SourceEnd::Failed("the agent failed".to_owned()));
        }
        self.next += 1;
        let text = format!("{:0FRAME_BYTES$}", self.next).into();
        Ok(OutgoingFrame { stream: StreamId::Connection, cursor: None, text })
    }

    fn confirm(&mut self, frames: u64) {
        self.events.lock_unpoisoned().push(SocketEvent::Confirmed(frames));
    }
}

/// A connection that is only written to.
#[derive(Clone)]
struct WrittenConnection(RemoteConnectionId);

impl ServerConnection for WrittenConnection {
    type Source = ReadySource;

    fn id(&self) -> &RemoteConnectionId {
        &self.0
    }

    async fn accept(&self, _: IncomingFrame) -> Result<(), Rejection> {
        Ok(())
    }

    fn open(&self, _: &[StreamPosition]) -> Result<ReadySource, ResumeRefused> {
        unreachable!("the source is there")
    }

    async fn initialize_response(&self) -> Result<Bytes, SourceEnd> {
        unreachable!("a WebSocket has it as a frame")
    }

    fn open_stream(&self, _: StreamRequest) -> Result<ReadySource, ResumeRefused> {
        unreachable!("a WebSocket has one source")
    }

    async fn close(&self, _: CloseReason) {}
}

/// A socket that takes everything, and whose client confirms each ping at once.
struct ConfirmingSink<'a> {
    session: &'a SocketSession<'a, WrittenConnection>,
    events: SocketEvents,
    /// The number of frames behind which it is lost.
    lost_after: usize,
}

impl Sink<SocketMessage> for ConfirmingSink<'_> {
    type Error = SocketError;

    fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        Poll::Ready(Ok(()))
    }

    fn start_send(self: Pin<&mut Self>, message: SocketMessage) -> Result<(), SocketError> {
        let event = match message {
            SocketMessage::Text(text) => {
                let number = str::from_utf8(&text).unwrap().parse().unwrap();
                if number > self.lost_after {
                    return Err(SocketError::Protocol("it is lost".to_owned()));
                }
                SocketEvent::Frame(number)
            }
            SocketMessage::Ping(frames) => {
                let frames = u64::from_be_bytes((*frames).try_into().unwrap());
                self.session.update(|state| state.confirmed = frames);
                SocketEvent::Ping(frames)
            }
            other => panic!("{other:?}"),
        };
        self.events.lock_unpoisoned().push(event);
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        self.events.lock_unpoisoned().push(SocketEvent::Flush);
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        Poll::Ready(Ok(()))
    }
}

/// Sends this many frames that are there. Returns what happened.
async fn send_ready_frames(count: usize, lost_after: usize) -> (Vec<SocketEvent>, SocketEnd) {
    let options = ServerOptions { window_bytes: 64 * BATCH, ..ServerOptions::default() };
    let connection = WrittenConnection(RemoteConnectionId::new("c".to_owned()));
    let session = SocketSession {
        connection: &connection,
        options: &options,
        sends_acks: false,
        state: Mutex::new(SocketState {
            confirmed: 0,
            received: 0,
            is_blocked: false,
            read_at: Instant::now(),
        }),
        changed: Notify::new(),
    };
    let events = SocketEvents::default();
    let mut sink = ConfirmingSink { session: &session, events: events.clone(), lost_after };
    let source = ReadySource { next: 0, count, events: events.clone() };
    let end = session.write(&mut sink, source, 0).await;
    let events = events.lock_unpoisoned().clone();
    (events, end)
}

fn sent_frames(events: &[SocketEvent]) -> Vec<usize> {
    let frames = events.iter().map(|event| if let SocketEvent::Frame(number) = event { *number } else { 0 });
    frames.filter(|number| *number > 0).collect()
}

#[tokio::test(start_paused = true)]
async fn frames_that_are_ready_are_sent_in_order_before_the_failure_behind_them() {
    for count in [1, 2, 63, 64, 65, 66, 1000] {
        let (events, end) = send_ready_frames(count, usize::MAX).await;
        assert_eq!(sent_frames(&events), Vec::from_iter(1..=count));
        assert!(matches!(end, SocketEnd::Source(SourceEnd::Failed(_))), "{end:?}");
        assert_eq!(events.last(), Some(&SocketEvent::Flush), "{count} frames");
    }
}

/// Between two batches the socket looks at what the client has confirmed.
#[tokio::test(start_paused = true)]
async fn the_frames_that_are_sent_at_once_are_bounded() {
    let (events, _) = send_ready_frames(2000, usize::MAX).await;
    let mut confirmations = 0;
    for (place, event) in events.iter().enumerate() {
        let SocketEvent::Ping(frames) = event else { continue };
        let rest = &events[place..];
        let Some(confirmed) = rest.iter().position(|it| *it == SocketEvent::Confirmed(*frames)) else {
            assert!(sent_frames(rest).len() <= BATCH / FRAME_BYTES, "a batch has no end");
            continue;
        };
        confirmations += 1;
        assert!(sent_frames(&rest[..confirmed]).len() <= BATCH / FRAME_BYTES, "{frames} frames");
    }
    assert_eq!(confirmations, 2000 * FRAME_BYTES / PING_BYTES);
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_is_lost_within_a_batch_has_the_frames_before() {
    let (events, end) = send_ready_frames(200, 90).await;
    assert_eq!(sent_frames(&events), Vec::from_iter(1..=90));
    assert!(matches!(end, SocketEnd::Lost(SocketError::Protocol(_))), "{end:?}");
}

#[test]
fn a_pong_confirms_the_frames_before_its_ping() {
    let mut window = SendWindow::new(4 * PING_BYTES);
    assert_eq!(window.confirm(9), None);
    window.sent(PING_BYTES - 1);
    assert!(!window.is_ping_due());
    window.sent(1);
    assert!(window.is_ping_due());
    assert_eq!(window.ping(), SocketMessage::Ping(Bytes::copy_from_slice(&2u64.to_be_bytes())));
    assert!(!window.is_ping_due());
    window.sent(10);
    assert_eq!((window.confirm(1), window.unconfirmed()), (None, PING_BYTES + 10));
    assert_eq!((window.confirm(2), window.unconfirmed()), (Some(2), 10));
    assert_eq!((window.confirm(u64::MAX), window.unconfirmed()), (None, 10));
    assert_eq!((window.confirm_all(), window.unconfirmed()), (3, 0));
}
