//! The trait an agent implements.

use std::future::Future;
use std::sync::Arc;

use duologue_schema::{
    AgentCapabilities, AuthMethod, AuthenticateRequest, ContentBlock, DeleteSessionRequest, Implementation,
    InitializeRequest, InitializeResponse, ListSessionsRequest, ListSessionsResponse, SessionConfigOption,
    SessionId, SessionModeState, SetSessionConfigOptionRequest, SetSessionModeRequest, SteerOutcome,
    SteerRequest, StopReason,
};
#[cfg(feature = "unstable")]
use duologue_schema::{
    ArchiveSessionRequest, AuthStatusRequest, AuthStatusResponse, DisableProviderRequest, ForkSessionRequest,
    ListProvidersRequest, ProviderInfo, SessionOptionsRequest, SessionStatus, SessionStatusRequest,
    SetProviderRequest, SetSessionTitleRequest, UnarchiveSessionRequest,
};

use crate::context::Context;
use crate::error::Result;
use crate::session::Session;
use crate::turn::Turn;
use crate::unhandled::unhandled;

/// An agent. Only [`prompt`](Agent::prompt) has to be implemented.
///
/// The methods run concurrently, each request in a task of its own. Put mutable state behind a lock or
/// into [`Session::state`]. Requests that change the same session (modes, options, restores and closes) run
/// one after the other, in the order of the wire. They do not wait for a running turn.
///
/// The crate handles what the protocol requires of every agent: version negotiation, cancellation, the
/// order of updates and responses, and checks of paths and capabilities.
///
/// Methods for optional features respond with `-32601` by default. A client calls them only if
/// [`capabilities`](Agent::capabilities) advertises them. `initialize` fails if it would advertise a method that the agent
/// has not implemented. The opposite is allowed, because the capabilities can depend on the client: a method that is
/// implemented but not advertised is not called by clients that keep to the protocol.
///
/// A method for a request gets its [`Context`], then the session, then the params. In [`prompt`](Agent::prompt) the
/// [`Turn`] has the context, and the methods for `initialize` and for new ids have none. A method without params has all of
/// them in the session and in [`Context::meta`]. [`Context::set_answer_meta`] sets the `_meta` of the response.
///
/// An [`Arc`] of an agent is an agent, so that other tasks can share it.
///
/// ```
/// use duologue_agent::{Agent, Prompt, Result, StopReason, Turn};
///
/// struct Echo;
///
/// impl Agent for Echo {
///     async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
///         turn.message().push(prompt.text()).await?;
///         Ok(StopReason::EndTurn)
///     }
/// }
/// ```
pub trait Agent: Send + Sync + 'static {
    /// Returns the optional capabilities of the agent.
    fn capabilities(&self) -> AgentCapabilities {
        AgentCapabilities::default()
    }

    /// Returns the name and version that are shown to the user.
    fn info(&self) -> Option<Implementation> {
        None
    }

    /// Returns the login methods. Methods of type `terminal` are only sent to clients that advertise
    /// `auth.terminal`.
    fn auth_methods(&self, client: &InitializeRequest) -> Vec<AuthMethod> {
        let _ = client;
        Vec::new()
    }

    /// Completes the response to `initialize`, which contains the results of [`capabilities`](Agent::capabilities),
    /// [`info`](Agent::info) and [`auth_methods`](Agent::auth_methods). It is the place for a `_meta`, and for
    /// capabilities that depend on the client. It runs on the reader: it must not block. The key `duologue` of the
    /// `_meta` of the capabilities is written afterwards if the server has an exchange.
    ///
    /// # Errors
    ///
    /// The client receives the error and is not connected. It may send `initialize` again. In version 2 it may also repeat a
    /// successful one before its first other request, and the last one counts.
    fn initialize(
        &self,
        request: &InitializeRequest,
        response: InitializeResponse,
    ) -> Result<InitializeResponse> {
        let _ = request;
        Ok(response)
    }

    /// Returns the id of the next session, a random UUID by default.
    fn new_session_id(&self) -> impl Future<Output = Result<SessionId>> + Send {
        std::future::ready(Ok(uuid::Uuid::new_v4().to_string().into()))
    }

    /// Sets up a new session. The client does not know it yet, so send requests to the client in the first
    /// turn. Updates that are sent here reach the client after the response that names
    /// the session. Return [`Error::auth_required`](crate::Error::auth_required) to request a login.
    fn new_session(
        &self,
        context: &Context,
        session: &Session,
    ) -> impl Future<Output = Result<SessionSetup>> + Send {
        let _ = (context, session);
        std::future::ready(Ok(SessionSetup::default()))
    }

    /// Runs one turn and returns its stop reason.
    ///
    /// After `session/cancel` the stop reason is always `cancelled`. Pushing to a message fails then, but
    /// tool calls can still be completed. If this does not return within
    /// [`cancel_grace`](duologue_rpc::Limits::cancel_grace) (one second by default), it is dropped. To stop
    /// a slow operation at once, race it with [`Turn::cancelled`].
    ///
    /// Complete or fail every tool call. Those that are still open when the turn ends get the status `failed` before the
    /// response, also after an error, a panic or a cancellation.
    ///
    /// If a prompt is cancelled while it waits for an earlier request of its session, the response is
    /// `cancelled` and this is not called.
    fn prompt(&self, turn: &Turn, prompt: Prompt) -> impl Future<Output = Result<StopReason>> + Send;

    /// Restores a session and replays its conversation as updates before it returns. The session is new
    /// and has the old id: its [`state`](Session::state) is empty, and a running turn of the old session
    /// is cancelled. Later requests for the session wait until this has returned, and fail if it
    /// fails. Advertise it with `load_session`.
    fn load_session(
        &self,
        context: &Context,
        session: &Session,
    ) -> impl Future<Output = Result<SessionSetup>> + Send {
        let _ = (context, session);
        unhandled::<duologue_schema::LoadSessionRequest, _>()
    }

    /// Restores a session without a replay. Advertise it with `session_capabilities.resume`.
    fn resume_session(
        &self,
        context: &Context,
        session: &Session,
    ) -> impl Future<Output = Result<SessionSetup>> + Send {
        let _ = (context, session);
        unhandled::<duologue_schema::ResumeSessionRequest, _>()
    }

    /// Returns one page of the known sessions. Advertise it with `session_capabilities.list`.
    /// [`ListSessionsRequest::page`] cuts the page from a list.
    fn list_sessions(
        &self,
        context: &Context,
        request: ListSessionsRequest,
    ) -> impl Future<Output = Result<ListSessionsResponse>> + Send {
        let _ = (context, request);
        unhandled::<ListSessionsRequest, _>()
    }

    /// Frees the resources of a session after its turn has ended. Advertise it with
    /// `session_capabilities.close`.
    fn close_session(&self, context: &Context, session: &Session) -> impl Future<Output = Result<()>> + Send {
        let _ = (context, session);
        unhandled::<duologue_schema::CloseSessionRequest, _>()
    }

    /// Removes a session from the list. An unknown session is not an error. Advertise it with
    /// `session_capabilities.delete`.
    fn delete_session(
        &self,
        context: &Context,
        request: DeleteSessionRequest,
    ) -> impl Future<Output = Result<()>> + Send {
        let _ = (context, request);
        unhandled::<DeleteSessionRequest, _>()
    }

    /// Switches the mode. Advertise modes by returning them from [`new_session`](Agent::new_session). Without this method
    /// such a session fails. An id that was not offered is rejected before this is called.
    ///
    /// To choose another mode or to keep the old one, call [`Session::mode_changed`] with it. It stays the current mode, and
    /// `session/set_mode` fails, because its response cannot name a mode. The response to an option of the category
    /// `mode` has the chosen mode. Return an error with the reason if the user should read it.
    fn set_mode(
        &self,
        context: &Context,
        session: &Session,
        request: SetSessionModeRequest,
    ) -> impl Future<Output = Result<()>> + Send {
        let _ = (context, session, request);
        unhandled::<SetSessionModeRequest, _>()
    }

    /// Sets one option and returns all options. Advertise options by returning them from
    /// [`new_session`](Agent::new_session). Without this method such a session fails. An option or a value that was not
    /// offered is rejected before this is called.
    fn set_config_option(
        &self,
        context: &Context,
        session: &Session,
        request: SetSessionConfigOptionRequest,
    ) -> impl Future<Output = Result<Vec<SessionConfigOption>>> + Send {
        let _ = (context, session, request);
        unhandled::<SetSessionConfigOptionRequest, _>()
    }

    /// Stops the process of a terminal that this agent shows as
    /// [cancellable](crate::NewDisplayTerminal::cancellable), on `terminal/cancel` of protocol version 2. The agent then
    /// reports its exit by an update. Another terminal, or one that has ended, is rejected before this is called.
    #[cfg(feature = "protocol-v2")]
    fn cancel_terminal(
        &self,
        context: &Context,
        session: &Session,
        terminal: duologue_schema::TerminalId,
    ) -> impl Future<Output = Result<()>> + Send {
        let _ = (context, session);
        let why = format!("the terminal {:?} cannot be cancelled", terminal.as_str());
        std::future::ready(Err(crate::Error::invalid_params(why)))
    }

    /// Takes a message of the user for the running turn, on `_session/steering`, and returns its effect. An agent that
    /// implements this advertises it by itself, as `_meta.steering.supported`.
    ///
    /// Several clients have this extension of the protocol. If no turn runs and the client asks for nothing else, the agent
    /// may begin one, and return [`SteerOutcome::StartedNewTurn`]. If no turn runs and the client asks for
    /// [`SteerOutcome::PromptRequired`], the crate answers with it and does not call this method. The turn can end while the
    /// method runs. An agent that has not used the message by then returns that outcome itself.
    ///
    /// ```
    /// use std::sync::Mutex;
    ///
    /// use duologue_agent::schema::SteerOutcome;
    /// use duologue_agent::{Agent, Context, Prompt, Result, Session, StopReason, Turn};
    ///
    /// #[derive(Default)]
    /// struct Inbox(Mutex<Vec<String>>);
    ///
    /// struct Steerable;
    ///
    /// impl Agent for Steerable {
    ///     async fn steer(&self, _: &Context, session: &Session, message: Prompt) -> Result<SteerOutcome> {
    ///         match session.state::<Inbox>().0.lock() {
    ///             Ok(mut inbox) => inbox.push(message.text()),
    ///             Err(_) => return Ok(SteerOutcome::Failed),
    ///         }
    ///         Ok(SteerOutcome::Injected)
    ///     }
    ///
    ///     async fn prompt(&self, turn: &Turn, _: Prompt) -> Result<StopReason> {
    ///         // Between two steps, the model reads `turn.state::<Inbox>()`.
    /// #       drop(turn.state::<Inbox>());
    ///         Ok(StopReason::EndTurn)
    ///     }
    /// }
    /// ```
    fn steer(
        &self,
        context: &Context,
        session: &Session,
        message: Prompt,
    ) -> impl Future<Output = Result<SteerOutcome>> + Send {
        let _ = (context, session, message);
        unhandled::<SteerRequest, _>()
    }

    /// Returns the state of authentication and the accounts. Advertise it with `auth.status`. Send a change with
    /// [`ClientHandle::auth_status_changed`](crate::ClientHandle::auth_status_changed).
    #[cfg(feature = "unstable")]
    fn auth_status(&self, context: &Context) -> impl Future<Output = Result<AuthStatusResponse>> + Send {
        let _ = context;
        unhandled::<AuthStatusRequest, _>()
    }

    /// Sets the title of a session and returns the stored one. Advertise it with `session_capabilities.title`.
    #[cfg(feature = "unstable")]
    fn set_session_title(
        &self,
        context: &Context,
        request: SetSessionTitleRequest,
    ) -> impl Future<Output = Result<String>> + Send {
        let _ = (context, request);
        unhandled::<SetSessionTitleRequest, _>()
    }

    /// Moves a session to the archive, after its turn has ended. An open session is closed then, without a call of
    /// [`close_session`](Agent::close_session). An archived session is not an error, an unknown one is `-32002`.
    /// Advertise it with `session_capabilities.archive`, together with
    /// [`unarchive_session`](Agent::unarchive_session) and `archived` of [`list_sessions`](Agent::list_sessions).
    #[cfg(feature = "unstable")]
    fn archive_session(
        &self,
        context: &Context,
        request: ArchiveSessionRequest,
    ) -> impl Future<Output = Result<()>> + Send {
        let _ = (context, request);
        unhandled::<ArchiveSessionRequest, _>()
    }

    /// Returns a session from the archive to the list. Advertise it with `session_capabilities.archive`.
    #[cfg(feature = "unstable")]
    fn unarchive_session(
        &self,
        context: &Context,
        request: UnarchiveSessionRequest,
    ) -> impl Future<Output = Result<()>> + Send {
        let _ = (context, request);
        unhandled::<UnarchiveSessionRequest, _>()
    }

    /// Returns the status of a session that is not open in this connection; the crate answers for the open ones. An
    /// unknown session is `-32002`. Advertise it with `session_capabilities.status`.
    #[cfg(feature = "unstable")]
    fn session_status(
        &self,
        context: &Context,
        request: SessionStatusRequest,
    ) -> impl Future<Output = Result<SessionStatus>> + Send {
        let _ = (context, request);
        unhandled::<SessionStatusRequest, _>()
    }

    /// Returns the modes and options that a session would have, and opens none. Advertise it with
    /// `session_capabilities.options`.
    #[cfg(feature = "unstable")]
    fn session_options(
        &self,
        context: &Context,
        request: SessionOptionsRequest,
    ) -> impl Future<Output = Result<SessionSetup>> + Send {
        let _ = (context, request);
        unhandled::<SessionOptionsRequest, _>()
    }

    /// Sets up a new session that continues another one, whose id is `origin` and which may not be open. As in
    /// [`new_session`](Agent::new_session) the client does not know the new session yet. Advertise it with
    /// `session_capabilities.fork`.
    #[cfg(feature = "unstable")]
    fn fork_session(
        &self,
        context: &Context,
        session: &Session,
        origin: SessionId,
    ) -> impl Future<Output = Result<SessionSetup>> + Send {
        let _ = (context, session, origin);
        unhandled::<ForkSessionRequest, _>()
    }

    /// Returns the providers of models that the client can configure, without secrets. Advertise it with `providers`,
    /// together with [`set_provider`](Agent::set_provider) and [`disable_provider`](Agent::disable_provider).
    #[cfg(feature = "unstable")]
    fn list_providers(&self, context: &Context) -> impl Future<Output = Result<Vec<ProviderInfo>>> + Send {
        let _ = context;
        unhandled::<ListProvidersRequest, _>()
    }

    /// Replaces the endpoint of a provider. Its headers may be secrets. Advertise it with `providers`.
    #[cfg(feature = "unstable")]
    fn set_provider(
        &self,
        context: &Context,
        request: SetProviderRequest,
    ) -> impl Future<Output = Result<()>> + Send {
        let _ = (context, request);
        unhandled::<SetProviderRequest, _>()
    }

    /// Removes the endpoint of a provider. Advertise it with `providers`.
    #[cfg(feature = "unstable")]
    fn disable_provider(
        &self,
        context: &Context,
        request: DisableProviderRequest,
    ) -> impl Future<Output = Result<()>> + Send {
        let _ = (context, request);
        unhandled::<DisableProviderRequest, _>()
    }

    /// Logs in with one of [`auth_methods`](Agent::auth_methods). A method that was not offered is rejected with -32602 before
    /// this is called, and so is one of type `terminal`.
    fn authenticate(
        &self,
        context: &Context,
        request: AuthenticateRequest,
    ) -> impl Future<Output = Result<()>> + Send {
        let _ = (context, request);
        unhandled::<AuthenticateRequest, _>()
    }

    /// Logs out. Advertise it with `auth.logout`. In protocol version 2 an agent with a login method has to implement it,
    /// otherwise `initialize` fails.
    fn logout(&self, context: &Context) -> impl Future<Output = Result<()>> + Send {
        let _ = context;
        unhandled::<duologue_schema::LogoutRequest, _>()
    }
}

