//! The agent: its sessions, settings and login. Each turn plays a scenario.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use duologue_agent::exchange::dialogue::Dialogues;
use duologue_agent::schema::{
    AgentAuthCapabilities, AgentCapabilities, AuthMethod, AuthMethodAgent, AuthenticateRequest,
    DeleteSessionRequest, Implementation, InitializeRequest, ListSessionsRequest, ListSessionsResponse,
    LogoutCapabilities, McpCapabilities, PromptCapabilities, Request,
    SessionAdditionalDirectoriesCapabilities, SessionCapabilities, SessionCloseCapabilities,
    SessionConfigOption, SessionDeleteCapabilities, SessionId, SessionListCapabilities,
    SessionResumeCapabilities, SessionUpdate, SetSessionConfigOptionRequest, SetSessionModeRequest,
};
use duologue_agent::{
    Agent, Context, Error, Exchange, Extensions, Prompt, Result, Server, Session, SessionSetup, StopReason,
    Transport, Turn,
};

use super::dialogues::DialogueResponder;
use super::edge_cases::Crash;
use super::envelopes::{self, EnvelopeResponder};
use super::scenario::Scenario;
use super::scenario_turn::ScenarioTurn;
use super::session_store::SessionStore;
use super::settings::{MockSettings, modes};
#[cfg(feature = "protocol-v2")]
use super::version_2;
use super::{client_requests, delegation, display, edge_cases, messages};

/// The params of the extension method, which are also its result.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
struct Echo(serde_json::Value);

impl Request for Echo {
    const METHOD: &'static str = "_duologue.dev/echo";
    type Result = serde_json::Value;
}

/// An agent without a model: deterministic, and able to show every feature of the protocol.
///
/// With the feature `protocol-v2` it serves the draft of version 2 to clients that ask for it.
///
/// Prompt it with the name of a [`Scenario`]. In the scenario `crash` it closes its connection in the middle of a
/// message.
///
/// Clones have the same sessions and login, as the processes of one agent that stores them. A test of a restart spawns the
/// agent again.
#[derive(Clone)]
pub struct MockAgent {
    scenario: Option<Scenario>,
    pace: Duration,
    crash: Crash,
    logged_in: Arc<AtomicBool>,
    sessions: Arc<AtomicU32>,
    store: Arc<SessionStore>,
}

impl Default for MockAgent {
    fn default() -> Self {
        MockAgent::new()
    }
}

impl MockAgent {
    /// Creates an agent that plays the scenario that the first word of a prompt names, without pauses.
    #[must_use]
    pub fn new() -> Self {
        MockAgent {
            scenario: None,
            pace: Duration::ZERO,
            crash: Crash::Disconnect,
            logged_in: Arc::default(),
            sessions: Arc::default(),
            store: Arc::default(),
        }
    }

    /// Plays this scenario in every turn.
    #[must_use]
    pub fn scenario(mut self, scenario: Scenario) -> Self {
        self.scenario = Some(scenario);
        self
    }

    /// Sets the pause between two words.
    #[must_use]
    pub fn pace(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }

    /// Ends the process at a crash, as an agent does that has the process to itself. Without this the agent closes its
    /// connection.
    #[doc(hidden)]
    #[must_use]
    pub fn exit_at_crash(mut self) -> Self {
        self.crash = Crash::Exit;
        self
    }

    /// Starts the agent in memory and returns the transport for its client. It can be spawned again, with its sessions.
    ///
    /// # Errors
    ///
    /// As [`server`](Self::server).
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub fn spawn(&self) -> Result<Transport> {
        let (client, agent) = Transport::memory();
        let server = self.clone().server()?;
        tokio::spawn(async move { server.serve(agent).await });
        Ok(client)
    }

