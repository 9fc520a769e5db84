//! The host of `duologue run`: serves the files and programs of the folder, and sends questions to
//! the user.

use std::sync::Arc;

use duologue_client::{Host, HostContext, HostResult, LocalHost};
use duologue_schema::{
    BooleanConfigOptionCapabilities, ClientCapabilities, ClientSessionCapabilities, CompactionCapabilities,
    CompleteElicitationNotification, CreateElicitationRequest, CreateElicitationResponse,
    CreateTerminalRequest, CreateTerminalResponse, ElicitationCapabilities, ElicitationFormCapabilities,
    ElicitationUrlCapabilities, Error as WireError, FileSystemCapabilities, KillTerminalRequest,
    KillTerminalResponse, NoticeCapabilities, PlanCapabilities, ReadTextFileRequest, ReadTextFileResponse,
    ReleaseTerminalRequest, ReleaseTerminalResponse, Request as _, RequestPermissionRequest,
    RequestPermissionResponse, SessionConfigOptionsCapabilities, SessionId, SubagentCapabilities,
    TerminalOutputRequest, TerminalOutputResponse, WaitForTerminalExitRequest, WaitForTerminalExitResponse,
    WriteTextFileRequest, WriteTextFileResponse,
};

use super::audit::AuditEntry;
use super::form;
use super::permission::Rules;
use super::terminals;
use super::ui_queue::UiQueue;

/// A [`LocalHost`] with a user. Every write, terminal and answer is entered into the audit trail.
pub(super) struct RunHost {
    pub(super) local: Arc<LocalHost>,
    pub(super) rules: Rules,
    pub(super) ui: UiQueue,
    /// True if files may be read.
    pub(super) tools: bool,
    /// True if a user can answer questions.
    pub(super) asks: bool,
    /// True if the output of terminals is shown.
    pub(super) shows_terminals: bool,
}

impl Host for RunHost {
    fn capabilities(&self) -> ClientCapabilities {
        let options = SessionConfigOptionsCapabilities::new().boolean(BooleanConfigOptionCapabilities::new());
        let session = ClientSessionCapabilities::new()
            .notices(NoticeCapabilities::new())
            .compaction(CompactionCapabilities::new())
            .config_options(options);
        let mut capabilities = self
            .local
            .capabilities()
            .session(session)
            .plan(PlanCapabilities::new())
            .subagents(SubagentCapabilities::new());
        if !self.tools {
            capabilities = capabilities.fs(FileSystemCapabilities::new());
        }
        if self.asks {
            let elicitation = ElicitationCapabilities::new()
                .form(ElicitationFormCapabilities::new())
                .url(ElicitationUrlCapabilities::new());
            capabilities = capabilities.elicitation(elicitation);
        }
        capabilities
    }

    fn session_started(&self, context: &HostContext, session: &SessionId, folders: &[std::path::PathBuf]) {
        self.local.session_started(context, session, folders);
    }

    fn session_ended(&self, context: &HostContext, session: &SessionId) {
        self.local.session_ended(context, session);
    }

    async fn request_permission(
        &self,
        context: &HostContext,
        request: RequestPermissionRequest,
    ) -> HostResult<RequestPermissionResponse> {
        self.rules.answer(&self.local, context, request, &self.ui).await
    }

    async fn read_text_file(
        &self,
        context: &HostContext,
        request: ReadTextFileRequest,
    ) -> HostResult<ReadTextFileResponse> {
        if !self.tools {
            return Err(WireError::method_not_found(ReadTextFileRequest::METHOD));
        }
        self.local.read_text_file(context, request).await
    }

    async fn write_text_file(
        &self,
        context: &HostContext,
        request: WriteTextFileRequest,
    ) -> HostResult<WriteTextFileResponse> {
        let entry = self.ui.begin(AuditEntry::of_write(&request)).await;
        let result = self.local.write_text_file(context, request).await;
        entry.done(&result).await;
        result
    }

    async fn create_terminal(
        &self,
        context: &HostContext,
        request: CreateTerminalRequest,
    ) -> HostResult<CreateTerminalResponse> {
        let (entry, session) =
            (self.ui.begin(AuditEntry::of_terminal(&request)).await, request.session_id.clone());
        let result = self.local.create_terminal(context, request).await;
        entry.done(&result).await;
        if let Some(created) = result.as_ref().ok().filter(|_| self.shows_terminals) {
            let (local, ui, id) = (self.local.clone(), self.ui.clone(), created.terminal_id.clone());
            tokio::spawn(terminals::watch(local, context.clone(), session, id, ui));
        }
        result
    }

    async fn terminal_output(
        &self,
        context: &HostContext,
        request: TerminalOutputRequest,
    ) -> HostResult<TerminalOutputResponse> {
        self.local.terminal_output(context, request).await
    }

    async fn wait_for_terminal_exit(
        &self,
        context: &HostContext,
        request: WaitForTerminalExitRequest,
    ) -> HostResult<WaitForTerminalExitResponse> {
        self.local.wait_for_terminal_exit(context, request).await
    }

    async fn kill_terminal(
        &self,
        context: &HostContext,
        request: KillTerminalRequest,
    ) -> HostResult<KillTerminalResponse> {
        self.local.kill_terminal(context, request).await
    }

    async fn release_terminal(
        &self,
        context: &HostContext,
        request: ReleaseTerminalRequest,
    ) -> HostResult<ReleaseTerminalResponse> {
        let (session, id) = (&request.session_id, &request.terminal_id);
        if self.shows_terminals
            && let Some(tail) = terminals::look(&self.local, context, session, id)
        {
            self.ui.show_terminal(tail).await;
        }
        self.local.release_terminal(context, request).await
    }

    async fn create_elicitation(
        &self,
        _: &HostContext,
        request: CreateElicitationRequest,
    ) -> HostResult<CreateElicitationResponse> {
        if !self.asks {
            return Ok(CreateElicitationResponse::cancel());
        }
        let entry = self.ui.begin(AuditEntry::of_form(&request)).await;
        let response = form::elicit(request, &self.ui).await;
        entry.filled_in(&response.action).await;
        Ok(response)
    }

    fn elicitation_complete(&self, context: &HostContext, notification: CompleteElicitationNotification) {
        self.local.elicitation_complete(context, notification);
    }

    fn closed(&self, context: &HostContext) {
        self.local.closed(context);
    }
}
