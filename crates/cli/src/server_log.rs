//! The log of `duologue serve` on stderr.
//!
//! A thread of its own writes it, because nobody may read stderr. The events wait in a bounded queue, half of which is for lines
//! of agents. Those that do not fit, and lines of agents beyond a rate, are dropped and counted.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::mem::take;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use duologue_rpc::Lock as _;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::writer::MakeWriterExt as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::ui;

/// The target of the lines that an agent writes to its stderr.
const AGENT: &str = "duologue_hub::agent";
/// The target of refused access and of answers to questions.
const AUDIT: &str = "duologue::audit";

/// The bytes of events that wait for the reader of stderr. Half of them are for lines of agents, so that these do not drop
/// the audit.
const QUEUE_BYTES: usize = 1 << 20;
/// The lines of agents that are logged at once, and in each second after that. A long line counts once for each
/// [`LINE_BYTES`].
const AGENT_LINES: (f64, f64) = (1000.0, 100.0);
/// The bytes of a long line that count as a line.
const LINE_BYTES: usize = 1024;
/// The memory of an event beside its text.
const EVENT_OVERHEAD: usize = 64;
/// The time between two reports of dropped lines.
const REPORT_PAUSE: Duration = Duration::from_secs(1);
/// The time for the rest of the log at the end. Nobody may read stderr.
const END_WAIT: Duration = Duration::from_secs(2);

static QUEUE: OnceLock<Arc<LogQueue>> = OnceLock::new();

/// The lowest level that is logged.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Off => LevelFilter::OFF,
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Trace => LevelFilter::TRACE,
        }
    }
}

/// Logs the events of this program to stderr. The stderr of the agents, which are events of the level `info`, is part of
/// `warn`, because the error of an agent that ended refers to it. The audit is part of every level but `off`.
pub(crate) fn start(level: LogLevel) {
    let level = LevelFilter::from(level);
    let agent = if level == LevelFilter::WARN { LevelFilter::INFO } else { level };
    let audit = if level == LevelFilter::OFF { level } else { level.max(LevelFilter::INFO) };
    let targets = [("duologue", level), (AGENT, agent), (AUDIT, audit)];
    let filter = Targets::new().with_targets(targets);
    let queue = Arc::new(LogQueue::new(QUEUE_BYTES));
    let written = queue.clone();
    let writer = std::thread::Builder::new().name("log".into());
    if let Err(error) = writer.spawn(move || written.write_to(ui::stderr)) {
        return ui::print_error(&format!("there is no log: {error}"));
    }
    let writer = |is_of_agent| {
        let queue = queue.clone();
        move || LogWriter { queue: queue.clone(), is_of_agent }
    };
    let of_agent = writer(true).with_filter(|event| event.target() == AGENT);
    let layer =
        tracing_subscriber::fmt::layer().with_ansi(false).with_writer(of_agent.or_else(writer(false)));
    // A log that was set up before stays.
    let _ = tracing_subscriber::registry().with(layer.with_filter(filter)).try_init();
    let _ = QUEUE.set(queue);
}

/// Waits until the log is written, but not longer than two seconds.
pub(crate) fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(END_WAIT);
    }
}

/// The events that wait for the thread that writes them.
struct LogQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
    limit: usize,
}

struct QueueState {
    events: VecDeque<String>,
    bytes: usize,
    /// The bytes of the events of agents.
    agent_bytes: usize,
    /// The number of events that were dropped and not reported.
    dropped: usize,
    /// True while the thread writes.
    is_writing: bool,
    /// True if dropped events are reported without a pause.
    is_ending: bool,
    agent_rate: LineRate,
}

impl LogQueue {
    fn new(limit: usize) -> Self {
        let state = QueueState {
            events: VecDeque::new(),
            bytes: 0,
            agent_bytes: 0,
            dropped: 0,
            is_writing: false,
            is_ending: false,
            agent_rate: LineRate { lines: AGENT_LINES.0, at: Instant::now() },
        };
        LogQueue { state: Mutex::new(state), changed: Condvar::new(), limit }
    }

    fn push(&self, event: String, is_of_agent: bool) {
        let mut state = self.state.lock_unpoisoned();
        let bytes = event.len() + EVENT_OVERHEAD;
        let takes_line = |state: &mut QueueState| {
            state.agent_bytes + bytes <= self.limit / 2
                && state.agent_rate.takes_line(event.len(), Instant::now())
        };
        if state.bytes + bytes <= self.limit && (!is_of_agent || takes_line(&mut state)) {
            state.bytes += bytes;
            state.agent_bytes += if is_of_agent { bytes } else { 0 };
            state.events.push_back(event);
        } else {
            state.dropped += 1;
        }
        // The thread waits for the first event, or for the first one that is dropped.
        if state.events.len() == 1 || state.dropped == 1 {
            self.changed.notify_all();
        }
    }

    /// Writes the events as they come.
    fn write_to<W: Write>(&self, output: impl Fn() -> W) {
        let mut reported_at = None;
        loop {
            let (events, dropped) = self.next_batch(&mut reported_at);
            // If stderr is closed, nobody reads the log.
            for event in events {
                let _ = writeln!(output(), "{event}");
            }
            if dropped > 0 {
                let verb = if dropped == 1 { "was" } else { "were" };
                let _ = writeln!(output(), "{} of the log {verb} dropped", ui::plural(dropped, "line"));
            }
        }
    }

