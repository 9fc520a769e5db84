//! The errors of a stage that sends messages.

/// The result of sending a message from a stage.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a message of a stage was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The chain keeps as many ids of requests as it may.
    #[error("the proxy keeps {limit} ids of open requests; retry later or raise `Limits::in_flight`")]
    OpenRequests {
        /// The limit.
        limit: usize,
    },
    /// The receiver reads too slowly.
    #[error(
        "{bytes} bytes of output are unwritten, more than {limit}; retry later or raise `Limits::output_bytes_hard`"
    )]
    Output {
        /// The unwritten bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The stages have sent too many messages because of one line.
    #[error("the stages sent {limit} messages because of one line (`MESSAGES_PER_LINE`)")]
    MessagesPerLine {
        /// The limit.
        limit: usize,
    },
    /// The message is longer than a line may be.
    #[error("the message has {bytes} bytes, more than {limit} (`Limits::frame_bytes`)")]
    TooLong {
        /// The bytes of the message.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The stage has not taken a request with this id, or has answered it.
    #[error("no request with the id {0} waits for the response of this stage")]
    NotTaken(String),
    /// The params or the result cannot be encoded.
    #[error("the message cannot be encoded: {0}")]
    Encode(#[from] serde_json::Error),
    /// The connection has ended.
    #[error("the connection has ended")]
    Ended,
}
