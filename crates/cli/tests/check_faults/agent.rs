//! An agent that does everything right but for one fault, which bears the name of the check that is to
//! find it, or in an unusual way. It speaks through the plain standard library, so that what it writes is what stands here.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::dialogues::{self, AcceptedMessages};
use super::envelopes;

/// A turn's first words come this long after its prompt, the rest this long after them.
const BEFORE_WORDS: Duration = Duration::from_millis(30);
const BEFORE_QUESTION: Duration = Duration::from_millis(150);
/// Longer than any answer to a cancel may take.
const LATE: Duration = Duration::from_millis(1_300);

pub(crate) fn run(fault: &str) {
    let (sender, lines) = channel();
    std::thread::spawn({
        let fault = fault.to_owned();
        move || read(&fault, &sender)
    });
    let mut agent = Agent {
        fault: fault.to_owned(),
        lines,
        sessions: BTreeMap::new(),
        turns: Vec::new(),
        later: Vec::new(),
        made: 0,
        asked: 0,
        had_turn: false,
        lends_files: false,
        accepted: AcceptedMessages::new(),
    };
    if agent.has("stdout-only-messages") {
        agent.write("Loading the model…");
    }
    if agent.has("nothing-before-initialize") {
        agent.tell("_broken/hello", json!({}));
    }
    agent.work();
}

/// Cuts the input into lines; what is wrong with this is wrong on purpose.
fn read(fault: &str, sender: &Sender<Vec<u8>>) {
    let (mut input, mut chunk, mut rest) = (std::io::stdin(), vec![0; 64 * 1024], Vec::new());
    while let Ok(count @ 1..) = input.read(&mut chunk) {
        let mut lines: Vec<Vec<u8>> = Vec::new();
        for piece in chunk[..count].split_inclusive(|byte| *byte == b'\n') {
            rest.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                lines.push(std::mem::take(&mut rest));
            }
        }
        if fault == "split-writes" && rest.len() < 8 {
            rest.clear();
        }
        let nothing = |line: &Vec<u8>| String::from_utf8_lossy(line).contains("dev/nothing");
        if fault == "coalesced-writes" && lines.len() >= 3 && lines.iter().all(nothing) {
            lines.truncate(1);
        }
        for line in lines {
            if sender.send(line).is_err() {
                return;
            }
        }
    }
}

struct Agent {
    fault: String,
    lines: Receiver<Vec<u8>>,
    sessions: BTreeMap<String, Session>,
    turns: Vec<Turn>,
    /// Updates that come too late.
    later: Vec<(Instant, String)>,
    made: u64,
    asked: u64,
    had_turn: bool,
    lends_files: bool,
    /// The messages of dialogues.
    accepted: AcceptedMessages,
}

#[derive(Default)]
struct Session {
    cwd: String,
    mode: String,
    story: Vec<Value>,
    deleted: bool,
    finished: bool,
    was_cancelled: bool,
    cancel_sticks: bool,
}

struct Turn {
    id: Value,
    session: String,
    due: Option<Instant>,
    step: u32,
    question: Option<u64>,
    cancelled: bool,
}

impl Agent {
    fn has(&self, fault: &str) -> bool {
        self.fault == fault
    }

    fn work(&mut self) {
        loop {
            match self.lines.recv_timeout(Duration::from_millis(5)) {
                Ok(line) => self.line(&line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let stays = (self.has("exits-on-eof") && self.turns.is_empty() && !self.had_turn)
                        || (self.has("exits-in-turn") && !self.turns.is_empty());
                    if !stays {
                        return;
                    }
                    std::thread::sleep(Duration::from_secs(60));
                }
            }
            self.turns_go_on();
            let now = Instant::now();
            while let Some(at) = self.later.iter().position(|(due, _)| *due <= now) {
                let (_, session) = self.later.remove(at);
                self.update(&session, chunk("agent_message_chunk", "One more thing."));
            }
        }
    }

