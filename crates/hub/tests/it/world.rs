//! A simulated world around an owner: clients, an agent, a log, and a random schedule of all their steps.

mod agent;
mod places;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use duologue_hub::{
    Abilities, ClientKey, ClientView, OwnerAction, OwnerInput, OwnerSettings, SessionOwner, project,
};
use duologue_schema::SessionId;
use fastrand::Rng;
use serde_json::{Value, json};

use self::agent::{Choice, SimulatedAgent, modes, options};
use self::places::Places;

const SESSION: &str = "s";

/// The state of a question at a client.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shown {
    Open,
    Answered,
    Withdrawn,
}

/// A client that reads the log through the projection.
struct SimulatedClient {
    key: ClientKey,
    is_present: bool,
    /// The position of the last record that it has read.
    read: u64,
    attached_at: u64,
    received: Vec<Vec<u8>>,
    requests: u64,
    number: u64,
    output: VecDeque<(u64, Value)>,
    /// The names of the prompts without a response.
    prompts: BTreeMap<u64, String>,
    questions: BTreeMap<String, Shown>,
    written: HashSet<String>,
    /// The mode and the model as the client sees them.
    mode: Choice,
    model: Choice,
    /// True while the client knows of the turn of another one.
    has_other_turn: bool,
    /// The choices of the client that have no response.
    choices: HashMap<u64, Value>,
}

