//! The agent of the simulated world.

use std::collections::{HashMap, VecDeque};

use fastrand::Rng;
use serde_json::{Value, json};

use super::SESSION;

/// An agent that streams numbered texts, asks for permissions and writes files.
#[derive(Default)]
pub(super) struct SimulatedAgent {
    pub(super) is_running: bool,
    /// The number of the process.
    pub(super) process: usize,
    /// The id of the running prompt.
    pub(super) turn: Option<Value>,
    steps: usize,
    is_cancelled: bool,
    /// The id of the request that the turn waits for.
    pub(super) waits: Option<u64>,
    /// True if that is a question.
    pub(super) asks: bool,
    requests: u64,
    pub(super) texts: usize,
    pub(super) output: VecDeque<Value>,
    pub(super) input: VecDeque<Value>,
    /// The number of responses to each request of the running process.
    pub(super) answers: HashMap<u64, usize>,
    /// The mode, which is the default one in each new process.
    pub(super) mode: Choice,
    pub(super) model: Choice,
    /// True while it refuses to change its mode.
    pub(super) is_stubborn: bool,
    /// The conversation so far, which it sends again when it loads the session.
    pub(super) replay: Vec<Value>,
}

/// A mode or model, by its place in the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice(pub(super) usize);

impl Choice {
    pub(super) const COUNT: usize = 3;

    pub(super) fn any(rng: &mut Rng) -> Self {
        Choice(rng.usize(..Self::COUNT))
    }

    pub(super) fn of(name: &Value) -> Self {
        Choice(name.as_str().and_then(|name| name.get(1..)).and_then(|place| place.parse().ok()).unwrap())
    }

    pub(super) fn name(self) -> String {
        format!("v{}", self.0)
    }
}

/// Returns all modes with the current one, as the agent announces them.
pub(super) fn modes(current: Choice) -> Value {
    let all: Vec<Value> =
        (0..Choice::COUNT).map(|it| json!({"id": Choice(it).name(), "name": "mode"})).collect();
    json!({"currentModeId": current.name(), "availableModes": all})
}

/// Returns the options, as the agent announces them.
pub(super) fn options(model: Choice) -> Value {
    let all: Vec<Value> =
        (0..Choice::COUNT).map(|it| json!({"value": Choice(it).name(), "name": "model"})).collect();
    json!([{
        "id": "model", "name": "Model", "category": "model", "type": "select",
        "currentValue": model.name(), "options": all,
    }])
}

impl SimulatedAgent {
    pub(super) fn start(&mut self) {
        let (process, requests) = (self.process + 1, self.requests);
        *self = SimulatedAgent { is_running: true, process, requests, ..SimulatedAgent::default() };
    }

    fn request(&mut self, method: &str, mut params: Value) {
        self.requests += 1;
        params["sessionId"] = json!(SESSION);
        self.output
            .push_back(json!({"jsonrpc": "2.0", "id": self.requests, "method": method, "params": params}));
        self.waits = Some(self.requests);
        self.asks = method == "session/request_permission";
        self.answers.insert(self.requests, 0);
    }

    /// Returns the id of one of its messages.
    fn message(&self, rng: &mut Rng) -> String {
        format!("m{}.{}", self.process, rng.u8(..2))
    }

