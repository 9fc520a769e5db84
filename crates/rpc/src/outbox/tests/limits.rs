//! The limits of the output: its stalls, its waiting senders and its errors.

use super::*;

/// An outbox in which 100 bytes may wait without an end, and 10 without waiting senders.
fn bounded() -> Outbox {
    Outbox::new(&Limits {
        output_bytes: 10,
        output_bytes_hard: 100,
        stall_timeout: Duration::from_secs(10),
        ..Limits::default()
    })
}

/// Pushes a line of `bytes` with its line end.
fn push_bytes(outbox: &Outbox, bytes: usize) -> Result<bool, Closed> {
    let line = "x".repeat(bytes - 1) + "\n";
    outbox.push(&mut Frame::raw(&line), PushMode::Always, |_| {})
}

fn is_stalled(pushed: &Result<bool, Closed>) -> bool {
    matches!(pushed, Err(Closed::OutputStalled { limit: 100 }))
}

#[tokio::test(start_paused = true)]
async fn output_over_the_limit_may_wait_as_long_as_the_patience() {
    let outbox = bounded();
    push_bytes(&outbox, 100).unwrap();
    tokio::time::advance(Duration::from_secs(3600)).await;
    push_bytes(&outbox, 1).expect("the time begins here");
    let mut room = std::pin::pin!(outbox.room());
    let mut flushed = std::pin::pin!(outbox.flush());
    assert!(room.as_mut().now_or_never().is_none() && flushed.as_mut().now_or_never().is_none());
    tokio::time::advance(Duration::from_secs(10)).await;
    push_bytes(&outbox, 1).expect("exactly the patience");
    tokio::time::advance(Duration::from_millis(1)).await;
    let pushed = push_bytes(&outbox, 1);
    assert!(is_stalled(&pushed), "{pushed:?}");
    // Everything that waits is woken, and nothing is accepted any more. The first reason is kept.
    assert!(matches!(room.now_or_never(), Some(Err(Closed::OutputStalled { .. }))));
    assert!(matches!(flushed.now_or_never(), Some(Err(Closed::OutputStalled { .. }))));
    outbox.close(Closed::EndOfInput);
    assert!(is_stalled(&push_bytes(&outbox, 1)) && outbox.is_over());
    assert_eq!(outbox.state.lock_unpoisoned().bytes.capacity(), 0, "the memory is freed");
}

#[tokio::test(start_paused = true)]
async fn progress_begins_the_patience_again() {
    let (outbox, pipe) = (bounded(), Narrow::default());
    push_bytes(&outbox, 200).unwrap();
    let mut writer = Box::pin(outbox.write_to(pipe.clone(), || ready(())));
    for _ in 0..5 {
        tokio::time::advance(Duration::from_secs(9)).await;
        pipe.0.lock_unpoisoned().room = 1;
        // The pipe wakes nobody, so the writer is polled.
        assert!(writer.as_mut().now_or_never().is_none());
        push_bytes(&outbox, 1).expect("it moves");
    }
    tokio::time::advance(Duration::from_secs(11)).await;
    let pushed = push_bytes(&outbox, 1);
    assert!(is_stalled(&pushed), "{pushed:?}");
}

#[tokio::test(start_paused = true)]
async fn four_times_the_limit_ends_the_output_at_once() {
    for pushes in [&[400, 1][..], &[401], &[101, 299, 1]] {
        let outbox = bounded();
        let (last, fit) = pushes.split_last().unwrap();
        fit.iter().for_each(|bytes| assert!(push_bytes(&outbox, *bytes).is_ok(), "{pushes:?}"));
        let pushed = push_bytes(&outbox, *last);
        assert!(is_stalled(&pushed), "{pushes:?}: {pushed:?}");
    }
}

#[test]
fn senders_wait_from_their_limits_on() {
    let outbox = bounded();
    for (bytes, has_room, has_answer_room) in
        [(9, true, true), (1, false, true), (40, false, true), (1, false, false), (50, false, false)]
    {
        push_bytes(&outbox, bytes).unwrap();
        let rooms = (outbox.has_room(), outbox.has_answer_room());
        assert_eq!(rooms, (has_room, has_answer_room), "{}", outbox.unwritten());
    }
    assert!(!outbox.has_answer_backlog(), "there are no responses");
}

/// A request is sent even if notifications wait, and counts like them.
#[test]
fn a_request_does_not_wait_for_space() {
    let outbox = bounded();
    push_bytes(&outbox, 10).unwrap();
    assert!(!outbox.push(&mut Frame::raw("note\n"), PushMode::IfRoom, |_| {}).unwrap());
    push(&outbox, "request\n", PushMode::WriteNow);
    assert_eq!(outbox.unwritten(), 18);
}

