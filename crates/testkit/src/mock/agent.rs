//! The mock as an agent: its sessions, settings and login. What it does in a turn are the scenarios.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use duologue_agent::exchange::dialogue::Dialogues;
use duologue_agent::schema::{
    AgentAuthCapabilities, AgentCapabilities, AuthMethod, AuthMethodAgent, AuthMethodId, Implementation,
    InitializeRequest, ListSessionsRequest, ListSessionsResponse, LogoutCapabilities, McpCapabilities,
    PromptCapabilities, Request, SessionAdditionalDirectoriesCapabilities, SessionCapabilities,
    SessionCloseCapabilities, SessionConfigOption, SessionDeleteCapabilities, SessionId,
    SessionListCapabilities, SessionModeId, SessionModeState, SessionResumeCapabilities, SessionUpdate,
    SetSessionConfigOptionRequest,
};
use duologue_agent::{
    Agent, Error, Exchange, Extensions, Prompt, Result, Server, Session, SessionSetup, StopReason, Turn,
};

use super::colleague::{self, Colleague};
use super::memory::Memory;
use super::scenario::Scenario;
use super::scene::Scene;
use super::settings::{Settings, modes};
use super::speaker::Speaker;
use super::{asking, odd, showing, words};

/// The params of the mock's extension method, which are also its result.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
struct Echo(serde_json::Value);

impl Request for Echo {
    const METHOD: &'static str = "_duologue.dev/echo";
    type Result = serde_json::Value;
}

/// The agent without a model.
pub(crate) struct Mock {
    scenario: Option<Scenario>,
    pace: Duration,
    logged_in: AtomicBool,
    sessions: AtomicU32,
    memory: Memory,
}

impl Mock {
    /// Plays one scenario in every turn, or the one the prompt names. Between two things it says it
    /// waits for `pace`.
    pub(crate) fn new(scenario: Option<Scenario>, pace: Duration) -> Self {
        Mock {
            scenario,
            pace,
            logged_in: AtomicBool::new(false),
            sessions: AtomicU32::new(0),
            memory: Memory::default(),
        }
    }

    /// The mock with what it does beside turns: it answers other agents, and its extension method
    /// `_duologue.dev/echo` answers with its params.
    pub(crate) fn server(self) -> Result<Server<Mock>> {
        let extensions = Extensions::new().on_request(|Echo(params), _| async { Ok(params) });
        let dialogues = Dialogues::new(Colleague::URI).map_err(Error::other)?.handler(Speaker);
        let exchange = Exchange::new()
            .agent_id(Colleague::ID)
            .correspondent(Colleague { pace: self.pace })
            .work(colleague::work)
            .dialogue(dialogues);
        Ok(Server::new(self).exchange(exchange).extensions(extensions))
    }

    fn check_login(&self) -> Result<()> {
        if self.logged_in.load(Relaxed) { Ok(()) } else { Err(Error::auth_required()) }
    }

    /// What is told as soon as a session is there.
    async fn set_up(&self, session: &Session) -> Result<SessionSetup> {
        session.set_commands(Scenario::commands()).await?;
        let setup = Settings::of(session).change(|settings| {
            let modes = SessionModeState::new(settings.mode.clone(), modes());
            SessionSetup::new().modes(modes).config_options(settings.options())
        });
        Ok(setup)
    }

    fn story(&self, id: &SessionId) -> Result<Vec<SessionUpdate>> {
        self.memory.story(id).ok_or_else(|| Error::not_found("the mock knows no such session"))
    }

    async fn play(&self, scenario: Scenario, scene: &Scene<'_>) -> Result<StopReason> {
        match scenario {
            Scenario::Hello => words::hello(scene).await?,
            Scenario::Clear => words::clear(scene).await?,
            Scenario::Thoughts => words::thoughts(scene).await?,
            Scenario::Plan => showing::plan(scene).await?,
            Scenario::Tools => showing::tools(scene).await?,
            Scenario::Permission => asking::permission(scene).await?,
            Scenario::Files => asking::files(scene).await?,
            Scenario::Terminal => asking::terminal(scene).await?,
            Scenario::Elicitation => asking::elicitation(scene).await?,
            Scenario::Modes => showing::modes(scene).await?,
            Scenario::Options => showing::options(scene).await?,
            Scenario::Commands => showing::commands(scene).await?,
            Scenario::Usage => showing::usage(scene).await?,
            Scenario::Info => showing::info(scene).await?,
            Scenario::Compaction => showing::compaction(scene).await?,
            Scenario::Notices => showing::notices(scene).await?,
            Scenario::Content => showing::content(scene).await?,
            Scenario::Unknown => odd::unknown(scene).await?,
            Scenario::Extension => asking::extension(scene).await?,
            Scenario::Colleague => asking::colleague(scene).await?,
            Scenario::Markdown => words::markdown(scene).await?,
            Scenario::Unicode => words::unicode(scene).await?,
            Scenario::Hostile => odd::hostile(scene).await?,
            Scenario::Slow => words::slow(scene).await?,
            Scenario::Long => words::long(scene).await?,
            Scenario::Sessions => {
                let known = self.memory.ids().join(", ");
                let text = format!("Sessions to list, load, resume and delete: {known}.");
                scene.say(&text).await?;
            }
            Scenario::Login => {
                self.check_login()?;
                scene.say("You are logged in.").await?;
            }
            Scenario::Cancel => odd::cancel(scene).await?,
            Scenario::Error => odd::error(scene).await?,
            Scenario::Stderr => odd::stderr(scene).await?,
            Scenario::Crash => odd::crash(scene).await?,
            Scenario::Refusal => {
                scene.say("I would rather not.").await?;
                return Ok(StopReason::Refusal);
            }
            Scenario::MaxTokens => {
                scene.say("This answer is getting too").await?;
                return Ok(StopReason::MaxTokens);
            }
            Scenario::MaxTurnRequests => {
                scene.say("I have asked the model often enough.").await?;
                return Ok(StopReason::MaxTurnRequests);
            }
        }
        Ok(StopReason::EndTurn)
    }
}