/// The world.
pub(crate) struct World {
    rng: Rng,
    now: Duration,
    owner: SessionOwner,
    /// The records that the system has taken.
    log: Vec<Vec<u8>>,
    /// The records that are not written.
    pending: VecDeque<Vec<u8>>,
    synced: usize,
    wants_sync: bool,
    agent: SimulatedAgent,
    /// The lines that the last process wrote and nobody has read.
    late: Vec<Value>,
    places: Places,
    starting: Option<bool>,
    clients: Vec<SimulatedClient>,
    next_client: usize,
    next_prompt: usize,
    /// The number of times that the agent received each prompt.
    prompted: HashMap<String, usize>,
    /// The prompts that were acknowledged.
    acknowledged: HashSet<String>,
    /// The prompts by client and number of message.
    sent: HashMap<(ClientKey, u64), String>,
    faults: bool,
    /// The events that a campaign counts.
    events: Vec<&'static str>,
    /// The codes of the prompts that failed.
    refusals: Vec<Value>,
    /// Compares the messages of clients that clear with those of others, which costs as much as the schedule.
    compares_clears: bool,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let result = json!({
            "sessionId": SESSION, "modes": modes(Choice::default()), "configOptions": options(Choice::default()),
        });
        let frame = json!({"jsonrpc": "2.0", "id": "hub:session/new", "result": result});
        let opening = json!({"at": 0, "from": "agent", "frame": frame}).to_string().into_bytes();
        let owner = SessionOwner::restore(SESSION.into(), OwnerSettings::default(), [&*opening]).unwrap();
        let agent = SimulatedAgent::default();
        World {
            rng: Rng::with_seed(seed),
            now: Duration::ZERO,
            owner,
            log: vec![opening],
            pending: VecDeque::new(),
            synced: 1,
            wants_sync: false,
            agent,
            late: Vec::new(),
            places: Places::new(),
            starting: None,
            clients: Vec::new(),
            next_client: 0,
            next_prompt: 0,
            prompted: HashMap::new(),
            acknowledged: HashSet::new(),
            sent: HashMap::new(),
            faults: true,
            events: Vec::new(),
            refusals: Vec::new(),
            compares_clears: seed.is_multiple_of(4),
        }
    }

    /// Runs random steps with faults, then ends all work without faults. Returns what happened.
    pub(crate) fn run(mut self, steps: usize) -> Vec<&'static str> {
        self.attach();
        for _ in 0..steps {
            self.step();
        }
        self.faults = false;
        self.settle();
        self.check();
        if self.places.has_moved {
            self.events.push("moves to the place of another client");
        }
        self.events
    }

    fn settle(&mut self) {
        for client in 0..self.clients.len() {
            self.present(client, true);
        }
        self.work_until_idle();
    }

    fn work_until_idle(&mut self) {
        for _ in 0..100_000 {
            if !self.work() {
                return;
            }
        }
        panic!("the world does not settle");
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.rng.u32(..one_in) == 0
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(self.rng.u64(..50));
        match self.rng.u8(..40) {
            0 if self.clients.len() < 4 => self.attach(),
            1 => {
                let client = self.any_client();
                let is_present = self.rng.bool();
                self.present(client, is_present);
            }
            2 | 3 => {
                let client = self.any_client();
                self.prompt(client, None);
            }
            4 if self.chance(2) => {
                let client = self.any_client();
                self.send(client, json!({"method": "session/cancel", "params": {"sessionId": SESSION}}));
            }
            5 if self.clients.len() > 1 && self.chance(4) => {
                let client = self.any_client();
                let left = self.clients.remove(client);
                self.places.leave(&left.key);
                self.input(OwnerInput::Left(&left.key));
                if self.rng.bool() {
                    self.attach_again(left);
                }
            }
            6 if self.chance(10) && self.agent.is_running => {
                // The end of the output precedes the end of the process.
                while self.agent_writes() {}
                self.late = self.agent.end();
                self.events.push("crashes of the agent");
                self.input(OwnerInput::AgentEnded("the agent crashed"));
            }
            7 if self.chance(8) => self.crash(),
            8 => self.input(OwnerInput::Time),
            10 | 11 => {
                let client = self.any_client();
                self.choose(client);
            }
            12 if self.chance(4) => self.agent.is_stubborn = self.faults && self.rng.bool(),
            9 if self.chance(10) => self.nobody_answers(),
            _ => _ = self.work(),
        }
    }

    /// Does a part of the open work. Returns false if there is none.
    fn work(&mut self) -> bool {
        let first = self.rng.usize(..8);
        (0..8).any(|step| match (first + step) % 8 {
            0 => self.write(),
            1 => self.sync(),
            2 => {
                let mut rng = self.rng.fork();
                self.agent.is_running && self.agent.step(&mut rng)
            }
            3 => self.agent_writes(),
            4 => self.agent_reads(),
            5 => (0..self.clients.len()).any(|client| self.deliver(client)),
            6 => (0..self.clients.len()).any(|client| self.receive(client)),
            _ => self.start_agent(),
        })
    }

    /// No client is there for as long as a question may wait. Then the agent has a response.
    fn nobody_answers(&mut self) {
        (0..self.clients.len()).for_each(|client| self.present(client, false));
        self.work_until_idle();
        let question = self.agent.waits.filter(|_| self.agent.is_running && self.agent.asks);
        let process = self.agent.process;
        self.now += OwnerSettings::default().question;
        self.input(OwnerInput::Time);
        self.work_until_idle();
        // A cancelled turn has ended with its process.
        let is_same = self.agent.is_running && self.agent.process == process;
        if let Some(question) = question.filter(|_| is_same) {
            self.events.push("questions that nobody answers");
            assert_eq!(self.agent.answers.get(&question), Some(&1), "question {question} waits");
        }
    }

    fn any_client(&mut self) -> usize {
        self.rng.usize(..self.clients.len())
    }

    fn attach(&mut self) {
        self.next_client += 1;
        let key = ClientKey::new(format!("c{}", self.next_client));
        // The creator is in its place already, and others may leave the place as it is.
        if self.next_client > 1 && !self.chance(3) {
            self.places.load(key.clone(), self.next_client);
        }
        let attached_at = self.owner.end();
        let (mode, model) = self.logged_picture();
        self.clients.push(SimulatedClient {
            key: key.clone(),
            is_present: true,
            read: attached_at,
            attached_at,
            received: Vec::new(),
            requests: 0,
            number: 0,
            output: VecDeque::new(),
            prompts: BTreeMap::new(),
            questions: BTreeMap::new(),
            written: HashSet::new(),
            mode,
            model,
            has_other_turn: false,
            choices: HashMap::new(),
        });
        self.input(OwnerInput::Attached { client: &key, abilities: abilities(&key, false) });
        let has_other_turn = self.owner.has_turn_of_others(&key);
        self.clients.last_mut().unwrap().has_other_turn = has_other_turn;
    }

    /// Attaches a client with a new connection. It repeats the prompts without a response.
    fn attach_again(&mut self, client: SimulatedClient) {
        self.events.push("new connections");
        self.attach();
        let index = self.clients.len() - 1;
        for name in client.prompts.into_values() {
            self.prompt(index, Some(name));
        }
    }

    fn present(&mut self, client: usize, is_present: bool) {
        let client = &mut self.clients[client];
        if client.is_present == is_present {
            return;
        }
        client.is_present = is_present;
        self.events.push(if is_present { "returns" } else { "losses of a client" });
        let key = client.key.clone();
        self.input(if is_present { OwnerInput::Returned(&key) } else { OwnerInput::Absent(&key) });
    }

    fn send(&mut self, client: usize, mut message: Value) -> u64 {
        message["jsonrpc"] = json!("2.0");
        let client = &mut self.clients[client];
        client.number += 1;
        client.output.push_back((client.number, message));
        client.number
    }

    /// Sends a prompt, or repeats the one with this name.
    fn prompt(&mut self, client: usize, repeated: Option<String>) {
        self.events.push(if repeated.is_some() { "repeated prompts" } else { "prompts" });
        let name = repeated.unwrap_or_else(|| {
            self.next_prompt += 1;
            format!("p{}", self.next_prompt)
        });
        let sender = &mut self.clients[client];
        sender.requests += 1;
        let id = sender.requests;
        sender.prompts.insert(id, name.clone());
        let params = json!({
            "sessionId": SESSION, "prompt": [{"type": "text", "text": name}],
            "_meta": {"duologue": {"operation": name, "fresh": true}},
        });
        let key = sender.key.clone();
        let number = self.send(client, json!({"id": id, "method": "session/prompt", "params": params}));
        self.sent.insert((key, number), name);
    }

    /// A client chooses a mode or a model.
    fn choose(&mut self, client: usize) {
        let chosen = Choice::any(&mut self.rng).name();
        let (method, params) = match self.rng.bool() {
            true => ("session/set_mode", json!({"sessionId": SESSION, "modeId": chosen})),
            false => {
                let params = json!({"sessionId": SESSION, "configId": "model", "value": chosen});
                ("session/set_config_option", params)
            }
        };
        let sender = &mut self.clients[client];
        sender.requests += 1;
        let id = sender.requests;
        sender.choices.insert(id, params.clone());
        self.send(client, json!({"id": id, "method": method, "params": params}));
    }

    /// Returns the messages in the log as an agent sends them again that has cleared none of them.
    fn conversation(&self) -> Vec<Value> {
        let mut conversation = Vec::new();
        for line in &self.log {
            let record: Value = serde_json::from_slice(line).unwrap();
            let params = &record["frame"]["params"];
            if record["hub"]["event"] == "prompt" {
                let content = &params["prompt"][0];
                conversation.push(json!({"sessionUpdate": "user_message_chunk", "content": content}));
            } else if params["update"]["sessionUpdate"] == "agent_message_chunk" {
                conversation.push(params["update"].clone());
            }
        }
        // The prompt that needs the process is no part of it.
        let last = conversation.iter().rposition(|update| update["sessionUpdate"] == "user_message_chunk");
        conversation.truncate(last.unwrap_or_default());
        conversation
    }

    /// Returns the mode and the model in the records so far, written or not.
    fn logged_picture(&self) -> (Choice, Choice) {
        let (mut mode, mut model) = (Choice::default(), Choice::default());
        let mut open: HashMap<Value, Value> = HashMap::new();
        for line in self.log.iter().chain(&self.pending) {
            let record: Value = serde_json::from_slice(line).unwrap();
            let (frame, hub) = (&record["frame"], &record["hub"]);
            match hub["event"].as_str() {
                Some("call") => _ = open.insert(hub["call"].clone(), frame["params"].clone()),
                Some("answer") => {
                    let chosen = open.remove(&hub["call"]).filter(|_| frame["error"].is_null());
                    apply_choice(chosen.as_ref(), &mut mode, &mut model);
                }
                None => apply_update(&frame["params"]["update"], &mut mode, &mut model),
                _ => {}
            }
        }
        (mode, model)
    }

    /// Gives an input to the owner, and executes its actions.
    fn input(&mut self, input: OwnerInput<'_>) {
        for action in self.owner.handle(self.now, input) {
            match action {
                OwnerAction::Append(line) => self.pending.push_back(line),
                OwnerAction::Sync => self.wants_sync = true,
                OwnerAction::ToAgent(line) => {
                    assert!(self.agent.is_running, "a message to an agent that does not run");
                    let line: Value = serde_json::from_slice(&line).unwrap();
                    let is_still = self.agent.output.is_empty() && self.agent.input.is_empty();
                    if line["method"] == "session/prompt" && is_still {
                        assert_eq!(self.agent.mode, self.logged_picture().0, "a turn in another mode");
                    }
                    self.agent.input.push_back(line);
                }
                OwnerAction::Reply { client, line } => {
                    if let Some(client) = self.clients.iter().position(|it| it.key == client) {
                        self.client_reads(client, &line);
                    }
                }
                OwnerAction::Acknowledge { client, number } => {
                    if let Some(name) = self.sent.get(&(client, number)) {
                        self.acknowledged.insert(name.clone());
                    }
                }
                OwnerAction::Decided { .. } => {}
                OwnerAction::StartAgent { fresh, client } => {
                    self.places.starts(client.as_ref());
                    self.starting = Some(fresh);
                }
                OwnerAction::AgentSession(_) => {}
                OwnerAction::EndAgent => {
                    self.late = self.agent.end();
                }
                _ => panic!("an unknown action"),
            }
        }
    }

    fn start_agent(&mut self) -> bool {
        if self.starting.take().is_none() {
            return false;
        }
        if self.faults && self.chance(4) {
            self.input(OwnerInput::AgentEnded("the agent cannot be started"));
            return true;
        }
        self.late_lines();
        self.agent.start();
        // The replay of a restored session is dropped.
        let replayed =
            br#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{}}}"#;
        let capabilities = match self.rng.u8(..3) {
            0 => json!({"sessionCapabilities": {"resume": {}}}),
            1 => json!({"loadSession": true}),
            _ => json!({}),
        };
        let introduction = json!({"protocolVersion": 1, "agentCapabilities": capabilities});
        let introduction = serde_json::from_value(introduction).unwrap();
        let (params, conversation) = (self.places.params(), self.conversation());
        self.agent.replay = conversation.clone();
        let conversation: Result<_, _> = conversation.into_iter().map(serde_json::from_value).collect();
        let conversation = conversation.unwrap();
        self.input(OwnerInput::AgentReady { introduction: &introduction, params, conversation });
        self.input(OwnerInput::FromAgent(replayed));
        true
    }

    /// Lines of a process that has ended come late. They are none of the next process, and change nothing.
    fn late_lines(&mut self) {
        let process = self.agent.process;
        for line in std::mem::take(&mut self.late) {
            self.events.push("late lines");
            let line = line.to_string();
            let actions = self.owner.handle(self.now, OwnerInput::FromAgent(line.as_bytes()));
            assert_eq!(actions, [], "a line of process {process} had an effect: {line}");
        }
    }

    /// The owner receives a message of the agent.
    fn agent_writes(&mut self) -> bool {
        let Some(message) = self.agent.output.pop_front() else { return false };
        self.input(OwnerInput::FromAgent(message.to_string().as_bytes()));
        if message["method"] == "fs/write_text_file"
            && let Some(last) = self.pending.back()
        {
            let record: Value = serde_json::from_slice(last).unwrap();
            let is_refused = record["frame"]["error"]["code"] == -32601;
            let can_write = self.clients.iter().any(|client| writes(&client.key));
            assert!(!is_refused || !can_write, "a client could write the file");
        }
        true
    }

    /// The agent receives a message.
    fn agent_reads(&mut self) -> bool {
        if !self.agent.is_running || self.agent.input.is_empty() {
            return false;
        }
        self.places.check(&self.agent.input[0]);
        if let Some(name) = self.agent.read(&mut self.rng) {
            *self.prompted.entry(name).or_default() += 1;
        }
        true
    }

    fn write(&mut self) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let count = self.rng.usize(1..=self.pending.len());
        self.log.extend(self.pending.drain(..count));
        self.input(OwnerInput::Written(self.log.len() as u64));
        true
    }

    fn sync(&mut self) -> bool {
        if !std::mem::take(&mut self.wants_sync) {
            return false;
        }
        self.log.extend(self.pending.drain(..));
        self.synced = self.log.len();
        self.input(OwnerInput::Synced(self.log.len() as u64));
        true
    }

    /// The owner receives a message of a client.
    fn deliver(&mut self, client: usize) -> bool {
        let sender = &mut self.clients[client];
        if !sender.is_present {
            return false;
        }
        let Some((number, message)) = sender.output.pop_front() else { return false };
        let key = sender.key.clone();
        self.places.sends(&key, &message);
        let line = message.to_string();
        self.input(OwnerInput::FromClient { client: &key, number, line: line.as_bytes() });
        true
    }

    /// A client reads the next visible record.
    fn receive(&mut self, client: usize) -> bool {
        let reader = &mut self.clients[client];
        if !reader.is_present || reader.read >= self.owner.visible() {
            return false;
        }
        reader.read += 1;
        let position = reader.read;
        let key = reader.key.clone();
        for frame in self.frames(&key, position) {
            self.clients[client].received.push(frame.clone());
            self.client_reads(client, &frame);
        }
        true
    }

    fn frames(&self, client: &ClientKey, position: u64) -> Vec<Vec<u8>> {
        self.frames_for(client, position, false)
    }

    /// Returns the frames of a record for a client that clears messages, or that cannot.
    fn frames_for(&self, client: &ClientKey, position: u64, clears: bool) -> Vec<Vec<u8>> {
        let session = SessionId::from(SESSION);
        let view = ClientView { client, session: &session, abilities: abilities(client, clears) };
        let line = |position: u64| self.log.get(usize::try_from(position).unwrap() - 1).cloned();
        let mut frames = Vec::new();
        project(&view, position, &line(position).unwrap(), line, &mut frames).unwrap();
        frames
    }

    fn client_reads(&mut self, client: usize, frame: &[u8]) {
        let message: Value = serde_json::from_slice(frame).unwrap();
        let id = message["id"].as_str().unwrap_or_default().to_owned();
        match message["method"].as_str() {
            Some("session/request_permission") => {
                let before = self.clients[client].questions.insert(id.clone(), Shown::Open);
                assert_eq!(before, None, "a question is shown twice");
                self.events.push("questions");
                self.answer(client, &id);
            }
            Some("fs/write_text_file") => {
                assert!(self.clients[client].written.insert(id.clone()), "a file is written twice");
                assert!(writes(&self.clients[client].key), "the client writes no files");
                self.send(client, json!({"id": id, "result": {}}));
            }
            Some("$/cancel_request") => {
                let id = message["params"]["requestId"].as_str().unwrap();
                if let Some(shown) = self.clients[client].questions.get_mut(id) {
                    *shown = Shown::Withdrawn;
                }
            }
            Some("session/update") => {
                let client = &mut self.clients[client];
                apply_update(&message["params"]["update"], &mut client.mode, &mut client.model);
            }
            Some("_session/turn") => {
                self.events.push("turns of others");
                self.clients[client].has_other_turn = message["params"]["running"] == true;
            }
            Some(other) => panic!("{other}"),
            None => {
                let id = message["id"].as_u64().unwrap();
                let reader = &mut self.clients[client];
                if let Some(choice) = reader.choices.remove(&id) {
                    let chosen = Some(&choice).filter(|_| message["error"].is_null());
                    return apply_choice(chosen, &mut reader.mode, &mut reader.model);
                }
                let prompt = self.clients[client].prompts.remove(&id);
                let name = prompt.unwrap_or_else(|| panic!("a second response: {message}"));
                let code = &message["error"]["data"]["code"];
                self.refusals.push(code.clone());
                let is_busy = code == "busy";
                assert!(!is_busy || !self.prompted.contains_key(&name), "{name} runs already: {message}");
            }
        }
    }

    fn answer(&mut self, client: usize, id: &str) {
        let choice = if self.faults { self.rng.u8(..6) } else { 0 };
        let outcome = match choice {
            0..=2 => json!({"outcome": {"outcome": "selected", "optionId": "yes"}}),
            3 => json!({"outcome": {"outcome": "selected", "optionId": "none of them"}}),
            4 => json!({"outcome": {"outcome": "cancelled"}}),
            _ => {
                let error = json!({"code": -32603, "message": "no"});
                self.send(client, json!({"id": id, "error": error}));
                self.clients[client].questions.insert(id.to_owned(), Shown::Answered);
                return;
            }
        };
        self.send(client, json!({"id": id, "result": outcome}));
        self.clients[client].questions.insert(id.to_owned(), Shown::Answered);
    }

    /// The process of the hub ends, by a kill or a power cut, and starts again.
    fn crash(&mut self) {
        self.pending.clear();
        let is_power_cut = self.rng.bool();
        self.events.push(if is_power_cut { "power cuts" } else { "kills" });
        if is_power_cut {
            let kept = self.rng.usize(self.synced..=self.log.len());
            self.log.truncate(kept);
        }
        // After a power cut, a prompt that was not acknowledged may run again.
        let log = &self.log;
        self.prompted.retain(|name, _| log.iter().any(|line| names_prompt(line, name)));
        self.synced = self.log.len();
        (self.wants_sync, self.starting) = (false, None);
        self.late.clear();
        self.places.forget();
        self.agent.is_running = false;
        self.agent.output.clear();
        let lines = self.log.iter().map(Vec::as_slice);
        self.owner = SessionOwner::restore(SESSION.into(), OwnerSettings::default(), lines).unwrap();
        // A prompt that was refused is acknowledged too, and has its response.
        let waiting: HashSet<&String> =
            self.clients.iter().flat_map(|client| client.prompts.values()).collect();
        for name in self.acknowledged.iter().filter(|name| waiting.contains(name)) {
            let is_in_log = self.log.iter().any(|line| names_prompt(line, name));
            assert!(is_in_log, "the acknowledged prompt {name} is lost");
        }
        for client in std::mem::take(&mut self.clients) {
            self.attach_again(client);
        }
    }

    fn check(&mut self) {
        for (name, count) in &self.prompted {
            assert!(*count <= 1, "the agent received {name} {count} times");
        }
        for client in &self.clients {
            assert!(client.prompts.is_empty(), "{:?} waits for {:?}", client.key, client.prompts);
            assert!(client.output.is_empty());
            assert!(!client.has_other_turn, "{:?} does not know that a turn has ended", client.key);
            let open: Vec<_> = client.questions.iter().filter(|(_, shown)| **shown == Shown::Open).collect();
            assert!(open.is_empty(), "{open:?}");
            let again: Vec<_> = (client.attached_at + 1..=client.read)
                .flat_map(|position| self.frames(&client.key, position))
                .collect();
            assert_eq!(client.received, again, "the log reads differently later");
            if !self.compares_clears {
                continue;
            }
            let clearing: Vec<_> = (client.attached_at + 1..=client.read)
                .flat_map(|position| self.frames_for(&client.key, position, true))
                .collect();
            assert_eq!(final_texts(&client.received), final_texts(&clearing));
        }
        self.check_pictures();
        if self.agent.is_running {
            assert!(self.agent.turn.is_none());
            for (request, count) in &self.agent.answers {
                assert_eq!(*count, 1, "request {request} of the agent has {count} responses");
            }
        }
        self.check_texts();
    }

    /// Each client sees the mode and the model of the agent, or its prompts are refused.
    fn check_pictures(&mut self) {
        let picture = self.logged_picture();
        for client in &self.clients {
            assert!(client.choices.is_empty(), "{:?} waits for {:?}", client.key, client.choices);
            assert_eq!((client.mode, client.model), picture, "{:?}", client.key);
        }
        let refused = self.refusals.len();
        self.prompt(0, None);
        self.work_until_idle();
        let is_lost = self.refusals[refused..].iter().any(|code| code == "state_lost");
        if is_lost {
            self.events.push("states that are lost");
        }
        if self.agent.is_running && !is_lost {
            assert_eq!((self.agent.mode, self.agent.model), self.logged_picture());
            self.events.push("pictures of an agent");
        }
    }

    /// The texts of each process are in the log in their order, without a gap.
    fn check_texts(&self) {
        let mut last: HashMap<usize, usize> = HashMap::new();
        for line in &self.log {
            let record: Value = serde_json::from_slice(line).unwrap();
            let Some(text) = record["frame"]["params"]["update"]["content"]["text"].as_str() else {
                continue;
            };
            let (process, number) = text.split_once('.').unwrap();
            let last = last.entry(process.parse().unwrap()).or_default();
            assert_eq!(number.parse(), Ok(*last + 1), "after {process}.{last}");
            *last += 1;
        }
        if self.agent.is_running {
            assert_eq!(last.get(&self.agent.process).copied().unwrap_or_default(), self.agent.texts);
        }
    }
}

