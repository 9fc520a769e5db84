//! The file of a recording.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use duologue_transcript::{Error as TranscriptError, Recorder, RecorderBuilder};
use tokio::task::JoinHandle;

use crate::error::Result;
use crate::files;
use crate::ui::{self, DIM};

/// The part of a conversation that is not recorded.
#[derive(clap::Args)]
pub(crate) struct SecretArgs {
    /// Redact keys, tokens and authorization headers before they reach the file; `false` keeps them.
    /// The start of a key that is streamed in pieces stays, and so do secrets of an unknown shape or
    /// encoding: read a recording before you share it
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    redact_secrets: bool,
}

impl SecretArgs {
    /// Returns the settings of a recorder.
    pub(crate) fn recorder(&self) -> RecorderBuilder {
        let recorder = Recorder::builder().name(concat!("duologue ", env!("CARGO_PKG_VERSION")));
        if self.redact_secrets { recorder } else { recorder.keep_secrets() }
    }
}

/// Creates the file. An existing file is replaced only with `force`.
pub(crate) fn create(recorder: RecorderBuilder, path: &Path, force: bool) -> Result<Recorder> {
    let begun = if force { recorder.replace(path) } else { recorder.create(path) };
    begun.map_err(|error| match error {
        TranscriptError::File { path, error } if error.kind() == ErrorKind::AlreadyExists => {
            files::exists(&path)
        }
        error => error.into(),
    })
}

/// Creates the file, or one with a number before its extension if it exists: `talk-2.jsonl`. Returns its path too.
pub(crate) fn create_numbered(
    recorder: impl Fn() -> RecorderBuilder,
    path: &Path,
) -> Result<(Recorder, PathBuf)> {
    const NUMBERS: u32 = 10_000;
    let stem = path.file_stem().unwrap_or_default();
    for number in 1..NUMBERS {
        let path = match (number, path.extension()) {
            (1, _) => path.to_owned(),
            (_, extension) => {
                let mut name = stem.to_owned();
                name.push(format!("-{number}"));
                extension.into_iter().for_each(|extension| {
                    name.push(".");
                    name.push(extension);
                });
                path.with_file_name(name)
            }
        };
        match recorder().create(&path) {
            Err(TranscriptError::File { error, .. }) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
            Ok(recorder) => return Ok((recorder, path)),
        }
    }
    Err(files::exists(path))
}

/// Creates the file of a relay: the given one with `force`, else one with a number if it exists. Says so. Returns its
/// path too.
pub(crate) fn create_or_number(
    recorder: impl Fn() -> RecorderBuilder,
    path: &Path,
    force: bool,
) -> Result<(Recorder, PathBuf)> {
    if force {
        return Ok((create(recorder(), path, true)?, path.to_owned()));
    }
    let (recorder, created) = create_numbered(recorder, path)?;
    if created != path {
        let name = created.display().to_string();
        writeln!(ui::stderr(), "{DIM}recording to {}{DIM:#}", ui::printable(&name))?;
    }
    Ok((recorder, created))
}

/// The time that the end waits for the disk.
const DISK_TIMEOUT: Duration = Duration::from_secs(5);

/// The recording of a conversation that runs. An error of the file is printed once, and the conversation goes on.
pub(crate) struct RunningRecording {
    recorder: Recorder,
    complaint: JoinHandle<()>,
}

impl RunningRecording {
    /// Creates the value, and waits for an error in a task.
    pub(crate) fn new(recorder: Recorder) -> Self {
        let complaint = tokio::spawn(report_stop(recorder.clone()));
        RunningRecording { recorder, complaint }
    }

    /// Records the end of the agent and ends the recording. Returns true if it is complete.
    pub(crate) async fn finish(self, status: Option<ExitStatus>) -> bool {
        if let Some(status) = status {
            self.recorder.exit(status);
        }
        match tokio::time::timeout(DISK_TIMEOUT, self.recorder.finish()).await {
            Ok(written) => {
                // The recorder has an error exactly if this is one.
                let _ = self.complaint.await;
                written.is_ok()
            }
            Err(_) => {
                ui::print_error(&"the file takes nothing more; the recording is incomplete");
                false
            }
        }
    }
}

/// Prints once that the recording has stopped.
async fn report_stop(recorder: Recorder) {
    if let Some(error) = recorder.stopped().await {
        ui::print_error(&format_args!("recording stopped: {error}; the conversation goes on"));
    }
}

/// Removes the file of a conversation that did not start, so that the next attempt can create it.
pub(crate) async fn remove(recorder: Recorder, path: &Path) {
    // The error that the user needs is another one, so an error of the file is ignored.
    let _ = recorder.finish().await;
    if path.symlink_metadata().is_ok_and(|file| file.is_file()) {
        let _ = std::fs::remove_file(path);
    }
}
