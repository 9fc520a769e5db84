//! What the exit codes mean.

use std::process::ExitCode;

/// How a command ended. The numbers are documented in `duologue --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All is well.
    Ok = 0,
    /// It ran, and found something: a difference, a failed check, an invalid frame.
    Found = 1,
    /// The command line is wrong; clap's own code.
    Usage = 2,
    /// The agent could not be started, ended too early, or does not keep to the protocol.
    Agent = 3,
    /// A file cannot be read or written.
    File = 4,
    /// Ended by Ctrl-C.
    Interrupted = 130,
}

/// What `--help` says of them.
pub(crate) const HELP: &str = "\
Exit codes: 0 all is well; 1 something was found (a difference, a failed check, an invalid frame); \
2 the command line is wrong; 3 the agent could not be started, died or broke the protocol; \
4 a file cannot be read or written; 130 ended by Ctrl-C. `record` ends with the agent's own code.";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}
