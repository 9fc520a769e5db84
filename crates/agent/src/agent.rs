//! The trait an agent implements.

use std::future::Future;

use duologue_schema::{
    AgentCapabilities, AuthMethod, AuthMethodId, ContentBlock, Error as WireError, Implementation,
    InitializeRequest, ListSessionsRequest, ListSessionsResponse, Meta, Request, SessionConfigOption,
    SessionId, SessionModeId, SessionModeState, SetSessionConfigOptionRequest, StopReason,
};

use crate::error::{Error, Result};
use crate::session::Session;
use crate::turn::Turn;

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
/// [`capabilities`](Agent::capabilities) advertises them.
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

    /// Returns the id of the next session, a random UUID by default.
    fn new_session_id(&self) -> impl Future<Output = Result<SessionId>> + Send {
        std::future::ready(Ok(uuid::Uuid::new_v4().to_string().into()))
    }

    /// Sets up a new session. The client does not know it yet, so send requests to the client in the first
    /// turn. Updates that are sent here reach the client after the response that names
    /// the session. Return [`Error::auth_required`] to request a login.
    fn new_session(&self, session: &Session) -> impl Future<Output = Result<SessionSetup>> + Send {
        let _ = session;
        std::future::ready(Ok(SessionSetup::default()))
    }

    /// Runs one turn and returns its stop reason.
    ///
    /// After `session/cancel` the stop reason is always `cancelled`. Pushing to a message fails then, but
    /// tool calls can still be completed. If this does not return within
    /// [`cancel_grace`](duologue_rpc::Limits::cancel_grace) (one second by default), it is dropped. To stop
    /// a slow operation at once, race it with [`Turn::cancelled`].
    ///
    /// Complete or fail every tool call: the client shows others as open.
    ///
    /// If a prompt is cancelled while it waits for an earlier request of its session, the response is
    /// `cancelled` and this is not called.
    fn prompt(&self, turn: &Turn, prompt: Prompt) -> impl Future<Output = Result<StopReason>> + Send;

    /// Restores a session and replays its conversation as updates before it returns. The session is new
    /// and has the old id: its [`state`](Session::state) is empty, and a running turn of the old session
    /// is cancelled. Later requests for the session wait until this has returned, and fail if it
    /// fails. Advertise it with `load_session`.
    fn load_session(&self, session: &Session) -> impl Future<Output = Result<SessionSetup>> + Send {
        let _ = session;
        unhandled::<duologue_schema::LoadSessionRequest, _>()
    }

    /// Restores a session without a replay. Advertise it with `session_capabilities.resume`.
    fn resume_session(&self, session: &Session) -> impl Future<Output = Result<SessionSetup>> + Send {
        let _ = session;
        unhandled::<duologue_schema::ResumeSessionRequest, _>()
    }

    /// Returns one page of the known sessions. Advertise it with `session_capabilities.list`.
    fn list_sessions(
        &self,
        request: ListSessionsRequest,
    ) -> impl Future<Output = Result<ListSessionsResponse>> + Send {
        let _ = request;
        unhandled::<ListSessionsRequest, _>()
    }

    /// Frees the resources of a session after its turn has ended. Advertise it with
    /// `session_capabilities.close`.
    fn close_session(&self, session: &Session) -> impl Future<Output = Result<()>> + Send {
        let _ = session;
        unhandled::<duologue_schema::CloseSessionRequest, _>()
    }

    /// Removes a session from the list. An unknown session is not an error. Advertise it with
    /// `session_capabilities.delete`.
    fn delete_session(&self, id: &SessionId) -> impl Future<Output = Result<()>> + Send {
        let _ = id;
        unhandled::<duologue_schema::DeleteSessionRequest, _>()
    }

    /// Switches the mode. Advertise modes by returning them from [`new_session`](Agent::new_session). The
    /// crate does not check the id.
    fn set_mode(&self, session: &Session, mode: SessionModeId) -> impl Future<Output = Result<()>> + Send {
        let _ = (session, mode);
        unhandled::<duologue_schema::SetSessionModeRequest, _>()
    }

    /// Sets one option and returns all options. Advertise options by returning them from
    /// [`new_session`](Agent::new_session). The crate does not check the id and the value.
    fn set_config_option(
        &self,
        session: &Session,
        request: SetSessionConfigOptionRequest,
    ) -> impl Future<Output = Result<Vec<SessionConfigOption>>> + Send {
        let _ = (session, request);
        unhandled::<SetSessionConfigOptionRequest, _>()
    }

    /// Logs in with one of [`auth_methods`](Agent::auth_methods).
    fn authenticate(&self, method: AuthMethodId) -> impl Future<Output = Result<()>> + Send {
        let _ = method;
        unhandled::<duologue_schema::AuthenticateRequest, _>()
    }

    /// Logs out. Advertise it with `auth.logout`.
    fn logout(&self) -> impl Future<Output = Result<()>> + Send {
        unhandled::<duologue_schema::LogoutRequest, _>()
    }
}

fn unhandled<R: Request, T: Send>() -> impl Future<Output = Result<T>> + Send {
    std::future::ready(Err(Error::Response(WireError::method_not_found(R::METHOD))))
}

/// The modes and options of a new or restored session.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SessionSetup {
    /// The available modes and the current one.
    pub modes: Option<SessionModeState>,
    /// All configuration options. Boolean options are removed for clients that cannot show them.
    pub config_options: Option<Vec<SessionConfigOption>>,
    /// The `_meta` of the response.
    pub meta: Option<Meta>,
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
}

/// The prompt of the user: blocks of content, mostly text.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    blocks: Vec<ContentBlock>,
    meta: Option<Meta>,
}

impl Prompt {
    pub(crate) fn new(blocks: Vec<ContentBlock>, meta: Option<Meta>) -> Self {
        Prompt { blocks, meta }
    }

    /// Returns the `_meta` of the request, which can contain a trace context.
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        self.meta.as_ref()
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