    fn update(&mut self, update: &Value) {
        let params = json!({"sessionId": SESSION, "update": update});
        self.output.push_back(json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
    }

    /// Ends the process. Returns what it wrote and nobody has read: the rest of its output, and a message of each kind.
    pub(super) fn end(&mut self) -> Vec<Value> {
        self.is_running = false;
        let chunk = json!({"type": "text", "text": "late"});
        self.update(&json!({"sessionUpdate": "agent_message_chunk", "content": chunk}));
        self.update(&json!({"sessionUpdate": "current_mode_update", "currentModeId": Choice(1).name()}));
        self.request(
            "session/request_permission",
            json!({"toolCall": {"toolCallId": "late"}, "options": []}),
        );
        let calls = ["hub:session/load", "hub:session/resume"].map(|id| json!(id));
        for id in calls.into_iter().chain(self.turn.clone()) {
            self.output.push_back(json!({"jsonrpc": "2.0", "id": id, "result": {"stopReason": "end_turn"}}));
        }
        self.output.drain(..).collect()
    }

    /// Continues the turn by a step. Returns false if it waits.
    pub(super) fn step(&mut self, rng: &mut Rng) -> bool {
        let Some(turn) = self.turn.clone() else { return false };
        if self.waits.is_some() {
            return false;
        }
        if self.steps == 0 || self.is_cancelled {
            self.turn = None;
            let reason = if self.is_cancelled { "cancelled" } else { "end_turn" };
            self.output.push_back(json!({"jsonrpc": "2.0", "id": turn, "result": {"stopReason": reason}}));
            return true;
        }
        self.steps -= 1;
        match rng.u8(..12) {
            // Some agents report what they change, and this one does.
            10 => {
                self.mode = Choice::any(rng);
                let mode = self.mode.name();
                self.update(&json!({"sessionUpdate": "current_mode_update", "currentModeId": mode}));
            }
            11 => {
                self.model = Choice::any(rng);
                let options = options(self.model);
                self.update(&json!({"sessionUpdate": "config_option_update", "configOptions": options}));
            }
            0 | 1 => {
                let options = json!([
                    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
                    {"optionId": "no", "name": "No", "kind": "reject_once"},
                ]);
                let call = json!({"toolCallId": "c"});
                self.request("session/request_permission", json!({"toolCall": call, "options": options}));
            }
            2 => self.request("fs/write_text_file", json!({"path": "/a", "content": "a"})),
            3 => {
                let update = json!({"sessionUpdate": "agent_message_clear", "messageId": self.message(rng)});
                self.update(&update);
            }
            _ => {
                self.texts += 1;
                let text = format!("{}.{}", self.process, self.texts);
                let update = json!({
                    "sessionUpdate": "agent_message_chunk", "messageId": self.message(rng),
                    "content": {"type": "text", "text": text},
                });
                self.update(&update);
            }
        }
        true
    }

    /// Reads a message. Returns the name of the prompt, if it is one.
    pub(super) fn read(&mut self, rng: &mut Rng) -> Option<String> {
        let message = self.input.pop_front()?;
        match message["method"].as_str() {
            Some("session/prompt") => {
                assert!(self.turn.is_none(), "a second prompt in a turn");
                self.turn = Some(message["id"].clone());
                (self.steps, self.is_cancelled) = (rng.usize(..8), false);
                return Some(message["params"]["prompt"][0]["text"].as_str().unwrap().to_owned());
            }
            Some("session/cancel") => self.is_cancelled = self.turn.is_some(),
            Some(method) if !message["id"].is_null() => {
                let outcome = self.answer(rng, method, &message["params"]);
                let mut replay = Vec::new();
                if method == "session/load" && outcome["error"].is_null() {
                    replay = std::mem::take(&mut self.replay);
                }
                // Some agents answer before they have sent all of it.
                let late =
                    replay.split_off(if rng.bool() { rng.usize(..=replay.len()) } else { replay.len() });
                let late = if late.first().is_some_and(|first| first["sessionUpdate"] == "user_message_chunk")
                {
                    late
                } else {
                    replay.extend(late);
                    Vec::new()
                };
                replay.iter().for_each(|update| self.update(update));
                let mut answer = json!({"jsonrpc": "2.0", "id": message["id"]});
                answer.as_object_mut().unwrap().extend(outcome.as_object().unwrap().clone());
                self.output.push_back(answer);
                late.iter().for_each(|update| self.update(update));
            }
            Some(_) => {}
            None => {
                let id = message["id"].as_u64().unwrap();
                *self.answers.get_mut(&id).expect("a request of this process") += 1;
                if self.waits == Some(id) {
                    self.waits = None;
                }
            }
        }
        None
    }

    /// Answers a request, and acts on it.
    fn answer(&mut self, rng: &mut Rng, method: &str, params: &Value) -> Value {
        let error = |code: i64| json!({"error": {"code": code, "message": "no"}});
        match method {
            "session/resume" | "session/load" | "session/new" => {
                if method != "session/new" && rng.u8(..8) == 0 {
                    return error(if rng.bool() { -32002 } else { -32603 });
                }
                let mut result = json!({"sessionId": "new"});
                if rng.bool() {
                    result["modes"] = modes(self.mode);
                }
                if rng.bool() {
                    result["configOptions"] = options(self.model);
                }
                json!({"result": result})
            }
            "session/set_mode" if self.is_stubborn => error(-32602),
            "session/set_mode" => {
                self.mode = Choice::of(&params["modeId"]);
                json!({"result": {}})
            }
            "session/set_config_option" => {
                self.model = Choice::of(&params["value"]);
                if rng.bool() {
                    json!({"result": {}})
                } else {
                    json!({"result": {"configOptions": options(self.model)}})
                }
            }
            _ => error(-32601),
        }
    }
}
