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
