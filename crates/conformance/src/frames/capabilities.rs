//! Validates that a side of a connection of version 2 uses only what the other side has advertised.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use duologue_rpc::ResponseOutcome;
use duologue_schema::{
    ContentBlock, ElicitationMode, InitializeRequest, Notification as _, Request as _, SessionId,
    SessionNotification, SystemPrompt, SystemPromptMode, TerminalId, ToolCallId, v2,
};
use duologue_transcript::{ParsedLine, Side, TranscriptEntry};
use serde_json::value::RawValue;

use super::{FrameReport, Problem};

/// Adds a problem for each use of an absent capability. Without `initialize`, nothing is known.
pub(super) fn check(entries: &[TranscriptEntry<'_>], reports: &mut [FrameReport]) {
    let mut known: Option<Advertised> = None;
    for (place, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.is_v2()) {
        if let Some(advertised) = Advertised::read(entry, entries) {
            known = Some(advertised);
            continue;
        }
        let (Some(known), Some(report)) = (&mut known, reports.get_mut(place)) else { continue };
        let missing = match &entry.parsed {
            ParsedLine::Request { method, params, .. } if entry.from() == Side::Client => {
                let request = v2::ClientRequest::decode(method, *params).and_then(Result::ok);
                request.and_then(|request| known.of_agent(&request))
            }
            ParsedLine::Request { method, params, .. } => {
                let request = v2::AgentRequest::decode(method, *params).and_then(Result::ok);
                request.and_then(|request| {
                    known.note_subject(&request);
                    known.of_client(&request)
                })
            }
            ParsedLine::Notification { method, params, .. } => known.update(method, *params),
            _ => None,
        };
        report.problems.extend(missing);
    }
}

/// Returns the problem of a use of a capability, unless it is there.
fn unless(is_there: bool, path: &str, capability: &str) -> Option<Problem> {
    let problem = format!("needs the capability `{capability}`, which the other side has not");
    (!is_there).then(|| Problem::error(path, problem))
}

/// The capabilities of a connection.
struct Advertised {
    client: v2::ClientCapabilities,
    agent: v2::InitializeResponse,
    calls: Cancellable<ToolCallId>,
    terminals: Cancellable<TerminalId>,
}

/// The objects of a kind that offer to be cancelled, by session.
struct Cancellable<I>(HashMap<SessionId, HashSet<I>>);

impl<I: Clone + Eq + Hash> Cancellable<I> {
    /// Adds or removes an object. `None` changes nothing.
    fn change(&mut self, session: &SessionId, id: &I, offers: Option<bool>) {
        let Some(offers) = offers else { return };
        let known = self.0.entry(session.clone()).or_default();
        if offers {
            known.insert(id.clone());
        } else {
            known.remove(id);
        }
    }

    /// Returns the problem of a request to cancel an object without the offer.
    fn check(&self, session: &SessionId, id: &I, path: &str) -> Option<Problem> {
        let offers = self.0.get(session).is_some_and(|known| known.contains(id));
        unless(offers, path, "cancel")
    }
}

impl Advertised {
    /// Reads the capabilities from a response to `initialize` and its request.
    fn read(entry: &TranscriptEntry<'_>, entries: &[TranscriptEntry<'_>]) -> Option<Self> {
        let ParsedLine::Response { request, outcome: ResponseOutcome::Result(result), .. } = &entry.parsed
        else {
            return None;
        };
        let request =
            entries.get((*request)?).filter(|_| entry.method() == Some(InitializeRequest::METHOD))?;
        let ParsedLine::Request { params: Some(params), .. } = &request.parsed else { return None };
        let params: v2::InitializeRequest = serde_json::from_str(params.get()).ok()?;
        let agent = serde_json::from_str(result.get()).ok()?;
        let (calls, terminals) = (Cancellable(HashMap::new()), Cancellable(HashMap::new()));
        Some(Advertised { client: params.capabilities, agent, calls, terminals })
    }

    /// Checks a request to the agent.
    fn of_agent(&self, request: &v2::ClientRequest) -> Option<Problem> {
        use v2::ClientRequest as Request;
        let method = "$.method";
        let capabilities = &self.agent.capabilities;
        match request {
            Request::Initialize(_) => return None,
            Request::LoginAuth(request) => {
                let offered = unless(!self.agent.auth_methods.is_empty(), method, "authMethods");
                return offered.or_else(|| self.login_in_terminal(request));
            }
            Request::LogoutAuth(_) => {
                return unless(!self.agent.auth_methods.is_empty(), method, "authMethods");
            }
            Request::AuthStatus(_) => {
                let status = capabilities.auth.as_ref().is_some_and(|auth| auth.status.is_some());
                return unless(status, method, "auth.status");
            }
            Request::ListProviders(_) | Request::SetProvider(_) | Request::DisableProvider(_) => {
                return unless(capabilities.providers.is_some(), method, "providers");
            }
            _ => {}
        }
        let Some(session) = &capabilities.session else { return unless(false, method, "session") };
        match request {
            Request::NewSession(request) => {
                workspace(session, &request.additional_directories, &request.mcp_servers)
                    .or_else(|| system_prompt(session, request.system_prompt.as_ref()))
            }
            Request::ResumeSession(request) => {
                workspace(session, &request.additional_directories, &request.mcp_servers)
                    .or_else(|| system_prompt(session, request.system_prompt.as_ref()))
            }
            Request::ListSessions(request) => {
                let is_there = request.archived.is_none() || session.archive.is_some();
                unless(is_there, "$.params.archived", "session.archive")
            }
            Request::Prompt(request) if request.prompt.is_empty() => {
                Some(Problem::error("$.params.prompt", "must have at least one block"))
            }
            Request::Prompt(request) => {
                let mut blocks = request.prompt.iter().enumerate();
                blocks.find_map(|(place, block)| content(session, place, block))
            }
            Request::DeleteSession(_) => unless(session.delete.is_some(), method, "session.delete"),
            Request::ForkSession(request) => unless(session.fork.is_some(), method, "session.fork")
                .or_else(|| workspace(session, &request.additional_directories, &request.mcp_servers))
                .or_else(|| system_prompt(session, request.system_prompt.as_ref())),
            Request::ArchiveSession(_) | Request::UnarchiveSession(_) => {
                unless(session.archive.is_some(), method, "session.archive")
            }
            Request::SetSessionTitle(_) => unless(session.title.is_some(), method, "session.title"),
            Request::SessionOptions(_) => unless(session.options.is_some(), method, "session.options"),
            Request::SessionStatus(_) => unless(session.status.is_some(), method, "session.status"),
            Request::CancelToolCall(request) => {
                self.calls.check(&request.session_id, &request.tool_call_id, "$.params.toolCallId")
            }
            Request::CancelTerminal(request) => {
                self.terminals.check(&request.session_id, &request.terminal_id, "$.params.terminalId")
            }
            _ => None,
        }
    }

    /// Checks a request to the client.
    fn of_client(&self, request: &v2::AgentRequest) -> Option<Problem> {
        match request {
            v2::AgentRequest::CreateElicitation(request) => {
                let elicitation = self.client.elicitation.as_ref();
                let path = "$.params.mode";
                match &request.mode {
                    ElicitationMode::Form(_) => {
                        unless(elicitation.is_some_and(|it| it.form.is_some()), path, "elicitation.form")
                    }
                    ElicitationMode::Url(_) => {
                        unless(elicitation.is_some_and(|it| it.url.is_some()), path, "elicitation.url")
                    }
                    _ => None,
                }
            }
            v2::AgentRequest::RequestPermission(request) => {
                let ids: HashSet<_> = request.options.iter().map(|option| &option.option_id).collect();
                let problem = match request.options.len() {
                    0 => "must have at least one option",
                    count if count > ids.len() => "must have an id of its own for each option",
                    _ => return None,
                };
                Some(Problem::error("$.params.options", problem))
            }
            _ => None,
        }
    }

    /// Returns the problem of a login with a method that runs in a terminal.
    fn login_in_terminal(&self, request: &v2::LoginAuthRequest) -> Option<Problem> {
        let is_terminal = |method: &v2::AuthMethod| matches!(method, v2::AuthMethod::Terminal(method) if method.method_id == request.method_id);
        let runs_in_terminal = self.agent.auth_methods.iter().any(is_terminal);
        let problem = "is a login in a terminal, which has no request";
        runs_in_terminal.then(|| Problem::error("$.params.methodId", problem))
    }

    /// Notes the tool calls and terminals that can be cancelled. Returns the problem of an update that the client does not
    /// show.
    fn update(&mut self, method: &str, params: Option<&RawValue>) -> Option<Problem> {
        let (SessionNotification::METHOD, Some(params)) = (method, params) else { return None };
        let notification: v2::UpdateSessionNotification = serde_json::from_str(params.get()).ok()?;
        let session = &notification.session_id;
        match &notification.update {
            v2::SessionUpdate::ToolCallUpdate(update) => self.note_call(session, update),
            v2::SessionUpdate::TerminalUpdate(update) => {
                let offers = update.capabilities.changes_to(|offered| offered.cancel.is_some());
                self.terminals.change(session, &update.terminal_id, offers);
            }
            v2::SessionUpdate::AvailableCommandsUpdate(update) => {
                let mut commands = update.available_commands.iter();
                let shown = self.client.session.as_ref().and_then(|session| session.commands.as_ref());
                let is_fit = shown.is_some_and(|commands| commands.skill.is_some())
                    || !commands.any(|command| matches!(command, v2::AvailableCommand::Skill(_)));
                return unless(is_fit, "$.params.update.availableCommands", "session.commands.skill");
            }
            _ => {}
        }
        None
    }

    /// Notes the tool call of a permission request, which is an update too.
    fn note_subject(&mut self, request: &v2::AgentRequest) {
        if let v2::AgentRequest::RequestPermission(request) = request
            && let Some(v2::RequestPermissionSubject::ToolCall(subject)) = &request.subject
        {
            self.note_call(&request.session_id, &subject.tool_call);
        }
    }

    fn note_call(&mut self, session: &SessionId, update: &v2::ToolCallUpdate) {
        let offers = update.capabilities.changes_to(|offered| offered.cancel.is_some());
        self.calls.change(session, &update.tool_call_id, offers);
    }
}