/// Passes every method on.
macro_rules! passed_on {
    (
        $(fn $now:ident($($now_arg:ident: $now_type:ty),*) -> $now_out:ty;)*
        $($(#[$feature:meta])? async fn $later:ident($($arg:ident: $type:ty),*) -> $out:ty;)*
    ) => {
        impl<A: Agent> Agent for Arc<A> {
            $(fn $now(&self, $($now_arg: $now_type),*) -> $now_out {
                A::$now(self, $($now_arg),*)
            })*
            $($(#[$feature])? fn $later(&self, $($arg: $type),*) -> impl Future<Output = Result<$out>> + Send {
                A::$later(self, $($arg),*)
            })*
        }
    };
}

passed_on! {
    fn capabilities() -> AgentCapabilities;
    fn info() -> Option<Implementation>;
    fn auth_methods(client: &InitializeRequest) -> Vec<AuthMethod>;
    fn initialize(request: &InitializeRequest, response: InitializeResponse) -> Result<InitializeResponse>;
    async fn new_session_id() -> SessionId;
    async fn new_session(context: &Context, session: &Session) -> SessionSetup;
    async fn prompt(turn: &Turn, prompt: Prompt) -> StopReason;
    async fn load_session(context: &Context, session: &Session) -> SessionSetup;
    async fn resume_session(context: &Context, session: &Session) -> SessionSetup;
    async fn list_sessions(context: &Context, request: ListSessionsRequest) -> ListSessionsResponse;
    async fn close_session(context: &Context, session: &Session) -> ();
    async fn delete_session(context: &Context, request: DeleteSessionRequest) -> ();
    async fn set_mode(context: &Context, session: &Session, request: SetSessionModeRequest) -> ();
    async fn set_config_option(
        context: &Context, session: &Session, request: SetSessionConfigOptionRequest
    ) -> Vec<SessionConfigOption>;
    #[cfg(feature = "protocol-v2")]
    async fn cancel_terminal(
        context: &Context, session: &Session, terminal: duologue_schema::TerminalId
    ) -> ();
    async fn authenticate(context: &Context, request: AuthenticateRequest) -> ();
    async fn logout(context: &Context) -> ();
    async fn steer(context: &Context, session: &Session, message: Prompt) -> SteerOutcome;
    #[cfg(feature = "unstable")]
    async fn auth_status(context: &Context) -> AuthStatusResponse;
    #[cfg(feature = "unstable")]
    async fn set_session_title(context: &Context, request: SetSessionTitleRequest) -> String;
    #[cfg(feature = "unstable")]
    async fn archive_session(context: &Context, request: ArchiveSessionRequest) -> ();
    #[cfg(feature = "unstable")]
    async fn unarchive_session(context: &Context, request: UnarchiveSessionRequest) -> ();
    #[cfg(feature = "unstable")]
    async fn session_status(context: &Context, request: SessionStatusRequest) -> SessionStatus;
    #[cfg(feature = "unstable")]
    async fn session_options(context: &Context, request: SessionOptionsRequest) -> SessionSetup;
    #[cfg(feature = "unstable")]
    async fn fork_session(context: &Context, session: &Session, origin: SessionId) -> SessionSetup;
    #[cfg(feature = "unstable")]
    async fn list_providers(context: &Context) -> Vec<ProviderInfo>;
    #[cfg(feature = "unstable")]
    async fn set_provider(context: &Context, request: SetProviderRequest) -> ();
    #[cfg(feature = "unstable")]
    async fn disable_provider(context: &Context, request: DisableProviderRequest) -> ();
}

/// The modes and options of a new or restored session.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SessionSetup {
    /// The available modes and the current one.
    pub modes: Option<SessionModeState>,
    /// All configuration options. Boolean options are removed for clients that cannot show them.
    pub config_options: Option<Vec<SessionConfigOption>>,
    /// True if the modes are also an option of the category `mode`, see
    /// [`mirror_modes`](SessionSetup::mirror_modes).
    pub mirror_modes: bool,
}

impl SessionSetup {
    /// Creates a setup without modes and options.
    #[must_use]
    pub fn new() -> Self {
        SessionSetup::default()
    }

    /// Sets the modes.
    #[must_use]
    pub fn modes(mut self, modes: SessionModeState) -> Self {
        self.modes = Some(modes);
        self
    }

    /// Sets the options.
    #[must_use]
    pub fn config_options(mut self, options: Vec<SessionConfigOption>) -> Self {
        self.config_options = Some(options);
        self
    }

    /// Offers the modes as a configuration option too, or the option of the category `mode` as modes, whichever is
    /// missing. Some editors show only one of them, and the protocol advises to send both.
    ///
    /// The client can then choose a mode both ways. The agent implements only the method of the one that it has
    /// offered, [`Agent::set_mode`] or [`Agent::set_config_option`]. The crate keeps both in step, also
    /// after [`Session::mode_changed`] and [`Session::config_changed`].
    ///
    /// An agent that offers both implements [`Agent::set_mode`] for both. If their values differ, a warning is logged and
    /// nothing is mirrored.
    ///
    /// ```
    /// use duologue_agent::SessionSetup;
    /// use duologue_agent::schema::{SessionMode, SessionModeState};
    ///
    /// let modes = vec![SessionMode::new("ask", "Ask first"), SessionMode::new("code", "Write code")];
    /// let setup = SessionSetup::new().modes(SessionModeState::new("ask", modes)).mirror_modes();
    /// # let _ = setup;
    /// ```
    #[must_use]
    pub fn mirror_modes(mut self) -> Self {
        self.mirror_modes = true;
        self
    }
}

/// The prompt of the user: blocks of content, mostly text. [`Turn::meta`] has the `_meta` of the request.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    blocks: Vec<ContentBlock>,
}

impl Prompt {
    pub(crate) fn new(blocks: Vec<ContentBlock>) -> Self {
        Prompt { blocks }
    }

    /// Returns the concatenated text of all text blocks.
    #[must_use]
    pub fn text(&self) -> String {
        self.blocks.iter().filter_map(ContentBlock::as_text).collect()
    }

    /// Returns all blocks.
    #[must_use]
    pub fn blocks(&self) -> &[ContentBlock] {
        &self.blocks
    }

    /// Returns all blocks, owned.
    #[must_use]
    pub fn into_blocks(self) -> Vec<ContentBlock> {
        self.blocks
    }
}
