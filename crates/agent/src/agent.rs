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

/// An agent: one method to write, the rest as it grows.
///
/// The methods run concurrently, each request in a task of its own, so take `&self` and put what
/// changes behind a lock or into [`Session::state`]. Within one session the requests that change
/// it run one after the other, in the order of the wire.
///
/// What the protocol demands of every agent is done around these methods: version negotiation,
/// cancellation, the order of updates and answers, checks of paths and capabilities.
///
/// Methods for optional features answer `-32601` until they are written; a client calls them only
/// when [`capabilities`](Agent::capabilities) advertises them.
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
    /// What the agent offers beyond the baseline.
    fn capabilities(&self) -> AgentCapabilities {
        AgentCapabilities::default()
    }

    /// Name and version, shown to the user.
    fn info(&self) -> Option<Implementation> {
        None
    }

    /// Ways to log in. Methods of type `terminal` are only shown to clients that advertise
    /// `auth.terminal`.
    fn auth_methods(&self, client: &InitializeRequest) -> Vec<AuthMethod> {
        let _ = client;
        Vec::new()
    }

    /// The id of the next session: a random UUID unless the agent has its own.
    fn new_session_id(&self) -> impl Future<Output = Result<SessionId>> + Send {
        std::future::ready(Ok(uuid::Uuid::new_v4().to_string().into()))
    }

    /// Sets a new session up. Updates sent from here reach the client after the answer that names
    /// the session. Fail with [`Error::auth_required`] to make the client log in.
    fn new_session(&self, session: &Session) -> impl Future<Output = Result<SessionSetup>> + Send {
        let _ = session;
        std::future::ready(Ok(SessionSetup::default()))
    }

    /// Runs one turn, from the user's prompt to the reason for stopping.
    ///
    /// After `session/cancel` the turn is answered `cancelled` whatever this returns. Pushing to a
    /// message then fails, while tool calls can still be brought to an end. What has not returned
    /// after [`cancel_grace`](duologue_rpc::Limits::cancel_grace) (one second by default) is dropped
    /// where it awaits. To stop something slow at once, race it with [`Turn::cancelled`].
    ///
    /// Tool calls that are left open stay open in the client: complete or fail them.
    ///
    /// A prompt that is cancelled while it waits for an earlier request of its session is answered
    /// `cancelled` without a call to this.
    fn prompt(&self, turn: &Turn, prompt: Prompt) -> impl Future<Output = Result<StopReason>> + Send;

    /// Restores a session and replays its conversation as updates before it returns. The session is
    /// a new one with the old id: its [`state`](Session::state) is empty, and a turn that runs in
    /// the old one is cancelled.
    /// Advertise with `load_session`.
    fn load_session(&self, session: &Session) -> impl Future<Output = Result<SessionSetup>> + Send {
        let _ = session;
        unhandled::<duologue_schema::LoadSessionRequest, _>()
    }

    /// Restores a session without replaying it. Advertise with `session_capabilities.resume`.
    fn resume_session(&self, session: &Session) -> impl Future<Output = Result<SessionSetup>> + Send {
        let _ = session;
        unhandled::<duologue_schema::ResumeSessionRequest, _>()
    }

    /// One page of known sessions. Advertise with `session_capabilities.list`.
    fn list_sessions(
        &self,
        request: ListSessionsRequest,
    ) -> impl Future<Output = Result<ListSessionsResponse>> + Send {
        let _ = request;
        unhandled::<ListSessionsRequest, _>()
    }

    /// Frees what a session holds, after its turn has ended. Advertise with
    /// `session_capabilities.close`.
    fn close_session(&self, session: &Session) -> impl Future<Output = Result<()>> + Send {
        let _ = session;
        unhandled::<duologue_schema::CloseSessionRequest, _>()
    }

    /// Removes a session from the list; an unknown one is no error. Advertise with
    /// `session_capabilities.delete`.
    fn delete_session(&self, id: &SessionId) -> impl Future<Output = Result<()>> + Send {
        let _ = id;
        unhandled::<duologue_schema::DeleteSessionRequest, _>()
    }

    /// Switches the mode. The id is not compared with those that were offered. Offered by returning modes from [`new_session`](Agent::new_session).
    fn set_mode(&self, session: &Session, mode: SessionModeId) -> impl Future<Output = Result<()>> + Send {
        let _ = (session, mode);
        unhandled::<duologue_schema::SetSessionModeRequest, _>()
    }

    /// Sets one option and returns all of them. Neither id nor value are compared with those that
    /// were offered. Offered by returning options from
    /// [`new_session`](Agent::new_session).
    fn set_config_option(
        &self,
        session: &Session,
        request: SetSessionConfigOptionRequest,
    ) -> impl Future<Output = Result<Vec<SessionConfigOption>>> + Send {
        let _ = (session, request);
        unhandled::<SetSessionConfigOptionRequest, _>()
    }

    /// Logs in by one of [`auth_methods`](Agent::auth_methods).
    fn authenticate(&self, method: AuthMethodId) -> impl Future<Output = Result<()>> + Send {
        let _ = method;
        unhandled::<duologue_schema::AuthenticateRequest, _>()
    }

    /// Logs out. Advertise with `auth.logout`.
    fn logout(&self) -> impl Future<Output = Result<()>> + Send {
        unhandled::<duologue_schema::LogoutRequest, _>()
    }
}

fn unhandled<R: Request, T: Send>() -> impl Future<Output = Result<T>> + Send {
    std::future::ready(Err(Error::Response(WireError::method_not_found(R::METHOD))))
}

/// What a session starts with: its modes and options.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SessionSetup {
    /// The modes to choose from, and the one it is in.
    pub modes: Option<SessionModeState>,
    /// All configuration options. Boolean ones are left out for clients that cannot show them.
    pub config_options: Option<Vec<SessionConfigOption>>,
    /// Extra data for the answer.
    pub meta: Option<Meta>,
}

impl SessionSetup {
    /// A session with neither modes nor options.
    #[must_use]
    pub fn new() -> Self {
        SessionSetup::default()
    }

    /// Offers modes.
    #[must_use]
    pub fn modes(mut self, modes: SessionModeState) -> Self {
        self.modes = Some(modes);
        self
    }

    /// Offers options.
    #[must_use]
    pub fn config_options(mut self, options: Vec<SessionConfigOption>) -> Self {
        self.config_options = Some(options);
        self
    }
}

/// What the user asked: blocks of content, mostly text.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    blocks: Vec<ContentBlock>,
    meta: Option<Meta>,
}

impl Prompt {
    pub(crate) fn new(blocks: Vec<ContentBlock>, meta: Option<Meta>) -> Self {
        Prompt { blocks, meta }
    }

    /// The `_meta` of the request, where trace context travels.
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        self.meta.as_ref()
    }

    /// The text of all text blocks, one after the other.
    #[must_use]
    pub fn text(&self) -> String {
        self.blocks.iter().filter_map(ContentBlock::as_text).collect()
    }

    /// All blocks.
    #[must_use]
    pub fn blocks(&self) -> &[ContentBlock] {
        &self.blocks
    }

    /// All blocks, owned.
    #[must_use]
    pub fn into_blocks(self) -> Vec<ContentBlock> {
        self.blocks
    }
}
