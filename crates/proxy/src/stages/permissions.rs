//! The stage that answers permission requests.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use duologue_schema::{
    Error as RpcError, Notification as _, Request as _, RequestPermissionRequest, SessionNotification,
    params_fault,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::link::StageLink;
use crate::message::StageMessage;
use crate::stage::{Decision, ProxyStage};

/// The answer to a permission request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PermissionRule {
    /// The client gets the request.
    #[default]
    Ask,
    /// The option `allow_once` is selected. A request without this option, or with several of them, goes to the client.
    Allow,
    /// The option `reject_once` is selected, else `reject_always`. Without both, or with several of the first kind there is,
    /// the outcome is `cancelled`.
    Deny,
}

/// Answers permission requests of the agent by the kind of the tool: `read`, `edit`, `delete`, `move`, `search`, `execute`,
/// `think`, `fetch`, `switch_mode`, `other`, or one of the agent's own.
///
/// A kind without a rule has the rule of [`otherwise`](Self::otherwise), by default [`Ask`](PermissionRule::Ask). In version 2
/// a request for a command is `execute`. The kind that an earlier update gave the tool call counts too, and the strictest rule
/// of all. A request whose kind is unknown, or whose ids have more than 256 bytes, is denied if `otherwise` denies, else the
/// client gets the request. A request that cannot be read is rejected if any rule denies.
///
/// The kind is a claim of the agent. A rule that allows trusts the agent, and an agent that does not ask is not stopped. This
/// is not a sandbox. A line of the agent that the client may read in another way
/// ([`is_suspect`](StageMessage::is_suspect)) is dropped.
///
/// ```
/// use duologue_proxy::{PermissionPolicy, PermissionRule, Proxy};
///
/// let policy = PermissionPolicy::new()
///     .rule("read", PermissionRule::Allow)
///     .rule("execute", PermissionRule::Deny);
/// let proxy = Proxy::new().stage(policy);
/// # drop(proxy);
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct PermissionPolicy {
    rules: HashMap<String, PermissionRule>,
    otherwise: PermissionRule,
    kinds: KnownKinds,
}

impl PermissionPolicy {
    /// Creates a policy that asks for everything.
    pub fn new() -> Self {
        PermissionPolicy::default()
    }

    /// Sets the rule for a kind of tool.
    pub fn rule(mut self, kind: impl Into<String>, rule: PermissionRule) -> Self {
        self.rules.insert(kind.into(), rule);
        self
    }

    /// Sets the rule for all other kinds.
    pub fn otherwise(mut self, rule: PermissionRule) -> Self {
        self.otherwise = rule;
        self
    }

    /// Returns the strictest rule for the kinds of an operation. `is_clear` is false if a part of the operation is unknown.
    fn rule_for(&self, kinds: &[&str], is_clear: bool) -> PermissionRule {
        let is_clear = is_clear && !kinds.is_empty();
        let rules = || kinds.iter().map(|kind| self.rules.get(*kind).copied().unwrap_or(self.otherwise));
        let is_denied = rules().any(|rule| rule == PermissionRule::Deny)
            || !is_clear && self.otherwise == PermissionRule::Deny;
        match () {
            () if is_denied => PermissionRule::Deny,
            () if is_clear && rules().all(|rule| rule == PermissionRule::Allow) => PermissionRule::Allow,
            () => PermissionRule::Ask,
        }
    }

    /// Returns true if a rule denies.
    fn has_denial(&self) -> bool {
        self.rules.values().chain([&self.otherwise]).any(|rule| *rule == PermissionRule::Deny)
    }

    fn decide(&mut self, message: &StageMessage<'_>) -> Decision {
        let params = message.params().map_or("{}", RawValue::get);
        let asked = match serde_json::from_str::<AskedPermission<'_>>(params) {
            Ok(asked) => asked,
            // The client may read what this stage cannot, such as a member that occurs twice.
            Err(error) if self.has_denial() => {
                return Decision::error(RpcError::invalid_params(params_fault(
                    RequestPermissionRequest::METHOD,
                    &error,
                )));
            }
            Err(_) => return Decision::Pass,
        };
        let (tools, is_clear) = asked.tools();
        let known = tools.iter().filter_map(|(_, call)| self.kinds.get(&asked.session_id, (*call)?));
        let kinds: Vec<&str> = tools.iter().filter_map(|(kind, _)| *kind).chain(known).collect();
        // The kind that an earlier update gave to a call with a longer id is not known.
        let calls = tools.iter().filter_map(|(_, call)| *call);
        let is_kept = calls.chain([asked.session_id.as_ref()]).all(KnownKinds::keeps);
        let rule = self.rule_for(&kinds, is_clear && is_kept);
        let options =
            |kind: &str| asked.options.iter().filter(|option| option.kind == kind).collect::<Vec<_>>();
        // No rule chooses one of several, such as the answers to a question.
        let selected = match rule {
            PermissionRule::Ask => return Decision::Pass,
            PermissionRule::Allow => match options("allow_once")[..] {
                [option] => Some(option),
                _ => return Decision::Pass,
            },
            PermissionRule::Deny => match (&options("reject_once")[..], &options("reject_always")[..]) {
                ([option], _) | ([], [option]) => Some(*option),
                _ => None,
            },
        };
        let outcome = match selected {
            Some(option) => json!({ "outcome": "selected", "optionId": option.option_id }),
            None => json!({ "outcome": "cancelled" }),
        };
        tracing::info!(?rule, ?kinds, "the proxy answered a permission request");
        Decision::result(&json!({ "outcome": outcome }))
    }
}

