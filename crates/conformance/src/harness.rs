//! Where agents are tried: one process for all that is harmless, fresh ones for the rest.
//!
//! Agents that begin with `npx` or load a model take seconds to start, so checks that a healthy agent
//! survives unchanged share one process, each with a session of its own where it matters. A process
//! in which something failed is not used again: one fault must not show up under ten names.

use std::collections::{HashMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use duologue_transcript::{Record, RecordEvent, Side};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::finding::{Finding, Verdict, fail, skip, skip_dependent};
use super::wire::{Answer, Tape, Wire};
use crate::error::Error;
use crate::ui::plural;

/// How long is listened for what must not come.
pub(crate) const QUIET: Duration = Duration::from_millis(300);

/// What the command line says.
pub(crate) struct Settings {
    /// Makes the agent's command, as often as it is needed.
    pub(crate) command: Box<dyn Fn() -> crate::error::Result<duologue_client::Command>>,
    /// Where the sessions work; canonical.
    pub(crate) cwd: PathBuf,
    pub(crate) timeout: Duration,
    pub(crate) prompt: String,
    /// How to log in.
    pub(crate) auth: Option<String>,
}

/// Tries agents.
pub(crate) struct Bench {
    settings: Rc<Settings>,
    shared: Option<Agent>,
    /// Everything that was said so far, a tape a process.
    tapes: Vec<Tape>,
    /// Why there is no agent, no session and no turn, once that is known.
    missing: Missing,
    /// Why no process could be started.
    pub(crate) unstartable: Option<Error>,
    /// It has left a `session/close` unanswered once, and is not asked again.
    ignores_close: bool,
    ending: JoinSet<()>,
    /// The findings of the checks that have run, by name.
    findings: HashMap<&'static str, Finding>,
    /// The checks that are reported. Only these can explain another one's failure.
    pub(crate) chosen: HashSet<&'static str>,
}

#[derive(Default)]
struct Missing {
    agent: Option<String>,
    session: Option<Finding>,
    turn: Option<Finding>,
}

/// Notes why something is missing that many checks need, and returns what these checks find.
fn absent(noted: &mut Option<Finding>, check: &str, otherwise: &str, finding: &Finding) -> Finding {
    let saw = &finding.saw;
    let skipped = match finding.verdict {
        Verdict::Fail => skip_dependent(format!("because {check} failed: {saw}")),
        _ if finding.is_dependent => finding.clone(),
        _ => skip(format!("{otherwise}: {saw}")),
    };
    noted.insert(skipped).clone()
}

/// An agent that has been greeted.
pub(crate) struct Agent {
    wire: Wire,
    settings: Rc<Settings>,
    /// Its answer to `initialize`.
    pub(crate) hello: Value,
    /// The plain turn, once it has been.
    turn: Option<Turn>,
    logged_in: bool,
}

/// A session, and what its answer offers.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) id: String,
    pub(crate) offer: Value,
}

/// A turn that is over.
#[derive(Clone)]
pub(crate) struct Turn {
    pub(crate) session: String,
    pub(crate) answer: Answer,
}

/// What the client says it can do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    /// Files.
    Files,
    /// Nothing at all.
    Bare,
}

impl Client {
    pub(crate) fn hello(self, version: u32) -> Value {
        let files = self == Client::Files;
        json!({
            "protocolVersion": version,
            "clientCapabilities": {"fs": {"readTextFile": files, "writeTextFile": files}, "terminal": false},
            "clientInfo": {"name": "duologue-check", "version": env!("CARGO_PKG_VERSION")},
        })
    }
}

impl Bench {
    pub(crate) fn new(settings: Settings) -> Self {
        Bench {
            settings: Rc::new(settings),
            shared: None,
            tapes: Vec::new(),
            missing: Missing::default(),
            unstartable: None,
            ignores_close: false,
            ending: JoinSet::new(),
            findings: HashMap::new(),
            chosen: HashSet::new(),
        }
    }

    /// Returns what a check found, if it has run.
    pub(crate) fn finding(&self, check: &str) -> Option<&Finding> {
        self.findings.get(check)
    }

    pub(crate) fn keep(&mut self, check: &'static str, finding: Finding) {
        self.findings.insert(check, finding);
    }

    pub(crate) fn tapes(&self) -> &[Tape] {
        &self.tapes
    }

    /// How far the tapes are, to say later what came since.
    pub(crate) fn marks(&self) -> Vec<usize> {
        self.tapes.iter().map(Tape::len).collect()
    }