/// A frame over the hard limit is left to the writer, so that its length is checked.
#[tokio::test]
async fn a_sender_writes_no_frame_over_the_hard_limit() {
    let (outbox, pipe) = (bounded(), Narrow::with_room(1000));
    let shared = SharedWriter::new(Box::new(pipe.clone()));
    let mut writer = Box::pin(outbox.write_with_senders(shared, || ready(())));
    assert!(writer.as_mut().now_or_never().is_none());
    push(&outbox, &"x".repeat(100), PushMode::WriteNow);
    assert_eq!(pipe.text().len(), 100);
    let pushed = outbox.push(&mut Frame::raw(&"x".repeat(401)), PushMode::WriteNow, |_| {});
    assert!(is_stalled(&pushed), "{pushed:?}");
}

fn push_answer(outbox: &Outbox, bytes: usize) {
    let mut frame = Frame::result(&duologue_schema::RequestId::from(1), "x".repeat(bytes).as_str()).unwrap();
    assert!(outbox.push(&mut frame, PushMode::Always, |_| {}).unwrap());
}

/// The reader waits for a peer that reads slowly, but not because of our own notifications.
#[tokio::test]
async fn a_backlog_is_made_of_responses() {
    let outbox = bounded();
    push_answer(&outbox, 10);
    push_bytes(&outbox, 100).unwrap();
    assert!(!outbox.has_answer_backlog());
    push_answer(&outbox, 100);
    assert!(outbox.has_answer_backlog());
    // Responses that were written do not count later.
    let mut writer = Box::pin(outbox.write_to(Narrow::with_room(1000), || ready(())));
    assert!(writer.as_mut().now_or_never().is_none());
    assert_eq!(outbox.unwritten(), 0);
    push_bytes(&outbox, 101).unwrap();
    assert!(!outbox.has_answer_backlog());
}

/// Pushes a response that has `bytes` with its line end.
fn push_whole_answer(outbox: &Outbox, bytes: usize) {
    let envelope = Frame::result(&duologue_schema::RequestId::from(1), "").unwrap().bytes().len();
    push_answer(outbox, bytes - envelope);
}

#[tokio::test]
async fn a_backlog_exceeds_the_limit_in_unwritten_bytes_and_in_responses() {
    let (outbox, pipe) = (bounded(), Narrow::default());
    push_whole_answer(&outbox, 150);
    let mut writer = Box::pin(outbox.write_to(pipe.clone(), || ready(())));
    for (written, is_backlog) in [(0, true), (49, true), (50, false), (100, false)] {
        pipe.0.lock_unpoisoned().room = written - pipe.text().len();
        assert!(writer.as_mut().now_or_never().is_none());
        assert_eq!(outbox.has_answer_backlog(), is_backlog, "{written} of 150 bytes are written");
        assert_eq!(outbox.relieved().now_or_never().is_none(), is_backlog);
    }
    let outbox = bounded();
    push_whole_answer(&outbox, 100);
    push_bytes(&outbox, 1).unwrap();
    assert!(!outbox.has_answer_backlog(), "exactly the limit are responses");
    push_whole_answer(&outbox, 50);
    assert!(outbox.has_answer_backlog());
}

