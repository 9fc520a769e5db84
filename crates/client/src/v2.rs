//! Protocol version 2 on the side of the client: `initialize`, prompts, and what the agent sends.

use std::sync::Arc;
use std::time::Duration;

use duologue_rpc::{Error as RpcError, Incoming, QueueId, RequestHandle};
use duologue_schema::{
    AgentNotification, AgentRequest, Error as WireError, InVersion, InitializeRequest, InitializeResponse,
    PromptRequest, ProtocolVersion, Request, TerminalId, ToolCallId, v2,
};
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::connection::{ConnectionInner, WithdrawOnDrop};
use crate::error::Error;
use crate::request::RequestBuilder;
use crate::router::SessionEntry;
use crate::session::Session;

/// The time in which work has to begin after the response to a prompt, if work has ended before it and the agent has not
/// reported the user's message. Otherwise that was the work on the prompt.
const WORK_AFTER_RESPONSE: Duration = Duration::from_secs(10);

/// The params of `initialize` for agents of either version. Each reads its own members and ignores the others.
#[derive(Serialize)]
pub(crate) struct InitializeBoth<'a> {
    #[serde(flatten)]
    v1: &'a InitializeRequest,
    info: v2::Implementation,
    capabilities: v2::ClientCapabilities,
}

impl<'a> InitializeBoth<'a> {
    pub(crate) fn new(request: &'a InitializeRequest) -> Self {
        let v2::InitializeRequest { info, capabilities, .. } = request.clone().into();
        InitializeBoth { v1: request, info, capabilities }
    }
}

/// Reads the response to [`InitializeBoth`] in the version that the agent has chosen.
///
/// Some agents of version 1 repeat the version of any client. Their response has no `info`, which version 2 requires, so
/// the connection has version 1.
pub(crate) fn read_initialize(response: &RawValue) -> Result<InitializeResponse, serde_json::Error> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Form {
        protocol_version: ProtocolVersion,
        info: Option<IgnoredAny>,
    }
    let form: Form = serde_json::from_str(response.get())?;
    if form.protocol_version != ProtocolVersion::V2 {
        return serde_json::from_str(response.get());
    }
    if form.info.is_none() {
        let mut response: InitializeResponse = serde_json::from_str(response.get())?;
        response.protocol_version = ProtocolVersion::V1;
        return Ok(response);
    }
    serde_json::from_str::<v2::InitializeResponse>(response.get()).map(Into::into)
}

impl ConnectionInner {
    /// [`call`](Self::call) for a request that only version 2 has.
    async fn call_v2<R: Request>(&self, request: &R) -> Result<R::Result, Error> {
        let (sender, receiver) = oneshot::channel();
        let deliver = move |answer| {
            let _ = sender.send(answer);
        };
        let _withdraw = WithdrawOnDrop(self.peer().request_into(request, None, deliver)?);
        let answer = self.limited(R::METHOD, receiver).await?;
        answer.map_err(|error| Error::from(error).with_login(self.auth_methods()))
    }

    /// Sends a prompt of version 2. Its response and later updates end the turn.
    pub(crate) fn send_prompt_v2(
        &self,
        request: &PromptRequest,
        stream: QueueId,
        entry: Arc<SessionEntry>,
        number: u64,
    ) -> Result<RequestHandle, RpcError> {
        let message = InVersion { version: ProtocolVersion::V2, message: request };
        let runtime = self.runtime.clone();
        self.peer().call_into(PromptRequest::METHOD, &message, Some(stream), move |response| {
            if entry.accepted(number, response.map_err(Error::from)) {
                let entry = Arc::downgrade(&entry);
                runtime.spawn(async move {
                    tokio::time::sleep(WORK_AFTER_RESPONSE).await;
                    if let Some(entry) = entry.upgrade() {
                        entry.end_early(number);
                    }
                });
            }
        })
    }
}

impl Session {
    /// Cancels a tool call of an agent of version 2, also between turns. The turn goes on. Needs a tool call that
    /// advertises `capabilities.cancel`.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`], also for a tool call that has ended, and the error of the agent.
    /// [`unchecked`](RequestBuilder::unchecked) sends it anyway.
    pub fn cancel_tool_call(&self, id: impl Into<ToolCallId>) -> RequestBuilder<v2::CancelToolCallRequest> {
        let (entry, id) = (self.entry.clone(), id.into());
        let request = v2::CancelToolCallRequest::new(self.entry.id.clone(), id.clone());
        let check = move || require_cancel(entry.read_cancellable(|known| known.has_call(&id)));
        let set_meta = |request: &mut v2::CancelToolCallRequest, meta| request.meta = Some(meta);
        RequestBuilder::sent_by(
            &self.connection,
            request,
            set_meta,
            check,
            |connection, request| async move { connection.call_v2(&request).await },
        )
    }

    /// Ends the command of a terminal of an agent of version 2, as [`cancel_tool_call`](Self::cancel_tool_call).
    ///
    /// # Errors
    ///
    /// As [`cancel_tool_call`](Self::cancel_tool_call).
    pub fn cancel_terminal(&self, id: impl Into<TerminalId>) -> RequestBuilder<v2::CancelTerminalRequest> {
        let (entry, id) = (self.entry.clone(), id.into());
        let request = v2::CancelTerminalRequest::new(self.entry.id.clone(), id.clone());
        let check = move || require_cancel(entry.read_cancellable(|known| known.has_terminal(&id)));
        let set_meta = |request: &mut v2::CancelTerminalRequest, meta| request.meta = Some(meta);
        RequestBuilder::sent_by(
            &self.connection,
            request,
            set_meta,
            check,
            |connection, request| async move { connection.call_v2(&request).await },
        )
    }
}

fn require_cancel(offered: bool) -> Result<(), Error> {
    if offered { Ok(()) } else { Err(Error::NotSupported { capability: "capabilities.cancel" }) }
}

/// Decodes a request of an agent of version 2. Returns `None` for a method that the client does not handle.
pub(crate) fn decode_request(incoming: &Incoming<'_>) -> Option<Result<AgentRequest, WireError>> {
    match v2::AgentRequest::decode(incoming.method, incoming.params)? {
        Ok(v2::AgentRequest::RequestPermission(request)) => {
            Some(Ok(AgentRequest::RequestPermission(request.into())))
        }
        Ok(v2::AgentRequest::CreateElicitation(request)) => {
            Some(Ok(AgentRequest::CreateElicitation(request)))
        }
        Ok(v2::AgentRequest::MessageMcp(_)) => None,
        Err(error) => Some(Err(error)),
    }
}

/// Decodes a notification of an agent of version 2. Returns `None` for a method that the client does not handle.
pub(crate) fn decode_notification(incoming: &Incoming<'_>) -> Option<Result<AgentNotification, WireError>> {
    match v2::AgentNotification::decode(incoming.method, incoming.params)? {
        Ok(v2::AgentNotification::UpdateSession(update)) => {
            Some(Ok(AgentNotification::SessionUpdate(update.into())))
        }
        Ok(v2::AgentNotification::CompleteElicitation(complete)) => {
            Some(Ok(AgentNotification::CompleteElicitation(complete)))
        }
        Ok(v2::AgentNotification::AuthStatusUpdate(_)) => None,
        Err(error) => Some(Err(error)),
    }
}
