//! The outbox: senders, waiters and the writer.

use std::future::ready;
use std::sync::Arc;

use loom::thread;

use super::{Wire, block_on, every_order, patient};
use crate::error::Closed;
use crate::frame::Frame;
use crate::limits::Limits;
use crate::outbox::{Outbox, PushMode};
use crate::sync::{Lock, Mutex};
use crate::transport::SharedWriter;

fn outbox(limits: Limits) -> Arc<Outbox> {
    Arc::new(Outbox::new(&limits))
}

/// Writes in pieces of `most` bytes until the outbox ends. Returns the written lines.
fn write_all(outbox: &Outbox, most: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let _ =
        block_on(outbox.write_to(Wire::new(most, |line: &str| lines.push(line.to_owned())), || ready(())));
    lines
}

fn push(outbox: &Outbox, line: &str) -> bool {
    outbox.push(&mut Frame::raw(line), PushMode::Always, |_| {}).is_ok_and(|pushed| pushed)
}

#[test]
fn accepted_frames_are_written_once_and_in_order() {
    every_order("two senders, finish, a writer of short writes", || {
        let outbox = outbox(patient());
        let senders = [["a1\n", "a2\n"].as_slice(), &["b1\n"]].map(|lines| {
            let outbox = outbox.clone();
            thread::spawn(move || lines.iter().map(|line| push(&outbox, line)).collect::<Vec<_>>())
        });
        let ending = thread::spawn({
            let outbox = outbox.clone();
            move || outbox.finish()
        });
        let written = write_all(&outbox, 2);
        ending.join().expect("no panic");
        for (sender, name) in senders.into_iter().zip(["a", "b"]) {
            let taken = sender.join().expect("no panic");
            let expected: Vec<String> = (1..)
                .zip(taken)
                .filter(|(_, taken)| *taken)
                .map(|(number, _)| format!("{name}{number}"))
                .collect();
            let own: Vec<&String> = written.iter().filter(|line| line.starts_with(name)).collect();
            assert_eq!(own, expected.iter().collect::<Vec<_>>(), "{written:?}");
        }
    });
}

/// Senders write themselves while the writer sleeps. Nothing is lost, written twice or out of order.
#[test]
fn senders_write_while_the_writer_sleeps() {
    every_order("two senders that write, finish, a writer of short writes", || {
        let outbox = outbox(patient());
        let written = Arc::new(Mutex::new(Vec::new()));
        let writer = thread::spawn({
            let (outbox, written) = (outbox.clone(), written.clone());
            move || {
                let receive = move |line: &str| written.lock_unpoisoned().push(line.to_owned());
                let pipe = SharedWriter::new(Box::new(Wire::new(2, receive)));
                block_on(outbox.write_with_senders(pipe, || ready(())))
            }
        });
        let send =
            |outbox: &Outbox, line| outbox.push(&mut Frame::raw(line), PushMode::WriteNow, |_| {}).is_ok();
        let other = thread::spawn({
            let outbox = outbox.clone();
            move || assert!(send(&outbox, "b1\n"))
        });
        assert!(send(&outbox, "a1\n"));
        assert!(send(&outbox, "a2\n"));
        assert!(block_on(outbox.flush()).is_ok());
        let own = |written: &[String]| {
            written.iter().filter(|line| line.starts_with('a')).cloned().collect::<Vec<_>>()
        };
        assert_eq!(own(&written.lock_unpoisoned()), ["a1", "a2"]);
        other.join().expect("no panic");
        outbox.finish();
        assert!(writer.join().expect("no panic").is_ok());
        assert_eq!(written.lock_unpoisoned().len(), 3);
    });
}

