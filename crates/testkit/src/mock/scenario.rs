//! The scenarios of the mock agent: their names and descriptions.

use std::str::FromStr;

use duologue_agent::schema::{AvailableCommand, ProtocolVersion};

/// Declares the enum, the list of its variants, and their names and descriptions.
macro_rules! scenarios {
    ($($(#[$feature:meta])? $variant:ident $name:literal $about:literal,)+) => {
        /// A scenario: the behaviour of the mock agent in a turn.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Scenario {
            $(#[doc = $about] $(#[$feature])? $variant,)+
        }

        impl Scenario {
            /// All scenarios.
            pub const ALL: &[Scenario] = &[$($(#[$feature])? Scenario::$variant),+];

            /// Returns the name, as it is typed in a prompt.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($(#[$feature])? Scenario::$variant => $name,)+
                }
            }

            /// Returns the description, one line.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self {
                    $($(#[$feature])? Scenario::$variant => $about,)+
                }
            }
        }
    };
}

scenarios! {
    Hello "hello" "A thought, a draft that is cleared, and the final message",
    Clear "clear" "Cleared messages: with an id, without an id, a thought, before a tool call",
    Thoughts "thoughts" "Thoughts between messages",
    Plan "plan" "A plan whose entries are completed one by one",
    Plans "plans" "Plans with ids, one in Markdown, of which one is removed",
    Tools "tools" "Tool calls of every kind and status, with text, diffs, locations, input and output",
    Permission "permission" "A tool call that requests a permission, with options of all four kinds",
    Files "files" "Writes and reads a file through the client, after a permission request",
    Terminal "terminal" "Runs programs in the client's terminals, after a permission request",
    Elicitation "elicitation" "Elicitations: a form with a field of every type, then a link to open",
    Modes "modes" "Switches the mode",
    Options "options" "Changes config options of every kind",
    Commands "commands" "Replaces the slash commands",
    Usage "usage" "Reports the tokens and the cost",
    Info "info" "Changes the title of the session",
    Compaction "compaction" "Compacts its context: once with a summary, once with an error",
    Notices "notices" "Notices of every severity",
    Content "content" "Every kind of content: text, image, sound, link, embedded text and bytes",
    Unknown "unknown" "Unknown updates, content, kinds and fields",
    Extension "extension" "Requests and notifications of extension methods",
    PeerAgent "colleague" "Sends envelopes to the client, if the client advertises them",
    Subagents "subagents" "A child session with messages of its own, if the client shows it",
    Markdown "markdown" "A long answer in Markdown",
    Unicode "unicode" "Wide, joined and combining characters",
    Hostile "hostile" "Escape sequences and characters that reorder text, in every text",
    Slow "slow" "A word a second",
    Long "long" "Three hundred lines",
    Sessions "sessions" "Names the sessions that can be listed, loaded, resumed, closed and deleted",
    Login "login" "Requires a login (as the scenario of every turn, `session/new` requires it too)",
    Cancel "cancel" "Runs until it is cancelled, at most a minute",
    Refusal "refusal" "Stops because the model refused",
    MaxTokens "max-tokens" "Stops because the message is too long",
    MaxTurnRequests "max-turn-requests" "Stops because of too many requests to the model",
    Error "error" "Responds to the prompt with an error",
    Stderr "stderr" "Writes to stderr and continues",
    Crash "crash" "Ends in the middle of a message: as a program with exit code 7 and a line on stderr",
    #[cfg(feature = "protocol-v2")]
    Upserts "upserts" "Messages and a tool call that are sent whole, continued and replaced (protocol version 2)",
    #[cfg(feature = "protocol-v2")]
    Cancellable "cancellable" "A tool call that can be cancelled without its turn (protocol version 2)",
    #[cfg(feature = "protocol-v2")]
    Background "background" "A tool call and a terminal that go on after the turn (protocol version 2)",
    #[cfg(feature = "protocol-v2")]
    Unprompted "unprompted" "Begins work of its own after the turn (protocol version 2)",
}

impl Scenario {
    /// Returns a slash command for each scenario of a version.
    pub(super) fn commands(version: ProtocolVersion) -> Vec<AvailableCommand> {
        let command = |scenario: &Scenario| AvailableCommand::new(scenario.name(), scenario.about());
        let all = Scenario::ALL.iter().filter(|scenario| scenario.version() <= version);
        all.map(command).collect()
    }

    /// Returns the first version that has what the scenario shows.
    fn version(self) -> ProtocolVersion {
        match self {
            #[cfg(feature = "protocol-v2")]
            Scenario::Upserts | Scenario::Cancellable | Scenario::Background | Scenario::Unprompted => {
                ProtocolVersion::V2
            }
            _ => ProtocolVersion::V1,
        }
    }

    /// Returns the scenario that the first word of a prompt names, with or without a slash. Some clients wrap prompts in
    /// tags, such as `<previous_user_message>`. In a prompt that begins with a tag, the first word of the last text
    /// between tags counts that names a scenario.
    #[must_use]
    pub fn of_prompt(text: &str) -> Option<Self> {
        let first = |text: &str| {
            let word = text.split_whitespace().next()?;
            word.strip_prefix('/').unwrap_or(word).parse().ok()
        };
        match text.trim_start().starts_with('<') {
            true => texts_between_tags(text).filter_map(first).last(),
            false => first(text),
        }
    }

    /// Returns the list of all scenarios as text, one a line.
    #[must_use]
    pub fn list() -> String {
        Scenario::ALL.iter().map(|scenario| format!("{:18}{}\n", scenario.name(), scenario.about())).collect()
    }
}

/// Returns the texts between the tags of a prompt.
fn texts_between_tags(text: &str) -> impl Iterator<Item = &str> {
    text.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text))
}

impl FromStr for Scenario {
    type Err = UnknownScenario;

    fn from_str(name: &str) -> Result<Self, UnknownScenario> {
        let found = Scenario::ALL.iter().copied().find(|scenario| scenario.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| UnknownScenario(name.to_owned()))
    }
}

/// The error of a name that no [`Scenario`] has.
#[derive(Clone, Debug, thiserror::Error)]
#[error("there is no scenario {0:?}; `Scenario::ALL` contains all of them")]
pub struct UnknownScenario(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_found_in_the_prompts_of_clients() {
        let found = |text: &str| Scenario::of_prompt(text).map(Scenario::name);
        assert_eq!(found("tools, please"), None);
        assert_eq!(found("\n\n /tools please"), Some("tools"));
        assert_eq!(found("What are tools?"), None);
        assert_eq!(found("<previous_user_message>tools</previous_user_message>"), Some("tools"));
        let history = "<previous_user_message>hello</previous_user_message>\n\
            <previous_assistant_message>Hello!</previous_assistant_message>\n<user>\nplan it\n</user>";
        assert_eq!(found(history), Some("plan"));
        assert_eq!(found("<context>fn main() {}</context>\n\n/permission"), Some("permission"));
        assert_eq!(found("<a> b"), None);
        assert_eq!(found("is a < b? tools"), None);
    }
}