    /// Returns a server for the agent. Beside turns it answers other agents, and the extension method
    /// `_duologue.dev/echo` answers with its params.
    ///
    /// # Errors
    ///
    /// Never in practice: an error of the registration of its methods.
    pub fn server(self) -> Result<Server<MockAgent>> {
        let extensions = Extensions::new().on_request(async |_, Echo(params)| Ok(params));
        let dialogues =
            Dialogues::new(EnvelopeResponder::URI).map_err(Error::other)?.handler(DialogueResponder);
        let exchange = Exchange::new()
            .agent_id(EnvelopeResponder::ID)
            .envelope_handler(EnvelopeResponder { pace: self.pace, crash: self.crash })
            .work(envelopes::work)
            .dialogue(dialogues);
        let server = Server::new(self).exchange(exchange).extensions(extensions);
        #[cfg(feature = "protocol-v2")]
        let server = server.protocol_v2();
        Ok(server)
    }

    fn check_login(&self) -> Result<()> {
        if self.logged_in.load(Relaxed) {
            Ok(())
        } else {
            Err(Error::auth_required("authentication required"))
        }
    }

    /// Sends the commands of a new session, and returns its modes and options.
    async fn set_up(&self, session: &Session) -> Result<SessionSetup> {
        let commands = Scenario::commands(session.client().protocol_version());
        session.set_commands(commands).await?;
        let options = MockSettings::of(session).change(|settings| settings.options());
        Ok(SessionSetup::new().modes(modes()).config_options(options).mirror_modes())
    }

    fn replay(&self, id: &SessionId) -> Result<Vec<SessionUpdate>> {
        self.store.replay(id).ok_or_else(|| Error::not_found("the mock knows no such session"))
    }

    async fn play(&self, scenario: Scenario, turn: &ScenarioTurn<'_>) -> Result<StopReason> {
        match scenario {
            Scenario::Hello => messages::hello(turn).await?,
            Scenario::Clear => messages::clear(turn).await?,
            Scenario::Thoughts => messages::thoughts(turn).await?,
            Scenario::Plan => display::plan(turn).await?,
            Scenario::Plans => delegation::plans(turn).await?,
            Scenario::Tools => display::tools(turn).await?,
            Scenario::Permission => client_requests::permission(turn).await?,
            Scenario::Files => client_requests::files(turn).await?,
            Scenario::Terminal => client_requests::terminal(turn).await?,
            Scenario::Elicitation => client_requests::elicitation(turn).await?,
            Scenario::Modes => display::modes(turn).await?,
            Scenario::Options => display::options(turn).await?,
            Scenario::Commands => display::commands(turn).await?,
            Scenario::Usage => display::usage(turn).await?,
            Scenario::Info => display::info(turn).await?,
            Scenario::Compaction => display::compaction(turn).await?,
            Scenario::Notices => display::notices(turn).await?,
            Scenario::Content => display::content(turn).await?,
            Scenario::Unknown => edge_cases::unknown(turn).await?,
            Scenario::Extension => client_requests::extension(turn).await?,
            Scenario::PeerAgent => client_requests::peer_agent(turn).await?,
            Scenario::Subagents => delegation::subagents(turn).await?,
            Scenario::Markdown => messages::markdown(turn).await?,
            Scenario::Unicode => messages::unicode(turn).await?,
            Scenario::Hostile => edge_cases::hostile(turn).await?,
            Scenario::Slow => messages::slow(turn).await?,
            Scenario::Long => messages::long(turn).await?,
            Scenario::Sessions => {
                let known = self.store.ids().join(", ");
                let text = format!("Sessions to list, load, resume and delete: {known}.");
                turn.send(&text).await?;
            }
            Scenario::Login => {
                self.check_login()?;
                turn.send("You are logged in.").await?;
            }
            Scenario::Cancel => edge_cases::cancel(turn).await?,
            Scenario::Error => edge_cases::error(turn).await?,
            Scenario::Stderr => edge_cases::stderr(turn).await?,
            Scenario::Crash => edge_cases::crash(turn).await?,
            #[cfg(feature = "protocol-v2")]
            Scenario::Upserts => version_2::upserts(turn).await?,
            #[cfg(feature = "protocol-v2")]
            Scenario::Cancellable => version_2::cancellable(turn).await?,
            #[cfg(feature = "protocol-v2")]
            Scenario::Background => version_2::background(turn).await?,
            #[cfg(feature = "protocol-v2")]
            Scenario::Unprompted => version_2::unprompted(turn).await?,
            Scenario::Refusal => {
                turn.send("I would rather not.").await?;
                return Ok(StopReason::Refusal);
            }
            Scenario::MaxTokens => {
                turn.send("This answer is getting too").await?;
                return Ok(StopReason::MaxTokens);
            }
            Scenario::MaxTurnRequests => {
                turn.send("I have asked the model often enough.").await?;
                return Ok(StopReason::MaxTurnRequests);
            }
        }
        Ok(StopReason::EndTurn)
    }
}

