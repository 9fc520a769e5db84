//! The log of `duologue connect` on stderr. Nobody may read it, so a thread writes it. Lines that wait for it have a limit,
//! and lines beyond it are dropped.

use std::fmt::{Arguments, Display};
use std::io::Write as _;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::ui;

/// The most lines that wait.
const LINES: usize = 256;
/// The most characters of a line. A server can choose the text of its errors.
const LINE_CHARS: usize = 2000;
/// The time in which the last lines are written before the program ends.
const FLUSH: Duration = Duration::from_millis(500);

enum LogEntry {
    Line(String),
    /// The error that ends the program.
    Error(String),
    /// Confirms that the lines before it are written.
    Flush(oneshot::Sender<()>),
}

/// The sender of lines to the thread that writes them.
struct StderrLog(mpsc::Sender<LogEntry>);

impl StderrLog {
    fn new() -> (Self, mpsc::Receiver<LogEntry>) {
        let (sender, entries) = mpsc::channel(LINES);
        (StderrLog(sender), entries)
    }

    fn of_process() -> &'static Self {
        static LOG: OnceLock<StderrLog> = OnceLock::new();
        LOG.get_or_init(|| {
            let (log, mut entries) = StderrLog::new();
            let write = move || {
                while let Some(entry) = entries.blocking_recv() {
                    match entry {
                        LogEntry::Line(line) => _ = writeln!(ui::stderr(), "{line}"),
                        LogEntry::Error(error) => ui::print_error(&error),
                        LogEntry::Flush(done) => _ = done.send(()),
                    }
                }
            };
            // Without the thread there is no log.
            drop(std::thread::Builder::new().name("connect-log".into()).spawn(write));
            log
        })
    }

    fn line(&self, line: Arguments<'_>) {
        let line = format!("{}{}", ui::CONNECT_LOG, ui::indented(&beginning(&line)));
        let _ = self.0.try_send(LogEntry::Line(line));
    }

    async fn end(&self, error: Option<&dyn Display>) {
        let flushed = async {
            if let Some(error) = error {
                self.0.send(LogEntry::Error(beginning(error))).await.ok()?;
            }
            let (done, is_done) = oneshot::channel();
            self.0.send(LogEntry::Flush(done)).await.ok()?;
            is_done.await.ok()
        };
        let _ = timeout(FLUSH, flushed).await;
    }
}

/// Returns the beginning of a text, with a mark if it is longer.
fn beginning(text: &dyn Display) -> String {
    let mut text = text.to_string();
    if let Some((end, _)) = text.char_indices().nth(LINE_CHARS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Writes a line to stderr, the log of an agent.
pub(super) fn log(line: Arguments<'_>) {
    StderrLog::of_process().line(line);
}

/// Writes the error that ends the program, as the command line does for other commands. Waits until all lines are written, at
/// most for half a second.
pub(crate) async fn end_log(error: Option<&dyn Display>) {
    StderrLog::of_process().end(error).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_error_waits_for_the_lines_before_it() {
        let (log, mut entries) = StderrLog::new();
        for number in 0..2 * LINES {
            log.line(format_args!("{number}"));
        }
        let error = "x".repeat(2 * LINE_CHARS);
        let (mut lines, mut last) = (0, String::new());
        let read = async {
            while let Some(entry) = entries.recv().await {
                match entry {
                    LogEntry::Line(_) => lines += 1,
                    LogEntry::Error(error) => last = error,
                    LogEntry::Flush(done) => _ = done.send(()),
                }
            }
        };
        tokio::select! {
            biased;
            () = log.end(Some(&error)) => {}
            () = read => {}
        }
        assert_eq!((lines, last.chars().count()), (LINES, LINE_CHARS + 1));
    }
}
