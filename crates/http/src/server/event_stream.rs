//! The body of an SSE response.

use std::io;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::{FutureExt as _, Stream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::lines::BATCH;
use crate::server::endpoint::{FrameSource, OutgoingFrame, SourceEnd};
use crate::server::options::ServerOptions;

/// A comment, which every client ignores.
const COMMENT: &[u8] = b":\n\n";

/// Returns the events of a source as the text of a response.
///
/// The body ends when the connection has ended. For every other reason it fails, so that HTTP marks it as incomplete and
/// the client asks for the rest.
pub(crate) fn event_stream(
    source: impl FrameSource,
    options: &ServerOptions,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let (events, written) = mpsc::channel(1);
    tokio::spawn(write_events(source, events, options.keepalive, options.stall_timeout));
    futures_util::stream::unfold(written, async |mut written| Some((written.recv().await?, written)))
}

/// Writes events until the source ends, or the client leaves or reads nothing for `stall_timeout`.
async fn write_events(
    mut source: impl FrameSource,
    events: mpsc::Sender<io::Result<Bytes>>,
    keepalive: Duration,
    stall_timeout: Duration,
) {
    // A proxy may hold the headers until the first byte of the body.
    let mut wait = Duration::ZERO;
    let failed = loop {
        let next = tokio::select! {
            next = timeout(wait, source.next()) => next,
            () = events.closed() => return,
        };
        wait = keepalive;
        let batch = match next {
            Ok(Ok(frame)) => batch(&mut source, &frame),
            Ok(Err(SourceEnd::Ended)) => return,
            Ok(Err(SourceEnd::Superseded)) => break "a newer request has this stream".to_owned(),
            Ok(Err(SourceEnd::Failed(reason))) => break reason,
            Err(_) => Bytes::from_static(COMMENT),
        };
        match timeout(stall_timeout, events.send(Ok(batch))).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) => {
                tracing::debug!("a client does not read its events (`ServerOptions::stall_timeout`)");
                return drop_unread(events);
            }
        }
    };
    let _ = events.send(Err(io::Error::other(failed))).await;
}

/// Waits until the client reads again or leaves, and ends its response then. The stream is free before.
fn drop_unread(events: mpsc::Sender<io::Result<Bytes>>) {
    tokio::spawn(async move {
        let _ = events.send(Err(io::ErrorKind::TimedOut.into())).await;
    });
}

/// Writes a frame and those that follow it without a wait.
fn batch(source: &mut impl FrameSource, first: &OutgoingFrame) -> Bytes {
    let mut batch = BytesMut::with_capacity(first.text.len() + 64);
    push(&mut batch, first);
    while batch.len() < BATCH
        && let Some(Ok(frame)) = source.next().now_or_never()
    {
        push(&mut batch, &frame);
    }
    batch.freeze()
}

fn push(events: &mut BytesMut, frame: &OutgoingFrame) {
    if let Some(cursor) = &frame.cursor {
        events.put_slice(b"id: ");
        events.put_slice(cursor.as_bytes());
        events.put_u8(b'\n');
    }
    events.put_slice(b"data: ");
    events.put_slice(&frame.text);
    events.put_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use tokio::time::Instant;

    use super::*;

    struct Quiet;

    impl FrameSource for Quiet {
        async fn next(&mut self) -> Result<OutgoingFrame, SourceEnd> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_byte_is_sent_at_once() {
        let options = ServerOptions::default();
        let mut events = Box::pin(event_stream(Quiet, &options));
        let mut last = Instant::now();
        for pause in [Duration::ZERO, options.keepalive, options.keepalive] {
            let comment = events.next().await.expect("it does not end").expect("it does not fail");
            assert_eq!((&comment[..], last.elapsed().as_secs()), (COMMENT, pause.as_secs()));
            last = Instant::now();
        }
    }
}