/// The buffers of a burst are freed. A small limit of the output keeps only small ones.
#[tokio::test]
async fn a_burst_leaves_no_large_buffer() {
    for (output_bytes, most) in [(Limits::default().output_bytes, KEEP), (1000, 2000)] {
        let outbox = Outbox::new(&Limits { output_bytes, ..Limits::default() });
        let pipe = Narrow::with_room(usize::MAX);
        // Two buffers take turns, one here and one in the writer. Both are here at some beginning of a batch.
        let largest = std::cell::Cell::new(0);
        let mut writer = Box::pin(outbox.write_to(pipe, || {
            largest.set(largest.get().max(outbox.state.lock_unpoisoned().bytes.capacity()));
            ready(())
        }));
        for line in ["x".repeat(1 << 20).as_str(), "a\n", "b\n", "c\n"] {
            let mut frame = Frame::raw(line);
            assert!(outbox.push(&mut frame, PushMode::Always, |_| {}).unwrap());
            // The buffer of a small frame stays with its sender, which uses it again.
            assert!(line != "c\n" || frame.bytes() == b"c\n");
            largest.set(0);
            assert!(writer.as_mut().now_or_never().is_none());
            let largest = largest.get();
            assert!(line.len() > most || (1..=most).contains(&largest), "{largest}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_backlog_that_moves_is_awaited() {
    let outbox = bounded();
    push_answer(&outbox, 250);
    let (pipe, mut reader) = tokio::io::duplex(10);
    let reads = async {
        let mut bytes = [0; 10];
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_secs(9)).await;
            let _ = tokio::io::AsyncReadExt::read(&mut reader, &mut bytes).await;
        }
    };
    tokio::select! {
        biased;
        relieved = outbox.relieved() => relieved.expect("it moves"),
        _ = outbox.write_to(pipe, || ready(())) => panic!("the writer ended"),
        () = reads => panic!("nobody was relieved"),
    }
    assert!(outbox.unwritten() <= 100);
}

#[tokio::test]
async fn a_large_frame_is_left_to_the_writer() {
    for (bytes, is_written) in [(WRITE_NOW, true), (WRITE_NOW + 1, false)] {
        let (outbox, pipe) = (Outbox::new(&Limits::default()), Narrow::with_room(1 << 20));
        let mut writer =
            Box::pin(outbox.write_with_senders(SharedWriter::new(Box::new(pipe.clone())), || ready(())));
        assert!(writer.as_mut().now_or_never().is_none());
        push(&outbox, &("x".repeat(bytes - 1) + "\n"), PushMode::WriteNow);
        assert_eq!(pipe.text().len(), if is_written { bytes } else { 0 });
        assert!(writer.as_mut().now_or_never().is_none());
        assert_eq!(pipe.text().len(), bytes);
    }
}

/// The reason of the end is not known yet. Until then senders of notifications wait, and other frames are dropped.
#[tokio::test]
async fn a_broken_output_accepts_and_keeps_nothing() {
    let (outbox, pipe) = (Outbox::new(&Limits::default()), Narrow::with_room(100));
    let mut writer =
        Box::pin(outbox.write_with_senders(SharedWriter::new(Box::new(pipe.clone())), || ready(())));
    assert!(writer.as_mut().now_or_never().is_none());
    outbox.break_off();
    let unwritten = outbox.unwritten();
    push(&outbox, "lost\n", PushMode::WriteNow);
    push(&outbox, "lost\n", PushMode::Always);
    assert_eq!(outbox.unwritten(), unwritten, "what is dropped does not count");
    assert_eq!((pipe.text().as_str(), outbox.state.lock_unpoisoned().bytes.len()), ("", 0));
    assert!(!outbox.push(&mut Frame::raw("later\n"), PushMode::IfRoom, |_| {}).unwrap());
    let mut room = std::pin::pin!(outbox.room());
    assert!(room.as_mut().now_or_never().is_none());
    outbox.close(Closed::EndOfInput);
    assert!(matches!(room.now_or_never(), Some(Err(Closed::EndOfInput))));
    assert!(matches!(writer.as_mut().now_or_never(), Some(Err(Closed::EndOfInput))));
    for mode in [PushMode::Always, PushMode::IfRoom, PushMode::WriteNow] {
        let late = outbox.push(&mut Frame::raw("late\n"), mode, |_| panic!("it is not sent"));
        assert!(matches!(late, Err(Closed::EndOfInput)), "{late:?}");
    }

    let outbox = Outbox::new(&Limits::default());
    push(&outbox, "waits\n", PushMode::Always);
    outbox.break_off();
    assert_eq!(outbox.state.lock_unpoisoned().bytes.capacity(), 0, "the memory is freed");
}

/// A pipe with these results, the last one first. Then writes wait and flushes succeed.
struct Planned {
    writes: Vec<io::Result<usize>>,
    flushes: Vec<io::Result<()>>,
}

impl AsyncWrite for Planned {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        self.writes.pop().map_or(Poll::Pending, Poll::Ready)
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.flushes.pop().unwrap_or(Ok(())))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn interrupted<T>() -> io::Result<T> {
    Err(io::ErrorKind::Interrupted.into())
}

/// A pipe that accepts nothing any more, and one that is interrupted first.
#[tokio::test]
async fn a_write_of_nothing_is_an_error_and_an_interruption_is_not() {
    let outbox = Outbox::new(&Limits::default());
    push(&outbox, "line\n", PushMode::Always);
    let writes = vec![Ok(0), Ok(2), interrupted(), Ok(1), interrupted()];
    let written = outbox.write_to(Planned { writes, flushes: Vec::new() }, || ready(())).now_or_never();
    assert!(
        matches!(&written, Some(Err(Closed::Io(error))) if error.kind() == io::ErrorKind::WriteZero),
        "{written:?}"
    );
    assert_eq!(outbox.unwritten(), 2);
}

/// A line counts as written when it is flushed. An interrupted flush is repeated.
#[tokio::test]
async fn a_flush_may_be_interrupted_but_not_fail() {
    for is_broken in [false, true] {
        let outbox = Outbox::new(&Limits::default());
        push(&outbox, "line\n", PushMode::Always);
        outbox.finish();
        let broken = is_broken.then(|| Err(io::ErrorKind::BrokenPipe.into()));
        let flushes = broken.into_iter().chain([interrupted()]).collect();
        let written = outbox.write_to(Planned { writes: vec![Ok(5)], flushes }, || ready(())).now_or_never();
        let is_error =
            matches!(&written, Some(Err(Closed::Io(error))) if error.kind() == io::ErrorKind::BrokenPipe);
        assert_eq!((is_error, outbox.unwritten()), (is_broken, if is_broken { 5 } else { 0 }), "{written:?}");
    }
}
