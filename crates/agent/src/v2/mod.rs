//! Protocol version 2: its requests, the state of the foreground work, and the ids of messages.
//!
//! Requests are converted to those of version 1 and handled by the same code. Updates are converted when they are sent.

mod cancellable;
mod for_v1;
mod foreground;
mod message_ids;
mod terminal;

use std::any::Any;
use std::sync::{Arc, Mutex};

use duologue_rpc::{CancellationToken, Incoming, Responder};
use duologue_schema::v2::convert::SessionOpening;
use duologue_schema::{
    ClientRequest, CreateElicitationRequest, Error as WireError, InitializeRequest, ListSessionsRequest,
    ListSessionsResponse, ProtocolVersion, Request, RequestPermissionRequest, ResumeSessionRequest,
    ResumeSessionResponse, SessionArchiveFilter, SessionInfo, SetSessionConfigOptionRequest, v2,
};
use serde_json::value::RawValue;

pub use self::cancellable::DetachedToolCall;
pub(crate) use self::cancellable::{Cancellable, withdraw};
pub(crate) use self::for_v1::for_v1;
pub use self::foreground::ForegroundWork;
pub(crate) use self::foreground::{Foreground, UserWait};
pub(crate) use self::message_ids::MessageIds;
pub use self::terminal::{NewDisplayTerminal, TerminalWriter};
use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::service::{AgentService, Shared, refuse};
use crate::session::Session;

impl<A: Agent> AgentService<A> {
    /// Returns true if a request has the form of version 2.
    pub(crate) fn speaks_v2(&self, request: &Incoming<'_>) -> bool {
        if self.shared.client.is_initialized() {
            return self.shared.client.is_v2();
        }
        let is_initialize = request.method == InitializeRequest::METHOD;
        self.accepts_v2 && is_initialize && request.params.is_some_and(has_form_of_v2)
    }

    /// Handles a request of version 2.
    pub(crate) fn request_v2(&self, request: Incoming<'_>, responder: Responder) {
        match v2::ClientRequest::decode(request.method, request.params) {
            Some(Ok(decoded)) => self.route_v2(decoded, request, responder),
            Some(Err(error)) => refuse(responder, error),
            None => self.other_request(request, responder),
        }
    }

    fn route_v2(&self, decoded: v2::ClientRequest, incoming: Incoming<'_>, responder: Responder) {
        let request = match decoded {
            v2::ClientRequest::Initialize(request) => {
                return responder.respond(self.initialize(request.into(), ProtocolVersion::V2));
            }
            v2::ClientRequest::ResumeSession(request) => match SessionOpening::try_from(request) {
                Ok(SessionOpening::Load(request)) => ClientRequest::LoadSession(request),
                Ok(SessionOpening::Resume(request)) => ClientRequest::ResumeSession(request),
                Err(error) => return refuse(responder, WireError::invalid_params(error.to_string())),
            },
            v2::ClientRequest::LoginAuth(request) => ClientRequest::Authenticate(request.into()),
            v2::ClientRequest::LogoutAuth(request) => ClientRequest::Logout(request.into()),
            v2::ClientRequest::NewSession(request) => ClientRequest::NewSession(request.into()),
            v2::ClientRequest::ListSessions(request) => ClientRequest::ListSessions(request),
            v2::ClientRequest::DeleteSession(request) => ClientRequest::DeleteSession(request),
            v2::ClientRequest::CloseSession(request) => ClientRequest::CloseSession(request),
            v2::ClientRequest::SetSessionConfigOption(request) => {
                match SetSessionConfigOptionRequest::try_from(request) {
                    Ok(request) => ClientRequest::SetSessionConfigOption(request),
                    Err(error) => return refuse(responder, WireError::invalid_params(error.to_string())),
                }
            }
            v2::ClientRequest::Prompt(request) => ClientRequest::Prompt(request.into()),
            v2::ClientRequest::CancelToolCall(request) => {
                return self.cancel_tool_call(&request, responder);
            }
            v2::ClientRequest::CancelTerminal(request) => {
                return self.shared.clone().cancel_terminal(request, responder);
            }
            // The unstable methods.
            _ => return self.other_request(incoming, responder),
        };
        self.route(request, incoming.wire_bytes, responder);
    }
}

