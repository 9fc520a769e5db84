//! The limits of a connection.

use std::time::Duration;

/// The limits of one connection. The defaults suit an editor and an agent on one machine.
///
/// The largest value of a type means "no limit". Times over a year count as a year.
///
/// ```
/// use duologue_rpc::Limits;
///
/// let limits = Limits::default();
/// assert_eq!(limits.frame_bytes, 16 * 1024 * 1024);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// The longest line in either direction, in bytes without its line end. A longer incoming line ends
    /// the connection; a longer outgoing message is rejected with an error to its sender.
    pub frame_bytes: usize,
    /// The deepest nesting of arrays and objects.
    pub depth: usize,
    /// The most values in one line, counted by objects, arrays and commas. It bounds the memory of a decoded line:
    /// an empty string in a list has three bytes of text and takes eight times as much in memory.
    pub values: usize,
    /// The wire bytes in all queues of a connection at which the reader pauses.
    pub queue_bytes: usize,
    /// The wire bytes in all queues at which the fullest queue is ended, even if the reader may not pause.
    pub queue_bytes_hard: usize,
    /// The time after which the fullest queue ends if all queues exceed `queue_bytes` and nothing is taken.
    pub stall_timeout: Duration,
    /// The most incoming requests that wait for their response. The next one is rejected at once.
    pub in_flight: usize,
    /// The most wire bytes of those requests together. The next request is rejected, unless it is the only one.
    /// Requests of at most [`SMALL_REQUEST_BYTES`](Self::SMALL_REQUEST_BYTES) neither count nor are rejected.
    pub in_flight_bytes: usize,
    /// The unwritten output at which senders of notifications wait. A cancellation queues behind this output, so keep
    /// it small: a pipe holds 64 KiB. Zero counts as one.
    pub output_bytes: usize,
    /// The unwritten output at which the connection ends if nothing is written for `stall_timeout`, because the peer
    /// sends requests but does not read.
    ///
    /// Responses of handlers wait at half of it. The reader pauses while this much of the output is responses, so a
    /// slow peer is served at its own speed. At four times as much the connection ends at once. Only requests and
    /// notifications of this side can reach that, so four times this has to exceed the longest of them. Values below
    /// `output_bytes` count as that.
    pub output_bytes_hard: usize,
    /// The most consecutive unreadable lines that are answered with an error.
    pub parse_errors_in_a_row: u32,
    /// The time that a cancelled handler has to respond before it is dropped and an error is sent for it.
    pub cancel_grace: Duration,
}

const MIB: usize = 1024 * 1024;

impl Limits {
    /// The longest id of a request, in bytes of its token, or a quarter of `frame_bytes` if that is less. The id is
    /// kept while its request is in flight.
    pub const ID_BYTES: usize = 64 * 1024;
    /// The size up to which requests are limited only by their number, so that a large prompt does not block them.
    pub const SMALL_REQUEST_BYTES: usize = 64 * 1024;
    /// The most bytes of our notifications that wait for the response which they have to follow. It lies here because
    /// two crates above buffer such notifications, and this is the only crate below both.
    pub const EARLY_BYTES: usize = 8 * MIB;
    /// The number of recent lines that were not messages and are kept to explain errors.
    pub const NOISE_LINES: usize = 20;
    /// The bytes that are kept of each of these lines.
    pub const NOISE_LINE_BYTES: usize = 1024;
}

impl Limits {
    /// Replaces values that would overflow a deadline, stop all output, or end the connection at a
    /// length for which senders do not wait, by the nearest ones that do not.
    pub(crate) fn clamped(self) -> Self {
        const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
        Limits {
            stall_timeout: self.stall_timeout.min(LONGEST),
            cancel_grace: self.cancel_grace.min(LONGEST),
            output_bytes: self.output_bytes.max(1),
            output_bytes_hard: self.output_bytes_hard.max(self.output_bytes).max(1),
            ..self
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            frame_bytes: 16 * MIB,
            depth: 128,
            values: 512 * 1024,
            queue_bytes: 32 * MIB,
            queue_bytes_hard: 48 * MIB,
            stall_timeout: Duration::from_secs(10),
            in_flight: 1024,
            in_flight_bytes: 64 * MIB,
            output_bytes: 256 * 1024,
            output_bytes_hard: 64 * MIB,
            parse_errors_in_a_row: 10,
            cancel_grace: Duration::from_secs(1),
        }
    }
}

#[cfg(all(test, not(duologue_loom)))]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::{Incoming, PeerBuilder, QueueSender, Responder, Service, Transport};

    /// Responds to requests and queues the length of each notification.
    struct Queueing(QueueSender<usize>);

    impl Service for Queueing {
        fn request(&self, request: Incoming<'_>, responder: Responder) {
            responder.respond(Ok(request.params));
        }

        fn notification(&self, notification: Incoming<'_>) {
            let _ = self.0.push(notification.wire_bytes, notification.wire_bytes);
        }
    }

    /// The largest values mean "no limit", and an output limit of zero means "one message at a time".
    #[tokio::test]
    async fn extreme_values_do_not_stop_a_connection() {
        let limits = Limits {
            frame_bytes: usize::MAX,
            queue_bytes: 0,
            stall_timeout: Duration::MAX,
            output_bytes: 0,
            cancel_grace: Duration::MAX,
            ..Limits::default()
        };
        let conversation = async {
            let (ours, theirs) = Transport::memory();
            let mut lengths = None;
            let theirs = PeerBuilder::new(theirs).limits(limits.clone()).start(|peer| {
                let (sender, queue) = peer.queue();
                lengths = Some(queue);
                Queueing(sender)
            });
            let ours = PeerBuilder::new(ours).limits(limits).start(|peer| Queueing(peer.queue().0));
            ours.notify_raw("_long", &["x".repeat(200_000)]).await.unwrap();
            ours.notify_raw("_short", &["x"]).await.unwrap();
            let mut lengths = lengths.unwrap();
            assert!(lengths.next().await.unwrap().unwrap() > 200_000);
            assert!(lengths.next().await.unwrap().unwrap() < 100);
            assert_eq!(ours.call::<_, Value>("_ask", &[1]).await.unwrap()[0], 1);
            ours.close();
            ours.closed().await;
            theirs.closed().await;
        };
        tokio::time::timeout(Duration::from_secs(30), conversation).await.expect("the connection stopped");
    }

    #[test]
    fn values_that_cannot_work_are_replaced() {
        let year = Duration::from_secs(365 * 24 * 60 * 60);
        let clamped = |output_bytes, output_bytes_hard| {
            let limits = Limits {
                stall_timeout: Duration::MAX,
                cancel_grace: Duration::MAX,
                output_bytes,
                output_bytes_hard,
                ..Limits::default()
            };
            let limits = limits.clamped();
            assert_eq!((limits.stall_timeout, limits.cancel_grace), (year, year));
            (limits.output_bytes, limits.output_bytes_hard)
        };
        assert_eq!(clamped(0, 0), (1, 1));
        assert_eq!(clamped(1000, 10), (1000, 1000));
        assert_eq!(clamped(10, 1000), (10, 1000));
        let short = Limits { stall_timeout: Duration::ZERO, ..Limits::default() }.clamped();
        assert_eq!((short.stall_timeout, short.cancel_grace), (Duration::ZERO, Duration::from_secs(1)));
    }
}
