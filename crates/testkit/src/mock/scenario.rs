//! The names of what the mock can do.

use clap::ValueEnum;
use duologue_agent::schema::AvailableCommand;

/// What the mock does in a turn. The comments are what `--list` and the slash commands say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// A thought, a draft that is taken back, and the answer in its place
    Hello,
    /// Every way to take words back: with an id, without one, a thought, before a tool call
    Clear,
    /// Thoughts between messages
    Thoughts,
    /// A plan that is worked off
    Plan,
    /// Tool calls of every kind and status, with text, diffs, places, input and output
    Tools,
    /// A tool call that asks for permission, with all four kinds of answers
    Permission,
    /// Writes and reads a file through the editor, after asking
    Files,
    /// Runs programs in the editor's terminals, after asking
    Terminal,
    /// Asks the user: a form with a field of every type, then a link to open
    Elicitation,
    /// Switches the mode
    Modes,
    /// Changes config options of every kind
    Options,
    /// Replaces the slash commands
    Commands,
    /// Tells tokens and money used
    Usage,
    /// Retitles the session
    Info,
    /// Compacts its context: once with a summary, once in vain
    Compaction,
    /// Notices of every severity
    Notices,
    /// Every kind of content: text, image, sound, link, embedded text and bytes
    Content,
    /// Updates, content, kinds and fields nobody knows
    Unknown,
    /// Asks and notifies with methods beyond the protocol
    Extension,
    /// Turns to the client as to another agent, if the client says that it is one
    Colleague,
    /// A long answer in Markdown
    Markdown,
    /// Wide, joined and combining characters
    Unicode,
    /// Escape sequences and characters that reorder text, wherever text can be
    Hostile,
    /// A word a second
    Slow,
    /// Three hundred lines
    Long,
    /// Lists, loads, resumes, closes and deletes: says which sessions there are
    Sessions,
    /// Wants a login first (start the mock with it, and `session/new` wants it too)
    Login,
    /// Works until it is cancelled, a minute at most
    Cancel,
    /// Stops because the model refused
    Refusal,
    /// Stops because the answer got too long
    MaxTokens,
    /// Stops because the model was asked too often
    MaxTurnRequests,
    /// Answers the prompt with an error
    Error,
    /// Writes to stderr and goes on
    Stderr,
    /// Writes to stderr and ends with exit code 7, in the middle of a message
    Crash,
}

impl Scenario {
    /// Every scenario is a slash command.
    pub(super) fn commands() -> Vec<AvailableCommand> {
        let command = |scenario: &Scenario| AvailableCommand::new(scenario.name(), scenario.about());
        Scenario::value_variants().iter().map(command).collect()
    }

    /// Its name, as it is typed.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// What it does, in a line.
    pub(crate) fn about(self) -> String {
        self.to_possible_value()
            .and_then(|value| value.get_help().map(ToString::to_string))
            .unwrap_or_default()
    }

    /// The scenario a prompt begins with, as a word or as a slash command.
    pub(crate) fn of_prompt(text: &str) -> Option<Self> {
        let word = text.split_whitespace().next()?;
        Scenario::from_str(word.strip_prefix('/').unwrap_or(word), true).ok()
    }

    /// One line for each.
    pub(crate) fn list() -> String {
        let line = |scenario: &Scenario| format!("{:18}{}\n", scenario.name(), scenario.about());
        Scenario::value_variants().iter().map(line).collect()
    }
}
