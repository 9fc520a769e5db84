//! The file of a recording.

use std::io::ErrorKind;
use std::path::Path;

use duologue_transcript::{Error as TranscriptError, Recorder, RecorderBuilder};

use crate::error::Result;
use crate::files;

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

/// Removes the file of a conversation that did not start, so that the next attempt can create it.
pub(crate) async fn remove(recorder: Recorder, path: &Path) {
    // The error that the user needs is another one, so an error of the file is ignored.
    let _ = recorder.finish().await;
    if path.symlink_metadata().is_ok_and(|file| file.is_file()) {
        let _ = std::fs::remove_file(path);
    }
}