impl Agent for Mock {
    fn capabilities(&self) -> AgentCapabilities {
        let sessions = SessionCapabilities::new()
            .list(SessionListCapabilities::new())
            .delete(SessionDeleteCapabilities::new())
            .additional_directories(SessionAdditionalDirectoriesCapabilities::new())
            .resume(SessionResumeCapabilities::new())
            .close(SessionCloseCapabilities::new());
        AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(PromptCapabilities::new().image(true).audio(true).embedded_context(true))
            .mcp_capabilities(McpCapabilities::new().http(true).sse(true))
            .session_capabilities(sessions)
            .auth(AgentAuthCapabilities::new().logout(LogoutCapabilities::new()))
    }

    fn info(&self) -> Option<Implementation> {
        Some(Implementation::new("duologue-mock", env!("CARGO_PKG_VERSION")).title("Duologue's mock"))
    }

    /// Some clients log in wherever they can, so this is offered only when it is what is tried.
    fn auth_methods(&self, _: &InitializeRequest) -> Vec<AuthMethod> {
        if self.scenario != Some(Scenario::Login) {
            return Vec::new();
        }
        let method = AuthMethodAgent::new("mock-login", "Say please").description("Always works");
        vec![method.into()]
    }

    async fn authenticate(&self, method: AuthMethodId) -> Result<()> {
        if method != "mock-login" {
            return Err(Error::invalid_params("there is no such login: it is mock-login"));
        }
        self.logged_in.store(true, Relaxed);
        Ok(())
    }

    async fn logout(&self) -> Result<()> {
        self.logged_in.store(false, Relaxed);
        Ok(())
    }

    async fn new_session_id(&self) -> Result<SessionId> {
        Ok(format!("session-{}", self.sessions.fetch_add(1, Relaxed) + 1).into())
    }

    async fn new_session(&self, session: &Session) -> Result<SessionSetup> {
        if self.scenario == Some(Scenario::Login) {
            self.check_login()?;
        }
        self.memory.add(session.id(), session.cwd());
        self.set_up(session).await
    }

    async fn load_session(&self, session: &Session) -> Result<SessionSetup> {
        for update in self.story(session.id())? {
            session.update(update).await?;
        }
        self.set_up(session).await
    }

    async fn resume_session(&self, session: &Session) -> Result<SessionSetup> {
        self.story(session.id())?;
        self.set_up(session).await
    }

    /// One session a page, so that the cursor is of use.
    async fn list_sessions(&self, request: ListSessionsRequest) -> Result<ListSessionsResponse> {
        let start = match request.cursor.as_deref().map(str::parse) {
            None => 0,
            Some(Ok(start)) => start,
            Some(Err(_)) => return Err(Error::invalid_params("that is no cursor of the mock's")),
        };
        let known = self.memory.list(request.cwd.as_deref());
        let page = known.get(start).cloned();
        let mut response = ListSessionsResponse::new(page.into_iter().collect::<Vec<_>>());
        response.next_cursor = (start + 1 < known.len()).then(|| (start + 1).to_string());
        Ok(response)
    }

    async fn close_session(&self, _: &Session) -> Result<()> {
        Ok(())
    }

    async fn delete_session(&self, id: &SessionId) -> Result<()> {
        self.memory.forget(id);
        Ok(())
    }

    async fn set_mode(&self, session: &Session, mode: SessionModeId) -> Result<()> {
        if !modes().iter().any(|known| known.id == mode) {
            return Err(Error::invalid_params("there is no such mode"));
        }
        Settings::of(session).change(|settings| settings.mode = mode);
        Ok(())
    }

    async fn set_config_option(
        &self,
        session: &Session,
        request: SetSessionConfigOptionRequest,
    ) -> Result<Vec<SessionConfigOption>> {
        Settings::of(session).change(|settings| {
            settings.set(request.config_id.as_str(), &request.value)?;
            Ok(settings.options())
        })
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let scene = Scene { turn, pace: self.pace };
        let text = prompt.text();
        self.memory.prompted(turn.id(), text.trim());
        match self.scenario.or_else(|| Scenario::of_prompt(&text)) {
            Some(scenario) => self.play(scenario, &scene).await,
            None => {
                let words = format!(
                    "You said: {}\n\nI can do more when you begin with one of these:\n\n",
                    text.trim()
                );
                scene.say(&words).await?;
                let mut list = scene.message();
                list.push(format!("```\n{}```", Scenario::list())).await?;
                Ok(StopReason::EndTurn)
            }
        }
    }
}
