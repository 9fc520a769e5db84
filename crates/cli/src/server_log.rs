//! The log of `duologue serve` on stderr.

use std::io::{self, Write};

use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::ui;

/// The target of the lines that an agent writes to its stderr.
const AGENT: &str = "duologue_hub::agent";
/// The target of refused access and of answers to questions.
const AUDIT: &str = "duologue::audit";

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
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(|| LogWriter);
    // A log that was set up before stays.
    let _ = tracing_subscriber::registry().with(layer.with_filter(filter)).try_init();
}

/// Writes events to stderr, with the text of agents and clients escaped. It receives each event as a whole.
struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        // A later line of an event must not look like an event.
        let text = text.trim_end_matches('\n').replace('\n', "\n  ");
        writeln!(ui::stderr(), "{}", ui::printable(&text))?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        ui::stderr().flush()
    }
}
