//! The file methods that a client handles for the agent.
//!
//! See [File system](https://agentclientprotocol.com/protocol/v1/file-system).

use std::path::PathBuf;

use duologue_schema_derive::wire;

use crate::SessionId;

/// The params of `fs/read_text_file`, which reads a file with the unsaved changes of the editor.
#[wire]
pub struct ReadTextFileRequest {
    /// The session.
    pub session_id: SessionId,
    /// The file, as an absolute path.
    pub path: PathBuf,
    /// The first line to read, counted from 1.
    pub line: Option<u32>,
    /// The greatest number of lines to read.
    pub limit: Option<u32>,
}

impl ReadTextFileRequest {
    /// Returns the requested part of the file `text`: at most [`limit`](Self::limit) lines from
    /// [`line`](Self::line) on, with their line ends. Returns an empty text if there are none.
    ///
    /// ```
    /// use duologue_schema::ReadTextFileRequest;
    ///
    /// let request = ReadTextFileRequest::new("session", "/notes.txt").line(2).limit(1);
    /// assert_eq!(request.lines_of("one\ntwo\nthree\n"), "two\n");
    /// ```
    #[must_use]
    pub fn lines_of<'t>(&self, text: &'t str) -> &'t str {
        let length = |text: &str, lines: u32| -> usize {
            text.split_inclusive('\n').take(lines as usize).map(str::len).sum()
        };
        let skipped = self.line.unwrap_or_default().saturating_sub(1);
        let (_, rest) = text.split_at(length(text, skipped));
        self.limit.map_or(rest, |limit| rest.split_at(length(rest, limit)).0)
    }
}

/// The answer to `fs/read_text_file`.
#[wire]
pub struct ReadTextFileResponse {
    /// The text.
    pub content: String,
}

/// The params of `fs/write_text_file`, which writes a file and creates it if it is missing.
#[wire]
pub struct WriteTextFileRequest {
    /// The session.
    pub session_id: SessionId,
    /// The file, as an absolute path.
    pub path: PathBuf,
    /// The whole new text.
    pub content: String,
}

/// The answer to `fs/write_text_file`.
#[wire]
pub struct WriteTextFileResponse {}
