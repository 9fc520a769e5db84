//! The log of `duologue connect` on stderr. Nobody may read it, so a thread writes it. Lines that wait for it have a limit,
//! and lines beyond it are dropped.

use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

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
    Flush(SyncSender<()>),
}

fn entries() -> &'static SyncSender<LogEntry> {
    static ENTRIES: OnceLock<SyncSender<LogEntry>> = OnceLock::new();
    ENTRIES.get_or_init(|| {
        let (sender, entries) = sync_channel(LINES);
        let write = move || {
            for entry in entries {
                match entry {
                    LogEntry::Line(line) => _ = writeln!(ui::stderr(), "{line}"),
                    LogEntry::Error(error) => ui::print_error(&error),
                    LogEntry::Flush(done) => _ = done.send(()),
                }
            }
        };
        // Without the thread there is no log.
        drop(std::thread::Builder::new().name("connect-log".into()).spawn(write));
        sender
    })
}

/// Writes a line to stderr, the log of an agent.
pub(super) fn log(line: std::fmt::Arguments<'_>) {
    let text = line.to_string();
    let shown: String = text.chars().take(LINE_CHARS).collect();
    let rest = if shown.len() < text.len() { "…" } else { "" };
    let line = format!("{}{}{rest}", ui::CONNECT_LOG, ui::indented(&shown));
    let _ = entries().try_send(LogEntry::Line(line));
}

/// Writes the error that ends the program, as the command line does for other commands.
pub(crate) fn log_error(error: &dyn std::fmt::Display) {
    let _ = entries().try_send(LogEntry::Error(error.to_string()));
}

/// Waits until the lines so far are written, at most for half a second.
pub(crate) fn flush_log() {
    let (done, is_done) = sync_channel(1);
    if entries().try_send(LogEntry::Flush(done)).is_ok() {
        let _ = is_done.recv_timeout(FLUSH);
    }
}
