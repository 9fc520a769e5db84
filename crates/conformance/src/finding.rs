//! The parts of a check: its description, its function, and the finding that it returns.

use std::future::Future;
use std::pin::Pin;

use duologue_schema::{
    InitializeRequest, ListSessionsRequest, LoadSessionRequest, NewSessionRequest, PromptRequest,
    Request as _, SetSessionConfigOptionRequest,
};
use duologue_transcript::Record;
use serde::Serialize;

use crate::harness::Harness;
#[cfg(feature = "http")]
use crate::transport::harness::ServerHarness;

/// A named rule of the protocol, and the function that tests an agent or a server against it.
#[derive(Clone, Copy, Serialize)]
pub struct Check {
    #[serde(rename = "check")]
    pub(crate) name: &'static str,
    pub(crate) group: &'static str,
    pub(crate) severity: Severity,
    pub(crate) rule: &'static str,
    pub(crate) page: &'static str,
    #[serde(skip)]
    pub(crate) run: CheckFunction,
}

/// The function of a check.
#[derive(Clone, Copy)]
pub(crate) enum CheckFunction {
    /// It tests an agent on stdio.
    Agent(for<'a> fn(&'a mut Harness) -> Running<'a>),
    /// It tests a server of the remote transports.
    #[cfg(feature = "http")]
    Server(for<'a> fn(&'a mut ServerHarness) -> Running<'a>),
}

impl Check {
    /// Returns the name, which does not change between releases.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the name of the group that the check belongs to.
    #[must_use]
    pub fn group(&self) -> &'static str {
        self.group
    }

    /// Returns the weight of a violation.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// Returns the rule, a sentence.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        self.rule
    }

    /// Returns the address of the page of the specification that states the rule.
    #[must_use]
    pub fn page(&self) -> &'static str {
        self.page
    }
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Check").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The future of a running check.
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Outcome> + 'a>>;

/// The result of a check. Both sides are findings, so that `?` ends a check early.
pub(crate) type Outcome = Result<Finding, Finding>;

/// The weight of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The specification demands it. A violation is a failure.
    Must,
    /// The specification recommends it, or every client relies on it. A violation is a warning.
    Should,
}

impl Severity {
    /// Returns `must` or `should`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Severity::Must => "must",
            Severity::Should => "should",
        }
    }
}

/// The verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The agent keeps to the rule.
    Pass,
    /// The agent violates a rule of [`Severity::Must`].
    Fail,
    /// The agent violates a rule of [`Severity::Should`], or keeps to a rule in a doubtful way.
    Warn,
    /// The check does not apply to the agent, or could not run.
    Skipped,
}

/// A verdict with its reason and the lines that show it.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) verdict: Verdict,
    /// The observation, in a sentence.
    pub(crate) saw: String,
    /// The lines that show it. If empty, the report shows everything sent and received during the check.
    pub(crate) shown: Vec<Record>,
    /// The checks that test a possible cause of this finding. If one of them fails, that one is the fault.
    pub(crate) causes: Vec<&'static str>,
    /// The failed check because of which a skipped one could not run, or was explained.
    pub(crate) because: Option<&'static str>,
}

impl Finding {
    fn new(verdict: Verdict, saw: impl Into<String>) -> Self {
        Finding { verdict, saw: saw.into(), shown: Vec::new(), causes: Vec::new(), because: None }
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

    /// Returns the finding of the checks that are skipped after this finding of `check`, if they are.
    pub(crate) fn explains(&self, check: &'static str) -> Option<Finding> {
        match self.verdict {
            Verdict::Fail => Some(skip_dependent(check, format!("because {check} failed"))),
            Verdict::Warn => Some(skip_dependent(check, format!("because {check} ended with a warning"))),
            Verdict::Skipped => self.because.map(|cause| skip_dependent(cause, &self.saw)),
            Verdict::Pass => None,
        }
    }

    /// Adds the lines that show the finding.
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

pub(crate) fn skip(reason: impl Into<String>) -> Finding {
    Finding::new(Verdict::Skipped, reason)
}

/// Creates a skip that the failure of `check` causes.
pub(crate) fn skip_dependent(check: &'static str, reason: impl Into<String>) -> Finding {
    Finding { because: Some(check), ..skip(reason) }
}

/// Returns the check that tests the responses to a method.
pub(crate) fn check_of_responses(method: &str) -> Option<&'static str> {
    Some(match method {
        InitializeRequest::METHOD => "initialize-answers",
        NewSessionRequest::METHOD => "session-new",
        PromptRequest::METHOD => "prompt-answered",
        LoadSessionRequest::METHOD => "load-replays",
        ListSessionsRequest::METHOD => "list-answers",
        SetSessionConfigOptionRequest::METHOD => "set-config-option",
        "_session/ping" => "ping-answered",
        "_session/discover" => "discover-fits",
        "_session/dialogue" => "dialogue-refusal",
        "_session/work" => "work-answered",
        method if method.starts_with("_duologue.dev/") => "unknown-extension",
        _ => return None,
    })
}

/// Declares the checks of a group: each with its name, function, severity, page and rule. `server` before the group declares
/// checks of a server of the remote transports.
macro_rules! checks {
    (server $group:literal; $($checks:tt)+) => {
        $crate::finding::checks! { @ Server, $group; $($checks)+ }
    };
    ($group:literal; $($checks:tt)+) => {
        $crate::finding::checks! { @ Agent, $group; $($checks)+ }
    };
    (@ $kind:ident, $group:literal; $($name:literal => $run:ident, $severity:ident, $page:ident, $rule:literal;)+) => {
        pub(super) const CHECKS: &[$crate::finding::Check] = &[$(
            $crate::finding::Check {
                name: $name,
                group: $group,
                severity: $crate::finding::Severity::$severity,
                rule: $rule,
                page: $crate::finding::page::$page,
                run: $crate::finding::CheckFunction::$kind(|harness| Box::pin($run(harness))),
            },
        )+];
    };
}
pub(crate) use checks;

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
    pub(crate) const ENVELOPES: &str = "RFD 0004 of Duologue (rfds/0004-envelopes.md)";
    pub(crate) const DIALOGUES: &str = "RFD 0005 of Duologue (rfds/0005-dialogue.md)";
    pub(crate) const WORK: &str = "RFD 0006 of Duologue (rfds/0006-work-orders.md)";
    #[cfg(feature = "http")]
    pub(crate) const REMOTE: &str =
        "https://agentclientprotocol.com/rfds/streamable-http-websocket-transport";
    #[cfg(feature = "http")]
    pub(crate) const WEBSOCKET: &str = "https://www.rfc-editor.org/rfc/rfc6455";
    #[cfg(feature = "http")]
    pub(crate) const RESUMPTION: &str = "RFD 0017 of Duologue (rfds/0017-remote-transport.md)";
    pub(crate) const OVERVIEW: &str = "https://agentclientprotocol.com/protocol/v1/overview";
    pub(crate) const V2_INITIALIZATION: &str = "https://agentclientprotocol.com/protocol/v2/initialization";
    pub(crate) const V2_OVERVIEW: &str = "https://agentclientprotocol.com/protocol/v2/overview";
    pub(crate) const V2_PROMPT: &str = "https://agentclientprotocol.com/protocol/v2/prompt-lifecycle";
    pub(crate) const V2_SESSIONS: &str = "https://agentclientprotocol.com/protocol/v2/session-setup";
    pub(crate) const SCHEMA: &str = "https://agentclientprotocol.com/protocol/v1/schema";
}
