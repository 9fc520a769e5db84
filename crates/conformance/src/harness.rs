//! The agent's processes during a run: one that harmless checks share, and new ones for the rest.
//!
//! Agents that begin with `npx` or load a model take seconds to start. Checks that do not change a healthy
//! agent therefore share one process, each with a session of its own where it matters. A process in which a
//! check failed is not used again, so that one fault is not reported under ten names.

use std::collections::{HashMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use duologue_client::Command;
use duologue_schema::{
    AuthenticateRequest, InitializeRequest, Meta, NewSessionRequest, PromptRequest, Request as _,
    SetSessionConfigOptionRequest, SetSessionModeRequest, v2,
};
use duologue_transcript::{Record, RecordEvent, Side};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::finding::{Finding, Verdict, fail, skip, skip_dependent};
use crate::raw_process::{ProcessLog, RawProcess, ResponseFromAgent, seconds};

/// The usual time to wait for a message that must not come.
pub(crate) const QUIET: Duration = Duration::from_millis(300);

/// The durations on which the verdict about a slow agent depends.
#[derive(Clone, Copy)]
pub(crate) struct Waits {
    /// The time to wait for a message that must not come.
    pub(crate) quiet: Duration,
    /// A turn that ends this soon after its cancel may have ended by itself.
    pub(crate) crossed: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Waits { quiet: QUIET, crossed: Duration::from_secs(1) }
    }
}

/// The check that reports an agent that does not answer `initialize`.
const INITIALIZE: &str = "initialize-answers";

/// Longest part of an error's data in a finding, in characters.
const LONGEST_DATA: usize = 500;

/// The options of a run.
pub(crate) struct Settings {
    /// Makes the agent's command, once for each process.
    pub(crate) command: Box<dyn Fn() -> Command>,
    /// The folder of the sessions; canonical.
    pub(crate) cwd: PathBuf,
    pub(crate) timeout: Duration,
    pub(crate) waits: Waits,
    pub(crate) prompt: String,
    /// The prompt that requests a permission; `prompt` if `None`.
    pub(crate) permission_prompt: Option<String>,
    /// The prompt whose turn is long enough to be cancelled; `prompt` if `None`.
    pub(crate) slow_prompt: Option<String>,
    /// The mode of each session, if it is not the agent's choice.
    pub(crate) mode: Option<String>,
    /// The authentication method.
    pub(crate) login: Option<String>,
    /// The `_meta` of the request that logs in.
    pub(crate) login_meta: Option<Meta>,
    /// True for the checks of the draft of version 2.
    pub(crate) is_v2: bool,
}

/// The state of a run: the agent's processes, their logs and the findings so far.
pub(crate) struct Harness {
    settings: Rc<Settings>,
    shared: Option<Agent>,
    /// The log of each process, in the order in which they were started.
    logs: Vec<ProcessLog>,
    missing: Missing,
    /// True if a process has answered `initialize`.
    has_agent: bool,
    /// The failure of the agent's later process that did not answer `initialize`, until a check reports it.
    lost_agent: Option<Finding>,
    /// The error of a process that could not be started.
    pub(crate) start_error: Option<duologue_client::Error>,
    /// Set once the agent left a `session/close` without a response; none is sent after that.
    ignores_close: bool,
    ending: JoinSet<()>,
    /// The findings of the checks that have run, by name.
    findings: HashMap<&'static str, Finding>,
    /// The selected checks. Only these can explain another one's failure.
    pub(crate) chosen: HashSet<&'static str>,
}

/// The reasons for which there is no agent, no session or no turn, once they are known.
#[derive(Default)]
struct Missing {
    agent: Option<String>,
    session: Option<Finding>,
    turn: Option<Finding>,
}

/// Stores the reason for which something is missing that many checks need, and returns the finding of these checks.
fn absent(slot: &mut Option<Finding>, check: &'static str, otherwise: &str, finding: &Finding) -> Finding {
    let saw = &finding.saw;
    let skipped = match finding.verdict {
        Verdict::Fail => skip_dependent(check, format!("because {check} failed: {saw}")),
        _ if finding.because.is_some() => finding.clone(),
        _ => skip(format!("{otherwise}: {saw}")),
    };
    slot.insert(skipped).clone()
}