/// Returns the texts of the agent's messages that a client has in the end.
fn final_texts(frames: &[Vec<u8>]) -> BTreeMap<String, String> {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for frame in frames {
        let message: Value = serde_json::from_slice(frame).unwrap();
        let update = &message["params"]["update"];
        let Some(id) = update["messageId"].as_str() else { continue };
        // A message continues under another id.
        let text = texts.entry(id.split('~').next().unwrap().to_owned()).or_default();
        match update["content"]["text"].as_str() {
            None | Some("\n\n---\n\n") => text.clear(),
            Some(more) => text.push_str(more),
        }
    }
    texts.retain(|_, text| !text.is_empty());
    texts
}

fn apply_update(update: &Value, mode: &mut Choice, model: &mut Choice) {
    match update["sessionUpdate"].as_str() {
        Some("current_mode_update") => *mode = Choice::of(&update["currentModeId"]),
        Some("config_option_update") => *model = Choice::of(&update["configOptions"][0]["currentValue"]),
        _ => {}
    }
}

/// Applies the params of a choice that the agent has accepted.
fn apply_choice(chosen: Option<&Value>, mode: &mut Choice, model: &mut Choice) {
    match chosen {
        Some(params) if params["configId"] == "model" => *model = Choice::of(&params["value"]),
        Some(params) if !params["modeId"].is_null() => *mode = Choice::of(&params["modeId"]),
        _ => {}
    }
}

fn names_prompt(line: &[u8], name: &str) -> bool {
    let record: Value = serde_json::from_slice(line).unwrap();
    record["hub"]["operation"] == name
}

/// Returns true for a client that writes files: two of three do.
fn writes(client: &ClientKey) -> bool {
    !client.as_str().ends_with(['0', '3', '6', '9'])
}

fn abilities(client: &ClientKey, clears: bool) -> Abilities {
    let mut abilities = Abilities::default();
    (abilities.writes_files, abilities.clears) = (writes(client), clears);
    abilities
}