/// Checks the folders and MCP servers of a session.
fn workspace(
    session: &v2::SessionCapabilities,
    folders: &[v2::AbsolutePath],
    servers: &[v2::McpServer],
) -> Option<Problem> {
    let has_folders = folders.is_empty() || session.additional_directories.is_some();
    let missing = unless(has_folders, "$.params.additionalDirectories", "session.additionalDirectories");
    missing.or_else(|| {
        let mcp = session.mcp.as_ref();
        let path = "$.params.mcpServers";
        servers.iter().find_map(|server| match server {
            v2::McpServer::Stdio(_) => {
                unless(mcp.is_some_and(|mcp| mcp.stdio.is_some()), path, "session.mcp.stdio")
            }
            v2::McpServer::Http(_) => {
                unless(mcp.is_some_and(|mcp| mcp.http.is_some()), path, "session.mcp.http")
            }
            v2::McpServer::Acp(_) => {
                unless(mcp.is_some_and(|mcp| mcp.acp.is_some()), path, "session.mcp.acp")
            }
            _ => None,
        })
    })
}

/// Checks the instructions of the client to the model.
fn system_prompt(session: &v2::SessionCapabilities, prompt: Option<&SystemPrompt>) -> Option<Problem> {
    let prompt = prompt?;
    let path = "$.params.systemPrompt";
    let Some(offered) = &session.system_prompt else { return unless(false, path, "session.systemPrompt") };
    let can_override = offered.mode.as_ref().is_some_and(|mode| mode.r#override.is_some());
    let is_there = prompt.mode != SystemPromptMode::Override || can_override;
    unless(is_there, "$.params.systemPrompt.mode", "session.systemPrompt.mode.override").or_else(|| {
        let is_text = |block: &ContentBlock| matches!(block, ContentBlock::Text(_));
        let is_valid = !prompt.content.is_empty() && prompt.content.iter().all(is_text);
        (!is_valid)
            .then(|| Problem::error("$.params.systemPrompt.content", "must be one or more blocks of text"))
    })
}

/// Checks the block of a prompt at a place.
fn content(session: &v2::SessionCapabilities, place: usize, block: &ContentBlock) -> Option<Problem> {
    let prompt = session.prompt.as_ref();
    let path = "$.params.prompt";
    match block {
        ContentBlock::Image(_) => {
            unless(prompt.is_some_and(|prompt| prompt.image.is_some()), path, "session.prompt.image")
        }
        ContentBlock::Audio(_) => {
            unless(prompt.is_some_and(|prompt| prompt.audio.is_some()), path, "session.prompt.audio")
        }
        ContentBlock::Resource(_) => {
            let is_there = prompt.is_some_and(|prompt| prompt.embedded_context.is_some());
            unless(is_there, path, "session.prompt.embeddedContext")
        }
        ContentBlock::Skill(_) => {
            let Some(offered) = prompt.and_then(|prompt| prompt.skill.as_ref()) else {
                return unless(false, path, "session.prompt.skill");
            };
            unless(place == 0 || offered.inline.is_some(), path, "session.prompt.skill.inline")
        }
        _ => None,
    }
}