/// An agent that has answered `initialize`.
pub(crate) struct Agent {
    process: RawProcess,
    settings: Rc<Settings>,
    /// The result of `initialize`.
    pub(crate) initialized: Value,
    /// A finished turn, which checks that only examine one share.
    turn: Option<EndedTurn>,
    /// The outcome of the login, once there was one.
    login: Option<Result<(), Finding>>,
}

/// A session, and the result of the request that made it.
#[derive(Clone)]
pub(crate) struct OpenSession {
    pub(crate) id: String,
    pub(crate) offer: Value,
}

/// A finished turn.
#[derive(Clone)]
pub(crate) struct EndedTurn {
    pub(crate) session: String,
    pub(crate) response: ResponseFromAgent,
}

/// The capabilities that the client advertises.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestClient {
    /// Reading and writing files.
    Files,
    /// None.
    Bare,
}

impl TestClient {
    pub(crate) fn initialize_params(self, version: u32) -> Value {
        let files = self == TestClient::Files;
        let name = json!({"name": "duologue-check", "version": env!("CARGO_PKG_VERSION")});
        let mut params = json!({
            "protocolVersion": version,
            "clientCapabilities": {"fs": {"readTextFile": files, "writeTextFile": files}, "terminal": false},
            "clientInfo": name,
        });
        // An offer of version 2 has the members of both versions.
        if version == 2 {
            params["info"] = name;
            params["capabilities"] = json!({});
        }
        params
    }
}

impl Harness {
    pub(crate) fn new(settings: Settings) -> Self {
        Harness {
            settings: Rc::new(settings),
            shared: None,
            logs: Vec::new(),
            missing: Missing::default(),
            has_agent: false,
            lost_agent: None,
            start_error: None,
            ignores_close: false,
            ending: JoinSet::new(),
            findings: HashMap::new(),
            chosen: HashSet::new(),
        }
    }

    /// Returns true for the checks of the draft of version 2.
    pub(crate) fn is_v2(&self) -> bool {
        self.settings.is_v2
    }

    /// Returns the finding of a check, if it has run.
    pub(crate) fn finding(&self, check: &str) -> Option<&Finding> {
        self.findings.get(check)
    }

    pub(crate) fn store(&mut self, check: &'static str, finding: Finding) {
        self.findings.insert(check, finding);
    }

    pub(crate) fn logs(&self) -> &[ProcessLog] {
        &self.logs
    }

    /// Returns the current length of each log, for [`since`](Self::since).
    pub(crate) fn marks(&self) -> Vec<usize> {
        self.logs.iter().map(ProcessLog::len).collect()
    }

    /// Returns the records since `marks` of those processes to which something was sent.
    pub(crate) fn since(&self, marks: &[usize]) -> Vec<Record> {
        let starts = marks.iter().copied().chain(std::iter::repeat(0));
        let logs = self.logs.iter().zip(starts).map(|(log, start)| log.since(start));
        // The last lines of a process whose check is over belong to no check.
        let is_sent = |record: &Record| match &record.event {
            RecordEvent::Line(line) => line.from == Side::Client,
            event => *event == RecordEvent::Eof(Side::Client),
        };
        logs.filter(|records| records.iter().any(is_sent)).flatten().collect()
    }

    /// Returns false if the agent did not answer `initialize`, so that nothing could be checked.
    pub(crate) fn has_agent(&self) -> bool {
        self.has_agent || self.finding(INITIALIZE).is_some_and(|finding| finding.verdict == Verdict::Pass)
    }

    /// Returns the failure of a later process that did not answer `initialize`. It is a failure of the check that
    /// needed the process, whatever the check tests.
    pub(crate) fn take_lost_agent(&mut self) -> Option<Finding> {
        self.lost_agent.take()
    }

    /// Returns the reason for which no session or no turn could be had, if a check needed one.
    pub(crate) fn untested(&self) -> Option<String> {
        self.missing.session.as_ref().or(self.missing.turn.as_ref()).map(|finding| finding.saw.clone())
    }