impl Agent for MockAgent {
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

    /// Offers a login only in the scenario for it, since some clients log in wherever they can.
    fn auth_methods(&self, _: &InitializeRequest) -> Vec<AuthMethod> {
        if self.scenario != Some(Scenario::Login) {
            return Vec::new();
        }
        let method = AuthMethodAgent::new("mock-login", "Say please").description("Always works");
        vec![method.into()]
    }

    async fn authenticate(&self, _: &Context, _: AuthenticateRequest) -> Result<()> {
        self.logged_in.store(true, Relaxed);
        Ok(())
    }

    async fn logout(&self, _: &Context) -> Result<()> {
        self.logged_in.store(false, Relaxed);
        Ok(())
    }

    async fn new_session_id(&self) -> Result<SessionId> {
        Ok(format!("session-{}", self.sessions.fetch_add(1, Relaxed) + 1).into())
    }

    async fn new_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        if self.scenario == Some(Scenario::Login) {
            self.check_login()?;
        }
        self.store.add(session.id(), session.cwd());
        self.set_up(session).await
    }

    async fn load_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        for update in self.replay(session.id())? {
            session.update(update).await?;
        }
        self.set_up(session).await
    }

    async fn resume_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        self.replay(session.id())?;
        self.set_up(session).await
    }

    /// Returns one session a page, so that the client needs the cursor.
    async fn list_sessions(&self, _: &Context, request: ListSessionsRequest) -> Result<ListSessionsResponse> {
        Ok(request.page(self.store.list(request.cwd.as_deref()), 1)?)
    }

    async fn close_session(&self, _: &Context, _: &Session) -> Result<()> {
        Ok(())
    }

    async fn delete_session(&self, _: &Context, request: DeleteSessionRequest) -> Result<()> {
        self.store.remove(&request.session_id);
        Ok(())
    }

    /// Accepts every mode. The SDK rejects those that were not offered, stores the mode, and changes the option with it.
    async fn set_mode(&self, _: &Context, _: &Session, _: SetSessionModeRequest) -> Result<()> {
        Ok(())
    }

    async fn set_config_option(
        &self,
        _: &Context,
        session: &Session,
        request: SetSessionConfigOptionRequest,
    ) -> Result<Vec<SessionConfigOption>> {
        MockSettings::of(session).change(|settings| {
            settings.set(request.config_id.as_str(), &request.value)?;
            Ok(settings.options())
        })
    }

    /// Stops a program of the scenario `background`.
    #[cfg(feature = "protocol-v2")]
    async fn cancel_terminal(
        &self,
        _: &Context,
        session: &Session,
        terminal: duologue_agent::schema::TerminalId,
    ) -> Result<()> {
        session.state::<version_2::Programs>().stop(&terminal)
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let scenario_turn = ScenarioTurn { turn, pace: self.pace, crash: self.crash };
        let text = prompt.text();
        self.store.add_prompt(turn.id(), text.trim());
        match self.scenario.or_else(|| Scenario::of_prompt(&text)) {
            Some(scenario) => self.play(scenario, &scenario_turn).await,
            None => {
                let words = format!(
                    "You said: {}\n\nI can do more when you begin with one of these:\n\n",
                    text.trim()
                );
                scenario_turn.send(&words).await?;
                let mut list = scenario_turn.message();
                list.push(format!("```\n{}```", Scenario::list())).await?;
                Ok(StopReason::EndTurn)
            }
        }
    }
}
