//! The unstable requests to an agent.

use duologue_schema::{
    ArchiveSessionRequest, AuthStatusRequest, DisableProviderRequest, ForkSessionRequest,
    ForkSessionResponse, ListProvidersRequest, LlmProtocol, NewSessionResponse, ProviderId, SessionId,
    SessionInfoUpdate, SessionOptionsRequest, SessionStatusRequest, SetProviderRequest,
    SetSessionTitleRequest, SetSessionTitleResponse, UnarchiveSessionRequest,
};

use crate::connection::Connection;
use crate::error::Result;
use crate::request::RequestBuilder;
use crate::session::{Session, SessionBuilder, open};

impl SessionBuilder {
    /// Creates a session that continues another one, which stays as it is. Needs an agent that advertises
    /// `sessionCapabilities.fork`.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    ///
    /// # Cancel safety
    ///
    /// As [`create`](Self::create).
    pub async fn fork(self, origin: impl Into<SessionId>) -> Result<Session> {
        let folders = self.check()?;
        let inner = self.connection.inner;
        inner.require(inner.agent().session_capabilities.fork.is_some(), "sessionCapabilities.fork")?;
        let mut request = ForkSessionRequest::new(origin.into(), self.cwd);
        request.mcp_servers = self.mcp_servers;
        request.additional_directories = self.additional_directories;
        request.system_prompt = self.system_prompt;
        request.meta = self.meta;
        open(inner, request, folders, as_new).await
    }
}

/// Returns the response to `session/fork` as that to `session/new`.
fn as_new(fork: ForkSessionResponse) -> NewSessionResponse {
    let mut response = NewSessionResponse::new(fork.session_id);
    (response.modes, response.config_options, response.meta) = (fork.modes, fork.config_options, fork.meta);
    #[cfg(feature = "protocol-v2")]
    {
        response.available_commands = fork.available_commands;
    }
    response
}

/// Declares a request without an effect on the client. Its agent has to advertise a capability.
macro_rules! request {
    ($connection:expr, $request:expr, $offered:expr, $capability:literal) => {{
        let check = $connection.require($offered, $capability);
        let set_meta = |request: &mut _, meta| set_meta(request, meta);
        RequestBuilder::new(&$connection, $request, set_meta, || check, |_| {})
    }};
}

/// A request with a `_meta`.
trait SetMeta {
    fn set_meta(&mut self, meta: duologue_schema::Meta);
}

macro_rules! with_meta {
    ($($request:ident)*) => {
        $(impl SetMeta for $request {
            fn set_meta(&mut self, meta: duologue_schema::Meta) {
                self.meta = Some(meta);
            }
        })*
    };
}

with_meta!(AuthStatusRequest UnarchiveSessionRequest SessionOptionsRequest SessionStatusRequest ListProvidersRequest SetProviderRequest DisableProviderRequest);

fn set_meta(request: &mut impl SetMeta, meta: duologue_schema::Meta) {
    request.set_meta(meta);
}