    /// What was said since then, with the processes that were told something.
    pub(crate) fn since(&self, marks: &[usize]) -> Vec<Record> {
        let starts = marks.iter().copied().chain(std::iter::repeat(0));
        let tapes = self.tapes.iter().zip(starts).map(|(tape, start)| tape.since(start));
        // The last words of a process that has had its check belong to nobody.
        let is_ours = |record: &Record| match &record.event {
            RecordEvent::Line(line) => line.from == Side::Client,
            event => *event == RecordEvent::Eof(Side::Client),
        };
        tapes.filter(|records| records.iter().any(is_ours)).flatten().collect()
    }

    /// Whether no agent could be greeted, so that nothing could be checked.
    pub(crate) fn has_no_agent(&self) -> bool {
        self.missing.agent.is_some()
    }

    /// A process to whom nothing has been said.
    pub(crate) fn raw(&mut self) -> Result<Wire, Finding> {
        let settings = &self.settings;
        let tape = self.tapes.last().map(Tape::next).unwrap_or_default();
        if let Some(flood) = tape.flooded() {
            return Err(skip(flood));
        }
        let started = (settings.command)()
            .and_then(|command| Wire::start(command, &settings.cwd, settings.timeout, tape));
        match started {
            Ok(mut wire) => {
                let probes = self.finding("unknown-extension");
                wire.answers_probes = probes.is_none_or(|finding| finding.explains("").is_none());
                self.tapes.push(wire.tape().clone());
                Ok(wire)
            }
            Err(error) => {
                let finding = fail(error.to_string());
                self.unstartable = Some(error);
                Err(finding)
            }
        }
    }

    /// An agent of its own for one check, greeted by such a client.
    pub(crate) async fn fresh(&mut self, client: Client) -> Result<Agent, Finding> {
        if let Some(why) = &self.missing.agent {
            return Err(skip_dependent(why.clone()));
        }
        let mut wire = self.raw()?;
        let hello = greet(&mut wire, &client.hello(1)).await;
        match hello.map(|answer| answer.outcome) {
            Ok(Ok(hello)) => {
                Ok(Agent { wire, settings: self.settings.clone(), hello, turn: None, logged_in: false })
            }
            Ok(Err(refusal)) => Err(self.without_agent(&refusal.to_string())),
            Err(finding) => Err(self.without_agent(&finding.saw)),
        }
    }

    fn without_agent(&mut self, saw: &str) -> Finding {
        let why = format!("because initialize-answers failed: {saw}");
        skip_dependent(self.missing.agent.insert(why).clone())
    }

    /// Notes that prompts are not answered, and returns the finding of a check that needs one answered.
    pub(crate) fn without_turn(&mut self, finding: &Finding) -> Finding {
        absent(&mut self.missing.turn, "prompt-answered", "there is no turn", finding)
    }

    /// Fails if it is known that prompts are not answered.
    pub(crate) fn expect_turns(&self) -> Result<(), Finding> {
        self.missing.turn.clone().map_or(Ok(()), Err)
    }

    /// The agent of all harmless checks.
    pub(crate) async fn agent(&mut self) -> Result<&mut Agent, Finding> {
        let agent = match self.shared.take() {
            Some(agent) if agent.is_open() => agent,
            _ => self.fresh(Client::Files).await?,
        };
        Ok(self.shared.insert(agent))
    }

    /// A new session of the agent of all harmless checks. One that has as many as it can is replaced.
    pub(crate) async fn open(&mut self) -> Result<Opened, Finding> {
        let agent = self.agent().await?;
        let is_first = agent.sessions().is_empty();
        let opened = agent.open().await;
        if is_first || opened.is_ok() {
            return opened;
        }
        self.retire_shared();
        self.agent().await?.open().await
    }

    /// Closes the sessions that a check has made, where that can be done: some agents take only so many.
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

    /// The same, with a new session.
    pub(crate) async fn session(&mut self) -> Result<(&mut Agent, Opened), Finding> {
        if let Some(why) = &self.missing.session {
            return Err(why.clone());
        }
        match self.open().await {
            // Once more, since a borrow cannot end early in one arm only.
            Ok(opened) => Ok((self.agent().await?, opened)),
            Err(finding) => {
                Err(absent(&mut self.missing.session, "session-new", "there is no session", &finding))
            }
        }
    }

    /// The same, after a plain turn in a session that all who only look at it share.
    pub(crate) async fn after_turn(&mut self) -> Result<(&mut Agent, Turn), Finding> {
        self.expect_turns()?;
        if let Some(turn) =
            self.shared.as_ref().filter(|agent| agent.is_open()).and_then(|it| it.turn.clone())
        {
            return Ok((self.agent().await?, turn));
        }
        let (agent, opened) = self.session().await?;
        match agent.turn(&opened.id).await {
            Ok(turn) => {
                agent.turn = Some(turn.clone());
                Ok((self.agent().await?, turn))
            }
            Err(finding) => Err(self.without_turn(&finding)),
        }
    }

