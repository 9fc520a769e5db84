//! What a check is, and what it found.

use std::future::Future;
use std::pin::Pin;

use duologue_transcript::Record;

use super::bench::Bench;

/// One thing that is checked.
pub(crate) struct Check {
    /// Its name, which stays.
    pub(crate) name: &'static str,
    /// What must hold, in a sentence.
    pub(crate) rule: &'static str,
    pub(crate) severity: Severity,
    /// Where the specification says so.
    pub(crate) page: &'static str,
    pub(crate) run: for<'a> fn(&'a mut Bench) -> Running<'a>,
}

/// A check at work.
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Outcome> + 'a>>;

/// What a check ends with; `?` ends it early.
pub(crate) type Outcome = Result<Finding, Finding>;

/// How much a violation weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// The specification demands it: a violation is a failure.
    Must,
    /// It asks for it, or every client relies on it: a violation is a warning.
    Should,
}

impl Severity {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Severity::Must => "must",
            Severity::Should => "should",
        }
    }
}

/// What came of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Pass,
    Fail,
    Warn,
    Skipped,
}

/// A verdict with its reason and the lines that show it.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) verdict: Verdict,
    /// What was seen, in a sentence.
    pub(crate) saw: String,
    /// The lines that show it; what was said during the check if empty.
    pub(crate) shown: Vec<Record>,
    /// The checks that test a cause this finding may have. If one of them fails, that is the fault.
    pub(crate) causes: Vec<&'static str>,
    /// Set on a skipped check that could not run, or was explained, because another check failed.
    pub(crate) is_dependent: bool,
}

impl Finding {
    fn new(verdict: Verdict, saw: impl Into<String>) -> Self {
        Finding { verdict, saw: saw.into(), shown: Vec::new(), causes: Vec::new(), is_dependent: false }
    }

    /// Names a check that tests a possible cause of this finding.
    pub(crate) fn explained_by(mut self, check: &'static str) -> Self {
        self.causes.push(check);
        self
    }

    /// Turns a failure into a skip, for a check that needs the step that failed and tests another rule.
    pub(crate) fn needed(self, step: &str) -> Self {
        match self.verdict {
            Verdict::Fail => skip(format!("{step}: {}", self.saw)),
            _ => self,
        }
    }

    /// Returns why other checks are skipped on account of this finding of `check`, if they are.
    pub(crate) fn explains(&self, check: &str) -> Option<String> {
        match self.verdict {
            Verdict::Fail => Some(format!("because {check} failed")),
            Verdict::Warn => Some(format!("because {check} ended with a warning")),
            Verdict::Skipped if self.is_dependent => Some(self.saw.clone()),
            Verdict::Skipped | Verdict::Pass => None,
        }
    }

    /// The same with the lines that show it.
    pub(crate) fn shown(mut self, records: impl IntoIterator<Item = Record>) -> Self {
        self.shown.extend(records);
        self
    }
}

pub(crate) fn pass(saw: impl Into<String>) -> Finding {
    Finding::new(Verdict::Pass, saw)
}

pub(crate) fn fail(saw: impl Into<String>) -> Finding {
    Finding::new(Verdict::Fail, saw)
}

pub(crate) fn warn(saw: impl Into<String>) -> Finding {
    Finding::new(Verdict::Warn, saw)
}

pub(crate) fn skip(why: impl Into<String>) -> Finding {
    Finding::new(Verdict::Skipped, why)
}

/// A skip because another check failed; `why` says so.
pub(crate) fn skip_dependent(why: impl Into<String>) -> Finding {
    Finding { is_dependent: true, ..skip(why) }
}

/// Returns the check that tests the answers to a method.
pub(crate) fn check_of_answers(method: &str) -> Option<&'static str> {
    Some(match method {
        "initialize" => "initialize-answers",
        "session/new" => "session-new",
        "session/prompt" => "prompt-answered",
        "session/load" => "load-replays",
        "session/list" => "list-answers",
        "session/set_config_option" => "set-config-option",
        "_session/ping" => "ping-answered",
        "_session/discover" => "discover-fits",
        method if method.starts_with("_duologue.dev/") => "unknown-extension",
        _ => return None,
    })
}

/// Declares a check: its name, severity, page, rule and function.
macro_rules! check {
    ($name:literal, $severity:ident, $page:expr, $rule:literal, $run:path) => {
        $crate::check::finding::Check {
            name: $name,
            rule: $rule,
            severity: $crate::check::finding::Severity::$severity,
            page: $page,
            run: |bench| Box::pin($run(bench)),
        }
    };
}
pub(crate) use check;

/// The pages of the specifications.
pub(crate) mod page {
    pub(crate) const JSON_RPC: &str = "https://www.jsonrpc.org/specification";
    pub(crate) const JSON: &str = "https://www.rfc-editor.org/rfc/rfc8259";
    pub(crate) const INITIALIZATION: &str = "https://agentclientprotocol.com/protocol/v1/initialization";
    pub(crate) const TRANSPORTS: &str = "https://agentclientprotocol.com/protocol/v1/transports";
    pub(crate) const SESSION_SETUP: &str = "https://agentclientprotocol.com/protocol/v1/session-setup";
    pub(crate) const SESSION_LIST: &str = "https://agentclientprotocol.com/protocol/v1/session-list";
    pub(crate) const SESSION_MODES: &str = "https://agentclientprotocol.com/protocol/v1/session-modes";
    pub(crate) const CONFIG_OPTIONS: &str =
        "https://agentclientprotocol.com/protocol/v1/session-config-options";
    pub(crate) const PROMPT_TURN: &str = "https://agentclientprotocol.com/protocol/v1/prompt-turn";
    pub(crate) const CANCEL: &str = "https://agentclientprotocol.com/protocol/v1/prompt-turn#cancellation";
    pub(crate) const CANCELLATION: &str = "https://agentclientprotocol.com/protocol/v1/cancellation";
    pub(crate) const AUTHENTICATION: &str = "https://agentclientprotocol.com/protocol/v1/authentication";
    pub(crate) const EXTENSIBILITY: &str = "https://agentclientprotocol.com/protocol/v1/extensibility";
    pub(crate) const ENVELOPES: &str =
        "https://github.com/duologue/duologue/blob/main/rfds/0004-envelopes.md";
    pub(crate) const SCHEMA: &str = "https://agentclientprotocol.com/protocol/v1/schema";
}
