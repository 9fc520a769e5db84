//! `duologue replay`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use duologue_client::{AgentProcess, Command};
use duologue_rpc::{Stdio, Transport};
use duologue_transcript::{Recorder, Replay, ReplayReport, Side, Timing, Transcript, printable};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

use crate::commands::{AgentArgs, IgnoreArgs};
use crate::error::Result;
use crate::exit::{Exit, agent_code};
use crate::recording::{self, SecretArgs};
use crate::runtime;
use crate::signals::Signals;
use crate::source::SourceArgs;
use crate::ui::{self, BAD, BOLD, DIM, GOOD};

const EXAMPLES: &str = "\
Examples:
  duologue run hello -- duologue replay hello.jsonl    the recording is the agent
  duologue replay hello.jsonl -- my-agent              the recording is the client
An agent whose token counts vary from run to run can still pass:
  duologue replay hello.jsonl --ignore update.used --ignore result.usage -- my-agent";

/// The bytes of a line of stderr that are shown at once.
const STDERR_CHUNK: u64 = 64 * 1024;

/// Play the agent of a recording, or its client
///
/// Without an agent's command it plays the agent on stdin and stdout, so that an editor's tests need no real
/// agent. With one it plays the client, and compares the agent's messages with the recorded ones. Differences
/// go to stderr. The readable part of a damaged file is replayed, and the
/// exit code is 4 unless there was a difference.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// `fast`, `recorded`, or the recorded pauses times a number: `0.5x`
    #[arg(long, value_name = "HOW", default_value = "fast", value_parser = timing)]
    timing: Timing,
    #[command(flatten)]
    ignore: IgnoreArgs,
    /// Also report recorded messages of the client that it does not send this time
    #[arg(long)]
    strict: bool,
    /// Write this conversation to a new file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Replace the file if it exists, at the end and only if the other side has sent something
    #[arg(long, requires = "save")]
    force: bool,
    #[command(flatten)]
    secrets: SecretArgs,
    /// The folder that replaces the first recorded one; by default the current one if the
    /// recorded one does not exist
    #[arg(long, value_name = "DIR", requires = "agent")]
    cwd: Option<PathBuf>,
    /// Wait so many seconds for an agent that owes a message. At the end of its input it has two seconds
    #[arg(long, alias = "patience", value_name = "SECONDS", default_value_t = 30)]
    timeout: u32,
    /// Do not repeat what the recorded agent wrote to stderr
    #[arg(long)]
    no_stderr: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

fn timing(text: &str) -> std::result::Result<Timing, String> {
    match text {
        "fast" => Ok(Timing::Fast),
        "recorded" => Ok(Timing::Recorded),
        text => text
            .strip_suffix(['x', '×'])
            .and_then(|number| number.parse().ok())
            .filter(|factor: &f64| factor.is_finite() && *factor >= 0.0)
            .map(Timing::Scaled)
            .ok_or_else(|| "`fast`, `recorded` or a number with an x: `0.5x`".into()),
    }
}

pub(crate) fn run(args: ReplayArgs) -> Result<Exit> {
    let source = args.source.read()?;
    let damaged = source.print_damage();
    let transcript = source.transcript;
    let cwd = args.live_cwd(&transcript)?;
    let program =
        args.agent.given().map_or_else(|| transcript.header().program.clone(), |_| args.agent.words());
    let ignored = args.ignore.paths()?;
    IgnoreArgs::warn_of_unmatched(&ignored, &[&transcript])?;
    let mut replay = Replay::new(transcript)
        .ignoring(ignored)
        .timing(args.timing)
        .patience(Duration::from_secs(args.timeout.into()));
    if let Some(cwd) = cwd {
        replay = replay.cwd(cwd);
    }
    // Created before the first message: a conversation that cannot be saved is not started.
    let recorder = args.recorder(program)?;
    if let Some(recorder) = &recorder {
        replay = replay.record(recorder.clone());
    }
    let runtime = runtime::current_thread()?;
    let exit = match args.agent.given() {
        None => runtime.block_on(serve(&args, replay, recorder)),
        Some(command) => runtime.block_on(drive(&args, replay, command, recorder)),
    };
    // A blocked read of a terminal is not waited for.
    runtime.shutdown_background();
    // Lines that could not be read were neither replayed nor compared.
    Ok(match exit? {
        Exit::Ok | Exit::AgentCode(_) if damaged => Exit::File,
        exit => exit,
    })
}

/// Plays the agent.
async fn serve(args: &ReplayArgs, mut replay: Replay, recorder: Option<Recorder>) -> Result<Exit> {
    let stdio = Stdio::take()?;
    if !args.no_stderr {
        replay = replay.on_stderr(|line| {
            // The client has closed its end if this fails.
            let _ = writeln!(std::io::stderr(), "{}", printable(line));
        });
    }
    let report = replay.serve(stdio.transport).await?;
    args.finish(recorder, &report, Side::Client).await?;
    let found = args.print_report(&report, None)?;
    Ok(match report.exit.and_then(|exit| agent_code(&exit)) {
        _ if found => Exit::Found,
        Some(code) => Exit::AgentCode(code),
        None => Exit::Ok,
    })
}

