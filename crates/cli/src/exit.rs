//! What the exit codes mean.

use std::process::ExitCode;

use duologue_transcript::Exit as AgentExit;

use crate::signals::Signal;

/// How a command ended. The numbers are documented in `duologue --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All is well.
    Ok,
    /// It ran, and found something: a difference, a failed check, an invalid frame.
    Found,
    /// The command line is wrong; clap's own code.
    Usage,
    /// The agent could not be started, ended too early, or does not keep to the protocol.
    Agent,
    /// A file cannot be read or written.
    File,
    /// The agent did not advertise what it was to be asked.
    NotSpoken,
    /// Ended by a signal: 128 and its number.
    Signal(Signal),
    /// Whatever the agent ended with.
    AsTheAgent(u8),
}

/// What `--help` says of them.
pub(crate) const HELP: &str = "\
Exit codes: 0 all is well; 1 something was found (a difference, a failed check, an invalid frame), or an agent said no; \
2 the command line is wrong; 3 the agent could not be started, died or broke the protocol; \
4 a file cannot be read or written; 5 the agent does not speak what the command needs; 129, 130, 143 ended by a hang-up, Ctrl-C, SIGTERM. \
`record` ends as the agent does, with its code or 128 and the number of its signal; \
4 if the agent ended well and the recording is incomplete. \
`replay` as an agent ends as the recorded agent did if that ended by itself; 1 if there was a difference.";

impl Exit {
    fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Found => 1,
            Exit::Usage => 2,
            Exit::Agent => 3,
            Exit::File => 4,
            Exit::NotSpoken => 5,
            Exit::Signal(signal) => signal.code(),
            Exit::AsTheAgent(code) => code,
        }
    }

    /// The worse one of two.
    pub(crate) fn or_worse(self, other: Exit) -> Exit {
        if other.code() > self.code() { other } else { self }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// What a shell says of an agent that ended so: its code, or 128 and the number of its signal.
pub(crate) fn agent_code(exit: &AgentExit) -> Option<u8> {
    u8::try_from(exit.code.or_else(|| Some(128 + exit.signal?))?).ok()
}