/// The state of a session of version 2. A restored session has that of the session that it replaces.
#[derive(Debug, Default)]
pub(crate) struct SessionStateV2 {
    foreground: Mutex<Foreground>,
    message_ids: Mutex<MessageIds>,
    /// The tool calls that the client can cancel.
    pub(crate) cancellable: Mutex<Cancellable>,
    /// Cancelled when the session is closed, with its work in the background.
    background: CancellationToken,
}

/// Every agent of version 2 lists, resumes and closes sessions. For an agent without these methods, its sessions are those
/// that are open in this connection.
impl<A: Agent> Shared<A> {
    /// Lists the open sessions on one page.
    pub(crate) fn open_sessions(&self, request: &ListSessionsRequest) -> Result<ListSessionsResponse> {
        if request.cursor.is_some() {
            return Err(Error::invalid_params("the cursor is unknown: all sessions are on the first page"));
        }
        if request.archived.as_ref().is_some_and(|filter| *filter != SessionArchiveFilter::Exclude) {
            return Err(Error::invalid_params("the agent cannot list archived sessions"));
        }
        let has_archive = self.advertised().session_capabilities.archive.is_some();
        let mut sessions = self.sessions.all();
        sessions.retain(|session| {
            session.is_open() && request.cwd.as_deref().is_none_or(|cwd| session.cwd() == cwd)
        });
        let info = |session: Session| {
            let mut info = SessionInfo::new(session.id().clone(), session.cwd());
            info.additional_directories = session.additional_directories().to_vec();
            info.archived = has_archive.then_some(false);
            info
        };
        Ok(ListSessionsResponse::new(sessions.into_iter().map(info).collect::<Vec<_>>()))
    }

    /// Resumes a session that is open. Its turn goes on.
    pub(crate) fn resume_open(self: Arc<Self>, request: ResumeSessionRequest, responder: Responder) {
        self.in_session(request.session_id.clone(), responder, |shared, session| async move {
            let is_same = request.cwd == session.cwd()
                && request.additional_directories == session.additional_directories()
                && request.mcp_servers == session.mcp_servers()
                && request
                    .system_prompt
                    .as_ref()
                    .is_none_or(|prompt| session.system_prompt() == Some(prompt));
            if !is_same {
                let why =
                    "the session is open; the agent cannot change its folders, MCP servers and system prompt";
                return Err(Error::invalid_params(why));
            }
            session.report_state();
            let mut response = ResumeSessionResponse::new();
            response.config_options = Some(shared.client.shown_options(session.settings().options()));
            Ok(response)
        });
    }
}

/// Reports that the turn waits for the user, if a request is one to the user in the session.
pub(crate) fn wait_for_user<R: Request>(session: &Session, request: &R) -> Option<UserWait> {
    let request: &dyn Any = request;
    if let Some(permission) = request.downcast_ref::<RequestPermissionRequest>() {
        return session.wait_for_user(Some(&permission.tool_call.tool_call_id));
    }
    let elicitation = request.downcast_ref::<CreateElicitationRequest>()?;
    elicitation.mode.session_id()?;
    session.wait_for_user(elicitation.mode.tool_call_id())
}

/// Waits for a response. Returns `None` if the turn that waits for it is cancelled first.
pub(crate) async fn unless_cancelled<T>(
    waiting: Option<&UserWait>,
    response: impl Future<Output = T>,
) -> Option<T> {
    let Some(waiting) = waiting else { return Some(response.await) };
    tokio::select! {
        biased;
        response = response => Some(response),
        () = waiting.cancelled() => None,
    }
}

/// Returns true if the params of `initialize` ask for version 2 or later, in the form of version 2.
fn has_form_of_v2(params: &RawValue) -> bool {
    let request = serde_json::from_str::<v2::InitializeRequest>(params.get());
    request.is_ok_and(|request| request.protocol_version >= ProtocolVersion::V2)
}