#[test]
fn a_flush_ends_behind_what_was_sent_before_it() {
    every_order("flush against the writer and another sender", || {
        let outbox = outbox(patient());
        let written = Arc::new(Mutex::new(Vec::new()));
        let writer = thread::spawn({
            let (outbox, written) = (outbox.clone(), written.clone());
            move || {
                let receive = |line: &str| written.lock_unpoisoned().push(line.to_owned());
                block_on(outbox.write_to(Wire::new(usize::MAX, receive), || ready(())))
            }
        });
        let other = thread::spawn({
            let outbox = outbox.clone();
            move || push(&outbox, "b\n")
        });
        assert!(push(&outbox, "a\n"));
        assert!(block_on(outbox.flush()).is_ok());
        assert!(written.lock_unpoisoned().iter().any(|line| line == "a"));
        assert!(other.join().expect("no panic"));
        outbox.finish();
        assert!(writer.join().expect("no panic").is_ok());
        assert_eq!(written.lock_unpoisoned().len(), 2);
    });
}

/// Two senders of notifications share space for one line.
#[test]
fn senders_that_wait_for_space_get_it() {
    every_order("two senders wait for room", || {
        let outbox = outbox(Limits { output_bytes: 1, ..patient() });
        let writer = thread::spawn({
            let outbox = outbox.clone();
            move || write_all(&outbox, usize::MAX)
        });
        let send = |line: &'static str| {
            let outbox = outbox.clone();
            move || {
                block_on(async {
                    let mut frame = Frame::raw(line);
                    loop {
                        outbox.room().await.expect("open");
                        if outbox.push(&mut frame, PushMode::IfRoom, |_| {}).expect("open") {
                            return;
                        }
                    }
                });
            }
        };
        let other = thread::spawn(send("b\n"));
        send("a\n")();
        other.join().expect("no panic");
        outbox.finish();
        let mut written = writer.join().expect("no panic");
        written.sort();
        assert_eq!(written, ["a", "b"]);
    });
}

/// After the end, no sender waits.
#[test]
fn close_wakes_the_writer_and_all_who_wait() {
    every_order("close against flush, room and the writer", || {
        let outbox = outbox(Limits { output_bytes: 1, ..patient() });
        let writer = thread::spawn({
            let outbox = outbox.clone();
            move || write_all(&outbox, usize::MAX)
        });
        let waiting = thread::spawn({
            let outbox = outbox.clone();
            move || {
                push(&outbox, "a\n");
                block_on(async {
                    let _ = outbox.flush().await;
                    let _ = outbox.room().await;
                });
            }
        });
        outbox.close(Closed::Local);
        assert!(!push(&outbox, "b\n"));
        assert!(writer.join().expect("no panic").len() <= 1);
        waiting.join().expect("no panic");
    });
}

/// After a broken pipe, senders wait until the reason is known. Then all of them fail with it.
#[test]
fn a_broken_pipe_ends_with_close() {
    every_order("break_off and close against flush and room", || {
        let outbox = outbox(Limits { output_bytes: 1, ..patient() });
        let end = thread::spawn({
            let outbox = outbox.clone();
            move || {
                outbox.break_off();
                outbox.close(Closed::EndOfInput);
            }
        });
        let roomy = thread::spawn({
            let outbox = outbox.clone();
            move || {
                push(&outbox, "b\n");
                block_on(outbox.room())
            }
        });
        if push(&outbox, "a\n") {
            assert!(matches!(block_on(outbox.flush()), Err(Closed::EndOfInput)));
        }
        assert!(matches!(roomy.join().expect("no panic"), Err(Closed::EndOfInput)));
        end.join().expect("no panic");
    });
}

/// If the peer reads nothing, exactly one sender ends the connection.
#[test]
fn too_much_output_closes() {
    every_order("two senders overrun a writer that has not begun", || {
        let limits = Limits { output_bytes: 1, output_bytes_hard: 1, ..patient() };
        let outbox = outbox(limits);
        let send = |line: &'static str| {
            let outbox = outbox.clone();
            move || outbox.push(&mut Frame::raw(line), PushMode::Always, |_| {})
        };
        let other = thread::spawn(send("b2\n"));
        let results = [send("a1\n")(), other.join().expect("no panic")];
        // Three bytes are within the limit, six are not.
        let refused = results.iter().filter(|result| matches!(result, Err(Closed::OutputStalled { .. })));
        assert_eq!(refused.count(), 1, "{results:?}");
        assert!(write_all(&outbox, usize::MAX).is_empty());
    });
}