    /// Waits for events, or for the time to report dropped ones. Returns the events, and the number of dropped ones to report.
    fn next_batch(&self, reported_at: &mut Option<Instant>) -> (VecDeque<String>, usize) {
        let mut state = self.state.lock_unpoisoned();
        state.is_writing = false;
        self.changed.notify_all();
        loop {
            let pause = reported_at.map_or(Duration::ZERO, |at| REPORT_PAUSE.saturating_sub(at.elapsed()));
            let reports = state.dropped > 0 && (state.is_ending || pause.is_zero());
            if reports || !state.events.is_empty() {
                let dropped = if reports { take(&mut state.dropped) } else { 0 };
                *reported_at = if reports { Some(Instant::now()) } else { *reported_at };
                (state.bytes, state.agent_bytes, state.is_writing) = (0, 0, true);
                return (take(&mut state.events), dropped);
            }
            let pause = if state.dropped > 0 { pause } else { Duration::MAX };
            let waited = self.changed.wait_timeout(state, pause);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until everything is written and reported, but not longer than `limit`.
    fn flush(&self, limit: Duration) {
        let is_unwritten =
            |state: &mut QueueState| state.is_writing || !state.events.is_empty() || state.dropped > 0;
        let mut state = self.state.lock_unpoisoned();
        state.is_ending = true;
        self.changed.notify_all();
        // The end of the time is no error.
        drop(self.changed.wait_timeout_while(state, limit, is_unwritten));
    }
}

/// The number of lines that may be logged now.
struct LineRate {
    lines: f64,
    at: Instant,
}

impl LineRate {
    fn takes_line(&mut self, bytes: usize, now: Instant) -> bool {
        let (most, per_second) = AGENT_LINES;
        let more = now.saturating_duration_since(self.at).as_secs_f64() * per_second;
        (self.lines, self.at) = ((self.lines + more).min(most), now);
        // A line of 16 MiB is below the burst of lines too.
        let cost = u32::try_from(bytes / LINE_BYTES).map_or(most, |lines| f64::from(lines + 1)).min(most);
        let takes = self.lines >= cost;
        self.lines -= if takes { cost } else { 0.0 };
        takes
    }
}

/// Adds events to the log, with the text of agents and clients escaped. It receives each event as a whole.
struct LogWriter {
    queue: Arc<LogQueue>,
    is_of_agent: bool,
}

impl Write for LogWriter {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        self.queue.push(ui::indented(text.trim_end_matches('\n')), self.is_of_agent);
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// An output whose reader takes one write after the other.
    #[derive(Clone)]
    struct Output {
        written: Sender<()>,
        may_go_on: Arc<Mutex<Receiver<()>>>,
        text: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.text.lock_unpoisoned().extend_from_slice(bytes);
            if bytes.ends_with(b"\n") {
                let _ = self.written.send(());
                // Without a sender it does not wait any more.
                let _ = self.may_go_on.lock_unpoisoned().recv();
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_beyond_the_queue_are_counted_and_the_others_written() {
        let queue = Arc::new(LogQueue::new(10 + 2 * EVENT_OVERHEAD));
        let ((written, is_written), (go_on, may_go_on)) = (channel(), channel());
        let output = Output { written, may_go_on: Arc::new(Mutex::new(may_go_on)), text: Arc::default() };
        let (writing, text) = (queue.clone(), output.text.clone());
        std::thread::spawn(move || writing.write_to(move || output.clone()));
        queue.push("first".into(), false);
        is_written.recv().unwrap();
        // The writer is stopped now.
        for event in ["12345", "67890", "no", "no more"] {
            queue.push(event.into(), false);
        }
        queue.flush(Duration::ZERO);
        assert_eq!(text.lock_unpoisoned().as_slice(), b"first\n");
        drop(go_on);
        queue.flush(Duration::MAX);
        let expected = "first\n12345\n67890\n2 lines of the log were dropped\n";
        assert_eq!(String::from_utf8_lossy(&text.lock_unpoisoned()), expected);
        queue.push("later".into(), false);
        queue.flush(Duration::MAX);
        assert!(text.lock_unpoisoned().ends_with(b"dropped\nlater\n"));
    }

    #[test]
    fn agents_have_a_rate_of_lines() {
        let start = Instant::now();
        let mut rate = LineRate { lines: AGENT_LINES.0, at: start };
        let mut taken = |seconds| {
            let now = start + Duration::from_secs(seconds);
            (0..5000).filter(|_| rate.takes_line(100, now)).count()
        };
        assert_eq!([taken(0), taken(1), taken(3), taken(3600)], [1000, 100, 200, 1000]);
        let mut rate = LineRate { lines: AGENT_LINES.0, at: start };
        assert_eq!((0..5000).filter(|_| rate.takes_line(9 * LINE_BYTES, start)).count(), 100);
        let later = start + Duration::from_secs(3600);
        assert!(rate.takes_line(64 << 20, later) && !rate.takes_line(0, later));
    }

    #[test]
    fn lines_of_agents_leave_half_of_the_queue() {
        let queue = LogQueue::new(10 * (4 + EVENT_OVERHEAD));
        for _ in 0..20 {
            queue.push("line".into(), true);
        }
        let waiting = || queue.state.lock_unpoisoned().events.len();
        assert_eq!(waiting(), 5);
        for _ in 0..20 {
            queue.push("deny".into(), false);
        }
        assert_eq!(waiting(), 10);
        queue.next_batch(&mut None);
        queue.push("line".into(), true);
        assert_eq!(waiting(), 1);
    }
}
