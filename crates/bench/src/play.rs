//! The two command languages: the play on the command line of a client, and the command for the agent in a prompt.
//! The programs on the official Rust crate include this file too.

use std::time::Duration;

/// The length of a file that an agent reads.
pub const FILE_BYTES: usize = 4096;

/// The plays there are, for who asks for another one.
const PLAYS: &str = "`stream COUNT BYTES`, `prompts COUNT`, `read COUNT`, `sessions SESSIONS COUNT BYTES`, `start COUNT`, \
    `idle SESSIONS`, `image BYTES COUNT`, `redraw ROUNDS BYTES`, `modes COUNT`";

/// The play of a client: `PLAY NUMBER.. -- AGENT ARG..`.
#[allow(missing_docs, reason = "each line shows what the numbers are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Play {
    /// `stream COUNT BYTES`: one turn of so many chunks of so many bytes.
    Stream { count: usize, bytes: usize },
    /// `prompts COUNT`: so many prompts that are answered at once, one after the other.
    Prompts { count: usize },
    /// `read COUNT`: one turn in which the agent reads so many files of the client, one after the other.
    Read { count: usize },
    /// `sessions SESSIONS COUNT BYTES`: so many sessions on one connection, all streaming at once.
    Sessions { sessions: usize, count: usize, bytes: usize },
    /// `start COUNT`: starts so many agents, one after the other, each up to its answer to `initialize`.
    Start { count: usize },
    /// `idle SESSIONS`: opens so many sessions and leaves them alone.
    Idle { sessions: usize },
    /// `image BYTES COUNT`: so many prompts with an image of so many bytes, one after the other.
    Image { bytes: usize, count: usize },
    /// `redraw ROUNDS BYTES`: one turn in which a message grows to so many bytes in so many rounds; in each its next
    /// piece is pushed, the message is cleared, and pushed again as a whole.
    Redraw { rounds: usize, bytes: usize },
    /// `modes COUNT`: so many changes of the mode, one after the other. They are requests that end no turn. Only our programs
    /// play it.
    Modes { count: usize },
}

impl Play {
    /// Reads a play, or says what is wrong with it.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let numbers: Result<Vec<usize>, _> = words.iter().skip(1).map(|word| word.parse()).collect();
        let numbers =
            numbers.map_err(|error| format!("`{}`: {error}; there are {PLAYS}", words.join(" ")))?;
        let name = words.first().map_or("", String::as_str);
        Ok(match (name, numbers.as_slice()) {
            ("stream", &[count, bytes]) => Play::Stream { count, bytes },
            ("prompts", &[count]) => Play::Prompts { count },
            ("read", &[count]) => Play::Read { count },
            ("sessions", &[sessions, count, bytes]) => Play::Sessions { sessions, count, bytes },
            ("start", &[count]) => Play::Start { count },
            ("idle", &[sessions]) => Play::Idle { sessions },
            ("image", &[bytes, count]) => Play::Image { bytes, count },
            ("redraw", &[rounds, bytes]) => Play::Redraw { rounds, bytes },
            ("modes", &[count]) => Play::Modes { count },
            _ => return Err(format!("`{}` is no play; there are {PLAYS}", words.join(" "))),
        })
    }

    /// The words it is read from.
    pub fn words(&self) -> Vec<String> {
        let (name, numbers) = match *self {
            Play::Stream { count, bytes } => ("stream", vec![count, bytes]),
            Play::Prompts { count } => ("prompts", vec![count]),
            Play::Read { count } => ("read", vec![count]),
            Play::Sessions { sessions, count, bytes } => ("sessions", vec![sessions, count, bytes]),
            Play::Start { count } => ("start", vec![count]),
            Play::Idle { sessions } => ("idle", vec![sessions]),
            Play::Image { bytes, count } => ("image", vec![bytes, count]),
            Play::Redraw { rounds, bytes } => ("redraw", vec![rounds, bytes]),
            Play::Modes { count } => ("modes", vec![count]),
        };
        std::iter::once(name.to_owned()).chain(numbers.iter().map(ToString::to_string)).collect()
    }

    /// Returns the number of messages, and of bytes in them, that a client must have received.
    pub fn promises(&self) -> (usize, usize) {
        match *self {
            Play::Stream { count, bytes } => (count, count * bytes),
            Play::Prompts { count } | Play::Start { count } | Play::Modes { count } => (count, 0),
            Play::Read { count } => (count, count * FILE_BYTES),
            Play::Sessions { sessions, count, bytes } => (sessions * count, sessions * count * bytes),
            Play::Idle { sessions } => (sessions, 0),
            Play::Image { bytes, count } => (count, count * bytes),
            // The piece, the clear, and the whole; in the end the message is there once.
            Play::Redraw { rounds, bytes } => (3 * rounds, bytes),
        }
    }
}

/// The command for an agent: the text of the prompt.
#[allow(missing_docs, reason = "each line shows what the numbers are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptCommand {
    /// `end`: nothing.
    End,
    /// `stream COUNT BYTES`: so many chunks of so many bytes.
    Stream { count: usize, bytes: usize },
    /// `read COUNT`: so many files, one after the other; then one chunk.
    Read { count: usize },
    /// `redraw ROUNDS BYTES`: as in [`Play`].
    Redraw { rounds: usize, bytes: usize },
    /// `image`, beside an image: one chunk that says how many bytes it has.
    Image,
    /// `usage`: one chunk that says what the agent's process has used, in JSON.
    Usage,
}

impl PromptCommand {
    /// Reads a prompt.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let name = words.next()?;
        let numbers: Vec<usize> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        Some(match (name, numbers.as_slice()) {
            ("end", []) => PromptCommand::End,
            ("stream", &[count, bytes]) => PromptCommand::Stream { count, bytes },
            ("read", &[count]) => PromptCommand::Read { count },
            ("redraw", &[rounds, bytes]) => PromptCommand::Redraw { rounds, bytes },
            ("image", []) => PromptCommand::Image,
            ("usage", []) => PromptCommand::Usage,
            _ => return None,
        })
    }
}

/// Returns the lengths of a growing message, one for each round.
pub fn growth(rounds: usize, bytes: usize) -> impl Iterator<Item = usize> {
    (1..=rounds).map(move |round| bytes * round / rounds)
}

/// Durations in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// The sum by the number.
    pub mean: f64,
    /// Half took no longer.
    pub p50: f64,
    /// 99 in 100 took no longer.
    pub p99: f64,
}

impl Latency {
    /// Summarizes durations; all zeros if there are none.
    pub fn of(mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        let ns = |took: Duration| took.as_nanos() as f64;
        let last = took.len().saturating_sub(1);
        let place = |place: usize| took.get(place).copied().map_or(0.0, ns);
        let mean = took.iter().copied().map(ns).sum::<f64>() / took.len().max(1) as f64;
        Latency { mean, p50: place(last / 2), p99: place(last * 99 / 100) }
    }
}