    /// Starts a process and sends nothing to it.
    pub(crate) fn raw(&mut self) -> Result<RawProcess, Finding> {
        let settings = &self.settings;
        let log = self.logs.last().map(ProcessLog::next).unwrap_or_default();
        if let Some(flood) = log.flooded() {
            return Err(skip(flood));
        }
        match RawProcess::start((settings.command)(), &settings.cwd, settings.timeout, settings.waits, log) {
            Ok(mut process) => {
                let probes = self.finding("unknown-extension");
                process.answers_probes =
                    probes.is_none_or(|finding| finding.explains("unknown-extension").is_none());
                self.logs.push(process.log().clone());
                Ok(process)
            }
            Err(error) => {
                let finding = fail(error.to_string());
                self.start_error = Some(error);
                Err(finding)
            }
        }
    }

    /// Starts an agent for one check and initializes it as `client`.
    pub(crate) async fn fresh(&mut self, client: TestClient) -> Result<Agent, Finding> {
        if let Some(reason) = &self.missing.agent {
            return Err(skip_dependent(INITIALIZE, reason.clone()));
        }
        let mut process = self.raw()?;
        let response =
            initialize(&mut process, &client.initialize_params(if self.is_v2() { 2 } else { 1 })).await;
        match response.map(|response| response.outcome) {
            Ok(Ok(initialized)) if self.is_v2() && initialized["protocolVersion"] != 2 => {
                let version = &initialized["protocolVersion"];
                Err(self
                    .without_agent(&format!("the agent chose version {version}, not the draft of version 2")))
            }
            Ok(Ok(initialized)) => {
                self.has_agent = true;
                let settings = self.settings.clone();
                Ok(Agent { process, settings, initialized, turn: None, login: None })
            }
            Ok(Err(error)) => Err(self.without_agent(&error.to_string())),
            Err(finding) => Err(self.without_agent(&finding.saw)),
        }
    }

    fn without_agent(&mut self, saw: &str) -> Finding {
        let reason = if self.has_agent() {
            let saw = format!("a later process of the agent did not answer `initialize`: {saw}");
            self.lost_agent = Some(fail(&saw));
            format!("because {saw}")
        } else {
            format!("because {INITIALIZE} failed: {saw}")
        };
        skip_dependent(INITIALIZE, self.missing.agent.insert(reason).clone())
    }

    /// Stores that prompts are not answered, and returns the finding of a check that needs a response to one.
    pub(crate) fn without_turn(&mut self, finding: &Finding) -> Finding {
        absent(&mut self.missing.turn, "prompt-answered", "there is no turn", finding)
    }

    /// Returns an error if it is known that prompts are not answered.
    pub(crate) fn expect_turns(&self) -> Result<(), Finding> {
        self.missing.turn.clone().map_or(Ok(()), Err)
    }

    /// Returns the shared agent, and starts it if there is none.
    pub(crate) async fn agent(&mut self) -> Result<&mut Agent, Finding> {
        let agent = match self.shared.take() {
            Some(agent) if agent.is_open() => agent,
            _ => self.fresh(TestClient::Files).await?,
        };
        Ok(self.shared.insert(agent))
    }

    /// Opens a session of the shared agent. An agent that takes no more sessions is replaced.
    pub(crate) async fn open(&mut self) -> Result<OpenSession, Finding> {
        let agent = self.agent().await?;
        let is_first = agent.sessions().is_empty();
        let session = agent.open().await;
        if is_first || session.is_ok() {
            return session;
        }
        self.retire_shared();
        self.agent().await?.open().await
    }

    /// Closes the sessions of a check if the agent supports that, since some agents take only a few.
    pub(crate) async fn close_sessions(&mut self) {
        let Some(agent) = &mut self.shared else { return };
        if self.ignores_close || !agent.is_open() || !agent.offers("close") {
            return;
        }
        let kept = agent.turn.as_ref().map(|turn| turn.session.clone());
        let mut made = agent.sessions().to_vec();
        made.retain(|session| Some(session) != kept.as_ref());
        for session in made {
            if agent.close(&session).await.is_err() {
                self.ignores_close = true;
                return;
            }
        }
    }

    /// Returns the shared agent and a new session.
    pub(crate) async fn session(&mut self) -> Result<(&mut Agent, OpenSession), Finding> {
        if let Some(reason) = &self.missing.session {
            return Err(reason.clone());
        }
        match self.open().await {
            // A second call, since a borrow cannot end early in one arm only.
            Ok(session) => Ok((self.agent().await?, session)),
            Err(finding) => {
                Err(absent(&mut self.missing.session, "session-new", "there is no session", &finding))
            }
        }
    }