impl Connection {
    /// Returns the state of authentication and the accounts. Needs an agent that advertises `auth.status`. Such an agent
    /// reports changes to [`Client::on_auth_status`](crate::Client::on_auth_status).
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`](crate::Error::NotSupported), and the error of the agent.
    pub fn auth_status(&self) -> RequestBuilder<AuthStatusRequest> {
        let offered = self.capabilities().auth.status.is_some();
        request!(self.inner, AuthStatusRequest::new(), offered, "auth.status")
    }

    /// Moves a session to the archive. The agent ends its turn and closes it. Needs an agent that advertises
    /// `sessionCapabilities.archive`. [`Listing::archived`](crate::Listing::archived) lists archived sessions.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`](crate::Error::NotSupported), and the error of the agent.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request. If the agent archives the session all the same, it is closed here too.
    pub fn archive_session(&self, id: impl Into<SessionId>) -> RequestBuilder<ArchiveSessionRequest> {
        let offered = self.capabilities().session_capabilities.archive.is_some();
        let check = self.inner.require(offered, "sessionCapabilities.archive");
        let id = id.into();
        let request = ArchiveSessionRequest::new(id.clone());
        let set_meta = |request: &mut ArchiveSessionRequest, meta| request.meta = Some(meta);
        RequestBuilder::begun_by(
            &self.inner,
            request,
            set_meta,
            || check,
            move |connection| {
                let entry = connection.router.entry(&id).map(|entry| (entry.restored(), entry));
                let router = connection.router.clone();
                move |response: Option<&_>| {
                    if let (Some(_), Some((restored, entry))) = (response, entry) {
                        router.forget(&entry, restored);
                    }
                }
            },
        )
    }

    /// Returns a session from the archive to the list. Needs an agent that advertises `sessionCapabilities.archive`.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`](crate::Error::NotSupported), and the error of the agent.
    pub fn unarchive_session(&self, id: impl Into<SessionId>) -> RequestBuilder<UnarchiveSessionRequest> {
        let offered = self.capabilities().session_capabilities.archive.is_some();
        request!(self.inner, UnarchiveSessionRequest::new(id.into()), offered, "sessionCapabilities.archive")
    }

    /// Returns the modes and options that a session would have, and opens none. Needs an agent that advertises
    /// `sessionCapabilities.options`.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`](crate::Error::NotSupported), and the error of the agent.
    pub fn session_options(&self, request: SessionOptionsRequest) -> RequestBuilder<SessionOptionsRequest> {
        let offered = self.capabilities().session_capabilities.options.is_some();
        request!(self.inner, request, offered, "sessionCapabilities.options")
    }

    /// Returns the status of a session: open, or saved. Read an unknown one as saved. Needs an agent that advertises
    /// `sessionCapabilities.status`.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`](crate::Error::NotSupported), and the error of the agent, which is `-32002` for an unknown
    /// session.
    pub fn session_status(&self, id: impl Into<SessionId>) -> RequestBuilder<SessionStatusRequest> {
        let offered = self.capabilities().session_capabilities.status.is_some();
        request!(self.inner, SessionStatusRequest::new(id.into()), offered, "sessionCapabilities.status")
    }

    /// Lists the providers of models that the client can configure. Needs an agent that advertises `providers`.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`](crate::Error::NotSupported), and the error of the agent.
    pub fn list_providers(&self) -> RequestBuilder<ListProvidersRequest> {
        let offered = self.capabilities().providers.is_some();
        request!(self.inner, ListProvidersRequest::new(), offered, "providers")
    }

    /// Replaces the endpoint of a provider, with the headers to send to it, which may be secrets. Needs an agent that
    /// advertises `providers`. Do this before the sessions that use it.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`](crate::Error::NotSupported), and the error of the agent.
    pub fn set_provider(
        &self,
        id: impl Into<ProviderId>,
        api_type: LlmProtocol,
        base_url: impl Into<String>,
        headers: impl IntoIterator<Item = (String, String)>,
    ) -> RequestBuilder<SetProviderRequest> {
        let offered = self.capabilities().providers.is_some();
        let mut request = SetProviderRequest::new(id.into(), api_type, base_url.into());
        request.headers = headers.into_iter().collect();
        request!(self.inner, request, offered, "providers")
    }

    /// Removes the endpoint of a provider. Needs an agent that advertises `providers`.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`](crate::Error::NotSupported), and the error of the agent.
    pub fn disable_provider(&self, id: impl Into<ProviderId>) -> RequestBuilder<DisableProviderRequest> {
        let offered = self.capabilities().providers.is_some();
        request!(self.inner, DisableProviderRequest::new(id.into()), offered, "providers")
    }
}

impl Session {
    /// Renames the session. The response has the title that the agent has stored, as [`state`](Self::state) has then.
    /// Needs an agent that advertises `sessionCapabilities.title`.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`](crate::Error::NotSupported), and the error of the agent.
    ///
    /// # Cancel safety
    ///
    /// As [the type](Self#cancel-safety).
    pub fn set_title(&self, title: impl Into<String>) -> RequestBuilder<SetSessionTitleRequest> {
        let offered = self.connection.agent().session_capabilities.title.is_some();
        let check = self.connection.require(offered, "sessionCapabilities.title");
        let request = SetSessionTitleRequest::new(self.entry.id.clone(), title.into());
        let set_meta = |request: &mut SetSessionTitleRequest, meta| request.meta = Some(meta);
        let entry = self.entry.clone();
        let stored = move |response: Option<&SetSessionTitleResponse>| {
            if let Some(response) = response {
                entry.change_state(&SessionInfoUpdate::new().title(response.title.clone()).into());
            }
        };
        RequestBuilder::new(&self.connection, request, set_meta, || check, stored)
    }
}
