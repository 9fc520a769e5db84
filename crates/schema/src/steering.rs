//! Steering: a message of the user for the turn that runs. `_session/steering` is an extension of several agents.

use duologue_schema_derive::wire;
use serde_json::{Map, Value, json};

use crate::{ContentBlock, InitializeResponse, Meta, Request, SessionId, Versioned, VersionedRequest};

/// The params of `_session/steering`: a message of the user for the turn that runs.
#[wire]
pub struct SteerRequest {
    /// The session.
    pub session_id: SessionId,
    /// The message.
    pub prompt: Vec<ContentBlock>,
}

/// The response to `_session/steering`.
#[wire]
pub struct SteerResponse {
    /// The effect of the message.
    pub outcome: SteerOutcome,
}

/// The effect of a message that a client sent while a turn ran. Read an unknown one as `StartedNewTurn`: the agent has
/// the message, and it must not be sent again.
#[wire(open)]
pub enum SteerOutcome {
    /// The message is part of the running turn.
    #[wire(rename = "injected")]
    Injected,
    /// No turn ran, and the agent began one that is not the answer to a prompt.
    #[wire(rename = "startedNewTurn")]
    StartedNewTurn,
    /// No turn runs, and the agent has not kept the message. Send it as a prompt.
    #[wire(rename = "promptRequired")]
    PromptRequired,
    /// The agent could not use the message.
    #[wire(rename = "failed")]
    Failed,
}

/// The key of `_meta` for steering.
const STEERING: &str = "steering";
const IDLE_BEHAVIOR: &str = "idleBehavior";
const PROMPT_REQUIRED: &str = "promptRequired";

impl Request for SteerRequest {
    const METHOD: &'static str = "_session/steering";
    type Result = SteerResponse;
}

impl Versioned for SteerRequest {}
impl Versioned for SteerResponse {}
impl VersionedRequest for SteerRequest {}

/// Returns the member of `_meta` for steering.
fn member(meta: Option<&Meta>) -> Map<String, Value> {
    meta.and_then(|meta| meta.get(STEERING)).unwrap_or_default()
}

fn insert(meta: &mut Option<Meta>, key: &str, value: Value) {
    let mut steering = member(meta.as_ref());
    steering.insert(key.to_owned(), value);
    meta.get_or_insert_default().insert(STEERING, Value::Object(steering));
}

impl SteerRequest {
    /// Asks the agent to start nothing if no turn runs. The outcome is [`SteerOutcome::PromptRequired`] then.
    /// Some agents ignore this.
    ///
    /// ```
    /// use duologue_schema::SteerRequest;
    ///
    /// let mut request = SteerRequest::new("s", vec!["faster".into()]);
    /// request.require_turn();
    /// assert!(request.requires_turn());
    /// assert_eq!(
    ///     serde_json::to_value(&request)?["_meta"],
    ///     serde_json::json!({"steering": {"idleBehavior": "promptRequired"}}),
    /// );
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn require_turn(&mut self) {
        insert(&mut self.meta, IDLE_BEHAVIOR, json!(PROMPT_REQUIRED));
    }

    /// Returns true if the agent is to start nothing if no turn runs.
    #[must_use]
    pub fn requires_turn(&self) -> bool {
        member(self.meta.as_ref()).get(IDLE_BEHAVIOR).is_some_and(|value| value == PROMPT_REQUIRED)
    }
}

impl InitializeResponse {
    /// Returns true if the agent advertises `_session/steering`, as `_meta.steering.supported`.
    #[must_use]
    pub fn has_steering(&self) -> bool {
        member(self.meta.as_ref()).get("supported").is_some_and(|value| value == true)
    }

    /// Advertises `_session/steering`.
    pub fn advertise_steering(&mut self) {
        insert(&mut self.meta, "supported", json!(true));
        insert(&mut self.meta, IDLE_BEHAVIOR, json!(PROMPT_REQUIRED));
    }
}