    /// Returns the shared agent and a finished turn, in a session that all checks that only examine it share.
    pub(crate) async fn after_turn(&mut self) -> Result<(&mut Agent, EndedTurn), Finding> {
        self.expect_turns()?;
        if let Some(turn) =
            self.shared.as_ref().filter(|agent| agent.is_open()).and_then(|agent| agent.turn.clone())
        {
            return Ok((self.agent().await?, turn));
        }
        let (agent, session) = self.session().await?;
        match agent.turn(&session.id).await {
            Ok(turn) => {
                agent.turn = Some(turn.clone());
                Ok((self.agent().await?, turn))
            }
            Err(finding) => Err(self.without_turn(&finding)),
        }
    }

    /// Ends the shared agent.
    pub(crate) fn retire_shared(&mut self) {
        if let Some(agent) = self.shared.take() {
            self.retire(agent.process);
        }
    }

    /// Ends a process, while the next check runs.
    pub(crate) fn retire(&mut self, process: RawProcess) {
        self.ending.spawn(process.end());
    }

    /// Waits for all processes to be gone.
    pub(crate) async fn finish(mut self) {
        self.retire_shared();
        while self.ending.join_next().await.is_some() {}
    }
}

/// Sends `initialize`. The response may take three times the timeout, since it includes the start.
pub(crate) async fn initialize(
    process: &mut RawProcess,
    params: &Value,
) -> Result<ResponseFromAgent, Finding> {
    let patience = process.patience;
    process.patience = patience * 3;
    let response = process.request(InitializeRequest::METHOD, params.clone()).await;
    process.patience = patience;
    response
}

impl Agent {
    /// Opens a session in the folder.
    pub(crate) async fn open(&mut self) -> Result<OpenSession, Finding> {
        let others = self.sessions().len();
        match self.request_with_login(NewSessionRequest::METHOD, self.new_session_params()).await?.outcome {
            Ok(offer) => match offer["sessionId"].as_str() {
                Some(id) => {
                    let opened = OpenSession { id: id.to_owned(), offer };
                    self.enter_mode(&opened).await?;
                    Ok(opened)
                }
                None => Err(fail("session/new is answered without a sessionId")),
            },
            Err(error) if others > 0 => {
                let sessions = plural(others, "session");
                Err(skip(format!("too many sessions: with {sessions}, another is answered with {error}")))
            }
            Err(error) => Err(fail(format!("session/new is answered with {error}"))),
        }
    }

    /// Returns the configured mode of sessions.
    pub(crate) fn mode(&self) -> Option<&str> {
        self.settings.mode.as_deref()
    }

    /// Sets the configured mode of a session.
    async fn enter_mode(&mut self, opened: &OpenSession) -> Result<(), Finding> {
        let Some(mode) = self.settings.mode.clone() else { return Ok(()) };
        let (method, params) = match self.settings.is_v2 {
            false => (SetSessionModeRequest::METHOD, json!({"sessionId": opened.id, "modeId": mode})),
            true => {
                let options = opened.offer["configOptions"].as_array().map(Vec::as_slice).unwrap_or_default();
                let Some(option) = options.iter().find(|option| option["category"] == "mode") else {
                    return Err(skip("the agent has no config option of the category `mode`; set no mode"));
                };
                let id = &option["configId"];
                let params = json!({"sessionId": opened.id, "configId": id, "type": "id", "value": mode});
                (SetSessionConfigOptionRequest::METHOD, params)
            }
        };
        match self.request(method, params).await?.outcome {
            Ok(_) => Ok(()),
            Err(error) => Err(skip(format!("the mode {mode} is answered with {error}; set another one"))),
        }
    }

    /// Sends a request, and logs in first if the agent requires it.
    pub(crate) async fn request_with_login(
        &mut self,
        method: &str,
        params: Value,
    ) -> Result<ResponseFromAgent, Finding> {
        let response = self.request(method, params.clone()).await?;
        if !matches!(&response.outcome, Err(error) if error.code == -32000) {
            return Ok(response);
        }
        match &self.login {
            Some(Ok(())) => Ok(response),
            Some(Err(failed)) => Err(failed.clone()),
            None => {
                let login = self.log_in().await;
                self.login = Some(login.clone());
                login?;
                self.request(method, params).await
            }
        }
    }