/// Plays the client.
async fn drive(
    args: &ReplayArgs,
    replay: Replay,
    command: Command,
    recorder: Option<Recorder>,
) -> Result<Exit> {
    let mut signals = Signals::listen()?;
    let (process, pipes) = match AgentProcess::start(command) {
        Ok(started) => started,
        Err(error) => {
            args.discard(recorder).await;
            return Err(error.into());
        }
    };
    let stderr_copy = tokio::spawn(show_stderr(pipes.stderr, recorder.clone()));
    let driven = replay.drive(Transport::new(pipes.stdout, pipes.stdin));
    let report = tokio::select! {
        report = driven => report?,
        signal = signals.next() => {
            process.terminate();
            // A second signal drops the process, which kills it.
            tokio::select! {
                _ = process.end() => {}
                _ = signals.next() => {}
            }
            return Ok(Exit::Signal(signal));
        }
    };
    let status = process.end().await;
    // Child processes may hold the pipe open.
    let _ = tokio::time::timeout(Duration::from_millis(500), stderr_copy).await;
    if let (Some(recorder), Some(status)) = (&recorder, status) {
        recorder.exit(status);
    }
    args.finish(recorder, &report, Side::Agent).await?;
    let diff = report.diff();
    let found = args.print_report(&report, diff.as_deref())?;
    if !found {
        let lines = report.live.records().iter().filter_map(|record| record.line());
        let lines = ui::plural(lines.filter(|line| line.from == Side::Agent).count(), "line");
        writeln!(ui::stderr(), "{GOOD}no difference{GOOD:#} in {lines} of the agent")?;
    }
    Ok(if found { Exit::Found } else { Exit::Ok })
}

/// Shows the agent's stderr, and records it if there is a recorder.
async fn show_stderr(stderr: impl AsyncRead + Unpin, recorder: Option<Recorder>) {
    let mut lines = BufReader::new(stderr);
    let mut line = Vec::new();
    // Records whole lines: a secret is not found in parts.
    let mut recorded = recorder.map(|recorder| (recorder.stderr_writer(), recorder));
    // An endless line is shown in parts.
    while (&mut lines).take(STDERR_CHUNK).read_until(b'\n', &mut line).await.is_ok_and(|count| count > 0) {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\r', '\n']);
        let _ = writeln!(ui::stderr(), "{DIM}{}{DIM:#}", printable(text.trim_end()));
        if let Some((writer, recorder)) = &mut recorded {
            recorder.room().await;
            let _ = writer.write_all(&line);
        }
        line.clear();
    }
}

impl ReplayArgs {
    /// Returns the folder that replaces the recorded one.
    fn live_cwd(&self, transcript: &Transcript) -> Result<Option<PathBuf>> {
        if self.agent.given().is_none() {
            return Ok(None);
        }
        if let Some(cwd) = &self.cwd {
            return Ok(Some(std::path::absolute(cwd)?));
        }
        let is_there = transcript.cwd().is_none_or(|recorded| Path::new(&recorded).is_dir());
        if is_there { Ok(None) } else { Ok(Some(std::env::current_dir()?)) }
    }

    /// Creates the file for this conversation.
    fn recorder(&self, program: Vec<String>) -> Result<Option<Recorder>> {
        let Some(path) = &self.save else { return Ok(None) };
        let recorder = self.secrets.recorder().program(program);
        // Not for a pipe or a device.
        if self.force && (path.is_file() || !path.exists()) {
            return Ok(Some(recorder.replace_at_end(path)?));
        }
        recording::create(recorder, path, self.force).map(Some)
    }

    /// Completes the file, unless the live side has sent nothing.
    async fn finish(&self, recorder: Option<Recorder>, report: &ReplayReport, live: Side) -> Result<()> {
        let lines = report.live.records().iter().filter_map(|record| record.line());
        match recorder {
            Some(recorder) if lines.into_iter().any(|line| line.from == live) => {
                Ok(recorder.finish().await?)
            }
            recorder => {
                self.discard(recorder).await;
                Ok(())
            }
        }
    }

    /// Removes the file of a conversation that did not take place. A file that it would have replaced stays.
    async fn discard(&self, recorder: Option<Recorder>) {
        if let (Some(recorder), Some(path)) = (recorder, &self.save)
            && !self.force
        {
            recording::remove(recorder, path).await;
        }
    }

    /// Prints the differences. Returns true if there are any.
    fn print_report(&self, report: &ReplayReport, diff: Option<&str>) -> Result<bool> {
        let mut out = ui::stderr();
        for difference in &report.differences {
            let text = difference.to_string();
            let (title, detail) = text.split_once('\n').unwrap_or((&text, ""));
            writeln!(out, "{BAD}difference{BAD:#}: {}", printable(title))?;
            write_diff(&mut out, detail)?;
        }
        if self.strict {
            for unused in &report.unused {
                writeln!(out, "{BAD}difference{BAD:#}: never came: {}", printable(unused))?;
            }
        }
        if let Some(diff) = diff {
            writeln!(out, "{BAD}difference{BAD:#}: {BOLD}the conversations, ids and times aside{BOLD:#}")?;
            write_diff(&mut out, diff)?;
        }
        let strict = self.strict && !report.unused.is_empty();
        Ok(!report.differences.is_empty() || strict || diff.is_some())
    }
}

fn write_diff(out: &mut impl Write, diff: &str) -> Result<()> {
    for line in diff.lines() {
        let style = match line.trim_start().chars().next() {
            Some('-') => BAD,
            Some('+') => GOOD,
            _ => DIM,
        };
        writeln!(out, "{style}{}{style:#}", printable(line))?;
    }
    Ok(())
}
