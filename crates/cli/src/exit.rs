//! The exit codes and their meaning.

use std::process::ExitCode;

use duologue_transcript::ProcessExit as AgentExit;

use crate::signals::Signal;

/// The outcome of a command. The codes are documented in `duologue --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success.
    Ok,
    /// The command found a difference, a failed check or an invalid frame.
    Found,
    /// The command line is wrong; clap's own code.
    Usage,
    /// The agent could not be started, ended too early, or does not keep to the protocol.
    Agent,
    /// A file cannot be read or written.
    File,
    /// The agent did not advertise a capability that the command needs.
    NotAdvertised,
    /// The run succeeded, but a request of the agent was refused by the user, by a rule or for lack of a user.
    Refused,
    /// The reader of the output has closed it, so the result is unknown: the code of a program that SIGPIPE ends.
    ClosedOutput,
    /// A signal ended the command: 128 plus its number. `serve` and `attach` run until a signal, and end with [`Exit::Ok`].
    Signal(Signal),
    /// The exit code of the agent.
    AgentCode(u8),
}

/// The description of the exit codes in `--help`.
pub(crate) const HELP: &str = "\
Exit codes: 0 all is well; 1 something was found (a difference, a failed check, an invalid frame), or an agent said no: \
it answered with an error, requires a login, or did not end its turn; \
2 the command line is wrong, or a message is too long to be sent; \
3 the agent could not be started, died, did not answer in time or broke the protocol; \
4 a file cannot be read or written; 5 the agent did not advertise what the command needs; \
6 `run` refused the agent a permission, a file or a program, and nothing worse happened; \
129, 130, 143 ended by a hang-up, Ctrl-C, SIGTERM, which `serve` and `attach` wait for and end with 0; 141 the reader of the output closed it. \
`record` and `proxy` end as the agent does, with its code or 128 and the number of its signal; \
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
            Exit::NotAdvertised => 5,
            Exit::Refused => 6,
            Exit::ClosedOutput => 141,
            Exit::Signal(signal) => signal.code(),
            Exit::AgentCode(code) => code,
        }
    }

    /// Returns the worse of two outcomes: the one with the higher code, except that a refusal is the least bad.
    pub(crate) fn or_worse(self, other: Exit) -> Exit {
        let rank = |exit: Exit| match exit {
            Exit::Ok => 0,
            Exit::Refused => 1,
            exit => u16::from(exit.code()) + 1,
        };
        if rank(other) > rank(self) { other } else { self }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// Returns the exit code of a shell for such an end: the code, or 128 plus the number of the signal.
pub(crate) fn agent_code(exit: &AgentExit) -> Option<u8> {
    u8::try_from(exit.code.or_else(|| Some(128 + exit.signal?))?).ok()
}
