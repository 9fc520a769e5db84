//! The file a conversation is recorded into.

use std::io::ErrorKind;
use std::path::Path;

use duologue_transcript::{Error as TranscriptError, Recorder, RecorderBuilder};

use crate::error::{Error, Result};

/// Begins it; what is there is replaced only by `force`.
pub(crate) fn begin(recorder: RecorderBuilder, path: &Path, force: bool) -> Result<Recorder> {
    let begun = if force { recorder.replace(path) } else { recorder.create(path) };
    begun.map_err(|error| match error {
        TranscriptError::File { path, error } if error.kind() == ErrorKind::AlreadyExists => {
            Error::Usage(format!("{} exists; --force replaces it", path.display()))
        }
        error => error.into(),
    })
}

/// Takes it back: there was no conversation, and nothing shall stand in the way of the next try.
pub(crate) async fn take_back(recorder: Recorder, path: &Path) {
    // Whatever is wrong with the file, the error to tell is another one.
    let _ = recorder.finish().await;
    if path.symlink_metadata().is_ok_and(|file| file.is_file()) {
        let _ = std::fs::remove_file(path);
    }
}
