//! The stage that adds instructions to sessions.

use std::collections::{HashMap, HashSet, VecDeque};

use duologue_rpc::raw_message::member;
use duologue_schema::{
    InitializeRequest, LoadSessionRequest, NewSessionRequest, PromptRequest, Request as _,
    ResumeSessionRequest,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::link::StageLink;
use crate::message::StageMessage;
use crate::stage::{Decision, ProxyStage};

/// The method that copies a session, which is not stable yet.
const FORK_SESSION: &str = "session/fork";

/// Adds instructions for the agent to each session.
///
/// - If the agent advertises the capability `systemPrompt`, requests that open a session get
///   `systemPrompt: {"mode": "append"}`, or one more block in the one that the client sends.
/// - Else the first prompt of each session gets the text as its first block. A prompt that begins with `/` is a command and
///   stays as it is; the next one gets the text. A prompt that fails does not count. Sessions that are loaded or resumed have
///   had a prompt, so they get nothing.
///
/// The agent sees the text as one of the user, may quote it, and may show it when it replays the session. The client does not
/// see it in its own prompt, so say in your documentation that you add it.
///
/// ```
/// use duologue_proxy::{Proxy, SystemPromptStage};
///
/// let proxy = Proxy::new().stage(SystemPromptStage::new("Answer in one sentence."));
/// # drop(proxy);
/// ```
#[derive(Debug)]
#[must_use]
pub struct SystemPromptStage {
    text: String,
    /// The id of the client's `initialize`, until its response.
    initialize: Option<String>,
    /// True if the agent has the capability.
    is_supported: bool,
    sessions: PromptedSessions,
}

impl SystemPromptStage {
    /// Creates the stage with the text of the instructions.
    pub fn new(text: impl Into<String>) -> Self {
        SystemPromptStage {
            text: text.into(),
            initialize: None,
            is_supported: false,
            sessions: PromptedSessions::default(),
        }
    }

    fn block(&self) -> String {
        json!({ "type": "text", "text": self.text }).to_string()
    }

    /// Adds the instructions to a request that opens a session.
    fn open_session(&self, message: &StageMessage<'_>) -> Decision {
        let params = message.params().map_or("{}", RawValue::get);
        let Some(given) = member(params.as_bytes(), "systemPrompt") else {
            let prompt = format!(r#""systemPrompt":{{"mode":"append","content":[{}]}}"#, self.block());
            return replaced(message, with_item(params, ["{", "}"], &prompt, false));
        };
        let prompt = params.get(given.clone()).unwrap_or_default();
        let changed = if prompt == "null" {
            Some(format!(r#"{{"mode":"append","content":[{}]}}"#, self.block()))
        } else {
            member(prompt.as_bytes(), "content").and_then(|content| {
                let blocks = with_item(prompt.get(content.clone())?, ["[", "]"], &self.block(), false)?;
                Some([prompt.get(..content.start)?, &blocks, prompt.get(content.end..)?].concat())
            })
        };
        let params = changed.and_then(|prompt| {
            Some([params.get(..given.start)?, &prompt, params.get(given.end..)?].concat())
        });
        replaced(message, params)
    }

    /// Adds the text to the first prompt of a session.
    fn prompt(&mut self, message: &StageMessage<'_>) -> Decision {
        let (Some(session), Some(id), Some(params)) = (message.session_id(), message.id(), message.params())
        else {
            return Decision::Pass;
        };
        let params = params.get();
        let Some(span) = member(params.as_bytes(), "prompt").filter(|_| !self.sessions.contains(&session))
        else {
            return Decision::Pass;
        };
        let blocks = params.get(span.clone()).unwrap_or_default();
        let Ok(given) = serde_json::from_str::<Vec<Value>>(blocks) else { return Decision::Pass };
        let first = given.first().and_then(|block| block.get("text")?.as_str());
        if first.is_some_and(|text| text.trim_start().starts_with('/')) {
            return Decision::Pass;
        }
        self.sessions.open(id, &session);
        let params = with_item(blocks, ["[", "]"], &self.block(), true)
            .and_then(|blocks| Some([params.get(..span.start)?, &blocks, params.get(span.end..)?].concat()));
        replaced(message, params)
    }
}

/// Replaces the params of a message, and keeps all other bytes.
fn replaced(message: &StageMessage<'_>, params: Option<String>) -> Decision {
    match params.and_then(|params| RawValue::from_string(params).ok()) {
        Some(params) => message.with_params(&params),
        None => Decision::Pass,
    }
}

/// Adds an item to the text of a list or an object.
fn with_item(text: &str, [start, end]: [&str; 2], item: &str, is_first: bool) -> Option<String> {
    let inner = text.strip_prefix(start)?.strip_suffix(end)?;
    let comma = if inner.trim().is_empty() { "" } else { "," };
    Some(match is_first {
        true => [start, item, comma, inner, end].concat(),
        false => [start, inner, comma, item, end].concat(),
    })
}

impl ProxyStage for SystemPromptStage {
    fn client_message(&mut self, message: &StageMessage<'_>, _: &mut StageLink<'_>) -> Decision {
        if !message.is_request() {
            return Decision::Pass;
        }
        match message.method() {
            Some(InitializeRequest::METHOD) => {
                self.initialize = message.id().map(str::to_owned);
                Decision::Pass
            }
            Some(
                NewSessionRequest::METHOD
                | LoadSessionRequest::METHOD
                | ResumeSessionRequest::METHOD
                | FORK_SESSION,
            ) if self.is_supported => self.open_session(message),
            Some(LoadSessionRequest::METHOD | ResumeSessionRequest::METHOD) => {
                if let Some(session) = message.session_id() {
                    self.sessions.insert(session.into_owned());
                }
                Decision::Pass
            }
            Some(PromptRequest::METHOD) if !self.is_supported => self.prompt(message),
            _ => Decision::Pass,
        }
    }

    fn agent_message(&mut self, message: &StageMessage<'_>, _: &mut StageLink<'_>) -> Decision {
        if (self.initialize.is_none() && self.sessions.open.is_empty()) || !message.is_response() {
            return Decision::Pass;
        }
        let id = message.id();
        if id.is_some() && id == self.initialize.as_deref() {
            self.initialize = None;
            self.is_supported = message.result().is_some_and(|result| advertises(result.get()));
        } else if let Some(session) = id.and_then(|id| self.sessions.open.remove(id))
            && message.result().is_none()
        {
            self.sessions.remove(&session);
        }
        Decision::Pass
    }
}

/// Returns true if a response to `initialize` advertises the capability, in version 1 or 2.
fn advertises(result: &str) -> bool {
    let Ok(result) = serde_json::from_str::<Value>(result) else { return false };
    ["/agentCapabilities/sessionCapabilities/systemPrompt", "/capabilities/session/systemPrompt"]
        .iter()
        .any(|path| result.pointer(path).is_some_and(Value::is_object))
}

/// The sessions that have had a prompt.
#[derive(Debug, Default)]
struct PromptedSessions {
    sessions: HashSet<String>,
    /// The same, oldest first.
    order: VecDeque<String>,
    /// The open prompts with the text: their sessions by the id of the request.
    open: HashMap<String, String>,
}

impl PromptedSessions {
    /// The most sessions that are kept. The oldest one is forgotten, so it may get the text once more.
    const MOST: usize = 10_000;

    fn contains(&self, session: &str) -> bool {
        self.sessions.contains(session)
    }

    /// Notes a prompt with the text.
    fn open(&mut self, id: &str, session: &str) {
        self.insert(session.to_owned());
        // The agent never answers.
        if self.open.len() >= Self::MOST {
            self.open.clear();
        }
        self.open.insert(id.to_owned(), session.to_owned());
    }

    fn insert(&mut self, session: String) {
        if self.sessions.insert(session.clone()) {
            self.order.push_back(session);
        }
        if self.order.len() > Self::MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.sessions.remove(&oldest);
        }
    }

    fn remove(&mut self, session: &str) {
        if self.sessions.remove(session) {
            self.order.retain(|kept| kept != session);
        }
    }
}
