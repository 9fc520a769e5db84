//! A sender within the write of its own frame, while other threads use the outbox.

use std::sync::mpsc;

use super::*;

/// A pipe whose first write reports its beginning, and ends when the test says how many bytes it takes.
struct Slow {
    first: Option<(mpsc::Sender<()>, mpsc::Receiver<usize>)>,
    pipe: Narrow,
}

impl AsyncWrite for Slow {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Some((begun, end)) = self.first.take() {
            let _ = begun.send(());
            let Ok(room) = end.recv_timeout(Duration::from_secs(30)) else { return Poll::Pending };
            self.pipe.0.lock_unpoisoned().room = room;
            let written = Pin::new(&mut self.pipe).poll_write(cx, bytes);
            self.pipe.0.lock_unpoisoned().room = 1000;
            return written;
        }
        Pin::new(&mut self.pipe).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}

/// Sends `first\n`, of which the pipe takes `count` bytes, and calls `meanwhile` within that write. The writer is polled
/// within the write and after it.
///
/// Returns the text that is written, the bytes that are left in the buffer, and true if the
/// writer has ended.
fn written_around(count: usize, meanwhile: impl FnOnce(&Outbox)) -> (String, usize, bool) {
    let outbox = Outbox::new(&Limits { output_bytes: 5, ..Limits::default() });
    let ((begun, has_begun), (end, ended)) = (mpsc::channel(), mpsc::channel());
    let pipe = Narrow::default();
    let slow = Slow { first: Some((begun, ended)), pipe: pipe.clone() };
    let mut writer = Box::pin(outbox.write_with_senders(SharedWriter::new(Box::new(slow)), || ready(())));
    assert!(writer.as_mut().now_or_never().is_none());
    let mut is_over = false;
    let mut room = Box::pin(outbox.room());
    std::thread::scope(|scope| {
        scope.spawn(|| push(&outbox, "first\n", PushMode::WriteNow));
        has_begun.recv_timeout(Duration::from_secs(30)).expect("the sender does not write");
        assert!(room.as_mut().now_or_never().is_none() && outbox.flush().now_or_never().is_none());
        meanwhile(&outbox);
        is_over = writer.as_mut().now_or_never().is_some();
        assert_eq!(pipe.text(), "", "another frame is in front of the first");
        let _ = end.send(count);
    });
    if !is_over {
        is_over = writer.as_mut().now_or_never().is_some();
    }
    if !is_over {
        assert!(room.now_or_never().is_some(), "the end of a write makes room");
    }
    (pipe.text(), outbox.state.lock_unpoisoned().bytes.len(), is_over)
}

#[test]
fn a_sender_does_not_wait_for_the_write_of_another_one() {
    for count in [6, 3, 0] {
        let text = written_around(count, |outbox| {
            push(outbox, "second\n", PushMode::WriteNow);
            push(outbox, "third\n", PushMode::Always);
        });
        assert_eq!(text, ("first\nsecond\nthird\n".to_owned(), 0, false), "{count} bytes are taken at once");
    }
}

/// The writer sees the end of the output only behind the frame of the sender.
#[test]
fn the_output_ends_behind_the_frame_of_a_sender() {
    for count in [6, 3] {
        assert_eq!(written_around(count, Outbox::finish), ("first\n".to_owned(), 0, true));
    }
}

#[test]
fn the_rest_of_a_frame_is_discarded_at_the_end() {
    assert_eq!(written_around(3, Outbox::break_off), ("fir".to_owned(), 0, false));
    let closed = written_around(3, |outbox| outbox.close(Closed::EndOfInput));
    assert_eq!(closed, ("fir".to_owned(), 0, true));
}