    fn line(&mut self, line: &[u8]) {
        let carriage = line.ends_with(b"\r\n");
        if (self.has("crlf") && carriage)
            || (self.has("big-line") && line.len() > 1024 * 1024)
            || (self.has("deep-json") && line.windows(50).any(|part| part.iter().all(|byte| *byte == b'[')))
        {
            return self.die_or_ignore(carriage);
        }
        let text = String::from_utf8_lossy(line);
        if text.trim().is_empty() {
            return if self.has("blank-lines") {
                std::process::exit(1)
            };
        }
        let Ok(message) = serde_json::from_str::<Value>(&text) else {
            if self.has("unparsable-line") {
                std::process::exit(1);
            }
            return self.write(
                &json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "Parse error"}})
                    .to_string(),
            );
        };
        let escaped = text.contains("\\u006dethod");
        match (message.get("method").and_then(Value::as_str), message.get("id")) {
            (Some(_), Some(id)) if self.has("any-json") && escaped => {
                self.refuse(id, -32600, "Invalid Request")
            }
            (Some("_session/dialogue" | "_session/work"), Some(id)) => {
                self.between_agents(id, &message, &text)
            }
            (Some(method), Some(id)) => self.request(id, method, &message["params"]),
            (Some(method), None) => self.notification(method, &message["params"]),
            (None, Some(id)) => self.answered(id, &message),
            (None, None) => {}
        }
    }

    /// Answers a dialogue message or a work order.
    fn between_agents(&mut self, id: &Value, message: &Value, text: &str) {
        let params = &message["params"];
        let has_session = params["sessionId"].as_str().is_some_and(|id| self.sessions.contains_key(id));
        let answer = if message["method"] == "_session/work" {
            dialogues::work(&self.fault, params, has_session)
        } else {
            dialogues::dialogue(&self.fault, text, &params["message"], has_session, &mut self.accepted)
        };
        match answer {
            Ok(result) => self.answer(id, result),
            Err(error) => self.write(&json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()),
        }
    }

    fn die_or_ignore(&self, ignore: bool) {
        if !ignore {
            std::process::exit(1);
        }
    }

    fn request(&mut self, id: &Value, method: &str, params: &Value) {
        let deaf = (self.has("id-string") && id.is_string())
            || (self.has("id-zero") && *id == 0)
            || (self.has("id-negative") && id.as_i64().is_some_and(|id| id < 0))
            || (self.has("id-null") && id.is_null())
            || (self.has("silent-initialize") && method == "initialize")
            || (self.has("silent-extensions") && method.starts_with("_duologue.dev/"))
            || (self.has("deaf-prompt") && method == "session/prompt" && params.is_object());
        if deaf {
            return;
        }
        match envelopes::answer(&self.fault, method, params) {
            Some(Ok(result)) => return self.answer(id, result),
            Some(Err(error)) => {
                return self.write(&json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string());
            }
            None => {}
        }
        let session = params["sessionId"].as_str().unwrap_or_default().to_owned();
        match method {
            "initialize" if self.has("retyped-initialize-id") => {
                self.initialize(&json!(id.to_string()), params)
            }
            "initialize" => self.initialize(id, params),
            "session/new" => self.new_session(id, params),
            "session/prompt" => self.prompt(id, params, session),
            "session/load" | "session/resume" => self.restore(id, method, &session),
            "session/list" => self.list(id, params),
            "session/close" if self.has("close-ends") => self.refuse(id, -32603, "Internal error"),
            "session/close" => {
                self.cancel(&session, true);
                self.sessions.remove(&session);
                self.answer(id, json!({}));
            }
            "session/delete" => {
                if let Some(session) = self.sessions.get_mut(&session) {
                    session.deleted = true;
                }
                self.answer(id, json!({}));
            }
            "session/set_mode" => {
                let known = params["modeId"] == "calm" || params["modeId"] == "bold";
                if known && !self.has("set-mode") {
                    self.set_mode(&session, &params["modeId"]);
                    self.answer(id, json!({}));
                } else {
                    self.refuse(id, -32602, "Invalid params");
                }
            }
            "session/set_config_option" if self.has("refuses-option") => {
                self.refuse(id, -32603, "the model is fixed for this account")
            }
            "session/set_config_option" if self.has("no-option-method") => {
                self.refuse(id, -32601, "Method not found")
            }
            "session/set_config_option" => {
                if params["configId"] == "mode" {
                    self.set_mode(&session, &params["value"]);
                }
                let all = if self.has("set-config-option") { json!([]) } else { self.options(&session) };
                self.answer(id, json!({"configOptions": all}));
            }
            "no/such_method" if self.has("unknown-method") => self.answer(id, json!({})),
            "_duologue.dev/no_such_method" if self.has("unknown-extension") => self.answer(id, json!({})),
            _ => {
                self.refuse(id, -32601, "Method not found");
                if self.has("one-answer") && method == "no/such_method" {
                    self.refuse(id, -32601, "Method not found");
                }
            }
        }
    }

    fn initialize(&mut self, id: &Value, params: &Value) {
        if self.has("unknown-fields") && params.get("nextYear").is_some() {
            return self.refuse(id, -32602, "Invalid params");
        }
        self.lends_files = params["clientCapabilities"]["fs"]["readTextFile"] == true;
        let asked = &params["protocolVersion"];
        let version = match self.fault.as_str() {
            "version-negotiated" => asked.clone(),
            "initialize-answers" if *asked == 1 => json!(2),
            _ => json!(1),
        };
        let mut methods = json!([{"id": "say-please", "name": "Say please"}]);
        if self.has("terminal-login-withheld") {
            methods[0] = json!({"id": "shell", "name": "Log in", "type": "terminal", "args": ["--login"]});
        }
        let mut can = json!({"list": {}, "delete": {}, "resume": {}, "close": {}});
        if self.has("few-sessions-for-good") {
            can = json!({"list": {}, "delete": {}, "resume": {}});
        }
        let http = if self.has("capabilities-well-formed") { json!("yes") } else { json!(false) };
        self.answer(
            id,
            json!({
                "protocolVersion": version,
                "agentCapabilities": {
                    "_meta": envelopes::advertised(&self.fault),
                    "loadSession": true,
                    "mcpCapabilities": {"http": http},
                    "sessionCapabilities": can,
                },
                "authMethods": methods,
                "agentInfo": {"name": "broken-agent", "version": "1"},
            }),
        );
    }

    fn new_session(&mut self, id: &Value, params: &Value) {
        if self.has("session-new") {
            return self.refuse(id, -32603, "Internal error");
        }
        let cwd = params["cwd"].as_str();
        let fits = cwd.is_some_and(|cwd| cwd.starts_with('/') || self.has("relative-cwd"));
        let taken = fits || (self.has("bad-params") && cwd.is_none());
        if !taken {
            return self.refuse(id, -32602, "Invalid params");
        }
        if self.fault.starts_with("few-sessions") && self.sessions.len() >= 4 {
            return self.refuse(id, -32603, "too many sessions");
        }
        if self.has("requests-in-flight") {
            // Whatever comes while it works is lost.
            std::thread::sleep(Duration::from_millis(50));
            while self.lines.try_recv().is_ok() {}
        }
        self.made += 1;
        let name = format!("session-{}", self.made);
        let cwd = cwd.filter(|cwd| cwd.starts_with('/')).unwrap_or("/").to_owned();
        let session = Session { cwd, mode: "calm".into(), ..Session::default() };
        self.sessions.insert(name.clone(), session);
        let modes = json!({"currentModeId": "calm", "availableModes": [
            {"id": "calm", "name": "Calm"}, {"id": "bold", "name": "Bold"},
        ]});
        let options = self.options(&name);
        self.answer(id, json!({"sessionId": name, "modes": modes, "configOptions": options}));
    }

    /// Changes the mode and the option that has it.
    fn set_mode(&mut self, session: &str, mode: &Value) {
        if let Some(state) = self.sessions.get_mut(session) {
            state.mode = mode.as_str().unwrap_or_default().to_owned();
        }
        if self.has("mode-option") {
            return;
        }
        self.update(session, json!({"sessionUpdate": "current_mode_update", "currentModeId": mode}));
        let options = self.options(session);
        self.update(session, json!({"sessionUpdate": "config_option_update", "configOptions": options}));
    }

    fn options(&self, session: &str) -> Value {
        let mode = self.sessions.get(session).map_or("calm", |state| &state.mode);
        let mut options = json!([{
            "id": "model", "name": "Model", "type": "select", "currentValue": "small",
            "options": [{"value": "small", "name": "Small"}, {"value": "large", "name": "Large"}],
        }, {
            "id": "mode", "name": "Mode", "type": "select", "category": "mode", "currentValue": mode,
            "options": [{"value": "calm", "name": "Calm"}, {"value": "bold", "name": "Bold"}],
        }]);
        if self.has("modes-without-option") {
            options.as_array_mut().map(|options| options.pop());
        }
        options
    }

    fn prompt(&mut self, id: &Value, params: &Value, session: String) {
        if params.is_null() {
            return match self.has("missing-params") {
                true => self.answer(id, json!({"stopReason": "end_turn"})),
                false => self.refuse(id, -32602, "Invalid params"),
            };
        }
        if self.has("unknown-session") && session == "no-such-session" {
            return self.answer(id, json!({"stopReason": "end_turn"}));
        }
        let busy = self.has("sessions-at-once") && !self.turns.is_empty();
        let (again, sad) = (self.has("next-turn"), self.has("turn-after-cancel"));
        match self.sessions.get_mut(&session) {
            None => return self.refuse(id, -32002, "no such session"),
            Some(state) if busy || (again && state.finished) || (sad && state.was_cancelled) => {
                return self.refuse(id, -32603, "Internal error");
            }
            Some(state) if state.cancel_sticks => {
                return self.answer(id, json!({"stopReason": "cancelled"}));
            }
            Some(_) => {}
        }
        self.had_turn = true;
        if self.has("lends-a-pipe") && self.lends_files {
            let pipe = format!("{}/pipe", self.sessions[&session].cwd);
            let _ = std::process::Command::new("mkfifo").arg(&pipe).stderr(Stdio::null()).status();
            self.asked += 2;
            let params = json!({"sessionId": session, "path": pipe, "content": "words"});
            self.ask(self.asked - 1, "fs/read_text_file", params.clone());
            self.ask(self.asked, "fs/write_text_file", params);
        }
        if self.has("leaves-no-children") {
            let mut sleep = std::process::Command::new("sleep");
            let _ = sleep.arg("20").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        }
        let due = Some(Instant::now() + BEFORE_WORDS);
        self.turns.push(Turn { id: id.clone(), session, due, step: 0, question: None, cancelled: false });
    }

    /// A turn: a thought, a tool call with a question, the answer to it, a message, the end.
    fn turns_go_on(&mut self) {
        let now = Instant::now();
        while let Some(at) = self.turns.iter().position(|turn| turn.due.is_some_and(|due| due <= now)) {
            let mut turn = self.turns.remove(at);
            let session = turn.session.clone();
            turn.step += 1;
            match turn.step {
                1 => {
                    self.update(&session, chunk("agent_thought_chunk", "Hm."));
                    turn.due = Some(now + BEFORE_QUESTION);
                    self.turns.push(turn);
                }
                2 if self.has("long-turn") => {
                    turn.due = None;
                    self.turns.push(turn);
                }
                2 if !turn.cancelled => {
                    let mut call = json!({"toolCallId": "call-1", "title": "Look around", "kind": "read"});
                    if self.has("paths-absolute") {
                        call["locations"] = json!([{"path": "src/main.rs"}]);
                    }
                    let mut update = call.clone();
                    update["sessionUpdate"] = json!("tool_call");
                    self.update(&session, update);
                    self.asked += 1;
                    turn.question = Some(self.asked);
                    let params = json!({"sessionId": session, "toolCall": call, "options": [
                        {"optionId": "no", "name": "No", "kind": "reject_once"},
                        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
                    ]});
                    self.ask(self.asked, "session/request_permission", params);
                    if self.has("request-ids-differ") {
                        self.ask(self.asked, "_broken/question", json!({}));
                    }
                    turn.due = None;
                    self.turns.push(turn);
                }
                _ => self.end_turn(turn),
            }
        }
    }

    fn end_turn(&mut self, turn: Turn) {
        let session = turn.session.clone();
        let done =
            json!({"sessionUpdate": "tool_call_update", "toolCallId": "call-1", "status": "completed"});
        self.update(&session, done);
        self.update(&session, chunk("agent_message_chunk", "Hello."));
        match self.fault.as_str() {
            "frames-valid" => self.update(
                &session,
                json!({"sessionUpdate": "agent_message_chunk", "content": "no content block"}),
            ),
            "updates-name-session" => self.update("another-session", chunk("agent_message_chunk", "Hi.")),
            "only-advertised" => {
                self.asked += 1;
                self.ask(self.asked, "terminal/create", json!({"sessionId": session, "command": "ls"}));
            }
            "unadvertised-update" => {
                self.update(&session, json!({"sessionUpdate": "subagent_update", "sessionId": "child"}));
            }
            "extension-names" => self.tell("craft/status", json!({})),
            "updates-before-answer" => {
                self.later.push((Instant::now() + Duration::from_millis(100), session.clone()));
            }
            _ => {}
        }
        if let Some(state) = self.sessions.get_mut(&session) {
            state.finished = true;
            state.story.push(chunk("user_message_chunk", "Say hello."));
            state.story.push(chunk("agent_message_chunk", "Hello."));
        }
        if self.has("silent-prompt") {
            return;
        }
        if self.has("retyped-prompt-id") {
            return self.answer(&json!(turn.id.to_string()), json!({"stopReason": "end_turn"}));
        }
        let result = match self.fault.as_str() {
            "prompt-answered" => json!({}),
            "stop-reason" => json!({"stopReason": "finished"}),
            _ => json!({"stopReason": "end_turn"}),
        };
        self.answer(&turn.id, result);
    }

    fn notification(&mut self, method: &str, params: &Value) {
        if self.has("answers-notifications") {
            self.answer(&Value::Null, Value::Null);
        }
        match method {
            "session/cancel" => self.cancel(params["sessionId"].as_str().unwrap_or_default(), false),
            "$/cancel_request" if self.has("cancel-request") => self.refuse(&Value::Null, -32601, method),
            "$/cancel_request" => {}
            _ if self.has("unknown-notification") => self.refuse(&Value::Null, -32601, method),
            _ => {}
        }
    }

    fn cancel(&mut self, session: &str, closing: bool) {
        let Some(at) = self.turns.iter().position(|turn| turn.session == session) else {
            if let (true, Some(state)) = (self.has("cancel-without-turn"), self.sessions.get_mut(session)) {
                state.cancel_sticks = true;
            }
            return;
        };
        let mut turn = self.turns.remove(at);
        turn.cancelled = true;
        match (self.fault.as_str(), turn.step) {
            ("cancel-at-once", 0) if !closing => {}
            ("odd-reason-at-once", 0) if !closing => self.answer(&turn.id, json!({"stopReason": "done"})),
            ("cancel-ends-turn" | "end-turn-on-cancel", 1) => {
                turn.due = Some(Instant::now() + LATE);
                self.turns.push(turn);
            }
            // A question is open, so its answer comes first.
            (_, 2) if turn.question.is_some() => self.turns.push(turn),
            (_, step) => {
                if let Some(state) = self.sessions.get_mut(session) {
                    state.was_cancelled = step > 0;
                }
                self.answer(&turn.id, json!({"stopReason": "cancelled"}));
            }
        }
    }

    /// The client answers a question.
    fn answered(&mut self, id: &Value, message: &Value) {
        let outcome = &message["result"]["outcome"];
        if !outcome.is_object() {
            return;
        }
        let asked = |turn: &Turn| turn.question.is_some() && turn.question == id.as_u64();
        let Some(at) = self.turns.iter().position(asked) else { return };
        let turn = self.turns.remove(at);
        let cancelled = turn.cancelled || outcome["outcome"] == "cancelled";
        if cancelled && !self.has("permission-cancelled") && !self.has("end-turn-on-cancel") {
            self.answer(&turn.id, json!({"stopReason": "cancelled"}));
        } else {
            self.end_turn(turn);
        }
    }

    fn restore(&mut self, id: &Value, method: &str, session: &str) {
        let load = method == "session/load";
        let Some(state) = self.sessions.get(session).filter(|state| !state.deleted) else {
            return match load && self.has("load-unknown") {
                true => self.answer(id, json!({})),
                false => self.refuse(id, -32002, "no such session"),
            };
        };
        if !load && self.has("no-resume-of-the-living") {
            return self.refuse(id, -32600, "the session is in use");
        }
        let told = if load { !self.has("load-replays") } else { self.has("resume-is-silent") };
        for update in if told { state.story.clone() } else { Vec::new() } {
            self.update(session, update);
        }
        self.answer(id, json!({}));
    }

    fn list(&self, id: &Value, params: &Value) {
        if params.get("cursor").is_some() && !self.has("list-bad-cursor") {
            return self.refuse(id, -32602, "Invalid params");
        }
        let shown = |state: &Session| {
            (!state.deleted || self.has("delete-removes")) && !(self.has("list-includes") && state.finished)
        };
        let sessions = self.sessions.iter().filter(|(_, state)| shown(state)).map(|(name, state)| {
            let cwd = if self.has("list-answers") { "here" } else { &state.cwd };
            json!({"sessionId": name, "cwd": cwd})
        });
        self.answer(id, json!({"sessions": sessions.collect::<Vec<_>>()}));
    }

    fn answer(&self, id: &Value, result: Value) {
        self.write(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}", self.echo(id, false)));
    }

    fn refuse(&self, id: &Value, code: i32, message: &str) {
        let error = json!({"code": code, "message": message});
        if self.has("errors-without-id") {
            return self.write(&json!({"jsonrpc": "2.0", "error": error}).to_string());
        }
        if self.has("errors-with-null-id") {
            return self.write(&json!({"jsonrpc": "2.0", "id": null, "error": error}).to_string());
        }
        self.write(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"error\":{error}}}", self.echo(id, true)));
    }

    fn echo(&self, id: &Value, is_error: bool) -> String {
        match id.as_f64() {
            // As a program does that keeps ids as text, where it writes its errors.
            Some(_) if self.has("answer-id") && is_error => json!(id.to_string()).to_string(),
            // As a program does that knows only floating point numbers.
            Some(number) if self.has("id-large") => format!("{number:.0}"),
            _ => id.to_string(),
        }
    }

    fn ask(&self, id: u64, method: &str, params: Value) {
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
    }

    fn tell(&self, method: &str, params: Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    fn update(&self, session: &str, update: Value) {
        self.tell("session/update", json!({"sessionId": session, "update": update}));
    }

    fn write(&self, line: &str) {
        let mut out = std::io::stdout().lock();
        // Nobody may be left to read it.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

fn chunk(kind: &str, text: &str) -> Value {
    json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}})
}