    async fn log_in(&mut self) -> Result<(), Finding> {
        let Some(method) = self.settings.login.clone() else {
            let methods = self.initialized["authMethods"].as_array().map(Vec::as_slice).unwrap_or_default();
            let id = if self.settings.is_v2 { "methodId" } else { "id" };
            let ids: Vec<_> = methods.iter().filter_map(|method| method[id].as_str()).collect();
            return Err(skip(format!("it requires a login; set its method ({})", ids.join(", "))));
        };
        let mut request = AuthenticateRequest::new(method);
        request.meta.clone_from(&self.settings.login_meta);
        let params = serde_json::to_value(&request).unwrap_or_default();
        let is_v2 = self.settings.is_v2;
        let method = if is_v2 { v2::LoginAuthRequest::METHOD } else { AuthenticateRequest::METHOD };
        match self.request(method, params).await?.outcome {
            Ok(_) => Ok(()),
            Err(error) if error.data.is_null() => Err(fail(format!("{method} is answered with {error}"))),
            Err(error) => {
                let data: String = error.data.to_string().chars().take(LONGEST_DATA).collect();
                Err(fail(format!("{method} is answered with {error}, data {data}")))
            }
        }
    }

    /// Returns the params of `session/new`.
    pub(crate) fn new_session_params(&self) -> Value {
        json!({"cwd": self.settings.cwd, "mcpServers": []})
    }

    /// Returns the params of `session/load` and `session/resume`.
    pub(crate) fn load_session_params(&self, session: &str) -> Value {
        json!({"sessionId": session, "cwd": self.settings.cwd, "mcpServers": []})
    }

    /// Returns the params of `session/prompt` with the configured prompt.
    pub(crate) fn prompt_params(&self, session: &str) -> Value {
        self.params_of(session, None)
    }

    /// Returns the params of `session/prompt` for a turn that is to be cancelled.
    pub(crate) fn slow_prompt_params(&self, session: &str) -> Value {
        self.params_of(session, self.settings.slow_prompt.as_ref())
    }

    /// Returns the params of `session/prompt` for a turn that is to request a permission.
    pub(crate) fn permission_prompt_params(&self, session: &str) -> Value {
        self.params_of(session, self.settings.permission_prompt.as_ref())
    }

    fn params_of(&self, session: &str, prompt: Option<&String>) -> Value {
        let text = prompt.unwrap_or(&self.settings.prompt);
        json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
    }

    /// Runs a turn with the configured prompt.
    ///
    /// An agent that answers only after a cancel is no fault of a check: its prompt takes longer than the timeout.
    pub(crate) async fn turn(&mut self, session: &str) -> Result<EndedTurn, Finding> {
        let prompt = self.prompt_params(session);
        let id = self.send_request(PromptRequest::METHOD, prompt).await?;
        let unanswered = match self.response(&id, PromptRequest::METHOD).await {
            Ok(response) => return Ok(EndedTurn { session: session.to_owned(), response }),
            Err(finding) => finding,
        };
        if self.is_open()
            && self.cancel(session).await.is_ok()
            && self.response(&id, "a cancel").await.is_ok()
        {
            let limit = seconds(self.patience);
            return Err(skip(format!(
                "the prompt takes longer than {limit}; set a shorter prompt or a longer timeout"
            )));
        }
        Err(unanswered)
    }

    /// Returns true if the agent advertises a session capability, such as `loadSession` or `close`. Every agent of version 2
    /// has these two.
    pub(crate) fn offers(&self, capability: &str) -> bool {
        if self.settings.is_v2 {
            return ["loadSession", "close"].contains(&capability);
        }
        let capabilities = &self.initialized["agentCapabilities"];
        match capability {
            "loadSession" => capabilities["loadSession"] == true,
            marker => capabilities["sessionCapabilities"][marker].is_object(),
        }
    }

    /// Returns the process.
    pub(crate) fn into_process(self) -> RawProcess {
        self.process
    }
}

impl Deref for Agent {
    type Target = RawProcess;
    fn deref(&self) -> &RawProcess {
        &self.process
    }
}

impl DerefMut for Agent {
    fn deref_mut(&mut self) -> &mut RawProcess {
        &mut self.process
    }
}

/// Returns a count with its noun: `1 frame`, `2 frames`.
pub(crate) fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