impl ProxyStage for PermissionPolicy {
    fn agent_message(&mut self, message: &StageMessage<'_>, _: &mut StageLink<'_>) -> Decision {
        match message.method() {
            _ if message.is_suspect() => Decision::Drop,
            Some(SessionNotification::METHOD) => {
                self.kinds.note(message);
                Decision::Pass
            }
            Some(RequestPermissionRequest::METHOD) => self.decide(message),
            _ => Decision::Pass,
        }
    }
}

/// The members of a permission request that both versions of the protocol have, and the tool of either.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AskedPermission<'a> {
    #[serde(borrow)]
    session_id: Cow<'a, str>,
    #[serde(borrow)]
    options: Vec<AskedOption<'a>>,
    /// Version 1.
    #[serde(borrow)]
    tool_call: Option<AskedTool<'a>>,
    /// Version 2.
    #[serde(borrow)]
    subject: Option<AskedSubject<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AskedOption<'a> {
    #[serde(borrow)]
    option_id: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AskedTool<'a> {
    #[serde(borrow)]
    tool_call_id: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Option<Cow<'a, str>>,
}

impl AskedTool<'_> {
    fn named(&self) -> KindAndCall<'_> {
        (self.kind.as_deref(), Some(self.tool_call_id.as_ref()))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AskedSubject<'a> {
    #[serde(borrow, rename = "type")]
    of: Cow<'a, str>,
    #[serde(borrow)]
    tool_call: Option<AskedTool<'a>>,
    /// The tool call of a command.
    #[serde(borrow)]
    tool_call_id: Option<Cow<'a, str>>,
}

/// The kind and the id of a tool call, as far as a request names them.
type KindAndCall<'a> = (Option<&'a str>, Option<&'a str>);

impl AskedPermission<'_> {
    /// Returns the tools of both versions, and false if the subject is of an unknown type.
    fn tools(&self) -> (Vec<KindAndCall<'_>>, bool) {
        let mut tools: Vec<_> = self.tool_call.iter().map(AskedTool::named).collect();
        let Some(subject) = &self.subject else { return (tools, true) };
        tools.extend(subject.tool_call.iter().map(AskedTool::named));
        if subject.of == "command" {
            tools.push((Some("execute"), subject.tool_call_id.as_deref()));
        }
        (tools, matches!(subject.of.as_ref(), "command" | "tool_call"))
    }
}

/// The kinds of recent tool calls.
#[derive(Debug, Default)]
struct KnownKinds {
    /// The kinds by session and tool call.
    kinds: HashMap<(String, String), String>,
    /// The keys, oldest first.
    order: VecDeque<(String, String)>,
}

impl KnownKinds {
    /// The most tool calls whose kinds are kept. The oldest one is forgotten, so its request is one without a kind.
    const MOST: usize = 4096;
    /// The longest ids and kinds that are kept, in bytes.
    const BYTES: usize = 256;

    /// Returns true for an id or a kind that is short enough to be kept.
    fn keeps(text: &str) -> bool {
        text.len() <= Self::BYTES
    }

    fn get(&self, session: &str, call: &str) -> Option<&str> {
        self.kinds.get(&(session.to_owned(), call.to_owned())).map(String::as_str)
    }

    /// Keeps the kind that an update gives its tool call.
    fn note(&mut self, message: &StageMessage<'_>) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Update<'a> {
            #[serde(borrow)]
            session_id: Cow<'a, str>,
            #[serde(borrow)]
            update: AskedTool<'a>,
        }
        let Some(params) = message.params().map(RawValue::get) else { return };
        // Most updates are pieces of text. The name may have escapes.
        let may_have = |text: &[u8]| memchr::memmem::find(params.as_bytes(), text).is_some();
        if !may_have(b"\"kind\"") && !may_have(b"\\u00") {
            return;
        }
        // A member may come twice. The last one counts.
        let once = || serde_json::from_str::<Value>(params).map(|params| params.to_string());
        let repaired;
        let update = match serde_json::from_str::<Update<'_>>(params) {
            Ok(update) => Ok(update),
            Err(_) => {
                repaired = once().unwrap_or_default();
                serde_json::from_str(&repaired)
            }
        };
        let Ok(Update { session_id, update: AskedTool { tool_call_id, kind: Some(kind) } }) = update else {
            return;
        };
        if !Self::keeps(&session_id) || !Self::keeps(&tool_call_id) || !Self::keeps(&kind) {
            return;
        }
        let key = (session_id.into_owned(), tool_call_id.into_owned());
        if self.kinds.insert(key.clone(), kind.into_owned()).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > Self::MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.kinds.remove(&oldest);
        }
    }
}
