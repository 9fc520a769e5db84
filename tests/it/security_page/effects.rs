//! The rows of the table of limits in `SECURITY.md`: a limit, and the effect at the limit.

pub(super) const EFFECTS: &[(&str, &str)] = &[
    (
        "Limits::frame_bytes",
        "an incoming line ends the connection; the sender of an outgoing one gets an error",
    ),
    ("Limits::depth", "the line is dropped; a request with a readable id is rejected"),
    ("Limits::values", "the same; a caller whose response exceeds it gets an error"),
    (
        "Limits::queue_bytes",
        "the reader pauses, unless a request other than the fullest stream's own prompt is pending",
    ),
    ("Limits::queue_bytes_hard", "the fullest stream ends with `Stalled`; the others go on"),
    (
        "Limits::stall_timeout",
        "over `queue_bytes` without progress: as above; over `output_bytes_hard` without progress: the connection ends",
    ),
    ("Limits::in_flight", "the next request is rejected"),
    (
        "Limits::in_flight_bytes",
        "the next request over `Limits::SMALL_REQUEST_BYTES` is rejected, unless it is alone",
    ),
    ("Limits::SMALL_REQUEST_BYTES", "a larger request counts against `Limits::in_flight_bytes`"),
    ("Limits::output_bytes", "senders of notifications wait"),
    (
        "Limits::output_bytes_hard",
        "responses of handlers wait at half of it, and the reader pauses at all of it. The connection ends without progress for `stall_timeout`, or at four times as much",
    ),
    ("Limits::parse_errors_in_a_row", "an agent stops answering unreadable lines"),
    ("Limits::cancel_grace", "a cancelled handler is dropped and answered"),
    (
        "Limits::ID_BYTES",
        "the request is rejected; a quarter of `frame_bytes` if that is less. Requests in a session with a longer id are rejected too",
    ),
    ("Limits::EARLY_BYTES", "output of an agent in a session that it has not answered yet is an error"),
    ("schema::PATH_BYTES", "the request is rejected"),
    ("Limits::NOISE_LINES", "the oldest line that was no message is evicted"),
    ("Limits::NOISE_LINE_BYTES", "the rest of it is dropped"),
    ("Session::BYTES_TOGETHER", "the agent rejects the request for the next session until one is closed"),
    ("limits::START_TIMEOUT", "the agent is killed: `StartTimeout`; `Client::start_timeout`"),
    ("limits::CANCEL_PATIENCE", "the turn fails with `CancelIgnored`, the session is free"),
    ("limits::CLOSE_STEP", "TERM, then KILL"),
    ("limits::REAP", "the wait for the end of a killed process stops"),
    ("limits::STDERR_TAIL", "the oldest bytes are evicted"),
    ("limits::KEPT_UPDATES", "the oldest update without a listener is evicted and counted"),
    ("limits::KEPT_BYTES", "the same"),
    ("limits::KEPT_BYTES_TOGETHER", "over all sessions: the session of the latest update evicts its oldest"),
    (
        "limits::STATE_BYTES",
        "a longer update or list is delivered, and `Session::state` stays unchanged; \
         `Client::keep_conversations` removes the limit",
    ),
    ("limits::OPEN_CALLS", "the least recently updated call is evicted, and the user gets more questions"),
    ("limits::OPEN_CALL_BYTES", "the same"),
    (
        "limits::OPEN_CALL_BYTES_TOGETHER",
        "over all sessions: the session of the latest call evicts its oldest",
    ),
    (
        "limits::HOST_BYTES",
        "requests to the host wait, and sessions are served in turn; `Client::host_bytes`",
    ),
    (
        "limits::FILE_THREADS",
        "requests for files and look-ups of questions wait, and connections are served in turn; work that is stuck for 5 s blocks only its own connection",
    ),
    ("limits::SCAN_BYTES", "a read of lines further into the file is rejected; `LocalHost::max_scan`"),
    (
        "limits::QUESTION_PATHS",
        "further paths of a question count as unknown: outside every allowed folder, inside every denied one",
    ),
    ("limits::READ_BYTES", "the read is rejected; `LocalHost::max_read`"),
    ("limits::TERMINALS", "the next program of the connection is rejected; `LocalHost::max_terminals`"),
    (
        "limits::TERMINALS_TOGETHER",
        "the next program of any connection of the host is rejected; `LocalHost::max_terminals_together`",
    ),
    ("limits::TERMINAL_OUTPUT", "the oldest output is evicted; the agent may set another number"),
    ("limits::MOST_TERMINAL_OUTPUT", "the highest number that it gets"),
    (
        "RecorderBuilder::QUEUE_BYTES",
        "the wire waits for the disk, or lines are dropped (`lossy`, or `Recorder::stderr` without waiting) and counted; `RecorderBuilder::queue_bytes`",
    ),
    (
        "RecorderBuilder::MEMORY_BYTES",
        "a recording in memory ends with `MemoryFull`, and the conversation goes on; `Recorder::transcript` returns the part before, and counts the lines after it; `RecorderBuilder::memory_bytes`",
    ),
    ("Transcript::LINE_BYTES", "the line is skipped; reading stops if its end is further than 1 GiB away"),
    ("DialogueLimits::window", "the first early message is delivered, with a gap before it"),
    ("DialogueLimits::patience", "the same"),
    ("DialogueLimits::inbox", "`OVERLOADED`, and the sender retries"),
    ("DialogueLimits::waiting_bytes", "the same"),
    ("DialogueLimits::messages", "the oldest can no longer be looked up"),
    ("DialogueLimits::message_bytes", "the message cannot be looked up"),
    ("DialogueLimits::dialogues", "one that has ended is evicted, else `OVERLOADED`"),
    ("DialogueLimits::receipt", "the message is sent again"),
    ("dialogue::MAX_DEPTH", "the message is rejected"),
    ("Beliefs::BYTES", "further beliefs are dropped and counted"),
    ("exchange::limits::MESSAGE_BYTES", "the message is rejected"),
    ("exchange::limits::SIGNATURE_BYTES", "the same"),
    ("exchange::limits::DIALOGUE_META_BYTES", "the request that carries the message is rejected"),
    (
        "exchange::limits::WORK_RESULTS",
        "the oldest order is forgotten, so that it runs again if it is repeated",
    ),
    (
        "exchange::limits::WORK_RESULT_BYTES",
        "the oldest results are dropped; a repeated order is answered with `not_found`",
    ),
    ("exchange::limits::CLOCK_SKEW", "a message from further in the future is rejected"),
    (
        "exchange::limits::REPLAY_MESSAGES_PER_SENDER",
        "the oldest message of the sender is evicted, and messages of that age or older are rejected",
    ),
    (
        "exchange::limits::REPLAY_MESSAGES",
        "the same, for unsigned senders first, then for the sender with the most",
    ),
    ("exchange::limits::STEPS_AHEAD", "a message after a larger gap is rejected"),
    (
        "exchange::limits::HOPS",
        "a query, delegation or work order is rejected, on both sides; `Exchange::max_hops`",
    ),
    (
        "exchange::limits::ATTACHMENT_BYTES",
        "an envelope is rejected, on both sides; `Exchange::max_attachment_bytes`",
    ),
    (
        "exchange::limits::ENVELOPE_IDS",
        "the oldest id is evicted, and an envelope that repeats it counts as new",
    ),
    (
        "exchange::limits::ENDED_TASKS",
        "the oldest ended task is forgotten, and a repetition of its delegation is a new task",
    ),
    ("exchange::limits::ENDED_TASK_BYTES", "the same; an end that is too large alone is not sent again"),
    (
        "exchange::limits::OUTPUT_BYTES",
        "the oldest chunks of the unread output of a delegation are dropped and reported as a gap",
    ),
    ("exchange::limits::OUTPUT_CHUNK_BYTES", "each chunk of output counts this much more"),
    ("exchange::limits::OUTPUT_AHEAD", "a missing chunk of output is reported as a gap"),
    (
        "exchange::limits::SUBSCRIPTION_MESSAGES",
        "the oldest notification for a subscriber is evicted, and the subscriber gets the number",
    ),
    ("exchange::limits::SUBSCRIPTION_BYTES", "the same"),
];