    /// The shared agent is not used again.
    pub(crate) fn retire_shared(&mut self) {
        if let Some(agent) = self.shared.take() {
            self.retire(agent.wire);
        }
    }

    /// Ends a process, while the next check runs.
    pub(crate) fn retire(&mut self, wire: Wire) {
        self.ending.spawn(wire.end());
    }

    /// Waits for all processes to be gone.
    pub(crate) async fn finish(mut self) {
        self.retire_shared();
        while self.ending.join_next().await.is_some() {}
    }
}

/// Says hello. Starting may take longer than answering.
pub(crate) async fn greet(wire: &mut Wire, hello: &Value) -> Result<Answer, Finding> {
    let patience = wire.patience;
    wire.patience = patience * 3;
    let answer = wire.ask("initialize", hello.clone()).await;
    wire.patience = patience;
    answer
}

impl Agent {
    /// A session in the folder.
    pub(crate) async fn open(&mut self) -> Result<Opened, Finding> {
        let others = self.sessions().len();
        match self.ask_in("session/new", self.folder()).await?.outcome {
            Ok(offer) => match offer["sessionId"].as_str() {
                Some(id) => Ok(Opened { id: id.to_owned(), offer }),
                None => Err(fail("session/new is answered without a sessionId")),
            },
            Err(refusal) if others > 0 => {
                let sessions = plural(others, "session");
                Err(skip(format!("too many sessions: with {sessions}, another is answered with {refusal}")))
            }
            Err(refusal) => Err(fail(format!("session/new is answered with {refusal}"))),
        }
    }

    /// Asks, and logs in if that has to be first.
    pub(crate) async fn ask_in(&mut self, method: &str, params: Value) -> Result<Answer, Finding> {
        let answer = self.ask(method, params.clone()).await?;
        if matches!(&answer.outcome, Err(refusal) if refusal.code == -32000) && !self.logged_in {
            self.log_in().await?;
            return self.ask(method, params).await;
        }
        Ok(answer)
    }

    async fn log_in(&mut self) -> Result<(), Finding> {
        let Some(method) = self.settings.auth.clone() else {
            let methods = self.hello["authMethods"].as_array().map(Vec::as_slice).unwrap_or_default();
            let ids: Vec<_> = methods.iter().filter_map(|method| method["id"].as_str()).collect();
            return Err(skip(format!("it asks for a login; choose one with --auth ({})", ids.join(", "))));
        };
        let answer = self.ask("authenticate", json!({"methodId": method})).await?;
        self.logged_in = true;
        match answer.outcome {
            Ok(_) => Ok(()),
            Err(refusal) => Err(fail(format!("authenticate is answered with {refusal}"))),
        }
    }

    /// The params of `session/new`.
    pub(crate) fn folder(&self) -> Value {
        json!({"cwd": self.settings.cwd, "mcpServers": []})
    }

    /// The params of `session/load` and `session/resume`.
    pub(crate) fn folder_of(&self, session: &str) -> Value {
        json!({"sessionId": session, "cwd": self.settings.cwd, "mcpServers": []})
    }

    /// The params of the plain prompt.
    pub(crate) fn prompt(&self, session: &str) -> Value {
        json!({"sessionId": session, "prompt": [{"type": "text", "text": self.settings.prompt}]})
    }

    /// A plain turn.
    pub(crate) async fn turn(&mut self, session: &str) -> Result<Turn, Finding> {
        let prompt = self.prompt(session);
        let answer = self.ask("session/prompt", prompt).await?;
        Ok(Turn { session: session.to_owned(), answer })
    }

    /// Whether it offers one of the methods that open a session's story again or end it.
    pub(crate) fn offers(&self, capability: &str) -> bool {
        let capabilities = &self.hello["agentCapabilities"];
        match capability {
            "loadSession" => capabilities["loadSession"] == true,
            marker => capabilities["sessionCapabilities"][marker].is_object(),
        }
    }

    /// The process alone.
    pub(crate) fn into_wire(self) -> Wire {
        self.wire
    }
}

impl Deref for Agent {
    type Target = Wire;
    fn deref(&self) -> &Wire {
        &self.wire
    }
}

impl DerefMut for Agent {
    fn deref_mut(&mut self) -> &mut Wire {
        &mut self.wire
    }
}
