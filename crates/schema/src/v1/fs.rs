//! Files the client reads and writes for the agent.
//!
//! See [File system](https://agentclientprotocol.com/protocol/v1/file-system).

use std::path::PathBuf;

use duologue_schema_derive::wire;

use crate::SessionId;

/// `fs/read_text_file`: reads a file as the editor has it, unsaved changes included.
#[wire]
pub struct ReadTextFileRequest {
    /// The session.
    pub session_id: SessionId,
    /// The file, as an absolute path.
    pub path: PathBuf,
    /// The first line to read, counted from 1.
    pub line: Option<u32>,
    /// How many lines to read at most.
    pub limit: Option<u32>,
}

impl ReadTextFileRequest {
    /// The part of `text`, the whole file, that is asked for: from [`line`](Self::line), at most
    /// [`limit`](Self::limit) lines, their ends included. Empty when there are no such lines.
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

/// `fs/write_text_file`: writes a file, and makes it if it is missing.
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
